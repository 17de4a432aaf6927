/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data set of a scenario and the order in which its ranks read it: sizes drawn from a
 * normal distribution, and one permutation per epoch from order/. 4 bytes per sample
 * each.
 */
#ifndef STI_SIM_DATA_H
#define STI_SIM_DATA_H

#include <stdint.h>

#include "order/order.h"
#include "sim/scenario.h"

struct sti_sim_data {
    const struct sti_scenario *scenario; /* borrowed for the data's life */
    struct sti_order order;              /* of all ranks: world 1 */
    uint64_t total_bytes;
    uint64_t steps;  /* of an epoch */
    uint32_t *bytes; /* of each sample; NULL: all have same_bytes */
    uint32_t same_bytes;
    uint32_t max_bytes;
    struct sti_order_cursor cursor;
    void *scratch;
};

/* Errors: -ENOMEM. */
int
sti_sim_data_init(struct sti_sim_data *data, const struct sti_scenario *scenario, stk_error *err);

/* All zero is allowed. */
void
sti_sim_data_fini(struct sti_sim_data *data);

static inline uint32_t
sti_sim_bytes(const struct sti_sim_data *data, uint32_t sample)
{
    return data->bytes ? data->bytes[sample] : data->same_bytes;
}

/* Writes the order of an epoch: ids, room for samples of them. */
void
sti_sim_data_epoch(struct sti_sim_data *data, uint64_t epoch, uint32_t *ids);

/* Samples of a rank in a step: batch, or fewer in the last step of an epoch (0 for the
 * last ranks). */
uint32_t
sti_sim_batch(const struct sti_sim_data *data, uint64_t step, uint64_t rank);

/*
 * Which element of the epoch's order a rank reads at an item of a step. As
 * DistributedSampler deals out, element by element (interleaved); or as the published
 * simulator cuts, a rank's batch in one piece.
 */
static inline uint64_t
sti_sim_element(const struct sti_sim_data *data, uint64_t step, uint64_t rank, uint64_t item)
{
    return (step * data->scenario->batch + item) * data->scenario->ranks + rank;
}

static inline uint64_t
sti_sim_element_cut(const struct sti_sim_data *data, uint64_t step, uint64_t rank, uint64_t item)
{
    return (step * data->scenario->ranks + rank) * data->scenario->batch + item;
}

/* A sequence of 64-bit numbers by seed and counter. */
uint64_t
sti_sim_random(uint64_t seed, uint64_t counter);

#endif
