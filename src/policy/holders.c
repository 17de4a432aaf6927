/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the order to who holds what. One walk through the epochs that are known, all ranks
 * together and step by step, counts who reads what how often, notes in which order samples
 * are first read, and sums the bound up. Invariant: nothing here depends on which rank
 * computes it but `mine`, so no two ranks disagree.
 */
#include "policy/holders.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/bitset.h"
#include "base/mem.h"
#include "policy/bound.h"
#include "policy/choose.h"

#define NOBODY UINT16_MAX

/* What is needed while it is computed. */
struct work {
    const struct sti_holders_opts *opts;
    struct sti_order whole; /* of one rank that reads everything */
    struct sti_order_cursor cursor;
    void *ids;
    void *scratch;
    uint8_t *counts;    /* [sample * world + rank], or NULL */
    uint32_t *by_first; /* samples in order of their first use by anyone */
    uint64_t n_first;
    uint64_t *room_bytes; /* of each rank: what is left, for first readers */
    uint64_t *ssd_bytes;
    struct sti_bitset in_run;
    struct sti_bitset in_epoch;
    struct sti_bound bound;
};

static uint32_t
bytes_of(const struct work *work, uint64_t sample)
{
    return work->opts->bytes ? work->opts->bytes[sample] : work->opts->same_bytes;
}

/* The order of one rank that reads everything. */
static struct sti_order
whole_of(const struct sti_order *order)
{
    struct sti_order whole = *order;

    whole.world = 1;
    whole.rank = 0;
    whole.drop_uneven = false;
    whole.length = whole.num_samples;
    return whole;
}

static int
work_init(struct work *work, const struct sti_holders_opts *opts, struct sti_holders *holders)
{
    uint64_t n = opts->order.n;
    uint32_t world = opts->order.world;

    work->opts = opts;
    work->whole = whole_of(&opts->order);
    if (n <= STI_HOLDERS_COUNTS_MAX / world)
        work->counts = sti_mem_new(n, world);
    work->ids = sti_mem_new(work->whole.length, sti_order_id_bytes(&work->whole));
    work->scratch = sti_mem_new(sti_order_scratch_bytes(&work->whole) + 1, 1);
    work->by_first = sti_mem_new(n, sizeof(uint32_t));
    work->room_bytes = sti_mem_new(world, 2 * sizeof(uint64_t));
    holders->bound_bytes = sti_mem_new(opts->epochs, sizeof(uint64_t));
    if (!work->ids || !work->scratch || !work->by_first || !work->room_bytes ||
        !holders->bound_bytes || (!work->counts && n <= STI_HOLDERS_COUNTS_MAX / world))
        return -ENOMEM;
    work->ssd_bytes = work->room_bytes + world;
    memcpy(work->room_bytes, opts->room_bytes, world * sizeof(uint64_t));
    if (opts->ssd_bytes)
        memcpy(work->ssd_bytes, opts->ssd_bytes, world * sizeof(uint64_t));
    sti_bound_init(&work->bound, opts->total_bytes);
    int rc = opts->ssd_bytes ? sti_bitset_init(&holders->on_ssd, n) : 0;
    if (rc == 0)
        rc = sti_bitset_init(&work->in_run, n);
    return rc < 0 ? rc : sti_bitset_init(&work->in_epoch, n);
}

static void
work_fini(struct work *work)
{
    sti_mem_free(work->counts);
    sti_mem_free(work->ids);
    sti_mem_free(work->scratch);
    sti_mem_free(work->by_first);
    sti_mem_free(work->room_bytes);
    sti_bitset_fini(&work->in_run);
    sti_bitset_fini(&work->in_epoch);
}

static bool
is_warm(const struct work *work, uint64_t sample)
{
    return work->opts->warm && work->opts->warm[sample] != STI_ASSIGN_COLD;
}

/* What SSDs have from an earlier run is never new, and costs nothing in the first epoch. */
static void
count_for_bound(struct work *work, uint64_t sample, bool is_new, bool is_first)
{
    bool was_warm = is_warm(work, sample);

    if (work->bound.epochs > 1 || !was_warm)
        sti_bound_sample(&work->bound, bytes_of(work, sample), is_new, is_first && !was_warm);
}

/* Walks through an epoch; returns its bound. */
static uint64_t
walk_epoch(struct work *work, uint64_t epoch)
{
    uint32_t world = work->opts->order.world;
    uint64_t n = work->opts->used_length * world;
    uint64_t length = work->whole.length;
    uint32_t rank = 0;

    assert(length > 0);
    sti_order_epoch(&work->whole, epoch, &work->cursor, work->ids, work->scratch);
    sti_bitset_clear(&work->in_epoch);
    sti_bound_epoch(&work->bound);
    for (uint64_t at = 0; at < n; at++) {
        /* Padding goes round. */
        uint64_t sample = sti_order_id(&work->whole, work->ids, at < length ? at : at % length);
        bool is_new = sti_bitset_add(&work->in_epoch, sample);
        bool is_first = is_new && sti_bitset_add(&work->in_run, sample);

        if (is_first)
            work->by_first[work->n_first++] = (uint32_t)sample;
        count_for_bound(work, sample, is_new, is_first);
        if (work->counts) {
            uint8_t *count = &work->counts[sample * world + rank];

            *count = (uint8_t)(*count + (*count < UINT8_MAX));
        }
        rank = rank + 1 == world ? 0 : rank + 1;
    }
    return sti_bound_of_epoch(&work->bound);
}

/* Gives a rank a sample if it has room. What its SSDs have already needs none on them. */
static void
give(struct sti_holders *holders, struct work *work, uint32_t sample, uint32_t rank)
{
    uint32_t n_bytes = bytes_of(work, sample);

    if (n_bytes <= work->room_bytes[rank]) {
        work->room_bytes[rank] -= n_bytes;
    } else if (is_warm(work, sample) || n_bytes <= work->ssd_bytes[rank]) {
        work->ssd_bytes[rank] -= is_warm(work, sample) ? 0 : n_bytes;
        if (rank == holders->rank)
            (void)sti_bitset_add(&holders->on_ssd, sample);
    } else {
        return;
    }
    holders->first[sample] = (uint16_t)rank;
}

/* Without counts: whoever reads a sample first has it, as far as there is room. */
static int
give_first_readers(struct sti_holders *holders, struct work *work)
{
    holders->first = sti_mem_new(holders->n_samples, sizeof(*holders->first));
    if (!holders->first)
        return -ENOMEM;
    memset(holders->first, 0xff, holders->n_samples * sizeof(*holders->first));
    for (uint64_t at = 0; at < work->n_first; at++) {
        uint32_t rank = sti_owner_first_reader(at, holders->world);
        uint32_t sample = work->by_first[at];

        if (!is_warm(work, sample))
            give(holders, work, sample, rank);
    }
    for (uint64_t at = 0; work->opts->warm && at < work->n_first; at++)
        if (is_warm(work, work->by_first[at]))
            give(holders, work, work->by_first[at], work->opts->warm[work->by_first[at]]);
    return 0;
}

/* A bit for each rank is more than is needed where a sample has one holder. */
static int
take_first_holders(struct sti_holders *holders)
{
    holders->first = sti_mem_new(holders->n_samples, sizeof(*holders->first));
    if (!holders->first)
        return -ENOMEM;
    memset(holders->first, 0xff, holders->n_samples * sizeof(*holders->first));
    for (uint64_t sample = 0; sample < holders->n_samples; sample++) {
        uint32_t last = holders->world - 1;
        uint32_t rank = sti_assignment_has(&holders->assignment, sample, last)
                            ? last
                            : sti_assignment_peer(&holders->assignment, sample, last);

        if (rank != STI_ASSIGN_NOBODY)
            holders->first[sample] = (uint16_t)rank;
    }
    sti_assignment_fini(&holders->assignment);
    return 0;
}

/* What this rank holds on its SSDs. */
static void
take_on_ssd(struct sti_holders *holders)
{
    for (uint64_t sample = 0; holders->on_ssd.n > 0 && sample < holders->n_samples; sample++)
        if (sti_assignment_on_ssd(&holders->assignment, sample, holders->rank))
            (void)sti_bitset_add(&holders->on_ssd, sample);
}

static int
assign(struct sti_holders *holders, struct work *work)
{
    const struct sti_holders_opts *opts = work->opts;
    const struct sti_assign_input input = {
        .n_samples = holders->n_samples,
        .n_ranks = holders->world,
        .bytes = opts->bytes,
        .same_bytes = opts->same_bytes,
        .ram_bytes = opts->room_bytes,
        .ssd_bytes = work->ssd_bytes,
        .warm = opts->warm,
        .counts = work->counts,
        .seed = (uint64_t)opts->order.seed,
        .ties = STI_ASSIGN_TIES_RANDOM,
    };
    int rc = opts->is_paper ? sti_assign_paper(&holders->assignment, &input)
                            : sti_assign_coordinated(&holders->assignment, &input);

    if (rc < 0)
        return rc;
    take_on_ssd(holders);
    return opts->is_paper ? 0 : take_first_holders(holders);
}

/* What this rank holds and anybody reads, in order of first use. */
static int
take_mine(struct sti_holders *holders, const struct work *work)
{
    uint64_t n = 0;

    for (uint64_t at = 0; at < work->n_first; at++)
        n += sti_holders_is_mine(holders, work->by_first[at]) ? 1 : 0;
    holders->mine = sti_mem_new(n + 1, sizeof(*holders->mine));
    if (!holders->mine)
        return -ENOMEM;
    for (uint64_t at = 0; at < work->n_first; at++)
        if (sti_holders_is_mine(holders, work->by_first[at])) {
            uint32_t sample = work->by_first[at];

            holders->mine[holders->n_mine++] = sample;
            if (sti_holders_is_in_ram(holders, sample))
                holders->mine_bytes += bytes_of(work, sample);
            else
                holders->mine_ssd_bytes += bytes_of(work, sample);
        }
    return 0;
}

/* ---- without any table ---- */

/* Whether the first reader of each sample follows from the order, has memory for it, and
 * every epoch reads everything. */
static bool
can_compute(const struct sti_holders_opts *opts)
{
    const struct sti_order *order = &opts->order;
    uint64_t most = (order->n + order->world - 1) / order->world;

    if (order->kind != STK_ORDER_KEYED || order->draws || !sti_order_seekable(order) ||
        order->num_samples != order->n || opts->used_length * order->world < order->n ||
        opts->bytes || opts->ssd_bytes || opts->is_paper ||
        order->n <= STI_HOLDERS_COUNTS_MAX / order->world)
        return false;
    for (uint32_t rank = 0; rank < order->world; rank++)
        if (opts->room_bytes[rank] / (opts->same_bytes > 0 ? opts->same_bytes : 1) < most)
            return false;
    return true;
}

static int
compute(struct sti_holders *holders, const struct sti_holders_opts *opts)
{
    uint64_t n = opts->order.n;
    uint64_t n_mine = (n + holders->world - 1 - holders->rank) / holders->world;
    struct sti_bound bound;

    holders->is_computed = true;
    holders->whole = whole_of(&opts->order);
    holders->bound_bytes = sti_mem_new(opts->epochs, sizeof(uint64_t));
    holders->mine = sti_mem_new(n_mine + 1, sizeof(*holders->mine));
    if (!holders->bound_bytes || !holders->mine)
        return -ENOMEM;
    for (uint64_t at = 0; at < n_mine; at++)
        holders->mine[at] = (uint32_t)sti_order_at(&holders->whole, opts->first_epoch,
                                                   at * holders->world + holders->rank);
    holders->n_mine = n_mine;
    holders->mine_bytes = n_mine * opts->same_bytes;
    sti_bound_init(&bound, opts->total_bytes);
    for (uint64_t epoch = 0; epoch < opts->epochs; epoch++) {
        sti_bound_epoch(&bound);
        sti_bound_sample(&bound, n * opts->same_bytes, true, epoch == 0);
        holders->bound_bytes[epoch] = sti_bound_of_epoch(&bound);
    }
    return 0;
}

uint32_t
sti_holders_computed(const struct sti_holders *holders, uint64_t sample)
{
    uint64_t position = 0;

    (void)sti_order_find(&holders->whole, holders->first_epoch, sample, &position); /* all are */
    return sti_owner_first_reader(position, holders->world);
}

int
sti_holders_init(struct sti_holders *holders, const struct sti_holders_opts *opts)
{
    struct work work = {.opts = opts};

    *holders = (struct sti_holders){.rank = opts->order.rank,
                                    .world = opts->order.world,
                                    .n_samples = opts->order.n,
                                    .total_bytes = opts->total_bytes,
                                    .first_epoch = opts->first_epoch,
                                    .n_bounds = opts->epochs};
    if (can_compute(opts))
        return compute(holders, opts);
    int rc = work_init(&work, opts, holders);
    for (uint64_t epoch = 0; rc == 0 && epoch < opts->epochs; epoch++)
        holders->bound_bytes[epoch] = walk_epoch(&work, opts->first_epoch + epoch);
    if (rc == 0)
        rc = work.counts ? assign(holders, &work) : give_first_readers(holders, &work);
    if (rc == 0)
        rc = take_mine(holders, &work);
    work_fini(&work);
    return rc;
}

void
sti_holders_fini(struct sti_holders *holders)
{
    sti_mem_free(holders->first);
    sti_mem_free(holders->mine);
    sti_mem_free(holders->bound_bytes);
    sti_assignment_fini(&holders->assignment);
    sti_bitset_fini(&holders->on_ssd);
    *holders = (struct sti_holders){0};
}

uint32_t
sti_holders_next(const struct sti_holders *holders, uint64_t sample, uint32_t after)
{
    if (holders->first || holders->is_computed) {
        uint32_t rank =
            holders->is_computed ? sti_holders_computed(holders, sample) : holders->first[sample];

        return rank == NOBODY || rank == holders->rank || after != holders->rank
                   ? STI_HOLDERS_NOBODY
                   : rank;
    }
    for (uint32_t rank = after + 1 == holders->world ? 0 : after + 1; rank != holders->rank;
         rank = rank + 1 == holders->world ? 0 : rank + 1)
        if (sti_assignment_has(&holders->assignment, sample, rank))
            return rank;
    return STI_HOLDERS_NOBODY;
}

uint64_t
sti_holders_bound(const struct sti_holders *holders, uint64_t epoch)
{
    uint64_t at = epoch > holders->first_epoch ? epoch - holders->first_epoch : 0;

    return holders->bound_bytes[at < holders->n_bounds ? at : holders->n_bounds - 1];
}

uint64_t
sti_holders_bound_until(const struct sti_holders *holders, uint64_t epoch)
{
    uint64_t n_bytes = 0;

    for (uint64_t at = holders->first_epoch; at <= epoch; at++)
        n_bytes += sti_holders_bound(holders, at);
    return n_bytes;
}
