/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of asynchronous I/O that all methods share. An operation goes
 *
 *     in line -> under way (kernel or pool) -> [work on the pool] -> [delayed] -> ready -> done
 *
 * and is in exactly one of these places; queue_depth bounds those under way. The delay is
 * the emulated device's (io/shape): the real operation is done at once and its completion
 * is held back by the timer of the wait, so no thread sleeps for it.
 *
 * The owner's thread enters everything but sti_aio_wake() and the completion of pool
 * jobs, which pass through `remote` under the lock (STI_RANK_AIO). A waker writes its
 * news first and then looks at is_waiting; the owner sets is_waiting first and then looks
 * for news; both sequentially consistent, so one of them sees the other.
 */
#include "io/aio_internal.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "io/shape.h"

void
sti_aio_queue_init(struct sti_aio_queue *queue)
{
    queue->first = NULL;
    queue->last = &queue->first;
    queue->n = 0;
}

void
sti_aio_queue_push(struct sti_aio_queue *queue, struct sti_aio_op *op)
{
    op->next = NULL;
    *queue->last = op;
    queue->last = &op->next;
    queue->n++;
}

struct sti_aio_op *
sti_aio_queue_pop(struct sti_aio_queue *queue)
{
    struct sti_aio_op *op = queue->first;

    if (!op)
        return NULL;
    queue->first = op->next;
    if (!queue->first)
        queue->last = &queue->first;
    queue->n--;
    return op;
}

/* clang-tidy does not see that the atomic store writes through it. */
void
sti_aio_count(uint64_t *counter, uint64_t n) /* NOLINT(readability-non-const-parameter) */
{
    /* One writer, many readers; no order with anything else. */
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

/* ---- delayed operations: a binary heap by due time --------------------------------- */

static void
delayed_push(struct sti_aio *aio, struct sti_aio_op *op)
{
    uint32_t at = aio->n_delayed++;

    assert(at < aio->queue_depth);
    while (at > 0 && aio->delayed[(at - 1) / 2]->due_ns > op->due_ns) {
        aio->delayed[at] = aio->delayed[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    aio->delayed[at] = op;
}

static struct sti_aio_op *
delayed_pop(struct sti_aio *aio)
{
    struct sti_aio_op *top = aio->delayed[0];
    struct sti_aio_op *moved = aio->delayed[--aio->n_delayed];
    uint32_t at = 0;

    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child >= aio->n_delayed)
            break;
        if (child + 1 < aio->n_delayed &&
            aio->delayed[child + 1]->due_ns < aio->delayed[child]->due_ns)
            child++;
        if (aio->delayed[child]->due_ns >= moved->due_ns)
            break;
        aio->delayed[at] = aio->delayed[child];
        at = child;
    }
    aio->delayed[at] = moved;
    return top;
}

/* ---- completion -------------------------------------------------------------------- */

static void
make_ready(struct sti_aio *aio, struct sti_aio_op *op)
{
    assert(aio->n_under_way > 0);
    aio->n_under_way--;
    if (op->kind == STI_AIO_READ_FILE)
        aio->n_files--;
    sti_aio_queue_push(&aio->ready, op);
}

/* The emulated device that an operation goes to; NULL: none. */
static struct sti_shape *
shape_of(const struct sti_aio *aio, const struct sti_aio_op *op)
{
    if (op->is_ssd)
        return aio->ssd_shape;
    return op->is_shaped ? aio->shape : NULL;
}

/* The operation and its work are over: count it, and hold it back if the device is
 * emulated. */
static void
settle(struct sti_aio *aio, struct sti_aio_op *op)
{
    if (op->kind == STI_AIO_READ || op->kind == STI_AIO_READ_FILE) {
        sti_aio_count(&aio->stats.reads, 1);
        sti_aio_count(&aio->stats.read_bytes, op->result > 0 ? op->n_bytes : 0);
    }
    if (op->result < 0)
        sti_aio_count(&aio->stats.errors, 1);
    struct sti_shape *shape = shape_of(aio, op);
    if (shape) {
        uint64_t n_bytes = op->result > 0 ? (uint64_t)op->result : 0;
        bool is_write = op->kind == STI_AIO_WRITE;

        op->due_ns = sti_shape_charge(shape, is_write, n_bytes, op->due_ns);
        if (op->due_ns > sti_clock_ns()) {
            delayed_push(aio, op);
            return;
        }
    }
    make_ready(aio, op);
}

static void
gather_for_pool(struct sti_aio *aio, struct sti_aio_op *op, enum sti_lane lane)
{
    (void)__atomic_fetch_add(&aio->n_on_pool, 1, __ATOMIC_RELAXED);
    op->job.next = NULL;
    *aio->pool_last[lane] = &op->job;
    aio->pool_last[lane] = &op->job.next;
    aio->n_pool[lane]++;
}

static void
flush_to_pool(struct sti_aio *aio)
{
    for (int lane = 0; lane < STI_LANES; lane++) {
        struct sti_job *first = aio->pool_first[lane];
        uint32_t n = aio->n_pool[lane];

        if (n == 0)
            continue;
        aio->pool_first[lane] = NULL;
        aio->pool_last[lane] = &aio->pool_first[lane];
        aio->n_pool[lane] = 0;
        sti_pool_submit(aio->pool, (enum sti_lane)lane, first, n);
    }
}

static void
complete_remote(struct sti_aio_op *op)
{
    struct sti_aio *aio = op->aio;

    sti_mutex_lock(&aio->lock);
    sti_aio_queue_push(&aio->remote, op);
    /* Only the one that fills the list to the mark needs to wake: the owner takes all. */
    bool must_wake = aio->remote.n == aio->wake_at;
    sti_mutex_unlock(&aio->lock);
    if (must_wake)
        sti_aio_wake(aio);
    (void)__atomic_fetch_sub(&aio->n_on_pool, 1, __ATOMIC_RELEASE); /* pairs in close */
}

static struct sti_aio_op *
op_of_job(struct sti_job *job)
{
    return (struct sti_aio_op *)(void *)((char *)job - offsetof(struct sti_aio_op, job));
}

static void
work_job(struct sti_job *job)
{
    struct sti_aio_op *op = op_of_job(job);

    op->work(op);
    complete_remote(op);
}

static void
execute_job(struct sti_job *job)
{
    struct sti_aio_op *op = op_of_job(job);

    sti_aio_op_execute(op);
    if (op->work)
        op->work(op);
    complete_remote(op);
}

void
sti_aio_complete(struct sti_aio *aio, struct sti_aio_op *op)
{
    if (!op->work) {
        settle(aio, op);
        return;
    }
    if (!aio->pool) {
        op->work(op);
        settle(aio, op);
        return;
    }
    op->job.fn = work_job;
    gather_for_pool(aio, op, op->work_lane);
}

void
sti_aio_start_on_pool(struct sti_aio *aio, struct sti_aio_op *op)
{
    op->job.fn = execute_job;
    gather_for_pool(aio, op, STI_LANE_IO);
}

/* Takes what came back from the pool, and sets the mark at which more of it wakes the
 * owner. */
static void
take_remote(struct sti_aio *aio)
{
    struct sti_aio_queue taken;
    struct sti_aio_op *op;

    sti_mutex_lock(&aio->lock);
    taken = aio->remote;
    sti_aio_queue_init(&aio->remote);
    aio->wake_at = sti_aio_wait_part(__atomic_load_n(&aio->n_on_pool, __ATOMIC_RELAXED));
    uint32_t wake_at = aio->wake_at;
    sti_mutex_unlock(&aio->lock);
    aio->batch_wait_ns = wake_at > 1 ? sti_aio_wait_ns(wake_at) : 0;
    if (taken.n == 0)
        return;
    for (op = taken.first; op;) {
        struct sti_aio_op *next = op->next;

        settle(aio, op);
        op = next;
    }
}

/* ---- the owner's side -------------------------------------------------------------- */

void
sti_aio_submit(struct sti_aio *aio, struct sti_aio_op *op)
{
    op->aio = aio;
    op->result = 0;
    aio->n_pending++;
    if (aio->method->submitted)
        aio->method->submitted(aio, op);
    sti_aio_queue_push(&aio->line, op);
}

static void
start_from_line(struct sti_aio *aio)
{
    while (aio->line.first && aio->n_under_way < aio->queue_depth) {
        bool is_file = aio->line.first->kind == STI_AIO_READ_FILE;

        if (is_file && aio->n_files >= aio->max_open_files)
            break;
        struct sti_aio_op *op = sti_aio_queue_pop(&aio->line);
        aio->n_under_way++;
        aio->n_files += is_file ? 1 : 0;
        op->due_ns = shape_of(aio, op) ? sti_clock_ns() : 0;
        aio->method->start(aio, op);
    }
}

void
sti_aio_flush(struct sti_aio *aio)
{
    start_from_line(aio);
    aio->method->flush(aio);
    flush_to_pool(aio);
}

static uint32_t
run_done(struct sti_aio *aio)
{
    uint32_t n = aio->ready.n;
    struct sti_aio_op *op;

    /* Only what is ready now: callbacks may make more, and the caller wants to come
     * back. */
    for (uint32_t at = 0; at < n && (op = sti_aio_queue_pop(&aio->ready)) != NULL; at++) {
        aio->n_pending--;
        if (op->done)
            op->done(op);
    }
    return n;
}

static void
release_due(struct sti_aio *aio)
{
    if (aio->n_delayed == 0)
        return;
    uint64_t now_ns = sti_clock_ns();
    while (aio->n_delayed > 0 && aio->delayed[0]->due_ns <= now_ns)
        make_ready(aio, delayed_pop(aio));
}

void
sti_aio_hurry(struct sti_aio *aio)
{
    while (aio->n_delayed > 0)
        make_ready(aio, delayed_pop(aio));
}

/* How long the owner may sleep, given what is held back by the emulated device. */
static uint64_t
sleep_limit_ns(const struct sti_aio *aio, uint64_t timeout_ns)
{
    if (aio->n_delayed == 0)
        return timeout_ns;
    uint64_t now_ns = sti_clock_ns();
    uint64_t due_ns = aio->delayed[0]->due_ns;
    uint64_t left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
    return left_ns < timeout_ns ? left_ns : timeout_ns;
}

uint32_t
sti_aio_wait(struct sti_aio *aio, uint64_t timeout_ns)
{
    uint32_t n_done;

    start_from_line(aio); /* the method's wait starts them: one system call for both */
    flush_to_pool(aio);
    take_remote(aio);
    release_due(aio);
    if (aio->ready.n > 0)
        timeout_ns = 0;
    else if (aio->batch_wait_ns > 0 && timeout_ns > aio->batch_wait_ns)
        timeout_ns = aio->batch_wait_ns;
    timeout_ns = sleep_limit_ns(aio, timeout_ns);
    if (timeout_ns > 0) {
        __atomic_store_n(&aio->is_waiting, 1, __ATOMIC_SEQ_CST); /* pairs with sti_aio_wake() */
        if (__atomic_exchange_n(&aio->is_woken, 0, __ATOMIC_SEQ_CST))
            timeout_ns = 0;
    }
    sti_aio_count(&aio->stats.waits, timeout_ns > 0 ? 1 : 0);
    aio->method->wait(aio, timeout_ns);
    __atomic_store_n(&aio->is_waiting, 0, __ATOMIC_SEQ_CST);
    /* An exchange, so that the owner sees what a waker wrote before it is taken as
     * seen. */
    (void)__atomic_exchange_n(&aio->is_woken, 0, __ATOMIC_SEQ_CST);
    take_remote(aio);
    release_due(aio);
    n_done = run_done(aio);
    flush_to_pool(aio);
    return n_done;
}

void
sti_aio_wake(struct sti_aio *aio)
{
    uint64_t one = 1;

    __atomic_store_n(&aio->is_woken, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_exchange_n(&aio->is_waiting, 0, __ATOMIC_SEQ_CST)) /* pairs with the wait */
        return;
    ssize_t n = write(aio->event_fd, &one, sizeof(one));
    (void)n; /* EAGAIN only: the counter is full, so the owner is being woken anyway */
}

void
sti_aio_watch(struct sti_aio *aio, int fd)
{
    if (aio->method->unwatch)
        aio->method->unwatch(aio);
    aio->watch_fd = fd;
}

uint32_t
sti_aio_pending(const struct sti_aio *aio)
{
    return aio->n_pending;
}

static void
note_done(struct sti_aio_op *op)
{
    *(bool *)op->context = true;
}

int32_t
sti_aio_run(struct sti_aio *aio, struct sti_aio_op *op)
{
    bool is_done = false;
    void *context = op->context;

    op->done = note_done;
    op->context = &is_done;
    sti_aio_submit(aio, op);
    while (!is_done)
        (void)sti_aio_wait(aio, UINT64_MAX);
    op->context = context;
    return op->result;
}

void
sti_aio_get_stats(const struct sti_aio *aio, struct sti_aio_stats *ret_stats)
{
    ret_stats->reads = __atomic_load_n(&aio->stats.reads, __ATOMIC_RELAXED);
    ret_stats->read_bytes = __atomic_load_n(&aio->stats.read_bytes, __ATOMIC_RELAXED);
    ret_stats->submit_calls = __atomic_load_n(&aio->stats.submit_calls, __ATOMIC_RELAXED);
    ret_stats->waits = __atomic_load_n(&aio->stats.waits, __ATOMIC_RELAXED);
    ret_stats->errors = __atomic_load_n(&aio->stats.errors, __ATOMIC_RELAXED);
}

const char *
sti_aio_method_name(const struct sti_aio *aio)
{
    return aio->method->name;
}

/* ---- open and close ---------------------------------------------------------------- */

/* The last job may still be on its way out of complete_remote(). */
static void
leave_pool(const struct sti_aio *aio)
{
    while (__atomic_load_n(&aio->n_on_pool, __ATOMIC_ACQUIRE) > 0)
        (void)sched_yield();
}

static int
open_fault(struct sti_aio *aio, struct sti_fault *fault, stk_error *err)
{
    aio->method = ((const struct sti_fault_head *)(const void *)fault)->method;
    aio->method_state = fault;
    return aio->method->open(aio, err);
}

static int
open_method(struct sti_aio *aio, const char *name, stk_error *err)
{
    bool is_auto = !name || strcmp(name, "auto") == 0;

    if (is_auto || strcmp(name, "uring") == 0) {
#ifdef STI_HAVE_URING
        aio->method = &sti_aio_uring_method;
        int rc = aio->method->open(aio, is_auto ? NULL : err);
        if (rc == 0 || !is_auto)
            return rc;
#else
        if (!is_auto)
            return sti_error_set(err, -ENOSYS,
                                 "io_method uring: this build has no liburing; use sync");
#endif
    }
    if (is_auto || strcmp(name, "sync") == 0) {
        aio->method = &sti_aio_sync_method;
        return aio->method->open(aio, err);
    }
    return sti_error_set(err, -EINVAL, "io_method '%s' is not one of auto, uring, sync", name);
}

int
sti_aio_open(struct sti_aio **ret_aio, const struct sti_aio_opts *opts, stk_error *err)
{
    struct sti_aio *aio = sti_mem_new(1, sizeof(*aio));
    int rc;

    if (!aio)
        return sti_error_set(err, -ENOMEM, "no memory for the I/O state");
    aio->pool = opts->pool;
    aio->queue_depth = opts->queue_depth;
    aio->max_open_files = opts->max_open_files;
    aio->watch_fd = -1;
    sti_aio_queue_init(&aio->line);
    sti_aio_queue_init(&aio->ready);
    sti_aio_queue_init(&aio->remote);
    for (int lane = 0; lane < STI_LANES; lane++)
        aio->pool_last[lane] = &aio->pool_first[lane];
    aio->delayed = sti_mem_new(opts->queue_depth, sizeof(struct sti_aio_op *));
    rc = aio->delayed ? sti_mutex_init(&aio->lock, STI_RANK_AIO) : -ENOMEM;
    if (rc < 0) {
        (void)sti_error_set(err, rc, "no memory for the I/O state");
        goto err_free;
    }
    aio->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (aio->event_fd < 0) {
        rc = -errno;
        (void)sti_error_set(err, rc, "no event descriptor: %s", sti_error_text(rc));
        goto err_lock;
    }
    if (opts->fault && opts->method && strcmp(opts->method, "fault") == 0)
        rc = open_fault(aio, opts->fault, err);
    else
        rc = open_method(aio, opts->method, err);
    if (rc < 0)
        goto err_event;
    aio->stats = (struct sti_aio_stats){.reads = 0}; /* not the method's own trials */
    aio->shape = opts->shape;
    aio->ssd_shape = opts->ssd_shape;
    *ret_aio = aio;
    return 0;

err_event:
    leave_pool(aio);            /* a ring may have broken in its trial, which the pool then ended */
    (void)close(aio->event_fd); /* nothing was written to it */
err_lock:
    sti_mutex_fini(&aio->lock);
err_free:
    sti_mem_free(aio->delayed);
    sti_mem_free(aio);
    return rc;
}

void
sti_aio_close(struct sti_aio *aio)
{
    if (!aio)
        return;
    while (aio->n_pending > 0)
        (void)sti_aio_wait(aio, UINT64_MAX);
    leave_pool(aio);
    aio->method->close(aio);
    (void)close(aio->event_fd); /* an event descriptor has nothing to lose */
    sti_shape_free(aio->shape);
    sti_shape_free(aio->ssd_shape);
    sti_mutex_fini(&aio->lock);
    sti_mem_free(aio->delayed);
    sti_mem_free(aio);
}
