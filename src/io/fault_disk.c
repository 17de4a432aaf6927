/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a crash leaves. Every effect on the live state is a change in one list, in order.
 * A node holds a durable base; changes that a sync has made durable are folded into it
 * from the head of the node's own sequence, so that the order among changes of one object
 * is kept even where a later one became durable first. An image of a crash is, for each
 * node, its base and then in order the changes that are durable or that the variant
 * keeps.
 *
 * Invariant: base + all changes of a node, in order = its live state. (Lost changes
 * included: Linux goes on showing them.)
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "io/fault_fs.h"

#define SECTOR_BYTES 512u
#define N_SEEDED 64u
#define N_TEARS 3u

uint64_t
sti_fault_random(uint64_t *state)
{
    /* splitmix64 */
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* ---- bytes and names --------------------------------------------------------------- */

int
sti_fault_bytes_resize(struct sti_fault_bytes *bytes, uint64_t n_bytes)
{
    if (n_bytes > bytes->capacity) {
        uint64_t capacity = n_bytes < 2 * bytes->capacity ? 2 * bytes->capacity : n_bytes;
        char *grown = sti_mem_resize(bytes->bytes, capacity, 1);

        if (!grown)
            return -ENOMEM;
        bytes->bytes = grown;
        bytes->capacity = capacity;
    }
    if (n_bytes > bytes->n_bytes)
        memset(bytes->bytes + bytes->n_bytes, 0, n_bytes - bytes->n_bytes);
    bytes->n_bytes = n_bytes;
    return 0;
}

int
sti_fault_bytes_write(struct sti_fault_bytes *bytes, uint64_t offset, const char *from,
                      uint64_t n_bytes)
{
    if (n_bytes == 0)
        return 0;
    if (offset + n_bytes > bytes->n_bytes) {
        int rc = sti_fault_bytes_resize(bytes, offset + n_bytes);

        if (rc < 0)
            return rc;
    }
    memcpy(bytes->bytes + offset, from, n_bytes);
    return 0;
}

static struct sti_fault_entry *
names_entry(const struct sti_fault_names *names, const char *name)
{
    for (uint32_t at = 0; at < names->n; at++)
        if (strcmp(names->entries[at].name, name) == 0)
            return &names->entries[at];
    return NULL;
}

struct sti_fault_node *
sti_fault_names_find(const struct sti_fault_names *names, const char *name)
{
    const struct sti_fault_entry *entry = names_entry(names, name);

    return entry ? entry->node : NULL;
}

int
sti_fault_names_set(struct sti_fault_names *names, const char *name, struct sti_fault_node *node)
{
    struct sti_fault_entry *entry = names_entry(names, name);

    if (!node) {
        if (entry)
            *entry = names->entries[--names->n];
        return 0;
    }
    if (!entry) {
        if (names->n == names->capacity) {
            uint32_t capacity = names->capacity ? 2 * names->capacity : 8;
            struct sti_fault_entry *grown =
                sti_mem_resize(names->entries, capacity, sizeof(*grown));

            if (!grown)
                return -ENOMEM;
            names->entries = grown;
            names->capacity = capacity;
        }
        entry = &names->entries[names->n++];
        (void)stpcpy(entry->name, name); /* checked to fit when the path was taken apart */
    }
    entry->node = node;
    return 0;
}

/* ---- changes ----------------------------------------------------------------------- */

struct sti_fault_change *
sti_fault_change_new(const struct sti_fault_fs *fs, enum sti_fault_change_kind kind,
                     struct sti_fault_node *node)
{
    struct sti_fault_change *change = sti_mem_new(1, sizeof(*change));

    if (!change)
        return NULL;
    change->kind = kind;
    change->node = node;
    change->op_idx = fs->op_idx;
    return change;
}

void
sti_fault_change_free(struct sti_fault_change *change)
{
    if (!change)
        return;
    sti_mem_free(change->bytes);
    sti_mem_free(change);
}

void
sti_fault_change_add(struct sti_fault_fs *fs, struct sti_fault_change *change)
{
    change->next = NULL;
    *fs->last = change;
    fs->last = &change->next;
}

void
sti_fault_change_name(struct sti_fault_change *change, const char *name,
                      struct sti_fault_node *target)
{
    assert(change->n_names < 2);
    (void)stpcpy(change->names[change->n_names], name); /* fits, as above */
    change->targets[change->n_names++] = target;
}

static uint64_t
sectors_of(const struct sti_fault_change *change)
{
    uint64_t end = change->offset + change->n_bytes;

    return (end + SECTOR_BYTES - 1) / SECTOR_BYTES - change->offset / SECTOR_BYTES;
}

static bool
can_tear(const struct sti_fault_change *change)
{
    return change->kind == STI_FAULT_WRITE && sectors_of(change) > 1;
}

/* How much of a write is found: all of it, its first or last half, or random sectors. */
enum tear { TEAR_NONE, TEAR_FIRST, TEAR_LAST, TEAR_RANDOM };

static int
apply_write(const struct sti_fault_change *change, struct sti_fault_bytes *to, enum tear tear,
            uint64_t *seed)
{
    uint64_t n_sectors = sectors_of(change);
    uint64_t half = (n_sectors + 1) / 2;
    uint64_t done = 0;
    int rc = 0;

    if (tear == TEAR_NONE)
        return sti_fault_bytes_write(to, change->offset, change->bytes, change->n_bytes);
    for (uint64_t sector = 0; sector < n_sectors && rc == 0; sector++) {
        uint64_t at = change->offset + done;
        uint64_t n = SECTOR_BYTES - at % SECTOR_BYTES;
        bool is_kept = tear == TEAR_FIRST  ? sector < half
                       : tear == TEAR_LAST ? sector >= half
                                           : (sti_fault_random(seed) & 1) != 0;

        if (n > change->n_bytes - done)
            n = change->n_bytes - done;
        if (is_kept)
            rc = sti_fault_bytes_write(to, at, change->bytes + done, n);
        done += n;
    }
    return rc;
}

/* Applies a change to the durable state of a node; its targets are looked up in table, by
 * ino, unless table is NULL. */
static int
apply(const struct sti_fault_change *change, struct sti_fault_node *to,
      struct sti_fault_node **table, enum tear tear, uint64_t *seed)
{
    int rc = 0;

    switch (change->kind) {
    case STI_FAULT_EXTEND:
        if (change->offset <= to->durable.n_bytes)
            return 0;
        return sti_fault_bytes_resize(&to->durable, change->offset);
    case STI_FAULT_RESIZE:
        return sti_fault_bytes_resize(&to->durable, change->offset);
    case STI_FAULT_WRITE:
        return apply_write(change, &to->durable, tear, seed);
    case STI_FAULT_NAMES:
        break;
    }
    for (uint32_t at = 0; at < change->n_names && rc == 0; at++) {
        struct sti_fault_node *target = change->targets[at];

        if (target && table)
            target = table[target->ino];
        rc = sti_fault_names_set(&to->durable_names, change->names[at], target);
    }
    return rc;
}

/* ---- syncs ------------------------------------------------------------------------- */

void
sti_fault_disk_complete(struct sti_fault_fs *fs, uint64_t op_idx, uint64_t stamp)
{
    for (struct sti_fault_change *change = fs->first; change; change = change->next)
        if (change->op_idx == op_idx && change->completed == 0)
            change->completed = stamp;
}

static bool
is_covered(const struct sti_fault_change *change, const struct sti_fault_node *node, uint64_t stamp)
{
    return change->node == node && change->completed != 0 && change->completed <= stamp &&
           !change->is_durable && !change->is_lost;
}

static void
remove_change(struct sti_fault_fs *fs, struct sti_fault_change **link)
{
    struct sti_fault_change *gone = *link;

    *link = gone->next;
    if (!*link)
        fs->last = link;
    for (struct sti_fault_change *change = fs->first; change; change = change->next)
        if (change->needs == gone)
            change->needs = NULL; /* what it required is there for good */
    sti_fault_change_free(gone);
}

/* Folds the durable changes at the head of a node's sequence into its base. */
static int
fold(struct sti_fault_fs *fs, struct sti_fault_node *node)
{
    struct sti_fault_change **link = &fs->first;

    while (*link) {
        if ((*link)->node != node) {
            link = &(*link)->next;
            continue;
        }
        if (!(*link)->is_durable)
            return 0;
        int rc = apply(*link, node, NULL, TEAR_NONE, NULL);
        if (rc < 0)
            return rc;
        remove_change(fs, link);
    }
    return 0;
}

int
sti_fault_disk_sync(struct sti_fault_fs *fs, struct sti_fault_node *node, uint64_t stamp)
{
    for (struct sti_fault_change *change = fs->first; change; change = change->next) {
        if (!is_covered(change, node, stamp))
            continue;
        change->is_durable = true;
        if (change->needs)
            change->needs->is_durable = true;
    }
    return fold(fs, node);
}

void
sti_fault_disk_lose(struct sti_fault_fs *fs, const struct sti_fault_node *node, uint64_t stamp)
{
    for (struct sti_fault_change *change = fs->first; change; change = change->next)
        if (is_covered(change, node, stamp))
            change->is_lost = true;
}

/* ---- crashes ----------------------------------------------------------------------- */

static void
count_undecided(const struct sti_fault_fs *fs, uint64_t *ret_changes, uint64_t *ret_tearable)
{
    *ret_changes = 0;
    *ret_tearable = 0;
    for (const struct sti_fault_change *change = fs->first; change; change = change->next) {
        if (change->is_durable)
            continue;
        (*ret_changes)++;
        *ret_tearable += can_tear(change) ? 1 : 0;
    }
}

uint64_t
sti_fault_disk_variants(const struct sti_fault_fs *fs)
{
    uint64_t n;
    uint64_t n_tearable;

    count_undecided(fs, &n, &n_tearable);
    return n == 0 ? 1 : 2 + 2 * n + N_SEEDED + N_TEARS * n_tearable;
}

/* A variant as a decision for each undecided change. */
struct chooser {
    enum { NONE, ALL, ALL_BUT, ALONE, SEEDED, TORN } rule;
    uint64_t which; /* ALL_BUT, ALONE: index among the undecided; TORN: among the tearable */
    enum tear tear; /* TORN */
    uint64_t seed;
    uint64_t n_seen;
    uint64_t n_tearable_seen;
};

static struct chooser
chooser_of(uint64_t variant, uint64_t n)
{
    struct chooser chooser = {.rule = NONE, .seed = variant};

    if (variant < 2) {
        chooser.rule = variant == 0 ? NONE : ALL;
    } else if (variant < 2 + n) {
        chooser.rule = ALL_BUT;
        chooser.which = variant - 2;
    } else if (variant < 2 + 2 * n) {
        chooser.rule = ALONE;
        chooser.which = variant - 2 - n;
    } else if (variant < 2 + 2 * n + N_SEEDED) {
        chooser.rule = SEEDED;
    } else {
        uint64_t at = variant - 2 - 2 * n - N_SEEDED;

        chooser.rule = TORN;
        chooser.which = at / N_TEARS;
        chooser.tear = TEAR_FIRST + (enum tear)(at % N_TEARS);
    }
    return chooser;
}

/* Whether an undecided change is kept; how much of it in *ret_tear. */
static bool
choose(struct chooser *chooser, const struct sti_fault_change *change, enum tear *ret_tear)
{
    uint64_t idx = chooser->n_seen++;
    uint64_t tearable_idx = chooser->n_tearable_seen;
    uint64_t random;

    chooser->n_tearable_seen += can_tear(change) ? 1 : 0;
    *ret_tear = TEAR_NONE;
    switch (chooser->rule) {
    case NONE:
        return false;
    case ALL:
        return true;
    case ALL_BUT:
        return idx != chooser->which;
    case ALONE:
        return idx == chooser->which;
    case SEEDED:
        random = sti_fault_random(&chooser->seed);
        if (can_tear(change) && (random & 2) != 0)
            *ret_tear = TEAR_RANDOM;
        return (random & 1) != 0;
    case TORN:
        if (can_tear(change) && tearable_idx == chooser->which)
            *ret_tear = chooser->tear;
        return true;
    }
    return false;
}

struct decision {
    const struct sti_fault_change *change;
    bool is_kept;
    enum tear tear;
};

static void
keep_required(struct decision *decisions, uint64_t n)
{
    for (uint64_t at = 0; at < n; at++) {
        const struct sti_fault_change *required = decisions[at].change->needs;

        if (!decisions[at].is_kept || !required)
            continue;
        for (uint64_t other = 0; other < n; other++)
            if (decisions[other].change == required)
                decisions[other].is_kept = true;
    }
}

/* Applies the kept changes to the new nodes; table: by ino. */
static int
apply_kept(const struct sti_fault_fs *from, struct sti_fault_node **table, struct chooser *chooser)
{
    struct decision *decisions;
    uint64_t n = 0;
    uint64_t at = 0;
    int rc = 0;

    for (const struct sti_fault_change *change = from->first; change; change = change->next)
        n++;
    decisions = sti_mem_new(n + 1, sizeof(*decisions));
    if (!decisions)
        return -ENOMEM;
    for (const struct sti_fault_change *change = from->first; change; change = change->next) {
        struct decision *decision = &decisions[at++];

        decision->change = change;
        decision->is_kept = change->is_durable || choose(chooser, change, &decision->tear);
    }
    keep_required(decisions, n);
    for (at = 0; at < n && rc == 0; at++)
        if (decisions[at].is_kept)
            rc = apply(decisions[at].change, table[decisions[at].change->node->ino], table,
                       decisions[at].tear, &chooser->seed);
    sti_mem_free(decisions);
    return rc;
}

static int
copy_names(struct sti_fault_names *to, const struct sti_fault_names *from,
           struct sti_fault_node **table)
{
    int rc = 0;

    for (uint32_t at = 0; at < from->n && rc == 0; at++) {
        struct sti_fault_node *node = from->entries[at].node;

        rc = sti_fault_names_set(to, from->entries[at].name, table ? table[node->ino] : node);
    }
    return rc;
}

/* A file system that starts: what is durable is what programs see. Directories learn
 * their parents from the root downwards; what it does not reach has no name any more. */
static int
mount_nodes(struct sti_fault_fs *fs, struct sti_fault_node **queue)
{
    uint64_t n_queued = 0;
    int rc = 0;

    for (struct sti_fault_node *node = fs->nodes; node && rc == 0; node = node->next) {
        rc = sti_fault_bytes_write(&node->live, 0, node->durable.bytes, node->durable.n_bytes);
        if (rc == 0)
            rc = copy_names(&node->live_names, &node->durable_names, NULL);
    }
    queue[n_queued++] = fs->root;
    for (uint64_t at = 0; at < n_queued; at++) {
        const struct sti_fault_names *names = &queue[at]->live_names;

        for (uint32_t entry = 0; entry < names->n; entry++) {
            struct sti_fault_node *node = names->entries[entry].node;

            if (!S_ISDIR(node->mode) || node->parent || node == fs->root)
                continue;
            node->parent = queue[at];
            queue[n_queued++] = node;
        }
    }
    return rc;
}

/* New nodes for all of from's, with the same numbers. The root is there already. */
static int
copy_nodes(struct sti_fault_fs *fs, const struct sti_fault_fs *from, struct sti_fault_node **table)
{
    int rc = 0;

    for (const struct sti_fault_node *node = from->nodes; node; node = node->next) {
        if (node == from->root)
            continue;
        struct sti_fault_node *copy = sti_fault_node_new(fs, node->mode);
        if (!copy)
            return -ENOMEM;
        copy->ino = node->ino;
        copy->changed_ns = node->changed_ns;
        table[copy->ino] = copy;
    }
    table[fs->root->ino] = fs->root;
    for (const struct sti_fault_node *node = from->nodes; node && rc == 0; node = node->next) {
        struct sti_fault_node *copy = table[node->ino];

        rc = sti_fault_bytes_write(&copy->durable, 0, node->durable.bytes, node->durable.n_bytes);
        if (rc == 0)
            rc = copy_names(&copy->durable_names, &node->durable_names, table);
    }
    return rc;
}

int
sti_fault_disk_crash(struct sti_fault_fs *fs, const struct sti_fault_fs *from, uint64_t variant)
{
    struct sti_fault_node **table;
    uint64_t n;
    uint64_t n_tearable;

    if (variant >= sti_fault_disk_variants(from))
        return -EINVAL;
    count_undecided(from, &n, &n_tearable);
    struct chooser chooser = chooser_of(variant, n);
    table = sti_mem_new(from->n_nodes + 1, sizeof(struct sti_fault_node *));
    if (!table)
        return -ENOMEM;
    int rc = copy_nodes(fs, from, table);
    if (rc == 0)
        rc = apply_kept(from, table, &chooser);
    if (rc == 0)
        rc = mount_nodes(fs, table); /* the table is used anew, as a queue */
    sti_mem_free(table);
    return rc;
}
