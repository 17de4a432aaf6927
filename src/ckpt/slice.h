/* SPDX-License-Identifier: Apache-2.0 */
/* A box of a tensor: which runs of its bytes it is. Pure. */
#ifndef STI_CKPT_SLICE_H
#define STI_CKPT_SLICE_H

#include <stdint.h>

#include "ckpt/layout.h"

/* Where something lies in the row of a tensor's, or of the memory's, bytes. */
struct sti_slice_walk {
    uint64_t first_bytes;                       /* where run 0 begins */
    uint64_t stride_bytes[STI_LAYOUT_DIMS_MAX]; /* of the outer dimensions */
};

/* Runs are equally long and in rising order of where they lie in the tensor. */
struct sti_slice {
    const struct sti_layout_tensor *tensor;
    uint32_t outer_dims; /* dimensions that a run's number counts through */
    uint64_t run_bytes;
    uint64_t n_runs;                      /* 0: the box is empty */
    uint64_t counts[STI_LAYOUT_DIMS_MAX]; /* of the outer dimensions */
    struct sti_slice_walk from;           /* in the tensor */
    struct sti_slice_walk to;             /* in the memory that it is copied to */
};

/* The memory that boxes are copied to: of an array of shape, of as many dimensions as the
 * tensor; the box begins at start in it. */
struct sti_slice_room {
    const uint64_t *shape;
    const uint64_t *start;
};

/*
 * start, count: dims values each; NULL: all of the tensor. Errors: -ERANGE beyond the
 * tensor, -EINVAL the elements are narrower than a byte and not all of them are asked
 * for. The memory holds the box alone.
 */
int
sti_slice_init(struct sti_slice *slice, const struct sti_layout_tensor *tensor,
               const uint64_t *start, const uint64_t *count);

/* The same of a box that is a part of the memory, which it must not go beyond. Elements of
 * whole bytes only. */
int
sti_slice_init_into(struct sti_slice *slice, const struct sti_layout_tensor *tensor,
                    const uint64_t *start, const uint64_t *count,
                    const struct sti_slice_room *room);

uint64_t
sti_slice_bytes(const struct sti_slice *slice);

/* Where run k begins in the tensor. */
uint64_t
sti_slice_run(const struct sti_slice *slice, uint64_t k);

/*
 * Copies what the box has of the tensor's bytes [from, from + n_bytes), which are at src,
 * to the memory dst.
 */
void
sti_slice_copy(const struct sti_slice *slice, char *dst, const char *src, uint64_t from,
               uint64_t n_bytes);

#endif
