/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of samples, summed up: all of them, the largest, and the k largest for powers of
 * two. */
#ifndef STI_FORMAT_SIZES_H
#define STI_FORMAT_SIZES_H

#include <stdint.h>

#include "format/index.h"

struct sti_sizes {
    uint64_t samples;
    uint64_t n_bytes; /* sum */
    uint64_t max_bytes;
    uint64_t least_bytes;
    uint64_t uniform_bytes; /* after sti_sizes_end(): the size that all have, 0 where they differ */
    uint64_t largest[STI_INDEX_LARGEST];
    uint64_t *heap; /* owned: the largest so far, the least of them first */
    uint64_t n_heap;
};

/* samples: how many will be added. Errors: -ENOMEM. */
int
sti_sizes_begin(struct sti_sizes *sizes, uint64_t samples);

/* Adds count samples of one size. Errors: -E2BIG, the sum is more than INT64_MAX. */
int
sti_sizes_add(struct sti_sizes *sizes, uint64_t n_bytes, uint64_t count);

/* Fills uniform_bytes and largest, and frees. */
void
sti_sizes_end(struct sti_sizes *sizes);

#endif
