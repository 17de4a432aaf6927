/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decisions along a run. Invariant: epochs are planned in order, each once; an epoch's
 * ids are there one epoch before it is planned, because what is kept at its end depends
 * on the next. One thread.
 */
#include "sim/plan.h"

#include <string.h>

#include "policy/relief.h"
#include "sim/plan_internal.h"

static void
set_bit(uint64_t *bits, uint32_t at)
{
    bits[at / 64] |= UINT64_C(1) << at % 64;
}

void
sti_sim_plan_order(struct sti_sim_plan *plan, uint64_t epoch)
{
    if (epoch >= plan->scenario->epochs)
        return;
    if (plan->planner == STI_SIM_PLAN_SHARED)
        sti_sim_pools_order(plan, epoch);
    else
        sti_sim_data_epoch(plan->data, epoch, sti_sim_plan_at(plan, epoch)->ids);
    plan->n_ordered = epoch + 1;
    if (!plan->in_next)
        return;
    memset(plan->in_next, 0, (plan->scenario->samples / 64 + 1) * sizeof(uint64_t));
    for (uint64_t at = 0; at < plan->n_elements; at++)
        set_bit(plan->in_next, sti_sim_plan_at(plan, epoch)->ids[at]);
}

/* own: where the holder itself has it, a STI_SOURCE_BIT or 0. */
static enum sti_source
choose(const struct sti_sim_plan *plan, const struct sti_assignment *there, uint32_t sample,
       uint32_t holder, uint32_t own, uint32_t *ret_peer)
{
    const struct sti_sim_seconds *reader = &plan->seconds[holder];
    struct sti_source_seconds seconds = {
        {[STI_SOURCE_RAM] = reader->ram, [STI_SOURCE_SSD] = reader->ssd}};
    uint32_t available = own;
    uint32_t peer = STI_ASSIGN_NOBODY;

    if (!(own & STI_SOURCE_BIT(STI_SOURCE_RAM)))
        peer = sti_assignment_peer(there, sample, holder);
    if (peer != STI_ASSIGN_NOBODY) {
        *ret_peer = peer;
        seconds.of[STI_SOURCE_PEER_RAM] = reader->net + plan->seconds[peer].ram;
        seconds.of[STI_SOURCE_PEER_SSD] = reader->net + plan->seconds[peer].ssd;
        available |= sti_assignment_on_ssd(there, sample, peer)
                         ? STI_SOURCE_BIT(STI_SOURCE_PEER_SSD)
                         : STI_SOURCE_BIT(STI_SOURCE_PEER_RAM);
    }
    return sti_choose_source(&seconds, available);
}

/* Where a holder has a sample, a STI_SOURCE_BIT or 0. */
static uint32_t
own_source(const struct sti_assignment *there, uint32_t sample, uint32_t holder)
{
    if (!sti_assignment_has(there, sample, holder))
        return 0;
    return sti_assignment_on_ssd(there, sample, holder) ? STI_SOURCE_BIT(STI_SOURCE_SSD)
                                                        : STI_SOURCE_BIT(STI_SOURCE_RAM);
}

enum sti_source
sti_sim_plan_source(const struct sti_sim_plan *plan, const struct sti_assignment *there,
                    uint32_t sample, uint32_t holder, uint32_t *ret_peer)
{
    return choose(plan, there, sample, holder, own_source(there, sample, holder), ret_peer);
}

void
sti_sim_plan_count(struct sti_sim_plan *plan, uint32_t sample, enum sti_source source,
                   bool is_steady)
{
    static const uint8_t kinds[STI_SOURCES] = {
        [STI_SOURCE_RAM] = STK_SIM_FROM_RAM,       [STI_SOURCE_SSD] = STK_SIM_FROM_SSD,
        [STI_SOURCE_PEER_RAM] = STK_SIM_FROM_PEER, [STI_SOURCE_PEER_SSD] = STK_SIM_FROM_PEER,
        [STI_SOURCE_ORIGIN] = STK_SIM_FROM_ORIGIN,
    };
    uint32_t n_bytes = sti_sim_bytes(plan->data, sample);

    plan->result.source_samples[kinds[source]]++;
    plan->result.source_bytes[kinds[source]] += n_bytes;
    if (source == STI_SOURCE_ORIGIN)
        plan->result.origin_bytes += n_bytes;
    if (!is_steady)
        return;
    plan->steady_samples++;
    plan->steady_origin += source == STI_SOURCE_ORIGIN;
    plan->steady_local += source == STI_SOURCE_RAM || source == STI_SOURCE_SSD;
}

/* Whether what the assignment says of a sample holds already. */
static bool
is_there(const struct sti_sim_plan *plan, uint64_t epoch, uint32_t sample, uint32_t holder)
{
    if (plan->is_preloaded)
        return true;
    /* Filled beside the run: done when the first epoch is, and a rank's own first reads
     * bring what it is filled with. */
    if (plan->fills_beside)
        return epoch > 0 || sti_assignment_has(&plan->assignment, sample, holder);
    return sti_sim_bit(plan->came, sample);
}

/* A use where holders are fixed: a copy in spare room comes before the first copy of
 * another. */
static enum sti_source
use_static(struct sti_sim_plan *plan, uint64_t epoch, uint32_t sample, uint32_t holder,
           uint32_t *ret_peer)
{
    uint32_t own = own_source(&plan->assignment, sample, holder);
    enum sti_source source = STI_SOURCE_ORIGIN;

    bool is_relieved = plan->relief && epoch > 0 && plan->relief[sample] != STI_RELIEF_NOBODY;
    if (!own && is_relieved)
        own = own_source(&plan->relieving, sample, holder);
    if (plan->has_replicas && !own && sti_replicas_has(&plan->replicas, sample, holder))
        own = own_source(&plan->replicas.held, sample, holder);
    if (is_there(plan, epoch, sample, holder))
        source = choose(plan, is_relieved ? &plan->relieving : &plan->assignment, sample, holder,
                        own, ret_peer);
    else
        set_bit(plan->came, sample);
    if (plan->has_replicas && !sti_assignment_has(&plan->assignment, sample, holder))
        sti_replicas_used(&plan->replicas, epoch, sample, holder);
    return source;
}

static enum sti_source
decide(struct sti_sim_plan *plan, uint64_t epoch, uint64_t at, uint32_t rank, uint32_t *ret_peer)
{
    uint32_t sample = sti_sim_plan_at(plan, epoch)->ids[at];
    uint32_t holder = plan->holder_of[rank];
    uint64_t position;

    switch (plan->planner) {
    case STI_SIM_PLAN_NOTHING:
        return plan->policy == STK_SIM_PERFECT ? STI_SOURCE_RAM : STI_SOURCE_ORIGIN;
    case STI_SIM_PLAN_STATIC:
        return use_static(plan, epoch, sample, holder, ret_peer);
    case STI_SIM_PLAN_SHARED:
        return sti_sim_pools_use_shared(plan, epoch, sample, holder, ret_peer);
    case STI_SIM_PLAN_OWN:
        break;
    }
    position = epoch * sti_sim_rank_elements(plan, rank) + at / plan->scenario->ranks;
    return sti_sim_pools_use_own(plan, rank, position);
}

static void
count_bound(struct sti_sim_plan *plan, uint32_t sample)
{
    bool is_new = !sti_sim_bit(plan->read_before, sample);

    set_bit(plan->read_before, sample);
    sti_bound_sample(&plan->bound, sti_sim_bytes(plan->data, sample), true, is_new);
}

/* The epoch that comes into sight is told to the copies, with the one that begins. */
static void
begin_replicas(struct sti_sim_plan *plan, uint64_t epoch)
{
    const struct sti_scenario *scenario = plan->scenario;
    uint64_t n_ahead = plan->replicas.n_ahead;
    uint64_t known_end = epoch + 1 + n_ahead;

    if (!plan->has_replicas)
        return;
    if (epoch > 0 && n_ahead > 0 && known_end <= scenario->epochs) {
        sti_sim_data_epoch(plan->data, known_end - 1, plan->ahead_ids);
        sti_replicas_order(&plan->replicas, known_end - 1, plan->ahead_ids, plan->n_elements,
                           plan->holder_of, (uint32_t)scenario->ranks);
    }
    if (known_end > scenario->epochs)
        known_end = scenario->epochs;
    sti_replicas_begin(&plan->replicas, epoch, known_end, known_end == scenario->epochs);
}

void
sti_sim_plan_next(struct sti_sim_plan *plan)
{
    uint64_t epoch = plan->n_planned;
    struct sti_sim_epoch *now = sti_sim_plan_at(plan, epoch);
    uint32_t rank = 0;

    sti_sim_plan_order(plan, epoch + 1);
    begin_replicas(plan, epoch);
    sti_bound_epoch(&plan->bound);
    for (uint64_t at = 0; at < plan->n_elements; at++)
        count_bound(plan, now->ids[at]);
    sti_sim_plan_reorder(plan, now, epoch);
    for (uint64_t at = 0; at < plan->n_elements; at++) {
        uint32_t peer = 0;
        enum sti_source source = decide(plan, epoch, at, rank, &peer);

        now->source[at] = (uint8_t)source;
        now->peer[at] = (uint16_t)peer;
        if (!plan->fills_beside || !plan->scenario->timing)
            sti_sim_plan_count(plan, now->ids[at], source, epoch > 0);
        rank = rank + 1 == plan->scenario->ranks ? 0 : rank + 1;
    }
    plan->n_planned = epoch + 1;
}
