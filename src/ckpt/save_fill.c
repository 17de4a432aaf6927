/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filling a slot, on a pool thread: copy and CRC-32C in one pass. Bytes are stored into
 * the slot past the caches, since only the device reads them next, and into a block that
 * stays in the cache and is summed there: so memory is read once and written once, and
 * the CRC is of what is written. A slot begins on a chunk and holds whole ones,
 * so no two jobs touch one CRC. What a job has taken it takes off the tensors under the
 * lock, and wakes who waits for them.
 */
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/stream.h"
#include "ckpt/save_internal.h"

/* Small: while one is summed, the next ones are on their way from memory. */
#define BLOCK_BYTES 2048u

/* Where in the stream the next byte comes from. */
struct cursor {
    const struct sti_save *save;
    const struct sti_part *part;
    const struct sti_layout *layout;
    uint32_t extent;
    uint64_t extent_at; /* in the extent */
    uint32_t tensor;    /* the first of the layout that ends behind the cursor */
};

static void
cursor_seek(struct cursor *cursor, uint64_t part_offset)
{
    while (part_offset >= cursor->part->extents[cursor->extent].n_bytes)
        part_offset -= cursor->part->extents[cursor->extent++].n_bytes;
    cursor->extent_at = part_offset;
    cursor->tensor = sti_layout_first_behind(
        cursor->layout, cursor->part->extents[cursor->extent].offset + part_offset);
}

/* The bytes at the cursor that lie together in memory, at most n_bytes. */
static const char *
cursor_run(const struct cursor *cursor, uint64_t n_bytes, uint64_t *ret_bytes)
{
    const struct sti_part_extent *extent = &cursor->part->extents[cursor->extent];
    const struct sti_layout *layout = cursor->layout;
    uint64_t offset = extent->offset + cursor->extent_at;
    uint64_t left = extent->n_bytes - cursor->extent_at;

    left = left < n_bytes ? left : n_bytes;
    if (offset < layout->header_bytes) {
        uint64_t header_left = layout->header_bytes - offset;

        *ret_bytes = left < header_left ? left : header_left;
        return layout->header + offset;
    }
    const struct sti_layout_tensor *tensor = &layout->tensors[cursor->tensor];
    const struct sti_source *source = &cursor->save->sources[cursor->tensor];
    uint64_t skip = offset - tensor->offset;
    uint64_t tensor_left = tensor->n_bytes - skip;
    *ret_bytes = left < tensor_left ? left : tensor_left;
    return source->bytes + (skip - source->from);
}

static void
cursor_advance(struct cursor *cursor, uint64_t n_bytes)
{
    const struct sti_part_extent *extent = &cursor->part->extents[cursor->extent];
    const struct sti_layout *layout = cursor->layout;

    cursor->extent_at += n_bytes;
    if (cursor->extent_at == extent->n_bytes) {
        cursor->extent++;
        cursor->extent_at = 0;
        if (cursor->extent == cursor->part->n_extents)
            return;
        extent++;
    }
    uint64_t offset = extent->offset + cursor->extent_at;
    while (cursor->tensor < layout->n_tensors &&
           layout->tensors[cursor->tensor].offset + layout->tensors[cursor->tensor].n_bytes <=
               offset)
        cursor->tensor++;
}

/* Copies the next bytes to a slot, and to block. */
static void
copy_block(struct cursor *cursor, char *dst, char *block, uint64_t n_bytes)
{
    while (n_bytes > 0) {
        uint64_t run_bytes;
        const char *run = cursor_run(cursor, n_bytes, &run_bytes);

        sti_stream_copy(dst, block, run, run_bytes);
        cursor_advance(cursor, run_bytes);
        dst += run_bytes;
        block += run_bytes;
        n_bytes -= run_bytes;
    }
}

/* Copies a slot's bytes and sets the CRCs of its chunks. */
static void
copy_and_sum(const struct sti_slot *slot)
{
    char block[BLOCK_BYTES] __attribute__((aligned(64)));
    uint32_t chunk_bytes = slot->saver->opts.chunk_bytes;
    struct cursor cursor = {
        .save = slot->stripe->save, .part = &slot->stripe->part, .layout = slot->stripe->layout};
    uint32_t *crcs = slot->stripe->part.crcs + slot->offset / chunk_bytes;
    uint32_t at = 0;

    cursor_seek(&cursor, slot->offset);
    while (at < slot->n_bytes) {
        uint32_t chunk_end = at - at % chunk_bytes + chunk_bytes;
        uint32_t crc = 0;

        if (chunk_end > slot->n_bytes)
            chunk_end = slot->n_bytes;
        while (at < chunk_end) {
            uint32_t n = chunk_end - at < BLOCK_BYTES ? chunk_end - at : BLOCK_BYTES;

            copy_block(&cursor, slot->bytes + at, block, n);
            crc = sti_crc32c(crc, block, n);
            at += n;
        }
        *crcs++ = crc;
    }
    sti_stream_finish();
    memset(slot->bytes + slot->n_bytes, 0, slot->padded_bytes - slot->n_bytes);
}

/* Takes the captured stretch [offset, end) of the stream off its tensors. */
static void
note_captured_locked(struct sti_saver *saver, const struct sti_stripe *stripe, uint64_t offset,
                     uint64_t end) STI_REQUIRES(&saver->lock)
{
    struct sti_save *save = stripe->save;
    const struct sti_layout *layout = stripe->layout;

    (void)saver; /* its lock covers the counts */
    for (uint32_t idx = sti_layout_first_behind(layout, offset);
         idx < layout->n_tensors && layout->tensors[idx].offset < end; idx++) {
        const struct sti_layout_tensor *tensor = &layout->tensors[idx];
        uint64_t *left_bytes = &save->uncaptured_bytes[tensor->given_idx];
        uint64_t from = tensor->offset > offset ? tensor->offset : offset;
        uint64_t to = tensor->offset + tensor->n_bytes;

        to = to < end ? to : end;
        if (*left_bytes == 0 || to <= from) /* copied at once, or empty */
            continue;
        *left_bytes -= to - from;
        if (*left_bytes == 0)
            save->n_uncaptured--;
    }
}

/* Returns whether that was the last of some tensor. */
static bool
note_slot_captured_locked(struct sti_saver *saver, const struct sti_slot *slot)
    STI_REQUIRES(&saver->lock)
{
    struct sti_save *save = slot->stripe->save;
    const struct sti_part *part = &slot->stripe->part;
    uint64_t at = slot->offset;
    uint64_t left = slot->n_bytes;
    uint32_t n_before = save->n_uncaptured;

    for (uint32_t idx = 0; left > 0; idx++) {
        const struct sti_part_extent *extent = &part->extents[idx];

        if (at >= extent->n_bytes) {
            at -= extent->n_bytes;
            continue;
        }
        uint64_t n = extent->n_bytes - at < left ? extent->n_bytes - at : left;
        note_captured_locked(saver, slot->stripe, extent->offset + at, extent->offset + at + n);
        left -= n;
        at = 0;
    }
    if (n_before > 0 && save->n_uncaptured == 0) {
        save->captured_ns = sti_clock_ns();
        saver->status.last_captured = save->step;
    }
    return save->n_uncaptured < n_before;
}

static void
fill_job(struct sti_job *job)
{
    struct sti_slot *slot =
        (struct sti_slot *)(void *)((char *)job - offsetof(struct sti_slot, job));
    struct sti_saver *saver = slot->saver;

    copy_and_sum(slot);
    sti_mutex_lock(&saver->lock);
    if (note_slot_captured_locked(saver, slot) && saver->n_fencing > 0)
        sti_cond_broadcast(&saver->changed);
    slot->next = saver->filled;
    saver->filled = slot;
    /* Under the lock, since saver and aio may be gone as soon as the loop has seen the
     * slot. The wake does not block. */
    sti_aio_wake(saver->opts.aio);
    sti_mutex_unlock(&saver->lock);
}

void
sti_slot_fill(struct sti_slot *slot)
{
    slot->job.fn = fill_job;
    sti_pool_submit(slot->saver->opts.pool, STI_LANE_NORMAL, &slot->job, 1);
}
