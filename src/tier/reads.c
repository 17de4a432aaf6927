/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bringing samples in. A large sample is read in place: its block of the store is aligned
 * and padded so that a direct read lands in it, and the padding is given back when the
 * read is done. A small one is read into a bounce buffer and copied to its packed place.
 * Small samples that follow each other in the stream and in one file are read together;
 * where the store holds the whole file and every epoch reads all of it, neighbours in the
 * file are, whatever the order: the origin gives the same bytes in far fewer reads.
 *
 * A read that fails is tried again; one of several samples that still fails is tried
 * sample by sample, so that one bad block spoils one sample. Not where its file is another
 * one than was indexed: nothing helps then. Invariant: an entry is
 * READING exactly while a read holds a piece for it, and its key heads the list of items
 * that wait.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "tier/fetcher_internal.h"

#define WAITERS_MIN 4096u
#define NODES_PER_READ 64u
/* Read over rather than around: headers between the members of an archive. */
#define GAP_BYTES 4096u
#define BOUNCE_BUDGET_BYTES (UINT64_C(32) << 20)
/* Less than this is copied for the SSD by the loop: a hand-over would cost more. */
#define FILL_AT_ONCE_BYTES (UINT64_C(16) << 10)

/* How many neighbours are read together: all must be wanted and there must be room for
 * all. */
static uint32_t
group_size(const struct sti_fetcher *fetcher)
{
    const struct sti_fetcher_opts *opts = &fetcher->opts;
    uint64_t length = sti_dataset_uniform_bytes(opts->dataset);
    bool is_all_kept = opts->policy != STK_POLICY_NONE &&
                       sti_store_capacity_bytes(fetcher->store) >= sti_dataset_bytes(opts->dataset);
    bool is_all_read =
        opts->order.world == 1 && !opts->order.replacement && opts->order.kind != STK_ORDER_LIST &&
        opts->order.num_samples == opts->order.n && (!opts->drop_last || opts->epochs != 1);

    if (!fetcher->origin.is_one_file || !is_all_kept || !is_all_read || length == 0 ||
        opts->order.n > STI_CATALOG_TABLE_MAX || length >= STI_IN_PLACE_BYTES ||
        length * sti_dataset_count(opts->dataset) != sti_dataset_bytes(opts->dataset))
        return 1;
    uint64_t n = (fetcher->bounce_bytes - sti_origin_padding_bytes(&fetcher->origin)) / length;
    return (uint32_t)(n > STI_READ_PIECES ? STI_READ_PIECES : n < 1 ? 1 : n);
}

int
sti_fetcher_reads_init(struct sti_fetcher *fetcher)
{
    uint32_t n = fetcher->opts.queue_depth;
    uint32_t n_questions = fetcher->peering ? fetcher->peering->n_questions : 0;
    uint64_t align = sti_fetcher_align(fetcher);
    uint64_t least = STI_IN_PLACE_BYTES + sti_fetcher_padding_bytes(fetcher);
    uint64_t bounce_bytes = BOUNCE_BUDGET_BYTES / n;

    if (bounce_bytes > 4 * STI_IN_PLACE_BYTES)
        bounce_bytes = 4 * STI_IN_PLACE_BYTES;
    if (bounce_bytes < least)
        bounce_bytes = least;
    fetcher->bounce_bytes = (bounce_bytes + align - 1) / align * align;
    fetcher->n_waiters = n * NODES_PER_READ + WAITERS_MIN;
    fetcher->group = group_size(fetcher);
    fetcher->redo = STI_NO_WAITER;
    fetcher->reads = sti_mem_new(n, sizeof(struct sti_read));
    fetcher->waiters = sti_mem_new(fetcher->n_waiters + n_questions, sizeof(struct sti_waiter));
    if (!fetcher->reads || !fetcher->waiters)
        return -ENOMEM;
    int rc = sti_arena_open(&fetcher->bounce_arena, n * fetcher->bounce_bytes, 1);
    if (rc < 0)
        return rc;
    for (uint32_t at = 0; at < n; at++) {
        fetcher->reads[at].fetcher = fetcher;
        fetcher->reads[at].bounce = fetcher->bounce_arena.base + at * fetcher->bounce_bytes;
        fetcher->reads[at].next = fetcher->free_reads;
        fetcher->free_reads = &fetcher->reads[at];
    }
    for (uint32_t at = 0; at < fetcher->n_waiters; at++)
        fetcher->waiters[at].next = at + 1 < fetcher->n_waiters ? at + 1 : STI_NO_WAITER;
    for (uint32_t number = 0; number < n_questions; number++)
        fetcher->waiters[fetcher->n_waiters + number] =
            (struct sti_waiter){.item = number, .next = STI_NO_WAITER};
    return 0;
}

void
sti_fetcher_reads_fini(struct sti_fetcher *fetcher)
{
    assert(fetcher->n_reading == 0);
    sti_arena_close(&fetcher->bounce_arena);
    sti_mem_free(fetcher->reads);
    sti_mem_free(fetcher->waiters);
}

/* ---- waiting items ----------------------------------------------------------------- */

uint32_t
sti_fetcher_new_waiter(struct sti_fetcher *fetcher, struct sti_record *record, uint32_t item)
{
    uint32_t waiter = fetcher->free_waiter;

    if (waiter == STI_NO_WAITER)
        return waiter;
    fetcher->free_waiter = fetcher->waiters[waiter].next;
    fetcher->waiters[waiter] =
        (struct sti_waiter){.record = record, .item = item, .next = STI_NO_WAITER};
    return waiter;
}

void
sti_fetcher_free_waiter(struct sti_fetcher *fetcher, uint32_t waiter)
{
    if (waiter >= fetcher->n_waiters) /* a question's: its alone */
        return;
    fetcher->waiters[waiter].next = fetcher->free_waiter;
    fetcher->free_waiter = waiter;
}

/* No batch waits for a sample any more; peers may. */
static void
drop_items(struct sti_fetcher *fetcher, uint64_t sample)
{
    struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);
    uint32_t waiter = entry->key;

    entry->key = STI_NO_WAITER;
    entry->pins = 0;
    for (uint32_t next; waiter != STI_NO_WAITER; waiter = next) {
        next = fetcher->waiters[waiter].next;
        if (fetcher->waiters[waiter].record) {
            sti_fetcher_free_waiter(fetcher, waiter);
            continue;
        }
        fetcher->waiters[waiter].next = entry->key;
        entry->key = waiter;
        entry->pins++;
    }
}

void
sti_fetcher_drop_waiters(struct sti_fetcher *fetcher)
{
    for (uint32_t at = 0; at < fetcher->opts.queue_depth; at++) {
        const struct sti_read *read = &fetcher->reads[at];

        for (uint32_t piece = 0; piece < read->n_pieces; piece++)
            drop_items(fetcher, read->pieces[piece].sample);
    }
    for (uint32_t at = 0; fetcher->peering && at < fetcher->peering->n_fetches; at++)
        if (fetcher->peering->fetches[at].is_used)
            drop_items(fetcher, fetcher->peering->fetches[at].sample);
    while (fetcher->redo != STI_NO_WAITER) {
        uint32_t waiter = fetcher->redo;

        fetcher->redo = fetcher->waiters[waiter].next;
        sti_fetcher_free_waiter(fetcher, waiter);
    }
}

/* ---- completion -------------------------------------------------------------------- */

static void
submit(struct sti_fetcher *fetcher, struct sti_read *read)
{
    read->began_ns = sti_clock_ns();
    sti_cost_learner_begin(&fetcher->origin_cost, read->began_ns);
    sti_aio_submit(fetcher->opts.aio, &read->op);
}

/* Where the bytes of a piece are, when the read is done. */
static const char *
piece_bytes(const struct sti_read *read, const struct sti_piece *piece)
{
    return (const char *)read->op.bytes + (piece->offset - read->range.offset);
}

static void
finish_piece(struct sti_fetcher *fetcher, const struct sti_read *read, uint32_t piece_idx)
{
    const struct sti_piece *piece = &read->pieces[piece_idx];
    struct sti_entry *entry = sti_catalog_find(fetcher->catalog, piece->sample);

    if (piece->slot.segment != STI_SSD_NO_SLOT) {
        if (!read->is_filled)
            sti_ssd_fill(fetcher->ssd, piece->slot, piece_bytes(read, piece));
        sti_ssd_settle(fetcher->ssd, piece->slot, true);
    }
    if (read->is_in_place) {
        /* The sample begins behind the skew; its block is as long as that and itself. */
        sti_store_trim(fetcher->store, piece->address, read->range.skew + piece->length);
        entry->address = piece->address + read->range.skew;
    } else {
        memcpy(sti_store_pointer(fetcher->store, piece->address), piece_bytes(read, piece),
               piece->length);
    }
    sti_fetcher_give(fetcher, piece->sample, entry, STI_POSITION_UNKNOWN);
}

void
sti_fetcher_give(struct sti_fetcher *fetcher, uint64_t sample, struct sti_entry *entry,
                 uint64_t next_use)
{
    uint32_t waiter = entry->key;

    entry->state = STI_SAMPLE_PRESENT;
    if (entry->pins == 0) /* nobody wants it now: a seek, or it was read ahead */
        sti_fetcher_settle(fetcher, sample, entry, next_use);
    while (waiter != STI_NO_WAITER) {
        struct sti_waiter waiting = fetcher->waiters[waiter];

        sti_fetcher_free_waiter(fetcher, waiter);
        if (waiting.record)
            sti_fetcher_arrive(fetcher, waiting.record, waiting.item, sample, entry);
        else
            sti_fetcher_serve_arrived(fetcher, waiting.item, entry);
        waiter = waiting.next;
    }
}

void
sti_fetcher_lose(struct sti_fetcher *fetcher, uint64_t sample, uint64_t address, int code)
{
    struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);
    struct sti_bad bad = {.sample = sample, .code = code};
    uint32_t waiter = entry->key;

    sti_fetcher_put_memory(fetcher, sample, address);
    entry->pins = 0;
    /* Replaced for good, so that every epoch replaces alike; else tried again when it
     * comes. */
    entry->state = fetcher->opts.must_replace ? STI_SAMPLE_BAD : STI_SAMPLE_ABSENT;
    entry->key = (uint32_t)code;
    if (entry->state == STI_SAMPLE_ABSENT)
        sti_catalog_forget(fetcher->catalog, sample);
    while (waiter != STI_NO_WAITER) {
        struct sti_waiter waiting = fetcher->waiters[waiter];

        sti_fetcher_free_waiter(fetcher, waiter);
        if (waiting.record) {
            sti_fetcher_discount(fetcher, waiting.record, waiting.item);
            sti_fetcher_fail(fetcher, waiting.record, waiting.item, &bad);
        } else {
            sti_fetcher_serve_lost(fetcher, waiting.item, code);
        }
        waiter = waiting.next;
    }
}

static void
lose_piece(struct sti_fetcher *fetcher, const struct sti_piece *piece, int code)
{
    if (piece->slot.segment != STI_SSD_NO_SLOT) {
        sti_ssd_settle(fetcher->ssd, piece->slot, false);
        if (sti_fetcher_is_mine(fetcher, piece->sample) &&
            !sti_fetcher_is_in_ram(fetcher, piece->sample))
            fetcher->peering->ssd_begun_bytes -= piece->length;
    }
    sti_fetcher_lose(fetcher, piece->sample, piece->address, code);
}

uint64_t *
sti_fetcher_origin_count(struct sti_fetcher *fetcher, uint32_t waiter)
{
    struct sti_record *record = waiter == STI_NO_WAITER ? NULL : fetcher->waiters[waiter].record;

    return record ? &record->origin_bytes : &fetcher->beside_bytes;
}

void
sti_fetcher_account_again(struct sti_fetcher *fetcher, uint64_t sample, enum stk_tier from,
                          enum stk_tier to)
{
    const struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);
    uint64_t n_bytes = sti_dataset_length(fetcher->opts.dataset, sample);

    for (uint32_t at = entry->key; at != STI_NO_WAITER; at = fetcher->waiters[at].next) {
        struct sti_record *record = fetcher->waiters[at].record;
        uint32_t item = fetcher->waiters[at].item;

        if (!record || record->tiers[item] != from)
            continue;
        record->tiers[item] = (uint8_t)to;
        record->tier_samples[from]--;
        record->tier_bytes[from] -= n_bytes;
        record->tier_samples[to]++;
        record->tier_bytes[to] += n_bytes;
        record->origin_bytes += to == STK_TIER_ORIGIN ? n_bytes : 0;
        return;
    }
    fetcher->beside_bytes +=
        to == STK_TIER_ORIGIN ? n_bytes : 0; /* a seek: that batch is gone; or it is for a peer */
}

static void
on_done(struct sti_aio_op *op);

/* On the pool, with the read's result: copies what the SSD tier takes of it. */
static void
fill_slots(struct sti_aio_op *op)
{
    struct sti_read *read = op->context;
    struct sti_fetcher *fetcher = read->fetcher;

    if (sti_origin_check(&read->extent, &read->range, op->result) != 0)
        return;
    for (uint32_t at = 0; at < read->n_pieces; at++)
        if (read->pieces[at].slot.segment != STI_SSD_NO_SLOT)
            sti_ssd_fill(fetcher->ssd, read->pieces[at].slot, piece_bytes(read, &read->pieces[at]));
    read->is_filled = true;
}

static bool
is_filled_by_pool(const struct sti_read *read)
{
    uint64_t n_bytes = 0;

    for (uint32_t at = 0; at < read->n_pieces; at++)
        if (read->pieces[at].slot.segment != STI_SSD_NO_SLOT)
            n_bytes += read->pieces[at].length;
    return n_bytes > FILL_AT_ONCE_BYTES;
}

/* Prepares the read of one piece, or of all when they are one stretch. */
static void
prepare(struct sti_fetcher *fetcher, struct sti_read *read)
{
    const struct sti_piece *first = &read->pieces[0];
    const struct sti_piece *last = read->is_split ? first : &read->pieces[read->n_pieces - 1];
    char *bytes =
        read->is_in_place ? sti_store_pointer(fetcher->store, first->address) : read->bounce;

    read->extent.offset = first->offset;
    read->extent.length = last->offset + last->length - first->offset;
    read->range = sti_origin_cover(&fetcher->origin, &read->extent);
    memset(&read->op, 0, sizeof(read->op));
    read->file =
        sti_origin_prepare(&fetcher->origin, &read->extent, &read->range, bytes, &read->op);
    read->op.done = on_done;
    read->op.context = read;
    if (!read->is_split && is_filled_by_pool(read)) {
        read->op.work = fill_slots;
        read->op.work_lane = STI_LANE_NORMAL;
    }
    read->is_filled = false;
    read->n_tries = 0;
}

/* The read has given all it can: its first piece, or all of them, with the same code. */
void
sti_fetcher_conclude_read(struct sti_fetcher *fetcher, struct sti_read *read, int code)
{
    uint32_t n = read->is_split ? 1 : read->n_pieces;

    sti_files_put(read->file);
    read->file = NULL;
    for (uint32_t at = 0; at < n; at++) {
        if (code == 0)
            finish_piece(fetcher, read, at);
        else
            lose_piece(fetcher, &read->pieces[at], code);
    }
    read->n_pieces -= n;
    if (read->n_pieces > 0) {
        memmove(read->pieces, read->pieces + n, read->n_pieces * sizeof(read->pieces[0]));
        prepare(fetcher, read);
        submit(fetcher, read);
        return;
    }
    read->next = fetcher->free_reads;
    fetcher->free_reads = read;
    fetcher->n_reading--;
}

/* A read has come to its end with a code: it gave what it should, or there is something
 * left to try. */
static void
settle(struct sti_fetcher *fetcher, struct sti_read *read, int code)
{
    bool may_help = code != 0 && code != STK_E_STALE;

    if (may_help && read->n_tries < fetcher->opts.retries && !fetcher->is_stopped) {
        read->n_tries++;
        submit(fetcher, read);
        return;
    }
    if (may_help && !read->is_split && read->n_pieces > 1) {
        read->is_split = true;
        sti_files_put(read->file);
        prepare(fetcher, read);
        submit(fetcher, read);
        return;
    }
    sti_fetcher_conclude_read(fetcher, read, code);
}

static void
on_looked_at(struct sti_aio_op *op)
{
    struct sti_read *read = op->context;

    settle(read->fetcher, read, sti_files_compare(&read->extent, op));
}

/* Looks whether the file that a read has opened is the one that was indexed. */
static void
look(struct sti_fetcher *fetcher, struct sti_read *read)
{
    sti_files_prepare_look(&read->extent, &read->found, &read->look_op);
    read->look_op.done = on_looked_at;
    read->look_op.context = read;
    sti_aio_submit(fetcher->opts.aio, &read->look_op);
}

static void
on_done(struct sti_aio_op *op)
{
    struct sti_read *read = op->context;
    struct sti_fetcher *fetcher = read->fetcher;
    int code = sti_origin_check(&read->extent, &read->range, op->result);

    sti_cost_learner_end(&fetcher->origin_cost, sti_clock_ns(), read->began_ns,
                         op->result > 0 ? (uint64_t)op->result : 0);
    if (code == -EINVAL && (op->open_flags & O_DIRECT)) {
        op->kind = STI_AIO_READ_FILE;
        op->open_flags &= ~(uint32_t)O_DIRECT; /* this file lies where direct I/O does not work */
        submit(fetcher, read);
        return;
    }
    if (code == 0 && op->kind == STI_AIO_READ_FILE && read->extent.file != STI_EXTENT_WHOLE)
        look(fetcher, read);
    else
        settle(fetcher, read, code);
}

void
sti_fetcher_read_again(struct sti_fetcher *fetcher, struct sti_read *read)
{
    struct sti_piece *piece = &read->pieces[0];
    int rc = sti_dataset_extent(fetcher->opts.dataset, piece->sample, &read->extent);

    read->is_ssd = false;
    if (rc < 0) {
        sti_fetcher_conclude_read(fetcher, read, rc);
        return;
    }
    piece->offset = read->extent.offset;
    prepare(fetcher, read);
    submit(fetcher, read);
}

/* ---- start ------------------------------------------------------------------------- */

void
sti_fetcher_submit_growing(struct sti_fetcher *fetcher)
{
    struct sti_read *read = fetcher->growing;

    if (!read)
        return;
    fetcher->growing = NULL;
    prepare(fetcher, read);
    submit(fetcher, read);
}

/* Whether a small sample follows what the growing read covers closely enough to join
 * it. */
static bool
can_join(const struct sti_fetcher *fetcher, const struct sti_extent *extent)
{
    const struct sti_read *read = fetcher->growing;

    if (!read || read->is_in_place || extent->length >= STI_IN_PLACE_BYTES ||
        read->n_pieces == STI_READ_PIECES || read->extent.file != extent->file)
        return false;
    const struct sti_piece *first = &read->pieces[0];
    const struct sti_piece *last = &read->pieces[read->n_pieces - 1];
    uint64_t end = extent->offset + extent->length;
    return extent->offset >= last->offset &&
           extent->offset <= last->offset + last->length + GAP_BYTES &&
           end >= last->offset + last->length &&
           end - first->offset + sti_origin_padding_bytes(&fetcher->origin) <=
               fetcher->bounce_bytes;
}

struct sti_read *
sti_fetcher_new_read(struct sti_fetcher *fetcher, uint64_t n_bytes)
{
    struct sti_read *read = fetcher->free_reads;
    if (!read)
        return NULL;
    fetcher->free_reads = read->next;
    fetcher->n_reading++;
    read->n_pieces = 0;
    read->is_split = false;
    read->is_ssd = false;
    read->is_in_place = n_bytes >= STI_IN_PLACE_BYTES;
    return read;
}

/* A read that the sample may be a piece of: the growing one, or a new one. */
static struct sti_read *
find_read(struct sti_fetcher *fetcher, const struct sti_extent *extent)
{
    if (can_join(fetcher, extent))
        return fetcher->growing;
    sti_fetcher_submit_growing(fetcher);
    struct sti_read *read = sti_fetcher_new_read(fetcher, extent->length);
    if (read)
        read->extent = *extent;
    return read;
}

void
sti_fetcher_give_back_read(struct sti_fetcher *fetcher, struct sti_read *read)
{
    if (read->n_pieces > 0)
        return;
    read->next = fetcher->free_reads;
    fetcher->free_reads = read;
    fetcher->n_reading--;
}

struct sti_entry *
sti_fetcher_begin_entry(struct sti_fetcher *fetcher, uint64_t sample, uint64_t address,
                        uint32_t waiter)
{
    struct sti_entry *entry = sti_catalog_need(fetcher->catalog, sample);

    if (!entry) {
        sti_fetcher_put_memory(fetcher, sample, address);
        return NULL;
    }
    entry->address = address;
    entry->state = STI_SAMPLE_READING;
    entry->kept = STI_KEPT_NOT;
    entry->pins = waiter == STI_NO_WAITER ? 0 : 1;
    entry->key = waiter;
    if (waiter != STI_NO_WAITER)
        fetcher->waiters[waiter].next = STI_NO_WAITER;
    return entry;
}

struct sti_entry *
sti_fetcher_add_piece(struct sti_fetcher *fetcher, struct sti_read *read, uint64_t sample,
                      const struct sti_extent *extent, uint32_t waiter)
{
    uint64_t address = sti_fetcher_make_room(fetcher, sample);

    if (address == STI_STORE_NONE)
        return NULL;
    struct sti_entry *entry = sti_fetcher_begin_entry(fetcher, sample, address, waiter);
    if (!entry)
        return NULL;
    struct sti_ssd_slot slot = {.segment = STI_SSD_NO_SLOT};
    if (!read->is_ssd && sti_fetcher_goes_to_ssd(fetcher, sample, extent->length))
        slot = sti_ssd_reserve(fetcher->ssd, sample, extent->length);
    if (slot.segment != STI_SSD_NO_SLOT && sti_fetcher_is_mine(fetcher, sample) &&
        !sti_fetcher_is_in_ram(fetcher, sample))
        fetcher->peering->ssd_begun_bytes += extent->length;
    read->pieces[read->n_pieces++] = (struct sti_piece){.sample = sample,
                                                        .address = address,
                                                        .offset = extent->offset,
                                                        .length = extent->length,
                                                        .slot = slot};
    return entry;
}

/* Adds the absent neighbours from first to end (not included); returns their bytes. Stops
 * at the first that is not absent: what a read covers has no gap. */
static uint64_t
add_neighbours(struct sti_fetcher *fetcher, struct sti_read *read, uint64_t first, uint64_t end)
{
    uint64_t n_bytes = 0;

    for (uint64_t sample = first; sample < end; sample++) {
        const struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);
        struct sti_extent extent;

        if ((entry && entry->state != STI_SAMPLE_ABSENT) || sti_ssd_has(fetcher->ssd, sample) ||
            sti_dataset_extent(fetcher->opts.dataset, sample, &extent) < 0 ||
            !sti_fetcher_add_piece(fetcher, read, sample, &extent, STI_NO_WAITER))
            break;
        n_bytes += extent.length;
    }
    return n_bytes;
}

/* The first of the neighbours before a sample, back to the start of its group, that are
 * absent without a gap. */
static uint64_t
first_neighbour(struct sti_fetcher *fetcher, uint64_t sample)
{
    uint64_t first = sample - sample % fetcher->group;
    uint64_t at = sample;

    while (at > first) {
        const struct sti_entry *entry = sti_catalog_find(fetcher->catalog, at - 1);

        if ((entry && entry->state != STI_SAMPLE_ABSENT) || sti_ssd_has(fetcher->ssd, at - 1))
            break;
        at--;
    }
    return at;
}

bool
sti_fetcher_read(struct sti_fetcher *fetcher, uint32_t waiter, uint64_t sample,
                 const struct sti_extent *extent)
{
    uint64_t *origin_bytes = sti_fetcher_origin_count(fetcher, waiter);
    uint64_t n_bytes = fetcher->group > 1 ? fetcher->bounce_bytes : extent->length;

    if (!sti_ssd_is_ready(fetcher->ssd, fetcher->group, n_bytes))
        return false;
    struct sti_read *read = find_read(fetcher, extent);
    if (!read)
        return false;
    /* With room for everything, nothing below can be short of it. */
    if (fetcher->group > 1)
        *origin_bytes += add_neighbours(fetcher, read, first_neighbour(fetcher, sample), sample);
    if (!sti_fetcher_add_piece(fetcher, read, sample, extent, waiter)) {
        if (read->n_pieces > 0)
            fetcher->growing = read; /* its pieces are wanted all the same */
        sti_fetcher_give_back_read(fetcher, read);
        return false;
    }
    *origin_bytes += extent->length;
    if (fetcher->group > 1) {
        uint64_t end = sample - sample % fetcher->group + fetcher->group;
        uint64_t n = sti_dataset_count(fetcher->opts.dataset);

        *origin_bytes += add_neighbours(fetcher, read, sample + 1, end < n ? end : n);
    }
    fetcher->growing = read;
    if (read->is_in_place || extent->file == STI_EXTENT_WHOLE || fetcher->group > 1)
        sti_fetcher_submit_growing(fetcher);
    return true;
}
