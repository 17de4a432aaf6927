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
 * names.
 */
#include <assert.h>

#include "tier/fetcher_internal.h"

/* The full position of which an entry holds the low half: keys lie within 2^31 of the
 * newest. */
static uint64_t
key_position(const struct sti_fetcher *fetcher, const struct sti_entry *entry)
{
    uint64_t newest = sti_horizon_newest(fetcher->horizon);

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

/* Lets an unused sample go that is in no index any more. */
static void
drop(struct sti_fetcher *fetcher, uint64_t sample, struct sti_entry *entry)
{
    assert(entry->pins == 0 && entry->state == STI_SAMPLE_PRESENT);
    sti_store_put(fetcher->store, entry->address, sti_dataset_length(fetcher->opts.dataset, sample),
                  sti_fetcher_is_in_place(fetcher, sample));
    entry->kept = STI_KEPT_NOT;
    entry->state = STI_SAMPLE_ABSENT;
    sti_catalog_forget(fetcher->catalog, sample);
}

/* Evicts one sample; false when there is none to evict. */
static bool
evict(struct sti_fetcher *fetcher)
{
    uint64_t value;
    enum sti_victim victim =
        sti_evictor_take(fetcher->evictor, sti_horizon_newest(fetcher->horizon), &value);

    if (victim == STI_VICTIM_NONE)
        return false;
    uint64_t sample =
        victim == STI_VICTIM_POSITION ? sti_horizon_sample(fetcher->horizon, value) : value;
    drop(fetcher, sample, sti_catalog_find(fetcher->catalog, sample));
    return true;
}

/* A fragmented store must not stop the stream: when nothing is under way that could free
 * memory and the consumer has nothing to give back but what it works on, a block outside
 * the arena serves. */
static bool
must_go_outside(struct sti_fetcher *fetcher)
{
    return fetcher->n_reading == 0 && fetcher->n_decoding == 0 && !fetcher->growing &&
           sti_staging_ready(&fetcher->staging) == 0;
}

uint64_t
sti_fetcher_make_room(struct sti_fetcher *fetcher, uint64_t n_bytes, bool is_in_place)
{
    for (;;) {
        uint64_t address = sti_store_get(fetcher->store, n_bytes, is_in_place);

        if (address != STI_STORE_NONE)
            return address;
        /* What would be evicted now might be known to be used soon a moment later; as
         * long as the consumer has batches, wait for the knowledge. */
        if (sti_horizon_is_catching_up(fetcher->horizon) &&
            sti_staging_ready(&fetcher->staging) > 0)
            return STI_STORE_NONE;
        if (!evict(fetcher))
            break;
    }
    if (!must_go_outside(fetcher))
        return STI_STORE_NONE;
    return sti_store_get_outside(fetcher->store, n_bytes, is_in_place);
}

void
sti_fetcher_pin(struct sti_fetcher *fetcher, uint64_t sample, struct sti_entry *entry)
{
    if (entry->pins == 0)
        unkeep(fetcher, sample, entry);
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

static enum sti_class
class_of(const struct sti_fetcher *fetcher, uint64_t sample, uint64_t n_bytes)
{
    if (sti_ssd_has(fetcher->ssd, sample))
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
    switch (sti_place_keep(fetcher->opts.policy, kind, n_bytes,
                           fetcher->opts.ram_bytes - fetcher->pinned_bytes)) {
    case STI_KEEP_NOT:
        drop(fetcher, sample, entry);
        break;
    case STI_KEEP_PINNED:
        if (sti_ssd_has(fetcher->ssd, sample)) { /* leave the room to one that has no other */
            drop(fetcher, sample, entry);
            break;
        }
        entry->kept = STI_KEPT_PINNED;
        fetcher->pinned_bytes += n_bytes;
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
sti_fetcher_unpin(struct sti_fetcher *fetcher, const struct sti_record *record, uint32_t item)
{
    uint64_t sample = record->samples[item];
    struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);
    uint64_t next_use = record->next_use[item];

    assert(entry->pins > 0);
    if (--entry->pins > 0 || entry->state != STI_SAMPLE_PRESENT)
        return;
    if (fetcher->opts.policy != STK_POLICY_NEXT_USE || next_use == STI_POSITION_OF_ANOTHER)
        next_use = STI_POSITION_UNKNOWN;
    else if (next_use == STI_POSITION_UNKNOWN || next_use < fetcher->position)
        next_use = sti_fetcher_next_use(fetcher, record->cut.first_position + item);
    sti_fetcher_settle(fetcher, sample, entry, next_use);
}

void
sti_fetcher_on_next_use(void *context, uint64_t sample, uint64_t position)
{
    struct sti_fetcher *fetcher = context;
    struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);

    if (entry->state != STI_SAMPLE_PRESENT || entry->pins > 0 || entry->kept != STI_KEPT_UNKNOWN ||
        position < fetcher->position)
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
