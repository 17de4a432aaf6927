/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Putting ballots together. A tensor that several hold is listed by the first of them, and
 * the others must list the same ones in the same order, since each has written its share of
 * all of them in that order. The new stream's tensors are those of writer 0, then what
 * writer 1 has beside them, and so on; each stretch that was written is then looked up by
 * its tensor. Values only; one thread.
 *
 * Invariant: what comes out covers the new stream's data exactly once, or there is an error.
 */
#include "ckpt/merge.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

#define NOWHERE UINT32_MAX

/* The list that the layout is made from. */
struct list {
    struct sti_layout_input *inputs;
    uint32_t *writers; /* who gave it */
    uint32_t n;
};

static int
about(uint32_t writer, int code, stk_error *err)
{
    if (err && code < 0)
        err->rank = (int)writer;
    return code;
}

/* ---- taking the ballots ------------------------------------------------------------ */

static int
take_ballot(const struct sti_merge *from, uint32_t writer, struct sti_manifest *ballot,
            stk_error *err)
{
    stk_error why;
    int rc =
        sti_ballot_decode(ballot, from->ballots[writer].bytes, from->ballots[writer].n_bytes, &why);

    if (rc < 0)
        return sti_error_set(err, rc, "what rank %" PRIu32 " has written: %.150s", writer,
                             why.message);
    if (ballot->step != from->step)
        return sti_error_set(err, STK_E_MISMATCH,
                             "rank %" PRIu32 " saves step %" PRIu64 ", rank 0 step %" PRIu64,
                             writer, ballot->step, from->step);
    if (ballot->world != from->world || ballot->chunk_bytes != from->chunk_bytes ||
        strcmp(ballot->id, from->id) != 0)
        return sti_error_set(err, STK_E_MISMATCH,
                             "rank %" PRIu32 " has another world, chunk_bytes or number of saves "
                             "than rank 0",
                             writer);
    return 0;
}

/* Who lists a tensor for all that hold it. */
static uint32_t
first_holder(const struct sti_manifest *ballot, uint32_t writer, uint32_t owner)
{
    if (owner == STI_LAYOUT_SHARED)
        return 0;
    return owner == STI_LAYOUT_OWN ? writer : ballot->groups[owner].writers[0];
}

static bool
is_in(const struct sti_group *group, uint32_t writer)
{
    for (uint32_t at = 0; at < group->n_writers; at++)
        if (group->writers[at] == writer)
            return true;
    return false;
}

/* The number that a group of one ballot has in another; NOWHERE: none. */
static uint32_t
find_group(const struct sti_manifest *ballot, const struct sti_manifest *other, uint32_t owner)
{
    if (owner == STI_LAYOUT_SHARED)
        return owner;
    const struct sti_group *group = &ballot->groups[owner];
    for (uint32_t at = 0; at < other->n_groups; at++)
        if (other->groups[at].n_writers == group->n_writers &&
            memcmp(other->groups[at].writers, group->writers,
                   group->n_writers * sizeof(uint32_t)) == 0)
            return at;
    return NOWHERE - 2; /* that nothing has as its owner */
}

/* The next tensor of an owner, from a place on. */
static uint32_t
next_of(const struct sti_layout *layout, uint32_t owner, uint32_t from)
{
    while (from < layout->n_tensors && layout->tensors[from].owner != owner)
        from++;
    return from;
}

static bool
are_alike(const struct sti_layout_tensor *a, const struct sti_layout_tensor *b)
{
    size_t shape_bytes = a->dims * sizeof(uint64_t);

    if (strcmp(a->name, b->name) != 0 || a->dtype != b->dtype || a->dims != b->dims ||
        memcmp(a->shape, b->shape, shape_bytes) != 0 || !a->whole.name != !b->whole.name)
        return false;
    return !a->whole.name || (strcmp(a->whole.name, b->whole.name) == 0 &&
                              memcmp(a->whole.shape, b->whole.shape, shape_bytes) == 0 &&
                              memcmp(a->whole.start, b->whole.start, shape_bytes) == 0);
}

/* Whether two have the same in a tensor that they hold together, as far as they have summed it. */
static int
compare_sums(const struct sti_merged *merged, const uint32_t writers[2], const uint32_t at[2],
             stk_error *err)
{
    const struct sti_manifest *a = &merged->ballots[writers[0]];
    const struct sti_manifest *b = &merged->ballots[writers[1]];

    if (!a->sums || !b->sums || a->sums[at[0]] == b->sums[at[1]])
        return 0;
    return sti_error_set(err, STK_E_MISMATCH,
                         "tensor '%.80s' is not the same on ranks %" PRIu32 " and %" PRIu32
                         ", which hold it together (CRC-32C %08" PRIx32 " and %08" PRIx32 ")",
                         a->layout.tensors[at[0]].name, writers[0], writers[1], a->sums[at[0]],
                         b->sums[at[1]]);
}

/* Walks what two writers hold together and notes where the second one's tensors are. */
static int
match(struct sti_merged *merged, uint32_t first, uint32_t first_owner, uint32_t writer,
      uint32_t owner, stk_error *err)
{
    const struct sti_layout *a = &merged->ballots[first].layout;
    const struct sti_layout *b = &merged->ballots[writer].layout;
    uint32_t at = next_of(a, first_owner, 0);
    uint32_t other = next_of(b, owner, 0);

    while (at < a->n_tensors && other < b->n_tensors &&
           are_alike(&a->tensors[at], &b->tensors[other])) {
        int rc = compare_sums(merged, (uint32_t[]){first, writer}, (uint32_t[]){at, other}, err);

        if (rc < 0)
            return rc;
        merged->places[writer][other] = merged->places[first][at];
        at = next_of(a, first_owner, at + 1);
        other = next_of(b, owner, other + 1);
    }
    if (at == a->n_tensors && other == b->n_tensors)
        return 0;
    return sti_error_set(err, STK_E_MISMATCH,
                         "ranks %" PRIu32 " and %" PRIu32 " do not hold the same together: the "
                         "first has '%.60s' where the second has '%.60s' (name, dtype, shape "
                         "and order must be the same)",
                         first, writer, at < a->n_tensors ? a->tensors[at].name : "nothing",
                         other < b->n_tensors ? b->tensors[other].name : "nothing");
}

/* What a writer holds with others must be what the first of those has listed. */
static int
match_writer(struct sti_merged *merged, uint32_t writer, stk_error *err)
{
    const struct sti_manifest *ballot = &merged->ballots[writer];
    int rc = writer > 0 ? match(merged, 0, STI_LAYOUT_SHARED, writer, STI_LAYOUT_SHARED, err) : 0;

    for (uint32_t at = 0; rc == 0 && at < ballot->n_groups; at++) {
        const struct sti_group *group = &ballot->groups[at];

        if (!is_in(group, writer))
            return sti_error_set(err, STK_E_MISMATCH,
                                 "rank %" PRIu32 " gives tensors of a group without it", writer);
        for (uint32_t idx = 0; rc == 0 && idx < group->n_writers; idx++) {
            uint32_t other = group->writers[idx];
            uint32_t owner = find_group(ballot, &merged->ballots[other], at);

            /* The first one looks at all, so that one who lists nothing is found. */
            if (other != writer && (group->writers[0] == writer || idx == 0))
                rc = idx == 0 ? match(merged, other, owner, writer, at, err)
                              : match(merged, writer, at, other, owner, err);
        }
    }
    return rc;
}

/* ---- the layout -------------------------------------------------------------------- */

static void
list_tensors(struct sti_merged *merged, struct list *list)
{
    for (uint32_t writer = 0; writer < merged->world; writer++) {
        const struct sti_manifest *ballot = &merged->ballots[writer];

        for (uint32_t idx = 0; idx < ballot->layout.n_tensors; idx++) {
            const struct sti_layout_tensor *tensor = &ballot->layout.tensors[idx];

            merged->places[writer][idx] = NOWHERE;
            if (first_holder(ballot, writer, tensor->owner) != writer)
                continue;
            merged->places[writer][idx] = list->n;
            list->writers[list->n] = writer;
            list->inputs[list->n++] = (struct sti_layout_input){.name = tensor->name,
                                                                .dtype = tensor->dtype->name,
                                                                .shape = tensor->shape,
                                                                .dims = tensor->dims,
                                                                .owner = STI_LAYOUT_SHARED,
                                                                .whole = tensor->whole};
        }
    }
}

static int
compare_names(const void *left, const void *right, void *context)
{
    const struct sti_layout_input *inputs = context;
    const uint32_t *a = left;
    const uint32_t *b = right;
    int order = strcmp(inputs[*a].name, inputs[*b].name);

    return order != 0 ? order : *a < *b ? -1 : *a > *b;
}

/* Two that hold a tensor of one name each for itself. */
static int
check_names(const struct list *list, stk_error *err)
{
    uint32_t *order = sti_mem_new(list->n, sizeof(*order));
    int rc = 0;

    if (!order)
        return sti_error_set(err, -ENOMEM, "no memory for %" PRIu32 " tensors", list->n);
    for (uint32_t at = 0; at < list->n; at++)
        order[at] = at;
    if (list->n > 0)
        qsort_r(order, list->n, sizeof(*order), compare_names, list->inputs);
    for (uint32_t at = 1; rc == 0 && at < list->n; at++) {
        const char *name = list->inputs[order[at]].name;

        if (strcmp(list->inputs[order[at - 1]].name, name) == 0)
            rc = about(list->writers[order[at]],
                       sti_error_set(err, STK_E_MISMATCH,
                                     "tensor '%.100s' is given by rank %" PRIu32
                                     " and by rank %" PRIu32
                                     ", not as held together: name them apart",
                                     name, list->writers[order[at - 1]], list->writers[order[at]]),
                       err);
    }
    sti_mem_free(order);
    return rc;
}

static int
check_wholes(const struct sti_layout *layout, const struct list *list, stk_error *err)
{
    uint32_t wrong[2];
    stk_error why;
    int rc = sti_layout_check_wholes(layout, wrong, &why);

    if (rc == 0)
        return 0;
    if (rc != -EINVAL)
        return sti_error_set(err, rc, "%.200s", why.message);
    uint32_t writers[2];
    for (int at = 0; at < 2; at++)
        writers[at] = list->writers[layout->tensors[wrong[at]].given_idx];
    (void)sti_error_set(err, STK_E_MISMATCH, "%.180s (ranks %" PRIu32 " and %" PRIu32 ")",
                        why.message, writers[0], writers[1]);
    return about(writers[1], STK_E_MISMATCH, err);
}

static int
build_layout(struct sti_merged *merged, uint32_t n, stk_error *err)
{
    const struct sti_layout *first = &merged->ballots[0].layout;
    struct list list = {.inputs = sti_mem_new(n, sizeof(*list.inputs)),
                        .writers = sti_mem_new(n, sizeof(*list.writers))};
    int rc = 0;

    if (!list.inputs || !list.writers) {
        sti_mem_free(list.inputs);
        sti_mem_free(list.writers);
        return sti_error_set(err, -ENOMEM, "no memory for %" PRIu32 " tensors", n);
    }
    list_tensors(merged, &list);
    for (uint32_t writer = 0; rc == 0 && writer < merged->world; writer++)
        rc = about(writer, match_writer(merged, writer, err), err);
    if (rc == 0)
        rc = check_names(&list, err);
    if (rc == 0)
        rc = sti_layout_build(&merged->manifest.layout, list.inputs, list.n, first->pairs,
                              first->n_pairs, err);
    if (rc == 0)
        rc = check_wholes(&merged->manifest.layout, &list, err);
    sti_mem_free(list.inputs);
    sti_mem_free(list.writers);
    return rc;
}

/* ---- the parts --------------------------------------------------------------------- */

/* Adds a stretch to a part, whose last one it may continue. */
static void
add_extent(struct sti_part *part, uint64_t offset, uint64_t n_bytes)
{
    assert(part->extents); /* room for all was made */
    struct sti_part_extent *last = part->n_extents > 0 ? &part->extents[part->n_extents - 1] : NULL;

    if (last && last->offset + last->n_bytes == offset)
        last->n_bytes += n_bytes;
    else
        part->extents[part->n_extents++] = (struct sti_part_extent){offset, n_bytes};
}

/* How many stretches of tensors an extent is; with part, adds where they are now. */
static uint32_t
move_extent(const struct sti_manifest *ballot, const uint64_t *offsets, const uint32_t *places,
            const struct sti_part_extent *extent, struct sti_part *part)
{
    const struct sti_layout *layout = &ballot->layout;
    uint64_t at = extent->offset;
    uint64_t end = at + extent->n_bytes;
    uint32_t n = 0;

    for (uint32_t idx = sti_layout_first_behind(layout, at); at < end; idx++) {
        const struct sti_layout_tensor *tensor = &layout->tensors[idx];
        uint64_t tensor_end = tensor->offset + tensor->n_bytes;
        uint64_t to = tensor_end < end ? tensor_end : end;

        if (to <= at)
            continue;
        n++;
        if (part)
            add_extent(part, offsets[places[idx]] + (at - tensor->offset), to - at);
        at = to;
    }
    return n;
}

static int
take_root(struct sti_manifest *manifest, const char *path, uint32_t *ret_root)
{
    uint32_t at = 0;

    while (at < manifest->n_roots && strcmp(manifest->roots[at], path) != 0)
        at++;
    *ret_root = at;
    if (at == STI_ROOTS_MAX)
        return -E2BIG;
    if (at == manifest->n_roots)
        manifest->roots[manifest->n_roots++] = path;
    return 0;
}

static int
move_parts(struct sti_merged *merged, const uint64_t *offsets, uint32_t writer,
           struct sti_part_extent **extents, stk_error *err)
{
    const struct sti_manifest *ballot = &merged->ballots[writer];
    struct sti_manifest *manifest = &merged->manifest;

    for (uint32_t at = 0; at < ballot->n_parts; at++) {
        const struct sti_part *from = &ballot->parts[at];
        struct sti_part *part = &manifest->parts[manifest->n_parts++];

        *part = *from;
        part->extents = *extents;
        part->n_extents = 0;
        if (from->writer != writer)
            return sti_error_set(err, STK_E_CORRUPT, "rank %" PRIu32 " votes for another", writer);
        if (take_root(manifest, ballot->roots[from->root], &part->root) < 0)
            return sti_error_set(err, -EINVAL, "the ranks have more than %u roots", STI_ROOTS_MAX);
        for (uint32_t idx = 0; idx < from->n_extents; idx++)
            (void)move_extent(ballot, offsets, merged->places[writer], &from->extents[idx], part);
        *extents += part->n_extents;
    }
    return 0;
}

/* Where each tensor of the list begins. */
static uint64_t *
list_offsets(const struct sti_layout *layout)
{
    uint64_t *offsets = sti_mem_new(layout->n_tensors, sizeof(*offsets));

    for (uint32_t idx = 0; offsets && idx < layout->n_tensors; idx++)
        offsets[layout->tensors[idx].given_idx] = layout->tensors[idx].offset;
    return offsets;
}

/* Whether the parts cover all data: with the header, which is not written yet. */
static int
check_cover(struct sti_manifest *manifest, stk_error *err)
{
    struct sti_part_extent header = {.n_bytes = manifest->layout.header_bytes};

    manifest->parts[manifest->n_parts++] =
        (struct sti_part){.extents = &header, .n_extents = 1, .n_bytes = header.n_bytes};
    int rc = sti_manifest_check_cover(manifest, err);
    manifest->parts[--manifest->n_parts] = (struct sti_part){0};
    return rc;
}

static int
build_parts(struct sti_merged *merged, stk_error *err)
{
    struct sti_manifest *manifest = &merged->manifest;
    uint64_t *offsets = list_offsets(&manifest->layout);
    size_t n_parts = 1;
    size_t n_extents = 0;
    int rc = 0;

    for (uint32_t writer = 0; writer < merged->world; writer++) {
        const struct sti_manifest *ballot = &merged->ballots[writer];

        n_parts += ballot->n_parts;
        for (uint32_t at = 0; at < ballot->n_parts; at++)
            for (uint32_t idx = 0; idx < ballot->parts[at].n_extents; idx++)
                n_extents += move_extent(ballot, NULL, NULL, &ballot->parts[at].extents[idx], NULL);
    }
    manifest->parts = sti_mem_new(n_parts, sizeof(manifest->parts[0]));
    manifest->roots = sti_mem_new(STI_ROOTS_MAX, sizeof(manifest->roots[0]));
    merged->extents = sti_mem_new(n_extents, sizeof(merged->extents[0]));
    if (!offsets || !manifest->parts || !manifest->roots || !merged->extents) {
        sti_mem_free(offsets);
        return sti_error_set(err, -ENOMEM, "no memory for %zu parts", n_parts);
    }
    struct sti_part_extent *extents = merged->extents;
    uint32_t root; /* the header goes to the coordinator's first */
    (void)take_root(manifest, merged->ballots[0].roots[0], &root); /* there is none yet */
    for (uint32_t writer = 0; rc == 0 && writer < merged->world; writer++)
        rc = about(writer, move_parts(merged, offsets, writer, &extents, err), err);
    sti_mem_free(offsets);
    return rc < 0 ? rc : check_cover(manifest, err);
}

/* ---- all of it --------------------------------------------------------------------- */

static int
take_ballots(struct sti_merged *merged, const struct sti_merge *from, uint32_t *ret_n,
             stk_error *err)
{
    uint64_t n = 0;

    merged->ballots = sti_mem_new(from->world, sizeof(merged->ballots[0]));
    merged->places = sti_mem_new(from->world, sizeof(merged->places[0]));
    if (!merged->ballots || !merged->places)
        return sti_error_set(err, -ENOMEM, "no memory for %" PRIu32 " ballots", from->world);
    for (uint32_t writer = 0; writer < from->world; writer++) {
        struct sti_manifest *ballot = &merged->ballots[writer];
        int rc = take_ballot(from, writer, ballot, err);

        if (rc < 0)
            return about(writer, rc, err);
        merged->places[writer] = sti_mem_new(ballot->layout.n_tensors, sizeof(uint32_t));
        if (!merged->places[writer])
            return sti_error_set(err, -ENOMEM, "no memory for %" PRIu32 " ballots", from->world);
        n += ballot->layout.n_tensors;
    }
    *ret_n = (uint32_t)n;
    return n < STI_LAYOUT_OWN ? 0 : sti_error_set(err, -EINVAL, "more tensors than 32 bits count");
}

int
sti_merge(struct sti_merged *merged, const struct sti_merge *from, stk_error *err)
{
    uint32_t n = 0;

    *merged = (struct sti_merged){.world = from->world};
    struct sti_manifest *manifest = &merged->manifest;
    manifest->step = from->step;
    manifest->world = from->world;
    manifest->chunk_bytes = from->chunk_bytes;
    memcpy(manifest->id, from->id, strlen(from->id) + 1);
    int rc = take_ballots(merged, from, &n, err);
    if (rc == 0)
        rc = build_layout(merged, n, err);
    if (rc == 0)
        rc = build_parts(merged, err);
    if (rc < 0)
        sti_merged_fini(merged);
    return rc;
}

void
sti_merged_fini(struct sti_merged *merged)
{
    for (uint32_t writer = 0; merged->ballots && writer < merged->world; writer++) {
        sti_manifest_fini(&merged->ballots[writer]);
        sti_mem_free(merged->places ? merged->places[writer] : NULL);
    }
    sti_layout_fini(&merged->manifest.layout);
    sti_mem_free(merged->manifest.parts);
    sti_mem_free(merged->manifest.roots);
    sti_mem_free(merged->ballots);
    sti_mem_free(merged->places);
    sti_mem_free(merged->extents);
    *merged = (struct sti_merged){0};
}
