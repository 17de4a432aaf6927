/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes. Where not everything fits, at most half of the store is held for batches: what
 * is held cannot be chosen, and with more of it next-use placement misses the bound (a
 * simulation of 10,000 samples with 1,200 cached and 1,000 of them held read 8 % more; up
 * to a half, nothing).
 *
 * Where sizes differ, what staging may hold three times over is left to whatever is used
 * next, for the same reason; samples beside it are kept for their size (policy/density)
 * and lie apart. With twice as much, 600 samples of which 29 % had room read 1.6 % more than
 * the bound, with three times nothing.
 */
#include "tier/sizes.h"

/* Of the 64 MiB that a loader may take beside what it is given. */
#define TRANSIT_MAX_BYTES (UINT64_C(16) << 20)

static uint64_t
larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t
smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void
size_store(struct sti_sizes *sizes, const struct sti_fetcher_opts *opts)
{
    const struct sti_dataset *dataset = opts->dataset;
    uint64_t uniform_bytes = sti_dataset_uniform_bytes(dataset);
    uint64_t max_bytes = sti_dataset_max_bytes(dataset);
    bool is_raw = opts->item_bytes == 0;
    uint64_t limit = is_raw ? opts->staging_bytes : opts->undecoded_bytes;
    uint64_t store_bytes =
        smaller(opts->ram_bytes + limit, sti_dataset_bytes(dataset) + UINT64_C(1));

    if (uniform_bytes > 0) /* what is left over a whole sample holds nothing */
        store_bytes -= store_bytes % uniform_bytes;
    if (opts->policy == STK_POLICY_NEXT_USE && store_bytes < sti_dataset_bytes(dataset)) {
        uint64_t least = is_raw ? opts->staging_least_bytes : 2 * max_bytes;

        limit = smaller(limit, larger(store_bytes / 2, least));
    }
    sizes->store_bytes = store_bytes;
    sizes->held_bytes = limit;
}

/* The size up to which everything fits into a capacity. */
static uint64_t
threshold(const struct sti_dataset *dataset, uint64_t capacity_bytes)
{
    struct sti_density density;
    uint64_t n = sti_dataset_count(dataset);

    sti_density_init(&density, capacity_bytes, sti_dataset_max_bytes(dataset));
    do {
        for (uint64_t sample = 0; sample < n; sample++)
            sti_density_add(&density, sti_dataset_length(dataset, sample));
    } while (sti_density_refine(&density));
    return sti_density_threshold(&density);
}

/* Never more than the SSDs have; whole samples, where they have one size. */
static uint64_t
transit(const struct sti_sizes *sizes, const struct sti_dataset *dataset, uint64_t ssd_bytes)
{
    uint64_t uniform_bytes = sti_dataset_uniform_bytes(dataset);
    uint64_t n_bytes = smaller(smaller(sizes->held_bytes, TRANSIT_MAX_BYTES), ssd_bytes);

    return uniform_bytes > 0 ? n_bytes - n_bytes % uniform_bytes : n_bytes;
}

struct sti_sizes
sti_sizes_choose(const struct sti_fetcher_opts *opts, uint64_t ssd_bytes)
{
    const struct sti_dataset *dataset = opts->dataset;
    uint64_t n_bytes = sti_dataset_bytes(dataset);
    struct sti_sizes sizes = {.worthy_bytes = UINT64_MAX,
                              .average_bytes = n_bytes / sti_dataset_count(dataset) + 1};
    uint64_t ram_threshold = UINT64_MAX;

    size_store(&sizes, opts);
    uint64_t held_bytes = 3 * sizes.held_bytes;
    uint64_t kept_bytes = sizes.store_bytes > held_bytes ? sizes.store_bytes - held_bytes : 0;
    if (opts->shared_policy == STK_POLICY_DEFAULT && sti_dataset_uniform_bytes(dataset) == 0 &&
        sizes.store_bytes < n_bytes && ssd_bytes < n_bytes && opts->policy == STK_POLICY_NEXT_USE) {
        ram_threshold = threshold(dataset, kept_bytes);
        sizes.small_bytes = ram_threshold;
        sizes.small_room_bytes = kept_bytes;
        if (sizes.store_bytes + ssd_bytes < n_bytes)
            sizes.worthy_bytes = threshold(dataset, kept_bytes + ssd_bytes);
    }
    /* With peers memory that this rank alone has is not all that counts. */
    bool is_alone = opts->shared_policy == STK_POLICY_DEFAULT;
    if (is_alone && opts->policy == STK_POLICY_NEXT_USE && ssd_bytes > 0 &&
        sizes.store_bytes + ssd_bytes < n_bytes)
        sizes.transit_bytes = transit(&sizes, dataset, ssd_bytes);
    sizes.range =
        sti_density_ssd_range(ram_threshold, sizes.worthy_bytes, !is_alone || ssd_bytes >= n_bytes);
    sizes.lookahead = (struct sti_lookahead){
        .limit_bytes = sizes.held_bytes,
        .least_bytes = smaller(opts->staging_least_bytes, sizes.held_bytes),
        .transit_bytes = sizes.transit_bytes,
        .memory_bytes = sizes.store_bytes,
        .ssd_bytes = is_alone ? ssd_bytes : 0,
        .data_bytes = n_bytes,
    };
    return sizes;
}

uint64_t
sti_sizes_staged(const struct sti_sizes *sizes, uint64_t idx, uint64_t length)
{
    if (length == 0) /* a list: no epoch to speak of */
        return sizes->held_bytes;
    return sti_lookahead_bytes(&sizes->lookahead, idx * sizes->average_bytes,
                               (length - idx) * sizes->average_bytes);
}
