/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asynchronous file operations: one table of methods (uring, sync, fault) under all I/O
 * of the library. The unit is an operation; nothing else touches a file system.
 *
 * One thread, the owner, submits, flushes and waits; callbacks run on it. sti_aio_wake()
 * alone may be called by any thread. An operation lies in memory of its submitter and
 * belongs to the aio from submit until its done callback begins, which may submit it
 * again or free it.
 */
#ifndef STI_IO_AIO_H
#define STI_IO_AIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stoker/types.h>

#include "base/pool.h"

struct sti_aio;
struct sti_aio_op;
struct sti_fault;
struct sti_shape;
struct statx;

enum sti_aio_kind {
    STI_AIO_READ_FILE, /* open dir_fd/path, read n_bytes at offset, close */
    STI_AIO_OPEN,      /* dir_fd/path with open_flags (and mode); result: descriptor */
    STI_AIO_CLOSE,     /* fd */
    STI_AIO_READ,      /* fd, bytes, n_bytes, offset; result: bytes read, short at the end */
    STI_AIO_WRITE,     /* fd, bytes, n_bytes, offset; result: bytes written, may be short */
    STI_AIO_SYNC,      /* fd: data and what is needed to find it (fdatasync) */
    STI_AIO_TRUNCATE,  /* fd, offset: the new length */
    STI_AIO_ALLOCATE,  /* fd: reserves [offset, offset + length); -EOPNOTSUPP where it can't */
    STI_AIO_MKDIR,     /* dir_fd/path, mode */
    STI_AIO_RENAME,    /* dir_fd/path to dir_fd2/path2; rename_flags (RENAME_NOREPLACE) */
    STI_AIO_UNLINK,    /* dir_fd/path; unlink_flags (AT_REMOVEDIR) */
    STI_AIO_SYNC_DIR,  /* dir_fd/path opened as a directory and fsynced */
    STI_AIO_LIST,      /* dir_fd/path: list_fn for every entry but . and .. */
    STI_AIO_STATX,     /* dir_fd/path into statx with statx_mask */
    STI_AIO_KINDS
};

/* Called for each entry of a directory, on any thread, in the directory's own order.
 * d_type is DT_..., possibly DT_UNKNOWN. A result but 0 ends the listing with that
 * result. */
typedef int (*sti_aio_list_fn)(void *context, const char *name, unsigned char d_type);

typedef void (*sti_aio_fn)(struct sti_aio_op *op);

struct sti_aio_op {
    enum sti_aio_kind kind;
    int32_t result; /* 0 or a count, else -errno */

    int dir_fd; /* AT_FDCWD or a directory's descriptor */
    int dir_fd2;
    int fd;
    uint32_t open_flags; /* O_...; O_CLOEXEC is added. READ_FILE: O_DIRECT, O_NONBLOCK or 0 */
    uint32_t mode;
    uint32_t rename_flags;
    uint32_t unlink_flags;
    uint32_t statx_mask;
    uint32_t n_bytes;  /* READ, WRITE, READ_FILE: at most 1 GiB */
    const char *path;  /* borrowed until done */
    const char *path2; /* borrowed until done */
    void *bytes;
    uint64_t offset;
    uint64_t length; /* ALLOCATE */
    struct statx *statx;
    sti_aio_list_fn list_fn;
    void *list_context;

    sti_aio_fn work; /* NULL, or run on a pool thread after the operation and before done */
    sti_aio_fn done; /* on the owner's thread */
    void *context;   /* the submitter's */
    enum sti_lane work_lane;
    bool is_shaped; /* charge the emulated device for it */
    bool is_ssd;    /* charge the emulated SSD instead */

    /* The aio's own, until done. */
    struct sti_aio_op *next;
    struct sti_job job;
    struct sti_aio *aio;
    uint64_t due_ns;
    uint32_t slot;
    int32_t open_result;
    uint32_t n_pending;
};

/*
 * method          "auto", "uring", "sync"; NULL: auto. With a fault also "fault".
 * pool            borrowed; blocking calls (sync) run on its I/O lane, work on work_lane. With
 *                 the fault method it may be NULL: work then runs on the owner's thread.
 * queue_depth     operations given to the kernel or the pool at a time; more wait in line.
 * max_open_files  READ_FILE operations under way at a time.
 * shape           NULL, or emulated storage for operations with is_shaped (taken).
 * ssd_shape       the same for operations with is_ssd.
 * fault           NULL, or a test's file system (borrowed; one aio at a time).
 */
struct sti_aio_opts {
    const char *method;
    struct sti_pool *pool;
    uint32_t queue_depth;
    uint32_t max_open_files;
    struct sti_shape *shape;
    struct sti_shape *ssd_shape;
    struct sti_fault *fault;
};

/* Errors: -EINVAL unknown method, -ENOSYS no uring here, -ENOMEM, -EMFILE. err says
 * why. */
int
sti_aio_open(struct sti_aio **ret_aio, const struct sti_aio_opts *opts, stk_error *err);

/* Waits for what is under way (its done is called), then closes. NULL is allowed. */
void
sti_aio_close(struct sti_aio *aio);

const char *
sti_aio_method_name(const struct sti_aio *aio);

/* Takes an operation. Never fails: errors come as its result. Nothing starts before
 * flush. */
void
sti_aio_submit(struct sti_aio *aio, struct sti_aio_op *op);

/* Starts what was submitted, with one system call at most. */
void
sti_aio_flush(struct sti_aio *aio);

/*
 * Flushes, waits until something completes, sti_aio_wake() is called or timeout_ns has
 * passed (0: only looks), and runs the done callbacks. Returns how many ran.
 */
uint32_t
sti_aio_wait(struct sti_aio *aio, uint64_t timeout_ns);

/* Completes everything that only an emulated device holds back. Owner only. */
void
sti_aio_hurry(struct sti_aio *aio);

/* Makes a wait of the owner return soon, now or the next one. Any thread. */
void
sti_aio_wake(struct sti_aio *aio);

/*
 * From now on a wait of the owner also ends when fd is readable, as long as it is; whoever
 * has it makes it unreadable again. Borrowed; one descriptor, -1: none (any more). Owner
 * only, and before fd is closed.
 */
void
sti_aio_watch(struct sti_aio *aio, int fd);

/* Operations submitted and not yet done. */
uint32_t
sti_aio_pending(const struct sti_aio *aio);

/*
 * Submits one operation and waits for it, serving others meanwhile. Owner only; op->done
 * is overwritten. Returns op->result.
 */
int32_t
sti_aio_run(struct sti_aio *aio, struct sti_aio_op *op);

/* Counted since open; read by any thread. */
struct sti_aio_stats {
    uint64_t reads;
    uint64_t read_bytes;
    uint64_t submit_calls;
    uint64_t waits;
    uint64_t errors;
};

void
sti_aio_get_stats(const struct sti_aio *aio, struct sti_aio_stats *ret_stats);

/* An operation that has run a system call before: does it now, blocking, and sets result.
 * Used by the sync method and by whoever needs one call on a thread of its own. */
void
sti_aio_op_execute(struct sti_aio_op *op);

#endif
