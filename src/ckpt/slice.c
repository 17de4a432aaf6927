/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxes of tensors. Inner dimensions that are taken whole are part of a run, so a box
 * over the first dimension alone is one run whatever the others are. Pure; any thread.
 */
#include "ckpt/slice.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static int
init_whole(struct sti_slice *slice, const struct sti_layout_tensor *tensor)
{
    *slice = (struct sti_slice){
        .tensor = tensor, .run_bytes = tensor->n_bytes, .n_runs = tensor->n_bytes > 0 ? 1 : 0};
    return 0;
}

/* Whether the box is inside the tensor; ret_whole: it is all of it. */
static int
check_box(const struct sti_layout_tensor *tensor, const uint64_t *start, const uint64_t *count,
          bool *ret_whole)
{
    *ret_whole = true;
    for (uint32_t dim = 0; dim < tensor->dims; dim++) {
        if (start[dim] > tensor->shape[dim] || count[dim] > tensor->shape[dim] - start[dim])
            return -ERANGE;
        if (count[dim] != tensor->shape[dim])
            *ret_whole = false;
    }
    return 0;
}

int
sti_slice_init_into(struct sti_slice *slice, const struct sti_layout_tensor *tensor,
                    const uint64_t *start, const uint64_t *count, const struct sti_slice_room *room)
{
    bool is_whole;
    int rc = check_box(tensor, start, count, &is_whole);

    if (rc < 0)
        return rc;
    if (tensor->dims == 0 || tensor->n_bytes == 0)
        return init_whole(slice, tensor);
    if (tensor->dtype->bits % 8 != 0)
        return -EINVAL;
    *slice = (struct sti_slice){.tensor = tensor, .n_runs = 1};
    uint64_t from_stride = tensor->dtype->bits / 8;
    uint64_t to_stride = from_stride;
    uint32_t dim = tensor->dims;
    /* Dimensions that are taken whole on both sides are part of a run. */
    while (dim > 1 && count[dim - 1] == tensor->shape[dim - 1] &&
           count[dim - 1] == room->shape[dim - 1]) {
        from_stride *= tensor->shape[dim - 1];
        to_stride *= room->shape[dim - 1];
        dim--;
    }
    slice->run_bytes = from_stride * count[dim - 1];
    slice->outer_dims = dim - 1;
    if (slice->run_bytes == 0)
        slice->n_runs = 0;
    for (uint32_t outer = dim; outer > 0; outer--) {
        if (outer < dim) {
            slice->from.stride_bytes[outer - 1] = from_stride;
            slice->to.stride_bytes[outer - 1] = to_stride;
            slice->counts[outer - 1] = count[outer - 1];
            slice->n_runs *= count[outer - 1];
        }
        slice->from.first_bytes += from_stride * start[outer - 1];
        slice->to.first_bytes += to_stride * room->start[outer - 1];
        from_stride *= tensor->shape[outer - 1];
        to_stride *= room->shape[outer - 1];
    }
    return 0;
}

int
sti_slice_init(struct sti_slice *slice, const struct sti_layout_tensor *tensor,
               const uint64_t *start, const uint64_t *count)
{
    static const uint64_t zeros[STI_LAYOUT_DIMS_MAX];
    const struct sti_slice_room room = {.shape = count, .start = zeros};
    bool is_whole = true;
    int rc = start && count ? check_box(tensor, start, count, &is_whole) : 0;

    if (rc < 0)
        return rc;
    if (is_whole)
        return init_whole(slice, tensor);
    return sti_slice_init_into(slice, tensor, start, count, &room);
}

uint64_t
sti_slice_bytes(const struct sti_slice *slice)
{
    return slice->run_bytes * slice->n_runs;
}

static uint64_t
place_of_run(const struct sti_slice *slice, const struct sti_slice_walk *walk, uint64_t k)
{
    uint64_t at = walk->first_bytes;

    for (uint32_t dim = slice->outer_dims; dim > 0; dim--) {
        at += k % slice->counts[dim - 1] * walk->stride_bytes[dim - 1];
        k /= slice->counts[dim - 1];
    }
    return at;
}

uint64_t
sti_slice_run(const struct sti_slice *slice, uint64_t k)
{
    return place_of_run(slice, &slice->from, k);
}

/* The first run that ends behind an offset of the tensor. */
static uint64_t
find_run(const struct sti_slice *slice, uint64_t offset)
{
    uint64_t low = 0;
    uint64_t high = slice->n_runs;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (sti_slice_run(slice, middle) + slice->run_bytes > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void
sti_slice_copy(const struct sti_slice *slice, char *dst, const char *src, uint64_t from,
               uint64_t n_bytes)
{
    uint64_t to = from + n_bytes;

    for (uint64_t k = find_run(slice, from); k < slice->n_runs; k++) {
        uint64_t run = sti_slice_run(slice, k);
        uint64_t begin = run > from ? run : from;
        uint64_t end = run + slice->run_bytes < to ? run + slice->run_bytes : to;

        if (run >= to)
            break;
        memcpy(dst + place_of_run(slice, &slice->to, k) + (begin - run), src + (begin - from),
               end - begin);
    }
}
