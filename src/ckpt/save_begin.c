/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The beginning of a save, on the program's thread: the layout, who writes what, copies
 * of what the program may change at once. Everything is made anew for each save, from
 * what it was given; a plan kept from one save to the next could only ever be right or
 * make all later checkpoints wrong.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "ckpt/save_internal.h"
#include "policy/partition.h"

#define COPY_ALIGN 64u

/* ---- what is copied and what is captured later ------------------------------------- */

static uint64_t
copy_room(uint64_t n_bytes)
{
    return (n_bytes + COPY_ALIGN - 1) / COPY_ALIGN * COPY_ALIGN;
}

/* Of what this writer writes: the shares are known. */
static int
take_sources(struct sti_save *save, const struct sti_saver_request *request, stk_error *err)
{
    uint64_t copy_bytes = 0;

    for (uint32_t idx = 0; idx < save->layout.n_tensors; idx++) {
        const struct sti_layout_tensor *tensor = &save->layout.tensors[idx];
        const struct sti_saver_tensor *given = &request->tensors[tensor->given_idx];
        struct sti_source *source = &save->sources[idx];

        if (tensor->n_bytes == 0)
            continue;
        if (!given->data)
            return sti_error_set(err, -EINVAL, "tensor '%.150s': it has bytes but no data",
                                 tensor->name);
        source->bytes = (const char *)given->data + source->from;
        copy_bytes += given->is_stable ? 0 : copy_room(source->n_bytes);
    }
    save->copies = sti_mem_new_aligned(copy_bytes, COPY_ALIGN);
    if (!save->copies)
        return sti_error_set(err, -ENOMEM,
                             "no memory for the %" PRIu64 " bytes that are copied at once",
                             copy_bytes);
    char *copy = save->copies;
    for (uint32_t idx = 0; idx < save->layout.n_tensors; idx++) {
        struct sti_source *source = &save->sources[idx];

        if (source->n_bytes == 0 || request->tensors[save->layout.tensors[idx].given_idx].is_stable)
            continue;
        memcpy(copy, source->bytes, source->n_bytes);
        source->bytes = copy;
        copy += copy_room(source->n_bytes);
    }
    return 0;
}

/* Counts the stable bytes that an extent will capture. Nobody else knows the save yet. */
static void
count_extent(struct sti_save *save, const struct sti_saver_request *request,
             const struct sti_part_extent *extent)
{
    uint64_t end = extent->offset + extent->n_bytes;

    for (uint32_t idx = sti_layout_first_behind(&save->layout, extent->offset);
         idx < save->layout.n_tensors; idx++) {
        const struct sti_layout_tensor *tensor = &save->layout.tensors[idx];
        uint64_t from = tensor->offset > extent->offset ? tensor->offset : extent->offset;
        uint64_t to = tensor->offset + tensor->n_bytes;

        if (tensor->offset >= end)
            break;
        to = to < end ? to : end;
        if (to <= from || !request->tensors[tensor->given_idx].is_stable)
            continue;
        if (save->uncaptured_bytes[tensor->given_idx] == 0)
            save->n_uncaptured++;
        save->uncaptured_bytes[tensor->given_idx] += to - from;
    }
}

static int
count_uncaptured(struct sti_save *save, const struct sti_saver_request *request, stk_error *err)
{
    save->uncaptured_bytes = sti_mem_new(request->n_tensors, sizeof(save->uncaptured_bytes[0]));
    if (!save->uncaptured_bytes)
        return sti_error_set(err, -ENOMEM, "no memory for %" PRIu32 " tensors", request->n_tensors);
    for (uint32_t at = 0; at < save->n_stripes; at++)
        for (uint32_t idx = 0; idx < save->stripes[at].part.n_extents; idx++)
            count_extent(save, request, &save->stripes[at].part.extents[idx]);
    return 0;
}

/* ---- who writes what --------------------------------------------------------------- */

/* How many of a group's writers write, and of those which this one is; n where it does not. In
 * a group of all, list is NULL. */
static uint32_t
count_writing(const struct sti_saver_opts *opts, const uint32_t *list, uint32_t n,
              uint32_t *ret_place)
{
    uint32_t n_writing = 0;

    *ret_place = UINT32_MAX;
    for (uint32_t at = 0; at < n; at++) {
        uint32_t writer = list ? list[at] : at;
        bool is_writing = true;

        for (uint32_t before = 0; opts->places && is_writing && before < at; before++)
            is_writing = opts->places[list ? list[before] : before] != opts->places[writer];
        if (is_writing && writer == opts->writer)
            *ret_place = n_writing;
        n_writing += is_writing;
    }
    if (*ret_place == UINT32_MAX)
        *ret_place = n_writing;
    return n_writing;
}

/* This writer's share of what a group holds, walked in the order of the layout. */
struct share {
    uint64_t total_bytes;
    uint64_t at; /* in the group's bytes */
    uint64_t from;
    uint64_t to;
};

static uint32_t
share_idx(const struct sti_save *save, uint32_t owner)
{
    return owner == STI_LAYOUT_SHARED ? save->n_groups : owner;
}

static void
cut_group(const struct sti_save *save, uint32_t group_idx, struct share *share)
{
    const struct sti_saver_opts *opts = &save->saver->opts;
    bool is_group = group_idx < save->n_groups;
    const uint32_t *list = is_group ? save->groups[group_idx].writers : NULL;
    uint32_t place;
    uint32_t n = count_writing(opts, list,
                               is_group ? save->groups[group_idx].n_writers : opts->world, &place);

    if (place == n) /* another at this place writes it */
        return;
    share->from = sti_partition_share(share->total_bytes, n, place, opts->chunk_bytes);
    share->to = sti_partition_share(share->total_bytes, n, place + 1, opts->chunk_bytes);
}

/* Finds which bytes of each tensor this writer writes. What several hold is one row of bytes
 * that is cut among them; all come to the same cuts, since all hold the same. */
static int
take_shares(struct sti_save *save, stk_error *err)
{
    struct share *shares = sti_mem_new((size_t)save->n_groups + 1, sizeof(*shares));

    save->sources = sti_mem_new(save->layout.n_tensors, sizeof(save->sources[0]));
    if (!shares || !save->sources) {
        sti_mem_free(shares);
        return sti_error_set(err, -ENOMEM, "no memory for %" PRIu32 " tensors",
                             save->layout.n_tensors);
    }
    for (uint32_t idx = 0; idx < save->layout.n_tensors; idx++)
        if (save->layout.tensors[idx].owner != STI_LAYOUT_OWN)
            shares[share_idx(save, save->layout.tensors[idx].owner)].total_bytes +=
                save->layout.tensors[idx].n_bytes;
    for (uint32_t at = 0; at <= save->n_groups; at++)
        cut_group(save, at, &shares[at]);
    for (uint32_t idx = 0; idx < save->layout.n_tensors; idx++) {
        const struct sti_layout_tensor *tensor = &save->layout.tensors[idx];

        save->sources[idx].n_bytes = tensor->n_bytes;
        if (tensor->owner == STI_LAYOUT_OWN)
            continue;
        struct share *share = &shares[share_idx(save, tensor->owner)];
        uint64_t end = share->at + tensor->n_bytes;
        uint64_t from = share->from > share->at ? share->from : share->at;
        uint64_t to = share->to < end ? share->to : end;
        save->sources[idx].from = to > from ? from - share->at : 0;
        save->sources[idx].n_bytes = to > from ? to - from : 0;
        share->at = end;
    }
    sti_mem_free(shares);
    return 0;
}

/* Scratch of the partition: this writer's bytes, one after the other, among its roots. */
struct division {
    struct sti_span *spans; /* the header, then of each tensor what this writer writes */
    struct sti_target *targets;
    struct sti_cut *cuts;
    double *loads;
    struct sti_partition partition;
    int64_t n_cuts;
};

static void
division_fini(struct division *division)
{
    sti_mem_free(division->spans);
    sti_mem_free(division->targets);
    sti_mem_free(division->cuts);
    sti_mem_free(division->loads);
}

/* The header of several writers' stream is written when all have voted. */
static int
divide(const struct sti_save *save, struct division *division)
{
    const struct sti_saver_opts *opts = &save->saver->opts;
    uint32_t n_roots = opts->n_roots - opts->first_part_root;
    uint32_t n_spans = save->layout.n_tensors + 1;

    division->spans = sti_mem_new(n_spans, sizeof(division->spans[0]));
    division->targets = sti_mem_new(n_roots, sizeof(division->targets[0]));
    division->loads = sti_mem_new(2 * (size_t)n_roots, sizeof(division->loads[0]));
    division->cuts = sti_mem_new((size_t)n_spans + n_roots, sizeof(division->cuts[0]));
    if (!division->spans || !division->targets || !division->loads || !division->cuts)
        return -ENOMEM;
    division->spans[0] =
        (struct sti_span){opts->world == 1 ? save->layout.header_bytes : 0, STI_SPAN_SHARED};
    for (uint32_t idx = 0; idx < save->layout.n_tensors; idx++)
        division->spans[idx + 1] = (struct sti_span){
            save->sources[idx].n_bytes,
            save->layout.tensors[idx].owner == STI_LAYOUT_OWN ? 0 : STI_SPAN_SHARED};
    sti_mutex_lock(&save->saver->lock); /* the loop measures */
    for (uint32_t at = 0; at < n_roots; at++)
        division->targets[at] = (struct sti_target){
            .root = opts->first_part_root + at,
            .bytes_per_s = opts->roots[opts->first_part_root + at].bytes_per_s,
        };
    sti_mutex_unlock(&save->saver->lock);
    division->partition = (struct sti_partition){.spans = division->spans,
                                                 .n_spans = n_spans,
                                                 .targets = division->targets,
                                                 .n_targets = n_roots,
                                                 .chunk_bytes = opts->chunk_bytes};
    division->n_cuts = sti_partition_cut(&division->partition, division->cuts, division->loads);
    return division->n_cuts < 0 ? (int)division->n_cuts : 0;
}

/* Where in the layout's stream a span's bytes are. */
static uint64_t
span_offset(const struct sti_save *save, uint32_t span)
{
    return span == 0 ? 0 : save->layout.tensors[span - 1].offset + save->sources[span - 1].from;
}

/* Adds [offset, offset + n_bytes) to a part; extents NULL: only counts. */
static void
add_extent(struct sti_part *part, uint64_t offset, uint64_t n_bytes, uint64_t *end)
{
    bool goes_on = part->n_extents > 0 && *end == offset;

    *end = offset + n_bytes;
    if (part->extents && goes_on)
        part->extents[part->n_extents - 1].n_bytes += n_bytes;
    else if (part->extents)
        part->extents[part->n_extents] = (struct sti_part_extent){offset, n_bytes};
    part->n_extents += goes_on ? 0 : 1;
}

/* Gives a part the stretches that its target got. */
static void
take_extents(const struct sti_save *save, const struct division *division, uint32_t target,
             struct sti_part *part)
{
    uint64_t behind = 0; /* spans before this one */
    uint64_t end = 0;
    uint32_t span = 0;

    part->n_extents = 0;
    for (int64_t at = 0; at < division->n_cuts; at++) {
        uint64_t from = division->cuts[at].offset;
        uint64_t left = division->cuts[at].n_bytes;

        while (left > 0) {
            while (from >= behind + division->spans[span].n_bytes)
                behind += division->spans[span++].n_bytes;
            uint64_t skip = from - behind;
            uint64_t now = division->spans[span].n_bytes - skip;

            now = now < left ? now : left;
            if (division->cuts[at].target == target)
                add_extent(part, span_offset(save, span) + skip, now, &end);
            from += now;
            left -= now;
        }
    }
}

/* What a part of so many bytes has beside its extents. */
static int
fill_stripe(struct sti_save *save, struct sti_stripe *stripe, uint32_t root, uint32_t n_parts)
{
    const struct sti_saver_opts *opts = &save->saver->opts;
    struct sti_part *part = &stripe->part;
    char name[STI_NAME_SIZE];

    stripe->save = save;
    stripe->fd = -1;
    stripe->from_fd = -1;
    stripe->root = &opts->roots[root];
    part->root = root - opts->first_part_root;
    part->number = part->root;
    part->n_chunks = (uint32_t)((part->n_bytes + opts->chunk_bytes - 1) / opts->chunk_bytes);
    part->crcs = sti_mem_new(part->n_chunks, sizeof(part->crcs[0]));
    if (!part->crcs)
        return -ENOMEM;
    sti_name_part(name, part->writer, part->number, n_parts);
    (void)snprintf(stripe->path, sizeof(stripe->path), "%s/%s", save->parts_name, name); /* fits */
    stripe->chore = (struct sti_chore){.save = save, .stripe = stripe};
    stripe->sync_chore = (struct sti_chore){.save = save, .stripe = stripe};
    return 0;
}

static int
make_stripes(struct sti_save *save, const struct division *division)
{
    const struct sti_saver_opts *opts = &save->saver->opts;
    uint32_t n_roots = opts->n_roots - opts->first_part_root;
    uint32_t n_parts = opts->world > 1 ? 1 : 0; /* the header's */
    int rc = 0;

    save->stripes = sti_mem_new((size_t)n_roots + 1, sizeof(save->stripes[0]));
    if (!save->stripes)
        return -ENOMEM;
    for (uint32_t at = 0; at < n_roots; at++)
        n_parts += division->loads[at] > 0;
    for (uint32_t at = 0; rc == 0 && at < n_roots; at++) {
        struct sti_stripe *stripe = &save->stripes[save->n_stripes];

        if (division->loads[at] <= 0)
            continue;
        save->n_stripes++;
        stripe->layout = &save->layout;
        stripe->part.writer = opts->writer;
        take_extents(save, division, at, &stripe->part);
        stripe->part.extents = sti_mem_new(stripe->part.n_extents, sizeof(stripe->part.extents[0]));
        if (!stripe->part.extents)
            return -ENOMEM;
        take_extents(save, division, at, &stripe->part);
        for (uint32_t idx = 0; idx < stripe->part.n_extents; idx++)
            stripe->part.n_bytes += stripe->part.extents[idx].n_bytes;
        rc = fill_stripe(save, stripe, division->targets[at].root, n_parts);
    }
    return rc;
}

int
sti_save_add_header(struct sti_save *save)
{
    const struct sti_manifest *manifest = &save->merged.manifest;
    struct sti_stripe *stripe = &save->stripes[save->n_stripes];

    stripe->layout = &manifest->layout;
    stripe->part = (struct sti_part){.writer = save->saver->opts.world,
                                     .n_extents = 1,
                                     .n_bytes = manifest->layout.header_bytes,
                                     .extents = sti_mem_new(1, sizeof(struct sti_part_extent))};
    save->first_stripe = save->n_stripes++;
    if (!stripe->part.extents)
        return -ENOMEM;
    stripe->part.extents[0] = (struct sti_part_extent){0, stripe->part.n_bytes};
    return fill_stripe(save, stripe, save->saver->opts.first_part_root, manifest->n_parts + 1);
}

/* Readers refuse a manifest beyond this; so nothing is begun that would need one. */
static int
check_manifest_bytes(const struct sti_save *save, stk_error *err)
{
    uint32_t chunk_bytes = save->saver->opts.chunk_bytes;
    uint64_t n_bytes = save->layout.stream_bytes / chunk_bytes * STI_MANIFEST_CRC_BYTES +
                       save->layout.header_bytes;

    if (n_bytes < STI_MANIFEST_MAX_BYTES)
        return 0;
    return sti_error_set(err, -EINVAL,
                         "checksums of %" PRIu64 " bytes for each %" PRIu32
                         " make a manifest of more than 1 GiB; take a larger chunk_bytes",
                         save->layout.stream_bytes, chunk_bytes);
}

static int
divide_and_make_stripes(struct sti_save *save, stk_error *err)
{
    struct division division = {0};
    int rc = divide(save, &division);

    if (rc == 0)
        rc = make_stripes(save, &division);
    division_fini(&division);
    return rc < 0 ? sti_error_set(err, rc, "no memory for the parts") : 0;
}

/* What others hold, too, is summed up at once: the program may change it from the fence on. */
static int
take_sums(struct sti_save *save, const struct sti_saver_request *request, stk_error *err)
{
    if (!save->saver->opts.is_checked || save->saver->opts.world == 1)
        return 0;
    save->sums = sti_mem_new(save->layout.n_tensors, sizeof(save->sums[0]));
    if (!save->sums)
        return sti_error_set(err, -ENOMEM, "no memory for the sums of %" PRIu32 " tensors",
                             save->layout.n_tensors);
    for (uint32_t idx = 0; idx < save->layout.n_tensors; idx++) {
        const struct sti_layout_tensor *tensor = &save->layout.tensors[idx];

        if (tensor->owner != STI_LAYOUT_OWN && tensor->n_bytes > 0)
            save->sums[idx] =
                sti_crc32c(0, request->tensors[tensor->given_idx].data, tensor->n_bytes);
    }
    return 0;
}

/* Of one writer the shards must make their tensors; of several that is seen in the vote. */
static int
check_own_wholes(const struct sti_save *save, stk_error *err)
{
    uint32_t unused[2];

    return save->saver->opts.world == 1 ? sti_layout_check_wholes(&save->layout, unused, err) : 0;
}

/* ---- the save ---------------------------------------------------------------------- */

void
sti_save_make_names(struct sti_save *save)
{
    sti_name_id(save->id, save->saver->opts.session, save->serial);
    sti_name_make(save->parts_name, STI_NAME_PARTS, save->step, save->id);
    sti_name_make(save->commit_name, STI_NAME_COMMIT, save->step, save->id);
    sti_name_make(save->step_name, STI_NAME_STEP, save->step, save->id);
    (void)snprintf(save->manifest_path, sizeof(save->manifest_path), "%s/%s", save->commit_name,
                   STI_MANIFEST_NAME); /* fits */
}

/* Keeps who holds what, for the ballot. */
static int
take_groups(struct sti_save *save, const struct sti_saver_request *request, stk_error *err)
{
    size_t n_writers = 0;

    for (uint32_t at = 0; at < request->n_groups; at++)
        n_writers += request->groups[at].n_writers;
    save->groups = sti_mem_new(request->n_groups, sizeof(save->groups[0]));
    save->group_writers = sti_mem_new(n_writers, sizeof(save->group_writers[0]));
    if (!save->groups || !save->group_writers)
        return sti_error_set(err, -ENOMEM, "no memory for groups of ranks");
    uint32_t *writers = save->group_writers;
    save->n_groups = request->n_groups;
    for (uint32_t at = 0; at < request->n_groups; at++) {
        uint32_t n = request->groups[at].n_writers;

        memcpy(writers, request->groups[at].writers, n * sizeof(*writers));
        save->groups[at] = (struct sti_group){.writers = writers, .n_writers = n};
        writers += n;
    }
    return 0;
}

int
sti_save_new(struct sti_save **ret_save, struct sti_saver *saver,
             const struct sti_saver_request *request, uint64_t serial, stk_error *err)
{
    struct sti_save *save = sti_mem_new(1, sizeof(*save));

    if (!save)
        return sti_error_set(err, -ENOMEM, "no memory for a save");
    save->saver = saver;
    save->step = request->step;
    save->serial = serial;
    save->wants_drain = request->wants_drain;
    save->manifest_fd = -1;
    save->begun_ns = sti_clock_ns();
    save->chore.save = save;
    sti_save_make_names(save);
    int rc = sti_layout_build(&save->layout, request->inputs, request->n_tensors, request->pairs,
                              request->n_pairs, err);
    if (rc == 0)
        rc = check_manifest_bytes(save, err);
    if (rc == 0)
        rc = check_own_wholes(save, err);
    if (rc == 0)
        rc = take_groups(save, request, err);
    if (rc == 0)
        rc = take_shares(save, err);
    if (rc == 0)
        rc = divide_and_make_stripes(save, err);
    if (rc == 0)
        rc = take_sources(save, request, err);
    if (rc == 0)
        rc = take_sums(save, request, err);
    if (rc == 0)
        rc = count_uncaptured(save, request, err);
    if (rc == 0) {
        save->ballots =
            sti_mem_new(saver->opts.writer == 0 ? saver->opts.world : 0, sizeof(save->ballots[0]));
        save->look = sti_mem_new(1, sizeof(*save->look));
        if (!save->ballots || !save->look)
            rc = sti_error_set(err, -ENOMEM, "no memory for a save");
    }
    if (rc < 0) {
        sti_save_free(save);
        return rc;
    }
    *ret_save = save;
    return 0;
}

struct sti_save *
sti_save_decline(struct sti_saver *saver, uint64_t step, uint64_t serial, const stk_error *why)
{
    struct sti_save *save = saver->declined;

    sti_mutex_lock(&saver->lock);
    while (save->is_used)
        save++; /* there is one more than can be queued */
    assert(save < saver->declined + STI_SAVES_MAX + 1);
    *save = (struct sti_save){.saver = saver,
                              .is_declined = true,
                              .is_used = true,
                              .step = step,
                              .serial = serial,
                              .manifest_fd = -1,
                              .result = why->code,
                              .error = *why};
    sti_mutex_unlock(&saver->lock);
    save->chore.save = save;
    sti_save_make_names(save);
    return save;
}

void
sti_save_free(struct sti_save *save)
{
    if (save->is_declined) {
        struct sti_saver *saver = save->saver;

        sti_mutex_lock(&saver->lock);
        save->is_used = false;
        sti_mutex_unlock(&saver->lock);
        return;
    }
    for (uint32_t at = 0; !save->is_pull && at < save->n_stripes; at++) {
        sti_mem_free(save->stripes[at].part.extents);
        sti_mem_free(save->stripes[at].part.crcs);
    }
    sti_mem_free(save->stripes);
    sti_layout_fini(&save->layout);
    sti_text_fini(&save->manifest);
    sti_mem_free(save->sources);
    sti_mem_free(save->copies);
    sti_mem_free(save->uncaptured_bytes);
    sti_mem_free(save->ballots);
    sti_mem_free(save->look);
    sti_mem_free(save->groups);
    sti_mem_free(save->group_writers);
    sti_mem_free(save->sums);
    sti_merged_fini(&save->merged);
    sti_manifest_fini(&save->pulled);
    sti_text_fini(&save->ballot);
    sti_mem_free(save);
}
