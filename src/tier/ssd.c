/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing to the SSD tier. One segment at a time is open; samples are packed into it
 * behind their headers. When the next one does not fit it is closed, and written as soon
 * as every sample in it has come or failed. The next segment goes to the directory that
 * is filled least by its share. So a fast origin waits for the SSDs (sti_ssd_is_ready()),
 * which is what makes one reading of the origin enough.
 *
 * A place in the table is set when the sample has been copied into the segment and unset
 * when writing fails, so it always names bytes in memory or bytes whose write has
 * succeeded. Invariant: used_bytes of a directory is the sum of the samples with a place
 * in it and of the reservations, and never grows beyond its share.
 */
#include "tier/ssd.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tier/ssd_internal.h"

#define SEGMENT_BYTES (UINT64_C(4) << 20)
#define SEGMENT_LEAST_BYTES (UINT64_C(256) << 10) /* a group of neighbours */
#define SEGMENTS_PER_SHARE 32 /* so that small caches are spread over the directories, too */
#define UNIT_BYTES UINT64_C(4096)
/* What a sample takes beside its bytes, at most: header, alignment. */
#define RECORD_EXTRA_BYTES (3 * (uint64_t)STI_SSD_HEADER_BYTES)

static uint64_t
round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* ---- places ------------------------------------------------------------------------ */

void
sti_ssd_forget(struct sti_ssd *ssd, uint64_t sample)
{
    uint64_t place = ssd->places[sample];

    if (place >> STI_PLACE_SHIFT == 0)
        return;
    ssd->used_bytes[sti_place_dir(place)] -= sti_dataset_length(ssd->opts.dataset, sample);
    ssd->places[sample] = place & STI_PLACE_WARM;
}

static void
set_place(struct sti_ssd *ssd, uint64_t sample, uint32_t dir, uint64_t offset)
{
    uint64_t warm = ssd->places[sample] & STI_PLACE_WARM;

    ssd->places[sample] = (offset / STI_SSD_HEADER_BYTES + 1) << STI_PLACE_SHIFT | warm | dir;
}

void
sti_ssd_drop(struct sti_ssd *ssd, uint32_t dir, int code)
{
    struct sti_ssd_part_state *part = &ssd->parts[dir];

    if (part->is_dropped)
        return;
    part->is_dropped = true;
    ssd->opts.on_trouble(ssd->opts.context, ssd->opts.parts[dir].path, code, false);
}

static void
stop_writing(struct sti_ssd *ssd, uint32_t dir, int code)
{
    struct sti_ssd_part_state *part = &ssd->parts[dir];

    if (part->is_full || part->is_dropped)
        return;
    part->is_full = true;
    ssd->opts.on_trouble(ssd->opts.context, ssd->opts.parts[dir].path, code, true);
}

/* ---- segments ---------------------------------------------------------------------- */

static void
release(struct sti_segment *segment)
{
    segment->state = STI_SEGMENT_FREE;
    segment->n_records = 0;
    segment->used_bytes = 0;
}

/* The segment is not on the disk: its samples are not in the tier. */
static void
lose_segment(struct sti_segment *segment, int code)
{
    struct sti_ssd *ssd = segment->ssd;

    for (uint32_t at = 0; at < segment->n_records; at++)
        if (segment->records[at].is_good)
            sti_ssd_forget(ssd, segment->records[at].record.sample);
    if (code == -ENOSPC || code == -EDQUOT || code == -EFBIG)
        stop_writing(ssd, segment->dir, code);
    else
        sti_ssd_drop(ssd, segment->dir, code);
    release(segment);
}

static void
on_noted(struct sti_aio_op *op)
{
    struct sti_segment *segment = op->context;

    /* Without its entry a sample serves this run all the same. */
    if (op->result < 0)
        stop_writing(segment->ssd, segment->dir, op->result);
    release(segment);
}

static void
note(struct sti_segment *segment)
{
    struct sti_ssd *ssd = segment->ssd;
    struct sti_ssd_dir *dir = &ssd->parts[segment->dir].dir;
    uint32_t n = 0;

    for (uint32_t at = 0; at < segment->n_records; at++) {
        if (!segment->records[at].is_good)
            continue;
        sti_ssd_entry_encode(segment->entries + (uint64_t)n * STI_SSD_ENTRY_BYTES, &dir->identity,
                             &segment->records[at].record);
        n++;
    }
    if (n == 0) {
        release(segment);
        return;
    }
    segment->state = STI_SEGMENT_NOTING;
    memset(&segment->op, 0, sizeof(segment->op));
    segment->op.kind = STI_AIO_WRITE;
    segment->op.is_ssd = true;
    segment->op.fd = dir->catalog_fd;
    segment->op.bytes = segment->entries;
    segment->op.n_bytes = n * STI_SSD_ENTRY_BYTES;
    segment->op.offset = dir->catalog_end;
    segment->op.done = on_noted;
    segment->op.context = segment;
    dir->catalog_end += segment->op.n_bytes;
    sti_aio_submit(ssd->opts.aio, &segment->op);
}

static void
write_rest(struct sti_segment *segment);

static void
on_written(struct sti_aio_op *op)
{
    struct sti_segment *segment = op->context;

    if (op->result <= 0) {
        lose_segment(segment, op->result < 0 ? op->result : -ENOSPC);
        return;
    }
    segment->done_bytes += (uint64_t)op->result;
    segment->ssd->written_bytes += (uint64_t)op->result;
    if ((uint32_t)op->result == op->n_bytes)
        note(segment);
    else if (segment->done_bytes % UNIT_BYTES != 0)
        lose_segment(segment, -ENOSPC);
    else
        write_rest(segment);
}

static void
write_rest(struct sti_segment *segment)
{
    struct sti_ssd *ssd = segment->ssd;
    uint64_t n_bytes = round_up(segment->used_bytes, UNIT_BYTES);

    segment->state = STI_SEGMENT_WRITING;
    memset(&segment->op, 0, sizeof(segment->op));
    segment->op.kind = STI_AIO_WRITE;
    segment->op.is_ssd = true;
    segment->op.fd = ssd->parts[segment->dir].dir.data_fd;
    segment->op.bytes = segment->bytes + segment->done_bytes;
    segment->op.n_bytes = (uint32_t)(n_bytes - segment->done_bytes);
    segment->op.offset = segment->offset + segment->done_bytes;
    segment->op.done = on_written;
    segment->op.context = segment;
    sti_aio_submit(ssd->opts.aio, &segment->op);
}

static void
write_if_complete(struct sti_segment *segment)
{
    if (segment->state != STI_SEGMENT_CLOSED || segment->n_pending > 0)
        return;
    if (segment->ssd->parts[segment->dir].is_dropped) {
        lose_segment(segment, -EIO); /* reported when it was dropped */
        return;
    }
    memset(segment->bytes + segment->used_bytes, 0,
           round_up(segment->used_bytes, UNIT_BYTES) - segment->used_bytes);
    segment->done_bytes = 0;
    write_rest(segment);
}

static void
close_segment(struct sti_ssd *ssd)
{
    if (ssd->open_segment == STI_SSD_NO_SLOT)
        return;
    struct sti_segment *segment = &ssd->segments[ssd->open_segment];
    struct sti_ssd_dir *dir = &ssd->parts[segment->dir].dir;

    ssd->open_segment = STI_SSD_NO_SLOT;
    dir->data_end = segment->offset + round_up(segment->used_bytes, UNIT_BYTES);
    segment->state = STI_SEGMENT_CLOSED;
    write_if_complete(segment);
}

/* ---- reservations ------------------------------------------------------------------ */

static bool
belongs(const struct sti_ssd *ssd, uint64_t n_bytes)
{
    return n_bytes > 0 && n_bytes <= STI_SSD_SAMPLE_MAX && n_bytes >= ssd->range.least_bytes &&
           n_bytes <= ssd->range.most_bytes;
}

/* The directory for the next sample; UINT32_MAX: none has room. */
static uint32_t
choose_dir(const struct sti_ssd *ssd, uint64_t n_bytes)
{
    struct sti_share shares[STI_SSDS_MAX];

    for (uint32_t at = 0; at < ssd->opts.n_parts; at++) {
        const struct sti_ssd_part_state *part = &ssd->parts[at];

        shares[at] = ssd->shares[at];
        if (part->is_dropped || part->is_full || !part->dir.is_writable)
            shares[at].share_bytes = 0;
    }
    return sti_shares_next(shares, ssd->used_bytes, ssd->opts.n_parts, n_bytes);
}

static uint32_t
free_segment(const struct sti_ssd *ssd)
{
    for (uint32_t at = 0; at < ssd->n_segments; at++)
        if (ssd->segments[at].state == STI_SEGMENT_FREE)
            return at;
    return STI_SSD_NO_SLOT;
}

/* Where in the open segment a sample would lie; false if it does not fit. */
static bool
fits(const struct sti_ssd *ssd, uint64_t n_bytes, uint64_t *ret_at)
{
    if (ssd->open_segment == STI_SSD_NO_SLOT)
        return false;
    const struct sti_segment *segment = &ssd->segments[ssd->open_segment];
    const struct sti_ssd_part_state *part = &ssd->parts[segment->dir];
    uint64_t at = sti_ssd_align(segment->used_bytes);

    *ret_at = at;
    return !part->is_dropped && !part->is_full && segment->n_records < ssd->records_max &&
           at + STI_SSD_HEADER_BYTES + n_bytes <= ssd->segment_bytes &&
           ssd->used_bytes[segment->dir] + n_bytes <= ssd->shares[segment->dir].share_bytes;
}

bool
sti_ssd_is_ready(struct sti_ssd *ssd, uint64_t n_samples, uint64_t n_bytes)
{
    if (!ssd)
        return true;
    if (free_segment(ssd) != STI_SSD_NO_SLOT || choose_dir(ssd, 1) == UINT32_MAX)
        return true;
    if (ssd->open_segment == STI_SSD_NO_SLOT)
        return false;
    const struct sti_segment *segment = &ssd->segments[ssd->open_segment];
    if (ssd->used_bytes[segment->dir] + n_bytes > ssd->shares[segment->dir].share_bytes)
        return choose_dir(ssd, n_bytes) == UINT32_MAX; /* another directory needs a segment */
    return segment->n_records + n_samples <= ssd->records_max &&
           segment->used_bytes + n_samples * RECORD_EXTRA_BYTES + n_bytes <= ssd->segment_bytes;
}

static bool
open_segment(struct sti_ssd *ssd, uint64_t n_bytes)
{
    uint32_t dir = choose_dir(ssd, n_bytes);

    if (dir == UINT32_MAX)
        return false;
    close_segment(ssd);
    uint32_t at = free_segment(ssd);
    if (at == STI_SSD_NO_SLOT)
        return false;
    struct sti_segment *segment = &ssd->segments[at];
    segment->state = STI_SEGMENT_OPEN;
    segment->dir = dir;
    segment->offset = ssd->parts[dir].dir.data_end;
    segment->used_bytes = 0;
    ssd->open_segment = at;
    return true;
}

struct sti_ssd_slot
sti_ssd_reserve(struct sti_ssd *ssd, uint64_t sample, uint64_t n_bytes)
{
    const struct sti_ssd_slot none = {.segment = STI_SSD_NO_SLOT};
    uint64_t at;

    if (!ssd || !belongs(ssd, n_bytes) || sti_ssd_has(ssd, sample))
        return none;
    if (!fits(ssd, n_bytes, &at) && (!open_segment(ssd, n_bytes) || !fits(ssd, n_bytes, &at)))
        return none;
    struct sti_segment *segment = &ssd->segments[ssd->open_segment];
    struct sti_ssd_slot slot = {.segment = ssd->open_segment, .record = segment->n_records++};

    memset(segment->bytes + segment->used_bytes, 0, at - segment->used_bytes);
    segment->records[slot.record] = (struct sti_segment_record){
        .record = {.sample = sample, .offset = segment->offset + at, .n_bytes = (uint32_t)n_bytes}};
    segment->used_bytes = at + STI_SSD_HEADER_BYTES + n_bytes;
    segment->n_pending++;
    ssd->used_bytes[segment->dir] += n_bytes;
    return slot;
}

void
sti_ssd_fill(struct sti_ssd *ssd, struct sti_ssd_slot slot, const void *bytes)
{
    struct sti_segment *segment = &ssd->segments[slot.segment];
    struct sti_ssd_record *record = &segment->records[slot.record].record;
    char *header = segment->bytes + (record->offset - segment->offset);

    record->crc = sti_ssd_copy(header + STI_SSD_HEADER_BYTES, bytes, record->n_bytes);
    sti_ssd_header_encode(header, &ssd->parts[segment->dir].dir.identity, record);
}

void
sti_ssd_settle(struct sti_ssd *ssd, struct sti_ssd_slot slot, bool is_good)
{
    struct sti_segment *segment = &ssd->segments[slot.segment];
    struct sti_segment_record *entry = &segment->records[slot.record];
    const struct sti_ssd_record *record = &entry->record;

    assert(segment->n_pending > 0);
    entry->is_good = is_good;
    if (is_good) {
        set_place(ssd, record->sample, segment->dir, record->offset);
    } else {
        memset(segment->bytes + (record->offset - segment->offset), 0,
               STI_SSD_HEADER_BYTES + (uint64_t)record->n_bytes);
        ssd->used_bytes[segment->dir] -= record->n_bytes;
    }
    segment->n_pending--;
    write_if_complete(segment);
}

bool
sti_ssd_finish(struct sti_ssd *ssd)
{
    if (!ssd)
        return true;
    close_segment(ssd);
    for (uint32_t at = 0; at < ssd->n_segments; at++)
        if (ssd->segments[at].state != STI_SEGMENT_FREE)
            return false;
    return true;
}

/* ---- open and close ---------------------------------------------------------------- */

struct loading {
    struct sti_ssd *ssd;
    uint32_t dir;
};

/* An entry of a catalogue: is it a sample of this data set? The first directory that has
 * one serves it; within a directory the last entry. */
static bool
on_record(void *context, const struct sti_ssd_record *record)
{
    struct loading *loading = context;
    struct sti_ssd *ssd = loading->ssd;

    if (record->sample >= sti_dataset_count(ssd->opts.dataset) ||
        record->n_bytes != sti_dataset_length(ssd->opts.dataset, record->sample))
        return false;
    uint64_t place = ssd->places[record->sample];
    if (place >> STI_PLACE_SHIFT != 0 && sti_place_dir(place) != loading->dir)
        return true;
    if (place >> STI_PLACE_SHIFT == 0)
        ssd->used_bytes[loading->dir] += record->n_bytes;
    set_place(ssd, record->sample, loading->dir, record->offset);
    ssd->places[record->sample] |= STI_PLACE_WARM;
    return true;
}

static void
open_part(struct sti_ssd *ssd, uint32_t dir)
{
    const struct sti_ssd_part *part = &ssd->opts.parts[dir];
    const struct sti_dataset *dataset = ssd->opts.dataset;
    struct sti_ssd_part_state *state = &ssd->parts[dir];
    struct loading loading = {.ssd = ssd, .dir = dir};
    uint64_t average_bytes = sti_dataset_bytes(dataset) / sti_dataset_count(dataset) + 1;
    /* Headers, and their part of the catalogue. */
    uint64_t want_bytes =
        part->share_bytes + part->share_bytes / average_bytes * (RECORD_EXTRA_BYTES - 32);
    struct sti_ssd_dir_opts opts = {
        .path = part->path,
        .dataset_id = sti_dataset_identity(dataset),
        .capacity_bytes = part->capacity_bytes + (want_bytes - part->share_bytes),
        .want_bytes = want_bytes,
        .is_buffered = ssd->opts.is_buffered,
        .on_record = on_record,
        .context = &loading,
    };

    ssd->shares[dir].share_bytes = part->share_bytes;
    int rc = sti_ssd_dir_open(&state->dir, &opts);
    if (rc < 0)
        sti_ssd_drop(ssd, dir, rc);
    else if (!state->dir.is_readable)
        sti_ssd_drop(ssd, dir, state->dir.read_only_code); /* nothing to read yet */
    else if (state->dir.is_writable && state->dir.room_bytes < want_bytes)
        ssd->shares[dir].share_bytes =
            (uint64_t)((double)part->share_bytes * (double)state->dir.room_bytes /
                       (double)want_bytes);
}

/* What is only read and has not all that it might: the run goes on, but not as asked for. */
static void
tell_read_only(struct sti_ssd *ssd)
{
    uint64_t missing_bytes = sti_dataset_bytes(ssd->opts.dataset);
    uint64_t max_bytes = sti_dataset_max_bytes(ssd->opts.dataset);

    for (uint32_t at = 0; at < ssd->opts.n_parts; at++)
        missing_bytes -= ssd->used_bytes[at];
    for (uint32_t at = 0; at < ssd->opts.n_parts; at++)
        if (ssd->parts[at].dir.is_readable && !ssd->parts[at].dir.is_writable &&
            missing_bytes > 0 && ssd->used_bytes[at] + max_bytes <= ssd->shares[at].share_bytes)
            stop_writing(ssd, at, ssd->parts[at].dir.read_only_code);
}

static int
allocate_segments(struct sti_ssd *ssd)
{
    uint64_t max_bytes = sti_dataset_max_bytes(ssd->opts.dataset);
    uint64_t segment_bytes = sti_ssd_capacity_bytes(ssd) / SEGMENTS_PER_SHARE;

    if (max_bytes > STI_SSD_SAMPLE_MAX)
        max_bytes = STI_SSD_SAMPLE_MAX;
    if (segment_bytes > SEGMENT_BYTES)
        segment_bytes = SEGMENT_BYTES;
    if (segment_bytes < SEGMENT_LEAST_BYTES)
        segment_bytes = SEGMENT_LEAST_BYTES;
    if (segment_bytes < max_bytes + RECORD_EXTRA_BYTES)
        segment_bytes = max_bytes + RECORD_EXTRA_BYTES;
    ssd->segment_bytes = round_up(segment_bytes, UNIT_BYTES);
    ssd->records_max = (uint32_t)(ssd->segment_bytes / (2 * (uint64_t)STI_SSD_HEADER_BYTES));
    ssd->n_segments = ssd->opts.n_parts + 2;
    ssd->segments = sti_mem_new(ssd->n_segments, sizeof(struct sti_segment));
    if (!ssd->segments)
        return -ENOMEM;
    int rc = sti_arena_open(&ssd->arena, ssd->n_segments * ssd->segment_bytes, 0);
    for (uint32_t at = 0; rc == 0 && at < ssd->n_segments; at++) {
        struct sti_segment *segment = &ssd->segments[at];

        segment->ssd = ssd;
        segment->bytes = ssd->arena.base + at * ssd->segment_bytes;
        segment->records = sti_mem_new(ssd->records_max, sizeof(struct sti_segment_record));
        segment->entries = sti_mem_new(ssd->records_max, STI_SSD_ENTRY_BYTES);
        if (!segment->records || !segment->entries)
            rc = -ENOMEM;
    }
    return rc;
}

int
sti_ssd_open(struct sti_ssd **ret_ssd, const struct sti_ssd_opts *opts)
{
    struct sti_ssd *ssd = sti_mem_new(1, sizeof(*ssd));
    int rc = -ENOMEM;

    if (!ssd)
        return rc;
    ssd->opts = *opts;
    ssd->open_segment = STI_SSD_NO_SLOT;
    ssd->range = (struct sti_ssd_range){.least_bytes = UINT64_MAX};
    for (uint32_t at = 0; at < STI_SSDS_MAX; at++)
        ssd->parts[at].dir =
            (struct sti_ssd_dir){.dir_fd = -1, .lock_fd = -1, .data_fd = -1, .catalog_fd = -1};
    ssd->places = sti_mem_new(sti_dataset_count(opts->dataset), sizeof(uint64_t));
    if (!ssd->places)
        goto err_ssd;
    for (uint32_t at = 0; at < opts->n_parts; at++)
        open_part(ssd, at);
    tell_read_only(ssd);
    rc = allocate_segments(ssd);
    if (rc < 0)
        goto err_ssd;
    *ret_ssd = ssd;
    return 0;

err_ssd:
    sti_ssd_close(ssd);
    return rc;
}

void
sti_ssd_set_range(struct sti_ssd *ssd, struct sti_ssd_range range)
{
    ssd->range = range;
}

void
sti_ssd_close(struct sti_ssd *ssd)
{
    if (!ssd)
        return;
    for (uint32_t at = 0; at < ssd->opts.n_parts; at++)
        sti_ssd_dir_close(&ssd->parts[at].dir);
    for (uint32_t at = 0; ssd->segments && at < ssd->n_segments; at++) {
        assert(ssd->segments[at].state == STI_SEGMENT_FREE);
        sti_mem_free(ssd->segments[at].records);
        sti_mem_free(ssd->segments[at].entries);
    }
    sti_mem_free(ssd->segments);
    sti_arena_close(&ssd->arena);
    sti_mem_free(ssd->places);
    sti_mem_free(ssd);
}

uint64_t
sti_ssd_capacity_bytes(const struct sti_ssd *ssd)
{
    uint64_t uniform_bytes = sti_dataset_uniform_bytes(ssd->opts.dataset);
    uint64_t sum_bytes = 0;

    for (uint32_t at = 0; at < ssd->opts.n_parts; at++) {
        const struct sti_ssd_part_state *part = &ssd->parts[at];
        uint64_t share_bytes = ssd->shares[at].share_bytes;

        if (part->is_dropped)
            continue;
        if (uniform_bytes > 0) /* what is left over a whole sample holds nothing */
            share_bytes -= share_bytes % uniform_bytes;
        /* What another job keeps, or a larger share left, counts as far as it is
         * there. */
        if (!part->dir.is_writable || ssd->used_bytes[at] > share_bytes)
            sum_bytes += ssd->used_bytes[at];
        else
            sum_bytes += share_bytes;
    }
    return sum_bytes;
}

struct sti_ssd_counts
sti_ssd_counts(const struct sti_ssd *ssd)
{
    struct sti_ssd_counts counts = {.written_bytes = ssd->written_bytes,
                                    .n_refused = ssd->n_refused};

    for (uint32_t at = 0; at < ssd->opts.n_parts; at++) {
        if (ssd->parts[at].is_dropped)
            counts.n_dropped++;
        else
            counts.used_bytes += ssd->used_bytes[at];
    }
    return counts;
}
