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
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "budget/budget.h"
#include "tier/fetcher_internal.h"

#define PEEK_AHEAD 12
#define MEMORY_RETRY_NS UINT64_C(10000000)

static uint64_t
smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t
larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

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

bool
sti_fetcher_take(struct sti_fetcher *fetcher, struct sti_record *record, uint32_t item,
                 uint64_t sample, bool is_substitute)
{
    struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);
    enum sti_sample_state state = entry ? (enum sti_sample_state)entry->state : STI_SAMPLE_ABSENT;
    struct sti_extent extent;
    uint32_t waiter;
    int rc;

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
        fetcher->waiters[waiter].next = entry->key;
        entry->key = waiter;
        entry->pins++;
        account_item(fetcher, record, item, sample, source_of(fetcher, sample));
        return true;
    case STI_SAMPLE_BAD:
        sti_fetcher_fail(fetcher, record, item,
                         &(struct sti_bad){.sample = sample, .code = (int32_t)entry->key});
        return true;
    case STI_SAMPLE_ABSENT:
        break;
    }
    struct sti_ssd_place place;
    if (sti_ssd_find(fetcher->ssd, sample, &place)) {
        if (!sti_fetcher_read_ssd(fetcher, record, item, sample, &place))
            return false;
        account_item(fetcher, record, item, sample, STK_TIER_SSD);
        return true;
    }
    rc = sti_dataset_extent(fetcher->opts.dataset, sample, &extent);
    if (rc < 0) {
        sti_fetcher_fail(fetcher, record, item, &(struct sti_bad){.sample = sample, .code = rc});
        return true;
    }
    if (!sti_fetcher_read(fetcher, record, item, sample, &extent))
        return false;
    account_item(fetcher, record, item, sample, STK_TIER_ORIGIN);
    return true;
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
    struct sti_record *record = sti_record_list_pop(&fetcher->staging.free);

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
    record->epoch_bound_bytes = sti_bound_of_epoch(&fetcher->bound);
    record->run_bound_bytes = sti_bound_bytes(&fetcher->bound);
    fetcher->record = NULL;
    return true;
}

/* Tells the consumer when nothing will come, once all that was begun is ready. */
static void
say_if_idle(struct sti_fetcher *fetcher)
{
    bool is_drained = !fetcher->record && fetcher->staging.filling.n == 0;
    bool is_list = fetcher->opts.order.kind == STK_ORDER_LIST;

    sti_staging_set_idle(&fetcher->staging, is_drained && fetcher->cut == STI_CUT_END,
                         is_drained && fetcher->cut == STI_CUT_NOT_YET && is_list);
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
    sti_record_list_push(&fetcher->staging.free, record);
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
    release_records(fetcher, sti_staging_take_ready(&fetcher->staging));
    while ((record = sti_record_list_pop(&fetcher->staging.filling)) != NULL)
        release_record(fetcher, record);
    fetcher->record = NULL;
    fetcher->raw_bytes = 0;
    sti_fetcher_forget_positions(fetcher);
    fetcher->position = sti_horizon_start(fetcher->horizon, epoch, idx);
    fetcher->returned_position = fetcher->position;
    sti_fetcher_renew_positions(fetcher);
}

/* Carries a command out once nothing is in other hands; true while one is pending. */
static bool
obey(struct sti_fetcher *fetcher)
{
    uint64_t epoch, idx;
    enum sti_command command = sti_staging_pending_command(&fetcher->staging, &epoch, &idx);

    if (command == STI_COMMAND_NONE)
        return false;
    if (command == STI_COMMAND_STOP) {
        fetcher->is_stopped = true;
        sti_fetcher_submit_growing(fetcher);
        sti_aio_hurry(fetcher->opts.aio); /* a close does not wait for an emulated device */
    }
    if (fetcher->n_decoding > 0 ||
        (command == STI_COMMAND_STOP &&
         (fetcher->n_reading > 0 || sti_origin_is_busy(&fetcher->origin))))
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

uint64_t
sti_fetcher_step(void *context)
{
    struct sti_fetcher *fetcher = context;
    uint64_t returned_position;

    sti_fetcher_decode_finish(fetcher);
    release_records(fetcher, sti_staging_take_returned(&fetcher->staging, &returned_position));
    if (returned_position > fetcher->returned_position)
        fetcher->returned_position = returned_position;
    if (obey(fetcher) || fetcher->is_stopped) {
        tell_arbiter(fetcher);
        return UINT64_MAX;
    }
    uint64_t told_position = fetcher->position;
    bool has_more = sti_horizon_step(fetcher->horizon, told_position, fetcher->returned_position);
    walk(fetcher);
    fetcher->is_waiting_for_order |= fetcher->cut == STI_CUT_NOT_YET;
    if (fetcher->is_waiting_for_order) {
        sti_horizon_hurry(fetcher->horizon);
        /* What is waited for may have to be begun first. */
        has_more |= fetcher->position != told_position;
    }
    struct sti_usage usage = {.resident_bytes = sti_store_used_bytes(fetcher->store),
                              .n_outside = sti_store_outside(fetcher->store)};
    if (fetcher->ssd)
        usage.ssd = sti_ssd_counts(fetcher->ssd);
    sti_staging_set_usage(&fetcher->staging, &usage);
    tell_arbiter(fetcher);
    if (has_more)
        return 0;
    return sti_horizon_is_short_of_memory(fetcher->horizon) ? MEMORY_RETRY_NS : UINT64_MAX;
}

int
sti_fetcher_push(struct sti_fetcher *fetcher, const struct sti_list_part *part)
{
    int rc = sti_horizon_push(fetcher->horizon, fetcher->position, part);

    if (rc == 0)
        sti_staging_set_idle(&fetcher->staging, false, false);
    return rc;
}

/* ---- set-up ------------------------------------------------------------------------ */

uint32_t
sti_fetcher_align(const struct sti_fetcher *fetcher)
{
    uint32_t align = sti_origin_align(&fetcher->origin);

    return fetcher->opts.n_ssd_parts > 0 && align < STI_SSD_ALIGN_MAX ? STI_SSD_ALIGN_MAX : align;
}

uint64_t
sti_fetcher_padding_bytes(const struct sti_fetcher *fetcher)
{
    uint64_t padding_bytes = sti_origin_padding_bytes(&fetcher->origin);

    return fetcher->opts.n_ssd_parts > 0 ? larger(padding_bytes, STI_SSD_PADDING_BYTES)
                                         : padding_bytes;
}

static int
open_store(struct sti_fetcher *fetcher)
{
    const struct sti_dataset *dataset = fetcher->opts.dataset;
    uint64_t n = sti_dataset_count(dataset);
    uint64_t capacity_bytes = fetcher->sizes.store_bytes + fetcher->sizes.transit_bytes;
    uint64_t average_bytes = sti_dataset_bytes(dataset) / n;
    uint64_t samples_max = capacity_bytes / (average_bytes / 4 + 1) + 64;
    bool is_padded = sti_dataset_max_bytes(dataset) >= STI_IN_PLACE_BYTES;
    struct sti_store_opts opts = {
        .capacity_bytes = capacity_bytes,
        .samples_max = smaller(samples_max, n),
        .uniform_bytes = sti_dataset_uniform_bytes(dataset),
        .padding_bytes = is_padded ? sti_fetcher_padding_bytes(fetcher) : 0,
        .small_bytes = fetcher->sizes.small_bytes,
        .small_room_bytes = fetcher->sizes.small_room_bytes,
        .align = sti_fetcher_align(fetcher),
        .pool = fetcher->opts.pool,
    };
    int rc = sti_store_new(&fetcher->store, &opts);
    if (rc < 0)
        return rc;
    return sti_catalog_new(&fetcher->catalog, n, opts.samples_max + fetcher->opts.queue_depth);
}

static int
open_horizon(struct sti_fetcher *fetcher, stk_error *err)
{
    struct sti_horizon_opts opts = {
        .order = fetcher->opts.order,
        .batch_size = fetcher->opts.batch_size,
        .drop_last = fetcher->opts.drop_last,
        .epochs = fetcher->opts.epochs,
        .held_epochs = fetcher->opts.held_epochs,
        .window_positions = (uint64_t)fetcher->opts.n_records * fetcher->opts.batch_size,
        .wants_next_use = fetcher->opts.policy == STK_POLICY_NEXT_USE,
        .pool = fetcher->opts.pool,
        .catalog = fetcher->catalog,
        .wake = fetcher->opts.wake,
        .wake_context = fetcher->opts.wake_context,
        .on_next_use = sti_fetcher_on_next_use,
        .context = fetcher,
    };
    int rc = sti_horizon_new(&fetcher->horizon, &opts, err);
    if (rc < 0)
        return rc;
    fetcher->position = sti_horizon_start(fetcher->horizon, 0, 0);
    return 0;
}

static int
open_rest(struct sti_fetcher *fetcher)
{
    uint64_t n = sti_dataset_count(fetcher->opts.dataset);
    int rc = 0;

    if (n <= STI_CATALOG_TABLE_MAX) {
        rc = sti_bitset_init(&fetcher->seen_in_epoch, n);
        if (rc == 0)
            rc = sti_bitset_init(&fetcher->seen_in_run, n);
    }
    if (rc == 0 && fetcher->sizes.transit_bytes > 0)
        rc = sti_bitset_init(&fetcher->passing, n);
    if (rc == 0)
        rc = sti_evictor_new(&fetcher->evictor, fetcher->opts.policy, n,
                             sti_horizon_span(fetcher->horizon),
                             fetcher->ssd || fetcher->sizes.worthy_bytes != UINT64_MAX);
    return rc;
}

/* Frees the fetcher where it fails. */
static int
open_parts(struct sti_fetcher *fetcher, stk_error *err)
{
    const char *const no_name = "";
    bool has_names = fetcher->opts.item_bytes == 0 || !fetcher->opts.decode;
    struct sti_staging_opts staging_opts = {.n_records = fetcher->opts.n_records,
                                            .batch_size = fetcher->opts.batch_size,
                                            .slot_bytes = fetcher->opts.item_bytes,
                                            .n_fields = has_names ? fetcher->n_fields : 1,
                                            .field_names =
                                                has_names ? fetcher->field_names : &no_name,
                                            .wake = fetcher->opts.wake,
                                            .context = fetcher->opts.wake_context};
    int rc = sti_staging_init(&fetcher->staging, &staging_opts);

    if (rc < 0) {
        sti_mem_free(fetcher);
        return sti_error_set(err, rc, "no memory for staging of %" PRIu32 " batches",
                             staging_opts.n_records);
    }
    rc = sti_fetcher_decode_init(fetcher);
    if (rc < 0) {
        sti_staging_fini(&fetcher->staging);
        sti_mem_free(fetcher);
        return sti_error_set(err, rc, "no memory for decoding");
    }
    struct sti_origin_opts origin_opts = {.dataset = fetcher->opts.dataset,
                                          .aio = fetcher->opts.aio,
                                          .open_files = fetcher->opts.open_files,
                                          .is_buffered = fetcher->opts.is_buffered};
    rc = sti_origin_open(&fetcher->origin, &origin_opts, err);
    if (rc < 0)
        goto err_staging;
    rc = sti_fetcher_open_ssd(fetcher);
    if (rc == 0)
        rc = open_store(fetcher);
    if (rc < 0)
        goto err_memory;
    rc = open_horizon(fetcher, err);
    if (rc < 0)
        goto err_staging;
    rc = open_rest(fetcher);
    if (rc == 0)
        rc = sti_fetcher_reads_init(fetcher);
    if (rc == 0)
        return 0;

err_memory:
    (void)sti_error_set(err, rc, "no memory for the loader's store and catalogue");
err_staging:
    sti_fetcher_free(fetcher);
    return rc;
}

int
sti_fetcher_new(struct sti_fetcher **ret_fetcher, const struct sti_fetcher_opts *opts,
                stk_error *err)
{
    struct sti_fetcher *fetcher = sti_mem_new(1, sizeof(*fetcher));

    if (!fetcher)
        return sti_error_set(err, -ENOMEM, "no memory for the loader");
    fetcher->opts = *opts;
    fetcher->bound_epoch = UINT64_MAX;
    fetcher->n_fields = sti_dataset_fields(opts->dataset);
    for (uint32_t at = 0; at < fetcher->n_fields; at++)
        fetcher->field_names[at] = sti_dataset_field_name(opts->dataset, at);
    int rc = open_parts(fetcher, err);
    if (rc < 0)
        return rc;
    sti_bound_init(&fetcher->bound, sti_fetcher_capacity_bytes(fetcher));
    *ret_fetcher = fetcher;
    return 0;
}

void
sti_fetcher_begin_at(struct sti_fetcher *fetcher, uint64_t epoch, uint64_t idx)
{
    fetcher->position = sti_horizon_start(fetcher->horizon, epoch, idx);
    fetcher->returned_position = fetcher->position;
}

void
sti_fetcher_free(struct sti_fetcher *fetcher)
{
    if (!fetcher)
        return;
    sti_fetcher_reads_fini(fetcher);
    sti_evictor_free(fetcher->evictor);
    sti_bitset_fini(&fetcher->seen_in_epoch);
    sti_bitset_fini(&fetcher->seen_in_run);
    sti_bitset_fini(&fetcher->passing);
    sti_horizon_free(fetcher->horizon);
    sti_catalog_free(fetcher->catalog);
    sti_store_free(fetcher->store);
    sti_ssd_close(fetcher->ssd);
    sti_origin_close(&fetcher->origin);
    sti_fetcher_decode_fini(fetcher);
    sti_staging_fini(&fetcher->staging);
    sti_mem_free(fetcher);
}

struct sti_staging *
sti_fetcher_staging(struct sti_fetcher *fetcher)
{
    return &fetcher->staging;
}

uint64_t
sti_fetcher_capacity_bytes(const struct sti_fetcher *fetcher)
{
    uint64_t capacity_bytes = fetcher->sizes.store_bytes;

    return fetcher->ssd ? capacity_bytes + sti_ssd_capacity_bytes(fetcher->ssd) : capacity_bytes;
}

struct sti_cost_curve
sti_fetcher_cost(const struct sti_fetcher *fetcher, stk_tier tier)
{
    struct sti_cost_curve curve = {0};
    struct sti_cost_point point;
    const struct sti_cost_learner *learner =
        tier == STK_TIER_SSD ? &fetcher->ssd_cost : &fetcher->origin_cost;

    if (sti_cost_learner_point(learner, &point) == 0)
        sti_cost_curve_add(&curve, &point);
    return curve;
}

uint64_t
sti_fetcher_epoch_batches(const struct sti_fetcher *fetcher)
{
    return sti_horizon_batches(fetcher->horizon);
}
