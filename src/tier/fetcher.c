/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk along the stream. A step takes back what the consumer returned and what the
 * pool decoded, goes on with the horizon, and then looks up position after position: a
 * sample in memory is pinned, one under way is waited for, an absent one is read. It
 * stops where staging is full, where no read is free or where the order is not known yet,
 * and goes on there next time. Look-ahead crosses epoch ends because positions do.
 *
 * Everything here is the loop's. The consumer meets it in staging only; commands (seek,
 * stop) are carried out when no chunk is being decoded, so that no record is in other
 * hands.
 */
#include "tier/fetcher.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "budget/budget.h"
#include "tier/fetcher_internal.h"

#define PEEK_AHEAD 12
#define MEMORY_RETRY_NS UINT64_C(10000000)
#define MEMORY_PATIENCE_NS (100 * MEMORY_RETRY_NS) /* for an order, before next says so */

/* ---- one item ---------------------------------------------------------------------- */

/* Points an item's fields into the bytes of its sample. */
static void
put_fields(const struct sti_fetcher *fetcher, struct sti_record *record, uint32_t item,
           uint64_t sample)
{
    const char *bytes = record->items[item];

    for (uint32_t at = 0; at < fetcher->n_fields; at++) {
        struct sti_field_range range = sti_dataset_field(fetcher->opts.dataset, sample, at);
        size_t idx = (size_t)at * fetcher->opts.batch_size + item;

        record->field_items[idx] = range.at == STI_FIELD_NONE ? NULL : bytes + range.at;
        record->field_bytes[idx] = range.n_bytes;
    }
}

void
sti_fetcher_arrive(struct sti_fetcher *fetcher, struct sti_record *record, uint32_t item,
                   uint64_t sample, const struct sti_entry *entry)
{
    record->items[item] = sti_store_pointer(fetcher->store, entry->address);
    if (record->field_items)
        put_fields(fetcher, record, item, sample);
    record->states[item] = STI_ITEM_PINNED;
    if (fetcher->opts.item_bytes > 0) {
        record->arrived[record->n_arrived++] = item;
        return;
    }
    sti_fetcher_note_substitute(fetcher, record, item);
    record->n_pending--;
}

static bool
has_room(const struct sti_fetcher *fetcher, uint64_t n_bytes)
{
    if (fetcher->opts.item_bytes == 0)
        return fetcher->staged_bytes + n_bytes <= fetcher->staging_now;
    return fetcher->raw_bytes == 0 || fetcher->raw_bytes + n_bytes <= fetcher->sizes.held_bytes;
}

static void
account_item(struct sti_fetcher *fetcher, struct sti_record *record, uint32_t item, uint64_t sample,
             enum stk_tier tier)
{
    uint64_t n_bytes = sti_dataset_length(fetcher->opts.dataset, sample);

    record->samples[item] = sample;
    record->labels[item] = sti_dataset_label(fetcher->opts.dataset, sample);
    record->n_bytes[item] = n_bytes;
    record->tiers[item] = (uint8_t)tier;
    record->bytes += n_bytes;
    record->tier_samples[tier]++;
    record->tier_bytes[tier] += n_bytes;
    if (fetcher->opts.item_bytes > 0) {
        fetcher->raw_bytes += n_bytes;
    } else {
        record->raw_bytes += n_bytes;
        fetcher->staged_bytes += n_bytes;
    }
}

void
sti_fetcher_discount(struct sti_fetcher *fetcher, struct sti_record *record, uint32_t item)
{
    uint64_t n_bytes = record->n_bytes[item];
    uint8_t tier = record->tiers[item];

    record->bytes -= n_bytes;
    record->tier_samples[tier]--;
    record->tier_bytes[tier] -= n_bytes;
    if (fetcher->opts.item_bytes > 0) {
        fetcher->raw_bytes -= n_bytes;
    } else {
        record->raw_bytes -= n_bytes;
        fetcher->staged_bytes -= n_bytes;
    }
    record->n_bytes[item] = 0;
}

/* Where a sample that is in memory or on its way came from: a neighbour that was read
 * along is the origin's at its first use. */
static enum stk_tier
source_of(const struct sti_fetcher *fetcher, uint64_t sample)
{
    if (fetcher->group > 1 && !sti_bitset_has(&fetcher->seen_in_run, sample))
        return STK_TIER_ORIGIN;
    return STK_TIER_RAM;
}

/* The same for one that is on its way: a copy that comes ahead of its use, and not far
 * enough, is the peer's. */
static enum stk_tier
source_of_coming(const struct sti_fetcher *fetcher, uint64_t sample, const struct sti_entry *entry)
{
    bool is_copy = fetcher->peering && entry->pins == 0 && !sti_fetcher_is_mine(fetcher, sample);

    return is_copy ? STK_TIER_PEER : source_of(fetcher, sample);
}

/* Who is asked for a sample that this rank holds on its SSD, because that is slow and another
 * serves it, too. Only for a batch: who asks this rank has asked there. */
static uint32_t
relief_of_own(const struct sti_fetcher *fetcher, uint32_t waiter, uint64_t sample)
{
    const struct sti_peering *peering = fetcher->peering;

    if (!peering || !peering->replan.relief || waiter == STI_NO_WAITER ||
        !fetcher->waiters[waiter].record || !sti_fetcher_is_mine(fetcher, sample))
        return STI_HOLDERS_NOBODY;
    uint32_t relief = peering->replan.relief[sample];
    bool may_ask = relief != STI_RELIEF_NOBODY && relief != peering->rank &&
                   sti_ssd_has(fetcher->ssd, sample) &&
                   sti_peering_may_ask(peering, relief) == STI_ASK;
    return may_ask ? relief : STI_HOLDERS_NOBODY;
}

bool
sti_fetcher_bring(struct sti_fetcher *fetcher, uint32_t waiter, uint64_t sample,
                  enum stk_tier *ret_tier, int *ret_code)
{
    struct sti_ssd_place place;
    struct sti_extent extent;
    uint32_t holder = STI_HOLDERS_NOBODY;

    *ret_code = 0;
    *ret_tier = STK_TIER_PEER;
    holder = relief_of_own(fetcher, waiter, sample);
    if (holder != STI_HOLDERS_NOBODY)
        return sti_fetcher_read_peer(fetcher, waiter, sample, holder, STI_POSITION_UNKNOWN);
    *ret_tier = STK_TIER_SSD;
    if (sti_ssd_find(fetcher->ssd, sample, &place))
        return sti_fetcher_read_ssd(fetcher, waiter, sample, &place);
    *ret_tier = STK_TIER_PEER;
    if (fetcher->peering && !sti_fetcher_is_mine(fetcher, sample))
        holder = sti_peering_holder(fetcher->peering, sample, fetcher->peering->rank);
    if (holder != STI_HOLDERS_NOBODY)
        return sti_fetcher_read_peer(fetcher, waiter, sample, holder, STI_POSITION_UNKNOWN);
    *ret_tier = STK_TIER_ORIGIN;
    *ret_code = sti_dataset_extent(fetcher->opts.dataset, sample, &extent);
    return *ret_code < 0 || sti_fetcher_read(fetcher, waiter, sample, &extent);
}

/* A sample that is neither in memory nor on its way is to be brought for an item. */
static bool
take_absent(struct sti_fetcher *fetcher, struct sti_record *record, uint32_t item, uint64_t sample)
{
    uint32_t waiter = sti_fetcher_new_waiter(fetcher, record, item);
    enum stk_tier tier;
    int code;

    if (waiter == STI_NO_WAITER)
        return false;
    if (!sti_fetcher_bring(fetcher, waiter, sample, &tier, &code)) {
        sti_fetcher_free_waiter(fetcher, waiter);
        return false;
    }
    if (code < 0) {
        sti_fetcher_free_waiter(fetcher, waiter);
        sti_fetcher_fail(fetcher, record, item, &(struct sti_bad){.sample = sample, .code = code});
        return true;
    }
    account_item(fetcher, record, item, sample, tier);
    return true;
}

bool
sti_fetcher_take(struct sti_fetcher *fetcher, struct sti_record *record, uint32_t item,
                 uint64_t sample, bool is_substitute)
{
    struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);
    enum sti_sample_state state = entry ? (enum sti_sample_state)entry->state : STI_SAMPLE_ABSENT;
    uint32_t waiter;

    if (!is_substitute && !has_room(fetcher, sti_dataset_length(fetcher->opts.dataset, sample)))
        return false;
    switch (state) {
    case STI_SAMPLE_PRESENT:
        if (entry->pins == STI_CATALOG_PINS_MAX)
            return false;
        account_item(fetcher, record, item, sample, source_of(fetcher, sample));
        sti_fetcher_pin(fetcher, sample, entry);
        sti_fetcher_arrive(fetcher, record, item, sample, entry);
        return true;
    case STI_SAMPLE_READING:
        waiter = entry->pins == STI_CATALOG_PINS_MAX
                     ? STI_NO_WAITER
                     : sti_fetcher_new_waiter(fetcher, record, item);
        if (waiter == STI_NO_WAITER)
            return false;
        account_item(fetcher, record, item, sample, source_of_coming(fetcher, sample, entry));
        fetcher->waiters[waiter].next = entry->key;
        entry->key = waiter;
        entry->pins++;
        return true;
    case STI_SAMPLE_BAD:
        sti_fetcher_fail(fetcher, record, item,
                         &(struct sti_bad){.sample = sample, .code = (int32_t)entry->key});
        return true;
    case STI_SAMPLE_ABSENT:
        break;
    }
    return take_absent(fetcher, record, item, sample);
}

/* ---- the stream -------------------------------------------------------------------- */

static void
count_for_bound(struct sti_fetcher *fetcher, uint64_t epoch, uint64_t sample)
{
    if (epoch != fetcher->bound_epoch) {
        sti_bound_epoch(&fetcher->bound);
        sti_bitset_clear(&fetcher->seen_in_epoch);
        fetcher->bound_epoch = epoch;
    }
    uint64_t n_bytes = sti_dataset_length(fetcher->opts.dataset, sample);
    /* What was on the SSD before the run is never new, and costs nothing in its first
     * epoch. */
    bool was_warm = sti_ssd_was_warm(fetcher->ssd, sample);
    if (fetcher->bound.epochs == 1 && was_warm) {
        (void)sti_bitset_add(&fetcher->seen_in_run, sample); /* it counts no more */
        return;
    }
    if (fetcher->seen_in_run.n == 0) { /* too many samples to mark: each comes once an epoch */
        sti_bound_sample(&fetcher->bound, n_bytes, true, fetcher->bound.epochs == 1);
        return;
    }
    bool is_new_in_epoch = sti_bitset_add(&fetcher->seen_in_epoch, sample);
    bool is_new_in_run = is_new_in_epoch && sti_bitset_add(&fetcher->seen_in_run, sample);
    sti_bound_sample(&fetcher->bound, n_bytes, is_new_in_epoch, is_new_in_run && !was_warm);
}

static bool
take_position(struct sti_fetcher *fetcher, struct sti_record *record)
{
    uint32_t item = record->n_taken;
    uint64_t position = record->cut.first_position + item;
    uint64_t sample = sti_horizon_sample(fetcher->horizon, position);
    uint64_t ahead = sti_horizon_peek(fetcher->horizon, position + PEEK_AHEAD);

    if (ahead != UINT64_MAX)
        sti_catalog_prefetch(fetcher->catalog, ahead);
    fetcher->position = position + 1;
    record->states[item] = STI_ITEM_WAITING;
    record->next_use[item] = STI_POSITION_UNKNOWN;
    if (fetcher->opts.policy == STK_POLICY_NEXT_USE)
        record->next_use[item] = sti_fetcher_next_use(fetcher, position);
    if (!sti_fetcher_take(fetcher, record, item, sample, false)) {
        fetcher->position = position;
        return false;
    }
    count_for_bound(fetcher, record->cut.epoch, sample);
    record->n_taken++;
    return true;
}

static struct sti_record *
open_record(struct sti_fetcher *fetcher, const struct sti_batch_cut *cut)
{
    struct sti_record *record = sti_staging_take_free(&fetcher->staging);

    record->cut = *cut;
    record->n_taken = 0;
    record->n_pending = cut->count;
    record->n_arrived = 0;
    record->raw_bytes = 0;
    record->bad = (struct sti_bad){0};
    memset(record->tier_samples, 0, sizeof(record->tier_samples));
    memset(record->tier_bytes, 0, sizeof(record->tier_bytes));
    record->origin_bytes = 0;
    record->bytes = 0;
    sti_record_list_push(&fetcher->staging.filling, record);
    return record;
}

/* What a batch that is all taken says beside its samples: the bound as of now, with peers
 * that of all ranks together, and what was read for no batch since the last one. */
static void
count_at_end(struct sti_fetcher *fetcher, struct sti_record *record)
{
    record->epoch_bound_bytes = sti_bound_of_epoch(&fetcher->bound);
    record->run_bound_bytes = sti_bound_bytes(&fetcher->bound);
    if (fetcher->peering) {
        const struct sti_holders *holders = &fetcher->peering->holders;

        record->epoch_bound_bytes = sti_holders_bound(holders, record->cut.epoch);
        record->run_bound_bytes = sti_holders_bound_until(holders, record->cut.epoch);
    }
    record->origin_bytes += fetcher->beside_bytes;
    fetcher->beside_bytes = 0;
}

/* Fills one batch as far as possible; false when the walk has to stop for now. */
static bool
walk_batch(struct sti_fetcher *fetcher)
{
    if (!fetcher->record) {
        struct sti_batch_cut cut;

        if (!fetcher->staging.free.first) {
            sti_staging_want_returns(&fetcher->staging);
            return false;
        }
        uint64_t passed = fetcher->position;
        fetcher->cut = sti_horizon_cut(fetcher->horizon, passed, &cut);
        fetcher->position = cut.first_position;
        for (; passed < cut.first_position; passed++)
            sti_fetcher_pass_over(fetcher, passed);
        if (fetcher->cut != STI_CUT_BATCH)
            return false;
        fetcher->record = open_record(fetcher, &cut);
        fetcher->staging_now =
            sti_sizes_staged(&fetcher->sizes, cut.epoch_step * fetcher->opts.batch_size,
                             sti_horizon_epoch_length(fetcher->horizon));
    }
    struct sti_record *record = fetcher->record;
    while (record->n_taken < record->cut.count) {
        if (!take_position(fetcher, record)) {
            sti_staging_want_returns(&fetcher->staging);
            return false;
        }
    }
    count_at_end(fetcher, record);
    fetcher->record = NULL;
    return true;
}

/* Whether the walk has stood for want of memory for the order for so long that it has to be
 * said: what others hold for a moment is back by then. */
static bool
is_out_of_memory(struct sti_fetcher *fetcher)
{
    uint64_t now_ns;

    if (fetcher->cut != STI_CUT_NOT_YET || !sti_horizon_is_short_of_memory(fetcher->horizon)) {
        fetcher->short_since_ns = 0;
        return false;
    }
    now_ns = sti_clock_ns();
    if (fetcher->short_since_ns == 0)
        fetcher->short_since_ns = now_ns;
    return now_ns - fetcher->short_since_ns >= MEMORY_PATIENCE_NS;
}

/* Tells the consumer when nothing will come, once all that was begun is ready. */
static void
say_if_idle(struct sti_fetcher *fetcher)
{
    bool is_drained = !fetcher->record && fetcher->staging.filling.n == 0;
    bool is_list = fetcher->opts.order.kind == STK_ORDER_LIST;
    bool is_short = is_out_of_memory(fetcher);
    int idle = STI_STAGING_BUSY;

    if (is_drained && fetcher->cut == STI_CUT_END)
        idle = STK_END;
    else if (is_drained && fetcher->cut == STI_CUT_NOT_YET && is_list)
        idle = -EAGAIN;
    else if (is_drained && is_short)
        idle = -ENOMEM;
    sti_staging_set_idle(&fetcher->staging, idle);
}

/* Goes on as far as possible; true when copying has made room since it had to stop. */
static bool
walk_on(struct sti_fetcher *fetcher)
{
    fetcher->cut = STI_CUT_BATCH; /* until the walk comes to where there is none */
    fetcher->is_waiting_for_order = false;
    if (sti_fetcher_redo(fetcher)) {
        while (walk_batch(fetcher)) {
            if (fetcher->opts.item_bytes > 0)
                sti_fetcher_decode_start(fetcher);
            sti_staging_publish(&fetcher->staging);
        }
    }
    /* Samples known to be bad were met on the way; nothing else would come back to
     * them. */
    if (!sti_fetcher_redo(fetcher))
        sti_staging_want_returns(&fetcher->staging);
    sti_fetcher_submit_growing(fetcher);
    uint64_t held_bytes = fetcher->raw_bytes;
    sti_fetcher_decode_start(fetcher);
    sti_staging_publish(&fetcher->staging);
    return fetcher->raw_bytes < held_bytes;
}

static void
walk(struct sti_fetcher *fetcher)
{
    while (walk_on(fetcher))
        ;
    say_if_idle(fetcher);
}

/* ---- records that come back -------------------------------------------------------- */

/* Lets go of what a record's items hold. */
static void
release_record(struct sti_fetcher *fetcher, struct sti_record *record)
{
    for (uint32_t item = 0; item < record->n_taken; item++) {
        if (record->states[item] != STI_ITEM_PINNED)
            continue;
        if (item + PEEK_AHEAD < record->n_taken)
            sti_catalog_prefetch(fetcher->catalog, record->samples[item + PEEK_AHEAD]);
        if (fetcher->opts.item_bytes > 0)
            fetcher->raw_bytes -= record->n_bytes[item];
        sti_fetcher_unpin(fetcher, record, item);
    }
    fetcher->staged_bytes -= record->raw_bytes;
    sti_staging_put_free(&fetcher->staging, record);
}

static void
release_records(struct sti_fetcher *fetcher, struct sti_record *record)
{
    while (record) {
        struct sti_record *next = record->next;

        release_record(fetcher, record);
        record = next;
    }
}

/* ---- commands ---------------------------------------------------------------------- */

static void
seek(struct sti_fetcher *fetcher, uint64_t epoch, uint64_t idx)
{
    struct sti_record *record;
    uint64_t position;

    sti_fetcher_submit_growing(fetcher);
    /* What came back since the step began knows old positions: it goes with them. Nothing
     * is out, so nothing of the kind can come later. */
    release_records(fetcher, sti_staging_take_returned(&fetcher->staging, &position));
    /* Samples under way lose their uses; what they hold of FIXED memory goes with
     * them. */
    sti_fetcher_drop_waiters(fetcher);
    struct sti_record *dropped = sti_staging_take_ready(&fetcher->staging);
    for (record = dropped; record; record = record->next)
        fetcher->beside_bytes += record->origin_bytes; /* nobody is going to be told with it */
    release_records(fetcher, dropped);
    while ((record = sti_record_list_pop(&fetcher->staging.filling)) != NULL) {
        fetcher->beside_bytes += record->origin_bytes;
        release_record(fetcher, record);
    }
    fetcher->record = NULL;
    fetcher->raw_bytes = 0;
    sti_fetcher_forget_positions(fetcher);
    fetcher->position = sti_horizon_start(fetcher->horizon, epoch, idx);
    fetcher->returned_position = fetcher->position;
    if (fetcher->peering)
        fetcher->peering->copies_position = 0;
    sti_fetcher_renew_positions(fetcher);
}

/* No batch is wanted any more: what was read for those that are staged is counted, since
 * nobody is going to be told with them. */
static void
end_batches(struct sti_fetcher *fetcher)
{
    struct sti_record *ready = sti_staging_take_ready(&fetcher->staging);
    struct sti_record *record;

    fetcher->is_leaving = true;
    sti_fetcher_submit_growing(fetcher);
    for (record = fetcher->staging.filling.first; record; record = record->next) {
        fetcher->beside_bytes += record->origin_bytes;
        record->origin_bytes = 0;
    }
    for (record = ready; record; record = record->next)
        fetcher->beside_bytes += record->origin_bytes;
    release_records(fetcher, ready);
    sti_staging_set_idle(&fetcher->staging, STK_END);
}

/* Stays for those that need this rank. */
static uint64_t
leave(struct sti_fetcher *fetcher)
{
    if (!fetcher->is_leaving)
        end_batches(fetcher);
    return fetcher->peering ? sti_peering_leave(fetcher->peering) : 0;
}

static void
stop_peers(struct sti_fetcher *fetcher)
{
    if (!fetcher->peering)
        return;
    sti_peering_refuse(fetcher->peering);
    if (fetcher->peering->replan.is_asking)
        sti_comm_cancel(fetcher->peering->opts.comm, &fetcher->peering->replan.request);
    sti_fetcher_cancel_fetches(fetcher);
}

/* Whether memory is in the hands of peers, or of the pool for them. */
static bool
is_with_peers(const struct sti_fetcher *fetcher)
{
    const struct sti_peering *peering = fetcher->peering;

    return peering && (peering->n_asked > 0 || peering->n_fetching > 0 ||
                       sti_replan_is_busy(&peering->replan));
}

/* Carries a command out once nothing is in other hands; true while one is pending.
 * ret_wanted_ns: when to come back, if nothing else causes it. */
static bool
obey(struct sti_fetcher *fetcher, uint64_t *ret_wanted_ns)
{
    uint64_t epoch, idx;
    enum sti_command command = sti_staging_pending_command(&fetcher->staging, &epoch, &idx);

    if (command == STI_COMMAND_NONE)
        return false;
    if (command == STI_COMMAND_LEAVE) {
        uint64_t wanted_ns = leave(fetcher);

        if (wanted_ns > 0) {
            *ret_wanted_ns = wanted_ns;
            return true;
        }
    }
    if (command == STI_COMMAND_STOP) {
        fetcher->is_stopped = true;
        stop_peers(fetcher);
        sti_fetcher_submit_growing(fetcher);
        sti_aio_hurry(fetcher->opts.aio); /* a close does not wait for an emulated device */
    }
    if (fetcher->n_decoding > 0 ||
        (command == STI_COMMAND_STOP &&
         (fetcher->n_reading > 0 || sti_origin_is_busy(&fetcher->origin) ||
          is_with_peers(fetcher))))
        return true;
    if (command == STI_COMMAND_STOP && !sti_ssd_finish(fetcher->ssd))
        return true;
    if (command == STI_COMMAND_SEEK)
        seek(fetcher, epoch, idx);
    sti_staging_command_done(&fetcher->staging);
    return false;
}

/*
 * Tells the device's arbiter whether samples are needed soon: less than half of what may
 * be staged is. With that much in hand the reads may wait behind others; with less they
 * may not.
 */
static void
tell_arbiter(struct sti_fetcher *fetcher)
{
    bool is_short = !fetcher->is_stopped && fetcher->n_reading > 0 &&
                    sti_staging_ready(&fetcher->staging) < fetcher->opts.n_records / 2;

    if (is_short && fetcher->opts.item_bytes == 0)
        is_short = fetcher->staged_bytes < fetcher->staging_now / 2;
    if (!fetcher->opts.budget || is_short == fetcher->is_short)
        return;
    fetcher->is_short = is_short;
    sti_budget_set_short(fetcher->opts.budget, STI_BUDGET_SAMPLE, is_short);
}

static void
set_usage(struct sti_fetcher *fetcher)
{
    const struct sti_peering *peering = fetcher->peering;
    struct sti_usage usage = {.resident_bytes = sti_store_used_bytes(fetcher->store),
                              .n_outside = sti_store_outside(fetcher->store),
                              .beside_bytes = fetcher->beside_bytes};

    if (fetcher->ssd)
        usage.ssd = sti_ssd_counts(fetcher->ssd);
    if (peering) {
        usage.served_samples = peering->served_samples;
        usage.served_bytes = peering->served_bytes;
        usage.n_peer_failed = peering->n_failed;
        usage.n_peer_corrupt = peering->n_corrupt;
        usage.copied_samples = peering->copied_samples;
        usage.copied_bytes = peering->copied_bytes;
    }
    sti_staging_set_usage(&fetcher->staging, &usage);
}

/* Where the walk is, for what is planned anew. */
static void
note_epoch(struct sti_fetcher *fetcher)
{
    uint64_t epoch = fetcher->bound_epoch;

    if (fetcher->peering && epoch != UINT64_MAX)
        sti_replan_epoch(&fetcher->peering->replan, epoch,
                         fetcher->opts.epochs > 0 && epoch + 1 >= fetcher->opts.epochs);
}

static uint64_t
step(struct sti_fetcher *fetcher)
{
    uint64_t returned_position;
    uint64_t wanted_ns = UINT64_MAX;

    sti_fetcher_decode_finish(fetcher);
    release_records(fetcher, sti_staging_take_returned(&fetcher->staging, &returned_position));
    sti_fetcher_serve(fetcher);
    if (returned_position > fetcher->returned_position)
        fetcher->returned_position = returned_position;
    if (obey(fetcher, &wanted_ns) || fetcher->is_stopped || fetcher->is_leaving) {
        set_usage(fetcher);
        tell_arbiter(fetcher);
        return wanted_ns;
    }
    uint64_t told_position = fetcher->position;
    bool has_more = sti_horizon_step(fetcher->horizon, told_position, fetcher->returned_position);
    walk(fetcher);
    note_epoch(fetcher);
    fetcher->is_waiting_for_order |= fetcher->cut == STI_CUT_NOT_YET;
    if (fetcher->is_waiting_for_order) {
        sti_horizon_hurry(fetcher->horizon);
        /* What is waited for may have to be begun first. */
        has_more |= fetcher->position != told_position;
    }
    sti_fetcher_fill(fetcher);
    has_more |= sti_fetcher_take_copies(fetcher);
    sti_fetcher_take_relief(fetcher);
    set_usage(fetcher);
    tell_arbiter(fetcher);
    if (has_more)
        return 0;
    return sti_horizon_is_short_of_memory(fetcher->horizon) ? MEMORY_RETRY_NS : UINT64_MAX;
}

uint64_t
sti_fetcher_step(void *context)
{
    struct sti_fetcher *fetcher = context;
    uint64_t wanted_ns = step(fetcher);

    if (!fetcher->peering)
        return wanted_ns;
    if (fetcher->peering->must_step)
        return 0;
    return fetcher->peering->busy_ns < wanted_ns ? fetcher->peering->busy_ns : wanted_ns;
}

int
sti_fetcher_push(struct sti_fetcher *fetcher, const struct sti_list_part *part)
{
    int rc = sti_horizon_push(fetcher->horizon, fetcher->position, part);

    if (rc == 0)
        sti_staging_set_idle(&fetcher->staging, STI_STAGING_BUSY);
    return rc;
}
