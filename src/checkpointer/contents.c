/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in a view: the stream's tensors as the program knows them. Shards of one name are one
 * tensor; a blob has the name that it was given and a rank. Values only; one thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "checkpointer/checkpointer.h"

static bool
is_blob_name(const char *name)
{
    return strncmp(name, STI_BLOB_PREFIX, strlen(STI_BLOB_PREFIX)) == 0;
}

/* ---- order ------------------------------------------------------------------------- */

/* By what a program calls them, then by their place in the stream. */
static int
compare_pieces(const void *left, const void *right, void *context)
{
    const struct sti_layout_tensor *tensors = context;
    const uint32_t *a = left;
    const uint32_t *b = right;
    const struct sti_layout_whole *whole_a = &tensors[*a].whole;
    const struct sti_layout_whole *whole_b = &tensors[*b].whole;
    int order = strcmp(whole_a->name ? whole_a->name : tensors[*a].name,
                       whole_b->name ? whole_b->name : tensors[*b].name);

    return order != 0 ? order : *a < *b ? -1 : *a > *b;
}

/* Tensors before blobs, by their first piece. */
static int
compare_items(const void *left, const void *right)
{
    const struct sti_view_item *a = left;
    const struct sti_view_item *b = right;

    if (a->is_blob != b->is_blob)
        return a->is_blob ? 1 : -1;
    return a->pieces[0] < b->pieces[0] ? -1 : a->pieces[0] > b->pieces[0];
}

static int
compare_names(const void *left, const void *right, void *context)
{
    const struct sti_view_item *items = context;

    return strcmp(items[*(const uint32_t *)left].name, items[*(const uint32_t *)right].name);
}

/* ---- sorting out ------------------------------------------------------------------- */

/* Of several ranks the name goes on with whose it is. */
static int
take_blob(struct sti_view_item *item, uint32_t world, stk_error *err)
{
    const char *name = item->name + strlen(STI_BLOB_PREFIX);
    uint64_t rank = 0;

    item->is_blob = true;
    if (world > 1) {
        const char *at = name;

        while (*at >= '0' && *at <= '9' && rank < world)
            rank = rank * 10 + (uint64_t)(*at++ - '0');
        if (at == name || *at != '.' || rank >= world)
            return sti_error_set(err, STK_E_CORRUPT,
                                 "the manifest is damaged: blob '%.100s' is none of %" PRIu32
                                 " ranks",
                                 item->name, world);
        name = at + 1;
    }
    item->name = name;
    item->rank = (uint32_t)rank;
    return 0;
}

static int
take_item(struct sti_view_item *item, const struct sti_layout *layout, const uint32_t *pieces,
          uint32_t n_pieces, uint32_t world, stk_error *err)
{
    const struct sti_layout_tensor *first = &layout->tensors[pieces[0]];

    *item = (struct sti_view_item){.name = first->name,
                                   .shape = first->shape,
                                   .dtype = first->dtype,
                                   .n_bytes = first->n_bytes,
                                   .dims = first->dims,
                                   .n_pieces = n_pieces,
                                   .pieces = pieces};
    if (!first->whole.name)
        return is_blob_name(first->name) ? take_blob(item, world, err) : 0;
    item->name = first->whole.name;
    item->shape = first->whole.shape;
    item->is_sharded = true;
    item->n_bytes = 0; /* they were found to make the tensor when the manifest was read */
    for (uint32_t at = 0; at < n_pieces; at++)
        item->n_bytes += layout->tensors[pieces[at]].n_bytes;
    return 0;
}

static uint32_t
count_pieces(const struct sti_layout *layout, const uint32_t *pieces, uint32_t from)
{
    const char *name = layout->tensors[pieces[from]].whole.name;
    uint32_t to = from + 1;

    while (name && to < layout->n_tensors) {
        const char *other = layout->tensors[pieces[to]].whole.name;

        if (!other || strcmp(name, other) != 0)
            break;
        to++;
    }
    return to - from;
}

static int
take_all(struct sti_contents *contents, const struct sti_layout *layout, uint32_t world,
         stk_error *err)
{
    uint32_t n_items = 0;

    for (uint32_t from = 0; from < layout->n_tensors;) {
        struct sti_view_item *item = &contents->items[n_items++];
        uint32_t n_pieces = count_pieces(layout, contents->pieces, from);
        int rc = take_item(item, layout, contents->pieces + from, n_pieces, world, err);

        if (rc < 0)
            return rc;
        contents->n_tensors += !item->is_blob;
        contents->n_blobs += item->is_blob;
        from += n_pieces;
    }
    if (n_items > 0)
        qsort(contents->items, n_items, sizeof(contents->items[0]), compare_items);
    for (uint32_t at = 0; at < contents->n_tensors; at++)
        contents->by_name[at] = at;
    if (contents->n_tensors > 0)
        qsort_r(contents->by_name, contents->n_tensors, sizeof(contents->by_name[0]), compare_names,
                contents->items);
    return 0;
}

int
sti_contents_take(struct sti_contents *contents, const struct sti_layout *layout, uint32_t world,
                  stk_error *err)
{
    uint32_t n = layout->n_tensors;

    *contents = (struct sti_contents){.items = sti_mem_new(n, sizeof(contents->items[0])),
                                      .by_name = sti_mem_new(n, sizeof(contents->by_name[0])),
                                      .pieces = sti_mem_new(n, sizeof(contents->pieces[0]))};
    if (!contents->items || !contents->by_name || !contents->pieces) {
        sti_contents_fini(contents);
        return sti_error_set(err, -ENOMEM, "no memory for %" PRIu32 " tensors", n);
    }
    for (uint32_t at = 0; at < n; at++)
        contents->pieces[at] = at;
    if (n > 0)
        qsort_r(contents->pieces, n, sizeof(contents->pieces[0]), compare_pieces, layout->tensors);
    int rc = take_all(contents, layout, world, err);
    if (rc < 0)
        sti_contents_fini(contents);
    return rc;
}

void
sti_contents_fini(struct sti_contents *contents)
{
    sti_mem_free(contents->items);
    sti_mem_free(contents->by_name);
    sti_mem_free(contents->pieces);
    *contents = (struct sti_contents){0};
}

/* ---- finding ----------------------------------------------------------------------- */

const struct sti_view_item *
sti_contents_tensor(const struct sti_contents *contents, const char *name)
{
    uint32_t low = 0;
    uint32_t high = contents->n_tensors;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct sti_view_item *item = &contents->items[contents->by_name[middle]];
        int order = strcmp(name, item->name);

        if (order == 0)
            return item;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const struct sti_view_item *
sti_contents_blob(const struct sti_contents *contents, uint32_t rank, const char *name)
{
    const struct sti_view_item *blobs = contents->items + contents->n_tensors;

    for (uint32_t at = 0; at < contents->n_blobs; at++)
        if (blobs[at].rank == rank && strcmp(blobs[at].name, name) == 0)
            return &blobs[at];
    return NULL;
}
