/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The uring method. A small file is a chain of three entries on a slot of the ring's own
 * file table: open LINK read HARDLINK close. The hard link lets the close run after a
 * short read, which a plain link would cancel and so leak the slot; a failed open cancels
 * the other two. The slot is free again when the close has completed. A successful open
 * says nothing where the kernel can be told so; how many completions a failed chain then
 * gives is tried at open.
 *
 * One thread, the owner, makes the ring, submits and reaps (SINGLE_ISSUER, with
 * completions deferred to its waits where the kernel knows that). A read of the event
 * descriptor is always under way, so that a wake ends the wait. What io_uring has no
 * entry for, or only a blocking one, goes to the pool like in the sync method.
 *
 * A ring that stops taking entries (a sandbox entered after open, for one) is broken for
 * good: what it did not take is done on the pool, like all that follows. What it did take
 * stays under way until the kernel says that it is over, since its memory is the kernel's
 * until then.
 *
 * What the kernel cannot do at once it gives to threads of its own, which count against
 * RLIMIT_NPROC. Where it can start none it cancels the operation, which then is done on
 * the pool, too: nothing here cancels one.
 *
 * Invariant: an operation under way has n_pending completions to come, and its user data
 * names it and the part it is.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "io/aio_internal.h"

enum part { PART_MAIN, PART_OPEN, PART_CLOSE, PART_WATCH, PART_NOTHING, PARTS_MASK = 7 };

#define NOT_TAKEN INT32_MIN /* the result of an entry that the kernel did not take */
#define POLL_NS UINT64_C(1000000)
#define BESIDE_NS UINT64_C(100000) /* shorter sleeps than this are not worth a timer */
#define BESIDE_COMPLETIONS 12      /* worth a sleep: twice as many gain little, and each delays */
#define PACE_WAITS 8
#define TRY_NS 100000000
#define TRIES 50
#define UNASKED_MAX 4u

struct uring {
    struct io_uring ring;
    uint32_t n_expected;        /* completions to come, the event's not counted */
    uint64_t ns_per_completion; /* while some are to come, of late */
    bool is_open_silent;        /* a successful open gives no completion */
    uint32_t n_of_failed;       /* completions of a chain whose open failed */
    uint64_t event_count;       /* the event descriptor is read into this */
    bool is_event_armed;
    bool is_watch_armed; /* a poll of the watched descriptor is under way */
    bool is_broken;      /* the kernel takes no more entries: new operations go to the pool */
    const struct sti_aio_op *half_taken; /* its open was taken, its read was not */
    uint32_t n_unasked;                  /* waits since the kernel was asked */
    uint32_t n_free_slots;
    uint32_t free_slots[];
};

static struct io_uring_sqe *
get_sqe(struct uring *uring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);

    /* uring_open() has seen that a chain for every operation under way and the event
     * fit. */
    assert(sqe);
    if (!sqe) /* for a compiler that has no assertions to learn it from */
        __builtin_unreachable();
    return sqe;
}

static void
set_data(struct io_uring_sqe *sqe, struct sti_aio_op *op, enum part part)
{
    io_uring_sqe_set_data64(sqe, (uint64_t)(uintptr_t)op | (uint64_t)part);
}

static void
start_read_file(struct uring *uring, struct sti_aio_op *op)
{
    struct io_uring_sqe *sqe = get_sqe(uring);

    op->slot = uring->free_slots[--uring->n_free_slots];
    op->n_pending = uring->is_open_silent ? 2 : 3;
    op->open_result = 0;
    uring->n_expected += op->n_pending;
    /* Without O_CLOEXEC: a slot of the ring is no descriptor, and the kernel refuses the
     * flag. With O_NONBLOCK, where it is asked for, a pipe that lies where a file was
     * does not wait for a writer. */
    io_uring_prep_openat_direct(sqe, op->dir_fd, op->path, O_RDONLY | (int)op->open_flags, 0,
                                op->slot);
    sqe->flags |= IOSQE_IO_LINK;
    if (uring->is_open_silent)
        sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
    set_data(sqe, op, PART_OPEN);
    sqe = get_sqe(uring);
    io_uring_prep_read(sqe, (int)op->slot, op->bytes, op->n_bytes, op->offset);
    sqe->flags |= IOSQE_FIXED_FILE | IOSQE_IO_HARDLINK;
    set_data(sqe, op, PART_MAIN);
    sqe = get_sqe(uring);
    io_uring_prep_close_direct(sqe, op->slot);
    set_data(sqe, op, PART_CLOSE);
}

/* Prepares an entry for a kind that has one; false where the pool must do it. */
static bool
prepare(struct io_uring_sqe *sqe, const struct sti_aio_op *op)
{
    switch (op->kind) {
    case STI_AIO_READ:
        io_uring_prep_read(sqe, op->fd, op->bytes, op->n_bytes, op->offset);
        return true;
    case STI_AIO_WRITE:
        io_uring_prep_write(sqe, op->fd, op->bytes, op->n_bytes, op->offset);
        return true;
    case STI_AIO_SYNC:
        io_uring_prep_fsync(sqe, op->fd, IORING_FSYNC_DATASYNC);
        return true;
    case STI_AIO_STATX:
        io_uring_prep_statx(sqe, op->dir_fd, op->path, AT_STATX_SYNC_AS_STAT, op->statx_mask,
                            op->statx);
        return true;
    case STI_AIO_READ_FILE:
    case STI_AIO_OPEN:
    case STI_AIO_CLOSE:
    case STI_AIO_TRUNCATE:
    case STI_AIO_ALLOCATE:
    case STI_AIO_MKDIR:
    case STI_AIO_RENAME:
    case STI_AIO_UNLINK:
    case STI_AIO_SYNC_DIR:
    case STI_AIO_LIST:
    case STI_AIO_KINDS:
        break;
    }
    return false;
}

static bool
has_entry(enum sti_aio_kind kind)
{
    return kind == STI_AIO_READ || kind == STI_AIO_WRITE || kind == STI_AIO_SYNC ||
           kind == STI_AIO_STATX;
}

static void
uring_start(struct sti_aio *aio, struct sti_aio_op *op)
{
    struct uring *uring = aio->method_state;

    if (uring->is_broken) {
        sti_aio_start_on_pool(aio, op);
        return;
    }
    if (op->kind == STI_AIO_READ_FILE) {
        start_read_file(uring, op);
        return;
    }
    if (!has_entry(op->kind)) {
        sti_aio_start_on_pool(aio, op);
        return;
    }
    struct io_uring_sqe *sqe = get_sqe(uring);
    op->n_pending = 1;
    uring->n_expected++;
    bool is_prepared = prepare(sqe, op);
    assert(is_prepared);
    (void)is_prepared;
    set_data(sqe, op, PART_MAIN);
}

static void
arm_event(const struct sti_aio *aio, struct uring *uring)
{
    if (uring->is_event_armed || uring->is_broken)
        return;
    struct io_uring_sqe *sqe = get_sqe(uring);
    io_uring_prep_read(sqe, aio->event_fd, &uring->event_count, sizeof(uring->event_count), 0);
    io_uring_sqe_set_data64(sqe, 0);
    uring->is_event_armed = true;
}

static void
arm_watch(const struct sti_aio *aio, struct uring *uring)
{
    if (aio->watch_fd < 0 || uring->is_watch_armed || uring->is_broken)
        return;
    struct io_uring_sqe *sqe = get_sqe(uring);
    io_uring_prep_poll_add(sqe, aio->watch_fd, POLLIN);
    io_uring_sqe_set_data64(sqe, PART_WATCH);
    uring->is_watch_armed = true;
}

static struct sti_aio_op *
op_of(uint64_t data)
{
    return (struct sti_aio_op *)(uintptr_t)(data & ~(uint64_t)PARTS_MASK);
}

static void
take_result(struct sti_aio *aio, struct uring *uring, uint64_t data, int32_t result)
{
    struct sti_aio_op *op = op_of(data);

    if (data == 0 || data == PART_WATCH) {
        *(data == 0 ? &uring->is_event_armed : &uring->is_watch_armed) = false;
        return;
    }
    if (data == PART_NOTHING)
        return;
    switch ((enum part)(data & PARTS_MASK)) {
    case PART_MAIN:
        op->result = result;
        break;
    case PART_OPEN:
        if (op == uring->half_taken)
            return; /* it failed, but the pool has the operation by now, or had it */
        op->open_result = result;
        if (uring->is_open_silent) { /* it failed, which changes what comes */
            uring->n_expected += uring->n_of_failed - op->n_pending;
            op->n_pending = uring->n_of_failed;
        }
        break;
    case PART_CLOSE:
    case PART_WATCH:
    case PART_NOTHING:
    case PARTS_MASK:
        break; /* a close that follows a failed open is cancelled; others cannot fail */
    }
    uring->n_expected--;
    if (--op->n_pending > 0)
        return;
    if (op->kind == STI_AIO_READ_FILE) {
        if (op->open_result < 0)
            op->result = op->open_result;
        uring->free_slots[uring->n_free_slots++] = op->slot;
    }
    /* No thread of the kernel's could be started for it; nothing was done. Whether one
     * can be may be another thing a moment later, so that the ring stays in use. */
    if (op->result == -ECANCELED) {
        op->result = 0;
        sti_aio_start_on_pool(aio, op);
        return;
    }
    /* -EINTR: a signal to an io-wq thread; nothing was done. The kinds that have entries
     * may also be begun anew where a part was not taken. */
    if (op->result == -EINTR || op->result == NOT_TAKEN) {
        op->result = 0;
        uring_start(aio, op);
        return;
    }
    sti_aio_complete(aio, op);
}

static unsigned
reap(struct sti_aio *aio, struct uring *uring)
{
    struct io_uring_cqe *cqe;
    unsigned head;
    unsigned n = 0;

    io_uring_for_each_cqe(&uring->ring, head, cqe)
    {
        take_result(aio, uring, cqe->user_data, cqe->res);
        n++;
    }
    io_uring_cq_advance(&uring->ring, n);
    return n;
}

/* A moving average over the last waits. */
static void
learn_pace(struct uring *uring, uint64_t waited_ns, unsigned n)
{
    uint64_t each_ns = waited_ns / (n > 0 ? n : 1);

    if (each_ns > STI_AIO_WAIT_LEAST_NS)
        each_ns = STI_AIO_WAIT_LEAST_NS;
    uring->ns_per_completion += each_ns / PACE_WAITS;
    uring->ns_per_completion -= uring->ns_per_completion / PACE_WAITS;
}

/* Takes back the entries that the kernel has not taken; what they were for starts
 * anew. */
static void
break_ring(struct sti_aio *aio, struct uring *uring)
{
    struct io_uring_sq *sq = &uring->ring.sq;
    const struct sti_aio_op *opened = NULL;
    unsigned n = io_uring_sq_ready(&uring->ring);
    unsigned first = sq->sqe_tail - n;

    uring->is_broken = true;
    sq->sqe_tail = first;
    sq->sqe_head = first;
    io_uring_smp_store_release(sq->ktail, first);
    for (unsigned at = 0; at < n; at++) {
        uint64_t data = sq->sqes[(first + at) & sq->ring_mask].user_data;
        enum part part = (enum part)(data & PARTS_MASK);

        if (part == PART_OPEN && uring->is_open_silent) {
            opened = op_of(data); /* no completion is counted for it */
            continue;
        }
        if (part == PART_MAIN && data != 0 && uring->is_open_silent &&
            op_of(data)->kind == STI_AIO_READ_FILE && op_of(data) != opened)
            uring->half_taken = op_of(data);
        take_result(aio, uring, data, NOT_TAKEN);
    }
}

/* Looks at what a submit or wait returned. -EAGAIN, -EBUSY: the kernel is short of memory
 * for now; what it did not take goes next time. */
static void
check_submit(struct sti_aio *aio, struct uring *uring, int rc)
{
    if (rc < 0 && rc != -ETIME && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY)
        break_ring(aio, uring);
}

static void
uring_flush(struct sti_aio *aio)
{
    struct uring *uring = aio->method_state;

    if (io_uring_sq_ready(&uring->ring) == 0)
        return;
    sti_aio_count(&aio->stats.submit_calls, 1);
    check_submit(aio, uring, io_uring_submit(&uring->ring));
}

/* The poll would outlive the descriptor's closing and name another one by then. */
static void
uring_unwatch(struct sti_aio *aio)
{
    struct uring *uring = aio->method_state;

    if (!uring->is_watch_armed || uring->is_broken)
        return;
    struct io_uring_sqe *sqe = get_sqe(uring);
    io_uring_prep_cancel64(sqe, PART_WATCH, 0);
    io_uring_sqe_set_data64(sqe, PART_NOTHING);
    uring_flush(aio);
}

/*
 * Something has come without the kernel being asked. It works at what else is under way when
 * it is asked only, and the poll of a descriptor that stays readable completes each time that
 * it is submitted: it would never be asked again.
 */
static void
ask_now_and_then(struct sti_aio *aio, struct uring *uring)
{
    if (++uring->n_unasked < UNASKED_MAX || uring->is_broken)
        return;
    uring->n_unasked = 0;
    check_submit(aio, uring, io_uring_get_events(&uring->ring));
}

/*
 * Sleeps beside the ring, not in it. The kernel wakes an owner that waits in the ring for
 * every chain that goes on from its open to its read, however many completions it waits
 * for; one that does not wait finds them all when it comes back, and starts their reads
 * together. An event wakes it here too, and so does a watched descriptor, which would be
 * but one of the completions that a wait in the ring is for.
 */
static void
wait_beside_ring(struct sti_aio *aio, struct uring *uring, uint64_t timeout_ns)
{
    struct __kernel_timespec at_once = {0};
    struct io_uring_cqe *cqe;

    uring_flush(aio);
    if (uring->is_broken || io_uring_cq_ready(&uring->ring) > 0) {
        ask_now_and_then(aio, uring);
        return;
    }
    uring->n_unasked = 0;
    (void)sti_aio_sleep(aio, timeout_ns); /* early or late, the ring is asked */
    /* Not io_uring_get_events(), for which newer kernels take a few of what has come. */
    int rc = io_uring_wait_cqes(&uring->ring, &cqe, uring->n_expected, &at_once, NULL);
    check_submit(aio, uring, rc);
}

static void
wait_on_ring(struct sti_aio *aio, struct uring *uring, uint64_t timeout_ns)
{
    uint32_t n_wanted = sti_aio_wait_part(uring->n_expected);
    uint32_t n_beside = n_wanted < BESIDE_COMPLETIONS ? n_wanted : BESIDE_COMPLETIONS;
    uint64_t likely_ns = n_beside * uring->ns_per_completion;
    struct io_uring_cqe *cqe = NULL;

    if (n_wanted > 1) {
        uint64_t most_ns = sti_aio_wait_ns(n_wanted);

        timeout_ns = timeout_ns < most_ns ? timeout_ns : most_ns;
        if (likely_ns >= BESIDE_NS || aio->watch_fd >= 0) {
            wait_beside_ring(aio, uring, timeout_ns < likely_ns ? timeout_ns : likely_ns);
            return;
        }
    }
    struct __kernel_timespec timeout = {.tv_sec = (int64_t)(timeout_ns / STI_NS_PER_S),
                                        .tv_nsec = (long long)(timeout_ns % STI_NS_PER_S)};
    sti_aio_count(&aio->stats.submit_calls, io_uring_sq_ready(&uring->ring) > 0 ? 1 : 0);
    uring->n_unasked = 0;
    int rc = io_uring_submit_and_wait_timeout(&uring->ring, &cqe, n_wanted,
                                              timeout_ns == UINT64_MAX ? NULL : &timeout, NULL);
    check_submit(aio, uring, rc);
    if (rc == -EAGAIN || rc == -EBUSY)
        sti_aio_wait_event(aio, timeout_ns < POLL_NS ? timeout_ns : POLL_NS);
}

static void
uring_wait(struct sti_aio *aio, uint64_t timeout_ns)
{
    struct uring *uring = aio->method_state;
    bool is_kernel_busy = uring->n_expected > 0;
    uint64_t began_ns = sti_clock_ns();

    arm_event(aio, uring);
    arm_watch(aio, uring);
    if (uring->is_broken) { /* sleeps as sync does, but looks whether the kernel is done */
        sti_aio_wait_event(aio, is_kernel_busy && timeout_ns > POLL_NS ? POLL_NS : timeout_ns);
    } else if (io_uring_cq_ready(&uring->ring) == 0) {
        wait_on_ring(aio, uring, timeout_ns);
    } else {
        uring_flush(aio);
        ask_now_and_then(aio, uring);
    }
    unsigned n = reap(aio, uring);
    if (is_kernel_busy)
        learn_pace(uring, sti_clock_ns() - began_ns, n);
}

static void
uring_close(struct sti_aio *aio)
{
    struct uring *uring = aio->method_state;

    io_uring_queue_exit(&uring->ring);
    sti_mem_free(uring);
    aio->method_state = NULL;
}

/* Newest flags first; each set that a kernel does not know is answered with -EINVAL. */
static int
init_ring(struct io_uring *ring, unsigned n_entries)
{
    static const unsigned flag_sets[] = {
#if defined(IORING_SETUP_SINGLE_ISSUER) && defined(IORING_SETUP_DEFER_TASKRUN)
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
#endif
#if defined(IORING_SETUP_COOP_TASKRUN)
        IORING_SETUP_COOP_TASKRUN,
#endif
        0,
    };
    int rc = -EINVAL;

    for (size_t at = 0; at < sizeof(flag_sets) / sizeof(flag_sets[0]) && rc == -EINVAL; at++)
        rc = io_uring_queue_init(n_entries, ring, flag_sets[at] | IORING_SETUP_CLAMP);
    return rc;
}

static int
register_slots(struct sti_aio *aio, struct uring *uring)
{
    int *none = sti_mem_new(aio->max_open_files, sizeof(int));

    if (!none)
        return -ENOMEM;
    for (uint32_t slot = 0; slot < aio->max_open_files; slot++) {
        none[slot] = -1;
        uring->free_slots[slot] = slot;
    }
    uring->n_free_slots = aio->max_open_files;
    int rc = io_uring_register_files(&uring->ring, none, aio->max_open_files);
    sti_mem_free(none);
    return rc;
}

/* Runs one chain, since no other probe tells whether opens into a slot work here. */
static int
try_chain(struct sti_aio *aio)
{
    char byte = 0;
    struct sti_aio_op op = {.kind = STI_AIO_READ_FILE,
                            .dir_fd = AT_FDCWD,
                            .path = "/dev/null",
                            .bytes = &byte,
                            .n_bytes = 1};

    return sti_aio_run(aio, &op);
}

/*
 * Has opens complete in silence where the kernel can (5.17), once it is known how many
 * completions a chain gives whose silent open fails: one, or one for each part.
 */
static int
try_silence(struct uring *uring)
{
    char byte = 0;
    struct sti_aio_op op = {.kind = STI_AIO_READ_FILE,
                            .dir_fd = AT_FDCWD,
                            .path = "/dev/null/none",
                            .bytes = &byte,
                            .n_bytes = 1};
    struct io_uring_cqe *cqe;
    uint32_t n = 0;

    if (!(uring->ring.features & IORING_FEAT_CQE_SKIP))
        return 0;
    uring->is_open_silent = true;
    start_read_file(uring, &op);
    /* In short waits: one without an end was once seen not to end, on a busy machine. */
    struct __kernel_timespec pause = {.tv_nsec = TRY_NS};
    int rc = io_uring_submit(&uring->ring);
    if (rc >= 0)
        rc = -ETIME;
    for (int tries = 0; tries < TRIES && rc == -ETIME; tries++)
        rc = io_uring_wait_cqe_timeout(&uring->ring, &cqe, &pause);
    /* What comes with it is there when the submission that failed it returns. */
    while (rc >= 0 && io_uring_peek_cqe(&uring->ring, &cqe) == 0) {
        n += io_uring_cqe_get_data64(cqe) != 0 ? 1 : 0;
        uring->is_event_armed = uring->is_event_armed && io_uring_cqe_get_data64(cqe) != 0;
        io_uring_cqe_seen(&uring->ring, cqe);
    }
    uring->free_slots[uring->n_free_slots++] = op.slot;
    uring->n_expected = 0;
    uring->n_of_failed = n;
    if (n != 1 && n != 3)
        uring->is_open_silent = false;
    return rc < 0 ? rc : 0;
}

static const char *
hint(int rc)
{
    switch (rc) {
    case -ENOSYS:
        return "the kernel has no io_uring";
    case -EPERM:
        return "io_uring is disabled here (sysctl kernel.io_uring_disabled or a container)";
    case -EMFILE:
    case -ENFILE:
        return "too few descriptors; raise RLIMIT_NOFILE";
    case -E2BIG:
        return "queue_depth is beyond what the kernel's rings hold";
    case -ENOMEM:
        return "too little memory may be locked; raise RLIMIT_MEMLOCK";
    default:
        return "the kernel's io_uring is too old or restricted";
    }
}

static int
uring_open(struct sti_aio *aio, stk_error *err)
{
    uint32_t n_entries = 3 * aio->queue_depth + 3; /* event, watch, and the end of a watch */
    struct uring *uring =
        sti_mem_new(1, sizeof(*uring) + aio->max_open_files * sizeof(uring->free_slots[0]));
    int rc;

    if (!uring)
        return sti_error_set(err, -ENOMEM, "no memory for the ring");
    rc = init_ring(&uring->ring, n_entries);
    if (rc < 0)
        goto err_free;
    if (uring->ring.sq.ring_entries < n_entries) {
        rc = -E2BIG;
        goto err_ring;
    }
    aio->method_state = uring;
    rc = register_slots(aio, uring);
    if (rc < 0)
        goto err_ring;
    rc = try_chain(aio);
    if (uring->is_broken)
        rc = -EPERM; /* it was the pool that did it */
    if (rc == 0)
        rc = try_silence(uring);
    if (rc < 0)
        goto err_ring;
    return 0;

err_ring:
    io_uring_queue_exit(&uring->ring);
    aio->method_state = NULL;
err_free:
    sti_mem_free(uring);
    return sti_error_set(err, rc == -ENOMEM || rc == -EMFILE ? rc : -ENOSYS,
                         "io_method uring: %s (%s); use sync", sti_error_text(rc), hint(rc));
}

const struct sti_aio_method sti_aio_uring_method = {
    .name = "uring",
    .open = uring_open,
    .close = uring_close,
    .start = uring_start,
    .flush = uring_flush,
    .wait = uring_wait,
    .unwatch = uring_unwatch,
};
