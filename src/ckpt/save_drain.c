/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save that is durable where it was written goes on as a copy to another directory, one that
 * outlives the machine. It is the same save with other roots: its parts are read where they lie,
 * checked by the CRCs that the manifest has, and written, voted on and committed by the stages of
 * any save. So what is said of a save holds of its copy, and a copy that fails leaves the first
 * one as it is.
 *
 * The loop's thread alone.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "budget/budget.h"
#include "ckpt/save_internal.h"

/* ---- what is copied ---------------------------------------------------------------- */

bool
sti_save_must_drain(struct sti_save *save)
{
    struct sti_saver *saver = save->saver;
    struct sti_saver *drain = saver->opts.drain;

    if (!drain)
        return false;
    saver->n_undrained++;
    sti_mutex_lock(&drain->lock);
    uint32_t n = drain->n_queued + drain->n_coming;
    sti_mutex_unlock(&drain->lock);
    bool is_due = saver->opts.drain_every > 0 && saver->n_undrained >= saver->opts.drain_every;
    if (save->wants_drain ? n >= STI_SAVES_MAX : !is_due || n > 0)
        return false;
    saver->n_undrained = 0;
    return true;
}

/* The part's file has the same name in the other directory. */
static void
turn_stripe(struct sti_save *save, struct sti_stripe *stripe)
{
    const char *name = strrchr(stripe->path, '/');

    assert(name);
    stripe->from_root = stripe->root;
    (void)snprintf(stripe->from_path, sizeof(stripe->from_path), "%s", stripe->path); /* fits */
    (void)snprintf(stripe->path, sizeof(stripe->path), "%s%s", save->parts_name,
                   stripe->from_path + (name - stripe->path)); /* fits */
    stripe->root = &save->saver->opts.roots[0];
    stripe->part.root = 0;
    stripe->fd = -1;
    stripe->from_fd = -1;
    stripe->is_made = false;
    stripe->filled_bytes = 0;
    stripe->written_bytes = 0;
    stripe->behind_bytes = 0;
    stripe->first_ns = 0;
}

/* Of several writers: the manifest of all, with the other directory as its only root. */
static void
turn_manifest(struct sti_save *save)
{
    struct sti_manifest *manifest = &save->merged.manifest;

    if (!manifest->parts)
        return;                                                         /* not the coordinator's */
    (void)snprintf(manifest->id, sizeof(manifest->id), "%s", save->id); /* fits */
    manifest->roots[0] = ".";
    manifest->n_roots = 1;
    for (uint32_t at = 0; at < manifest->n_parts; at++)
        manifest->parts[at].root = 0;
}

/* It keeps its number: of ranks one that does not hear of a copy is not out of step for it. */
void
sti_save_pass_on(struct sti_save *save)
{
    struct sti_saver *drain = save->saver->opts.drain;

    sti_mem_free(save->copies);
    sti_mem_free(save->sources);
    sti_mem_free(save->uncaptured_bytes);
    sti_text_fini(&save->manifest);
    save->copies = NULL;
    save->sources = NULL;
    save->uncaptured_bytes = NULL;
    save->manifest = (struct sti_text){0};
    save->manifest_done = 0;
    save->saver = drain;
    save->is_drain = true;
    save->run = 0;
    save->stage = 0;
    save->is_started = false;
    save->can_write = false;
    save->has_cast = false;
    save->is_published = false;
    save->keep_parts = false;
    save->must_drain = false;
    save->has_commit_dir = false;
    save->has_renamed = false;
    save->first_stripe = 0;
    save->look->n_seen = 0;
    save->begun_ns = sti_clock_ns();
    sti_save_make_names(save);
    for (uint32_t at = 0; at < save->n_stripes; at++)
        turn_stripe(save, &save->stripes[at]);
    turn_manifest(save);
    sti_saver_take_copy(drain, save);
}

/* ---- reading it -------------------------------------------------------------------- */

static void
submit_read(struct sti_slot *slot);

/* On a pool thread: the bytes are those that were written. */
static void
check(struct sti_aio_op *op)
{
    struct sti_slot *slot = op->context;
    const struct sti_saver *saver = slot->saver;
    uint32_t chunk_bytes = saver->opts.chunk_bytes;
    const uint32_t *crcs = slot->stripe->part.crcs + slot->offset / chunk_bytes;

    if (op->result < 0 || slot->done_bytes + (uint32_t)op->result < slot->n_bytes)
        return; /* short: goes on, or fails, in on_read() */
    for (uint32_t at = 0; at < slot->n_bytes; at += chunk_bytes) {
        uint32_t n = slot->n_bytes - at < chunk_bytes ? slot->n_bytes - at : chunk_bytes;

        if (sti_crc32c(0, slot->bytes + at, n) != *crcs++)
            slot->is_damaged = true;
    }
    memset(slot->bytes + slot->n_bytes, 0, slot->padded_bytes - slot->n_bytes);
}

static void
on_read(struct sti_aio_op *op)
{
    struct sti_slot *slot = op->context;
    struct sti_stripe *stripe = slot->stripe;
    struct sti_save *save = stripe->save;
    uint32_t progress = op->result > 0 ? (uint32_t)op->result : 0;

    if (op->result >= 0 && slot->done_bytes + progress < slot->n_bytes) {
        progress -= progress % stripe->from_root->dio.block_bytes;
        slot->done_bytes += progress;
        if (progress > 0 && save->result == 0) {
            submit_read(slot); /* a short read: the rest tells why */
            return;
        }
        sti_save_fail(save, stripe, "read what was saved", -EIO);
    } else if (op->result < 0) {
        sti_save_fail(save, stripe, "read what was saved", op->result);
    } else if (slot->is_damaged) {
        sti_save_fail(save, stripe, "check what was saved", STK_E_CORRUPT);
    }
    if (stripe->from_root->budget)
        sti_budget_done(stripe->from_root->budget, STI_BUDGET_DRAIN);
    slot->done_bytes = 0;
    slot->state = STI_SLOT_FULL;
    save->n_filling--;
}

static void
submit_read(struct sti_slot *slot)
{
    uint32_t block_bytes = slot->stripe->from_root->dio.block_bytes;
    uint32_t left = slot->n_bytes - slot->done_bytes;

    slot->op = (struct sti_aio_op){.kind = STI_AIO_READ,
                                   .fd = slot->stripe->from_fd,
                                   .bytes = slot->bytes + slot->done_bytes,
                                   .n_bytes = (left + block_bytes - 1) / block_bytes * block_bytes,
                                   .offset = slot->offset + slot->done_bytes,
                                   .work = check,
                                   .work_lane = STI_LANE_NORMAL,
                                   .done = on_read,
                                   .context = slot,
                                   .is_shaped = true};
    sti_aio_submit(slot->saver->opts.aio, &slot->op);
}

bool
sti_save_may_read(struct sti_save *save, const struct sti_stripe *stripe)
{
    struct sti_budget *budget = stripe->from_root->budget;
    uint64_t now_ns = sti_clock_ns();

    if (stripe->from_fd < 0)
        return false; /* not opened yet */
    uint64_t wait_ns = budget ? sti_budget_ask(budget, STI_BUDGET_DRAIN, now_ns) : 0;
    if (wait_ns > 0 && now_ns + wait_ns < save->saver->wake_ns)
        save->saver->wake_ns = now_ns + wait_ns;
    return wait_ns == 0;
}

void
sti_slot_read(struct sti_slot *slot)
{
    slot->is_damaged = false;
    submit_read(slot);
}
