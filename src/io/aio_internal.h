/* SPDX-License-Identifier: Apache-2.0 */
/* What the methods of io share with aio.c; nobody else includes this. */
#ifndef STI_IO_AIO_INTERNAL_H
#define STI_IO_AIO_INTERNAL_H

#include "io/aio.h"

#include "base/thread.h"

/* A first-in first-out list of operations, by their next. */
struct sti_aio_queue {
    struct sti_aio_op *first;
    struct sti_aio_op **last;
    uint32_t n;
};

/*
 * A method. open and close are called by the owner; start gives one operation to the
 * method, which may hold it until flush; wait blocks until the event descriptor is
 * written, the watched one is readable, an operation has completed or the timeout is
 * over. submitted (or NULL) is told of each operation as soon as it is submitted. A
 * completed operation is handed to sti_aio_complete() on the owner's thread or to
 * sti_aio_complete_remote() on any other.
 */
struct sti_aio_method {
    const char *name;
    int (*open)(struct sti_aio *aio, stk_error *err);
    void (*close)(struct sti_aio *aio);
    void (*submitted)(struct sti_aio *aio, struct sti_aio_op *op);
    void (*start)(struct sti_aio *aio, struct sti_aio_op *op);
    void (*flush)(struct sti_aio *aio);
    void (*wait)(struct sti_aio *aio, uint64_t timeout_ns);
    void (*unwatch)(struct sti_aio *aio); /* NULL, or watch_fd is about to change */
};

/*
 * While many operations are under way the owner does not wake for each: it waits for a
 * part of them, for longer the more they are: what comes a little later is a small part of
 * what is queued before it. Wake-ups are what slow storage costs otherwise.
 */
#define STI_AIO_WAIT_PART 4u
#define STI_AIO_WAIT_MOST 64u
#define STI_AIO_WAIT_EACH_NS UINT64_C(125000)
#define STI_AIO_WAIT_LEAST_NS UINT64_C(500000)
#define STI_AIO_WAIT_MOST_NS UINT64_C(1000000)

/* How many of n completions to come are worth waiting for. */
static inline uint32_t
sti_aio_wait_part(uint32_t n)
{
    n /= STI_AIO_WAIT_PART;
    return n < 1 ? 1 : n > STI_AIO_WAIT_MOST ? STI_AIO_WAIT_MOST : n;
}

/* How long at most. */
static inline uint64_t
sti_aio_wait_ns(uint32_t part)
{
    uint64_t ns = part * STI_AIO_WAIT_EACH_NS;

    return ns < STI_AIO_WAIT_LEAST_NS  ? STI_AIO_WAIT_LEAST_NS
           : ns > STI_AIO_WAIT_MOST_NS ? STI_AIO_WAIT_MOST_NS
                                       : ns;
}

/* What a struct sti_fault begins with, so that only tests are linked with the fault
 * method. */
struct sti_fault_head {
    const struct sti_aio_method *method;
};

struct sti_aio {
    const struct sti_aio_method *method;
    void *method_state;
    struct sti_pool *pool;
    struct sti_shape *shape;
    struct sti_shape *ssd_shape;
    uint32_t queue_depth;
    uint32_t max_open_files;
    uint32_t io_lane_threads;

    /* The owner's. An operation is in line, under way, delayed or ready. */
    struct sti_aio_queue line;
    struct sti_aio_queue ready;
    struct sti_aio_op **delayed; /* a heap by due_ns, queue_depth entries */
    uint32_t n_delayed;
    uint32_t n_under_way;   /* given to the method or delayed */
    uint32_t n_files;       /* READ_FILE among them */
    uint32_t n_pending;     /* all that is not done */
    uint64_t batch_wait_ns; /* the owner sleeps no longer, waiting for a part; 0: for one */
    int watch_fd;           /* ends waits while it is readable; -1: none */
    struct sti_job *pool_first[STI_LANES]; /* jobs gathered for the next flush */
    struct sti_job **pool_last[STI_LANES];
    uint32_t n_pool[STI_LANES];

    /* Shared with the pool. */
    struct sti_mutex lock;
    struct sti_aio_queue remote STI_GUARDED_BY(&lock);
    uint32_t wake_at STI_GUARDED_BY(&lock); /* so many in remote end the owner's sleep */
    uint32_t n_on_pool; /* atomic: jobs that have not left this aio for good; pairs in close */
    int event_fd;
    int is_waiting; /* atomic: the owner sleeps or is about to; pairs in sti_aio_wake() */
    int is_woken;   /* atomic: a wake not yet seen by the owner */

    /* Atomics, written by the owner. */
    struct sti_aio_stats stats;
};

void
sti_aio_queue_init(struct sti_aio_queue *queue);
void
sti_aio_queue_push(struct sti_aio_queue *queue, struct sti_aio_op *op);
struct sti_aio_op *
sti_aio_queue_pop(struct sti_aio_queue *queue);

/* The operation has its result; owner's thread. */
void
sti_aio_complete(struct sti_aio *aio, struct sti_aio_op *op);

/* Runs the operation's system calls on the pool, with its work; owner's thread. */
void
sti_aio_start_on_pool(struct sti_aio *aio, struct sti_aio_op *op);

/* Sleeps until the event descriptor is written, the watched one is readable or the timeout
 * is over, and leaves both as they are; owner's thread. Returns whether something is to be
 * read from the event descriptor. */
bool
sti_aio_sleep(const struct sti_aio *aio, uint64_t timeout_ns);

/* The same, and takes the event; owner's thread. */
void
sti_aio_wait_event(struct sti_aio *aio, uint64_t timeout_ns);

/* Adds to a statistic that other threads read. */
void
sti_aio_count(uint64_t *counter, uint64_t n);

extern const struct sti_aio_method sti_aio_sync_method;
#ifdef STI_HAVE_URING
extern const struct sti_aio_method sti_aio_uring_method;
#endif

#endif
