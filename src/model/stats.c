/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histograms. Below 16 ns a bucket holds one value; above, an octave has 16 buckets:
 * bucket 16 (o - 3) + m for values whose highest bit is o and whose next four bits are m.
 * Pure.
 */
#include "model/stats.h"

static uint32_t
bucket_of(uint64_t ns)
{
    if (ns < 16)
        return (uint32_t)ns;
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(ns);
    return 16 * (octave - 3) + (uint32_t)((ns >> (octave - 4)) & 15);
}

/* The largest value of a bucket. */
static uint64_t
bucket_end(uint32_t bucket)
{
    if (bucket < 16)
        return bucket;
    uint32_t octave = bucket / 16 + 3;
    uint64_t width = UINT64_C(1) << (octave - 4);
    return (16 + bucket % 16) * width + (width - 1);
}

void
sti_histogram_add(struct sti_histogram *histogram, uint64_t ns)
{
    histogram->n++;
    histogram->sum_ns += ns;
    if (ns > histogram->max_ns)
        histogram->max_ns = ns;
    histogram->counts[bucket_of(ns)]++;
}

uint64_t
sti_histogram_quantile(const struct sti_histogram *histogram, double fraction)
{
    double wanted = fraction * (double)histogram->n;
    uint64_t seen = 0;

    if (histogram->n == 0)
        return 0;
    for (uint32_t bucket = 0; bucket < STI_HISTOGRAM_BUCKETS; bucket++) {
        seen += histogram->counts[bucket];
        if ((double)seen >= wanted && seen > 0) {
            uint64_t end_ns = bucket_end(bucket);

            return end_ns < histogram->max_ns ? end_ns : histogram->max_ns;
        }
    }
    return histogram->max_ns;
}
