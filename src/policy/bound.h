/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least that has to be read from the origin, whatever is cached and how. With U_e the
 * distinct bytes that are read in epoch e, N_e those of them that no epoch before has
 * read, and C the capacity that can hold them,
 *
 *     sum over e of max(N_e, U_e - C), the first epoch being all new.
 *
 * What is new comes from the origin. A cached interval between two uses of a sample in
 * different epochs crosses an epoch boundary, so at most C bytes of an epoch can be hits.
 * Each epoch's part holds by itself, and the run's bound is their sum. Fed sample by
 * sample as a run goes on; pure.
 */
#ifndef STI_POLICY_BOUND_H
#define STI_POLICY_BOUND_H

#include <stdbool.h>
#include <stdint.h>

struct sti_bound {
    uint64_t capacity_bytes;
    uint64_t epochs;         /* begun so far */
    uint64_t epoch_bytes;    /* distinct bytes of the current epoch */
    uint64_t new_bytes;      /* of them, those that no epoch before had */
    uint64_t distinct_bytes; /* of the run */
    uint64_t closed_bytes;   /* the sum's part of the epochs before the current one */
};

void
sti_bound_init(struct sti_bound *bound, uint64_t capacity_bytes);

/* A new epoch begins. */
void
sti_bound_epoch(struct sti_bound *bound);

/* A sample is read: is_new_in_epoch the first time in this epoch, is_new_in_run ever. */
void
sti_bound_sample(struct sti_bound *bound, uint64_t n_bytes, bool is_new_in_epoch,
                 bool is_new_in_run);

/* The part of the bound that the current epoch has so far. */
uint64_t
sti_bound_of_epoch(const struct sti_bound *bound);

/* The bound of the run so far. */
uint64_t
sti_bound_bytes(const struct sti_bound *bound);

#endif
