/* SPDX-License-Identifier: Apache-2.0 */
/* The size threshold: the bucket in which the sum crosses the capacity is cut up again
 * until it holds one size. Invariant: below_bytes <= capacity_bytes. */
#include "policy/density.h"

#include <string.h>

void
sti_density_init(struct sti_density *density, uint64_t capacity_bytes, uint64_t max_bytes)
{
    memset(density, 0, sizeof(*density));
    density->capacity_bytes = capacity_bytes;
    density->bucket_bytes = max_bytes / STI_DENSITY_BUCKETS + 1;
}

void
sti_density_add(struct sti_density *density, uint64_t n_bytes)
{
    if (n_bytes < density->first_bytes)
        return;
    uint64_t bucket = (n_bytes - density->first_bytes) / density->bucket_bytes;
    if (bucket < STI_DENSITY_BUCKETS)
        density->sums[bucket] += n_bytes;
}

bool
sti_density_refine(struct sti_density *density)
{
    uint32_t bucket = 0;

    while (bucket < STI_DENSITY_BUCKETS &&
           density->sums[bucket] <= density->capacity_bytes - density->below_bytes)
        density->below_bytes += density->sums[bucket++];
    if (bucket == STI_DENSITY_BUCKETS) {
        density->first_bytes = UINT64_MAX; /* everything fits */
        return false;
    }
    density->first_bytes += bucket * density->bucket_bytes;
    if (density->bucket_bytes == 1)
        return false;
    density->bucket_bytes = (density->bucket_bytes + STI_DENSITY_BUCKETS - 1) / STI_DENSITY_BUCKETS;
    memset(density->sums, 0, sizeof(density->sums));
    return true;
}

uint64_t
sti_density_threshold(const struct sti_density *density)
{
    return density->first_bytes;
}

struct sti_ssd_range
sti_density_ssd_range(uint64_t ram_threshold, uint64_t all_threshold, bool ssd_holds_all)
{
    if (ssd_holds_all)
        return (struct sti_ssd_range){.least_bytes = 0, .most_bytes = UINT64_MAX};
    /* RAM that holds everything leaves nothing to choose: the first that come. */
    uint64_t least_bytes = ram_threshold == UINT64_MAX ? 0 : ram_threshold;
    return (struct sti_ssd_range){.least_bytes = least_bytes, .most_bytes = all_threshold};
}
