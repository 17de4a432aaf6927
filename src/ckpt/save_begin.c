/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The beginning of a save, on the program's thread: the layout, who writes what, copies
 * of what the program may change at once. Everything is made anew for each save, from
 * what it was given; a plan kept from one save to the next could only ever be right or
 * make all later checkpoints wrong.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "ckpt/save_internal.h"
#include "policy/partition.h"

#define COPY_ALIGN 64u

/* ---- what is copied and what is captured later ------------------------------------- */

static bool
is_own(const struct sti_save *save, const struct sti_layout_tensor *tensor)
{
    return tensor->owner == STI_LAYOUT_SHARED || tensor->owner == save->saver->opts.writer;
}

static uint64_t
copy_room(uint64_t n_bytes)
{
    return (n_bytes + COPY_ALIGN - 1) / COPY_ALIGN * COPY_ALIGN;
}

static int
take_sources(struct sti_save *save, const struct sti_saver_request *request, stk_error *err)
{
    uint64_t copy_bytes = 0;

    save->sources = sti_mem_new(save->layout.n_tensors, sizeof(save->sources[0]));
    if (!save->sources)
        return sti_error_set(err, -ENOMEM, "no memory for %" PRIu32 " tensors", request->n_tensors);
    for (uint32_t idx = 0; idx < save->layout.n_tensors; idx++) {
        const struct sti_layout_tensor *tensor = &save->layout.tensors[idx];
        const struct sti_saver_tensor *given = &request->tensors[tensor->given_idx];

        if (!is_own(save, tensor) || tensor->n_bytes == 0)
            continue;
        if (!given->data)
            return sti_error_set(err, -EINVAL, "tensor '%.150s': it has bytes but no data",
                                 tensor->name);
        save->sources[idx] = given->data;
        copy_bytes += given->is_stable ? 0 : copy_room(tensor->n_bytes);
    }
    save->copies = sti_mem_new_aligned(copy_bytes, COPY_ALIGN);
    if (!save->copies)
        return sti_error_set(err, -ENOMEM,
                             "no memory for the %" PRIu64 " bytes that are copied at once",
                             copy_bytes);
    char *copy = save->copies;
    for (uint32_t idx = 0; idx < save->layout.n_tensors; idx++) {
        const struct sti_layout_tensor *tensor = &save->layout.tensors[idx];

        if (!save->sources[idx] || request->tensors[tensor->given_idx].is_stable)
            continue;
        memcpy(copy, save->sources[idx], tensor->n_bytes);
        save->sources[idx] = copy;
        copy += copy_room(tensor->n_bytes);
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

/* Scratch of the partition. */
struct division {
    struct sti_span *spans;
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

/* Every writer must come to the same division, so what one alone has measured counts only
 * where there is no other. */
static int
divide(const struct sti_save *save, struct division *division)
{
    const struct sti_saver_opts *opts = &save->saver->opts;
    uint32_t n_roots = opts->n_roots - opts->first_part_root;
    uint32_t n_spans = save->layout.n_tensors + 1;
    uint32_t n_targets = opts->world * n_roots;

    division->spans = sti_mem_new(n_spans, sizeof(division->spans[0]));
    division->targets = sti_mem_new(n_targets, sizeof(division->targets[0]));
    division->loads = sti_mem_new(2 * (size_t)n_targets, sizeof(division->loads[0]));
    division->cuts = sti_mem_new((size_t)n_spans + n_targets, sizeof(division->cuts[0]));
    if (!division->spans || !division->targets || !division->loads || !division->cuts)
        return -ENOMEM;
    division->spans[0] = (struct sti_span){save->layout.header_bytes, STI_SPAN_SHARED};
    for (uint32_t idx = 0; idx < save->layout.n_tensors; idx++)
        division->spans[idx + 1] =
            (struct sti_span){save->layout.tensors[idx].n_bytes, save->layout.tensors[idx].owner};
    for (uint32_t at = 0; at < n_targets; at++) {
        uint32_t root = opts->first_part_root + at % n_roots;

        division->targets[at] = (struct sti_target){
            .writer = at / n_roots,
            .root = root,
            .bytes_per_s = opts->world == 1 ? opts->roots[root].bytes_per_s : 1,
        };
    }
    division->partition = (struct sti_partition){.spans = division->spans,
                                                 .n_spans = n_spans,
                                                 .targets = division->targets,
                                                 .n_targets = n_targets,
                                                 .chunk_bytes = opts->chunk_bytes};
    division->n_cuts = sti_partition_cut(&division->partition, division->cuts, division->loads);
    return division->n_cuts < 0 ? (int)division->n_cuts : 0;
}

static int
fill_stripe(struct sti_save *save, struct sti_stripe *stripe, const struct division *division,
            uint32_t target)
{
    const struct sti_saver_opts *opts = &save->saver->opts;
    struct sti_part *part = &stripe->part;
    char name[STI_NAME_SIZE];

    stripe->save = save;
    stripe->fd = -1;
    stripe->root = &opts->roots[division->targets[target].root];
    part->writer = opts->writer;
    part->root = division->targets[target].root - opts->first_part_root;
    for (int64_t at = 0; at < division->n_cuts; at++)
        part->n_extents += division->cuts[at].target == target;
    part->extents = sti_mem_new(part->n_extents, sizeof(part->extents[0]));
    if (!part->extents)
        return -ENOMEM;
    part->n_extents = 0;
    for (int64_t at = 0; at < division->n_cuts; at++) {
        const struct sti_cut *cut = &division->cuts[at];

        if (cut->target != target)
            continue;
        part->extents[part->n_extents++] = (struct sti_part_extent){cut->offset, cut->n_bytes};
        part->n_bytes += cut->n_bytes;
    }
    part->n_chunks = (uint32_t)((part->n_bytes + opts->chunk_bytes - 1) / opts->chunk_bytes);
    part->crcs = sti_mem_new(part->n_chunks, sizeof(part->crcs[0]));
    if (!part->crcs)
        return -ENOMEM;
    sti_name_part(name, part->writer, part->root, save->n_parts);
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
    uint32_t first = opts->writer * n_roots;
    int rc = 0;

    save->stripes = sti_mem_new(n_roots, sizeof(save->stripes[0]));
    if (!save->stripes)
        return -ENOMEM;
    for (uint32_t at = 0; at < division->partition.n_targets; at++)
        save->n_parts += division->loads[at] > 0;
    for (uint32_t at = first; rc == 0 && at < first + n_roots; at++)
        if (division->loads[at] > 0)
            rc = fill_stripe(save, &save->stripes[save->n_stripes++], division, at);
    return rc;
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
    if (rc == -EINVAL)
        return sti_error_set(err, rc,
                             "a tensor is unique to a writer beyond the %" PRIu32
                             " that there are, or there are too many roots",
                             save->saver->opts.world);
    return rc < 0 ? sti_error_set(err, rc, "no memory for the parts") : 0;
}

/* ---- the save ---------------------------------------------------------------------- */

static void
make_names(struct sti_save *save)
{
    sti_name_id(save->id, save->saver->opts.session, save->serial);
    sti_name_make(save->parts_name, STI_NAME_PARTS, save->step, save->id);
    sti_name_make(save->commit_name, STI_NAME_COMMIT, save->step, save->id);
    sti_name_make(save->step_name, STI_NAME_STEP, save->step, save->id);
    (void)snprintf(save->manifest_path, sizeof(save->manifest_path), "%s/%s", save->commit_name,
                   STI_MANIFEST_NAME); /* fits */
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
    save->manifest_fd = -1;
    save->begun_ns = sti_clock_ns();
    save->chore.save = save;
    make_names(save);
    int rc = sti_layout_build(&save->layout, request->inputs, request->n_tensors, request->pairs,
                              request->n_pairs, err);
    if (rc == 0)
        rc = check_manifest_bytes(save, err);
    if (rc == 0)
        rc = divide_and_make_stripes(save, err);
    if (rc == 0)
        rc = take_sources(save, request, err);
    if (rc == 0)
        rc = count_uncaptured(save, request, err);
    if (rc == 0 && saver->opts.writer == 0) {
        save->ballots = sti_mem_new(saver->opts.world, sizeof(save->ballots[0]));
        if (!save->ballots)
            rc = sti_error_set(err, -ENOMEM, "no memory for a save");
    }
    if (rc < 0) {
        sti_save_free(save);
        return rc;
    }
    *ret_save = save;
    return 0;
}

void
sti_save_free(struct sti_save *save)
{
    for (uint32_t at = 0; at < save->n_stripes; at++) {
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
    sti_mem_free(save->cast_parts);
    sti_mem_free(save);
}
