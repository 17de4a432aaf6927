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
sti_slice_init(struct sti_slice *slice, const struct sti_layout_tensor *tensor,
               const uint64_t *start, const uint64_t *count)
{
    bool is_whole = true;
    int rc = start && count ? check_box(tensor, start, count, &is_whole) : 0;

    if (rc < 0)
        return rc;
    if (is_whole || tensor->n_bytes == 0)
        return init_whole(slice, tensor);
    if (tensor->dtype->bits % 8 != 0)
        return -EINVAL;
    *slice = (struct sti_slice){.tensor = tensor};
    uint64_t stride = tensor->dtype->bits / 8;
    uint32_t dim = tensor->dims;
    while (dim > 0 && count[dim - 1] == tensor->shape[dim - 1])
        stride *= tensor->shape[--dim];
    /* dim - 1 is the innermost dimension of which only a part is taken. */
    slice->run_bytes = stride * count[dim - 1];
    slice->first_bytes = stride * start[dim - 1];
    slice->outer_dims = dim - 1;
    slice->n_runs = slice->run_bytes > 0 ? 1 : 0;
    stride *= tensor->shape[dim - 1];
    while (--dim > 0) {
        slice->stride_bytes[dim - 1] = stride;
        slice->counts[dim - 1] = count[dim - 1];
        slice->first_bytes += stride * start[dim - 1];
        slice->n_runs *= count[dim - 1];
        stride *= tensor->shape[dim - 1];
    }
    return 0;
}

uint64_t
sti_slice_bytes(const struct sti_slice *slice)
{
    return slice->run_bytes * slice->n_runs;
}

uint64_t
sti_slice_run(const struct sti_slice *slice, uint64_t k)
{
    uint64_t at = slice->first_bytes;

    for (uint32_t dim = slice->outer_dims; dim > 0; dim--) {
        at += k % slice->counts[dim - 1] * slice->stride_bytes[dim - 1];
        k /= slice->counts[dim - 1];
    }
    return at;
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
        memcpy(dst + k * slice->run_bytes + (begin - run), src + (begin - from), end - begin);
    }
}
