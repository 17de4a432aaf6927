/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placements that do not change during a run: the two of policy/assign, and the rules of
 * the systems that the published work compares itself with, as their authors describe
 * them (not as the published simulator has them: published_fill.c). One thread.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "sim/plan_internal.h"

/* Rooms of one policy: which tiers it uses. */
struct rooms {
    uint64_t *ram_bytes;
    uint64_t *ssd_bytes;
};

static int
rooms_init(struct rooms *rooms, const struct sti_sim_plan *plan, bool uses_ram, bool uses_ssd)
{
    const struct sti_scenario *scenario = plan->scenario;
    bool has_staging = scenario->timing && scenario->capacity <= 0;
    uint64_t staging_bytes =
        has_staging ? (uint64_t)(scenario->tiers[STI_SIM_STAGING_TIER].capacity_mb.value[0] *
                                 STI_SIM_BYTES_PER_MB)
                    : 0;

    rooms->ram_bytes = sti_mem_new(scenario->ranks, 2 * sizeof(uint64_t));
    if (!rooms->ram_bytes)
        return -ENOMEM;
    rooms->ssd_bytes = rooms->ram_bytes + scenario->ranks;
    for (uint64_t rank = 0; rank < scenario->ranks; rank++) {
        uint64_t ram_bytes = plan->ram_bytes[rank];

        /* None of them keeps anything in staging. */
        ram_bytes -= staging_bytes < ram_bytes ? staging_bytes : ram_bytes;
        rooms->ram_bytes[rank] = uses_ram ? ram_bytes : 0;
        rooms->ssd_bytes[rank] = uses_ssd ? plan->ssd_bytes[rank] : 0;
    }
    return 0;
}

static bool
hold(struct sti_sim_plan *plan, uint64_t sample, uint32_t rank)
{
    uint32_t n_bytes = sti_sim_bytes(plan->data, (uint32_t)sample);

    if (!sti_assignment_hold(&plan->assignment, sample, rank, n_bytes))
        return false;
    plan->preload_bytes[rank] += n_bytes;
    if (plan->own[rank].count++ == 0)
        plan->own[rank].first = sample;
    return true;
}

/* An equal share by id for each rank, as far as it fits. */
static void
hold_shares(struct sti_sim_plan *plan)
{
    uint64_t n = plan->scenario->samples;
    uint64_t n_ranks = plan->scenario->ranks;

    for (uint64_t rank = 0; rank < n_ranks; rank++)
        for (uint64_t sample = rank * n / n_ranks; sample < (rank + 1) * n / n_ranks; sample++)
            if (!hold(plan, sample, (uint32_t)rank))
                break;
}

/* One rank after the other, each until it is full. */
static void
hold_in_turn(struct sti_sim_plan *plan)
{
    uint32_t rank = 0;

    for (uint64_t sample = 0; sample < plan->scenario->samples && rank < plan->scenario->ranks;)
        if (hold(plan, sample, rank))
            sample++;
        else
            rank++;
}

/* Each sample by the rank that reads it in the first epoch. */
static void
hold_first_readers(struct sti_sim_plan *plan)
{
    uint32_t *ids = plan->epochs[0].ids;

    sti_sim_data_epoch(plan->data, 0, ids);
    for (uint64_t at = 0; at < plan->n_elements; at++)
        (void)hold(plan, ids[at], sti_owner_first_reader(at, (uint32_t)plan->scenario->ranks));
}

static uint64_t
sum(const uint64_t *values, uint64_t n)
{
    uint64_t total = 0;

    for (uint64_t i = 0; i < n; i++)
        total += values[i];
    return total;
}

static int
check_fits(const struct sti_sim_plan *plan, const struct rooms *rooms, stk_error *err)
{
    uint64_t ram_bytes = sum(rooms->ram_bytes, plan->scenario->ranks);

    if (ram_bytes >= plan->data->total_bytes)
        return 0;
    return sti_error_set(err, STK_E_INFEASIBLE,
                         "does not fit: the data set has %.0f MB, the RAM of all ranks %.0f MB",
                         (double)plan->data->total_bytes / STI_SIM_BYTES_PER_MB,
                         (double)ram_bytes / STI_SIM_BYTES_PER_MB);
}

/* The systems that are compared with. */
static int
hold_as_others(struct sti_sim_plan *plan, const struct sti_assign_input *input,
               const struct rooms *rooms, stk_error *err)
{
    bool is_lbann =
        plan->policy == STK_SIM_LBANN_DYNAMIC || plan->policy == STK_SIM_LBANN_PRELOADING;
    bool is_deepio =
        plan->policy == STK_SIM_DEEPIO_ORDERED || plan->policy == STK_SIM_DEEPIO_OPPORTUNISTIC;
    int rc = sti_assignment_init(&plan->assignment, input);

    if (!rc && plan->policy == STK_SIM_LOCALITY_AWARE) {
        plan->dealt =
            sti_mem_new((plan->scenario->batch + 2) * plan->scenario->ranks, sizeof(*plan->dealt));
        rc = plan->dealt ? 0 : -ENOMEM;
    }
    if (!rc && is_lbann)
        rc = check_fits(plan, rooms, err);
    if (rc)
        return rc;
    plan->is_preloaded = plan->policy != STK_SIM_LBANN_DYNAMIC;
    if (plan->policy == STK_SIM_LBANN_DYNAMIC)
        hold_first_readers(plan);
    else if (is_deepio && sum(rooms->ram_bytes, plan->scenario->ranks) < plan->data->total_bytes)
        hold_in_turn(plan);
    else
        hold_shares(plan);
    if (!plan->is_preloaded)
        memset(plan->preload_bytes, 0, plan->scenario->ranks * sizeof(*plan->preload_bytes));
    uint64_t preload_bytes = sum(plan->preload_bytes, plan->scenario->ranks);
    plan->result.origin_bytes += preload_bytes;
    if (plan->policy == STK_SIM_PARALLEL_STAGING && preload_bytes == 0)
        return sti_error_set(err, STK_E_INFEASIBLE, "does not fit: there is no room on an SSD");
    return 0;
}

static void
count_paper_fill(struct sti_sim_plan *plan)
{
    const struct sti_assignment *assignment = &plan->assignment;

    for (uint64_t sample = 0; sample < plan->scenario->samples; sample++)
        for (uint32_t rank = 0; rank < assignment->n_ranks; rank++)
            if (sti_assignment_has(assignment, sample, rank))
                plan->result.origin_bytes += sti_sim_bytes(plan->data, (uint32_t)sample);
}

int
sti_sim_plan_static(struct sti_sim_plan *plan, const uint8_t *counts, stk_error *err)
{
    const struct sti_scenario *scenario = plan->scenario;
    bool is_ours = plan->policy == STK_SIM_COORDINATED;
    bool is_paper = plan->policy == STK_SIM_PAPER;
    bool uses_ssd_only =
        plan->policy == STK_SIM_PARALLEL_STAGING || plan->policy == STK_SIM_LOCALITY_AWARE;
    struct rooms rooms;

    if (is_ours)
        rooms = (struct rooms){plan->ram_bytes, plan->ssd_bytes};
    else if (rooms_init(&rooms, plan, !uses_ssd_only, is_paper || uses_ssd_only))
        return -ENOMEM;
    struct sti_assign_input input = {
        .n_samples = scenario->samples,
        .n_ranks = plan->n_holders,
        .bytes = plan->data->bytes,
        .same_bytes = plan->data->same_bytes,
        .ram_bytes = rooms.ram_bytes,
        .ssd_bytes = rooms.ssd_bytes,
        .counts = counts,
        .seed = scenario->seed,
        .ties = is_paper ? (enum sti_assign_ties)scenario->ties : STI_ASSIGN_TIES_RANDOM,
    };
    int rc;
    if (is_ours)
        rc = sti_assign_coordinated(&plan->assignment, &input);
    else if (is_paper)
        rc = sti_assign_paper(&plan->assignment, &input);
    else
        rc = hold_as_others(plan, &input, &rooms, err);
    if (!rc && is_paper) {
        plan->fills_beside = true;
        if (!scenario->timing)
            count_paper_fill(plan);
    }
    if (!is_ours)
        sti_mem_free(rooms.ram_bytes);
    return rc;
}

/* A sample that a rank holds, by a number; `otherwise` if it holds none. */
static uint32_t
own_sample(const struct sti_sim_plan *plan, uint32_t rank, uint64_t number, uint32_t otherwise)
{
    const struct sti_sim_range *own = &plan->own[rank];

    return own->count ? (uint32_t)(own->first + number % own->count) : otherwise;
}

/* Deals the samples of a step out again, each to a rank that holds it as long as that
 * rank still needs samples. ids: of the step, item by item; dealt: room for as many. */
static void
deal_step(const struct sti_sim_plan *plan, uint32_t *ids, uint64_t count, uint32_t *dealt)
{
    uint32_t n_ranks = (uint32_t)plan->scenario->ranks;
    uint64_t n = plan->scenario->samples;
    uint64_t *next = (uint64_t *)(void *)dealt; /* of each rank: where its next one goes */
    uint32_t *out = dealt + 2 * (uint64_t)n_ranks;
    uint64_t n_left = 0;
    uint64_t at;

    for (uint32_t rank = 0; rank < n_ranks; rank++)
        next[rank] = rank;
    for (at = 0; at < count; at++) {
        uint64_t holder = (uint64_t)ids[at] * n_ranks / n;

        if (holder >= n_ranks ||
            !sti_assignment_has(&plan->assignment, ids[at], (uint32_t)holder) ||
            next[holder] >= count) {
            ids[n_left++] = ids[at];
            continue;
        }
        out[next[holder]] = ids[at];
        next[holder] += n_ranks;
    }
    for (uint32_t rank = 0; rank < n_ranks; rank++)
        for (; next[rank] < count; next[rank] += n_ranks)
            out[next[rank]] = ids[--n_left];
    memcpy(ids, out, count * sizeof(*ids));
}

static void
deal_epoch(struct sti_sim_plan *plan, uint32_t *ids)
{
    uint64_t per_step = plan->scenario->batch * plan->scenario->ranks;

    for (uint64_t at = 0; at < plan->n_elements; at += per_step)
        deal_step(plan, ids + at,
                  per_step < plan->n_elements - at ? per_step : plan->n_elements - at, plan->dealt);
}

void
sti_sim_plan_reorder(struct sti_sim_plan *plan, struct sti_sim_epoch *epoch, uint64_t number)
{
    bool reads_own = plan->policy == STK_SIM_PARALLEL_STAGING;
    uint32_t rank = 0;

    if (plan->policy == STK_SIM_LOCALITY_AWARE)
        deal_epoch(plan, epoch->ids);
    if (!reads_own && plan->policy != STK_SIM_DEEPIO_OPPORTUNISTIC)
        return;
    for (uint64_t at = 0; at < plan->n_elements; at++) {
        uint32_t *id = &epoch->ids[at];
        uint32_t peer;

        if (reads_own ||
            sti_sim_plan_source(plan, &plan->assignment, *id, rank, &peer) == STI_SOURCE_ORIGIN)
            *id = own_sample(plan, rank, sti_sim_random(plan->scenario->seed + number, at), *id);
        rank = rank + 1 == plan->scenario->ranks ? 0 : rank + 1;
    }
}
