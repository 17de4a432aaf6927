/* SPDX-License-Identifier: Apache-2.0 */
/* What a loader counts: values that can be added up, no locks. */
#ifndef STI_MODEL_STATS_H
#define STI_MODEL_STATS_H

#include <stdint.h>

#include <stoker/loader.h>

#define STI_HISTOGRAM_BUCKETS 976

/* Times in steps of a sixteenth of an octave, from 1 ns to the largest uint64_t. */
struct sti_histogram {
    uint64_t n;
    uint64_t sum_ns;
    uint64_t max_ns;
    uint32_t counts[STI_HISTOGRAM_BUCKETS];
};

void
sti_histogram_add(struct sti_histogram *histogram, uint64_t ns);

/* The time below or at which a fraction of the entries lies, to a sixteenth of an octave;
 * the largest entry bounds it. 0 when empty. */
uint64_t
sti_histogram_quantile(const struct sti_histogram *histogram, double fraction);

/* The counters of an epoch, or of a whole run. */
struct sti_stats {
    uint64_t epoch;
    uint64_t batches;
    uint64_t samples;
    uint64_t bytes;
    uint64_t start_ns; /* the first next of it began */
    uint64_t end_ns;   /* the last next or release of it ended */
    uint64_t tier_samples[STK_TIERS];
    uint64_t tier_bytes[STK_TIERS];
    uint64_t origin_bytes;
    uint64_t bound_bytes;
    struct sti_histogram waits;
};

#endif
