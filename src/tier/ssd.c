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

#include "base/crc32c.h"
#include "tier/ssd_internal.h"

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

void
sti_ssd_set_place(struct sti_ssd *ssd, uint64_t sample, uint32_t dir, uint64_t offset)
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
    ssd->opts.on_trouble(ssd->opts.context, part->path, code, false);
}

void
sti_ssd_stop_writing(struct sti_ssd *ssd, uint32_t dir, int code)
{
    struct sti_ssd_part_state *part = &ssd->parts[dir];

    if (part->is_full || part->is_dropped)
        return;
    part->is_full = true;
    ssd->opts.on_trouble(ssd->opts.context, part->path, code, true);
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
        sti_ssd_stop_writing(ssd, segment->dir, code);
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
        sti_ssd_stop_writing(segment->ssd, segment->dir, op->result);
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
    else if (segment->done_bytes % STI_SSD_UNIT_BYTES != 0)
        lose_segment(segment, -ENOSPC);
    else
        write_rest(segment);
}

static void
write_rest(struct sti_segment *segment)
{
    struct sti_ssd *ssd = segment->ssd;
    uint64_t n_bytes = sti_ssd_round_up(segment->used_bytes, STI_SSD_UNIT_BYTES);

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
           sti_ssd_round_up(segment->used_bytes, STI_SSD_UNIT_BYTES) - segment->used_bytes);
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
    dir->data_end = segment->offset + sti_ssd_round_up(segment->used_bytes, STI_SSD_UNIT_BYTES);
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
           segment->used_bytes + n_samples * STI_SSD_RECORD_EXTRA_BYTES + n_bytes <=
               ssd->segment_bytes;
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

    record->crc = sti_crc32c_copy(header + STI_SSD_HEADER_BYTES, bytes, record->n_bytes);
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
        sti_ssd_set_place(ssd, record->sample, segment->dir, record->offset);
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

void
sti_ssd_set_range(struct sti_ssd *ssd, struct sti_ssd_range range)
{
    ssd->range = range;
}

uint64_t
sti_ssd_capacity_bytes(const struct sti_ssd *ssd)
{
    uint64_t uniform_bytes = sti_dataset_uniform_bytes(ssd->opts.dataset);
    uint64_t sum_bytes = 0;

    for (uint32_t at = 0; at < ssd->n_parts; at++) {
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

    for (uint32_t at = 0; at < ssd->n_parts; at++) {
        if (ssd->parts[at].is_dropped)
            counts.n_dropped += at < ssd->opts.n_parts;
        else
            counts.used_bytes += ssd->used_bytes[at];
    }
    return counts;
}
