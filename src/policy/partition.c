/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The partition of a checkpoint's stream. First each span that has an owner goes to that
 * owner's target which would end first. Then the shared bytes fill up the targets like
 * water: to the one time T at which all that get any of them end together. Boundaries of
 * shares are rounded to chunks of the shared bytes, so a share is off by less than a
 * chunk and no chunk is written twice.
 *
 * Pure; any thread. Invariant: the cuts cover the stream exactly once, in order.
 */
#include "policy/partition.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

#define WATER_STEPS 64

uint32_t
sti_partition_cuts_max(const struct sti_partition *partition)
{
    return partition->n_spans + partition->n_targets;
}

uint64_t
sti_partition_share(uint64_t n_bytes, uint32_t n, uint32_t member, uint32_t chunk_bytes)
{
    uint64_t n_chunks = n_bytes / chunk_bytes + (n_bytes % chunk_bytes > 0 ? 1 : 0);
    /* n_chunks x member / n, without what 64 bits do not hold. */
    uint64_t first = n_chunks / n * member + n_chunks % n * member / n;
    uint64_t from = first * chunk_bytes;

    return member >= n || from > n_bytes ? n_bytes : from;
}

/* The target of an owner that would end first with n_bytes more; UINT32_MAX: it has
 * none. */
static uint32_t
pick_target(const struct sti_partition *partition, const double *load_bytes, uint32_t owner,
            double n_bytes)
{
    uint32_t best = UINT32_MAX;
    double best_end = 0;

    for (uint32_t idx = 0; idx < partition->n_targets; idx++) {
        const struct sti_target *target = &partition->targets[idx];
        double end = (load_bytes[idx] + n_bytes) / target->bytes_per_s;

        if (target->writer != owner || (best != UINT32_MAX && end >= best_end))
            continue;
        best = idx;
        best_end = end;
    }
    return best;
}

static double
room_until(const struct sti_partition *partition, const double *load_bytes, uint32_t idx,
           double end)
{
    double room = end * partition->targets[idx].bytes_per_s - load_bytes[idx];

    return room > 0 ? room : 0;
}

/* When all end who get shared bytes: the time until which there is room for just that
 * many. */
static double
water_level(const struct sti_partition *partition, const double *load_bytes, double shared_bytes)
{
    double low = 0;
    double high = 0;

    for (uint32_t idx = 0; idx < partition->n_targets; idx++) {
        double alone = (load_bytes[idx] + shared_bytes) / partition->targets[idx].bytes_per_s;

        high = fmax(high, alone);
    }
    for (uint32_t step = 0; step < WATER_STEPS; step++) {
        double end = (low + high) / 2;
        double room = 0;

        for (uint32_t idx = 0; idx < partition->n_targets; idx++)
            room += room_until(partition, load_bytes, idx, end);
        if (room < shared_bytes)
            low = end;
        else
            high = end;
    }
    return high;
}

/* Walks the shares of the shared bytes: whose turn it is and up to where. */
struct shares {
    const struct sti_partition *partition;
    double *load_bytes;
    double end;
    double ideal; /* sum of the shares up to and with this target's */
    uint64_t shared_bytes;
    uint64_t taken_bytes; /* of the shared bytes */
    uint64_t limit_bytes; /* where the share of this target ends */
    uint32_t target;
};

static void
begin_share(struct shares *shares)
{
    uint32_t chunk_bytes = shares->partition->chunk_bytes;

    shares->ideal += room_until(shares->partition, shares->load_bytes, shares->target, shares->end);
    uint64_t limit = (uint64_t)(shares->ideal / chunk_bytes + 0.5) * chunk_bytes;
    if (limit > shares->shared_bytes || shares->target + 1 == shares->partition->n_targets)
        limit = shares->shared_bytes;
    shares->limit_bytes = limit;
}

static void
add_cut(struct sti_cut *cuts, int64_t *n_cuts, struct sti_cut cut)
{
    assert(cuts);
    struct sti_cut *last = *n_cuts > 0 ? &cuts[*n_cuts - 1] : NULL;

    if (last && last->target == cut.target)
        last->n_bytes += cut.n_bytes;
    else
        cuts[(*n_cuts)++] = cut;
}

/* Cuts one shared span along the shares. */
static void
cut_shared(struct shares *shares, uint64_t offset, uint64_t n_bytes, struct sti_cut *cuts,
           int64_t *n_cuts)
{
    while (n_bytes > 0) {
        while (shares->taken_bytes == shares->limit_bytes) {
            shares->target++;
            begin_share(shares);
        }
        uint64_t left = shares->limit_bytes - shares->taken_bytes;
        uint64_t now = left < n_bytes ? left : n_bytes;

        add_cut(cuts, n_cuts,
                (struct sti_cut){.offset = offset, .n_bytes = now, .target = shares->target});
        shares->taken_bytes += now;
        offset += now;
        n_bytes -= now;
    }
}

static void
sum_loads(const struct sti_partition *partition, const struct sti_cut *cuts, int64_t n_cuts,
          double *load_bytes)
{
    for (uint32_t idx = 0; idx < partition->n_targets; idx++)
        load_bytes[idx] = 0;
    for (int64_t at = 0; at < n_cuts; at++)
        load_bytes[cuts[at].target] += (double)cuts[at].n_bytes;
}

/*
 * Loads the targets with the spans that have an owner; returns how many bytes are shared,
 * or an error. The choice depends on the loads so far alone, so making it again gives the
 * same.
 */
static int64_t
load_owned(const struct sti_partition *partition, double *load_bytes)
{
    uint64_t shared_bytes = 0;

    for (uint32_t idx = 0; idx < partition->n_targets; idx++)
        load_bytes[idx] = 0;
    for (uint32_t at = 0; at < partition->n_spans; at++) {
        const struct sti_span *span = &partition->spans[at];

        if (span->owner == STI_SPAN_SHARED) {
            shared_bytes += span->n_bytes;
            continue;
        }
        uint32_t target = pick_target(partition, load_bytes, span->owner, (double)span->n_bytes);
        if (target == UINT32_MAX)
            return -EINVAL;
        load_bytes[target] += (double)span->n_bytes;
    }
    return (int64_t)shared_bytes;
}

int64_t
sti_partition_cut(const struct sti_partition *partition, struct sti_cut *cuts, double *load_bytes)
{
    uint64_t offset = 0;
    int64_t n_cuts = 0;

    if (partition->n_targets == 0 || partition->n_targets > STI_TARGETS_MAX)
        return -EINVAL;
    int64_t shared_bytes = load_owned(partition, load_bytes);
    if (shared_bytes < 0)
        return shared_bytes;
    struct shares shares = {.partition = partition,
                            .load_bytes = load_bytes,
                            .end = water_level(partition, load_bytes, (double)shared_bytes),
                            .shared_bytes = (uint64_t)shared_bytes};
    double *owned_bytes = load_bytes + partition->n_targets;
    for (uint32_t idx = 0; idx < partition->n_targets; idx++)
        owned_bytes[idx] = 0;
    begin_share(&shares);
    for (uint32_t at = 0; at < partition->n_spans; at++) {
        const struct sti_span *span = &partition->spans[at];

        if (span->owner == STI_SPAN_SHARED) {
            cut_shared(&shares, offset, span->n_bytes, cuts, &n_cuts);
        } else if (span->n_bytes > 0) {
            uint32_t target =
                pick_target(partition, owned_bytes, span->owner, (double)span->n_bytes);

            owned_bytes[target] += (double)span->n_bytes;
            add_cut(cuts, &n_cuts,
                    (struct sti_cut){.offset = offset, .n_bytes = span->n_bytes, .target = target});
        }
        offset += span->n_bytes;
    }
    sum_loads(partition, cuts, n_cuts, load_bytes);
    return n_cuts;
}
