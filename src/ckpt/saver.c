/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The saver between the program and the loop. The program queues saves and waits for what
 * becomes of them; the loop works on the oldest and on nothing else of this saver.
 * Invariant: a save is in the queue until it is acknowledged, and every failure that
 * nobody was told of is latched until the next call takes it.
 *
 * Threads: the program's in the calls, the loop's in step, pool threads in save_fill.c.
 * One lock (STI_RANK_CKPT), never held across anything that blocks but waits on its
 * condition.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "ckpt/save_internal.h"

#define PULL_ROOM_BYTES 65536u /* keeps slots where direct writes want them */

/* ---- the loop's side --------------------------------------------------------------- */

bool
sti_saver_is_keeper(const struct sti_saver *saver)
{
    return saver->opts.commits ? saver->opts.is_keeper : saver->opts.writer == 0;
}

void
sti_saver_latch(struct sti_saver *saver, const stk_error *error)
{
    sti_mutex_lock(&saver->lock);
    if (saver->latched.code == 0) /* the first is the cause */
        saver->latched = *error;
    else
        saver->n_more++;
    sti_mutex_unlock(&saver->lock);
}

void
sti_saver_acknowledge(struct sti_save *save)
{
    struct sti_saver *saver = save->saver;
    struct sti_saver_status *status = &saver->status;

    if (save->result < 0 && !save->is_declined)
        sti_saver_latch(saver, &save->error);
    sti_mutex_lock(&saver->lock);
    assert(saver->n_queued > 0 && saver->queue[0] == save);
    saver->n_queued--;
    memmove(saver->queue, saver->queue + 1, saver->n_queued * sizeof(struct sti_save *));
    if (save->is_declined) {
        /* The program was told when it asked, and nothing was begun. */
    } else if (save->result < 0) {
        status->failed++;
    } else {
        status->durable++;
        status->last_durable = save->step;
        status->bytes += save->layout.stream_bytes;
        status->captured_ns =
            save->captured_ns > save->begun_ns ? save->captured_ns - save->begun_ns : 0;
        status->durable_ns = sti_clock_ns() - save->begun_ns;
    }
    sti_cond_broadcast(&saver->changed);
    sti_mutex_unlock(&saver->lock);
    if (saver->opts.is_drain || saver->opts.pull)
        sti_aio_wake(saver->opts.aio); /* a save may wait for room for its own */
}

void
sti_saver_expect_copy(struct sti_saver *copies)
{
    if (!copies)
        return;
    sti_mutex_lock(&copies->lock);
    copies->n_coming++;
    sti_mutex_unlock(&copies->lock);
}

void
sti_saver_take_copy(struct sti_saver *copies, struct sti_save *save)
{
    stk_error why;

    sti_mutex_lock(&copies->lock);
    assert(copies->n_coming > 0);
    copies->n_coming--;
    bool has_room = copies->n_queued < STI_SAVES_MAX;
    if (has_room) {
        copies->queue[copies->n_queued++] = save;
        copies->is_active = true;
        copies->status.saves++;
    }
    sti_cond_broadcast(&copies->changed);
    sti_mutex_unlock(&copies->lock);
    if (!has_room) {
        (void)sti_error_set(&why, -EBUSY,
                            "step %" PRIu64 " is not copied on: %u copies before it are not done",
                            save->step, STI_SAVES_MAX);
        sti_saver_latch(copies, &why);
        sti_save_free(save);
    }
    sti_aio_wake(copies->opts.aio);
}

static void
on_retain_done(struct sti_aio_op *op);

static void
go_on_retaining(struct sti_saver *saver)
{
    struct sti_retain *retain = &saver->retain;
    struct sti_aio_op *op = &saver->retain_chore.op;

    saver->is_retaining = sti_retain_next(retain, op);
    if (saver->is_retaining) {
        op->done = on_retain_done;
        op->context = saver;
        sti_aio_submit(saver->opts.aio, op);
        return;
    }
    if (retain->result < 0) {
        stk_error error;

        (void)sti_error_set_path(&error, retain->result, retain->name,
                                 "after the save of step %" PRIu64 " became durable, an older "
                                 "checkpoint could not be removed: %s",
                                 retain->protect_step, sti_error_text(retain->result));
        sti_saver_latch(saver, &error);
    }
    sti_retain_fini(retain);
}

static void
on_retain_done(struct sti_aio_op *op)
{
    go_on_retaining(op->context);
}

/* What is being copied, or will be, stays. */
static void
note_busy(struct sti_saver *drain, struct sti_retain *retain)
{
    if (!drain)
        return;
    sti_mutex_lock(&drain->lock);
    for (uint32_t at = 0; at < drain->n_queued && retain->n_busy < STI_RETAIN_BUSY_MAX; at++)
        retain->busy_steps[retain->n_busy++] = drain->queue[at]->step;
    sti_mutex_unlock(&drain->lock);
}

/* The newest that is copied to another node; UINT64_MAX: none has been since this was opened. */
static uint64_t
newest_copy(struct sti_saver *copier)
{
    sti_mutex_lock(&copier->lock);
    uint64_t step = copier->status.last_durable;
    sti_mutex_unlock(&copier->lock);
    return step;
}

/* What is durable as a copy, too, must not make room for what is so only here. Before the first
 * copy what earlier jobs have copied is not known, so nothing is removed. */
static void
begin_retaining(struct sti_saver *saver, uint64_t step)
{
    uint64_t pinned = UINT64_MAX;

    if (saver->opts.copier) {
        pinned = newest_copy(saver->opts.copier);
        if (pinned == UINT64_MAX)
            return;
    }
    saver->retain = (struct sti_retain){.dir_fd = saver->opts.roots[0].dir_fd,
                                        .keep = saver->opts.keep,
                                        .protect_step = step,
                                        .pinned_step = pinned,
                                        .is_of_node = saver->opts.commits != NULL};
    note_busy(saver->opts.drain, &saver->retain);
    note_busy(saver->opts.copier, &saver->retain);
    go_on_retaining(saver);
}

static struct sti_save *
take_next(struct sti_saver *saver)
{
    struct sti_save *save = NULL;

    sti_mutex_lock(&saver->lock);
    if (saver->n_queued > 0)
        save = saver->queue[0];
    if (!save && saver->is_active) {
        saver->is_active = false;
        sti_cond_broadcast(&saver->changed);
    }
    sti_mutex_unlock(&saver->lock);
    return save;
}

/* The save that is over: what it leaves to do. */
static void
end_save(struct sti_saver *saver, struct sti_save *save)
{
    bool must_retain = save->result == 0 && saver->opts.keep > 0 && sti_saver_is_keeper(saver);
    uint64_t step = save->step;

    if (save->result == 0)
        sti_save_begin_pull(save);
    if (save->must_drain && save->result == 0)
        sti_save_pass_on(save);
    else
        sti_save_free(save);
    saver->active = NULL;
    if (must_retain)
        begin_retaining(saver, step);
}

uint64_t
sti_saver_step(void *context)
{
    struct sti_saver *saver = context;

    saver->wake_ns = UINT64_MAX;
    sti_saver_take_filled(saver);
    while (!saver->is_retaining) {
        if (!saver->active)
            saver->active = take_next(saver);
        if (!saver->active || !sti_save_advance(saver->active))
            break;
        end_save(saver, saver->active);
    }
    if (saver->wake_ns == UINT64_MAX)
        return UINT64_MAX;
    uint64_t now_ns = sti_clock_ns();
    return saver->wake_ns > now_ns ? saver->wake_ns - now_ns : 0;
}

/* ---- the program's side ------------------------------------------------------------ */

/* Gives the program the failure that it has not been told of; 0: there is none. */
static int
take_latched_locked(struct sti_saver *saver, stk_error *err) STI_REQUIRES(&saver->lock)
{
    int code = saver->latched.code;

    if (code == 0)
        return 0;
    if (err)
        *err = saver->latched;
    if (err && saver->n_more > 0) {
        size_t at = strnlen(err->message, sizeof(err->message) - 40);

        (void)snprintf(err->message + at, sizeof(err->message) - at,
                       " (and %" PRIu32 " more have failed)", saver->n_more); /* fits */
    }
    saver->latched.code = 0;
    saver->n_more = 0;
    return code;
}

static uint64_t
since(uint64_t begun_ns)
{
    return sti_clock_ns() - begun_ns;
}

/* Waits until a saver of copies has room for one more; NULL: there is none. */
static void
wait_for_copies(struct sti_saver *copies)
{
    if (!copies)
        return;
    sti_mutex_lock(&copies->lock);
    while (copies->n_queued + copies->n_coming >= STI_DRAINS_MAX)
        sti_cond_wait(&copies->changed, &copies->lock);
    sti_mutex_unlock(&copies->lock);
}

/* Waits until there is room for one more. Of several writers what an earlier save was lost by is
 * left to fences and waits: whoever is told here does not begin this one, so the others would
 * lose it, be told later, not begin another, and so on. */
static int
wait_for_room(struct sti_saver *saver, stk_error *err)
{
    uint64_t begun_ns = sti_clock_ns();

    sti_mutex_lock(&saver->lock);
    while (saver->n_queued >= saver->opts.outstanding)
        sti_cond_wait(&saver->changed, &saver->lock);
    saver->status.save_wait_ns += since(begun_ns);
    int rc = saver->opts.world == 1 ? take_latched_locked(saver, err) : 0;
    sti_mutex_unlock(&saver->lock);
    return rc;
}

/* Gives the loop a save, begun or declined. */
static void
enqueue(struct sti_saver *saver, struct sti_save *save)
{
    sti_mutex_lock(&saver->lock);
    assert(saver->n_queued < STI_SAVES_MAX);
    if (!save->is_declined) {
        saver->status.saves++;
        if (save->n_uncaptured == 0) {
            save->captured_ns = sti_clock_ns();
            saver->status.last_captured = save->step;
        }
    }
    saver->queue[saver->n_queued++] = save;
    saver->is_active = true;
    sti_mutex_unlock(&saver->lock);
    sti_aio_wake(saver->opts.aio);
}

int
sti_saver_save(struct sti_saver *saver, const struct sti_saver_request *request, stk_error *err)
{
    struct sti_save *save = NULL;
    stk_error why;

    if (request->code < 0 && saver->opts.world == 1)
        return request->code;
    /* Before the save begins: from its vote on the others' time runs. */
    wait_for_copies(request->wants_drain ? saver->opts.drain : NULL);
    wait_for_copies(saver->opts.copier);
    int rc = wait_for_room(saver, &why);
    bool is_told = rc < 0;
    if (rc == 0)
        rc = request->code;
    sti_mutex_lock(&saver->lock);
    uint64_t serial = saver->serial++;
    sti_mutex_unlock(&saver->lock);
    if (rc == 0) {
        rc = sti_save_new(&save, saver, request, serial, &why);
        is_told = rc < 0;
    }
    if (is_told && err)
        *err = why;
    if (rc < 0 && saver->opts.world > 1) {
        if (!is_told && err)
            why = *err;
        else if (!is_told)
            (void)sti_error_set(&why, rc, "it could not begin: %s", sti_error_text(rc));
        save = sti_save_decline(saver, request->step, serial, &why);
    }
    if (save)
        enqueue(saver, save);
    return rc;
}

/* The last save that was begun, as far as it is unfinished; NULL: there is none. */
static const struct sti_save *
last_begun_locked(const struct sti_saver *saver) STI_REQUIRES(&saver->lock)
{
    for (uint32_t at = saver->n_queued; at-- > 0;)
        if (!saver->queue[at]->is_declined)
            return saver->queue[at];
    return NULL;
}

/* Whether some save still needs the program's memory: all of it, or one tensor of the
 * last. */
static bool
needs_memory_locked(const struct sti_saver *saver, uint32_t tensor) STI_REQUIRES(&saver->lock)
{
    if (tensor != UINT32_MAX) {
        const struct sti_save *last = last_begun_locked(saver);

        return last && last->uncaptured_bytes[tensor] > 0;
    }
    for (uint32_t at = 0; at < saver->n_queued; at++)
        if (saver->queue[at]->n_uncaptured > 0)
            return true;
    return false;
}

static int
fence(struct sti_saver *saver, uint32_t tensor, stk_error *err)
{
    uint64_t begun_ns = 0;

    sti_mutex_lock(&saver->lock);
    const struct sti_save *last = last_begun_locked(saver);
    if (tensor != UINT32_MAX && last && tensor >= last->layout.n_tensors) {
        sti_mutex_unlock(&saver->lock);
        return sti_error_set(err, -ERANGE, "the last save has no tensor %" PRIu32, tensor);
    }
    if (needs_memory_locked(saver, tensor)) {
        begun_ns = sti_clock_ns();
        saver->n_fencing++;
        sti_aio_wake(saver->opts.aio); /* the device's arbiter is told that it is urgent */
        while (needs_memory_locked(saver, tensor))
            sti_cond_wait(&saver->changed, &saver->lock);
        saver->n_fencing--;
        saver->status.fence_wait_ns += since(begun_ns);
    }
    int rc = take_latched_locked(saver, err);
    sti_mutex_unlock(&saver->lock);
    return rc;
}

int
sti_saver_fence(struct sti_saver *saver, stk_error *err)
{
    return fence(saver, UINT32_MAX, err);
}

int
sti_saver_fence_tensor(struct sti_saver *saver, uint32_t tensor, stk_error *err)
{
    return tensor == UINT32_MAX ? sti_error_set(err, -ERANGE, "no such tensor")
                                : fence(saver, tensor, err);
}

int
sti_saver_wait(struct sti_saver *saver, enum sti_saver_level level, uint64_t timeout_ns,
               stk_error *err)
{
    uint64_t deadline_ns = sti_clock_ns();
    int rc = 0;

    if (level == STI_LEVEL_CAPTURED && timeout_ns == UINT64_MAX)
        return sti_saver_fence(saver, err);
    deadline_ns = timeout_ns < UINT64_MAX - deadline_ns ? deadline_ns + timeout_ns : UINT64_MAX;
    sti_mutex_lock(&saver->lock);
    saver->n_fencing++;
    sti_aio_wake(saver->opts.aio);
    while (rc == 0 && (level == STI_LEVEL_DURABLE ? saver->n_queued + saver->n_coming > 0
                                                  : needs_memory_locked(saver, UINT32_MAX))) {
        if (deadline_ns == UINT64_MAX)
            sti_cond_wait(&saver->changed, &saver->lock);
        else
            rc = sti_cond_wait_until(&saver->changed, &saver->lock, deadline_ns);
    }
    saver->n_fencing--;
    int latched = take_latched_locked(saver, err);
    sti_mutex_unlock(&saver->lock);
    if (latched < 0)
        return latched;
    return rc < 0 ? sti_error_set(err, rc, "the time given is over and a save is not yet %s",
                                  level == STI_LEVEL_DURABLE ? "durable" : "captured")
                  : 0;
}

void
sti_saver_drain(struct sti_saver *saver)
{
    sti_mutex_lock(&saver->lock);
    while (saver->n_queued > 0 || saver->is_active || saver->n_coming > 0)
        sti_cond_wait(&saver->changed, &saver->lock);
    sti_mutex_unlock(&saver->lock);
}

void
sti_saver_get_status(struct sti_saver *saver, struct sti_saver_status *ret_status)
{
    sti_mutex_lock(&saver->lock);
    *ret_status = saver->status;
    ret_status->unfinished = saver->n_queued + saver->n_coming;
    sti_mutex_unlock(&saver->lock);
}

/* ---- life --------------------------------------------------------------------------- */

/* Nobody else knows the saver yet. */
static int
set_up(struct sti_saver *saver) STI_NO_ANALYSIS
{
    struct sti_saver_opts *opts = &saver->opts;
    int rc = 0;

    if (!opts->vote)
        rc = sti_vote_new(&saver->own_vote, 1);
    if (rc < 0)
        return rc;
    if (!opts->vote)
        opts->vote = saver->own_vote;
    saver->status.last_durable = UINT64_MAX;
    saver->status.last_captured = UINT64_MAX;
    saver->slots = sti_mem_new(opts->slots, sizeof(saver->slots[0]));
    if (!saver->slots)
        return -ENOMEM;
    /* What another node answers has its file's size behind it. */
    uint64_t room_bytes = opts->slot_bytes + (opts->pull ? PULL_ROOM_BYTES : 0);
    if (opts->pull) {
        saver->asks = sti_mem_new(opts->slots, sizeof(saver->asks[0]));
        if (!saver->asks)
            return -ENOMEM;
    }
    rc = sti_arena_open(&saver->arena, opts->slots * room_bytes, 1);
    if (rc < 0)
        return rc;
    for (uint32_t at = 0; at < opts->slots; at++) {
        saver->slots[at].saver = saver;
        saver->slots[at].bytes = saver->arena.base + at * room_bytes;
        saver->slots[at].ask = opts->pull ? &saver->asks[at] : NULL;
    }
    sti_vote_join(opts->vote, opts->writer, opts->aio);
    if (opts->commits)
        sti_vote_join(opts->commits, opts->writer, opts->aio);
    return 0;
}

int
sti_saver_new(struct sti_saver **ret_saver, const struct sti_saver_opts *opts, stk_error *err)
{
    struct sti_saver *saver = sti_mem_new(1, sizeof(*saver));
    int rc = -ENOMEM;

    if (!saver)
        goto err_set;
    saver->opts = *opts;
    rc = sti_mutex_init(&saver->lock, STI_RANK_CKPT);
    if (rc < 0)
        goto err_free;
    rc = sti_cond_init(&saver->changed);
    if (rc < 0)
        goto err_lock;
    rc = set_up(saver);
    if (rc < 0) {
        sti_saver_free(saver);
        goto err_set;
    }
    *ret_saver = saver;
    return 0;

err_lock:
    sti_mutex_fini(&saver->lock);
err_free:
    sti_mem_free(saver);
err_set:
    return sti_error_set(err, rc, "no memory for %" PRIu32 " slots of %" PRIu32 " bytes",
                         opts->slots, opts->slot_bytes);
}

void
sti_saver_free(struct sti_saver *saver)
{
    if (!saver)
        return;
    if (saver->opts.vote && saver->slots)
        sti_vote_join(saver->opts.vote, saver->opts.writer, NULL);
    if (saver->opts.commits && saver->slots)
        sti_vote_join(saver->opts.commits, saver->opts.writer, NULL);
    sti_vote_free(saver->own_vote);
    sti_arena_close(&saver->arena);
    sti_mem_free(saver->slots);
    sti_mem_free(saver->asks);
    sti_cond_fini(&saver->changed);
    sti_mutex_fini(&saver->lock);
    sti_mem_free(saver);
}
