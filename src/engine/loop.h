/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one loop of an engine: a thread that waits in io and runs the state machines of the
 * running machines, registered as (step, context). What they own is touched by this
 * thread alone.
 */
#ifndef STI_ENGINE_LOOP_H
#define STI_ENGINE_LOOP_H

#include <stdint.h>

#include "io/aio.h"

struct sti_loop;

/* A state machine. step does what can be done now and returns after how many nanoseconds
 * it wants to be called again if nothing completes and nobody wakes the loop: 0 when
 * there is more to do, UINT64_MAX to sleep. */
struct sti_task {
    uint64_t (*step)(void *context);
    void *context;
    struct sti_task *next; /* the loop's */
};

/* Starts the thread, which opens its aio by opts (shape: taken, also on failure). Errors:
 * as sti_aio_open() and -EAGAIN, -ENOMEM. ret_loop: returns owned. */
int
sti_loop_open(struct sti_loop **ret_loop, const struct sti_aio_opts *opts, stk_error *err);

/* Stops the thread. All tasks must have been detached. NULL is allowed. */
void
sti_loop_close(struct sti_loop *loop);

/* Adds a task; returns when the loop knows it. Any thread but the loop's. */
void
sti_loop_attach(struct sti_loop *loop, struct sti_task *task);

/* Runs fn on the loop's thread between two steps and waits for it. Any thread but the
 * loop's. */
void
sti_loop_call(struct sti_loop *loop, void (*fn)(void *context), void *context);

/* Removes a task; when it returns, no step of it runs or will run. Any thread but the
 * loop's. */
void
sti_loop_detach(struct sti_loop *loop, struct sti_task *task);

/* Makes the loop run its steps soon. Any thread. */
void
sti_loop_wake(struct sti_loop *loop);

/* The loop's I/O, for its tasks. */
struct sti_aio *
sti_loop_aio(struct sti_loop *loop);

#endif
