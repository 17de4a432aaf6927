/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decisions along a run. Invariant: epochs are planned in order, each once; an epoch's
 * ids are there one epoch before it is planned, because what is kept at its end depends
 * on the next. One thread.
 */
#include "sim/plan.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "sim/sim.h"

/* A table of counts, and what pools of single ranks hold, at most. */
#define COUNTS_BYTES_MAX (UINT64_C(1) << 30)
#define POOLS_BYTES_MAX (UINT64_C(8) << 30)
#define POOL_BYTES_PER_SAMPLE 11
#define PREFETCH_AHEAD 24

static bool
get_bit(const uint64_t *bits, uint32_t at)
{
    return bits[at / 64] >> at % 64 & 1;
}

static void
set_bit(uint64_t *bits, uint32_t at)
{
    bits[at / 64] |= UINT64_C(1) << at % 64;
}

/* Ids of an epoch, if it is one of the run. */
static void
order_epoch(struct sti_sim_plan *plan, uint64_t epoch)
{
    if (epoch >= plan->scenario->epochs)
        return;
    sti_sim_data_epoch(plan->data, epoch, sti_sim_plan_at(plan, epoch)->ids);
    plan->n_ordered = epoch + 1;
    if (!plan->in_next)
        return;
    memset(plan->in_next, 0, (plan->scenario->samples / 64 + 1) * sizeof(uint64_t));
    for (uint64_t at = 0; at < plan->n_elements; at++)
        set_bit(plan->in_next, sti_sim_plan_at(plan, epoch)->ids[at]);
}

/* What a rank can hold. Staging counts, as it does in the running library: what is staged
 * when an epoch ends is a hit of the next like anything else. */
static int
make_rooms(struct sti_sim_plan *plan)
{
    const struct sti_scenario *scenario = plan->scenario;
    const struct sti_sim_tier *tiers = scenario->tiers;
    double ram_mb = tiers[STI_SIM_RAM_TIER].capacity_mb;
    double staging_mb = scenario->timing ? tiers[STI_SIM_STAGING_TIER].capacity_mb : 0;
    uint64_t total_bytes = 0;

    plan->ram_bytes = sti_mem_new(scenario->ranks, sizeof(uint64_t));
    plan->ssd_bytes = sti_mem_new(scenario->ranks, sizeof(uint64_t));
    plan->preload_bytes = sti_mem_new(scenario->ranks, sizeof(uint64_t));
    plan->own = sti_mem_new(scenario->ranks, sizeof(*plan->own));
    if (!plan->ram_bytes || !plan->ssd_bytes || !plan->preload_bytes || !plan->own)
        return -ENOMEM;
    for (uint64_t rank = 0; rank < scenario->ranks; rank++) {
        plan->ram_bytes[rank] = (uint64_t)((ram_mb + staging_mb) * STI_SIM_BYTES_PER_MB);
        plan->ssd_bytes[rank] =
            (uint64_t)(tiers[STI_SIM_SSD_TIER].capacity_mb * STI_SIM_BYTES_PER_MB);
        if (scenario->capacity > 0) {
            plan->ram_bytes[rank] = (uint64_t)llround(
                scenario->capacity * (double)plan->data->total_bytes / (double)scenario->ranks);
            plan->ssd_bytes[rank] = 0;
        }
        total_bytes += plan->ram_bytes[rank] + plan->ssd_bytes[rank];
    }
    sti_bound_init(&plan->bound, total_bytes);
    return 0;
}

static double
transfer_s(double n_bytes, double mb_s)
{
    return n_bytes / STI_SIM_BYTES_PER_MB / mb_s;
}

static void
make_seconds(struct sti_sim_plan *plan)
{
    const struct sti_scenario *scenario = plan->scenario;
    const struct sti_sim_tier *ram = &scenario->tiers[STI_SIM_RAM_TIER];
    const struct sti_sim_tier *ssd = &scenario->tiers[STI_SIM_SSD_TIER];
    double n_bytes = (double)plan->data->total_bytes / (double)scenario->samples;
    double net_s = scenario->net_latency_ms / 1e3 + transfer_s(n_bytes, scenario->net_mb_s);
    double *seconds = plan->seconds.of;

    seconds[STI_SOURCE_RAM] = ram->latency_ms / 1e3 + transfer_s(n_bytes, ram->mb_s);
    seconds[STI_SOURCE_SSD] = ssd->latency_ms / 1e3 + transfer_s(n_bytes, ssd->mb_s);
    seconds[STI_SOURCE_PEER_RAM] = net_s + seconds[STI_SOURCE_RAM];
    seconds[STI_SOURCE_PEER_SSD] = net_s + seconds[STI_SOURCE_SSD];
    seconds[STI_SOURCE_ORIGIN] =
        scenario->origin_latency_ms / 1e3 +
        transfer_s(n_bytes, sti_curve_at(&scenario->origin, (double)scenario->ranks));
}

/* Counts how often each rank reads each sample, as far as the order is known. */
static uint8_t *
count_uses(struct sti_sim_plan *plan)
{
    const struct sti_scenario *scenario = plan->scenario;
    uint64_t n_epochs = scenario->epochs;
    uint32_t n_ranks = (uint32_t)scenario->ranks;
    uint8_t *counts = sti_mem_new(scenario->samples, n_ranks);
    uint32_t *ids = plan->epochs[0].ids;

    if (scenario->horizon_epochs && scenario->horizon_epochs < n_epochs)
        n_epochs = scenario->horizon_epochs;
    for (uint64_t epoch = 0; counts && epoch < n_epochs; epoch++) {
        uint32_t rank = 0;

        sti_sim_data_epoch(plan->data, epoch, ids);
        for (uint64_t at = 0; at < plan->n_elements; at++) {
            uint64_t ahead = at + PREFETCH_AHEAD < plan->n_elements ? at + PREFETCH_AHEAD : at;
            uint8_t *count = &counts[(uint64_t)ids[at] * n_ranks + rank];

            /* The table is larger than the caches and met at random. */
            __builtin_prefetch(&counts[(uint64_t)ids[ahead] * n_ranks], 1);
            *count = (uint8_t)(*count + (*count < UINT8_MAX));
            rank = rank + 1 == n_ranks ? 0 : rank + 1;
        }
    }
    return counts;
}

struct worth {
    double saved;
    uint32_t bytes;
    uint32_t sample;
};

static int
compare_worth(const void *a, const void *b)
{
    const struct worth *left = a;
    const struct worth *right = b;

    if (left->saved < right->saved || left->saved > right->saved)
        return left->saved > right->saved ? -1 : 1;
    if (left->bytes != right->bytes)
        return left->bytes < right->bytes ? -1 : 1;
    return left->sample < right->sample ? -1 : left->sample > right->sample;
}

/* The order of worth when not everything fits: what saves most origin time per byte
 * first. */
static int
make_worth(struct sti_sim_plan *plan)
{
    const struct sti_scenario *scenario = plan->scenario;
    uint64_t n = scenario->samples;
    struct worth *all = sti_mem_new(n, sizeof(*all));
    struct sti_cost cost = {scenario->origin_latency_ms / 1e3, scenario->origin};

    plan->order_of = sti_mem_new(n, sizeof(uint32_t));
    plan->sample_at = sti_mem_new(n, sizeof(uint32_t));
    if (!all || !plan->order_of || !plan->sample_at) {
        sti_mem_free(all);
        return -ENOMEM;
    }
    for (uint32_t at = 0; at < cost.curve.n_points; at++)
        cost.curve.y[at] *= STI_SIM_BYTES_PER_MB;
    for (uint32_t sample = 0; sample < n; sample++) {
        uint32_t n_bytes = sti_sim_bytes(plan->data, sample);

        all[sample] = (struct worth){
            sti_cost_saved_per_byte(&cost, n_bytes, (double)scenario->ranks), n_bytes, sample};
    }
    if (plan->data->bytes)
        qsort(all, n, sizeof(*all), compare_worth);
    for (uint32_t at = 0; at < n; at++) {
        plan->sample_at[at] = all[at].sample;
        plan->order_of[all[at].sample] = at;
    }
    sti_mem_free(all);
    return 0;
}

/* The rank that reads each sample most; the lowest of equals, counted from sample % ranks
 * on. */
static int
make_wishes(struct sti_sim_plan *plan, const uint8_t *counts)
{
    uint32_t n_ranks = (uint32_t)plan->scenario->ranks;

    plan->wish = sti_mem_new(plan->scenario->samples, sizeof(*plan->wish));
    if (!plan->wish)
        return -ENOMEM;
    for (uint64_t sample = 0; sample < plan->scenario->samples; sample++) {
        uint32_t best = (uint32_t)(sample % n_ranks);

        for (uint32_t step = 1; step < n_ranks; step++) {
            uint32_t rank = (uint32_t)((sample + step) % n_ranks);

            if (counts[sample * n_ranks + rank] > counts[sample * n_ranks + best])
                best = rank;
        }
        plan->wish[sample] = (uint16_t)best;
    }
    return 0;
}

static int
pools_new(struct sti_sim_plan *plan, uint32_t n_pools)
{
    plan->pools = sti_mem_new(n_pools, sizeof(*plan->pools));
    plan->n_pools = plan->pools ? n_pools : 0;
    return plan->pools ? 0 : -ENOMEM;
}

static struct sti_pool_opts
pool_opts(const struct sti_sim_plan *plan)
{
    return (struct sti_pool_opts){
        .n_samples = plan->scenario->samples,
        .bytes = plan->data->bytes,
        .same_bytes = plan->data->same_bytes,
        .max_bytes = plan->data->max_bytes,
        .n_ranks = 1,
    };
}

static int
init_shared(struct sti_sim_plan *plan, const uint8_t *counts)
{
    int rc = make_worth(plan);

    if (!rc && counts)
        rc = make_wishes(plan, counts);
    if (!rc && plan->n_elements < plan->scenario->samples) {
        plan->in_next = sti_mem_new(plan->scenario->samples / 64 + 1, sizeof(uint64_t));
        rc = plan->in_next ? 0 : -ENOMEM;
    }
    if (!rc)
        rc = pools_new(plan, 1);
    if (rc)
        return rc;
    struct sti_pool_opts opts = pool_opts(plan);
    opts.n_keys = plan->scenario->samples;
    opts.sample_of_key = plan->sample_at;
    opts.n_ranks = (uint32_t)plan->scenario->ranks;
    opts.ram_bytes = plan->ram_bytes;
    opts.ssd_bytes = plan->ssd_bytes;
    return sti_pool_init(&plan->pools[0], &opts);
}

/* Positions at which a rank reads what it reads at each one next: UINT32_MAX for
 * never. */
static void
find_next_uses(const uint32_t *stream, uint64_t length, uint32_t *last, uint64_t n_samples,
               uint32_t *next_use)
{
    memset(last, 0xff, n_samples * sizeof(*last));
    for (uint64_t at = length; at-- > 0;) {
        next_use[at] = last[stream[at]];
        last[stream[at]] = (uint32_t)at;
    }
}

static int
streams_new(struct sti_sim_plan *plan, uint64_t length)
{
    uint64_t n_ranks = plan->scenario->ranks;

    plan->streams = sti_mem_new(n_ranks, sizeof(*plan->streams));
    plan->next_use = sti_mem_new(n_ranks, sizeof(*plan->next_use));
    if (!plan->streams || !plan->next_use)
        return -ENOMEM;
    for (uint64_t rank = 0; rank < n_ranks; rank++) {
        plan->streams[rank] = sti_mem_new(length, sizeof(uint32_t));
        if (!plan->streams[rank])
            return -ENOMEM;
        if (plan->policy != STK_SIM_NEXT_USE)
            continue;
        plan->next_use[rank] = sti_mem_new(length, sizeof(uint32_t));
        if (!plan->next_use[rank])
            return -ENOMEM;
    }
    return 0;
}

/* Samples that a rank reads in an epoch. */
static uint64_t
rank_elements(const struct sti_sim_plan *plan, uint64_t rank)
{
    uint64_t n_ranks = plan->scenario->ranks;

    return plan->n_elements / n_ranks + (rank < plan->n_elements % n_ranks);
}

static int
init_own(struct sti_sim_plan *plan)
{
    const struct sti_scenario *scenario = plan->scenario;
    uint64_t length = rank_elements(plan, 0) * scenario->epochs;
    uint32_t *last = sti_mem_new(scenario->samples, sizeof(*last));
    int rc = last ? streams_new(plan, length) : -ENOMEM;

    if (!rc)
        rc = pools_new(plan, (uint32_t)scenario->ranks);
    for (uint64_t epoch = 0; !rc && epoch < scenario->epochs; epoch++) {
        uint32_t *ids = plan->epochs[0].ids;

        sti_sim_data_epoch(plan->data, epoch, ids);
        for (uint64_t at = 0; at < plan->n_elements; at++) {
            uint64_t rank = at % scenario->ranks;

            plan->streams[rank][epoch * rank_elements(plan, rank) + at / scenario->ranks] = ids[at];
        }
    }
    for (uint64_t rank = 0; !rc && rank < scenario->ranks; rank++) {
        struct sti_pool_opts opts = pool_opts(plan);
        uint64_t n = rank_elements(plan, rank) * scenario->epochs;

        opts.n_keys = n;
        opts.sample_of_key = plan->streams[rank];
        opts.oldest_first = plan->policy == STK_SIM_LRU;
        opts.ram_bytes = &plan->ram_bytes[rank];
        opts.ssd_bytes = &plan->ssd_bytes[rank];
        if (plan->next_use[rank])
            find_next_uses(plan->streams[rank], n, last, scenario->samples, plan->next_use[rank]);
        rc = sti_pool_init(&plan->pools[rank], &opts);
    }
    sti_mem_free(last);
    return rc;
}

static bool
everything_fits(const struct sti_sim_plan *plan)
{
    return plan->bound.capacity_bytes >= plan->data->total_bytes;
}

/* Chooses how a policy decides; whether with a table of counts. */
static enum sti_sim_planner
choose_planner(const struct sti_sim_plan *plan, bool *ret_counts)
{
    bool can_count = plan->scenario->ranks * plan->scenario->samples <= COUNTS_BYTES_MAX;

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

static int
init_planner(struct sti_sim_plan *plan, stk_error *err)
{
    const struct sti_scenario *scenario = plan->scenario;
    uint64_t cells = scenario->ranks * scenario->samples;
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
        rc = sti_sim_plan_static(plan, counts, err);
        break;
    case STI_SIM_PLAN_SHARED:
        rc = init_shared(plan, counts);
        break;
    case STI_SIM_PLAN_OWN:
        rc = init_own(plan);
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
    rc = plan->read_before && plan->came ? make_rooms(plan) : -ENOMEM;
    for (uint32_t slot = 0; !rc && slot < STI_SIM_EPOCHS_HELD; slot++) {
        struct sti_sim_epoch *epoch = &plan->epochs[slot];

        epoch->ids = sti_mem_new(scenario->samples, sizeof(*epoch->ids));
        epoch->source = sti_mem_new(scenario->samples, sizeof(*epoch->source));
        epoch->peer = sti_mem_new(scenario->samples, sizeof(*epoch->peer));
        rc = epoch->ids && epoch->source && epoch->peer ? 0 : -ENOMEM;
    }
    if (!rc) {
        make_seconds(plan);
        rc = init_planner(plan, err);
    }
    if (rc == -ENOMEM)
        return sti_error_set(err, rc, "no memory for a simulation of this size");
    if (!rc)
        order_epoch(plan, 0);
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
    sti_mem_free(plan->pools);
    sti_mem_free(plan->streams);
    sti_mem_free(plan->next_use);
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

enum sti_source
sti_sim_plan_source(const struct sti_sim_plan *plan, const struct sti_assignment *there,
                    uint32_t sample, uint32_t rank, uint32_t *ret_peer)
{
    uint32_t available = 0;
    uint32_t peer = STI_ASSIGN_NOBODY;

    if (sti_assignment_has(there, sample, rank))
        available = sti_assignment_on_ssd(there, sample, rank) ? STI_SOURCE_BIT(STI_SOURCE_SSD)
                                                               : STI_SOURCE_BIT(STI_SOURCE_RAM);
    if (!(available & STI_SOURCE_BIT(STI_SOURCE_RAM)))
        peer = sti_assignment_peer(there, sample, rank);
    if (peer != STI_ASSIGN_NOBODY) {
        *ret_peer = peer;
        available |= sti_assignment_on_ssd(there, sample, peer)
                         ? STI_SOURCE_BIT(STI_SOURCE_PEER_SSD)
                         : STI_SOURCE_BIT(STI_SOURCE_PEER_RAM);
    }
    return sti_choose_source(&plan->seconds, available);
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

/* The use of a sample by all ranks' shared pool. */
static enum sti_source
use_shared(struct sti_sim_plan *plan, uint64_t epoch, uint32_t sample, uint32_t rank,
           uint32_t *ret_peer)
{
    struct sti_pool *pool = &plan->pools[0];
    uint32_t holder = sti_pool_holder(pool, sample);
    enum sti_source source = STI_SOURCE_ORIGIN;
    enum sti_next_use next = STI_NEXT_USE_NEVER;

    if (holder == rank)
        source = pool->on_ssd[sample] ? STI_SOURCE_SSD : STI_SOURCE_RAM;
    else if (holder != STI_POOL_NOBODY)
        source = pool->on_ssd[sample] ? STI_SOURCE_PEER_SSD : STI_SOURCE_PEER_RAM;
    *ret_peer = holder;
    if (epoch + 1 < plan->scenario->epochs) {
        bool is_known = plan->scenario->horizon_epochs != 1 &&
                        (!plan->in_next || get_bit(plan->in_next, sample));

        next = is_known ? STI_NEXT_USE_KNOWN : STI_NEXT_USE_UNKNOWN;
    }
    (void)sti_pool_settle(pool, sample, sti_place_keep(STK_POLICY_NEXT_USE, next, 0, 0),
                          plan->order_of[sample], plan->wish ? plan->wish[sample] : rank);
    return source;
}

/* The use of what a rank reads at a position by its own pool. */
static enum sti_source
use_own(struct sti_sim_plan *plan, uint32_t rank, uint64_t position)
{
    struct sti_pool *pool = &plan->pools[rank];
    uint32_t sample = plan->streams[rank][position];
    enum sti_source source = STI_SOURCE_ORIGIN;
    enum sti_next_use next = STI_NEXT_USE_UNKNOWN;
    uint32_t key = (uint32_t)position;
    stk_policy policy = STK_POLICY_LRU;

    if (sti_pool_holder(pool, sample) != STI_POOL_NOBODY)
        source = pool->on_ssd[sample] ? STI_SOURCE_SSD : STI_SOURCE_RAM;
    if (plan->next_use[rank]) {
        uint64_t per_epoch = rank_elements(plan, rank);
        uint64_t known = plan->scenario->horizon_epochs;

        policy = STK_POLICY_NEXT_USE;
        key = plan->next_use[rank][position];
        if (known && key / per_epoch >= position / per_epoch + known)
            next = STI_NEXT_USE_UNKNOWN;
        else
            next = key == UINT32_MAX ? STI_NEXT_USE_NEVER : STI_NEXT_USE_KNOWN;
    }
    (void)sti_pool_settle(pool, sample, sti_place_keep(policy, next, 0, 0), key, 0);
    return source;
}

/* Whether what the assignment says of a sample holds already. */
static bool
is_there(const struct sti_sim_plan *plan, uint64_t epoch, uint32_t sample, uint32_t rank)
{
    if (plan->is_preloaded)
        return true;
    /* Filled beside the run: done when the first epoch is, and a rank's own first reads
     * bring what it is filled with. */
    if (plan->fills_beside)
        return epoch > 0 || sti_assignment_has(&plan->assignment, sample, rank);
    return get_bit(plan->came, sample);
}

static enum sti_source
decide(struct sti_sim_plan *plan, uint64_t epoch, uint64_t at, uint32_t rank, uint32_t *ret_peer)
{
    uint32_t sample = sti_sim_plan_at(plan, epoch)->ids[at];

    switch (plan->planner) {
    case STI_SIM_PLAN_NOTHING:
        return plan->policy == STK_SIM_PERFECT ? STI_SOURCE_RAM : STI_SOURCE_ORIGIN;
    case STI_SIM_PLAN_STATIC:
        if (is_there(plan, epoch, sample, rank))
            return sti_sim_plan_source(plan, &plan->assignment, sample, rank, ret_peer);
        set_bit(plan->came, sample);
        break;
    case STI_SIM_PLAN_SHARED:
        return use_shared(plan, epoch, sample, rank, ret_peer);
    case STI_SIM_PLAN_OWN:
        return use_own(plan, rank, epoch * rank_elements(plan, rank) + at / plan->scenario->ranks);
    }
    return STI_SOURCE_ORIGIN;
}

static void
count_bound(struct sti_sim_plan *plan, uint32_t sample)
{
    bool is_new = !get_bit(plan->read_before, sample);

    set_bit(plan->read_before, sample);
    sti_bound_sample(&plan->bound, sti_sim_bytes(plan->data, sample), true, is_new);
}

void
sti_sim_plan_next(struct sti_sim_plan *plan)
{
    uint64_t epoch = plan->n_planned;
    struct sti_sim_epoch *now = sti_sim_plan_at(plan, epoch);
    uint32_t rank = 0;

    order_epoch(plan, epoch + 1);
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
