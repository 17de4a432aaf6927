/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors in shards. What is read about them may come from anywhere; what is checked here is
 * that the shards of a tensor are that tensor, each element once: their bytes add up to its,
 * and no two of them meet. Values only; one thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "ckpt/layout.h"

static int
corrupt(stk_error *err, const char *name, const char *what)
{
    return sti_error_set(err, STK_E_CORRUPT, "the manifest is damaged: shard '%.100s': %s", name,
                         what);
}

/* ---- reading ----------------------------------------------------------------------- */

/* Finds a tensor to be changed. */
static struct sti_layout_tensor *
find(struct sti_layout *layout, const char *name)
{
    const struct sti_layout_tensor *found = sti_layout_find(layout, name);

    return found ? &layout->tensors[found - layout->tensors] : NULL;
}

static bool
take_counts(const json_t *list, uint32_t n, uint64_t *counts)
{
    if (!json_is_array(list) || json_array_size(list) != n)
        return false;
    for (uint32_t at = 0; at < n; at++) {
        const json_t *value = json_array_get(list, at);

        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return false;
        counts[at] = (uint64_t)json_integer_value(value);
    }
    return true;
}

/* room: for two times dims counts, then for the name. */
static int
take_whole(struct sti_layout_tensor *tensor, const json_t *value, uint64_t *room, stk_error *err)
{
    const char *name = json_string_value(json_object_get(value, "of"));
    uint64_t *start = room + tensor->dims;
    char *copy = (char *)(start + tensor->dims);

    if (!name || tensor->dims == 0 || tensor->dtype->bits % 8 != 0)
        return corrupt(err, tensor->name, "of nothing, or of what has no shards");
    if (!take_counts(json_object_get(value, "shape"), tensor->dims, room) ||
        !take_counts(json_object_get(value, "start"), tensor->dims, start))
        return corrupt(err, tensor->name, "shape or start is no list of its dimensions");
    for (uint32_t dim = 0; dim < tensor->dims; dim++)
        if (start[dim] > room[dim] || tensor->shape[dim] > room[dim] - start[dim])
            return corrupt(err, tensor->name, "it goes beyond its tensor");
    memcpy(copy, name, strlen(name) + 1);
    tensor->whole = (struct sti_layout_whole){.name = copy, .shape = room, .start = start};
    return 0;
}

/* How many counts a shard's memory takes: shape, start, name. */
static size_t
room_of(const struct sti_layout_tensor *tensor, const json_t *value)
{
    size_t name_bytes = json_string_length(json_object_get(value, "of")) + 1;

    return 2 * (size_t)tensor->dims + (name_bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t);
}

int
sti_layout_take_wholes(struct sti_layout *layout, const void *object, stk_error *err)
{
    json_t *wholes = (json_t *)(uintptr_t)object;
    const char *name;
    json_t *value;
    size_t n = 0;
    int rc = 0;

    if (!object)
        return 0;
    if (!json_is_object(wholes))
        return sti_error_set(err, STK_E_CORRUPT, "the manifest is damaged: shards is no object");
    json_object_foreach(wholes, name, value)
    {
        const struct sti_layout_tensor *tensor = find(layout, name);

        if (!tensor)
            return corrupt(err, name, "there is no such tensor");
        n += room_of(tensor, value);
    }
    uint64_t *room = sti_mem_new(n, sizeof(*room));
    if (!room)
        return sti_error_set(err, -ENOMEM, "no memory for the manifest");
    layout->wholes = room;
    json_object_foreach(wholes, name, value)
    {
        struct sti_layout_tensor *tensor = find(layout, name);

        if (!tensor) /* looked for above */
            return corrupt(err, name, "there is no such tensor");
        if (rc == 0)
            rc = take_whole(tensor, value, room, err);
        room += room_of(tensor, value);
    }
    return rc;
}

/* ---- checking ---------------------------------------------------------------------- */

static int
compare_starts(const struct sti_layout_tensor *a, const struct sti_layout_tensor *b)
{
    for (uint32_t dim = 0; dim < a->dims && dim < b->dims; dim++)
        if (a->whole.start[dim] != b->whole.start[dim])
            return a->whole.start[dim] < b->whole.start[dim] ? -1 : 1;
    return 0;
}

static int
compare_shards(const void *left, const void *right, void *context)
{
    const struct sti_layout_tensor *tensors = context;
    const struct sti_layout_tensor *a = &tensors[*(const uint32_t *)left];
    const struct sti_layout_tensor *b = &tensors[*(const uint32_t *)right];
    int order = strcmp(a->whole.name, b->whole.name);

    return order != 0 ? order : compare_starts(a, b);
}

static bool
do_meet(const struct sti_layout_tensor *a, const struct sti_layout_tensor *b)
{
    if (a->n_bytes == 0 || b->n_bytes == 0)
        return false;
    for (uint32_t dim = 0; dim < a->dims; dim++)
        if (a->whole.start[dim] >= b->whole.start[dim] + b->shape[dim] ||
            b->whole.start[dim] >= a->whole.start[dim] + a->shape[dim])
            return false;
    return true;
}

static bool
are_alike(const struct sti_layout_tensor *a, const struct sti_layout_tensor *b)
{
    return a->dtype == b->dtype && a->dims == b->dims &&
           memcmp(a->whole.shape, b->whole.shape, a->dims * sizeof(uint64_t)) == 0;
}

/* The first dimension in which shards begin at different places; in it they are told apart. */
static uint32_t
first_cut(const struct sti_layout *layout, const uint32_t *list, uint32_t n)
{
    const struct sti_layout_tensor *first = &layout->tensors[list[0]];

    for (uint32_t dim = 0; dim < first->dims; dim++)
        for (uint32_t at = 1; at < n; at++)
            if (layout->tensors[list[at]].whole.start[dim] != first->whole.start[dim])
                return dim;
    return 0;
}

/* Looks for a stretch of a dimension that no shard has, and which two it is between. The shards
 * are in the order of where they begin in it. */
static bool
find_gap(const struct sti_layout *layout, const uint32_t *list, uint32_t n, uint32_t dim,
         uint32_t ret_idx[2], uint64_t *ret_from, uint64_t *ret_to)
{
    uint64_t end = 0;

    ret_idx[0] = list[0];
    for (uint32_t at = 0; at < n; at++) {
        const struct sti_layout_tensor *tensor = &layout->tensors[list[at]];

        ret_idx[1] = list[at];
        if (tensor->n_bytes == 0)
            continue;
        if (tensor->whole.start[dim] > end) {
            *ret_from = end;
            *ret_to = tensor->whole.start[dim];
            return true;
        }
        if (tensor->whole.start[dim] + tensor->shape[dim] > end) {
            end = tensor->whole.start[dim] + tensor->shape[dim];
            ret_idx[0] = list[at];
        }
    }
    *ret_from = end;
    *ret_to = layout->tensors[list[0]].whole.shape[dim];
    ret_idx[1] = ret_idx[0];
    return *ret_from < *ret_to;
}

/* The shards of one tensor, in the order of their starts. */
static int
check_one(const struct sti_layout *layout, const uint32_t *list, uint32_t n, uint32_t ret_idx[2],
          stk_error *err)
{
    const struct sti_layout_tensor *first = &layout->tensors[list[0]];
    const char *name = first->whole.name;
    uint64_t sum = 0;
    uint64_t n_bytes;
    uint64_t from;
    uint64_t to;

    ret_idx[0] = ret_idx[1] = list[0];
    if (sti_layout_find(layout, name))
        return sti_error_set(err, -EINVAL, "tensor '%.120s' is given whole and in shards", name);
    if (sti_dtype_bytes(first->dtype, first->whole.shape, first->dims, &n_bytes) < 0)
        return sti_error_set(err, -EINVAL, "tensor '%.120s' has more bytes than 64 bits count",
                             name);
    for (uint32_t at = 0; at < n; at++) {
        ret_idx[1] = list[at];
        if (!are_alike(first, &layout->tensors[list[at]]))
            return sti_error_set(
                err, -EINVAL, "tensor '%.120s': its shards differ in dtype or global shape", name);
        sum += layout->tensors[list[at]].n_bytes;
    }
    uint32_t cut = first_cut(layout, list, n);
    for (uint32_t at = 0; at < n; at++)
        for (uint32_t next = at + 1; next < n; next++) {
            const struct sti_layout_tensor *a = &layout->tensors[list[at]];
            const struct sti_layout_tensor *b = &layout->tensors[list[next]];

            if (b->whole.start[cut] >= a->whole.start[cut] + a->shape[cut])
                break;
            ret_idx[0] = list[at];
            ret_idx[1] = list[next];
            if (do_meet(a, b))
                return sti_error_set(err, -EINVAL, "tensor '%.120s': two of its shards overlap",
                                     name);
        }
    if (sum == n_bytes)
        return 0;
    if (find_gap(layout, list, n, cut, ret_idx, &from, &to))
        return sti_error_set(err, -EINVAL,
                             "tensor '%.120s': what lies from %" PRIu64 " to %" PRIu64
                             " in dimension %" PRIu32 " is in no shard",
                             name, from, to, cut);
    return sti_error_set(err, -EINVAL,
                         "tensor '%.120s': its shards have %" PRIu64 " bytes, it has %" PRIu64,
                         name, sum, n_bytes);
}

int
sti_layout_check_wholes(const struct sti_layout *layout, uint32_t ret_idx[2], stk_error *err)
{
    uint32_t *list = sti_mem_new(layout->n_tensors, sizeof(*list));
    uint32_t n = 0;
    int rc = 0;

    if (!list)
        return sti_error_set(err, -ENOMEM, "no memory for %" PRIu32 " tensors", layout->n_tensors);
    for (uint32_t idx = 0; idx < layout->n_tensors; idx++)
        if (layout->tensors[idx].whole.name)
            list[n++] = idx;
    if (n > 0)
        qsort_r(list, n, sizeof(*list), compare_shards, layout->tensors);
    for (uint32_t from = 0, to; rc == 0 && from < n; from = to) {
        const char *name = layout->tensors[list[from]].whole.name;

        for (to = from + 1; to < n && strcmp(layout->tensors[list[to]].whole.name, name) == 0;)
            to++;
        rc = check_one(layout, list + from, to - from, ret_idx, err);
    }
    sti_mem_free(list);
    return rc;
}
