/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save that is durable goes on as a copy on another node: the ranks of each node pull
 * the parts of the node before it, through its depot, and write them under the names that
 * they have there. Every node has the manifest already, so what to pull is read from the
 * own directory, and when all have voted that theirs is written, the loss of any one node
 * loses nothing of it.
 *
 * A part gets its name when all of it is synced. So a copy that was cut off is never taken
 * for a part, whatever its size, in place of the one that it was to be a copy of.
 *
 * It is a save of a saver of its own, by the serial of the save that it copies: a rank
 * that does not know what became of that one votes on none, and the numbers of the others
 * still meet.
 *
 * The loop's thread alone, but for the jobs that decode and check.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "ckpt/nodes.h"
#include "ckpt/save_stages.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE (1 << 0)
#endif

/* ---- what is copied ------------------------------------------------------------- */

static struct sti_save *
new_pull(struct sti_saver *copier, const struct sti_save *from)
{
    struct sti_save *save = sti_mem_new(1, sizeof(*save));

    if (!save)
        return NULL;
    *save = (struct sti_save){.saver = copier,
                              .step = from->step,
                              .serial = from->serial,
                              .is_pull = true,
                              .manifest_fd = -1,
                              .begun_ns = sti_clock_ns()};
    save->chore.save = save;
    sti_save_make_names(save);
    save->look = sti_mem_new(1, sizeof(*save->look));
    save->ballots =
        sti_mem_new(copier->opts.writer == 0 ? copier->opts.world : 0, sizeof(save->ballots[0]));
    if (save->look && save->ballots)
        return save;
    sti_save_free(save);
    return NULL;
}

void
sti_save_begin_pull(const struct sti_save *from)
{
    struct sti_saver *copier = from->saver->opts.copier;
    stk_error why;

    if (!copier)
        return;
    struct sti_save *save = new_pull(copier, from);
    if (!save) {
        (void)sti_error_set(&why, -ENOMEM, "the partner copy of step %" PRIu64 " failed: no memory",
                            from->step);
        sti_saver_latch(copier, &why);
        save = sti_save_decline(copier, from->step, from->serial, &why);
    }
    sti_saver_take_copy(copier, save);
}

/* ---- the manifest that is here -------------------------------------------------- */

void
sti_stage_look_at_manifest(struct sti_save *save)
{
    (void)snprintf(save->manifest_path, sizeof(save->manifest_path), "%s/%s", save->step_name,
                   STI_MANIFEST_NAME); /* fits */
    sti_stage_start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_STATX,
                                                      .dir_fd = sti_stage_directory(save)->dir_fd,
                                                      .path = save->manifest_path,
                                                      .statx_mask = STATX_SIZE,
                                                      .statx = &save->look->found});
}

int
sti_stage_check_manifest_seen(struct sti_save *save, struct sti_chore *chore)
{
    if (chore->op.result < 0)
        return chore->op.result;
    if (save->look->found.stx_size >= STI_MANIFEST_MAX_BYTES)
        return -EFBIG;
    save->manifest.bytes = sti_mem_new(save->look->found.stx_size + 1, 1);
    save->manifest.n_bytes = save->look->found.stx_size;
    return save->manifest.bytes ? 0 : -ENOMEM;
}

/* On a pool thread. */
static void
decode(struct sti_aio_op *op)
{
    struct sti_chore *chore = op->context;
    struct sti_save *save = chore->save;

    if (op->result < 0)
        return;
    save->merge_result = (uint64_t)op->result != save->manifest.n_bytes
                             ? -EIO
                             : sti_manifest_decode(&save->pulled, save->manifest.bytes,
                                                   save->manifest.n_bytes, NULL);
}

void
sti_stage_read_manifest(struct sti_save *save)
{
    sti_stage_start(&save->chore,
                    (struct sti_aio_op){.kind = STI_AIO_READ_FILE,
                                        .dir_fd = sti_stage_directory(save)->dir_fd,
                                        .path = save->manifest_path,
                                        .bytes = save->manifest.bytes,
                                        .n_bytes = (uint32_t)save->manifest.n_bytes + 1,
                                        .work = decode,
                                        .work_lane = STI_LANE_NORMAL});
}

/* Whether this rank pulls the parts of a writer; a manifest of other ranks has others. */
static bool
takes(const struct sti_save *save, uint32_t writer)
{
    return writer <= save->saver->opts.world && save->saver->opts.pull->takes[writer] != 0;
}

static struct sti_root *
find_root(const struct sti_save *save, const char *path)
{
    const struct sti_saver_opts *opts = &save->saver->opts;

    for (uint32_t at = 0; at < opts->n_roots; at++)
        if (strcmp(opts->roots[at].path, path) == 0)
            return &opts->roots[at];
    return NULL;
}

/* The part of another node as a file of this one, which is given its name, from_path, when it is
 * whole. Its CRCs are the manifest's. */
static int
take_part(struct sti_save *save, uint32_t idx)
{
    const struct sti_manifest *manifest = &save->pulled;
    struct sti_stripe *stripe = &save->stripes[save->n_stripes];
    char name[STI_NAME_SIZE];

    *stripe =
        (struct sti_stripe){.save = save,
                            .root = find_root(save, manifest->roots[manifest->parts[idx].root]),
                            .part = manifest->parts[idx],
                            .part_idx = idx,
                            .fd = -1,
                            .from_fd = -1,
                            .chore = {.save = save, .stripe = stripe},
                            .sync_chore = {.save = save, .stripe = stripe}};
    if (!stripe->root)
        return -ENOENT;
    sti_name_part(name, stripe->part.writer, stripe->part.number, manifest->n_parts);
    (void)snprintf(stripe->from_path, sizeof(stripe->from_path), "%s/%s", save->parts_name,
                   name); /* fits */
    (void)snprintf(stripe->path, sizeof(stripe->path), "%s/%.40s" STI_PULL_SUFFIX, save->parts_name,
                   name); /* fits */
    save->n_stripes++;
    return 0;
}

int
sti_stage_check_manifest_read(struct sti_save *save, struct sti_chore *chore)
{
    const struct sti_manifest *manifest = &save->pulled;
    uint32_t n = 0;
    int rc = chore->op.result < 0 ? chore->op.result : save->merge_result;

    if (rc == 0 && strcmp(manifest->id, save->id) != 0)
        rc = -ESTALE;
    if (rc < 0)
        return rc;
    sti_text_fini(&save->manifest);
    save->manifest = (struct sti_text){0};
    for (uint32_t idx = 0; idx < manifest->n_parts; idx++)
        n += takes(save, manifest->parts[idx].writer);
    save->stripes = sti_mem_new(n, sizeof(save->stripes[0]));
    if (!save->stripes)
        return -ENOMEM;
    for (uint32_t idx = 0; rc == 0 && idx < manifest->n_parts; idx++)
        if (takes(save, manifest->parts[idx].writer))
            rc = take_part(save, idx);
    return rc;
}

/* ---- names ------------------------------------------------------------------------- */

void
sti_stage_look_for_copies(struct sti_save *save)
{
    for (uint32_t at = 0; at < save->n_stripes; at++) {
        struct sti_stripe *stripe = &save->stripes[at];

        sti_stage_start(&stripe->chore, (struct sti_aio_op){.kind = STI_AIO_STATX,
                                                            .dir_fd = stripe->root->dir_fd,
                                                            .path = stripe->from_path,
                                                            .statx_mask = STATX_TYPE,
                                                            .statx = &stripe->found});
    }
}

int
sti_stage_check_no_copy(struct sti_save *save, struct sti_chore *chore)
{
    (void)save;
    return chore->op.result == 0 ? -EEXIST : chore->op.result == -ENOENT ? 0 : chore->op.result;
}

static void
start_naming(struct sti_stripe *stripe, uint32_t flags)
{
    sti_stage_start(&stripe->chore, (struct sti_aio_op){.kind = STI_AIO_RENAME,
                                                        .dir_fd = stripe->root->dir_fd,
                                                        .path = stripe->path,
                                                        .dir_fd2 = stripe->root->dir_fd,
                                                        .path2 = stripe->from_path,
                                                        .rename_flags = flags});
}

void
sti_stage_name_copies(struct sti_save *save)
{
    for (uint32_t at = 0; at < save->n_stripes; at++)
        start_naming(&save->stripes[at], RENAME_NOREPLACE);
}

/* Where the file system has no RENAME_NOREPLACE: nothing was there when it was looked for. */
int
sti_stage_check_named(struct sti_save *save, struct sti_chore *chore)
{
    int rc = chore->op.result;

    (void)save;
    if (chore->op.rename_flags != 0 && (rc == -EINVAL || rc == -ENOSYS || rc == -EOPNOTSUPP)) {
        start_naming(chore->stripe, 0);
        return 0;
    }
    if (rc == 0)
        (void)snprintf(chore->stripe->path, sizeof(chore->stripe->path), "%s",
                       chore->stripe->from_path); /* fits */
    return rc;
}

/* ---- reading it from the other node --------------------------------------------- */

static void
ask(struct sti_slot *slot);

/* The slot's bytes are here, or are not going to come. */
static void
end_pull(struct sti_slot *slot, const char *what, int rc)
{
    struct sti_save *save = slot->stripe->save;

    if (rc < 0) {
        sti_save_fail(save, slot->stripe, what, rc);
        save->error.rank = (int)save->saver->opts.pull->peer;
    }
    slot->done_bytes = 0;
    slot->state = STI_SLOT_FULL;
    save->n_filling--;
}

/* On a pool thread, like filling: the loop takes it back by the saver's list. */
static void
check_job(struct sti_job *job)
{
    struct sti_slot *slot =
        (struct sti_slot *)(void *)((char *)job - offsetof(struct sti_slot, job));
    struct sti_saver *saver = slot->saver;
    uint32_t chunk_bytes = saver->opts.chunk_bytes;
    const uint32_t *crcs = slot->stripe->part.crcs + slot->offset / chunk_bytes;

    for (uint32_t at = 0; at < slot->n_bytes; at += chunk_bytes) {
        uint32_t n = slot->n_bytes - at < chunk_bytes ? slot->n_bytes - at : chunk_bytes;

        if (sti_crc32c(0, slot->bytes + at, n) != *crcs++)
            slot->is_damaged = true;
    }
    memset(slot->bytes + slot->n_bytes, 0, slot->padded_bytes - slot->n_bytes);
    sti_mutex_lock(&saver->lock);
    slot->next = saver->filled;
    saver->filled = slot;
    sti_aio_wake(saver->opts.aio); /* under the lock: the saver may be gone then */
    sti_mutex_unlock(&saver->lock);
}

static void
on_answered(struct sti_depot_ask *asked)
{
    struct sti_slot *slot = asked->context;
    const struct sti_save *save = slot->stripe->save;

    sti_aio_wake(slot->saver->opts.aio);
    slot->done_bytes += asked->result == 0 ? asked->got_bytes : 0;
    if (asked->result < 0) {
        end_pull(slot, "read from the other node", asked->result);
    } else if (slot->done_bytes < slot->n_bytes && save->result == 0) {
        if (asked->got_bytes > 0)
            ask(slot);
        else
            end_pull(slot, "read from the other node", -EIO); /* it is shorter than it was */
    } else if (save->result < 0) {
        end_pull(slot, NULL, 0);
    } else {
        slot->done_bytes = 0; /* from here on: written */
        slot->job.fn = check_job;
        sti_pool_submit(slot->saver->opts.pool, STI_LANE_NORMAL, &slot->job, 1);
    }
}

static void
ask(struct sti_slot *slot)
{
    const struct sti_save *save = slot->stripe->save;
    const struct sti_pull *pull = slot->saver->opts.pull;

    *slot->ask = (struct sti_depot_ask){.peer = pull->peer,
                                        .offset = slot->offset + slot->done_bytes,
                                        .into = slot->bytes + slot->done_bytes,
                                        .n_bytes = slot->n_bytes - slot->done_bytes,
                                        .done = on_answered,
                                        .context = slot};
    sti_nodes_name_part(slot->ask, &save->pulled, slot->stripe->part_idx);
    sti_depot_ask(pull->depot, slot->ask);
}

void
sti_slot_pull(struct sti_slot *slot)
{
    slot->is_damaged = false;
    ask(slot);
}
