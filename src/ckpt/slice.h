/* SPDX-License-Identifier: Apache-2.0 */
/* A box of a tensor: which runs of its bytes it is. Pure. */
#ifndef STI_CKPT_SLICE_H
#define STI_CKPT_SLICE_H

#include <stdint.h>

#include "ckpt/layout.h"

/* Runs are equally long and in rising order of where they lie in the tensor. */
struct sti_slice {
    const struct sti_layout_tensor *tensor;
    uint32_t outer_dims; /* dimensions that a run's number counts through */
    uint64_t run_bytes;
    uint64_t n_runs;                            /* 0: the box is empty */
    uint64_t first_bytes;                       /* where run 0 begins in the tensor */
    uint64_t counts[STI_LAYOUT_DIMS_MAX];       /* of the outer dimensions */
    uint64_t stride_bytes[STI_LAYOUT_DIMS_MAX]; /* of the outer dimensions */
};

/*
 * start, count: dims values each; NULL: all of the tensor. Errors: -ERANGE beyond the
 * tensor, -EINVAL the elements are narrower than a byte and not all of them are asked
 * for.
 */
int
sti_slice_init(struct sti_slice *slice, const struct sti_layout_tensor *tensor,
               const uint64_t *start, const uint64_t *count);

uint64_t
sti_slice_bytes(const struct sti_slice *slice);

/* Where run k begins in the tensor. */
uint64_t
sti_slice_run(const struct sti_slice *slice, uint64_t k);

/*
 * Copies what the box has of the tensor's bytes [from, from + n_bytes), which are at src,
 * to the box's memory dst (runs one after the other).
 */
void
sti_slice_copy(const struct sti_slice *slice, char *dst, const char *src, uint64_t from,
               uint64_t n_bytes);

#endif
