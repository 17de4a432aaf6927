/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reading. Slots of whole chunks go through part after part; each is read directly,
 * then a pool thread checks its chunks one by one and copies what is wanted of each while
 * it is in the cache. The reading thread only submits and waits. With several parts the
 * reads go to them in turn, so that all devices are busy.
 *
 * Invariant: no byte reaches a caller's memory before the CRC of its chunk has been found
 * right.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "ckpt/reader_internal.h"

#define PATH_SIZE 2048u

struct run;

struct slot {
    struct run *run;
    char *bytes;
    uint32_t part;
    uint64_t offset; /* in the part's file, at a chunk */
    uint32_t n_bytes;
    uint32_t done_bytes;
    uint32_t first_segment; /* the first that ends behind offset */
    int rc;                 /* of the check */
    uint64_t bad_offset;
    struct sti_aio_op op;
    struct sti_depot_ask *ask; /* of one that another node is asked for; its own memory */
    bool is_asking;
    struct slot *next;
};

/* Where the walk through one part is. */
struct walk {
    uint32_t segment; /* the next one that is not wholly read */
    uint32_t end;     /* behind the part's last */
    uint64_t offset;  /* everything before it is read */
};

struct run {
    struct sti_reader *reader;
    const struct sti_segments *segments;
    const struct sti_reading *reading;
    struct sti_arena arena;
    struct slot *slots;
    struct sti_depot_ask *asks; /* NULL: there are no other nodes */
    struct slot *free;
    struct walk *walks;
    uint32_t turn; /* the part whose turn it is */
    uint32_t n_under_way;
    uint64_t done_bytes;
    int result;
    stk_error *err;
};

static int
compare(const void *left, const void *right)
{
    const struct sti_segment *a = left;
    const struct sti_segment *b = right;

    if (a->part != b->part)
        return a->part < b->part ? -1 : 1;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return a->n_bytes < b->n_bytes ? -1 : a->n_bytes > b->n_bytes;
}

/* ---- checking and copying: a pool thread ------------------------------------------- */

/* Copies what is wanted of [from, to) of the part's file, which is at bytes. */
static void
hand_out(const struct slot *slot, uint64_t from, uint64_t to, const char *bytes)
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

static void
check(struct sti_aio_op *op)
{
    struct slot *slot = op->context;
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

static bool
is_elsewhere(const struct run *run, uint32_t part)
{
    return run->reader->parts[part].fd < 0;
}

static uint32_t
keeper_of(const struct run *run, uint32_t part)
{
    return run->reader->opts.scan.nodes->keepers[run->reader->parts[part].node];
}

static void
fail(struct run *run, const struct slot *slot, int rc, uint64_t offset, const char *what)
{
    char path[PATH_SIZE];

    if (run->result < 0)
        return;
    const char *where = sti_reader_part_path(run->reader, slot->part, path, sizeof(path));
    if (!is_elsewhere(run, slot->part)) {
        run->result =
            sti_error_set_path(run->err, rc, where, "part %" PRIu32 " at byte %" PRIu64 ": %s",
                               slot->part, offset, what);
        return;
    }
    uint32_t rank = keeper_of(run, slot->part);
    run->result = sti_error_set_path(
        run->err, rc, where, "part %" PRIu32 " at byte %" PRIu64 ", on rank %" PRIu32 "'s node: %s",
        slot->part, offset, rank, what);
    if (run->err)
        run->err->rank = (int)rank;
}

static void
submit(struct slot *slot);

static void
free_slot(struct slot *slot)
{
    slot->next = slot->run->free;
    slot->run->free = slot;
    slot->run->n_under_way--;
}

static void
on_read(struct sti_aio_op *op)
{
    struct slot *slot = op->context;
    struct run *run = slot->run;
    const struct sti_dio *dio = &run->reader->parts[slot->part].dio;
    uint32_t progress = op->result > 0 ? (uint32_t)op->result : 0;

    if (op->result >= 0 && slot->done_bytes + progress < slot->n_bytes) {
        slot->done_bytes += progress - progress % dio->block_bytes;
        if (progress >= dio->block_bytes && run->result == 0) {
            submit(slot); /* a short read */
            return;
        }
        fail(run, slot, STK_E_CORRUPT, slot->offset + slot->done_bytes, "the file ends here");
    } else if (op->result < 0) {
        fail(run, slot, op->result, slot->offset, sti_error_text(op->result));
    } else if (slot->rc < 0) {
        fail(run, slot, slot->rc, slot->bad_offset,
             "the chunk that begins here does not have its CRC");
    }
    run->done_bytes += slot->n_bytes;
    free_slot(slot);
}

/* Asks the node that has the part; no more than it answers at a time. */
static void
ask_node(struct slot *slot)
{
    const struct run *run = slot->run;
    const struct sti_nodes *nodes = run->reader->opts.scan.nodes;
    uint64_t most = sti_depot_most_bytes(nodes->depot);
    uint32_t left = slot->n_bytes - slot->done_bytes;

    *slot->ask = (struct sti_depot_ask){.peer = keeper_of(run, slot->part),
                                        .offset = slot->offset + slot->done_bytes,
                                        .into = slot->bytes + slot->done_bytes,
                                        .n_bytes = left < most ? left : (uint32_t)most,
                                        .aio = run->reader->opts.scan.aio};
    sti_nodes_name_part(slot->ask, &run->reader->manifest, slot->part);
    slot->op = (struct sti_aio_op){.context = slot};
    slot->is_asking = true;
    sti_depot_ask(nodes->depot, slot->ask);
}

/* What other nodes have answered goes on like what was read, but is checked on this thread. */
static void
take_answers(struct run *run)
{
    for (uint32_t at = 0; at < run->reader->opts.slots; at++) {
        struct slot *slot = &run->slots[at];

        if (!slot->is_asking || !sti_depot_is_done(slot->ask->depot, slot->ask))
            continue;
        slot->is_asking = false;
        slot->op.result = slot->ask->result < 0 ? slot->ask->result : (int)slot->ask->got_bytes;
        check(&slot->op);
        on_read(&slot->op);
    }
}

static void
submit(struct slot *slot)
{
    const struct sti_reader_part *part = &slot->run->reader->parts[slot->part];
    uint64_t left = slot->n_bytes - slot->done_bytes;

    if (is_elsewhere(slot->run, slot->part)) {
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
        .work = check,
        .work_lane = STI_LANE_NORMAL,
        .done = on_read,
        .context = slot,
        .is_shaped = true};
    sti_aio_submit(slot->run->reader->opts.scan.aio, &slot->op);
}

/* Gives the slot the next chunks of a part that somebody wants; false: there are none. */
static bool
take_chunks(struct run *run, struct slot *slot, uint32_t part_idx)
{
    const struct sti_manifest *manifest = &run->reader->manifest;
    const struct sti_part *part = &manifest->parts[part_idx];
    struct walk *walk = &run->walks[part_idx];
    const struct sti_segment *list = run->segments->list;

    while (walk->segment < walk->end &&
           list[walk->segment].offset + list[walk->segment].n_bytes <= walk->offset)
        walk->segment++;
    if (walk->segment == walk->end)
        return false;
    uint64_t from = list[walk->segment].offset;
    from -= from % manifest->chunk_bytes;
    from = from > walk->offset ? from : walk->offset;
    uint64_t to = from;
    uint64_t most = from + run->reader->slot_bytes;
    /* As far as what is wanted goes on without a hole of a chunk. */
    for (uint32_t at = walk->segment; at < walk->end && to < most; at++) {
        uint64_t end = list[at].offset + list[at].n_bytes;

        if (list[at].offset - list[at].offset % manifest->chunk_bytes > to)
            break;
        end = (end + manifest->chunk_bytes - 1) / manifest->chunk_bytes * manifest->chunk_bytes;
        to = end > to ? end : to;
    }
    to = to < most ? to : most;
    to = to < part->n_bytes ? to : part->n_bytes;
    slot->part = part_idx;
    slot->offset = from;
    slot->n_bytes = (uint32_t)(to - from);
    slot->first_segment = walk->segment;
    walk->offset = to;
    return true;
}

static bool
start_next(struct run *run)
{
    uint32_t n_parts = run->reader->manifest.n_parts;
    struct slot *slot = run->free;

    for (uint32_t tried = 0; tried < n_parts; tried++) {
        uint32_t part = run->turn;

        run->turn = (run->turn + 1) % n_parts;
        if (!take_chunks(run, slot, part))
            continue;
        run->free = slot->next;
        run->n_under_way++;
        slot->done_bytes = 0;
        slot->rc = 0;
        submit(slot);
        return true;
    }
    return false;
}

static void
report(struct run *run)
{
    const struct sti_reading *reading = run->reading;

    if (!reading->progress || run->result < 0)
        return;
    if (reading->progress(reading->context, run->done_bytes, reading->total_bytes) != 0)
        run->result = sti_error_set(run->err, -ECANCELED, "stopped by its caller");
}

static int
set_up(struct run *run)
{
    const struct sti_reader *reader = run->reader;
    uint32_t n_slots = reader->opts.slots;
    uint32_t n_parts = reader->manifest.n_parts;

    run->slots = sti_mem_new(n_slots, sizeof(run->slots[0]));
    run->walks = sti_mem_new(n_parts, sizeof(run->walks[0]));
    if (reader->opts.scan.nodes) {
        run->asks = sti_mem_new(n_slots, sizeof(run->asks[0]));
        if (!run->asks)
            return -ENOMEM;
    }
    /* One block of 64 KiB more for the last, padded read. */
    uint64_t room_bytes = (uint64_t)reader->slot_bytes + 65536;
    if (!run->slots || !run->walks || sti_arena_open(&run->arena, n_slots * room_bytes, 0) < 0)
        return -ENOMEM;
    for (uint32_t at = n_slots; at > 0; at--) {
        struct slot *slot = &run->slots[at - 1];

        slot->run = run;
        slot->ask = run->asks ? &run->asks[at - 1] : NULL;
        slot->bytes = run->arena.base + (at - 1) * room_bytes;
        slot->next = run->free;
        run->free = slot;
    }
    for (uint32_t at = 0; at < run->segments->n; at++) {
        struct walk *walk = &run->walks[run->segments->list[at].part];

        if (walk->end == 0)
            walk->segment = at;
        walk->end = at + 1;
    }
    return 0;
}

int
sti_reader_run(struct sti_reader *reader, struct sti_segments *segments,
               const struct sti_reading *reading, stk_error *err)
{
    struct run run = {.reader = reader, .segments = segments, .reading = reading, .err = err};

    if (segments->n == 0)
        return 0;
    qsort(segments->list, segments->n, sizeof(segments->list[0]), compare);
    if (set_up(&run) < 0)
        run.result = sti_error_set(err, -ENOMEM, "no memory to read with");
    for (;;) {
        while (run.result == 0 && run.free && start_next(&run))
            ;
        /* Only here: a wait may end all reads under way with more still to be started. */
        if (run.n_under_way == 0)
            break;
        (void)sti_aio_wait(reader->opts.scan.aio, UINT64_MAX);
        if (run.asks)
            take_answers(&run);
        report(&run);
    }
    sti_arena_close(&run.arena);
    sti_mem_free(run.slots);
    sti_mem_free(run.asks);
    sti_mem_free(run.walks);
    return run.result;
}
