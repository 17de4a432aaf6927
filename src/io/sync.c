/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sync method: every operation is its system calls, on the pool's I/O lane.
 * First-class, since io_uring is refused on many clusters and in most containers. What is
 * shared with the pool goes through aio.c; here the owner only sleeps on the event
 * descriptor.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "io/aio_internal.h"

static int32_t
result_of(ssize_t rc)
{
    return rc < 0 ? -errno : (int32_t)rc;
}

static int32_t
read_at(int fd, void *bytes, uint32_t n_bytes, uint64_t offset)
{
    ssize_t n;

    do
        n = pread(fd, bytes, n_bytes, (off_t)offset);
    while (n < 0 && errno == EINTR);
    return result_of(n);
}

static int32_t
read_file(const struct sti_aio_op *op)
{
    /* A pipe that lies where a file was fails at once instead of waiting for a writer. */
    int fd = openat(op->dir_fd, op->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | (int)op->open_flags);

    if (fd < 0)
        return -errno;
    int32_t result = read_at(fd, op->bytes, op->n_bytes, op->offset);
    if (close(fd) < 0 && errno != EINTR && result >= 0)
        result = -errno;
    return result;
}

static int32_t
write_at(const struct sti_aio_op *op)
{
    ssize_t n;

    do
        n = pwrite(op->fd, op->bytes, op->n_bytes, (off_t)op->offset);
    while (n < 0 && errno == EINTR);
    return result_of(n);
}

static int32_t
sync_dir(const struct sti_aio_op *op)
{
    int fd = openat(op->dir_fd, op->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    int32_t result = fsync(fd) < 0 ? -errno : 0;
    if (close(fd) < 0 && errno != EINTR && result == 0)
        result = -errno;
    return result;
}

static int32_t
list(const struct sti_aio_op *op)
{
    int fd = openat(op->dir_fd, op->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int32_t result = 0;

    if (fd < 0)
        return -errno;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        result = -errno;
        (void)close(fd); /* read only: nothing to lose */
        return result;
    }
    while (result == 0) {
        errno = 0;
        const struct dirent *entry = readdir(dir); /* NOLINT(concurrency-mt-unsafe): own DIR */
        if (!entry) {
            result = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        result = op->list_fn(op->list_context, entry->d_name, entry->d_type);
    }
    (void)closedir(dir); /* read only: nothing to lose */
    return result;
}

static int32_t
rename_path(const struct sti_aio_op *op)
{
    if (op->rename_flags == 0)
        return result_of(renameat(op->dir_fd, op->path, op->dir_fd2, op->path2));
    return result_of(renameat2(op->dir_fd, op->path, op->dir_fd2, op->path2, op->rename_flags));
}

static int32_t
execute(struct sti_aio_op *op)
{
    switch (op->kind) {
    case STI_AIO_READ_FILE:
        return read_file(op);
    case STI_AIO_OPEN:
        return result_of(openat(op->dir_fd, op->path, (int)op->open_flags | O_CLOEXEC, op->mode));
    case STI_AIO_CLOSE:
        /* EINTR: Linux has closed it all the same. */
        return close(op->fd) < 0 && errno != EINTR ? -errno : 0;
    case STI_AIO_READ:
        return read_at(op->fd, op->bytes, op->n_bytes, op->offset);
    case STI_AIO_WRITE:
        return write_at(op);
    case STI_AIO_SYNC:
        return result_of(fdatasync(op->fd));
    case STI_AIO_TRUNCATE:
        return result_of(ftruncate(op->fd, (off_t)op->offset));
    case STI_AIO_ALLOCATE:
        return result_of(fallocate(op->fd, 0, (off_t)op->offset, (off_t)op->length));
    case STI_AIO_MKDIR:
        return result_of(mkdirat(op->dir_fd, op->path, op->mode));
    case STI_AIO_RENAME:
        return rename_path(op);
    case STI_AIO_UNLINK:
        return result_of(unlinkat(op->dir_fd, op->path, (int)op->unlink_flags));
    case STI_AIO_SYNC_DIR:
        return sync_dir(op);
    case STI_AIO_LIST:
        return list(op);
    case STI_AIO_STATX:
        return result_of(
            statx(op->dir_fd, op->path, AT_STATX_SYNC_AS_STAT, op->statx_mask, op->statx));
    case STI_AIO_KINDS:
        break;
    }
    return -EINVAL;
}

void
sti_aio_op_execute(struct sti_aio_op *op)
{
    op->result = execute(op);
}

static int
sync_open(struct sti_aio *aio, stk_error *err)
{
    (void)aio;
    (void)err; /* nothing can fail: aio.c has made the event descriptor */
    return 0;
}

static void
sync_close(struct sti_aio *aio)
{
    (void)aio;
}

static void
sync_flush(struct sti_aio *aio)
{
    (void)aio; /* aio.c hands the gathered jobs to the pool */
}

bool
sti_aio_sleep(const struct sti_aio *aio, uint64_t timeout_ns)
{
    /* poll passes over a descriptor of -1. */
    struct pollfd fds[] = {{.fd = aio->event_fd, .events = POLLIN},
                           {.fd = aio->watch_fd, .events = POLLIN}};
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / STI_NS_PER_S),
                               .tv_nsec = (long)(timeout_ns % STI_NS_PER_S)};

    int rc = ppoll(fds, 2, timeout_ns == UINT64_MAX ? NULL : &timeout, NULL);
    return rc > 0 && (fds[0].revents & POLLIN);
}

void
sti_aio_wait_event(struct sti_aio *aio, uint64_t timeout_ns)
{
    uint64_t count;

    if (timeout_ns > 0 && sti_aio_sleep(aio, timeout_ns)) {
        ssize_t n = read(aio->event_fd, &count, sizeof(count));
        (void)n; /* EAGAIN: somebody's news was already taken */
    }
}

const struct sti_aio_method sti_aio_sync_method = {
    .name = "sync",
    .open = sync_open,
    .close = sync_close,
    .start = sti_aio_start_on_pool,
    .flush = sync_flush,
    .wait = sti_aio_wait_event,
};
