/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the published policy fills the tiers: each rank's samples by how often it reads
 * them; that list is cut into pieces of the capacity of staging, RAM and SSD, each sorted
 * by first use; RAM takes from the list's head as much as fits, SSD goes on behind. So
 * the pieces and the tiers are shifted against each other by the size of staging, which
 * is one of the habits. Filling goes on beside the run from its beginning. One thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "sim/published.h"

/* A rank's samples with what they are sorted by. */
struct ranked {
    uint64_t n;
    uint64_t *keys;   /* sort key in the upper half, sample in the lower */
    uint32_t *counts; /* uses by the rank */
    uint32_t *first;  /* position of the first one; UINT32_MAX: none */
};

static int
compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

static void
sort_by_count(struct ranked *ranked, const struct sti_pub_node *node)
{
    for (uint64_t sample = 0; sample < ranked->n; sample++) {
        ranked->counts[sample] = 0;
        ranked->first[sample] = UINT32_MAX;
    }
    for (uint64_t at = 0; at < node->length; at++) {
        uint32_t sample = node->ids[at];

        if (ranked->counts[sample]++ == 0)
            ranked->first[sample] = (uint32_t)at;
    }
    for (uint64_t sample = 0; sample < ranked->n; sample++)
        ranked->keys[sample] = (uint64_t)(UINT32_MAX - ranked->counts[sample]) << 32 | sample;
    qsort(ranked->keys, ranked->n, sizeof(*ranked->keys), compare);
}

/* Cuts the list and sorts the pieces by first use; those never used keep their order,
 * behind. */
static void
sort_pieces(const struct sti_pub *pub, struct ranked *ranked)
{
    uint64_t begin = 0;

    for (uint32_t tier = 0; tier < STI_SIM_TIERS; tier++) {
        uint64_t end = begin;
        double sum_mb = 0;

        while (sum_mb <= pub->scenario->tiers[tier].capacity_mb.value[0] && end < ranked->n)
            sum_mb += sti_pub_mb(pub, (uint32_t)ranked->keys[end++]);
        for (uint64_t at = begin; at < end; at++) {
            uint32_t sample = (uint32_t)ranked->keys[at];

            ranked->keys[at] = (uint64_t)ranked->first[sample] << 32 | sample;
        }
        qsort(ranked->keys + begin, end - begin, sizeof(*ranked->keys), compare);
        begin = end;
    }
}

/* Fills a tier from the list's at-th sample on. Returns how far that came: the list's
 * last sample is never taken. */
static uint64_t
fill_tier(struct sti_pub *pub, struct sti_pub_node *node, const struct ranked *ranked, uint64_t at,
          uint32_t tier, double *free_s)
{
    const struct sti_sim_tier *spec = &pub->scenario->tiers[tier];
    uint64_t thread = 0;

    for (; at + 1 < ranked->n; at++) {
        uint32_t sample = (uint32_t)ranked->keys[at];
        double mb = sti_pub_mb(pub, sample);

        if (node->filled_mb[tier] + mb > spec->capacity_mb.value[0])
            break;
        sti_pub_note_prefetch(pub, node, sample, free_s[thread]);
        free_s[thread] += sti_pub_origin_s(pub, mb, (double)pub->scenario->ranks);
        node->tier[sample] = (uint8_t)tier;
        node->since[sample] = free_s[thread];
        node->filled_mb[tier] += mb;
        thread = (thread + 1) % spec->threads;
    }
    return at;
}

static int
fill_node(struct sti_pub *pub, struct sti_pub_node *node, struct ranked *ranked)
{
    const struct sti_sim_tier *tiers = pub->scenario->tiers;
    uint64_t n_threads = tiers[STI_SIM_RAM_TIER].threads + tiers[STI_SIM_SSD_TIER].threads;
    double *free_s = sti_mem_new(n_threads, sizeof(*free_s));
    uint64_t at = 0;
    uint64_t before;

    node->since = sti_mem_new(pub->scenario->samples, sizeof(*node->since));
    if (!node->since || !free_s) {
        sti_mem_free(free_s);
        return -ENOMEM;
    }
    sort_by_count(ranked, node);
    sort_pieces(pub, ranked);
    do { /* what does not fit into one tier may fit into the rest of the other */
        before = at;
        at = fill_tier(pub, node, ranked, at, STI_SIM_RAM_TIER, free_s);
        at = fill_tier(pub, node, ranked, at, STI_SIM_SSD_TIER,
                       free_s + tiers[STI_SIM_RAM_TIER].threads);
    } while (at > before);
    sti_mem_free(free_s);
    return 0;
}

int
sti_pub_fill_paper(struct sti_pub *pub)
{
    uint64_t n = pub->scenario->samples;
    struct ranked ranked = {
        .n = n,
        .keys = sti_mem_new(n, sizeof(uint64_t)),
        .counts = sti_mem_new(n, sizeof(uint32_t)),
        .first = sti_mem_new(n, sizeof(uint32_t)),
    };
    int rc = ranked.keys && ranked.counts && ranked.first ? 0 : -ENOMEM;

    for (uint64_t rank = 0; !rc && rank < pub->scenario->ranks; rank++)
        rc = fill_node(pub, &pub->nodes[rank], &ranked);
    sti_mem_free(ranked.keys);
    sti_mem_free(ranked.counts);
    sti_mem_free(ranked.first);
    return rc;
}
