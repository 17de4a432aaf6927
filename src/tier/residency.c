/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stays in memory. A sample is pinned while a batch uses it; when the last use ends,
 * policy/place decides, and the evictor remembers in which order the kept ones have to
 * go.
 *
 * Staged and cached samples share one store. So what is staged at an epoch's end is a
 * cache hit in the next one like anything else, and the whole of RAM part + staging
 * counts as capacity: with next-use placement the origin bytes then equal the bound. What
 * the SSD holds goes first from memory, so that together they hold as much as they can;
 * behind it goes what saves the least origin time per byte, if not everything has room
 * (policy/density).
 *
 * Invariant: an entry that is PRESENT with no pins is in exactly the index that `kept`
 * names. With pins it is in none, and ORDERED says that `key` is a use that was found
 * after the sample was staged.
 */
#include <assert.h>

#include "policy/fit.h"
#include "tier/fetcher_internal.h"

/* What peers are served from SSDs may take of memory that is in use. */
#define SERVED_OVER_BYTES (UINT64_C(16) << 20)

/* The full position of which an entry holds the low half: keys lie within 2^31 of the
 * newest. */
static uint64_t
key_position(const struct sti_fetcher *fetcher, const struct sti_entry *entry)
{
    uint64_t newest = sti_horizon_newest(fetcher->horizon, fetcher->position);

    return newest - (uint32_t)((uint32_t)newest - entry->key);
}

/* Takes an unused sample out of its index. */
static void
unkeep(struct sti_fetcher *fetcher, uint64_t sample, struct sti_entry *entry)
{
    switch ((enum sti_kept)entry->kept) {
    case STI_KEPT_NOT:
        break;
    case STI_KEPT_PINNED:
        fetcher->pinned_bytes -= sti_dataset_length(fetcher->opts.dataset, sample);
        if (fetcher->peering && !sti_fetcher_is_in_ram(fetcher, sample))
            fetcher->peering->replan.pinned_bytes -=
                sti_dataset_length(fetcher->opts.dataset, sample);
        break;
    case STI_KEPT_ORDERED:
        if (fetcher->opts.policy == STK_POLICY_LRU)
            sti_evictor_remove_recent(fetcher->evictor, sample);
        else
            sti_evictor_remove_position(fetcher->evictor, key_position(fetcher, entry));
        break;
    case STI_KEPT_UNKNOWN:
        sti_evictor_remove_unknown(fetcher->evictor, sample);
        break;
    }
    entry->kept = STI_KEPT_NOT;
}

/* ---- what the SSD has, too --------------------------------------------------------- */

/* A sample that the SSD has is only passing through: it is in memory because a batch needs
 * it. As much as transit_bytes of such samples have memory of their own, so that they take
 * none from those that memory alone holds. */
static bool
can_pass(const struct sti_fetcher *fetcher, uint64_t n_bytes)
{
    return fetcher->passing_bytes + n_bytes <= fetcher->sizes.transit_bytes;
}

static void
begin_to_pass(struct sti_fetcher *fetcher, uint64_t sample, uint64_t n_bytes)
{
    if (can_pass(fetcher, n_bytes) && sti_bitset_add(&fetcher->passing, sample))
        fetcher->passing_bytes += n_bytes;
}

static bool
has_memory(const struct sti_fetcher *fetcher, uint64_t n_bytes, bool is_stored)
{
    uint64_t used_bytes = sti_store_used_bytes(fetcher->store) - fetcher->passing_bytes;

    return used_bytes + n_bytes <= fetcher->sizes.store_bytes ||
           (is_stored && can_pass(fetcher, n_bytes));
}

/* ---- memory ------------------------------------------------------------------------ */

void
sti_fetcher_put_memory(struct sti_fetcher *fetcher, uint64_t sample, uint64_t address)
{
    uint64_t n_bytes = sti_dataset_length(fetcher->opts.dataset, sample);

    if (fetcher->sizes.transit_bytes > 0 && sti_bitset_remove(&fetcher->passing, sample))
        fetcher->passing_bytes -= n_bytes;
    if (sti_fetcher_is_in_ram(fetcher, sample))
        fetcher->peering->begun_bytes -= n_bytes;
    sti_store_put(fetcher->store, address, n_bytes, sti_fetcher_is_in_place(fetcher, sample));
}

/* Lets an unused sample go that is in no index any more. */
static void
drop(struct sti_fetcher *fetcher, uint64_t sample, struct sti_entry *entry)
{
    assert(entry->pins == 0 && entry->state == STI_SAMPLE_PRESENT);
    sti_fetcher_put_memory(fetcher, sample, entry->address);
    entry->kept = STI_KEPT_NOT;
    entry->state = STI_SAMPLE_ABSENT;
    sti_catalog_forget(fetcher->catalog, sample);
}

static uint64_t
victim_sample(struct sti_fetcher *fetcher, enum sti_victim victim, uint64_t value)
{
    return victim == STI_VICTIM_POSITION ? sti_horizon_sample(fetcher->horizon, value) : value;
}

static uint64_t
epoch_end(const struct sti_fetcher *fetcher)
{
    return sti_horizon_epoch_end(fetcher->horizon, fetcher->record->cut.first_position);
}

/* Whether a next use lies so far in the next epoch that missing it there costs no more
 * than missing the farthest: what was staged before it makes the room for its read. The
 * farther half of those that may go is taken to be. */
static bool
is_far(const struct sti_fetcher *fetcher, uint64_t position)
{
    uint64_t end_position = epoch_end(fetcher);

    return position >= end_position && (position - end_position) * fetcher->sizes.average_bytes >=
                                           2 * fetcher->sizes.held_bytes;
}

/* Of the first that have to go, the one to go so that least is left unused. */
static uint64_t
find_fit(struct sti_fetcher *fetcher, uint64_t need_bytes)
{
    uint64_t values[STI_FIT_MOST], sizes[STI_FIT_MOST];
    uint32_t n_seen = 0, n = 0;
    uint64_t n_alike = 0;
    enum sti_victim victim =
        sti_evictor_look(fetcher->evictor, sti_horizon_newest(fetcher->horizon, fetcher->position),
                         values, STI_FIT_MOST, &n_seen, &n_alike);

    if (n_seen == 0)
        return UINT64_MAX;
    for (; n < n_seen; n++) {
        if (n > n_alike / 2 && victim == STI_VICTIM_POSITION && !is_far(fetcher, values[n]) &&
            values[n] >= epoch_end(fetcher))
            break; /* what is missed in this epoch costs its own bytes, whichever it is */
        sizes[n] =
            sti_dataset_length(fetcher->opts.dataset, victim_sample(fetcher, victim, values[n]));
    }
    return victim_sample(fetcher, victim, values[sti_fit_choose(sizes, n, need_bytes)]);
}

/* Whether all that may go will be used in this epoch still, and is missed then. */
static bool
is_missed_soon(struct sti_fetcher *fetcher)
{
    uint64_t value;
    uint32_t n_seen = 0;
    uint64_t n_alike = 0;
    enum sti_victim victim =
        sti_evictor_look(fetcher->evictor, sti_horizon_newest(fetcher->horizon, fetcher->position),
                         &value, 1, &n_seen, &n_alike);

    return n_seen > 0 && victim == STI_VICTIM_POSITION && value < epoch_end(fetcher);
}

/* Near an epoch's end what is not used of the store is missed in the next one; before that,
 * what goes sooner than it is used is missed in this one. */
static bool
must_fit(struct sti_fetcher *fetcher)
{
    const struct sti_record *record = fetcher->record;

    if (fetcher->opts.policy != STK_POLICY_NEXT_USE || !record ||
        sti_dataset_uniform_bytes(fetcher->opts.dataset) > 0)
        return false;
    uint64_t length = sti_horizon_epoch_length(fetcher->horizon);
    uint64_t idx = record->cut.epoch_step * fetcher->opts.batch_size + record->n_taken;
    return length > 0 &&
           ((length - idx) * fetcher->sizes.average_bytes <= fetcher->sizes.held_bytes ||
            is_missed_soon(fetcher));
}

/* Evicts one sample so that need_bytes more can be taken, or a part of them; false when
 * there is none to evict. */
static bool
evict(struct sti_fetcher *fetcher, uint64_t need_bytes)
{
    uint64_t sample = UINT64_MAX;
    uint64_t value;

    if (need_bytes > 0 && must_fit(fetcher)) {
        sample = find_fit(fetcher, need_bytes);
        if (sample != UINT64_MAX)
            unkeep(fetcher, sample, sti_catalog_find(fetcher->catalog, sample));
    } else {
        enum sti_victim victim = sti_evictor_take(
            fetcher->evictor, sti_horizon_newest(fetcher->horizon, fetcher->position), &value);

        if (victim != STI_VICTIM_NONE)
            sample = victim_sample(fetcher, victim, value);
    }
    if (sample == UINT64_MAX)
        return false;
    drop(fetcher, sample, sti_catalog_find(fetcher->catalog, sample));
    return true;
}

/* A fragmented store must not stop the stream: when nothing is under way that could free
 * memory and the consumer has nothing to give back but what it works on, a block outside
 * the arena serves. */
static bool
must_go_outside(struct sti_fetcher *fetcher)
{
    bool is_fetching = fetcher->peering && fetcher->peering->n_fetching > 0;

    return fetcher->n_reading == 0 && !is_fetching && fetcher->n_decoding == 0 &&
           !fetcher->growing && sti_staging_ready(&fetcher->staging) == 0;
}

/*
 * Whether to wait rather than to evict: what would go now might be known to be used soon
 * a moment later, and going without that costs up to the staged bytes at an epoch's end.
 *
 * Such a wait always ends, since nothing that it waits for waits for memory, for the
 * origin or for the consumer:
 *   - It is over when the next epoch's table is made and linked. The job that makes a table
 *     is computation on the pool; hurried, only what is urgent already is before it.
 *   - Linking is the horizon's step alone. A step that has linked something asks for another
 *     one; the end of the job wakes the loop; and a walk that stops for the order at
 *     another position than the step was told asks for one more, which begins the job.
 *   - There is a slot for the table: horizon_table.c.
 *   - Without memory for a table there is no wait, and no later than that the eviction takes
 *     whatever is there. A list and a computed order never have to be waited for.
 * So borrowed batches, other loaders, an interrupt, a seek or a stop neither end the wait
 * nor are held up by it: commands are obeyed at the head of each step. Where nothing can
 * be evicted at the end of the wait, everything in the store is staged or under way, and
 * then it is as it was without waiting: reads come to their end, and the consumer holds
 * no more than borrow_max batches beside which two have room.
 */
static bool
must_wait_for_order(struct sti_fetcher *fetcher)
{
    bool is_waited_for = sti_staging_ready(&fetcher->staging) == 0;
    /* The position being taken; fetcher->position lies behind it. */
    bool must_wait =
        sti_horizon_is_catching_up(fetcher->horizon, fetcher->position - 1, !is_waited_for);

    fetcher->is_waiting_for_order |= must_wait;
    return must_wait;
}

/* A place for a sample within what may be used now; STI_STORE_NONE without one. */
static uint64_t
get_memory(struct sti_fetcher *fetcher, uint64_t sample, uint64_t n_bytes)
{
    bool is_stored = fetcher->sizes.transit_bytes > 0 && sti_ssd_has(fetcher->ssd, sample);

    if (!has_memory(fetcher, n_bytes, is_stored))
        return STI_STORE_NONE;
    uint64_t address =
        sti_store_get(fetcher->store, n_bytes, sti_fetcher_is_in_place(fetcher, sample));
    if (address != STI_STORE_NONE && is_stored)
        begin_to_pass(fetcher, sample, n_bytes);
    return address;
}

/* What is missing for so many bytes more. */
static uint64_t
need_of(const struct sti_fetcher *fetcher, uint64_t n_bytes)
{
    uint64_t wanted_bytes = sti_store_used_bytes(fetcher->store) - fetcher->passing_bytes + n_bytes;

    return wanted_bytes > fetcher->sizes.store_bytes ? wanted_bytes - fetcher->sizes.store_bytes
                                                     : 0;
}

/*
 * Whether a peer is served from an SSD though all memory is in use: batches may have all of
 * it and wait for peers whose batches wait for this one, so it must not wait for them. One
 * sample at a time, or what is little.
 */
static bool
must_serve(const struct sti_fetcher *fetcher, uint64_t n_bytes)
{
    uint64_t over_bytes = need_of(fetcher, n_bytes);

    return fetcher->is_serving && (over_bytes <= SERVED_OVER_BYTES || over_bytes <= n_bytes);
}

static uint64_t
make_room(struct sti_fetcher *fetcher, uint64_t sample, uint64_t n_bytes)
{
    for (;;) {
        uint64_t address = get_memory(fetcher, sample, n_bytes);

        if (address != STI_STORE_NONE)
            return address;
        if (must_wait_for_order(fetcher))
            return STI_STORE_NONE;
        if (!evict(fetcher, need_of(fetcher, n_bytes)))
            break;
    }
    /* What is held for all has its room by the plan, if not in one piece. */
    bool is_due = sti_fetcher_is_in_ram(fetcher, sample) && need_of(fetcher, n_bytes) == 0;
    if (!is_due && !must_serve(fetcher, n_bytes) && !must_go_outside(fetcher))
        return STI_STORE_NONE;
    return sti_store_get_outside(fetcher->store, n_bytes, sti_fetcher_is_in_place(fetcher, sample));
}

uint64_t
sti_fetcher_make_room(struct sti_fetcher *fetcher, uint64_t sample)
{
    uint64_t n_bytes = sti_dataset_length(fetcher->opts.dataset, sample);
    uint64_t address = make_room(fetcher, sample, n_bytes);

    if (address != STI_STORE_NONE && sti_fetcher_is_in_ram(fetcher, sample))
        fetcher->peering->begun_bytes += n_bytes;
    return address;
}

void
sti_fetcher_pin(struct sti_fetcher *fetcher, uint64_t sample, struct sti_entry *entry)
{
    if (entry->pins == 0) {
        unkeep(fetcher, sample, entry);
        if (fetcher->sizes.transit_bytes > 0 && sti_ssd_has(fetcher->ssd, sample))
            begin_to_pass(fetcher, sample, sti_dataset_length(fetcher->opts.dataset, sample));
    }
    entry->pins++;
}

uint64_t
sti_fetcher_next_use(struct sti_fetcher *fetcher, uint64_t position)
{
    for (;;) {
        switch (sti_horizon_next_use(fetcher->horizon, position, &position)) {
        case STI_NEXT_USE_KNOWN:
            break;
        case STI_NEXT_USE_UNKNOWN:
            return STI_POSITION_UNKNOWN;
        case STI_NEXT_USE_NEVER:
            return STI_POSITION_NEVER;
        }
        if (position >= fetcher->position)
            return position;
        /* Used again by a batch that was staged already: look behind that use. */
    }
}

/* Whether a peer holds a sample: then a copy here spares the network, not the origin. */
static bool
is_with_peer(const struct sti_fetcher *fetcher, uint64_t sample)
{
    return fetcher->peering && sti_holders_next(&fetcher->peering->holders, sample,
                                                fetcher->peering->rank) != STI_HOLDERS_NOBODY;
}

/* Whether memory keeps a sample that this rank serves for its holder: as far as there is room
 * that nothing else has, and no SSD has it. */
static bool
is_kept_for_others(const struct sti_fetcher *fetcher, uint64_t sample)
{
    const struct sti_peering *peering = fetcher->peering;

    return sti_replan_is_relieving(&peering->replan, sample, peering->rank) &&
           !sti_ssd_has(fetcher->ssd, sample) &&
           peering->replan.pinned_bytes + sti_dataset_length(fetcher->opts.dataset, sample) <=
               peering->replan.ram_spare_bytes;
}

void
sti_fetcher_keep_for_others(struct sti_fetcher *fetcher, uint64_t sample)
{
    const struct sti_peering *peering = fetcher->peering;
    const struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);
    uint64_t n_bytes = sti_dataset_length(fetcher->opts.dataset, sample);

    if (!fetcher->ssd || !sti_replan_is_relieving(&peering->replan, sample, peering->rank) ||
        is_kept_for_others(fetcher, sample) || sti_ssd_has(fetcher->ssd, sample) ||
        !sti_ssd_is_ready(fetcher->ssd, 1, n_bytes) ||
        !sti_fetcher_goes_to_ssd(fetcher, sample, n_bytes))
        return;
    struct sti_ssd_slot slot = sti_ssd_reserve(fetcher->ssd, sample, n_bytes);
    if (slot.segment == STI_SSD_NO_SLOT)
        return;
    sti_ssd_fill(fetcher->ssd, slot, sti_store_pointer(fetcher->store, entry->address));
    sti_ssd_settle(fetcher->ssd, slot, true);
}

/* What becomes of a sample that nobody uses now. */
static enum sti_keep
keep_of(const struct sti_fetcher *fetcher, uint64_t sample, enum sti_next_use kind)
{
    uint64_t n_bytes = sti_dataset_length(fetcher->opts.dataset, sample);
    uint64_t pin_room_bytes = fetcher->opts.ram_bytes - fetcher->pinned_bytes;

    if (!fetcher->peering)
        return sti_place_keep(fetcher->opts.policy, kind, n_bytes, pin_room_bytes);
    bool stays = sti_fetcher_is_in_ram(fetcher, sample) || is_kept_for_others(fetcher, sample);
    return sti_place_keep_shared(fetcher->opts.shared_policy, stays, kind);
}

static enum sti_class
class_of(const struct sti_fetcher *fetcher, uint64_t sample, uint64_t n_bytes)
{
    if (sti_ssd_has(fetcher->ssd, sample) || is_with_peer(fetcher, sample))
        return STI_CLASS_STORED;
    return n_bytes > fetcher->sizes.worthy_bytes ? STI_CLASS_LIGHT : STI_CLASS_WORTHY;
}

void
sti_fetcher_settle(struct sti_fetcher *fetcher, uint64_t sample, struct sti_entry *entry,
                   uint64_t next_use)
{
    uint64_t n_bytes = sti_dataset_length(fetcher->opts.dataset, sample);
    enum sti_next_use kind = next_use == STI_POSITION_UNKNOWN ? STI_NEXT_USE_UNKNOWN
                             : next_use == STI_POSITION_NEVER ? STI_NEXT_USE_NEVER
                                                              : STI_NEXT_USE_KNOWN;

    /* The smallest stay: their part of the store is theirs alone. */
    if (sti_store_is_small(fetcher->store, entry->address) && kind != STI_NEXT_USE_NEVER) {
        entry->kept = STI_KEPT_PINNED;
        fetcher->pinned_bytes += n_bytes;
        return;
    }
    switch (keep_of(fetcher, sample, kind)) {
    case STI_KEEP_NOT:
        drop(fetcher, sample, entry);
        break;
    case STI_KEEP_PINNED:
        /* Leave the room to one that has no other; with peers it is planned. */
        if (!fetcher->peering && sti_ssd_has(fetcher->ssd, sample)) {
            drop(fetcher, sample, entry);
            break;
        }
        entry->kept = STI_KEPT_PINNED;
        fetcher->pinned_bytes += n_bytes;
        if (fetcher->peering && !sti_fetcher_is_in_ram(fetcher, sample))
            fetcher->peering->replan.pinned_bytes += n_bytes;
        break;
    case STI_KEEP_BY_RECENT:
        entry->kept = STI_KEPT_ORDERED;
        sti_evictor_add_recent(fetcher->evictor, sample);
        break;
    case STI_KEEP_BY_NEXT:
        entry->kept = STI_KEPT_ORDERED;
        entry->key = (uint32_t)next_use;
        sti_evictor_add_position(fetcher->evictor, next_use, class_of(fetcher, sample, n_bytes));
        break;
    case STI_KEEP_UNKNOWN:
        entry->kept = STI_KEPT_UNKNOWN;
        sti_evictor_add_unknown(fetcher->evictor, sample, class_of(fetcher, sample, n_bytes));
        break;
    }
}

void
sti_fetcher_settle_again(struct sti_fetcher *fetcher, uint64_t sample)
{
    struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);
    uint64_t next_use = STI_POSITION_UNKNOWN;

    if (!entry || entry->state != STI_SAMPLE_PRESENT || entry->pins > 0)
        return;
    if (entry->kept == STI_KEPT_ORDERED && fetcher->opts.policy != STK_POLICY_LRU)
        next_use = key_position(fetcher, entry);
    unkeep(fetcher, sample, entry);
    sti_fetcher_settle(fetcher, sample, entry, next_use);
}

/* The next use of a record's item, as far as it is known now. */
static uint64_t
next_use_of(struct sti_fetcher *fetcher, const struct sti_record *record, uint32_t item,
            const struct sti_entry *entry)
{
    uint64_t next_use = record->next_use[item];

    if (fetcher->opts.policy != STK_POLICY_NEXT_USE || next_use == STI_POSITION_OF_ANOTHER)
        return STI_POSITION_UNKNOWN;
    if (next_use == STI_POSITION_UNKNOWN)
        next_use = sti_fetcher_next_use(fetcher, record->cut.first_position + item);
    /* A batch held for long outlives its epoch's table, but not what was told of it. */
    if (next_use == STI_POSITION_UNKNOWN && entry->kept == STI_KEPT_ORDERED)
        next_use = key_position(fetcher, entry);
    if (next_use < fetcher->position) /* staged again since */
        next_use = sti_fetcher_next_use(fetcher, next_use);
    return next_use;
}

void
sti_fetcher_unpin_sample(struct sti_fetcher *fetcher, uint64_t sample)
{
    struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);

    assert(entry->pins > 0);
    if (--entry->pins > 0 || entry->state != STI_SAMPLE_PRESENT)
        return;
    entry->kept = STI_KEPT_NOT;
    /* From an SSD, into memory that is not there: it stays where it was. */
    if (need_of(fetcher, 0) > 0 && sti_ssd_has(fetcher->ssd, sample))
        drop(fetcher, sample, entry);
    else
        sti_fetcher_settle(fetcher, sample, entry, STI_POSITION_UNKNOWN);
}

void
sti_fetcher_unpin(struct sti_fetcher *fetcher, const struct sti_record *record, uint32_t item)
{
    uint64_t sample = record->samples[item];
    struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);

    assert(entry->pins > 0);
    if (--entry->pins > 0 || entry->state != STI_SAMPLE_PRESENT)
        return;
    uint64_t next_use = next_use_of(fetcher, record, item, entry);
    entry->kept = STI_KEPT_NOT;
    sti_fetcher_settle(fetcher, sample, entry, next_use);
}

void
sti_fetcher_on_next_use(void *context, uint64_t sample, uint64_t position)
{
    struct sti_fetcher *fetcher = context;
    struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);

    if (entry->state != STI_SAMPLE_PRESENT || position < fetcher->position)
        return;
    if (entry->pins > 0) { /* in no index; a note for when it is unpinned */
        entry->kept = STI_KEPT_ORDERED;
        entry->key = (uint32_t)position;
        return;
    }
    if (entry->kept != STI_KEPT_UNKNOWN)
        return;
    sti_evictor_remove_unknown(fetcher->evictor, sample);
    entry->kept = STI_KEPT_ORDERED;
    entry->key = (uint32_t)position;
    sti_evictor_add_position(
        fetcher->evictor, position,
        class_of(fetcher, sample, sti_dataset_length(fetcher->opts.dataset, sample)));
}

void
sti_fetcher_pass_over(struct sti_fetcher *fetcher, uint64_t position)
{
    uint64_t sample = sti_horizon_sample(fetcher->horizon, position);
    struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);

    if (fetcher->opts.policy != STK_POLICY_NEXT_USE || !entry ||
        entry->state != STI_SAMPLE_PRESENT || entry->pins > 0 || entry->kept != STI_KEPT_ORDERED ||
        key_position(fetcher, entry) != position)
        return;
    unkeep(fetcher, sample, entry);
    sti_fetcher_settle(fetcher, sample, entry, sti_fetcher_next_use(fetcher, position));
}

static void
make_unknown(void *context, uint64_t sample, struct sti_entry *entry)
{
    struct sti_fetcher *fetcher = context;

    if (entry->state != STI_SAMPLE_PRESENT || entry->pins > 0 || entry->kept != STI_KEPT_ORDERED)
        return;
    entry->kept = STI_KEPT_UNKNOWN;
    sti_evictor_add_unknown(
        fetcher->evictor, sample,
        class_of(fetcher, sample, sti_dataset_length(fetcher->opts.dataset, sample)));
}

void
sti_fetcher_forget_positions(struct sti_fetcher *fetcher)
{
    if (fetcher->opts.policy != STK_POLICY_NEXT_USE || sti_store_used_bytes(fetcher->store) == 0)
        return;
    sti_evictor_clear_positions(fetcher->evictor);
    sti_catalog_each(fetcher->catalog, make_unknown, fetcher);
}

static void
make_known(void *context, uint64_t sample, struct sti_entry *entry)
{
    struct sti_fetcher *fetcher = context;
    uint64_t position;

    if (entry->state == STI_SAMPLE_PRESENT && entry->pins == 0 && entry->kept == STI_KEPT_UNKNOWN &&
        sti_horizon_first_use(fetcher->horizon, sample, &position) == STI_NEXT_USE_KNOWN)
        sti_fetcher_on_next_use(fetcher, sample, position);
}

void
sti_fetcher_renew_positions(struct sti_fetcher *fetcher)
{
    if (fetcher->opts.policy == STK_POLICY_NEXT_USE && sti_store_used_bytes(fetcher->store) > 0)
        sti_catalog_each(fetcher->catalog, make_known, fetcher);
}
