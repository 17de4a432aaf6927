/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The published simulator's machine, with its habits, so that its tables can be
 * reproduced and what they owe to the habits can be told. In short: ranks are simulated
 * one after the other within a step, a barrier ends the step; every thread gets the file
 * system's rate divided by the number of ranks that seem to use it, as if it were alone
 * on its rank; tiers serve each read at their aggregate rate; staging forgets to charge a
 * sample's room from its second use on; and what is asked for comes from staging or is
 * fetched now, whichever ends first.
 *
 * Invariant: a position of a node is staged at most once, in order, and its memory is
 * given back when a later step is asked for. One thread.
 */
#include "sim/published.h"

#include <errno.h>
#include <math.h>

#include "base/error.h"
#include "base/mem.h"

/* How far around now another rank's reads of the file system count as "at the same
 * time". */
#define SAME_TIME_S 0.1
#define FIRST_TIMES 1024

static double
write_s(const struct sti_pub *pub, double mb)
{
    const struct sti_sim_tier *staging = &pub->scenario->tiers[STI_SIM_STAGING_TIER];
    double thread_mb_s = staging->mb_s.value[0] / (double)staging->threads;

    return fmax(mb / pub->scenario->decode_mb_s.value[0], mb / thread_mb_s);
}

static double
origin_fetch_s(const struct sti_pub *pub, double mb, double clients)
{
    double share = sti_curve_at(&pub->scenario->origin, clients) / clients;

    return mb / fmin(pub->scenario->origin_link_mb_s.value[0], share);
}

static double
own_fetch_s(const struct sti_pub *pub, double mb, uint32_t tier)
{
    return mb / pub->scenario->tiers[tier].mb_s.value[0];
}

static double
peer_fetch_s(const struct sti_pub *pub, double mb, uint32_t tier)
{
    return mb / fmin(pub->scenario->net_mb_s.value[0], pub->scenario->tiers[tier].mb_s.value[0]);
}

double
sti_pub_origin_s(const struct sti_pub *pub, double mb, double clients)
{
    return origin_fetch_s(pub, mb, clients) + write_s(pub, mb);
}

double
sti_pub_own_s(const struct sti_pub *pub, double mb, uint32_t tier)
{
    return own_fetch_s(pub, mb, tier) + write_s(pub, mb);
}

double
sti_pub_peer_s(const struct sti_pub *pub, double mb, uint32_t tier)
{
    return peer_fetch_s(pub, mb, tier) + write_s(pub, mb);
}

void
sti_pub_times_add(struct sti_pub *pub, struct sti_pub_times *times, double at)
{
    if (times->n == times->n_max) {
        uint64_t n_max = times->n_max ? 2 * times->n_max : FIRST_TIMES;
        double *grown = sti_mem_resize(times->at, n_max, sizeof(*grown));

        if (!grown) {
            pub->no_memory = true;
            return;
        }
        times->at = grown;
        times->n_max = n_max;
    }
    times->at[times->n++] = at;
}

static void
count_origin(struct sti_pub *pub, uint32_t sample)
{
    pub->result.origin_bytes += sti_sim_bytes(pub->data, sample);
}

void
sti_pub_note_prefetch(struct sti_pub *pub, struct sti_pub_node *node, uint32_t sample, double at)
{
    sti_pub_times_add(pub, &node->prefetches, at);
    count_origin(pub, sample);
}

/*
 * Whether a list has a read at a time or later, as a binary search over it finds,
 * provided that its last entry is not long past. Threads take turns, so the list is not
 * quite sorted: the search then goes down the right side until an entry is late enough.
 */
static bool
seems_busy(const struct sti_pub_times *times, double now)
{
    uint64_t low = 0;

    if (times->n == 0 || times->at[times->n - 1] <= now - SAME_TIME_S)
        return false;
    if (times->at[times->n - 1] >= now)
        return true;
    while (low < times->n) {
        uint64_t middle = (low + times->n) / 2;

        if (times->at[middle] >= now)
            return true;
        low = middle + 1;
    }
    return false;
}

/* How many ranks seem to use the file system. */
static double
count_clients(const struct sti_pub *pub, uint64_t rank, double now)
{
    uint32_t n_clients = 1;

    for (uint64_t other = 0; other < pub->scenario->ranks; other++) {
        const struct sti_pub_node *node = &pub->nodes[other];

        if (other != rank && (seems_busy(&node->reads, now) || seems_busy(&node->prefetches, now)))
            n_clients++;
    }
    return n_clients;
}

static double
held_since(const struct sti_pub_node *node, uint32_t sample)
{
    return node->since ? node->since[sample] : 0;
}

/* Where another rank holds a sample, by a time: the last rank that does is taken,
 * whatever its tier's speed. Returns the tier, or 0. */
static uint32_t
find_peer(const struct sti_pub *pub, uint64_t rank, uint32_t sample, double by, double *ret_since)
{
    for (uint64_t other = pub->scenario->ranks; other-- > 0;) {
        const struct sti_pub_node *node = &pub->nodes[other];

        if (other == rank || !node->tier || !node->tier[sample] || held_since(node, sample) > by)
            continue;
        *ret_since = held_since(node, sample);
        return node->tier[sample];
    }
    return 0;
}

/* Makes room in the ring. */
static void
grow_ring(struct sti_pub *pub, struct sti_pub_node *node)
{
    uint64_t n_max = node->n_staged_max ? 2 * node->n_staged_max : FIRST_TIMES;
    struct sti_pub_staged *grown = sti_mem_new(n_max, sizeof(*grown));

    if (!grown) {
        pub->no_memory = true;
        return;
    }
    for (uint64_t at = node->cleanup; at < node->prefetch; at++)
        grown[at & (n_max - 1)] = node->staged[at & (node->n_staged_max - 1)];
    sti_mem_free(node->staged);
    node->staged = grown;
    node->n_staged_max = n_max;
}

/* Room is charged only the first time that a sample comes. */
static void
charge_staging(struct sti_pub_node *node, uint32_t sample, double mb)
{
    uint64_t bit = UINT64_C(1) << sample % 64;

    if (node->seen[sample / 64] & bit)
        return;
    node->seen[sample / 64] |= bit;
    node->used_mb += mb;
}

/* How staging would get a sample: writes when it is there. Returns STI_PUB_SKIPPED if
 * not. */
static uint8_t
choose_prefetch(struct sti_pub *pub, uint64_t rank, uint32_t sample, double now, double *ret_until)
{
    const struct sti_pub_node *node = &pub->nodes[rank];
    double mb = sti_pub_mb(pub, sample);
    uint32_t tier = node->tier ? node->tier[sample] : 0;
    double since = tier ? held_since(node, sample) : HUGE_VAL;
    double read_s = tier ? sti_pub_own_s(pub, mb, tier) : HUGE_VAL;
    uint8_t source = tier == STI_SIM_RAM_TIER ? STK_SIM_FROM_RAM : STK_SIM_FROM_SSD;

    if (pub->uses_peers) {
        double peer_since = HUGE_VAL;
        uint32_t peer_tier = find_peer(pub, rank, sample, HUGE_VAL, &peer_since);
        double peer_s = peer_tier ? sti_pub_peer_s(pub, mb, peer_tier) : HUGE_VAL;

        if (peer_s < read_s) {
            read_s = peer_s;
            since = peer_since;
            source = STK_SIM_FROM_PEER;
        }
    }
    if (pub->uses_origin) {
        double origin_s = sti_pub_origin_s(pub, mb, count_clients(pub, rank, now));

        if (origin_s < read_s || since > now) {
            *ret_until = now + origin_s;
            return STK_SIM_FROM_ORIGIN;
        }
    }
    if (isinf(read_s))
        return STI_PUB_SKIPPED;
    *ret_until = fmax(since, now) + read_s;
    return source;
}

static void
prefetch_one(struct sti_pub *pub, uint64_t rank)
{
    struct sti_pub_node *node = &pub->nodes[rank];
    uint32_t sample = node->ids[node->prefetch];
    double now = node->thread_s[pub->thread_idx];
    double until = 0;

    if (node->prefetch - node->cleanup == node->n_staged_max)
        grow_ring(pub, node);
    if (pub->no_memory)
        return;
    struct sti_pub_staged *staged = &node->staged[node->prefetch & (node->n_staged_max - 1)];
    staged->source = choose_prefetch(pub, rank, sample, now, &until);
    staged->since = until;
    node->prefetch++;
    if (staged->source != STI_PUB_SKIPPED) {
        node->thread_s[pub->thread_idx] = until;
        charge_staging(node, sample, sti_pub_mb(pub, sample));
        if (staged->source == STK_SIM_FROM_ORIGIN)
            sti_pub_note_prefetch(pub, node, sample, now);
    }
    if (++pub->thread_idx == pub->scenario->tiers[STI_SIM_STAGING_TIER].threads)
        pub->thread_idx = 0;
}

static void
fill_staging(struct sti_pub *pub, uint64_t rank, double now)
{
    const struct sti_sim_tier *staging = &pub->scenario->tiers[STI_SIM_STAGING_TIER];
    struct sti_pub_node *node = &pub->nodes[rank];

    if (!pub->stages || node->prefetch == node->length)
        return;
    for (uint64_t thread = 0; thread < staging->threads; thread++)
        node->thread_s[thread] = fmax(now, node->thread_s[thread]);
    while (!pub->no_memory && node->prefetch < node->length &&
           node->used_mb + sti_pub_mb(pub, node->ids[node->prefetch]) <=
               staging->capacity_mb.value[0])
        prefetch_one(pub, rank);
}

/* Gives back the room of what steps before a position used. */
static void
clean_staging(struct sti_pub *pub, struct sti_pub_node *node, uint64_t step_begin)
{
    if (!pub->stages)
        return;
    for (; node->cleanup < step_begin; node->cleanup++) {
        if (node->cleanup >= node->prefetch) {
            /* Staging was overtaken: it goes on behind what was read. */
            node->cleanup = step_begin;
            node->prefetch = node->prefetch < step_begin ? step_begin : node->prefetch;
            return;
        }
        if (node->staged[node->cleanup & (node->n_staged_max - 1)].source != STI_PUB_SKIPPED)
            node->used_mb -= sti_pub_mb(pub, node->ids[node->cleanup]);
    }
}

/* The quickest way to a sample that is asked for now. */
static uint8_t
choose_now(const struct sti_pub *pub, uint64_t rank, uint32_t sample, double now, double *ret_s)
{
    const struct sti_pub_node *node = &pub->nodes[rank];
    double mb = sti_pub_mb(pub, sample);
    double best_s = origin_fetch_s(pub, mb, count_clients(pub, rank, now));
    uint8_t source = STK_SIM_FROM_ORIGIN;
    uint32_t tier = node->tier ? node->tier[sample] : 0;
    double since;

    if (tier && held_since(node, sample) <= now && own_fetch_s(pub, mb, tier) < best_s) {
        best_s = own_fetch_s(pub, mb, tier);
        source = tier == STI_SIM_RAM_TIER ? STK_SIM_FROM_RAM : STK_SIM_FROM_SSD;
    }
    tier = find_peer(pub, rank, sample, now, &since);
    if (tier && peer_fetch_s(pub, mb, tier) < best_s) {
        best_s = peer_fetch_s(pub, mb, tier);
        source = STK_SIM_FROM_PEER;
    }
    *ret_s = best_s + write_s(pub, mb);
    return source;
}

static void
count_source(struct sti_pub *pub, uint32_t sample, uint8_t source)
{
    pub->result.source_samples[source]++;
    pub->result.source_bytes[source] += sti_sim_bytes(pub->data, sample);
}

/* A rank asks for a position at a time. Returns when it has it. */
static double
request(struct sti_pub *pub, uint64_t rank, uint64_t position, double now)
{
    struct sti_pub_node *node = &pub->nodes[rank];
    uint32_t sample = node->ids[position];
    const struct sti_pub_staged *staged = NULL;
    double fetch_s;

    if (pub->stages && position < node->prefetch)
        staged = &node->staged[position & (node->n_staged_max - 1)];
    if (staged && staged->source == STI_PUB_SKIPPED)
        staged = NULL;
    double staged_at = staged ? fmax(staged->since, now) : HUGE_VAL;
    uint8_t source = choose_now(pub, rank, sample, now, &fetch_s);
    if (now + fetch_s < staged_at) {
        if (source == STK_SIM_FROM_ORIGIN) {
            sti_pub_times_add(pub, &node->reads, now);
            count_origin(pub, sample);
        }
        count_source(pub, sample, source);
        return now + fetch_s;
    }
    source = staged ? staged->source : source;
    /* What staging took from the file system counts as a read of it again when it is
     * used. */
    if (source == STK_SIM_FROM_ORIGIN)
        sti_pub_times_add(pub, &node->reads, staged_at);
    count_source(pub, sample, source);
    return staged_at;
}

/* Samples of a rank in a step: its piece of the global batch. */
static uint64_t
cut_batch(const struct sti_pub *pub, uint64_t step, uint64_t rank)
{
    uint64_t first = sti_sim_element_cut(pub->data, step, rank, 0);
    uint64_t left = first < pub->scenario->samples ? pub->scenario->samples - first : 0;

    return left < pub->scenario->batch ? left : pub->scenario->batch;
}

/* One rank's part of a step that begins at now. Returns when it ends. */
static double
run_batch(struct sti_pub *pub, uint64_t rank, uint64_t position, uint64_t count, double now)
{
    struct sti_pub_node *node = &pub->nodes[rank];

    for (uint64_t item = 0; item < count; item++) {
        double there = request(pub, rank, position + item, now);

        pub->result.stall_seconds += (there - now) / (double)pub->scenario->ranks;
        clean_staging(pub, node, position);
        fill_staging(pub, rank, there);
        now = there +
              sti_pub_mb(pub, node->ids[position + item]) / pub->scenario->compute_mb_s.value[0];
    }
    return now;
}

static void
run_steps(struct sti_pub *pub)
{
    uint64_t n_steps = pub->data->steps * pub->scenario->epochs;
    double now = pub->fill_s;

    for (uint64_t step = 0; step < n_steps && !pub->no_memory; step++) {
        double end = now;

        for (uint64_t rank = 0; rank < pub->scenario->ranks; rank++) {
            struct sti_pub_node *node = &pub->nodes[rank];
            uint64_t count = cut_batch(pub, step % pub->data->steps, rank);

            end = fmax(end, run_batch(pub, rank, node->next, count, now));
            node->next += count;
        }
        now = end;
    }
    pub->result.seconds = now;
    pub->result.setup_seconds = pub->fill_s;
}

/* Appends a rank's part of a step to its stream. read_before: a bit per sample. Returns
 * its size. */
static double
add_batch(struct sti_pub *pub, uint64_t step, uint64_t rank, const uint32_t *ids,
          uint64_t *read_before)
{
    struct sti_pub_node *node = &pub->nodes[rank];
    uint64_t first = sti_sim_element_cut(pub->data, step, rank, 0);
    uint64_t count = cut_batch(pub, step, rank);
    double sum_mb = 0;

    for (uint64_t item = 0; item < count; item++) {
        uint32_t sample = ids[first + item];
        uint64_t bit = UINT64_C(1) << sample % 64;

        node->ids[node->length++] = sample;
        sum_mb += sti_pub_mb(pub, sample);
        sti_bound_sample(&pub->bound, sti_sim_bytes(pub->data, sample), true,
                         !(read_before[sample / 64] & bit));
        read_before[sample / 64] |= bit;
    }
    return sum_mb;
}

/* What all ranks can hold, as configured: staging that grows by a habit does not count. */
static uint64_t
capacity_bytes(const struct sti_scenario *scenario)
{
    double mb = 0;

    for (uint32_t tier = STI_SIM_STAGING_TIER; tier <= STI_SIM_SSD_TIER; tier++)
        mb += scenario->tiers[tier].capacity_mb.value[0];
    return (uint64_t)fmin(mb * STI_SIM_BYTES_PER_MB * (double)scenario->ranks, 1e18);
}

/* Writes what every rank reads, the least that the origin gives, and the time of the run
 * if nothing had to be waited for. */
static int
make_streams(struct sti_pub *pub)
{
    const struct sti_scenario *scenario = pub->scenario;
    uint32_t *ids = sti_mem_new(scenario->samples, sizeof(*ids));
    uint64_t *read_before = sti_mem_new(scenario->samples / 64 + 1, sizeof(*read_before));
    int rc = ids && read_before ? 0 : -ENOMEM;

    sti_bound_init(&pub->bound, capacity_bytes(scenario));
    for (uint64_t epoch = 0; !rc && epoch < scenario->epochs; epoch++) {
        sti_sim_data_epoch(pub->data, epoch, ids);
        sti_bound_epoch(&pub->bound);
        for (uint64_t step = 0; step < pub->data->steps; step++) {
            double longest_mb = 0;

            for (uint64_t rank = 0; rank < scenario->ranks; rank++)
                longest_mb = fmax(longest_mb, add_batch(pub, step, rank, ids, read_before));
            pub->result.bound_seconds += longest_mb / scenario->compute_mb_s.value[0];
        }
    }
    sti_mem_free(ids);
    sti_mem_free(read_before);
    pub->result.bound_bytes = sti_bound_bytes(&pub->bound);
    pub->result.distinct_bytes = pub->bound.distinct_bytes;
    return rc;
}

static void
nodes_free(struct sti_pub *pub)
{
    for (uint64_t rank = 0; pub->nodes && rank < pub->scenario->ranks; rank++) {
        struct sti_pub_node *node = &pub->nodes[rank];

        sti_mem_free(node->ids);
        sti_mem_free(node->staged);
        sti_mem_free(node->seen);
        sti_mem_free(node->thread_s);
        sti_mem_free(node->tier);
        sti_mem_free(node->since);
        sti_mem_free(node->reads.at);
        sti_mem_free(node->prefetches.at);
    }
    sti_mem_free(pub->nodes);
}

static int
nodes_new(struct sti_pub *pub)
{
    const struct sti_scenario *scenario = pub->scenario;
    uint64_t length = pub->data->steps * scenario->batch * scenario->epochs;

    pub->nodes = sti_mem_new(scenario->ranks, sizeof(*pub->nodes));
    if (!pub->nodes)
        return -ENOMEM;
    for (uint64_t rank = 0; rank < scenario->ranks; rank++) {
        struct sti_pub_node *node = &pub->nodes[rank];

        node->ids = sti_mem_new(length, sizeof(*node->ids));
        node->seen = sti_mem_new(scenario->samples / 64 + 1, sizeof(*node->seen));
        node->thread_s =
            sti_mem_new(scenario->tiers[STI_SIM_STAGING_TIER].threads, sizeof(*node->thread_s));
        if (!node->ids || !node->seen || !node->thread_s)
            return -ENOMEM;
    }
    return make_streams(pub);
}

static int
run_policy(struct sti_pub *pub, stk_sim_policy policy, stk_error *err)
{
    int rc = nodes_new(pub);

    if (!rc && policy == STK_SIM_PERFECT) {
        pub->result.seconds = pub->result.bound_seconds;
        return 0;
    }
    if (!rc)
        rc = sti_pub_fill(pub, policy, err);
    for (uint64_t rank = 0; !rc && rank < pub->scenario->ranks; rank++)
        fill_staging(pub, rank, 0);
    if (!rc)
        run_steps(pub);
    return pub->no_memory ? -ENOMEM : rc;
}

int
sti_published_run(struct sti_sim_data *data, stk_sim_policy policy, stk_sim_result *ret_result,
                  stk_error *err)
{
    struct sti_pub pub = {.scenario = data->scenario, .data = data};
    int rc = run_policy(&pub, policy, err);

    nodes_free(&pub);
    if (rc == -ENOMEM)
        return sti_error_set(err, rc, "no memory for a simulation of this size");
    if (!rc)
        *ret_result = pub.result;
    return rc;
}
