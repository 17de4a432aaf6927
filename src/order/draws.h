/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws of a weighted mix: each epoch takes a fixed number of samples of each part,
 * shuffled together. A part is gone through as a whole, in an order of its own, before
 * one of its samples comes again, across epochs; so of a part that is drawn from sparsely
 * all is seen in time. Each draw is a function of (seed, epoch, its number), without
 * memory.
 */
#ifndef STI_ORDER_DRAWS_H
#define STI_ORDER_DRAWS_H

#include <stdbool.h>
#include <stdint.h>

/* Borrowed arrays of n_parts + 1 running sums, beginning with 0. Constant once made. */
struct sti_draws {
    uint32_t n_parts;
    const uint64_t *first_id;   /* ids of part p: first_id[p] .. first_id[p + 1] - 1 */
    const uint64_t *first_draw; /* draws of an epoch from part p */
};

/*
 * Divides samples (1 .. 2^48) among n_parts parts by their weights: the whole numbers
 * next to the exact shares that add up to samples, larger remainders rounded up first.
 * first_draw: room for n_parts + 1 running sums. Returns n_parts, or a part whose weight
 * is no positive finite number or too small for a single draw.
 */
uint32_t
sti_draws_divide(uint64_t *first_draw, const double *weights, uint32_t n_parts, uint64_t samples);

/* Draws of an epoch. */
uint64_t
sti_draws_count(const struct sti_draws *draws);

/* Writes the ids of n draws of an epoch: those with the numbers first, first + step, ...,
 * taken modulo their count; as 32-bit numbers if is_narrow. */
struct sti_draws_range {
    uint64_t first, step, n;
    bool is_narrow;
};

void
sti_draws_write(const struct sti_draws *draws, uint64_t seed, uint64_t epoch,
                const struct sti_draws_range *range, void *ids);

#endif
