/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches that change as they are used: one of all holders together, for a data set that
 * does not fit (the least worth goes), or one of each rank alone. One thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sim/plan_internal.h"

#define FUTURE_BYTES_MAX (UINT64_C(64) << 20)

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
    plan->sample_at = sti_mem_new(2 * n, sizeof(uint32_t));
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
        plan->sample_at[at] = plan->sample_at[n + at] = all[at].sample;
        plan->order_of[all[at].sample] = at;
    }
    sti_mem_free(all);
    return 0;
}

/* The holder that reads each sample most; the lowest of equals, counted from sample %
 * holders on. */
static int
make_wishes(struct sti_sim_plan *plan, const uint8_t *counts)
{
    uint32_t n_ranks = plan->n_holders;

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

/* Whether the order of going is that of the next use. Otherwise the order of worth is as
 * good for the origin's bytes, saves more of its time, and spreads misses over the
 * epoch. */
static bool
wants_next_use(const struct sti_sim_plan *plan)
{
    double read_bytes = (double)plan->data->total_bytes * (double)plan->n_elements /
                        (double)plan->scenario->samples;

    return plan->n_elements < plan->scenario->samples && sti_sim_known_epochs(plan->scenario) > 1 &&
           sti_future_decides(plan->data->total_bytes, (uint64_t)read_bytes,
                              plan->bound.capacity_bytes);
}

static int
make_next_uses(struct sti_sim_plan *plan)
{
    uint64_t n = plan->scenario->samples;

    plan->by_next_use = true;
    return sti_future_init(
        &plan->future, n,
        sti_future_window(n, sti_sim_known_epochs(plan->scenario), FUTURE_BYTES_MAX));
}

/* Epochs come into sight, up to a window's length from one that begins. What is held
 * without a known use gets one. */
static void
look_ahead(struct sti_sim_plan *plan, uint64_t begins)
{
    struct sti_future *future = &plan->future;

    while (future->n_ordered < begins + future->n_window &&
           future->n_ordered < plan->scenario->epochs) {
        uint64_t epoch = future->n_ordered;
        uint64_t first_key = sti_future_first_key(future, epoch);
        uint32_t *ids = sti_future_ids(future, epoch);

        sti_sim_data_epoch(plan->data, epoch, ids);
        sti_future_order(future, plan->n_elements);
        for (uint64_t at = 0; begins > 0 && at < plan->n_elements; at++)
            sti_pool_know(&plan->pools[0], ids[at], (uint32_t)(first_key + at));
    }
}

void
sti_sim_pools_order(struct sti_sim_plan *plan, uint64_t epoch)
{
    uint64_t n = plan->scenario->samples;
    uint64_t begins = epoch > 0 ? epoch - 1 : 0;
    uint32_t *ids = sti_sim_plan_at(plan, epoch)->ids;

    if (plan->by_next_use) {
        look_ahead(plan, begins);
        memcpy(ids, sti_future_ids(&plan->future, epoch), n * sizeof(*ids));
        sti_pool_turn(&plan->pools[0], sti_future_first_key(&plan->future, begins));
    } else {
        sti_sim_data_epoch(plan->data, epoch, ids);
        sti_pool_turn(&plan->pools[0], begins % 2 * n);
    }
}

int
sti_sim_pools_shared(struct sti_sim_plan *plan, const uint8_t *counts)
{
    int rc = wants_next_use(plan) ? make_next_uses(plan) : make_worth(plan);

    if (!rc && counts)
        rc = make_wishes(plan, counts);
    if (!rc && !plan->by_next_use && plan->n_elements < plan->scenario->samples) {
        plan->in_next = sti_mem_new(plan->scenario->samples / 64 + 1, sizeof(uint64_t));
        rc = plan->in_next ? 0 : -ENOMEM;
    }
    if (!rc)
        rc = pools_new(plan, 1);
    if (rc)
        return rc;
    struct sti_pool_opts opts = pool_opts(plan);
    opts.n_keys = (plan->by_next_use ? plan->future.n_window : 2) * plan->scenario->samples;
    opts.sample_of_key = plan->by_next_use ? plan->future.ids : plan->sample_at;
    opts.n_ranks = plan->n_holders;
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

int
sti_sim_pools_own(struct sti_sim_plan *plan)
{
    const struct sti_scenario *scenario = plan->scenario;
    uint64_t length = sti_sim_rank_elements(plan, 0) * scenario->epochs;
    uint32_t *last = sti_mem_new(scenario->samples, sizeof(*last));
    int rc = last ? streams_new(plan, length) : -ENOMEM;

    if (!rc)
        rc = pools_new(plan, (uint32_t)scenario->ranks);
    for (uint64_t epoch = 0; !rc && epoch < scenario->epochs; epoch++) {
        uint32_t *ids = plan->epochs[0].ids;

        sti_sim_data_epoch(plan->data, epoch, ids);
        for (uint64_t at = 0; at < plan->n_elements; at++) {
            uint64_t rank = at % scenario->ranks;

            plan->streams[rank][epoch * sti_sim_rank_elements(plan, rank) + at / scenario->ranks] =
                ids[at];
        }
    }
    for (uint64_t rank = 0; !rc && rank < scenario->ranks; rank++) {
        struct sti_pool_opts opts = pool_opts(plan);
        uint64_t n = sti_sim_rank_elements(plan, rank) * scenario->epochs;

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

/* What is known of a sample's next use after an epoch, and its key. */
static enum sti_next_use
find_next(const struct sti_sim_plan *plan, uint64_t epoch, uint32_t sample, uint32_t *ret_key)
{
    if (epoch + 1 >= plan->scenario->epochs)
        return STI_NEXT_USE_NEVER;
    if (plan->by_next_use) {
        if (sti_future_next(&plan->future, epoch, sample, ret_key))
            return STI_NEXT_USE_KNOWN;
        return plan->future.n_ordered == plan->scenario->epochs ? STI_NEXT_USE_NEVER
                                                                : STI_NEXT_USE_UNKNOWN;
    }
    *ret_key = (uint32_t)((epoch + 1) % 2 * plan->scenario->samples) + plan->order_of[sample];
    return plan->scenario->horizon_epochs != 1 &&
                   (!plan->in_next || sti_sim_bit(plan->in_next, sample))
               ? STI_NEXT_USE_KNOWN
               : STI_NEXT_USE_UNKNOWN;
}

enum sti_source
sti_sim_pools_use_shared(struct sti_sim_plan *plan, uint64_t epoch, uint32_t sample, uint32_t own,
                         uint32_t *ret_peer)
{
    struct sti_pool *pool = &plan->pools[0];
    uint32_t holder = sti_pool_holder(pool, sample);
    enum sti_source source = STI_SOURCE_ORIGIN;
    uint32_t key = 0;

    if (holder == own)
        source = pool->on_ssd[sample] ? STI_SOURCE_SSD : STI_SOURCE_RAM;
    else if (holder != STI_POOL_NOBODY)
        source = pool->on_ssd[sample] ? STI_SOURCE_PEER_SSD : STI_SOURCE_PEER_RAM;
    *ret_peer = holder;
    enum sti_next_use next = find_next(plan, epoch, sample, &key);
    (void)sti_pool_settle(pool, sample, sti_place_keep(STK_POLICY_NEXT_USE, next, 0, 0), key,
                          plan->wish ? plan->wish[sample] : own);
    return source;
}

enum sti_source
sti_sim_pools_use_own(struct sti_sim_plan *plan, uint32_t rank, uint64_t position)
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
        uint64_t per_epoch = sti_sim_rank_elements(plan, rank);
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
