/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reading. Slots of whole chunks go through part after part; each is read directly, then a
 * pool thread checks its chunks (read_slot.c). The reading thread only submits and waits. With
 * several parts the reads go to them in turn, so that all devices are busy.
 *
 * Invariant: no byte reaches a caller's memory before the CRC of its chunk has been found
 * right.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "ckpt/read_internal.h"

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

/* Gives the slot the next chunks of a part that somebody wants; false: there are none. */
static bool
take_chunks(struct sti_run *run, struct sti_read_slot *slot, uint32_t part_idx)
{
    const struct sti_manifest *manifest = &run->reader->manifest;
    const struct sti_part *part = &manifest->parts[part_idx];
    struct sti_walk *walk = &run->walks[part_idx];
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
start_next(struct sti_run *run)
{
    uint32_t n_parts = run->reader->manifest.n_parts;
    struct sti_read_slot *slot = run->free;

    for (uint32_t tried = 0; tried < n_parts; tried++) {
        uint32_t part = run->turn;

        run->turn = (run->turn + 1) % n_parts;
        if (!take_chunks(run, slot, part))
            continue;
        run->free = slot->next;
        run->n_under_way++;
        slot->n_behind = 0;
        sti_read_slot_start(slot);
        return true;
    }
    return false;
}

static void
report(struct sti_run *run)
{
    const struct sti_reading *reading = run->reading;

    if (!reading->progress || run->result < 0)
        return;
    if (reading->progress(reading->context, run->done_bytes, reading->total_bytes) != 0)
        run->result = sti_error_set(run->err, -ECANCELED, "stopped by its caller");
}

static int
set_up(struct sti_run *run)
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
        struct sti_read_slot *slot = &run->slots[at - 1];

        slot->run = run;
        slot->ask = run->asks ? &run->asks[at - 1] : NULL;
        slot->bytes = run->arena.base + (at - 1) * room_bytes;
        slot->next = run->free;
        run->free = slot;
    }
    for (uint32_t at = 0; at < run->segments->n; at++) {
        struct sti_walk *walk = &run->walks[run->segments->list[at].part];

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
    struct sti_run run = {.reader = reader, .segments = segments, .reading = reading, .err = err};

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
        if (run.n_under_way == run.n_for_spare) { /* its reads wait on the same aio */
            sti_read_take_spare(&run);
            continue;
        }
        (void)sti_aio_wait(reader->opts.scan.aio, UINT64_MAX);
        if (run.asks)
            sti_read_take_answers(&run);
        report(&run);
    }
    sti_arena_close(&run.arena);
    sti_mem_free(run.slots);
    sti_mem_free(run.asks);
    sti_mem_free(run.walks);
    return run.result;
}
