/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the published policies put into the tiers before the run, or as it begins. All of
 * it is read from the file system with all ranks as its clients, by the tier's threads in
 * turns, each at a full share. The run begins when the last rank is filled (that of the
 * highest number: another habit); those that fill beside the run begin at once.
 *
 * Two policies change what is read: they draw among what is near, with replacement.
 * One thread.
 */
#include "sim/published.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

#include "base/error.h"
#include "base/mem.h"

#define RANDOM_STREAM UINT64_C(0x5eed)

/* Samples of an equal share by id. */
static uint64_t
rank_share(const struct sti_pub *pub)
{
    assert(pub->scenario->ranks > 0);
    return pub->scenario->samples / pub->scenario->ranks;
}

/* Threads that fill a tier in turns. */
struct turns {
    double *free_s;
    uint64_t n_threads;
    uint64_t at;
};

static int
turns_init(struct turns *turns, uint64_t n_threads, double begin_s)
{
    *turns = (struct turns){.n_threads = n_threads};
    turns->free_s = sti_mem_new(n_threads, sizeof(*turns->free_s));
    if (!turns->free_s)
        return -ENOMEM;
    for (uint64_t thread = 0; thread < n_threads; thread++)
        turns->free_s[thread] = begin_s;
    return 0;
}

/* Lets the next thread work. Returns when it is done; *ret_begin: when it begins. */
static double
turns_take(struct turns *turns, double seconds, double *ret_begin)
{
    double *free_s = &turns->free_s[turns->at];

    *ret_begin = *free_s;
    *free_s += seconds;
    turns->at = (turns->at + 1) % turns->n_threads;
    return *free_s;
}

/* When all are done. Ends the turns. */
static double
turns_fini(struct turns *turns)
{
    double last_s = 0;

    for (uint64_t thread = 0; turns->free_s && thread < turns->n_threads; thread++)
        last_s = fmax(last_s, turns->free_s[thread]);
    sti_mem_free(turns->free_s);
    return last_s;
}

static bool
fits(const struct sti_pub *pub, const struct sti_pub_node *node, uint32_t sample, uint32_t tier)
{
    return node->filled_mb[tier] + sti_pub_mb(pub, sample) <=
           pub->scenario->tiers[tier].capacity_mb.value[0];
}

static void
hold(const struct sti_pub *pub, struct sti_pub_node *node, uint32_t sample, uint32_t tier)
{
    if (!node->tier[sample])
        node->filled_mb[tier] += sti_pub_mb(pub, sample);
    node->tier[sample] = (uint8_t)tier;
}

/* Reads samples first, first + 1, ... below end into a tier, as far as they fit.
 * *ret_end: behind the last that did. */
static int
fill_range(struct sti_pub *pub, struct sti_pub_node *node, uint32_t tier, const uint64_t range[2],
           uint64_t *ret_end)
{
    struct turns turns;
    uint64_t at = range[0];
    double begin_s;

    if (turns_init(&turns, pub->scenario->tiers[tier].threads, 0))
        return -ENOMEM;
    for (; at < range[1] && fits(pub, node, (uint32_t)at, tier); at++) {
        uint32_t sample = (uint32_t)at;
        double end_s = turns_take(
            &turns, sti_pub_origin_s(pub, sti_pub_mb(pub, sample), (double)pub->scenario->ranks),
            &begin_s);

        hold(pub, node, sample, tier);
        sti_pub_note_prefetch(pub, node, sample, end_s);
    }
    pub->fill_s = turns_fini(&turns);
    *ret_end = at;
    return 0;
}

/* A share of the data set by id for each rank, as far as it fits. ends: of each rank. */
static int
fill_shares(struct sti_pub *pub, uint32_t tier, uint64_t *ends)
{
    uint64_t n_ranks = pub->scenario->ranks;
    uint64_t share = rank_share(pub);

    for (uint64_t rank = 0; rank < n_ranks; rank++) {
        uint64_t range[2] = {rank * share, (rank + 1) * share};
        int rc = fill_range(pub, &pub->nodes[rank], tier, range, &ends[rank]);

        if (rc)
            return rc;
    }
    return 0;
}

/* A number below n, or 0. */
static uint64_t
draw(const struct sti_pub *pub, uint64_t *counter, uint64_t n)
{
    uint64_t number = sti_sim_random(pub->scenario->seed ^ RANDOM_STREAM, (*counter)++);

    return n > 0 ? number % n : 0;
}

/* Replaces what a position reads by a sample that a rank holds: begin .. end - 1, of which
 * the published simulator never draws the last. Of one that holds nothing none is drawn. */
static void
redraw(const struct sti_pub *pub, uint64_t *counter, uint64_t begin, uint64_t end, uint32_t *id)
{
    if (begin < end)
        *id = (uint32_t)(begin + draw(pub, counter, end - begin - 1));
}

/* DeepIO, opportunistic: what is read is drawn from the rank's own samples, or from those
 * of the rank before it. */
static void
draw_near(struct sti_pub *pub, const uint64_t *begins, const uint64_t *ends)
{
    uint64_t counter = 0;
    uint64_t n_others = pub->scenario->ranks > 1 ? pub->scenario->ranks - 1 : 1;

    for (uint64_t rank = 0; rank < pub->scenario->ranks; rank++) {
        struct sti_pub_node *node = &pub->nodes[rank];

        for (uint64_t at = 0; at < node->length; at++) {
            bool is_own = rank == 0 || draw(pub, &counter, n_others) == 0;
            uint64_t from = is_own ? rank : rank - 1;

            redraw(pub, &counter, begins[from], ends[from], &node->ids[at]);
        }
    }
}

/* DeepIO: RAM is filled one rank after the other, in ids' order; equal shares if all
 * fits. */
static int
fill_deepio(struct sti_pub *pub, bool is_opportunistic, uint64_t *begins, uint64_t *ends)
{
    uint64_t n_ranks = pub->scenario->ranks;
    uint64_t share = rank_share(pub);
    double per_rank_mb = (double)pub->data->total_bytes / STI_SIM_BYTES_PER_MB / (double)n_ranks;
    bool all_fits = per_rank_mb <= pub->scenario->tiers[STI_SIM_RAM_TIER].capacity_mb.value[0];

    for (uint64_t rank = 0; rank < n_ranks; rank++) {
        uint64_t range[2] = {rank ? ends[rank - 1] : 0, pub->scenario->samples};

        if (all_fits && rank + 1 < n_ranks)
            range[1] = (rank + 1) * share;
        begins[rank] = range[0];
        int rc = fill_range(pub, &pub->nodes[rank], STI_SIM_RAM_TIER, range, &ends[rank]);
        if (rc)
            return rc;
    }
    if (is_opportunistic)
        draw_near(pub, begins, ends);
    return 0;
}

static int
check_lbann(const struct sti_pub *pub, stk_error *err)
{
    double total_mb = (double)pub->data->total_bytes / STI_SIM_BYTES_PER_MB;
    double ram_mb =
        pub->scenario->tiers[STI_SIM_RAM_TIER].capacity_mb.value[0] * (double)pub->scenario->ranks;

    if (total_mb <= ram_mb)
        return 0;
    return sti_error_set(err, STK_E_INFEASIBLE,
                         "does not fit: the data set has %.0f MB, the RAM of all ranks %.0f MB",
                         total_mb, ram_mb);
}

static int
need_since(struct sti_pub *pub, struct sti_pub_node *node)
{
    node->since = sti_mem_new(pub->scenario->samples, sizeof(*node->since));
    return node->since ? 0 : -ENOMEM;
}

/* LBANN, dynamic: what a rank reads first stays in its RAM. */
static int
fill_lbann_dynamic(struct sti_pub *pub)
{
    uint64_t share = rank_share(pub);

    for (uint64_t rank = 0; rank < pub->scenario->ranks; rank++) {
        struct sti_pub_node *node = &pub->nodes[rank];
        struct turns turns;
        double begin_s;

        if (need_since(pub, node) ||
            turns_init(&turns, pub->scenario->tiers[STI_SIM_RAM_TIER].threads, 0))
            return -ENOMEM;
        for (uint64_t at = 0; at < share && at < node->length; at++) {
            uint32_t sample = node->ids[at];
            double read_s =
                sti_pub_origin_s(pub, sti_pub_mb(pub, sample), (double)pub->scenario->ranks);
            double end_s = turns_take(&turns, read_s, &begin_s);

            if (!node->tier[sample])
                node->since[sample] = end_s;
            hold(pub, node, sample, STI_SIM_RAM_TIER);
            sti_pub_note_prefetch(pub, node, sample, end_s);
        }
        (void)turns_fini(&turns);
    }
    return 0;
}

/* Parallel staging: behind a rank's own samples its SSD takes those of lower ids from the
 * other ranks; only own samples are read, drawn at random. */
static int
fill_parallel(struct sti_pub *pub, const uint64_t *ends)
{
    uint64_t share = rank_share(pub);
    double own_s = pub->fill_s;
    uint64_t counter = 0;

    for (uint64_t rank = 0; rank < pub->scenario->ranks; rank++) {
        struct sti_pub_node *node = &pub->nodes[rank];
        struct turns turns;
        double begin_s;

        if (turns_init(&turns, pub->scenario->tiers[STI_SIM_SSD_TIER].threads, own_s))
            return -ENOMEM;
        for (uint32_t sample = 0; sample < rank * share; sample++) {
            if (!fits(pub, node, sample, STI_SIM_SSD_TIER))
                break;
            hold(pub, node, sample, STI_SIM_SSD_TIER);
            (void)turns_take(&turns, sti_pub_peer_s(pub, sti_pub_mb(pub, sample), STI_SIM_SSD_TIER),
                             &begin_s);
        }
        pub->fill_s = turns_fini(&turns);
        for (uint64_t at = 0; at < node->length; at++)
            redraw(pub, &counter, rank * share, ends[rank], &node->ids[at]);
    }
    return 0;
}

static int
fill_lists(struct sti_pub *pub, stk_sim_policy policy, uint64_t *begins, uint64_t *ends)
{
    int rc;

    if (policy == STK_SIM_DEEPIO_ORDERED || policy == STK_SIM_DEEPIO_OPPORTUNISTIC)
        return fill_deepio(pub, policy == STK_SIM_DEEPIO_OPPORTUNISTIC, begins, ends);
    if (policy == STK_SIM_LBANN_PRELOADING)
        return fill_shares(pub, STI_SIM_RAM_TIER, ends);
    /* Locality-aware deals a batch out so that samples are where they lie; the published
     * simulator's swap changes nothing, because it takes every sample for a local one. */
    rc = fill_shares(pub, STI_SIM_SSD_TIER, ends);
    if (!rc && policy == STK_SIM_PARALLEL_STAGING)
        rc = fill_parallel(pub, ends);
    return rc;
}

static int
fill_shared(struct sti_pub *pub, stk_sim_policy policy)
{
    uint64_t *begins = sti_mem_new(pub->scenario->ranks, 2 * sizeof(*begins));

    if (!begins)
        return -ENOMEM;
    int rc = fill_lists(pub, policy, begins, begins + pub->scenario->ranks);
    sti_mem_free(begins);
    return rc;
}

int
sti_pub_fill(struct sti_pub *pub, stk_sim_policy policy, stk_error *err)
{
    int rc = 0;

    if (policy == STK_SIM_NAIVE)
        return 0;
    pub->stages = true;
    pub->uses_origin =
        policy == STK_SIM_STAGING || policy == STK_SIM_LOCALITY_AWARE || policy == STK_SIM_PAPER;
    if (policy == STK_SIM_STAGING)
        return 0;
    pub->uses_peers = policy != STK_SIM_PARALLEL_STAGING && policy != STK_SIM_PAPER;
    if (policy == STK_SIM_LBANN_DYNAMIC || policy == STK_SIM_LBANN_PRELOADING)
        rc = check_lbann(pub, err);
    for (uint64_t rank = 0; !rc && rank < pub->scenario->ranks; rank++) {
        pub->nodes[rank].tier = sti_mem_new(pub->scenario->samples, 1);
        rc = pub->nodes[rank].tier ? 0 : -ENOMEM;
    }
    if (rc)
        return rc;
    if (policy == STK_SIM_PAPER)
        return sti_pub_fill_paper(pub);
    return policy == STK_SIM_LBANN_DYNAMIC ? fill_lbann_dynamic(pub) : fill_shared(pub, policy);
}
