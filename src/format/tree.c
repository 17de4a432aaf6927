/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree. A fixed number of slots, each one operation in flight with its buffers, are
 * handed out to whatever is to be done next: a listed directory's links first, then the
 * next directory. Invariant: a directory's entries are touched by one thread at a time:
 * by the listing and the sort behind it on a pool thread, after that by the owner alone.
 * The operation's hand-over orders the two.
 *
 * A directory's time is taken before it is listed, so whoever changes it later changes
 * the time too; but times move in ticks of some milliseconds, so a directory that was
 * changed just now is waited for (see time.h).
 */
#include "format/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/mem.h"
#include "format/index.h"
#include "format/name.h"
#include "format/time.h"
#include "io/aio.h"

#define SLOTS 128
#define MASK (STATX_TYPE | STATX_MODE | STATX_INO | STATX_SIZE | STATX_MTIME)

struct scan;

struct slot {
    struct sti_aio_op op;
    struct statx found;
    struct scan *scan;
    struct slot *next_free;
    uint32_t dir_idx;
    uint32_t entry_idx;
    char path[PATH_MAX];
};

struct scan {
    struct sti_tree *tree;
    struct sti_aio *aio;
    struct slot *free;
    stk_error *err;
    int rc; /* the first error; nothing is begun after it */
    uint32_t n_busy;
    uint32_t n_paused;
    struct slot *paused; /* busy, but waiting for time to pass */
    uint32_t next_dir;   /* to be listed */
    uint32_t *listed;    /* directories whose entries can be looked at, in order of listing */
    uint32_t n_listed;
    uint32_t listed_room;
    uint32_t at_listed; /* cursor: which of listed, and which entry of it */
    uint32_t at_entry;
};

static int
fail(struct scan *scan, int code, const char *path, const char *what)
{
    char shown[STK_ERROR_PATH_SIZE];

    if (scan->rc != 0)
        return scan->rc;
    (void)snprintf(shown, sizeof(shown), "%s%s%s", scan->tree->shown, *path ? "/" : "", path);
    scan->rc = code;
    return sti_error_set_path(scan->err, code, shown, "%s: %s", what, sti_error_text(code));
}

/* Makes room for one more element; false without memory. */
static bool
make_room(void *array, uint32_t *room, uint32_t n, size_t element_bytes)
{
    void **block = array;

    if (n < *room)
        return true;
    if (*room > UINT32_MAX / 2)
        return false;
    uint32_t wanted = *room ? *room * 2 : 16;
    void *grown = sti_mem_resize(*block, wanted, element_bytes);
    if (!grown)
        return false;
    *block = grown;
    *room = wanted;
    return true;
}

/* Writes directory/name to a buffer of PATH_MAX; false where it is too long. */
static bool
compose(char *buffer, const struct sti_tree_dir *dir, const char *name)
{
    int n = snprintf(buffer, PATH_MAX, "%s%s%s", dir->path, *dir->path ? "/" : "", name);

    return n > 0 && n < PATH_MAX;
}

static void
dir_free(struct sti_tree_dir *dir)
{
    if (!dir)
        return;
    sti_mem_free(dir->path);
    sti_mem_free(dir->names);
    sti_mem_free(dir->entries);
    sti_mem_free(dir);
}

/* Adds the directory name in a parent, or the root (parent STI_TREE_NONE, name ""). */
static int
add_dir(struct sti_tree *tree, uint32_t parent, const char *name)
{
    const char *above = parent == STI_TREE_NONE ? "" : tree->dirs[parent]->path;
    size_t room = strlen(above) + 1 + strlen(name) + 1;

    if (room > PATH_MAX)
        return -ENAMETOOLONG;
    struct sti_tree_dir *dir = sti_mem_new(1, sizeof(*dir));
    if (!dir)
        return -ENOMEM;
    dir->path = sti_mem_new(room, 1);
    if (!dir->path ||
        !make_room(&tree->dirs, &tree->dirs_room, tree->n_dirs, sizeof(struct sti_tree_dir *))) {
        dir_free(dir);
        return -ENOMEM;
    }
    (void)snprintf(dir->path, room, "%s%s%s", above, *above ? "/" : "", name); /* it fits */
    const char *slash = strrchr(dir->path, '/');
    dir->name = slash ? slash + 1 : dir->path;
    dir->parent = parent;
    dir->top = STI_TREE_NONE;
    if (parent != STI_TREE_NONE)
        dir->top = parent == 0 ? tree->n_dirs : tree->dirs[parent]->top;
    dir->tree = tree;
    tree->dirs[tree->n_dirs++] = dir;
    return 0;
}

static enum sti_tree_kind
kind_of(unsigned char d_type)
{
    if (d_type == DT_DIR)
        return STI_TREE_DIR;
    return d_type == DT_LNK || d_type == DT_UNKNOWN ? STI_TREE_UNKNOWN : STI_TREE_FILE;
}

/* One name of a directory, on a pool thread. */
static int
on_name(void *context, const char *name, unsigned char d_type)
{
    struct sti_tree_dir *dir = context;
    size_t n_bytes = strlen(name);
    enum sti_tree_kind kind = kind_of(d_type);

    if (sti_name_is_index(name))
        return 0;
    dir->names_hash += sti_index_name_hash(name);
    if (kind == STI_TREE_FILE && !sti_name_has_ending(name, n_bytes, dir->tree->endings))
        return 0;
    if (!make_room(&dir->entries, &dir->entries_room, dir->n_entries, sizeof(*dir->entries)))
        return -ENOMEM;
    while (dir->names_room - dir->names_bytes <= n_bytes)
        if (!make_room(&dir->names, &dir->names_room, dir->names_room, 1))
            return -ENOMEM;
    dir->entries[dir->n_entries++] =
        (struct sti_tree_entry){.name_at = dir->names_bytes, .kind = (uint8_t)kind};
    memcpy(dir->names + dir->names_bytes, name, n_bytes + 1);
    dir->names_bytes += (uint32_t)n_bytes + 1;
    return 0;
}

static int
compare_names(const void *a, const void *b, void *context)
{
    const char *names = context;
    const struct sti_tree_entry *left = a, *right = b;

    return sti_name_compare_text(names + left->name_at, names + right->name_at);
}

/* After a listing, on a pool thread. */
static void
sort_names(struct sti_aio_op *op)
{
    struct sti_tree_dir *dir = op->list_context;

    if (op->result == 0 && dir->n_entries > 1)
        qsort_r(dir->entries, dir->n_entries, sizeof(*dir->entries), compare_names, dir->names);
}

static void
release(struct slot *slot)
{
    struct scan *scan = slot->scan;

    slot->next_free = scan->free;
    scan->free = slot;
    scan->n_busy--;
}

static void
add_subdirectory(struct scan *scan, uint32_t parent, const char *name)
{
    int rc = add_dir(scan->tree, parent, name);

    if (rc < 0)
        (void)fail(scan, rc, scan->tree->dirs[parent]->path, "cannot index what is below this");
}

static void
on_listed(struct sti_aio_op *op)
{
    struct slot *slot = op->context;
    struct scan *scan = slot->scan;
    struct sti_tree_dir *dir = scan->tree->dirs[slot->dir_idx];

    if (op->result < 0)
        (void)fail(scan, op->result, dir->path, "cannot list this directory");
    else if (!make_room(&scan->listed, &scan->listed_room, scan->n_listed, sizeof(uint32_t)))
        (void)fail(scan, -ENOMEM, dir->path, "cannot index");
    else
        scan->listed[scan->n_listed++] = slot->dir_idx;
    for (uint32_t i = 0; i < dir->n_entries && scan->rc == 0; i++)
        if (dir->entries[i].kind == STI_TREE_DIR)
            add_subdirectory(scan, slot->dir_idx, sti_tree_name(dir, &dir->entries[i]));
    release(slot);
}

/* Whether a directory is one of its own parents, which a symbolic link can make it. */
static bool
is_loop(const struct sti_tree *tree, const struct sti_tree_dir *dir)
{
    for (uint32_t at = dir->parent; at != STI_TREE_NONE; at = tree->dirs[at]->parent)
        if (tree->dirs[at]->device == dir->device && tree->dirs[at]->inode == dir->inode)
            return true;
    return false;
}

static void
on_dir_found(struct sti_aio_op *op)
{
    struct slot *slot = op->context;
    struct scan *scan = slot->scan;
    struct sti_tree_dir *dir = scan->tree->dirs[slot->dir_idx];

    if (op->result == 0 && sti_time_is_fresh(&slot->found.stx_mtime) && slot->entry_idx == 0) {
        slot->entry_idx = 1; /* waits once; whoever writes on and on is found out later */
        slot->next_free = scan->paused;
        scan->paused = slot;
        scan->n_paused++;
        return;
    }
    dir->device = sti_time_device(&slot->found);
    dir->inode = slot->found.stx_ino;
    dir->mtime_ns = sti_time_ns(&slot->found.stx_mtime);
    if (op->result < 0)
        (void)fail(scan, op->result, dir->path, "cannot look at this directory");
    else if (is_loop(scan->tree, dir))
        (void)fail(scan, -ELOOP, dir->path, "a symbolic link leads back to a parent directory");
    if (scan->rc != 0) {
        release(slot);
        return;
    }
    op->kind = STI_AIO_LIST;
    op->list_fn = on_name;
    op->list_context = dir;
    op->work = sort_names;
    op->work_lane = STI_LANE_NORMAL;
    op->done = on_listed;
    sti_aio_submit(scan->aio, op);
}

/* A link or an entry of unknown kind. What cannot be looked at counts as a file, as it
 * does for os.walk(); if it is wanted as a sample, sti_tree_stat() says what is wrong
 * with it. */
static void
on_kind_found(struct sti_aio_op *op)
{
    struct slot *slot = op->context;
    struct scan *scan = slot->scan;
    struct sti_tree_dir *dir = scan->tree->dirs[slot->dir_idx];
    struct sti_tree_entry *entry = &dir->entries[slot->entry_idx];

    entry->kind = STI_TREE_FILE;
    if (op->result == 0 && S_ISDIR(slot->found.stx_mode)) {
        entry->kind = STI_TREE_DIR;
        add_subdirectory(scan, slot->dir_idx, sti_tree_name(dir, entry));
    } else if (op->result == 0 && S_ISREG(slot->found.stx_mode)) {
        entry->kind = STI_TREE_SIZED;
        entry->n_bytes = slot->found.stx_size;
    }
    release(slot);
}

static void
on_size_found(struct sti_aio_op *op)
{
    struct slot *slot = op->context;
    struct scan *scan = slot->scan;
    struct sti_tree_dir *dir = scan->tree->dirs[slot->dir_idx];
    struct sti_tree_entry *entry = &dir->entries[slot->entry_idx];

    if (op->result == -ENOENT)
        (void)fail(scan, -ENOENT, slot->path, "a link that leads nowhere, or gone meanwhile");
    else if (op->result < 0)
        (void)fail(scan, op->result, slot->path, "cannot look at this file");
    else if (!S_ISREG(slot->found.stx_mode))
        (void)fail(scan, -EINVAL, slot->path, "neither a regular file nor a directory");
    entry->n_bytes = slot->found.stx_size;
    entry->kind = STI_TREE_SAMPLE;
    release(slot);
}

static void
begin(struct scan *scan, sti_aio_fn done, uint32_t dir_idx, uint32_t entry_idx)
{
    struct slot *slot = scan->free;

    scan->free = slot->next_free;
    scan->n_busy++;
    slot->dir_idx = dir_idx;
    slot->entry_idx = entry_idx;
    memset(&slot->op, 0, sizeof(slot->op));
    slot->op.kind = STI_AIO_STATX;
    slot->op.dir_fd = scan->tree->root_fd;
    slot->op.path = *slot->path ? slot->path : ".";
    slot->op.statx = &slot->found;
    slot->op.statx_mask = MASK;
    slot->op.done = done;
    slot->op.context = slot;
    sti_aio_submit(scan->aio, &slot->op);
}

/* Begins with the next entry of a kind, if there is one among the listed directories. */
static bool
begin_entry(struct scan *scan, enum sti_tree_kind kind, sti_aio_fn done)
{
    for (; scan->at_listed < scan->n_listed; scan->at_listed++, scan->at_entry = 0) {
        uint32_t dir_idx = scan->listed[scan->at_listed];
        struct sti_tree_dir *dir = scan->tree->dirs[dir_idx];

        for (; scan->at_entry < dir->n_entries; scan->at_entry++) {
            const struct sti_tree_entry *entry = &dir->entries[scan->at_entry];

            if (entry->kind != kind)
                continue;
            if (!compose(scan->free->path, dir, sti_tree_name(dir, entry))) {
                (void)fail(scan, -ENAMETOOLONG, dir->path, "a path below this is too long");
                return false;
            }
            begin(scan, done, dir_idx, scan->at_entry++);
            return true;
        }
    }
    return false;
}

static bool
begin_listing(struct scan *scan)
{
    if (begin_entry(scan, STI_TREE_UNKNOWN, on_kind_found))
        return true;
    if (scan->rc != 0 || scan->next_dir == scan->tree->n_dirs)
        return false;
    const struct sti_tree_dir *dir = scan->tree->dirs[scan->next_dir];
    memcpy(scan->free->path, dir->path, strlen(dir->path) + 1); /* fits: add_subdirectory() */
    begin(scan, on_dir_found, scan->next_dir++, 0);
    return true;
}

static bool
begin_sizing(struct scan *scan)
{
    return begin_entry(scan, STI_TREE_WANTED, on_size_found);
}

/* Lets time pass for all directories that were changed just now, and looks at them
 * again. */
static void
resume_paused(struct scan *scan)
{
    sti_time_let_pass(scan->aio);
    while (scan->paused) {
        struct slot *slot = scan->paused;

        scan->paused = slot->next_free;
        scan->n_paused--;
        sti_aio_submit(scan->aio, &slot->op);
    }
}

static int
run(struct scan *scan, bool (*begin_next)(struct scan *scan))
{
    struct slot *slots = sti_mem_new(SLOTS, sizeof(*slots));

    if (!slots)
        return fail(scan, -ENOMEM, "", "cannot index");
    for (uint32_t i = 0; i < SLOTS; i++) {
        slots[i].scan = scan;
        slots[i].next_free = scan->free;
        scan->free = &slots[i];
    }
    for (;;) {
        while (scan->rc == 0 && scan->free && begin_next(scan))
            continue;
        if (scan->n_busy == 0)
            break;
        if (scan->n_busy == scan->n_paused)
            resume_paused(scan);
        else
            (void)sti_aio_wait(scan->aio, UINT64_MAX); /* how many have run shows in n_busy */
    }
    scan->free = NULL;
    sti_mem_free(slots);
    return scan->rc;
}

int
sti_tree_scan(struct sti_tree *tree, struct sti_aio *aio, stk_error *err)
{
    struct scan scan = {.tree = tree, .aio = aio, .err = err};

    if (add_dir(tree, STI_TREE_NONE, "") < 0)
        return fail(&scan, -ENOMEM, "", "cannot index");
    int rc = run(&scan, begin_listing);
    sti_mem_free(scan.listed);
    return rc;
}

int
sti_tree_stat(struct sti_tree *tree, struct sti_aio *aio, stk_error *err)
{
    struct scan scan = {.tree = tree, .aio = aio, .err = err};

    scan.listed = sti_mem_new(tree->n_dirs, sizeof(*scan.listed));
    if (!scan.listed)
        return fail(&scan, -ENOMEM, "", "cannot index");
    for (uint32_t i = 0; i < tree->n_dirs; i++)
        scan.listed[i] = i;
    scan.n_listed = tree->n_dirs;
    int rc = run(&scan, begin_sizing);
    sti_mem_free(scan.listed);
    return rc;
}

/* By class, which is the directory just below the root, then by path; the root comes
 * first. */
static int
compare_dirs(const void *a, const void *b, void *context)
{
    struct sti_tree_dir *const *dirs = context;
    const struct sti_tree_dir *left = dirs[*(const uint32_t *)a];
    const struct sti_tree_dir *right = dirs[*(const uint32_t *)b];

    if (left->top != right->top && left->top != STI_TREE_NONE && right->top != STI_TREE_NONE)
        return sti_name_compare_text(dirs[left->top]->name, dirs[right->top]->name);
    return sti_name_compare_text(left->path, right->path);
}

int
sti_tree_sort(struct sti_tree *tree)
{
    uint32_t n = tree->n_dirs;
    uint32_t *order = sti_mem_new(n, sizeof(*order));
    uint32_t *place = sti_mem_new(n, sizeof(*place));
    struct sti_tree_dir **dirs = sti_mem_new(n, sizeof(struct sti_tree_dir *));

    if (!order || !place || !dirs) {
        sti_mem_free(order);
        sti_mem_free(place);
        sti_mem_free(dirs);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    qsort_r(order, n, sizeof(*order), compare_dirs, tree->dirs);
    for (uint32_t i = 0; i < n; i++) {
        place[order[i]] = i;
        dirs[i] = tree->dirs[order[i]];
    }
    for (uint32_t i = 0; i < n; i++) {
        dirs[i]->parent = dirs[i]->parent == STI_TREE_NONE ? STI_TREE_NONE : place[dirs[i]->parent];
        dirs[i]->top = dirs[i]->top == STI_TREE_NONE ? STI_TREE_NONE : place[dirs[i]->top];
    }
    sti_mem_free(order);
    sti_mem_free(place);
    sti_mem_free(tree->dirs);
    tree->dirs = dirs;
    tree->dirs_room = n;
    return 0;
}

void
sti_tree_fini(struct sti_tree *tree)
{
    for (uint32_t i = 0; i < tree->n_dirs; i++)
        dir_free(tree->dirs[i]);
    sti_mem_free(tree->dirs);
    tree->dirs = NULL;
    tree->n_dirs = 0;
    tree->dirs_room = 0;
}

uint32_t
sti_tree_find(const struct sti_tree *tree, uint64_t device, uint64_t inode)
{
    for (uint32_t i = 0; i < tree->n_dirs; i++)
        if (tree->dirs[i]->device == device && tree->dirs[i]->inode == inode)
            return i;
    return STI_TREE_NONE;
}
