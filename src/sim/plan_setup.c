/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plan starts from: who holds together, how much room they have, how long a read
 * takes from where, how often each holder reads each sample. One thread.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "sim/plan_internal.h"
#include "sim/sim.h"

/* A table of counts, one of readers, and what pools of single ranks hold, at most. */
#define COUNTS_BYTES_MAX (UINT64_C(1) << 30)
#define READERS_BYTES_MAX (UINT64_C(32) << 20)
#define POOLS_BYTES_MAX (UINT64_C(8) << 30)
#define POOL_BYTES_PER_SAMPLE 11
#define PREFETCH_AHEAD 24

/* Ranks that hold together: those of a node where they are coordinated, else each alone. */
static int
make_holders(struct sti_sim_plan *plan)
{
    const struct sti_scenario *scenario = plan->scenario;

    plan->holder_ranks = plan->policy == STK_SIM_COORDINATED ? (uint32_t)scenario->node_ranks : 1;
    plan->n_holders = (uint32_t)((scenario->ranks + plan->holder_ranks - 1) / plan->holder_ranks);
    plan->holder_of = sti_mem_new(scenario->ranks, sizeof(*plan->holder_of));
    if (!plan->holder_of)
        return -ENOMEM;
    for (uint64_t rank = 0; rank < scenario->ranks; rank++)
        plan->holder_of[rank] = (uint16_t)(rank / plan->holder_ranks);
    return 0;
}

/* Of a node's capacity, the share of the ranks that hold together: all of them, or one. */
static double
share_mb(const struct sti_sim_plan *plan, const struct sti_by_node *capacity_mb, uint64_t node)
{
    const struct sti_scenario *scenario = plan->scenario;
    uint64_t first = node * scenario->node_ranks;
    uint64_t n_ranks = scenario->ranks - first < scenario->node_ranks ? scenario->ranks - first
                                                                      : scenario->node_ranks;
    double mb = sti_by_node_at(capacity_mb, node);

    return plan->holder_ranks == scenario->node_ranks ? mb : mb / (double)n_ranks;
}

/* What a holder can hold. Staging counts, as it does in the running library: what is
 * staged when an epoch ends is a hit of the next like anything else. */
static int
make_rooms(struct sti_sim_plan *plan)
{
    const struct sti_scenario *scenario = plan->scenario;
    const struct sti_sim_tier *tiers = scenario->tiers;
    double staging_mb = scenario->timing ? tiers[STI_SIM_STAGING_TIER].capacity_mb.value[0] : 0;
    uint64_t total_bytes = 0;

    plan->ram_bytes = sti_mem_new(plan->n_holders, sizeof(uint64_t));
    plan->ssd_bytes = sti_mem_new(plan->n_holders, sizeof(uint64_t));
    plan->preload_bytes = sti_mem_new(scenario->ranks, sizeof(uint64_t));
    plan->own = sti_mem_new(scenario->ranks, sizeof(*plan->own));
    if (!plan->ram_bytes || !plan->ssd_bytes || !plan->preload_bytes || !plan->own)
        return -ENOMEM;
    for (uint64_t rank = 0; rank < scenario->ranks; rank++)
        plan->ram_bytes[plan->holder_of[rank]] += (uint64_t)(staging_mb * STI_SIM_BYTES_PER_MB);
    for (uint64_t holder = 0; holder < plan->n_holders; holder++) {
        uint64_t node = sti_scenario_node_of(scenario, holder * plan->holder_ranks);
        double ram_mb = share_mb(plan, &tiers[STI_SIM_RAM_TIER].capacity_mb, node);
        double ssd_mb = share_mb(plan, &tiers[STI_SIM_SSD_TIER].capacity_mb, node);

        plan->ram_bytes[holder] += (uint64_t)(ram_mb * STI_SIM_BYTES_PER_MB);
        plan->ssd_bytes[holder] = (uint64_t)(ssd_mb * STI_SIM_BYTES_PER_MB);
        if (scenario->capacity > 0) {
            plan->ram_bytes[holder] = (uint64_t)llround(
                scenario->capacity * (double)plan->data->total_bytes / (double)plan->n_holders);
            plan->ssd_bytes[holder] = 0;
        }
        /* Room for everything, many times over, must not come round to none. */
        if (__builtin_add_overflow(total_bytes, plan->ram_bytes[holder], &total_bytes) ||
            __builtin_add_overflow(total_bytes, plan->ssd_bytes[holder], &total_bytes))
            total_bytes = UINT64_MAX / 2;
    }
    sti_bound_init(&plan->bound, total_bytes);
    return 0;
}

static double
transfer_s(double n_bytes, double mb_s)
{
    return n_bytes / STI_SIM_BYTES_PER_MB / mb_s;
}

/* What a read of a sample of mean size takes in each node's tiers and on its network. */
static int
make_seconds(struct sti_sim_plan *plan)
{
    const struct sti_scenario *scenario = plan->scenario;
    const struct sti_sim_tier *ram = &scenario->tiers[STI_SIM_RAM_TIER];
    const struct sti_sim_tier *ssd = &scenario->tiers[STI_SIM_SSD_TIER];
    double n_bytes = (double)plan->data->total_bytes / (double)scenario->samples;

    plan->seconds = sti_mem_new(plan->n_holders, sizeof(*plan->seconds));
    if (!plan->seconds)
        return -ENOMEM;
    for (uint64_t holder = 0; holder < plan->n_holders; holder++) {
        uint64_t node = sti_scenario_node_of(scenario, holder * plan->holder_ranks);

        plan->seconds[holder] = (struct sti_sim_seconds){
            .ram = ram->latency_ms / 1e3 + transfer_s(n_bytes, sti_by_node_at(&ram->mb_s, node)),
            .ssd = ssd->latency_ms / 1e3 + transfer_s(n_bytes, sti_by_node_at(&ssd->mb_s, node)),
            .net = scenario->net_latency_ms / 1e3 +
                   transfer_s(n_bytes, sti_by_node_at(&scenario->net_mb_s, node)),
        };
    }
    return 0;
}

/* Counts how often each holder reads each sample, as far as the order is known. */
static uint8_t *
count_uses(struct sti_sim_plan *plan)
{
    const struct sti_scenario *scenario = plan->scenario;
    uint64_t n_holders = plan->n_holders;
    uint8_t *counts = sti_mem_new(scenario->samples, n_holders);
    uint32_t *ids = plan->epochs[0].ids;

    for (uint64_t epoch = 0; counts && epoch < sti_sim_known_epochs(scenario); epoch++) {
        uint32_t rank = 0;

        sti_sim_data_epoch(plan->data, epoch, ids);
        for (uint64_t at = 0; at < plan->n_elements; at++) {
            uint64_t ahead = at + PREFETCH_AHEAD < plan->n_elements ? at + PREFETCH_AHEAD : at;
            uint8_t *count = &counts[ids[at] * n_holders + plan->holder_of[rank]];

            /* The table is larger than the caches and met at random. */
            __builtin_prefetch(&counts[ids[ahead] * n_holders], 1);
            *count = (uint8_t)(*count + (*count < UINT8_MAX));
            rank = rank + 1 == scenario->ranks ? 0 : rank + 1;
        }
    }
    return counts;
}

/* What room the first copies leave takes copies, by the epochs that are known ahead. */
static int
init_replicas(struct sti_sim_plan *plan)
{
    const struct sti_scenario *scenario = plan->scenario;
    const struct sti_assign_input input = {
        .n_samples = scenario->samples,
        .n_ranks = plan->n_holders,
        .bytes = plan->data->bytes,
        .same_bytes = plan->data->same_bytes,
        .ram_bytes = plan->assignment.ram_bytes,
        .ssd_bytes = plan->assignment.ssd_bytes,
    };
    uint64_t most_bytes = 0;
    bool is_full = false;

    for (uint32_t holder = 0; holder < plan->n_holders; holder++) {
        most_bytes = input.ram_bytes[holder] > most_bytes ? input.ram_bytes[holder] : most_bytes;
        most_bytes = input.ssd_bytes[holder] > most_bytes ? input.ssd_bytes[holder] : most_bytes;
    }
    if (most_bytes < plan->data->max_bytes)
        return 0;
    plan->has_replicas = true;
    plan->ahead_ids = sti_mem_new(scenario->samples, sizeof(*plan->ahead_ids));
    if (!plan->ahead_ids)
        return -ENOMEM;
    int rc =
        sti_replicas_init(&plan->replicas, &input,
                          sti_replicas_ahead(scenario->samples, sti_sim_known_epochs(scenario) - 1,
                                             READERS_BYTES_MAX));
    for (uint64_t epoch = 1; !rc && epoch <= plan->replicas.n_ahead; epoch++) {
        uint32_t *ids = plan->ahead_ids;

        sti_sim_data_epoch(plan->data, epoch, ids);
        sti_replicas_order(&plan->replicas, epoch, ids, plan->n_elements, plan->holder_of,
                           (uint32_t)scenario->ranks);
        /* Without a clock room counts as filled, as the published policy's does; with one
         * a copy comes by a use. */
        if (!scenario->timing && !is_full)
            is_full = !sti_replicas_fill(&plan->replicas, &plan->assignment, epoch, ids,
                                         plan->n_elements);
    }
    return rc;
}

static bool
everything_fits(const struct sti_sim_plan *plan)
{
    return plan->bound.capacity_bytes >= plan->data->total_bytes;
}

/* Whether every sample has a first copy. */
static bool
everything_held(const struct sti_sim_plan *plan)
{
    const struct sti_assignment *held = &plan->assignment;

    for (uint64_t sample = 0; sample < plan->scenario->samples; sample++) {
        uint32_t word = 0;

        while (word < held->n_words && !held->held[sample * held->n_words + word])
            word++;
        if (word == held->n_words)
            return false;
    }
    return true;
}

/* Chooses how a policy decides; whether with a table of counts. */
static enum sti_sim_planner
choose_planner(const struct sti_sim_plan *plan, bool *ret_counts)
{
    bool can_count = plan->n_holders * plan->scenario->samples <= COUNTS_BYTES_MAX;

    *ret_counts = false;
    switch (plan->policy) {
    case STK_SIM_PERFECT:
    case STK_SIM_NAIVE:
    case STK_SIM_STAGING:
    case STK_SIM_POLICIES:
        return STI_SIM_PLAN_NOTHING;
    case STK_SIM_COORDINATED:
        *ret_counts = can_count;
        return everything_fits(plan) && can_count ? STI_SIM_PLAN_STATIC : STI_SIM_PLAN_SHARED;
    case STK_SIM_NEXT_USE:
    case STK_SIM_LRU:
        return STI_SIM_PLAN_OWN;
    case STK_SIM_PAPER:
        *ret_counts = true;
        return STI_SIM_PLAN_STATIC;
    case STK_SIM_DEEPIO_ORDERED:
    case STK_SIM_DEEPIO_OPPORTUNISTIC:
    case STK_SIM_PARALLEL_STAGING:
    case STK_SIM_LBANN_DYNAMIC:
    case STK_SIM_LBANN_PRELOADING:
    case STK_SIM_LOCALITY_AWARE:
        break;
    }
    return STI_SIM_PLAN_STATIC;
}

/* Holders that do not change, or where these leave samples to nobody (pieces of room that
 * no sample fits into) and epochs drop some, a pool: it holds those that come next. */
static int
init_coordinated(struct sti_sim_plan *plan, const uint8_t *counts, stk_error *err)
{
    bool drops = plan->n_elements < plan->scenario->samples;
    int rc = sti_sim_plan_static(plan, counts, err);

    if (rc)
        return rc;
    if (!drops || sti_sim_known_epochs(plan->scenario) == 1 || everything_held(plan)) {
        rc = sti_sim_relief(plan);
        return rc ? rc : init_replicas(plan);
    }
    sti_assignment_fini(&plan->assignment);
    plan->planner = STI_SIM_PLAN_SHARED;
    return sti_sim_pools_shared(plan, counts);
}

static int
init_planner(struct sti_sim_plan *plan, stk_error *err)
{
    const struct sti_scenario *scenario = plan->scenario;
    uint64_t cells = plan->n_holders * scenario->samples;
    uint8_t *counts = NULL;
    bool needs_counts;
    int rc = 0;

    plan->planner = choose_planner(plan, &needs_counts);
    if ((plan->planner == STI_SIM_PLAN_OWN && cells > POOLS_BYTES_MAX / POOL_BYTES_PER_SAMPLE) ||
        (needs_counts && cells > COUNTS_BYTES_MAX))
        return sti_error_set(err, STK_E_INFEASIBLE,
                             "%s keeps a table of ranks x samples, %.3g entries here: too many",
                             sti_sim_policy_name(plan->policy), (double)cells);
    if (needs_counts) {
        counts = count_uses(plan);
        if (!counts)
            return -ENOMEM;
    }
    switch (plan->planner) {
    case STI_SIM_PLAN_NOTHING:
        break;
    case STI_SIM_PLAN_STATIC:
        rc = plan->policy == STK_SIM_COORDINATED ? init_coordinated(plan, counts, err)
                                                 : sti_sim_plan_static(plan, counts, err);
        break;
    case STI_SIM_PLAN_SHARED:
        rc = sti_sim_pools_shared(plan, counts);
        break;
    case STI_SIM_PLAN_OWN:
        rc = sti_sim_pools_own(plan);
        break;
    }
    sti_mem_free(counts);
    return rc;
}

int
sti_sim_plan_init(struct sti_sim_plan *plan, struct sti_sim_data *data, stk_sim_policy policy,
                  stk_error *err)
{
    const struct sti_scenario *scenario = data->scenario;
    int rc;

    *plan = (struct sti_sim_plan){.data = data, .scenario = scenario, .policy = policy};
    plan->n_elements =
        scenario->drop_last ? data->steps * scenario->batch * scenario->ranks : scenario->samples;
    plan->read_before = sti_mem_new(scenario->samples / 64 + 1, sizeof(uint64_t));
    plan->came = sti_mem_new(scenario->samples / 64 + 1, sizeof(uint64_t));
    rc = plan->read_before && plan->came ? make_holders(plan) : -ENOMEM;
    if (!rc)
        rc = make_rooms(plan);
    if (!rc)
        rc = make_seconds(plan);
    for (uint32_t slot = 0; !rc && slot < STI_SIM_EPOCHS_HELD; slot++) {
        struct sti_sim_epoch *epoch = &plan->epochs[slot];

        epoch->ids = sti_mem_new(scenario->samples, sizeof(*epoch->ids));
        epoch->source = sti_mem_new(scenario->samples, sizeof(*epoch->source));
        epoch->peer = sti_mem_new(scenario->samples, sizeof(*epoch->peer));
        rc = epoch->ids && epoch->source && epoch->peer ? 0 : -ENOMEM;
    }
    if (!rc)
        rc = init_planner(plan, err);
    if (rc == -ENOMEM)
        return sti_error_set(err, rc, "no memory for a simulation of this size");
    if (!rc)
        sti_sim_plan_order(plan, 0);
    return rc;
}

void
sti_sim_plan_fini(struct sti_sim_plan *plan)
{
    for (uint32_t slot = 0; slot < STI_SIM_EPOCHS_HELD; slot++) {
        sti_mem_free(plan->epochs[slot].ids);
        sti_mem_free(plan->epochs[slot].source);
        sti_mem_free(plan->epochs[slot].peer);
    }
    for (uint32_t at = 0; at < plan->n_pools; at++)
        sti_pool_fini(&plan->pools[at]);
    for (uint64_t rank = 0; rank < plan->scenario->ranks; rank++) {
        if (plan->streams)
            sti_mem_free(plan->streams[rank]);
        if (plan->next_use)
            sti_mem_free(plan->next_use[rank]);
    }
    sti_assignment_fini(&plan->assignment);
    sti_assignment_fini(&plan->relieving);
    sti_mem_free(plan->relief);
    sti_replicas_fini(&plan->replicas);
    sti_mem_free(plan->holder_of);
    sti_mem_free(plan->ahead_ids);
    sti_mem_free(plan->seconds);
    sti_mem_free(plan->pools);
    sti_mem_free(plan->streams);
    sti_mem_free(plan->next_use);
    sti_future_fini(&plan->future);
    sti_mem_free(plan->order_of);
    sti_mem_free(plan->sample_at);
    sti_mem_free(plan->wish);
    sti_mem_free(plan->in_next);
    sti_mem_free(plan->ram_bytes);
    sti_mem_free(plan->ssd_bytes);
    sti_mem_free(plan->preload_bytes);
    sti_mem_free(plan->own);
    sti_mem_free(plan->dealt);
    sti_mem_free(plan->read_before);
    sti_mem_free(plan->came);
}
