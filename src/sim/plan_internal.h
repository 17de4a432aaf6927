/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the plan: the caches that change (plan_pools.c), placements that do not
 * (plan_static.c). */
#ifndef STI_SIM_PLAN_INTERNAL_H
#define STI_SIM_PLAN_INTERNAL_H

#include "sim/plan.h"

static inline bool
sti_sim_bit(const uint64_t *bits, uint32_t at)
{
    return bits[at / 64] >> at % 64 & 1;
}

/* Samples that a rank reads in an epoch. */
static inline uint64_t
sti_sim_rank_elements(const struct sti_sim_plan *plan, uint64_t rank)
{
    uint64_t n_ranks = plan->scenario->ranks;

    return plan->n_elements / n_ranks + (rank < plan->n_elements % n_ranks);
}

/* Sets up one pool of all holders; counts as sti_sim_plan_static()'s, NULL: each sample
 * goes to its first reader. Errors: -ENOMEM. */
int
sti_sim_pools_shared(struct sti_sim_plan *plan, const uint8_t *counts);

/* Epochs whose order is known while one is read, that one included. */
static inline uint64_t
sti_sim_known_epochs(const struct sti_scenario *scenario)
{
    return scenario->horizon_epochs && scenario->horizon_epochs < scenario->epochs
               ? scenario->horizon_epochs
               : scenario->epochs;
}

/* Sets up a pool of each rank. Errors: -ENOMEM. */
int
sti_sim_pools_own(struct sti_sim_plan *plan);

/*
 * Writes the order of an epoch, and the one before begins. What is held for that one
 * goes last: a sample held for the next may not take the place of one that is still to be
 * read in this.
 */
void
sti_sim_pools_order(struct sti_sim_plan *plan, uint64_t epoch);

/* The use of a sample by the pool of all holders; own: the reader's holder. *ret_peer: who
 * has it, if anybody. */
enum sti_source
sti_sim_pools_use_shared(struct sti_sim_plan *plan, uint64_t epoch, uint32_t sample, uint32_t own,
                         uint32_t *ret_peer);

/* The use of what a rank reads at a position, by its own pool. */
enum sti_source
sti_sim_pools_use_own(struct sti_sim_plan *plan, uint32_t rank, uint64_t position);

/* Sets up the policies whose placement is static (plan_static.c); counts (sample-major,
 * one byte for each holder) for those that need them. Errors as sti_sim_plan_init(). */
int
sti_sim_plan_static(struct sti_sim_plan *plan, const uint8_t *counts, stk_error *err);

/* Has holders that are slow to serve relieved (relief.c), once first copies are given. Errors:
 * -ENOMEM. */
int
sti_sim_relief(struct sti_sim_plan *plan);

/* Changes what is read in an epoch, for policies that do. */
void
sti_sim_plan_reorder(struct sti_sim_plan *plan, struct sti_sim_epoch *epoch, uint64_t number);

#endif
