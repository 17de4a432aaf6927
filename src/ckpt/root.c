/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a root. Whether direct writes work is found by one: the alignment is what the
 * file system says, and a file system that opens a file for direct I/O and then refuses
 * the write is found out here and not in the first save. Blocks; the caller's thread and
 * aio.
 */
#include "ckpt/root.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/mem.h"

#define DIR_MODE 0777
#define FILE_MODE 0666
#define TRIAL_NAME_SIZE 48

static int
fail(const char *where, int rc, const char *what, stk_error *err)
{
    return sti_error_set_path(err, rc, where, "the root %s: %s", what, sti_error_text(rc));
}

static int
find_device(struct sti_root *root, struct sti_aio *aio)
{
    struct statx found = {0};
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .dir_fd = root->dir_fd,
                            .path = ".",
                            .statx_mask = STATX_BASIC_STATS,
                            .statx = &found};
    int rc = sti_aio_run(aio, &op);

    root->device = (uint64_t)found.stx_dev_major << 32 | found.stx_dev_minor;
    return rc;
}

static int
open_file(struct sti_root *root, struct sti_aio *aio, const char *name, uint32_t flags)
{
    struct sti_aio_op op = {.kind = STI_AIO_OPEN,
                            .dir_fd = root->dir_fd,
                            .path = name,
                            .open_flags = flags,
                            .mode = FILE_MODE};

    return sti_aio_run(aio, &op);
}

static int
close_file(struct sti_aio *aio, int fd)
{
    struct sti_aio_op op = {.kind = STI_AIO_CLOSE, .fd = fd};

    return sti_aio_run(aio, &op);
}

/*
 * Makes the root's own name durable: what is synced in a directory that is lost with its
 * name is lost, too. Also for one that was there, which a process that crashed may have
 * made just now; unless its parent is not ours to open, and then neither was it ours to
 * make.
 */
static int
sync_parent(const char *where, struct sti_aio *aio, bool is_made)
{
    size_t length = strlen(where);
    char *parent = sti_mem_strdup(where);

    if (!parent)
        return -ENOMEM;
    while (length > 1 && parent[length - 1] == '/')
        length--;
    while (length > 0 && parent[length - 1] != '/')
        length--;
    while (length > 1 && parent[length - 1] == '/')
        length--;
    parent[length] = '\0';
    struct sti_aio_op op = {
        .kind = STI_AIO_SYNC_DIR, .dir_fd = AT_FDCWD, .path = length > 0 ? parent : "."};
    int rc = sti_aio_run(aio, &op);
    sti_mem_free(parent);
    return !is_made && (rc == -EACCES || rc == -EROFS || rc == -EINVAL) ? 0 : rc;
}

/* Writes one block as the probe says one may; leaves buffered where that is refused. */
static int
try_direct(struct sti_root *root, const struct sti_root_open *how, const char *name)
{
    int fd = open_file(root, how->aio, name, O_WRONLY | O_DIRECT);

    if (fd == -EINVAL) {
        root->dio = sti_dio_buffered();
        return 0;
    }
    if (fd < 0)
        return fd;
    struct sti_aio_op op = {
        .kind = STI_AIO_WRITE, .fd = fd, .bytes = how->block, .n_bytes = root->dio.block_bytes};
    int rc = sti_aio_run(how->aio, &op);
    int close_rc = close_file(how->aio, fd);
    if (rc == -EINVAL) {
        root->dio = sti_dio_buffered();
        rc = 0;
    }
    return rc < 0 ? rc : close_rc;
}

static int
probe(struct sti_root *root, const struct sti_root_open *how)
{
    char name[TRIAL_NAME_SIZE];

    root->dio = sti_dio_buffered();
    (void)snprintf(name, sizeof(name), ".stoker-trial-%016" PRIx64, how->session); /* fits */
    int fd = open_file(root, how->aio, name, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0)
        return fd;
    int rc = close_file(how->aio, fd);
    if (rc == 0 && !how->is_buffered)
        rc = sti_dio_probe(root->dir_fd, name, &root->dio);
    if (rc == 0 && root->dio.is_direct)
        rc = try_direct(root, how, name);
    struct sti_aio_op op = {.kind = STI_AIO_UNLINK, .dir_fd = root->dir_fd, .path = name};
    int unlink_rc = sti_aio_run(how->aio, &op);
    return rc < 0 ? rc : unlink_rc;
}

int
sti_root_open(struct sti_root *root, const char *where, const struct sti_root_open *how,
              stk_error *err)
{
    struct sti_aio_op op = {
        .kind = STI_AIO_MKDIR, .dir_fd = AT_FDCWD, .path = where, .mode = DIR_MODE};
    int rc = how->is_read_only ? -EEXIST : sti_aio_run(how->aio, &op);

    root->bytes_per_s = 1;
    /* A read-only file system says so even of a directory that is there; opening
     * tells. */
    if (rc < 0 && rc != -EEXIST && rc != -EROFS)
        return fail(where, rc, "cannot be made", err);
    if (!how->is_read_only && rc != -EROFS)
        rc = sync_parent(where, how->aio, rc == 0);
    if (rc < 0 && rc != -EEXIST && rc != -EROFS)
        return fail(where, rc, "cannot be made durable", err);
    op = (struct sti_aio_op){.kind = STI_AIO_OPEN,
                             .dir_fd = AT_FDCWD,
                             .path = where,
                             .open_flags = O_RDONLY | O_DIRECTORY};
    root->dir_fd = sti_aio_run(how->aio, &op);
    if (root->dir_fd == -ENOENT && rc == -EROFS)
        return fail(where, rc, "cannot be made", err);
    if (root->dir_fd < 0)
        return fail(where, root->dir_fd, "cannot be opened", err);
    rc = find_device(root, how->aio);
    if (rc < 0)
        return fail(where, rc, "cannot be looked at", err);
    root->dio = sti_dio_buffered();
    rc = how->is_read_only ? 0 : probe(root, how);
    return rc < 0 ? fail(where, rc, "cannot be written", err) : 0;
}

void
sti_root_close(struct sti_root *root)
{
    struct sti_aio_op op = {.kind = STI_AIO_CLOSE, .fd = root->dir_fd};

    if (root->dir_fd >= 0)
        sti_aio_op_execute(&op); /* a directory: nothing to lose, and no need of an aio */
    root->dir_fd = -1;
    sti_mem_free(root->path);
    root->path = NULL;
}
