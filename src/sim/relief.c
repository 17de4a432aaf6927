/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holders that are slow to serve, and who serves for them from the second epoch on. What the
 * running ranks measure in an epoch the simulator takes from the scenario: what a read takes
 * in the holder's tiers and on its network. The decision is policy/relief's. One thread.
 */
#include <errno.h>

#include "base/mem.h"
#include "policy/relief.h"
#include "sim/plan_internal.h"

/* What each holder holds and what serving that takes. first: of each sample, its holder. */
static void
measure(const struct sti_sim_plan *plan, struct sti_relief_rank *ranks, uint16_t *first)
{
    const struct sti_scenario *scenario = plan->scenario;
    const struct sti_assignment *held = &plan->assignment;
    uint32_t n_ranks = plan->n_holders;
    double asked_share = (double)(n_ranks - 1) / (double)n_ranks;
    double mean_bytes = (double)plan->data->total_bytes / (double)scenario->samples;

    for (uint64_t sample = 0; sample < scenario->samples; sample++) {
        uint32_t last = n_ranks - 1;
        uint32_t rank =
            sti_assignment_has(held, sample, last) ? last : sti_assignment_peer(held, sample, last);

        first[sample] = rank == STI_ASSIGN_NOBODY ? STI_RELIEF_NOBODY : (uint16_t)rank;
        if (rank == STI_ASSIGN_NOBODY)
            continue;
        const struct sti_sim_seconds *seconds = &plan->seconds[rank];
        double n_bytes = sti_sim_bytes(plan->data, (uint32_t)sample);
        double took_s = seconds->net +
                        (sti_assignment_on_ssd(held, sample, rank) ? seconds->ssd : seconds->ram);

        ranks[rank].held_bytes += (uint64_t)n_bytes;
        ranks[rank].busy_ns += (uint64_t)(took_s * 1e9 * asked_share * n_bytes / mean_bytes);
    }
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        uint64_t node = sti_scenario_node_of(scenario, (uint64_t)rank * plan->holder_ranks);
        double rank_bytes = (double)plan->data->total_bytes / (double)scenario->ranks;

        ranks[rank].served_bytes = (uint64_t)(asked_share * (double)ranks[rank].held_bytes);
        ranks[rank].spare_bytes = held->ram_bytes[rank] + held->ssd_bytes[rank];
        ranks[rank].wall_ns = (uint64_t)(rank_bytes / STI_SIM_BYTES_PER_MB /
                                         sti_by_node_at(&scenario->compute_mb_s, node) * 1e9);
    }
}

/* Gives those that take what they take, in the room that their first copies leave, which is
 * then copies' no more. */
static int
assign(struct sti_sim_plan *plan, const struct sti_relief_rank *ranks, const uint16_t *first)
{
    uint32_t n_ranks = plan->n_holders;
    uint64_t n = plan->scenario->samples;
    const struct sti_assign_input input = {.n_samples = n,
                                           .n_ranks = n_ranks,
                                           .ram_bytes = plan->assignment.ram_bytes,
                                           .ssd_bytes = plan->assignment.ssd_bytes};
    uint64_t *bytes = sti_mem_new(n_ranks, 2 * sizeof(*bytes));

    plan->relief = sti_mem_new(n, sizeof(*plan->relief));
    if (!plan->relief || !bytes || sti_assignment_init(&plan->relieving, &input) < 0) {
        sti_mem_free(bytes);
        return -ENOMEM;
    }
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        bytes[rank] = ranks[rank].give_bytes;
        bytes[n_ranks + rank] = ranks[rank].take_bytes;
    }
    const struct sti_relief_input samples = {.first = first,
                                             .bytes = plan->data->bytes,
                                             .same_bytes = plan->data->same_bytes,
                                             .n_ranks = n_ranks,
                                             .n_samples = n};
    sti_relief_assign(&samples, bytes, bytes + n_ranks, plan->relief);
    sti_mem_free(bytes);
    for (uint64_t sample = 0; sample < n; sample++)
        if (plan->relief[sample] != STI_RELIEF_NOBODY &&
            !sti_assignment_hold(&plan->relieving, sample, plan->relief[sample],
                                 sti_sim_bytes(plan->data, (uint32_t)sample)))
            plan->relief[sample] = STI_RELIEF_NOBODY;
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        plan->assignment.ram_bytes[rank] = plan->relieving.ram_bytes[rank];
        plan->assignment.ssd_bytes[rank] = plan->relieving.ssd_bytes[rank];
    }
    return 0;
}

int
sti_sim_relief(struct sti_sim_plan *plan)
{
    if (!plan->scenario->timing || plan->scenario->no_relief || plan->n_holders < 2)
        return 0;
    struct sti_relief_rank *ranks = sti_mem_new(plan->n_holders, sizeof(*ranks));
    uint16_t *first = sti_mem_new(plan->scenario->samples, sizeof(*first));
    int rc = ranks && first ? 0 : -ENOMEM;

    if (rc == 0) {
        measure(plan, ranks, first);
        if (sti_relief_decide(ranks, plan->n_holders))
            rc = assign(plan, ranks, first);
    }
    sti_mem_free(first);
    sti_mem_free(ranks);
    return rc;
}
