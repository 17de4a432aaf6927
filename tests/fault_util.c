/* SPDX-License-Identifier: Apache-2.0 */
#include "fault_util.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static void
attach(struct fault_disk *disk, struct sti_fault *fault)
{
    struct sti_aio_opts opts = {
        .method = "fault", .queue_depth = 32, .max_open_files = 8, .fault = fault};

    disk->fault = fault;
    assert_int_equal(sti_aio_open(&disk->aio, &opts, NULL), 0);
}

void
fault_start(struct fault_disk *disk)
{
    struct sti_fault *fault = NULL;

    assert_int_equal(sti_fault_new(&fault), 0);
    attach(disk, fault);
}

void
fault_stop(struct fault_disk *disk)
{
    sti_aio_close(disk->aio);
    sti_fault_free(disk->fault);
}

void
fault_crash(struct fault_disk *left, const struct fault_disk *disk, uint64_t variant)
{
    struct sti_fault *fault = NULL;

    assert_int_equal(sti_fault_new_crashed(&fault, disk->fault, variant), 0);
    attach(left, fault);
}

int32_t
fault_run_path(struct fault_disk *disk, enum sti_aio_kind kind, const char *path, uint32_t flags)
{
    struct sti_aio_op op = {.kind = kind,
                            .dir_fd = AT_FDCWD,
                            .path = path,
                            .mode = 0755,
                            .open_flags = flags,
                            .unlink_flags = flags};

    return sti_aio_run(disk->aio, &op);
}

int32_t
fault_rename(struct fault_disk *disk, const char *from, const char *to)
{
    struct sti_aio_op op = {
        .kind = STI_AIO_RENAME, .dir_fd = AT_FDCWD, .dir_fd2 = AT_FDCWD, .path = from, .path2 = to};

    return sti_aio_run(disk->aio, &op);
}

int32_t
fault_run_fd(struct fault_disk *disk, enum sti_aio_kind kind, int fd, uint64_t offset)
{
    struct sti_aio_op op = {.kind = kind, .fd = fd, .offset = offset, .length = 100};

    return sti_aio_run(disk->aio, &op);
}

int32_t
fault_write_at(struct fault_disk *disk, int fd, uint64_t offset, const char *bytes, size_t n_bytes)
{
    char copy[8192];

    assert_true(n_bytes <= sizeof(copy));
    memcpy(copy, bytes, n_bytes);
    struct sti_aio_op op = {.kind = STI_AIO_WRITE,
                            .fd = fd,
                            .bytes = copy,
                            .n_bytes = (uint32_t)n_bytes,
                            .offset = offset};
    return sti_aio_run(disk->aio, &op);
}

int32_t
fault_read_file(struct fault_disk *disk, const char *path, char *bytes)
{
    struct sti_aio_op op = {.kind = STI_AIO_READ_FILE,
                            .dir_fd = AT_FDCWD,
                            .path = path,
                            .bytes = bytes,
                            .n_bytes = 8192};

    memset(bytes, '?', 8192);
    return sti_aio_run(disk->aio, &op);
}

bool
fault_is_file(struct fault_disk *disk, const char *path, const char *text)
{
    char bytes[8192];
    int32_t n = fault_read_file(disk, path, bytes);

    return n == (int32_t)strlen(text) && memcmp(bytes, text, (size_t)n) == 0;
}

bool
fault_exists(struct fault_disk *disk, const char *path)
{
    struct statx found;
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .dir_fd = AT_FDCWD,
                            .path = path,
                            .statx = &found,
                            .statx_mask = STATX_SIZE};
    int32_t rc = sti_aio_run(disk->aio, &op);

    assert_true(rc == 0 || rc == -ENOENT);
    return rc == 0;
}

int
fault_must_open(struct fault_disk *disk, const char *path)
{
    int fd = fault_run_path(disk, STI_AIO_OPEN, path, O_RDWR | O_CREAT);

    assert_true(fd >= 0);
    return fd;
}

int
fault_durable_file(struct fault_disk *disk, const char *path, const char *text)
{
    assert_int_equal(sti_fault_put_file(disk->fault, path, text, strlen(text)), 0);
    return fault_must_open(disk, path);
}
