/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing the SSD tier. In each directory this rank has a cache of its own, which
 * it goes on with; those of the machine's other ranks lie beside it and are read along. So what
 * a machine has cached is there for all its ranks, however many they were when it was written.
 */
#include "tier/ssd.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "tier/ssd_internal.h"

#define SEGMENT_BYTES (UINT64_C(4) << 20)
#define SEGMENT_LEAST_BYTES (UINT64_C(256) << 10) /* a group of neighbours */
#define SEGMENTS_PER_SHARE 32 /* so that small caches are spread over the directories, too */

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
    sti_ssd_set_place(ssd, record->sample, loading->dir, record->offset);
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
        part->share_bytes + part->share_bytes / average_bytes * (STI_SSD_RECORD_EXTRA_BYTES - 32);
    struct sti_ssd_dir_opts opts = {
        .path = part->path,
        .dataset_id = ssd->opts.dataset_id,
        .slot = ssd->opts.slot,
        .is_apart = ssd->opts.is_apart,
        .capacity_bytes =
            part->capacity_bytes +
            (want_bytes - part->share_bytes) *
                (ssd->opts.is_apart || ssd->opts.n_slots == 0 ? 1 : ssd->opts.n_slots),
        .want_bytes = want_bytes,
        .is_buffered = ssd->opts.is_buffered,
        .on_record = on_record,
        .context = &loading,
    };

    state->path = part->path;
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

/* What other ranks of this machine have put into a directory, now or in an earlier job: it is
 * there to be read, as it is now. What cannot be read is theirs to tell. */
static void
open_beside(struct sti_ssd *ssd, uint32_t dir, uint32_t slot)
{
    uint32_t at = ssd->n_parts;
    struct sti_ssd_part_state *state = &ssd->parts[at];
    struct loading loading = {.ssd = ssd, .dir = at};
    const struct sti_ssd_dir_opts opts = {
        .path = ssd->opts.parts[dir].path,
        .dataset_id = ssd->opts.dataset_id,
        .slot = slot,
        .is_beside = true,
        .is_buffered = ssd->opts.is_buffered,
        .on_record = on_record,
        .context = &loading,
    };

    if (sti_ssd_dir_open(&state->dir, &opts) < 0)
        return;
    state->path = opts.path;
    ssd->n_parts++;
    if (state->dir.is_readable && ssd->used_bytes[at] > 0)
        return;
    sti_ssd_dir_close(&state->dir); /* nothing in it is this rank's to use */
    ssd->n_parts--;
}

/* What is only read and has not all that it might: the run goes on, but not as asked for. */
static void
tell_read_only(struct sti_ssd *ssd)
{
    uint64_t missing_bytes = sti_dataset_bytes(ssd->opts.dataset);
    uint64_t max_bytes = sti_dataset_max_bytes(ssd->opts.dataset);

    for (uint32_t at = 0; at < ssd->n_parts; at++)
        missing_bytes -= ssd->used_bytes[at];
    for (uint32_t at = 0; at < ssd->opts.n_parts; at++)
        if (ssd->parts[at].dir.is_readable && !ssd->parts[at].dir.is_writable &&
            missing_bytes > 0 && ssd->used_bytes[at] + max_bytes <= ssd->shares[at].share_bytes)
            sti_ssd_stop_writing(ssd, at, ssd->parts[at].dir.read_only_code);
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
    if (segment_bytes < max_bytes + STI_SSD_RECORD_EXTRA_BYTES)
        segment_bytes = max_bytes + STI_SSD_RECORD_EXTRA_BYTES;
    ssd->segment_bytes = sti_ssd_round_up(segment_bytes, STI_SSD_UNIT_BYTES);
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
    for (uint32_t at = 0; at < STI_SSD_PARTS_MAX; at++)
        ssd->parts[at].dir =
            (struct sti_ssd_dir){.dir_fd = -1, .lock_fd = -1, .data_fd = -1, .catalog_fd = -1};
    ssd->places = sti_mem_new(sti_dataset_count(opts->dataset), sizeof(uint64_t));
    if (!ssd->places)
        goto err_ssd;
    ssd->n_parts = opts->n_parts;
    for (uint32_t at = 0; at < opts->n_parts; at++)
        open_part(ssd, at);
    for (uint32_t at = 0; at < opts->n_parts; at++)
        for (uint32_t slot = 0; slot < STI_SSD_SLOTS_MAX; slot++)
            if (slot != opts->slot)
                open_beside(ssd, at, slot);
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
sti_ssd_close(struct sti_ssd *ssd)
{
    if (!ssd)
        return;
    for (uint32_t at = 0; at < ssd->n_parts; at++)
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
