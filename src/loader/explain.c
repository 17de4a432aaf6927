/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run told beforehand. The stream is walked as the fetcher walks it, with the same
 * sizes, the same rules of keeping and the same evictor, but nothing is read: a sample is
 * in memory, on the SSDs or not. Beside the walk runs a clock: origin and SSDs serve side
 * by side, as far ahead of the consumer as staging allows, and a batch is waited for
 * until its last sample is there.
 *
 * Epochs from some on are alike, so only the first are walked. The next use of each
 * position comes from tables over the walked epochs and one more: 8 bytes for each of
 * their positions. With peers who holds what is planned as loaders plan it, and what is
 * held is taken to be there as soon as anybody but its holder asks; copies ahead of their
 * use fill spare room at once. Values only; the calling thread's.
 */
#include "loader/explain.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "loader/resolve.h"
#include "loader/share.h"
#include "model/hierarchy.h"
#include "policy/bound.h"
#include "policy/cost_curve.h"
#include "policy/place.h"
#include "policy/replica.h"
#include "tier/evictor.h"
#include "tier/sizes.h"

#define SAMPLES_MAX (UINT64_C(1) << 26)
#define POSITIONS_MAX (UINT64_C(1) << 28)
#define EPOCHS_ALONE 4 /* walked where every epoch reads everything */
#define GROUP_BYTES (UINT64_C(128) << 10)
#define STALL_LEAST 0.005
#define NEVER UINT32_MAX

enum { IN_MEMORY = 1, ON_SSD = 2, SEEN = 4, PINNED = 8, PASSING = 16 };

struct walk {
    const struct sti_dataset *dataset;
    const stk_explain_opts *opts;
    struct sti_resolved resolved;
    struct sti_sizes sizes;
    struct sti_bound bound;
    struct sti_evictor *evictor;
    bool is_shared;
    struct sti_holders holders; /* if it is */
    uint64_t ssd_bytes;         /* capacity */
    uint64_t ssd_used_bytes;
    uint64_t ssd_due_bytes; /* of what this rank is to hold there: not there yet */
    uint64_t ram_bytes;
    uint64_t pinned_bytes;
    uint64_t used_bytes;    /* of the store */
    uint64_t passing_bytes; /* of samples beside it: see tier/residency */
    uint64_t staged_bytes;  /* walked and not given back */
    uint64_t length;        /* positions of an epoch */
    uint64_t n_epochs;      /* walked */
    uint64_t n_known;       /* epochs in the tables */
    uint64_t end_epoch;     /* of the run; UINT64_MAX without one */
    uint64_t returned;      /* positions given back */
    uint32_t *ids;          /* by position */
    uint32_t *next;         /* by position: the next one of the sample, or NEVER */
    uint32_t *pins;         /* by sample */
    uint32_t *kept_at;      /* by sample: the position it is kept for */
    uint8_t *flags;         /* by sample */
    uint32_t group;         /* neighbours read together; 1: none */
    double n_reads;         /* of the origin, for the batch being walked */
    double read_bytes;
    double depth;

    /* The clock. */
    double origin_s; /* when each has served what was asked */
    double ssd_s;
    double consumer_s; /* when the consumer wants the next batch */
    double *given_s;   /* when each of the last n_ahead batches was given back, in turn */
    uint64_t n_ahead;
    uint64_t n_batches;
};

static uint64_t
smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t
length_of(const struct walk *walk, uint64_t sample)
{
    return sti_dataset_length(walk->dataset, sample);
}

/* ---- keeping ----------------------------------------------------------------------- */

static void
drop(struct walk *walk, uint64_t sample)
{
    if (walk->flags[sample] & PASSING)
        walk->passing_bytes -= length_of(walk, sample);
    else
        walk->used_bytes -= length_of(walk, sample);
    walk->flags[sample] &= (uint8_t) ~(IN_MEMORY | PASSING);
}

static bool
can_pass(const struct walk *walk, uint64_t sample)
{
    return (walk->flags[sample] & (ON_SSD | PASSING)) == ON_SSD &&
           walk->passing_bytes + length_of(walk, sample) <= walk->sizes.transit_bytes;
}

static bool
is_mine(const struct walk *walk, uint64_t sample)
{
    return walk->is_shared && sti_holders_is_mine(&walk->holders, sample);
}

/* Whether this rank holds it in memory, or else on the SSDs. */
static bool
is_in_ram(const struct walk *walk, uint64_t sample)
{
    return walk->is_shared && sti_holders_is_in_ram(&walk->holders, sample);
}

/* Whether a peer holds it. */
static bool
is_with_peer(const struct walk *walk, uint64_t sample)
{
    return walk->is_shared &&
           sti_holders_next(&walk->holders, sample, walk->holders.rank) != STI_HOLDERS_NOBODY;
}

static enum sti_class
class_of(const struct walk *walk, uint64_t sample)
{
    if ((walk->flags[sample] & ON_SSD) || is_with_peer(walk, sample))
        return STI_CLASS_STORED;
    return length_of(walk, sample) > walk->sizes.worthy_bytes ? STI_CLASS_LIGHT : STI_CLASS_WORTHY;
}

static enum sti_keep
keep_of(const struct walk *walk, uint64_t sample, enum sti_next_use kind)
{
    const struct sti_fetcher_opts *fetcher = &walk->resolved.fetcher;

    if (walk->is_shared)
        return sti_place_keep_shared(fetcher->shared_policy, is_in_ram(walk, sample), kind);
    return sti_place_keep(fetcher->policy, kind, length_of(walk, sample),
                          walk->ram_bytes - walk->pinned_bytes);
}

/* The last batch that uses a sample was given back. position: of that use. */
static void
settle(struct walk *walk, uint64_t sample, uint64_t position)
{
    uint32_t next = walk->next[position];
    bool is_end = walk->end_epoch <= walk->n_known;
    enum sti_next_use kind = next != NEVER ? STI_NEXT_USE_KNOWN
                             : is_end      ? STI_NEXT_USE_NEVER
                                           : STI_NEXT_USE_UNKNOWN;
    uint64_t n_bytes = length_of(walk, sample);

    if (n_bytes < walk->sizes.small_bytes && kind != STI_NEXT_USE_NEVER) {
        walk->flags[sample] |= PINNED;
        walk->pinned_bytes += n_bytes;
        return;
    }
    switch (keep_of(walk, sample, kind)) {
    case STI_KEEP_NOT:
        drop(walk, sample);
        break;
    case STI_KEEP_PINNED:
        if (!walk->is_shared && (walk->flags[sample] & ON_SSD)) {
            drop(walk, sample);
            break;
        }
        walk->flags[sample] |= PINNED;
        walk->pinned_bytes += n_bytes;
        break;
    case STI_KEEP_BY_RECENT:
        sti_evictor_add_recent(walk->evictor, sample);
        break;
    case STI_KEEP_BY_NEXT:
        walk->kept_at[sample] = next;
        sti_evictor_add_position(walk->evictor, next, class_of(walk, sample));
        break;
    case STI_KEEP_UNKNOWN:
        walk->kept_at[sample] = NEVER;
        sti_evictor_add_unknown(walk->evictor, sample, class_of(walk, sample));
        break;
    }
}

static void
unkeep(struct walk *walk, uint64_t sample)
{
    if (walk->flags[sample] & PINNED) {
        walk->flags[sample] &= (uint8_t)~PINNED;
        walk->pinned_bytes -= length_of(walk, sample);
    } else if (walk->resolved.fetcher.policy == STK_POLICY_LRU) {
        sti_evictor_remove_recent(walk->evictor, sample);
    } else if (walk->kept_at[sample] == NEVER) {
        sti_evictor_remove_unknown(walk->evictor, sample);
    } else {
        sti_evictor_remove_position(walk->evictor, walk->kept_at[sample]);
    }
}

static void
make_room(struct walk *walk, uint64_t sample)
{
    uint64_t n_bytes = length_of(walk, sample);
    uint64_t value;

    while (walk->used_bytes + n_bytes > walk->sizes.store_bytes && !can_pass(walk, sample)) {
        enum sti_victim victim =
            sti_evictor_take(walk->evictor, walk->n_known * walk->length, &value);

        if (victim == STI_VICTIM_NONE)
            return; /* held by batches: the loader would wait */
        drop(walk, victim == STI_VICTIM_POSITION ? walk->ids[value] : value);
    }
    if (can_pass(walk, sample)) {
        walk->flags[sample] |= PASSING;
        walk->passing_bytes += n_bytes;
    } else {
        walk->used_bytes += n_bytes;
    }
}

/* Gives positions back until n_bytes more may be staged. */
static void
give_back(struct walk *walk, uint64_t position, uint64_t n_bytes, uint64_t limit_bytes)
{
    while (walk->returned < position && walk->staged_bytes + n_bytes > limit_bytes) {
        uint64_t sample = walk->ids[walk->returned];

        walk->staged_bytes -= length_of(walk, sample);
        if (--walk->pins[sample] == 0 && walk->group == 1)
            settle(walk, sample, walk->returned);
        walk->returned++;
    }
}

/* ---- the walk ---------------------------------------------------------------------- */

static void
bring_from_origin(struct walk *walk, uint64_t sample, stk_explained *epoch)
{
    uint64_t n_bytes = length_of(walk, sample);
    const struct sti_ssd_range *range = &walk->sizes.range;

    if (is_mine(walk, sample) && !is_in_ram(walk, sample))
        walk->ssd_due_bytes -= n_bytes;
    if (n_bytes == 0 || n_bytes > STI_SSD_SAMPLE_MAX || n_bytes < range->least_bytes ||
        n_bytes > range->most_bytes ||
        walk->ssd_used_bytes + walk->ssd_due_bytes + n_bytes > walk->ssd_bytes)
        return;
    walk->flags[sample] |= ON_SSD;
    walk->ssd_used_bytes += n_bytes;
    epoch->ssd_written_bytes += n_bytes;
}

static void
count_for_bound(struct walk *walk, uint64_t sample, stk_tier tier)
{
    bool is_first = !(walk->flags[sample] & SEEN);
    /* On the SSD before it was ever read: from an earlier run, so never new. */
    bool was_warm = is_first && tier == STK_TIER_SSD;

    walk->flags[sample] |= SEEN;
    if (walk->bound.epochs == 1 && was_warm)
        return;
    /* In its epoch it is new unless an earlier position of the epoch had it; padding
     * only. */
    sti_bound_sample(&walk->bound, length_of(walk, sample), true, is_first && !was_warm);
}

/* Memory holds the whole file, so neighbours are read along and nothing ever goes. */
static stk_tier
take_group(struct walk *walk, uint64_t sample)
{
    uint64_t first = sample - sample % walk->group;
    uint64_t end = smaller(first + walk->group, sti_dataset_count(walk->dataset));

    if (!(walk->flags[sample] & IN_MEMORY)) {
        for (uint64_t at = first; at < end; at++)
            walk->flags[at] |= IN_MEMORY;
        walk->n_reads++;
        walk->read_bytes += (double)(end - first) * (double)length_of(walk, sample);
    }
    return walk->flags[sample] & SEEN ? STK_TIER_RAM : STK_TIER_ORIGIN;
}

static stk_tier
take_one(struct walk *walk, uint64_t sample, stk_explained *epoch)
{
    uint64_t n_bytes = length_of(walk, sample);

    if (walk->flags[sample] & IN_MEMORY) {
        if (walk->pins[sample] > 0)
            return STK_TIER_RAM;
        unkeep(walk, sample);
        if (can_pass(walk, sample)) {
            walk->flags[sample] |= PASSING;
            walk->passing_bytes += n_bytes;
            walk->used_bytes -= n_bytes;
        }
        return STK_TIER_RAM;
    }
    if (!is_in_ram(walk, sample)) /* else it has its room */
        make_room(walk, sample);
    walk->flags[sample] |= IN_MEMORY;
    if (walk->flags[sample] & ON_SSD)
        return STK_TIER_SSD;
    if (!is_mine(walk, sample) && is_with_peer(walk, sample))
        return STK_TIER_PEER;
    if (is_in_ram(walk, sample) && walk->bound.epochs > 1)
        return STK_TIER_RAM; /* others read it, or it was read ahead */
    bring_from_origin(walk, sample, epoch);
    if (is_mine(walk, sample) && walk->bound.epochs > 1)
        return STK_TIER_SSD; /* likewise */
    walk->n_reads++;
    walk->read_bytes += (double)n_bytes;
    return STK_TIER_ORIGIN;
}

static void
take(struct walk *walk, uint64_t position, stk_explained *epoch)
{
    uint64_t sample = walk->ids[position];
    uint64_t n_bytes = length_of(walk, sample);
    uint64_t limit_bytes = sti_sizes_staged(&walk->sizes, position % walk->length, walk->length);

    /* In slots a sample is held no longer than it is under way. */
    if (walk->resolved.fetcher.item_bytes > 0)
        limit_bytes = smaller(limit_bytes, (uint64_t)walk->depth * walk->sizes.average_bytes);
    give_back(walk, position, n_bytes, limit_bytes);
    stk_tier tier = walk->group > 1 ? take_group(walk, sample) : take_one(walk, sample, epoch);
    count_for_bound(walk, sample, tier);
    walk->pins[sample]++;
    walk->staged_bytes += n_bytes;
    epoch->samples++;
    epoch->bytes += n_bytes;
    epoch->tier_samples[tier]++;
    epoch->tier_bytes[tier] += n_bytes;
}

/* ---- the clock --------------------------------------------------------------------- */

static double
seconds_of(const struct walk *walk, stk_tier tier, double n_samples, double n_bytes)
{
    struct sti_cost_curve curve = {0};

    if (!walk->opts->costs)
        return 0;
    const stk_cost *cost = &walk->opts->costs->tiers[tier];
    const struct sti_cost_point point = {
        .depth = cost->depth > 0 ? cost->depth : 1,
        .latency_s = cost->latency_s,
        .bytes_per_s = cost->bytes_per_s,
    };
    sti_cost_curve_add(&curve, &point);
    return sti_cost_curve_seconds(&curve, n_samples, n_bytes, walk->depth);
}

/* A batch is served and consumed. before: the epoch's counts when it began. Adds to
 * busy_s. */
static void
pass_batch(struct walk *walk, const stk_explained *before, stk_explained *epoch, double *busy_s)
{
    double took_s[STK_TIERS] = {0};
    double *given_s = &walk->given_s[walk->n_batches++ % walk->n_ahead];

    for (int tier = 0; tier < STK_TIERS; tier++) {
        double n_samples = (double)(epoch->tier_samples[tier] - before->tier_samples[tier]);
        double n_bytes = (double)(epoch->tier_bytes[tier] - before->tier_bytes[tier]);

        if (tier == STK_TIER_ORIGIN) {
            n_samples = walk->n_reads;
            n_bytes = walk->read_bytes;
        }
        if (tier == STK_TIER_SSD)
            n_bytes += (double)(epoch->ssd_written_bytes - before->ssd_written_bytes);
        took_s[tier] = seconds_of(walk, (stk_tier)tier, n_samples, n_bytes);
        busy_s[tier] += took_s[tier];
    }
    walk->n_reads = 0;
    walk->read_bytes = 0;
    /* Nothing of it is asked for before the batch that many before it was given back. */
    walk->origin_s =
        (walk->origin_s > *given_s ? walk->origin_s : *given_s) + took_s[STK_TIER_ORIGIN];
    walk->ssd_s = (walk->ssd_s > *given_s ? walk->ssd_s : *given_s) + took_s[STK_TIER_SSD];
    double there_s = walk->origin_s > walk->ssd_s ? walk->origin_s : walk->ssd_s;
    if (there_s < walk->consumer_s)
        there_s = walk->consumer_s;
    epoch->stall_fraction += there_s - walk->consumer_s; /* seconds, for now */
    walk->consumer_s = there_s + took_s[STK_TIER_RAM] + walk->opts->compute_s;
    *given_s = walk->consumer_s;
}

static void
conclude_epoch(const struct walk *walk, stk_explained *epoch, double began_s, const double *busy_s)
{
    double compute_s = (double)epoch->batches * walk->opts->compute_s;
    int limit = STK_TIER_RAM;

    epoch->seconds = walk->opts->costs ? walk->consumer_s - began_s : 0;
    epoch->stall_fraction = epoch->seconds > 0 ? epoch->stall_fraction / epoch->seconds : 0;
    epoch->required_bytes_per_s = compute_s > 0 ? (double)epoch->bytes / compute_s : 0;
    for (int tier = 0; tier < STK_TIERS; tier++)
        if (busy_s[tier] > busy_s[limit])
            limit = tier;
    if (compute_s > 0 && epoch->stall_fraction < STALL_LEAST)
        limit = STK_TIERS;
    epoch->limit = (uint32_t)limit;
}

static void
walk_epoch(struct walk *walk, uint64_t idx, stk_explained *epoch)
{
    uint32_t batch_size = walk->resolved.fetcher.batch_size;
    double busy_s[STK_TIERS] = {0};
    double began_s = walk->consumer_s;

    *epoch = (stk_explained){.epoch = idx};
    sti_bound_epoch(&walk->bound);
    for (uint64_t at = 0; at < walk->length; at += batch_size) {
        uint64_t end = smaller(at + batch_size, walk->length);
        stk_explained before = *epoch;

        for (uint64_t position = at; position < end; position++)
            take(walk, idx * walk->length + position, epoch);
        epoch->batches++;
        pass_batch(walk, &before, epoch, busy_s);
    }
    epoch->bound_bytes =
        walk->is_shared ? sti_holders_bound(&walk->holders, idx) : sti_bound_of_epoch(&walk->bound);
    conclude_epoch(walk, epoch, began_s, busy_s);
}

/* ---- set-up ------------------------------------------------------------------------ */

static int
make_tables(struct walk *walk)
{
    const struct sti_order *order = &walk->resolved.fetcher.order;
    uint64_t n = sti_dataset_count(walk->dataset);
    uint64_t n_positions = walk->n_known * walk->length;
    void *ids = sti_mem_new(sti_order_length(order) + 1, sti_order_id_bytes(order));
    void *scratch = sti_mem_new(1, sti_order_scratch_bytes(order) + 1);
    struct sti_order_cursor *cursor = sti_mem_new(1, sizeof(*cursor));
    int rc = -ENOMEM;

    walk->ids = sti_mem_new(n_positions, sizeof(uint32_t));
    walk->next = sti_mem_new(n_positions, sizeof(uint32_t));
    walk->pins = sti_mem_new(n, sizeof(uint32_t));
    walk->kept_at = sti_mem_new(n, sizeof(uint32_t));
    walk->flags = sti_mem_new(n, 1);
    walk->given_s = sti_mem_new(walk->n_ahead, sizeof(double));
    if (!ids || !scratch || !cursor || !walk->ids || !walk->next || !walk->pins || !walk->kept_at ||
        !walk->flags || !walk->given_s)
        goto out;
    for (uint64_t epoch = 0; epoch < walk->n_known; epoch++) {
        sti_order_epoch(order, epoch, cursor, ids, scratch);
        for (uint64_t at = 0; at < walk->length; at++)
            walk->ids[epoch * walk->length + at] = (uint32_t)sti_order_id(order, ids, at);
    }
    /* Backwards: kept_at serves as the last position seen, plus one. */
    for (uint64_t at = n_positions; at-- > 0;) {
        uint32_t *seen = &walk->kept_at[walk->ids[at]];

        walk->next[at] = *seen == 0 ? NEVER : *seen - 1;
        *seen = (uint32_t)at + 1;
    }
    rc = 0;

out:
    sti_mem_free(cursor);
    sti_mem_free(scratch);
    sti_mem_free(ids);
    return rc;
}

static void
free_tables(struct walk *walk)
{
    sti_evictor_free(walk->evictor);
    sti_holders_fini(&walk->holders);
    sti_mem_free(walk->ids);
    sti_mem_free(walk->next);
    sti_mem_free(walk->pins);
    sti_mem_free(walk->kept_at);
    sti_mem_free(walk->flags);
    sti_mem_free(walk->given_s);
}

/* What the SSDs hold from the start. */
static void
warm(struct walk *walk)
{
    stk_explained ignored = {0};
    uint64_t n = sti_dataset_count(walk->dataset);

    for (uint64_t sample = 0; walk->opts->is_warm == 1 && sample < n; sample++)
        if (!walk->is_shared || is_mine(walk, sample))
            bring_from_origin(walk, sample, &ignored);
}

/* What comes ahead of its use, from the second epoch on. */
static void
take_copies(struct walk *walk)
{
    uint64_t due_bytes = walk->used_bytes + walk->sizes.held_bytes;
    uint64_t end = walk->n_known * walk->length;
    uint64_t spare_bytes =
        walk->sizes.store_bytes > due_bytes ? walk->sizes.store_bytes - due_bytes : 0;

    if (!walk->is_shared || sti_place_keep_shared(walk->resolved.fetcher.shared_policy, false,
                                                  STI_NEXT_USE_KNOWN) == STI_KEEP_NOT)
        return;
    for (uint64_t position = walk->length; position < end; position++) {
        uint64_t sample = walk->ids[position];
        uint64_t n_bytes = length_of(walk, sample);
        bool is_held = is_mine(walk, sample) || (walk->flags[sample] & (IN_MEMORY | ON_SSD));

        if (is_held || !is_with_peer(walk, sample))
            continue;
        if (!sti_replica_comes_ahead(is_held, spare_bytes, n_bytes))
            return;
        spare_bytes -= n_bytes;
        walk->used_bytes += n_bytes;
        walk->flags[sample] |= IN_MEMORY;
        walk->kept_at[sample] = (uint32_t)position;
        sti_evictor_add_position(walk->evictor, position, STI_CLASS_STORED);
    }
}

/* Who holds what, when all ranks have what this one has. */
static int
plan_holders(struct walk *walk, uint32_t world)
{
    uint64_t *rooms = sti_mem_new(world, 2 * sizeof(*rooms));
    bool has_ssd =
        walk->ssd_bytes > 0 && sti_dataset_max_bytes(walk->dataset) <= STI_SSD_SAMPLE_MAX;
    uint32_t *bytes = NULL;
    struct sti_holders_opts opts;
    int rc = rooms ? sti_share_plan_opts(&walk->resolved.fetcher, 0, &opts, &bytes) : -ENOMEM;

    if (rc == 0) {
        for (uint32_t rank = 0; rank < world; rank++) {
            rooms[rank] = walk->ram_bytes;
            rooms[world + rank] = walk->ssd_bytes;
        }
        opts.room_bytes = rooms;
        opts.ssd_bytes = has_ssd ? rooms + world : NULL;
        opts.total_bytes =
            world * sti_share_total_bytes(&walk->resolved.fetcher, has_ssd ? walk->ssd_bytes : 0);
        rc = sti_holders_init(&walk->holders, &opts);
        walk->used_bytes = walk->holders.mine_bytes;
        walk->ssd_due_bytes = walk->holders.mine_ssd_bytes;
    }
    sti_mem_free(bytes);
    sti_mem_free(rooms);
    return rc;
}

static int
take_tiers(struct walk *walk, stk_error *err)
{
    struct sti_hierarchy *tiers = sti_mem_new(1, sizeof(*tiers));
    uint64_t ssd_bytes = 0;

    if (!tiers)
        return sti_error_set(err, -ENOMEM, "no memory for the tiers");
    int rc = sti_hierarchy_parse(tiers, walk->opts->tiers, err);
    if (rc == 0 && walk->opts->node_ranks > 1)
        rc = sti_hierarchy_divide(tiers, walk->opts->node_ranks, err);
    for (uint32_t at = 0; rc == 0 && at < tiers->n_ssds; at++)
        ssd_bytes += tiers->ssds[at].n_bytes;
    uint64_t ram_bytes = tiers->ram_bytes;
    sti_mem_free(tiers);
    if (rc < 0)
        return rc;
    if (ram_bytes < walk->resolved.ram_least_bytes || ssd_bytes < walk->resolved.ssd_least_bytes)
        return sti_error_set(err, STK_E_INFEASIBLE,
                             "ram_bytes or ssd_bytes is more than the tiers have");
    walk->ram_bytes = smaller(walk->resolved.fetcher.ram_bytes, ram_bytes);
    walk->resolved.fetcher.ram_bytes = walk->ram_bytes;
    walk->ssd_bytes = smaller(walk->resolved.ssd_bytes, ssd_bytes);
    return 0;
}

/* How many epochs are walked, and how many are in the tables. */
static void
count_epochs(struct walk *walk)
{
    const struct sti_fetcher_opts *fetcher = &walk->resolved.fetcher;
    uint64_t most = fetcher->order.world == 1 ? EPOCHS_ALONE : 2 * (uint64_t)fetcher->order.world;

    if (most < EPOCHS_ALONE)
        most = EPOCHS_ALONE;
    if (walk->length > 0)
        most = smaller(most, POSITIONS_MAX / walk->length);
    most = most < 2 ? 2 : most;
    walk->end_epoch = fetcher->epochs > 0 ? fetcher->epochs : UINT64_MAX;
    walk->n_epochs = smaller(most, walk->end_epoch);
    walk->n_known = smaller(walk->n_epochs + 1, walk->end_epoch);
}

static void
look_at_reads(struct walk *walk)
{
    const struct sti_fetcher_opts *fetcher = &walk->resolved.fetcher;
    uint64_t uniform_bytes = sti_dataset_uniform_bytes(walk->dataset);
    double batch_bytes = (double)sti_dataset_bytes(walk->dataset) * (double)fetcher->batch_size /
                         (double)sti_dataset_count(walk->dataset);

    /* Neighbours in a file that memory holds are read together. */
    walk->group = 1;
    if (sti_dataset_is_one_file(walk->dataset) && uniform_bytes > 0 &&
        uniform_bytes < GROUP_BYTES / 4 && fetcher->order.world == 1 && walk->ssd_bytes == 0 &&
        walk->sizes.store_bytes >= sti_dataset_bytes(walk->dataset))
        walk->group = (uint32_t)(GROUP_BYTES / uniform_bytes);
    walk->depth = walk->opts->queue_depth ? walk->opts->queue_depth : STK_QUEUE_DEPTH;
    /* Nothing may be missing from a batch that just fits; a set of empty samples always does,
     * and slots are there for all. */
    double n_ahead = batch_bytes > 0 && fetcher->item_bytes == 0
                         ? (double)walk->sizes.held_bytes / batch_bytes + 1e-6
                         : 1e9;
    walk->n_ahead = n_ahead < (double)fetcher->n_records ? (uint64_t)n_ahead : fetcher->n_records;
    walk->n_ahead = walk->n_ahead < 1 ? 1 : walk->n_ahead;
}

static int
prepare(struct walk *walk, stk_error *err)
{
    const stk_order_opts *order = walk->opts->loader->order;
    bool has_peers = walk->opts->has_peers == 1 && order && order->world > 1;
    const struct sti_plan_opts asked = {.opts = walk->opts->loader,
                                        .order = order,
                                        .dataset = walk->dataset,
                                        .world = has_peers ? order->world : 0,
                                        .rank = has_peers ? order->rank : 0};
    struct sti_fetcher_opts *fetcher = &walk->resolved.fetcher;
    int rc = sti_loader_resolve(&walk->resolved, &asked, err);

    if (rc == 0)
        rc = take_tiers(walk, err);
    if (rc < 0)
        return rc;
    if (fetcher->order.kind == STK_ORDER_LIST || sti_dataset_count(walk->dataset) > SAMPLES_MAX)
        return sti_error_set(err, -ENOTSUP,
                             "a run of a pushed list, or of more than %" PRIu64
                             " samples, cannot be told",
                             SAMPLES_MAX);
    walk->length = sti_order_length(&fetcher->order);
    if (fetcher->drop_last)
        walk->length -= walk->length % fetcher->batch_size;
    if (walk->length == 0)
        return sti_error_set(err, STK_E_INFEASIBLE, "an epoch of this rank has no batch");
    walk->sizes = sti_sizes_choose(fetcher, walk->ssd_bytes);
    sti_bound_init(&walk->bound, walk->sizes.store_bytes + walk->ssd_bytes);
    count_epochs(walk);
    look_at_reads(walk);
    rc = sti_evictor_new(&walk->evictor, fetcher->policy, sti_dataset_count(walk->dataset),
                         walk->n_known * walk->length + 1, true);
    if (rc == 0)
        rc = make_tables(walk);
    walk->is_shared = sti_loader_is_shared(&asked);
    if (rc == 0 && walk->is_shared)
        rc = plan_holders(walk, order->world);
    return rc < 0 ? sti_error_set(err, rc, "no memory for the tables of %" PRIu64 " epochs",
                                  walk->n_known)
                  : 0;
}

static void
add(stk_explained *run, const stk_explained *epoch)
{
    run->batches += epoch->batches;
    run->samples += epoch->samples;
    run->bytes += epoch->bytes;
    for (int tier = 0; tier < STK_TIERS; tier++) {
        run->tier_samples[tier] += epoch->tier_samples[tier];
        run->tier_bytes[tier] += epoch->tier_bytes[tier];
    }
    run->bound_bytes += epoch->bound_bytes;
    run->ssd_written_bytes += epoch->ssd_written_bytes;
    run->stall_fraction += epoch->stall_fraction * epoch->seconds;
    run->seconds += epoch->seconds;
    run->required_bytes_per_s = epoch->required_bytes_per_s;
    run->limit = epoch->limit;
}

int
sti_explain(const struct sti_dataset *dataset, const stk_explain_opts *opts, stk_explained *epochs,
            uint32_t n_epochs, stk_explained *ret_run, stk_error *err)
{
    struct walk *walk = sti_mem_new(1, sizeof(*walk));
    stk_explained run = {.epoch = UINT64_MAX};
    stk_explained epoch = {0};

    if (!walk)
        return sti_error_set(err, -ENOMEM, "no memory to tell a run");
    walk->dataset = dataset;
    walk->opts = opts;
    int rc = prepare(walk, err);
    if (rc < 0)
        goto out;
    warm(walk);
    take_copies(walk);
    uint64_t end = walk->end_epoch == UINT64_MAX ? walk->n_epochs : walk->end_epoch;
    for (uint64_t idx = 0; idx < end; idx++) {
        if (idx < walk->n_epochs)
            walk_epoch(walk, idx, &epoch);
        epoch.epoch = idx;
        if (idx < n_epochs)
            epochs[idx] = epoch;
        add(&run, &epoch);
    }
    run.stall_fraction = run.seconds > 0 ? run.stall_fraction / run.seconds : 0;
    *ret_run = run;

out:
    free_tables(walk);
    sti_mem_free(walk);
    return rc;
}
