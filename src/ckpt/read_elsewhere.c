/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cannot be read, or does not have its CRC, is asked of the other nodes in turn, then of a
 * spare copy: slot by slot, and a bad chunk for itself, so that copies that are damaged in
 * different chunks make a whole one. What is told if it is right nowhere is what was wrong in
 * the first place.
 */
#include <inttypes.h>

#include "base/error.h"
#include "ckpt/read_internal.h"

#define PATH_SIZE 2048u

/* Of a slot that is not right anywhere. */
static void
fail(struct sti_run *run, const struct sti_read_slot *slot)
{
    const struct sti_read_trouble *trouble = &slot->trouble;
    const char *others = slot->n_tried > 1 ? "; nor is it right elsewhere" : "";
    char path[PATH_SIZE];

    if (run->result < 0)
        return;
    const char *where = sti_reader_part_path(run->reader, slot->part, path, sizeof(path));
    if (trouble->node == STI_READ_HERE) {
        run->result = sti_error_set_path(run->err, trouble->rc, where,
                                         "part %" PRIu32 " at byte %" PRIu64 ": %s%s", slot->part,
                                         trouble->offset, trouble->what, others);
        return;
    }
    uint32_t rank = run->reader->opts.scan.nodes->keepers[trouble->node];
    run->result =
        sti_error_set_path(run->err, trouble->rc, where,
                           "part %" PRIu32 " at byte %" PRIu64 ", on rank %" PRIu32 "'s node: %s%s",
                           slot->part, trouble->offset, rank, trouble->what, others);
    if (run->err)
        run->err->rank = (int)rank;
}

/* Moves a slot on to the next node that has not been asked. Returns false beyond the last. */
static bool
next_node(struct sti_read_slot *slot)
{
    const struct sti_nodes *nodes = slot->run->reader->opts.scan.nodes;
    uint32_t home = sti_read_home(slot->run, slot->part);
    uint32_t at = slot->node == home && slot->n_tried == 1 ? 0 : slot->node + 1;

    if (nodes && at == home)
        at++;
    if (!nodes || at >= nodes->n)
        return false;
    slot->node = at;
    return true;
}

/* Whether a slot of several chunks goes on with one alone, from its first place on: the one that
 * is wrong, those before it being right, or of one that cannot be read the first. */
static bool
narrow(struct sti_read_slot *slot, uint64_t offset)
{
    uint32_t chunk_bytes = slot->run->reader->manifest.chunk_bytes;
    uint32_t n_before = slot->rc < 0 ? (uint32_t)(offset - slot->offset) : 0;

    if (slot->n_bytes <= chunk_bytes)
        return false;
    if (slot->n_tried > 0)
        slot->run->reader->mended_bytes += n_before;
    uint32_t n_left = slot->n_bytes - n_before;
    slot->offset += n_before;
    slot->n_bytes = n_left < chunk_bytes ? n_left : chunk_bytes;
    slot->n_behind += n_left - slot->n_bytes;
    slot->run->done_bytes += n_before;
    return true;
}

void
sti_read_elsewhere(struct sti_read_slot *slot, int rc, uint64_t offset, const char *what)
{
    struct sti_run *run = slot->run;
    bool may_go_on = run->result == 0 && !run->reading->is_strict;

    /* Also where no other place is tried: it is told where it cannot be read. */
    if (run->result == 0 && (may_go_on || slot->rc == 0) && narrow(slot, offset)) {
        sti_read_slot_start(slot);
        return;
    }
    if (slot->n_tried++ == 0)
        slot->trouble = (struct sti_read_trouble){rc, offset, what, slot->node};
    slot->done_bytes = 0;
    slot->rc = 0;
    if (may_go_on && next_node(slot)) {
        sti_read_slot_submit(slot);
    } else if (may_go_on && run->reader->opts.spare) {
        slot->next = run->for_spare;
        run->for_spare = slot;
        run->n_for_spare++;
    } else {
        fail(run, slot);
        sti_read_slot_free(slot);
    }
}

/* Fills a slot from the spare copy. */
static bool
is_right_in_spare(struct sti_read_slot *slot)
{
    const struct sti_reader *reader = slot->run->reader;
    const struct sti_reader_opts *opts = &reader->opts;
    const struct sti_part *part = &reader->manifest.parts[slot->part];
    uint64_t begin = 0;

    for (uint32_t at = 0; at < part->n_extents; at++) {
        const struct sti_part_extent *extent = &part->extents[at];
        uint64_t from = slot->offset > begin ? slot->offset : begin;
        uint64_t to = slot->offset + slot->n_bytes;

        if (to > begin + extent->n_bytes)
            to = begin + extent->n_bytes;
        if (from < to &&
            opts->spare(opts->spare_context, opts->scan.aio, extent->offset + (from - begin),
                        to - from, slot->bytes + (from - slot->offset)) < 0)
            return false;
        begin += extent->n_bytes;
    }
    slot->op = (struct sti_aio_op){.context = slot, .result = (int)slot->n_bytes};
    sti_read_slot_check(&slot->op);
    return slot->rc == 0;
}

/* All are looked at before one of them goes on: what is under way beside a read of the spare would
 * be waited for in there. */
void
sti_read_take_spare(struct sti_run *run)
{
    struct sti_read_slot *list = run->for_spare;

    run->for_spare = NULL;
    run->n_for_spare = 0;
    for (struct sti_read_slot *slot = list; slot; slot = slot->next) {
        slot->n_tried++;
        slot->is_spared = run->result == 0 && is_right_in_spare(slot);
    }
    for (struct sti_read_slot *slot = list, *next; slot; slot = next) {
        next = slot->next;
        if (slot->is_spared) {
            sti_read_slot_right(slot);
            continue;
        }
        fail(run, slot);
        sti_read_slot_free(slot);
    }
}
