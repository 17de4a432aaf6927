/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What to keep where not everything fits and sizes differ. Holding a sample of s bytes
 * saves at each use latency + s / bandwidth of the origin, so per byte latency / s + 1 /
 * bandwidth: the smaller, the more, whatever latency and bandwidth are. Every sample is
 * used equally often, so the samples that save most are those up to some size. The
 * threshold is a function of the sizes and the capacity alone: every rank and every run
 * finds the same one, without a measurement.
 *
 * Pure. The sizes are fed pass after pass (a histogram that is narrowed down to one
 * size), so that no memory per sample is needed.
 */
#ifndef STI_POLICY_DENSITY_H
#define STI_POLICY_DENSITY_H

#include <stdbool.h>
#include <stdint.h>

#define STI_DENSITY_BUCKETS 256

struct sti_density {
    uint64_t capacity_bytes;
    uint64_t first_bytes;  /* the sizes looked at begin here */
    uint64_t bucket_bytes; /* sizes of one bucket */
    uint64_t below_bytes;  /* sum of all samples smaller than first_bytes */
    uint64_t sums[STI_DENSITY_BUCKETS];
};

/* Begins the search for samples of up to max_bytes (at most 2^40) and a capacity. */
void
sti_density_init(struct sti_density *density, uint64_t capacity_bytes, uint64_t max_bytes);

/* A sample's size; once for every sample in each pass. */
void
sti_density_add(struct sti_density *density, uint64_t n_bytes);

/* Ends a pass. Returns whether another one is needed; if not, the threshold is known. */
bool
sti_density_refine(struct sti_density *density);

/*
 * The threshold: all samples smaller than it fit into the capacity together, with those
 * of exactly this size they do not any more. UINT64_MAX where everything fits.
 */
uint64_t
sti_density_threshold(const struct sti_density *density);

/* Sizes that go to the SSD tier: least_bytes .. most_bytes as far as there is room. */
struct sti_ssd_range {
    uint64_t least_bytes;
    uint64_t most_bytes;
};

/*
 * Which sizes the SSD takes and up to which size (most_bytes) anything is worth keeping.
 * ram_threshold and all_threshold: for the RAM tier alone and for both together. With
 * room for everything on the SSD it takes everything, so that the next job starts warm.
 * Else the smallest stay in RAM, where a read costs nothing, and the SSD takes the next
 * larger ones.
 */
struct sti_ssd_range
sti_density_ssd_range(uint64_t ram_threshold, uint64_t all_threshold, bool ssd_holds_all);

#endif
