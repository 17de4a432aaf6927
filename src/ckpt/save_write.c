/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slots. A slot goes free -> filling (a pool job) -> full -> writing -> free; all of
 * them serve all parts, each device has the same number of them in turn, and tensors play
 * no role: so every device sees large aligned writes, always half as many as its slots,
 * from the first byte to the last. The loop's thread alone, but for the job.
 *
 * Half, because a device works on all the writes that it has: they end at about the same
 * time, and it would have nothing to do until as many slots are filled anew. (Measured
 * on a loop device: 17 ms with eight writes of 8 MiB, then 4 ms with none.)
 *
 * Invariant: written_bytes of a stripe counts each byte once, after its write completed
 * in full.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "budget/budget.h"
#include "ckpt/save_internal.h"

/* Buffered roots: how much may be dirty before the kernel is told to write. */
#define BEHIND_BYTES (UINT64_C(32) << 20)

/* ---- filling ----------------------------------------------------------------------- */

static bool
wants_slot(const struct sti_stripe *stripe)
{
    return stripe->filled_bytes < stripe->part.n_bytes;
}

/* How many slots each of the stripes that are not written yet may have; 0: none is. */
static uint32_t
slot_share(const struct sti_save *save)
{
    uint32_t n_unfinished = 0;

    for (uint32_t at = 0; at < save->n_stripes; at++)
        n_unfinished += save->stripes[at].written_bytes < save->stripes[at].part.n_bytes;
    return n_unfinished > 0 ? save->saver->opts.slots / n_unfinished : 0;
}

/* The stripe that has the fewest slots of those that want one; no more than its share. */
static struct sti_stripe *
neediest_stripe(struct sti_save *save)
{
    struct sti_stripe *best = NULL;
    uint32_t share = slot_share(save);

    for (uint32_t at = 0; at < save->n_stripes; at++) {
        struct sti_stripe *stripe = &save->stripes[at];

        if (wants_slot(stripe) && (!best || stripe->n_slots < best->n_slots))
            best = stripe;
    }
    if (best && best->n_slots > 0 && best->n_slots >= share)
        return NULL;
    return best;
}

static uint32_t
padded(const struct sti_stripe *stripe, uint64_t n_bytes)
{
    uint32_t block_bytes = stripe->root->dio.block_bytes;

    return (uint32_t)((n_bytes + block_bytes - 1) / block_bytes * block_bytes);
}

static void
start_filling(struct sti_save *save)
{
    struct sti_saver *saver = save->saver;

    for (uint32_t at = 0; at < saver->opts.slots; at++) {
        struct sti_slot *slot = &saver->slots[at];
        struct sti_stripe *stripe = slot->state == STI_SLOT_FREE ? neediest_stripe(save) : NULL;

        if (!stripe || (save->is_drain && !sti_save_may_read(save, stripe)))
            continue;
        uint64_t left = stripe->part.n_bytes - stripe->filled_bytes;
        slot->stripe = stripe;
        slot->offset = stripe->filled_bytes;
        slot->n_bytes = left < saver->opts.slot_bytes ? (uint32_t)left : saver->opts.slot_bytes;
        slot->padded_bytes = padded(stripe, slot->n_bytes);
        slot->done_bytes = 0;
        slot->state = STI_SLOT_FILLING;
        stripe->filled_bytes += slot->n_bytes;
        stripe->n_slots++;
        save->n_filling++;
        if (save->is_drain)
            sti_slot_read(slot);
        else if (save->is_pull)
            sti_slot_pull(slot);
        else
            sti_slot_fill(slot);
    }
}

void
sti_saver_take_filled(struct sti_saver *saver)
{
    sti_mutex_lock(&saver->lock);
    struct sti_slot *slot = saver->filled;
    saver->filled = NULL;
    sti_mutex_unlock(&saver->lock);
    for (; slot; slot = slot->next) {
        if (slot->is_damaged)
            sti_save_fail(slot->stripe->save, slot->stripe, "check what was saved", STK_E_CORRUPT);
        slot->state = STI_SLOT_FULL;
        slot->stripe->save->n_filling--;
    }
}

/* ---- writing ----------------------------------------------------------------------- */

static void
free_slot(struct sti_slot *slot)
{
    slot->stripe->n_slots--;
    slot->stripe = NULL;
    slot->state = STI_SLOT_FREE;
}

static void
on_behind_synced(struct sti_aio_op *op)
{
    struct sti_chore *chore = op->context;

    chore->stripe->is_syncing = false;
    chore->save->n_pending--;
    if (op->result < 0)
        sti_save_fail(chore->save, chore->stripe, "sync", op->result);
}

/* A buffered root: lets the kernel write while the next slots are filled, so that the
 * sync at the end finds little to do. */
static void
write_behind(struct sti_stripe *stripe, uint32_t n_bytes)
{
    struct sti_save *save = stripe->save;

    stripe->behind_bytes += n_bytes;
    if (stripe->root->dio.is_direct || stripe->is_syncing || stripe->behind_bytes < BEHIND_BYTES ||
        save->result < 0)
        return;
    stripe->behind_bytes = 0;
    stripe->is_syncing = true;
    save->n_pending++;
    stripe->sync_chore.op = (struct sti_aio_op){.kind = STI_AIO_SYNC,
                                                .fd = stripe->fd,
                                                .done = on_behind_synced,
                                                .context = &stripe->sync_chore};
    sti_aio_submit(save->saver->opts.aio, &stripe->sync_chore.op);
}

static void
submit_write(struct sti_slot *slot);

/* How much of a result is kept: a direct write goes on at a block. */
static uint32_t
usable(const struct sti_slot *slot, int32_t result)
{
    uint32_t done = slot->done_bytes + (uint32_t)result;

    if (done < slot->padded_bytes)
        done -= done % slot->stripe->root->dio.block_bytes;
    return done - slot->done_bytes;
}

static void
on_written(struct sti_aio_op *op)
{
    struct sti_slot *slot = op->context;
    struct sti_stripe *stripe = slot->stripe;
    struct sti_save *save = stripe->save;
    int32_t result = op->result;

    if (result >= 0 && (uint32_t)result <= slot->padded_bytes - slot->done_bytes) {
        uint32_t progress = usable(slot, result);

        slot->done_bytes += progress;
        if (slot->done_bytes < slot->padded_bytes && progress > 0 && save->result == 0) {
            submit_write(slot); /* a short write: the rest tells why */
            return;
        }
    }
    save->n_pending--;
    stripe->n_writing--;
    if (stripe->root->budget)
        sti_budget_done(stripe->root->budget, (enum sti_budget_class)slot->budget_class);
    stripe->last_ns = sti_clock_ns();
    if (result < 0)
        sti_save_fail(save, stripe, "write", result);
    else if (slot->done_bytes < slot->padded_bytes)
        sti_save_fail(save, stripe, "write", -EIO);
    else
        stripe->written_bytes += slot->n_bytes;
    write_behind(stripe, slot->n_bytes);
    free_slot(slot);
}

static void
submit_write(struct sti_slot *slot)
{
    slot->op = (struct sti_aio_op){.kind = STI_AIO_WRITE,
                                   .fd = slot->stripe->fd,
                                   .bytes = slot->bytes + slot->done_bytes,
                                   .n_bytes = slot->padded_bytes - slot->done_bytes,
                                   .offset = slot->offset + slot->done_bytes,
                                   .done = on_written,
                                   .context = slot,
                                   .is_shaped = true};
    sti_aio_submit(slot->saver->opts.aio, &slot->op);
}

/* Whether the device may have one more write now. */
static bool
may_write(struct sti_saver *saver, struct sti_slot *slot, uint64_t now_ns, bool is_fenced)
{
    struct sti_budget *budget = slot->stripe->root->budget;

    if (!budget)
        return true;
    bool is_copy = saver->opts.is_drain || saver->opts.pull;
    slot->budget_class = is_copy     ? STI_BUDGET_DRAIN
                         : is_fenced ? STI_BUDGET_FENCE
                                     : STI_BUDGET_CHECKPOINT;
    uint64_t wait_ns = sti_budget_ask(budget, (enum sti_budget_class)slot->budget_class, now_ns);
    if (wait_ns == 0)
        return true;
    if (now_ns + wait_ns < saver->wake_ns)
        saver->wake_ns = now_ns + wait_ns;
    return false;
}

static void
start_writing(struct sti_save *save)
{
    struct sti_saver *saver = save->saver;
    uint64_t now_ns = sti_clock_ns();

    sti_mutex_lock(&saver->lock);
    bool is_fenced = saver->n_fencing > 0;
    sti_mutex_unlock(&saver->lock);
    uint32_t most = (slot_share(save) + 1) / 2;
    for (uint32_t at = 0; at < saver->opts.slots; at++) {
        struct sti_slot *slot = &saver->slots[at];

        if (slot->state != STI_SLOT_FULL ||
            (slot->stripe->n_writing > 0 && slot->stripe->n_writing >= most) ||
            !may_write(saver, slot, now_ns, is_fenced))
            continue;
        if (slot->stripe->first_ns == 0)
            slot->stripe->first_ns = now_ns;
        slot->state = STI_SLOT_WRITING;
        slot->stripe->n_writing++;
        save->n_pending++;
        submit_write(slot);
    }
}

/* Nothing more is written of a save that failed. */
static void
drop_full(struct sti_saver *saver)
{
    for (uint32_t at = 0; at < saver->opts.slots; at++)
        if (saver->slots[at].state == STI_SLOT_FULL)
            free_slot(&saver->slots[at]);
}

void
sti_save_pump(struct sti_save *save)
{
    save->saver->wake_ns = UINT64_MAX;
    if (save->result < 0) {
        drop_full(save->saver);
        return;
    }
    if (save->can_write)
        start_writing(save);
    start_filling(save);
}
