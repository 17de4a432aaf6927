/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws. One keyed permutation shuffles an epoch's draws; another for each pass through a
 * part says which of its samples the k-th draw since the beginning of the run is.
 * Invariant: of any `size` draws in a row from a part of that size, beginning at a
 * multiple of it, each sample is one. Values only; any thread.
 */
#include "order/draws.h"

#include "order/keyed.h"
#include "order/mix.h"
#include "order/mt19937.h"

/* Weights as whole numbers, so that every machine divides alike. */
#define WEIGHT_ONE ((double)(UINT64_C(1) << 40))

static uint64_t
scale(double weight, double largest)
{
    return (uint64_t)(weight / largest * WEIGHT_ONE);
}

uint32_t
sti_draws_divide(uint64_t *first_draw, const double *weights, uint32_t n_parts, uint64_t samples)
{
    double largest = 0;
    sti_u128 sum = 0;
    uint64_t given = 0;

    for (uint32_t p = 0; p < n_parts; p++) {
        if (!(weights[p] > 0) || weights[p] > 1e300)
            return p;
        largest = weights[p] > largest ? weights[p] : largest;
    }
    for (uint32_t p = 0; p < n_parts; p++)
        sum += scale(weights[p], largest);
    for (uint32_t p = 0; p < n_parts; p++) {
        first_draw[p + 1] = (uint64_t)((sti_u128)samples * scale(weights[p], largest) / sum);
        given += first_draw[p + 1];
    }
    /* Fewer than n_parts are left: each goes to the largest remainder that has none yet,
     * marked by its share having become larger than the exact one. */
    for (; given < samples; given++) {
        uint32_t best = 0;
        sti_u128 best_rest = 0;

        for (uint32_t p = 0; p < n_parts; p++) {
            sti_u128 exact = (sti_u128)samples * scale(weights[p], largest);
            sti_u128 has = (sti_u128)first_draw[p + 1] * sum;

            if (exact > has && exact - has > best_rest) {
                best = p;
                best_rest = exact - has;
            }
        }
        first_draw[best + 1]++;
    }
    first_draw[0] = 0;
    for (uint32_t p = 0; p < n_parts; p++) {
        if (first_draw[p + 1] == 0)
            return p;
        first_draw[p + 1] += first_draw[p];
    }
    return n_parts;
}

uint64_t
sti_draws_count(const struct sti_draws *draws)
{
    return draws->first_draw[draws->n_parts];
}

/* The part that a draw is from. */
static uint32_t
part_of(const struct sti_draws *draws, uint64_t draw)
{
    uint32_t low = 0, high = draws->n_parts;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (draws->first_draw[middle] <= draw)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static uint64_t
id_of(const struct sti_draws *draws, uint64_t seed, uint64_t epoch, uint64_t draw)
{
    uint32_t p = part_of(draws, draw);
    uint64_t size = draws->first_id[p + 1] - draws->first_id[p];
    uint64_t per_epoch = draws->first_draw[p + 1] - draws->first_draw[p];
    sti_u128 since_start = (sti_u128)epoch * per_epoch + (draw - draws->first_draw[p]);
    struct sti_keyed pass;

    sti_keyed_init(&pass, size, sti_mix(seed + STI_MIX_INCREMENT) + p,
                   (uint64_t)(since_start / size));
    return draws->first_id[p] + sti_keyed_at(&pass, (uint64_t)(since_start % size));
}

void
sti_draws_write(const struct sti_draws *draws, uint64_t seed, uint64_t epoch,
                const struct sti_draws_range *range, void *ids)
{
    uint64_t count = sti_draws_count(draws);
    struct sti_keyed shuffle;

    sti_keyed_init(&shuffle, count, seed, epoch);
    for (uint64_t at = 0; at < range->n; at++) {
        uint64_t element = (range->first + at * range->step) % count;
        uint64_t id = id_of(draws, seed, epoch, sti_keyed_at(&shuffle, element));

        if (range->is_narrow)
            ((uint32_t *)ids)[at] = (uint32_t)id;
        else
            ((uint64_t *)ids)[at] = id;
    }
}
