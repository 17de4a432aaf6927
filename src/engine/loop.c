/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop. Other threads reach it through calls: a function that runs on the loop's
 * thread while its caller waits, one at a time in a short list under the lock. Attaching,
 * detaching and stopping are calls, so the list of tasks is the loop's alone.
 *
 * Threads: the loop's own; any other in the calls above. Lock order: the loop's mutex
 * (STI_RANK_ENGINE) is not held while a step or a call runs.
 */
#include "engine/loop.h"

#include <errno.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"
#include "io/shape.h"

struct call {
    void (*fn)(void *context);
    void *context;
    bool is_done;
    struct call *next;
};

struct sti_loop {
    pthread_t thread;
    struct sti_mutex lock;
    struct sti_cond changed;
    struct call *calls STI_GUARDED_BY(&lock);
    bool is_open STI_GUARDED_BY(&lock); /* the thread has opened its aio, or failed to */
    int open_result STI_GUARDED_BY(&lock);

    struct sti_aio *aio;
    struct sti_aio_opts aio_opts;
    stk_error *open_error;

    /* The loop thread's. */
    struct sti_task *tasks;
    bool is_stopping;
};

static void
run_calls(struct sti_loop *loop)
{
    struct call *calls;

    sti_mutex_lock(&loop->lock);
    calls = loop->calls;
    loop->calls = NULL;
    sti_mutex_unlock(&loop->lock);
    while (calls) {
        struct call *call = calls;

        calls = call->next;
        call->fn(call->context);
        sti_mutex_lock(&loop->lock);
        call->is_done = true; /* from here on its memory is the caller's again */
        sti_cond_broadcast(&loop->changed);
        sti_mutex_unlock(&loop->lock);
    }
}

static uint64_t
run_steps(struct sti_loop *loop)
{
    uint64_t timeout_ns = UINT64_MAX;

    for (struct sti_task *task = loop->tasks; task; task = task->next) {
        uint64_t wanted_ns = task->step(task->context);

        if (wanted_ns < timeout_ns)
            timeout_ns = wanted_ns;
    }
    return timeout_ns;
}

static void *
loop_main(void *context)
{
    struct sti_loop *loop = context;
    int rc = sti_aio_open(&loop->aio, &loop->aio_opts, loop->open_error);

    sti_mutex_lock(&loop->lock);
    loop->is_open = true;
    loop->open_result = rc;
    sti_cond_broadcast(&loop->changed);
    sti_mutex_unlock(&loop->lock);
    if (rc < 0)
        return NULL;
    while (!loop->is_stopping) {
        run_calls(loop);
        if (loop->is_stopping)
            break;
        (void)sti_aio_wait(loop->aio, run_steps(loop));
    }
    /* Closing is left to the thread that joins this one: it may still be in a wake. */
    while (sti_aio_pending(loop->aio) > 0)
        (void)sti_aio_wait(loop->aio, UINT64_MAX);
    return NULL;
}

static void
init_failed(struct sti_loop *loop, const struct sti_aio_opts *opts)
{
    sti_shape_free(opts->shape);
    sti_shape_free(opts->ssd_shape);
    sti_mem_free(loop);
}

int
sti_loop_open(struct sti_loop **ret_loop, const struct sti_aio_opts *opts, stk_error *err)
{
    struct sti_loop *loop = sti_mem_new(1, sizeof(*loop));
    int rc = -ENOMEM;

    if (!loop)
        goto err_free;
    loop->aio_opts = *opts;
    loop->open_error = err;
    rc = sti_mutex_init(&loop->lock, STI_RANK_ENGINE);
    if (rc < 0)
        goto err_free;
    rc = sti_cond_init(&loop->changed);
    if (rc < 0)
        goto err_lock;
    rc = sti_thread_start(&loop->thread, "stk-loop", 0, loop_main, loop);
    if (rc < 0)
        goto err_cond;
    sti_mutex_lock(&loop->lock);
    while (!loop->is_open)
        sti_cond_wait(&loop->changed, &loop->lock);
    rc = loop->open_result;
    sti_mutex_unlock(&loop->lock);
    loop->open_error = NULL;
    if (rc < 0) {
        sti_thread_join(loop->thread);
        sti_cond_fini(&loop->changed);
        sti_mutex_fini(&loop->lock);
        init_failed(loop, opts);
        return rc; /* err is set by the thread */
    }
    *ret_loop = loop;
    return 0;

err_cond:
    sti_cond_fini(&loop->changed);
err_lock:
    sti_mutex_fini(&loop->lock);
err_free:
    init_failed(loop, opts);
    return sti_error_set(err, rc, "the I/O loop cannot be started: %s", sti_error_text(rc));
}

void
sti_loop_call(struct sti_loop *loop, void (*fn)(void *context), void *context)
{
    struct call call = {.fn = fn, .context = context};

    sti_mutex_lock(&loop->lock);
    call.next = loop->calls;
    loop->calls = &call;
    sti_mutex_unlock(&loop->lock);
    sti_aio_wake(loop->aio);
    sti_mutex_lock(&loop->lock);
    while (!call.is_done)
        sti_cond_wait(&loop->changed, &loop->lock);
    sti_mutex_unlock(&loop->lock);
}

struct change {
    struct sti_loop *loop;
    struct sti_task *task;
};

static void
add_task(void *context)
{
    struct change *change = context;

    change->task->next = change->loop->tasks;
    change->loop->tasks = change->task;
}

static void
remove_task(void *context)
{
    struct change *change = context;
    struct sti_task **at = &change->loop->tasks;

    while (*at && *at != change->task)
        at = &(*at)->next;
    if (*at)
        *at = change->task->next;
}

static void
stop(void *context)
{
    struct sti_loop *loop = context;

    loop->is_stopping = true;
}

void
sti_loop_attach(struct sti_loop *loop, struct sti_task *task)
{
    struct change change = {.loop = loop, .task = task};

    sti_loop_call(loop, add_task, &change);
}

void
sti_loop_detach(struct sti_loop *loop, struct sti_task *task)
{
    struct change change = {.loop = loop, .task = task};

    sti_loop_call(loop, remove_task, &change);
}

void
sti_loop_close(struct sti_loop *loop)
{
    if (!loop)
        return;
    sti_loop_call(loop, stop, loop);
    sti_thread_join(loop->thread);
    sti_aio_close(loop->aio);
    sti_cond_fini(&loop->changed);
    sti_mutex_fini(&loop->lock);
    sti_mem_free(loop);
}

void
sti_loop_wake(struct sti_loop *loop)
{
    sti_aio_wake(loop->aio);
}

struct sti_aio *
sti_loop_aio(struct sti_loop *loop)
{
    return loop->aio;
}
