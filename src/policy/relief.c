/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Water is poured until what is above the level in some ranks has room below it in others:
 * a rank's height is the time that serving what it holds takes. Invariant: nobody takes more
 * than its spare room, nor so much that it becomes the busiest.
 */
#include "policy/relief.h"

#include <assert.h>

#define SEARCH_STEPS 60
#define BUSY_SHARE 0.5
#define GAIN_SHARE 0.5
#define WALL_LEAST_NS 5e8

/* What serving a byte that it holds takes a rank in an epoch, in ns: what it was measured to
 * take for a byte that it served, times how much of what is held is asked for at all. Of a rank
 * that served nothing the mean is taken. */
static double
cost_of(const struct sti_relief_rank *rank, double asked_share, double mean_cost)
{
    bool is_known = rank->served_bytes > 0 && rank->busy_ns > 0;

    return asked_share *
           (is_known ? (double)rank->busy_ns / (double)rank->served_bytes : mean_cost);
}

/* Bytes that a rank has too many at a level, negative: as many fit. */
static double
above(const struct sti_relief_rank *rank, double cost, double level_ns)
{
    double n_bytes = (double)rank->held_bytes - level_ns / cost;

    return n_bytes < -(double)rank->spare_bytes ? -(double)rank->spare_bytes : n_bytes;
}

struct sums {
    double asked_share;
    double mean_cost;
};

static struct sums
sum_up(const struct sti_relief_rank *ranks, uint32_t n_ranks)
{
    double held_bytes = 0, served_bytes = 0, costs = 0;
    uint32_t n_known = 0;

    for (uint32_t at = 0; at < n_ranks; at++) {
        held_bytes += (double)ranks[at].held_bytes;
        served_bytes += (double)ranks[at].served_bytes;
        if (ranks[at].served_bytes == 0 || ranks[at].busy_ns == 0)
            continue;
        costs += (double)ranks[at].busy_ns / (double)ranks[at].served_bytes;
        n_known++;
    }
    if (n_known == 0 || held_bytes <= 0)
        return (struct sums){0};
    return (struct sums){.asked_share = served_bytes / held_bytes, .mean_cost = costs / n_known};
}

bool
sti_relief_decide(struct sti_relief_rank *ranks, uint32_t n_ranks)
{
    struct sums sums = sum_up(ranks, n_ranks);
    double top_ns = 0, wall_ns = 0;

    for (uint32_t at = 0; at < n_ranks; at++) {
        double load_ns =
            (double)ranks[at].held_bytes * cost_of(&ranks[at], sums.asked_share, sums.mean_cost);

        ranks[at].give_bytes = 0;
        ranks[at].take_bytes = 0;
        if (load_ns > top_ns) {
            top_ns = load_ns;
            wall_ns = (double)ranks[at].wall_ns;
        }
    }
    if (top_ns <= 0 || wall_ns < WALL_LEAST_NS || top_ns < BUSY_SHARE * wall_ns)
        return false;
    double low_ns = 0, level_ns = top_ns;
    for (int step = 0; step < SEARCH_STEPS; step++) {
        double middle_ns = (low_ns + level_ns) / 2;
        double over_bytes = 0;

        for (uint32_t at = 0; at < n_ranks; at++)
            over_bytes +=
                above(&ranks[at], cost_of(&ranks[at], sums.asked_share, sums.mean_cost), middle_ns);
        if (over_bytes > 0)
            low_ns = middle_ns;
        else
            level_ns = middle_ns;
    }
    if (level_ns > GAIN_SHARE * top_ns)
        return false;
    for (uint32_t at = 0; at < n_ranks; at++) {
        double n_bytes =
            above(&ranks[at], cost_of(&ranks[at], sums.asked_share, sums.mean_cost), level_ns);

        if (n_bytes > 0)
            ranks[at].give_bytes = (uint64_t)n_bytes;
        else
            ranks[at].take_bytes = (uint64_t)-n_bytes;
    }
    return true;
}

/* The next rank round from `at` that takes so much; n_ranks without one. */
static uint32_t
find_taker(const uint64_t *take_bytes, uint32_t n_ranks, uint32_t at, uint64_t n_bytes)
{
    for (uint32_t step = 0; step < n_ranks; step++) {
        uint32_t rank = at + step < n_ranks ? at + step : at + step - n_ranks;

        if (take_bytes[rank] >= n_bytes)
            return rank;
    }
    return n_ranks;
}

void
sti_relief_assign(const struct sti_relief_input *input, uint64_t *give_bytes, uint64_t *take_bytes,
                  uint16_t *relief)
{
    uint32_t n_ranks = input->n_ranks;
    uint64_t too_large = UINT64_MAX; /* nobody takes a sample of that size */
    uint32_t taker = 0;

    assert(n_ranks > 0);
    for (uint64_t sample = 0; sample < input->n_samples; sample++) {
        uint64_t n_bytes = input->bytes ? input->bytes[sample] : input->same_bytes;
        uint16_t holder = input->first[sample];

        relief[sample] = STI_RELIEF_NOBODY;
        if (holder >= n_ranks || n_bytes == 0 || n_bytes >= too_large ||
            give_bytes[holder] < n_bytes)
            continue;
        /* Who gives takes nothing. */
        uint32_t found = find_taker(take_bytes, n_ranks, taker, n_bytes);
        if (found == n_ranks) {
            too_large = n_bytes;
            continue;
        }
        give_bytes[holder] -= n_bytes;
        take_bytes[found] -= n_bytes;
        relief[sample] = (uint16_t)found;
        taker = found + 1 == n_ranks ? 0 : found + 1;
    }
}
