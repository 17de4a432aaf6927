/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of a slot: it is read here, or asked of another node, its chunks are checked one
 * by one, and what is wanted of each is copied while it is in the cache.
 */
#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "ckpt/read_internal.h"

/* ---- checking and copying: a pool thread ------------------------------------------- */

/* Copies what is wanted of [from, to) of the part's file, which is at bytes. */
static void
hand_out(const struct sti_read_slot *slot, uint64_t from, uint64_t to, const char *bytes)
{
    const struct sti_segments *segments = slot->run->segments;

    for (uint32_t at = slot->first_segment; at < segments->n; at++) {
        const struct sti_segment *segment = &segments->list[at];
        uint64_t begin = segment->offset > from ? segment->offset : from;
        uint64_t end = segment->offset + segment->n_bytes;

        if (segment->part != slot->part || segment->offset >= to)
            break;
        end = end < to ? end : to;
        if (begin >= end)
            continue;
        uint64_t stream_at = segment->stream_offset + (begin - segment->offset);
        if (segment->want)
            sti_slice_copy(&segment->want->slice, segment->want->dst, bytes + (begin - from),
                           stream_at - segment->want->slice.tensor->offset, end - begin);
        else if (segment->dst)
            memcpy(segment->dst + (begin - segment->offset), bytes + (begin - from), end - begin);
    }
}

void
sti_read_slot_check(struct sti_aio_op *op)
{
    struct sti_read_slot *slot = op->context;
    const struct sti_manifest *manifest = &slot->run->reader->manifest;
    const struct sti_part *part = &manifest->parts[slot->part];
    uint32_t chunk_bytes = manifest->chunk_bytes;

    if (op->result < 0 || slot->done_bytes + (uint32_t)op->result < slot->n_bytes)
        return; /* short: goes on, or fails, in on_read() */
    for (uint32_t at = 0; at < slot->n_bytes; at += chunk_bytes) {
        uint32_t n = slot->n_bytes - at < chunk_bytes ? slot->n_bytes - at : chunk_bytes;
        uint64_t chunk = (slot->offset + at) / chunk_bytes;

        if (part->n_chunks > 0 && sti_crc32c(0, slot->bytes + at, n) != part->crcs[chunk]) {
            slot->rc = STK_E_CORRUPT;
            slot->bad_offset = slot->offset + at;
            return;
        }
        hand_out(slot, slot->offset + at, slot->offset + at + n, slot->bytes + at);
    }
}

/* ---- the reading thread ------------------------------------------------------------ */

uint32_t
sti_read_home(const struct sti_run *run, uint32_t part)
{
    return run->reader->parts[part].fd < 0 ? run->reader->parts[part].node : STI_READ_HERE;
}

void
sti_read_slot_free(struct sti_read_slot *slot)
{
    struct sti_run *run = slot->run;

    slot->next = run->free;
    run->free = slot;
    run->n_under_way--;
}

void
sti_read_slot_right(struct sti_read_slot *slot)
{
    struct sti_run *run = slot->run;

    run->done_bytes += slot->n_bytes;
    if (slot->n_tried > 0)
        run->reader->mended_bytes += slot->n_bytes;
    if (slot->n_behind == 0 || run->result < 0) {
        sti_read_slot_free(slot);
        return;
    }
    slot->offset += slot->n_bytes;
    slot->n_bytes = slot->n_behind;
    slot->n_behind = 0;
    sti_read_slot_start(slot);
}

static void
on_read(struct sti_aio_op *op)
{
    struct sti_read_slot *slot = op->context;
    struct sti_run *run = slot->run;
    uint32_t block_bytes =
        slot->node == STI_READ_HERE ? run->reader->parts[slot->part].dio.block_bytes : 1;
    uint32_t progress = op->result > 0 ? (uint32_t)op->result : 0;

    if (op->result < 0) {
        sti_read_elsewhere(slot, op->result, slot->offset, sti_error_text(op->result));
    } else if (slot->done_bytes + progress < slot->n_bytes) {
        slot->done_bytes += progress - progress % block_bytes;
        if (progress >= block_bytes && run->result == 0)
            sti_read_slot_submit(slot); /* a short read */
        else
            sti_read_elsewhere(slot, STK_E_CORRUPT, slot->offset + slot->done_bytes,
                               "the file ends here");
    } else if (slot->rc < 0) {
        sti_read_elsewhere(slot, slot->rc, slot->bad_offset,
                           "the chunk that begins here does not have its CRC");
    } else {
        sti_read_slot_right(slot);
    }
}

/* Asks the slot's node; no more than it answers at a time. */
static void
ask_node(struct sti_read_slot *slot)
{
    const struct sti_run *run = slot->run;
    const struct sti_nodes *nodes = run->reader->opts.scan.nodes;
    uint64_t most = sti_depot_most_bytes(nodes->depot);
    uint32_t left = slot->n_bytes - slot->done_bytes;

    *slot->ask = (struct sti_depot_ask){.peer = nodes->keepers[slot->node],
                                        .offset = slot->offset + slot->done_bytes,
                                        .into = slot->bytes + slot->done_bytes,
                                        .n_bytes = left < most ? left : (uint32_t)most,
                                        .aio = run->reader->opts.scan.aio};
    sti_nodes_name_part(slot->ask, &run->reader->manifest, slot->part);
    slot->op = (struct sti_aio_op){.context = slot};
    slot->is_asking = true;
    sti_depot_ask(nodes->depot, slot->ask);
}

void
sti_read_slot_submit(struct sti_read_slot *slot)
{
    const struct sti_reader_part *part = &slot->run->reader->parts[slot->part];
    uint64_t left = slot->n_bytes - slot->done_bytes;

    if (slot->node != STI_READ_HERE) {
        ask_node(slot);
        return;
    }
    uint32_t block_bytes = part->dio.block_bytes;
    slot->op = (struct sti_aio_op){
        .kind = STI_AIO_READ,
        .fd = part->fd,
        .bytes = slot->bytes + slot->done_bytes,
        .n_bytes = (uint32_t)((left + block_bytes - 1) / block_bytes * block_bytes),
        .offset = slot->offset + slot->done_bytes,
        .work = sti_read_slot_check,
        .work_lane = STI_LANE_NORMAL,
        .done = on_read,
        .context = slot,
        .is_shaped = true};
    sti_aio_submit(slot->run->reader->opts.scan.aio, &slot->op);
}

void
sti_read_slot_start(struct sti_read_slot *slot)
{
    slot->done_bytes = 0;
    slot->rc = 0;
    slot->n_tried = 0;
    slot->node = sti_read_home(slot->run, slot->part);
    if (slot->run->reader->parts[slot->part].is_missing)
        sti_read_elsewhere(slot, -ENOENT, slot->offset, "the part is missing");
    else
        sti_read_slot_submit(slot);
}

/* What other nodes have answered goes on like what was read, but is checked on this thread. */
void
sti_read_take_answers(struct sti_run *run)
{
    for (uint32_t at = 0; at < run->reader->opts.slots; at++) {
        struct sti_read_slot *slot = &run->slots[at];

        if (!slot->is_asking || !sti_depot_is_done(slot->ask->depot, slot->ask))
            continue;
        slot->is_asking = false;
        slot->op.result = slot->ask->result < 0 ? slot->ask->result : (int)slot->ask->got_bytes;
        sti_read_slot_check(&slot->op);
        on_read(&slot->op);
    }
}
