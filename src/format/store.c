/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of indexes. Invariant: under its own name an index is always whole. Two processes
 * that put one at the same path write files of different names, and the later rename
 * wins; both are right. Everything but the mapping goes through the table of operations.
 * One thread, the aio's owner.
 */
#include "format/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "format/index.h"
#include "format/name.h"
#include "format/path.h"
#include "format/time.h"
#include "io/aio.h"

#define WRITE_BYTES ((uint64_t)64 << 20)
#define ATTEMPTS 16

/* Temporaries that others left behind: so many are removed at a time, once they are so
 * old that no process writes them, on another machine either, whose numbers mean nothing
 * here. */
#define LEFT_MAX 16
#define LEFT_NS INT64_C(600000000000)
#define NAME_BYTES 80

void
sti_store_release(struct sti_store_image *image)
{
    if (image->is_mapped)
        (void)munmap(image->bytes, image->n_bytes); /* cannot fail: it is ours */
    else
        sti_mem_free(image->bytes);
    *image = (struct sti_store_image){0};
}

int
sti_store_open_fd(struct sti_aio *aio, int dir_fd, const char *path, uint32_t open_flags)
{
    struct sti_aio_op op = {.kind = STI_AIO_OPEN,
                            .dir_fd = dir_fd,
                            .path = path,
                            .open_flags = open_flags,
                            .mode = 0666};

    return sti_aio_run(aio, &op);
}

void
sti_store_close_fd(struct sti_aio *aio, int fd)
{
    struct sti_aio_op op = {.kind = STI_AIO_CLOSE, .fd = fd};

    (void)sti_aio_run(aio, &op); /* what was written has been synced, or does not matter */
}

int
sti_store_write(struct sti_aio *aio, int fd, const void *bytes, uint64_t n_bytes, uint64_t offset)
{
    struct sti_aio_op op = {.kind = STI_AIO_WRITE, .fd = fd};
    uintptr_t at = (uintptr_t)bytes; /* an operation's bytes are not const */

    while (n_bytes > 0) {
        op.bytes = (void *)at;
        op.offset = offset;
        op.n_bytes = (uint32_t)(n_bytes < WRITE_BYTES ? n_bytes : WRITE_BYTES);
        int32_t n = sti_aio_run(aio, &op);
        if (n <= 0)
            return n < 0 ? n : -EIO;
        at += (uint32_t)n;
        offset += (uint32_t)n;
        n_bytes -= (uint32_t)n;
    }
    return 0;
}

/* Maps an open file. Its length is asked of the descriptor: the name may mean another by
 * now. */
static int
map(struct sti_store_image *ret_image, int fd, const char *path, stk_error *err)
{
    off_t n_bytes = lseek(fd, 0, SEEK_END);

    if (n_bytes <= 0)
        return sti_error_set_path(err, STK_E_CORRUPT, path, "the index is empty" STI_INDEX_HINT);
    void *bytes = mmap(NULL, (size_t)n_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (bytes == MAP_FAILED)
        return sti_error_set_path(err, -errno, path, "cannot map the index: %s",
                                  sti_error_text(errno));
    *ret_image =
        (struct sti_store_image){.bytes = bytes, .n_bytes = (uint64_t)n_bytes, .is_mapped = true};
    return 0;
}

int
sti_store_load(struct sti_store_image *ret_image, struct sti_aio *aio, const char *path,
               stk_error *err)
{
    struct statx found;
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .dir_fd = AT_FDCWD,
                            .path = path,
                            .statx = &found,
                            .statx_mask = STATX_TYPE | STATX_MODE};
    int rc = sti_aio_run(aio, &op);

    if (rc == 0 && !S_ISREG(found.stx_mode))
        return sti_error_set_path(err, STK_E_CORRUPT, path,
                                  "the index is no regular file; remove it");
    int fd = rc == 0 ? sti_store_open_fd(aio, AT_FDCWD, path, O_RDONLY | O_NONBLOCK) : rc;
    if (fd < 0)
        return sti_error_set_path(err, fd, path, "cannot open the index: %s", sti_error_text(fd));
    rc = map(ret_image, fd, path, err);
    sti_store_close_fd(aio, fd);
    return rc;
}

/* Creates a file of a new name in a directory. Returns its descriptor and, owned, its
 * path. */
static int
create_beside(struct sti_aio *aio, const char *path, char **ret_temporary)
{
    char name[NAME_BYTES];
    char *directory = sti_path_directory(path);
    int fd = -EEXIST;

    if (!directory)
        return -ENOMEM;
    for (int i = 0; i < ATTEMPTS && fd == -EEXIST; i++) {
        (void)snprintf(name, sizeof(name), STI_NAME_INDEX ".%ld.%llx.tmp", (long)getpid(),
                       (unsigned long long)sti_clock_ns()); /* it fits */
        char *temporary = sti_path_join(directory, name);
        fd = temporary ? sti_store_open_fd(aio, AT_FDCWD, temporary, O_WRONLY | O_CREAT | O_EXCL)
                       : -ENOMEM;
        if (fd >= 0)
            *ret_temporary = temporary;
        else
            sti_mem_free(temporary);
    }
    sti_mem_free(directory);
    return fd;
}

struct left {
    uint32_t n;
    char names[LEFT_MAX][NAME_BYTES];
};

static int
note_left(void *context, const char *name, unsigned char d_type)
{
    struct left *left = context;
    unsigned long long time_ns;
    char process[32];
    long pid;
    int n_bytes = 0;

    (void)d_type;
    if (left->n == LEFT_MAX || strlen(name) >= NAME_BYTES ||
        /* NOLINTNEXTLINE(cert-err34-c): names are ours, and out of range means not ours */
        sscanf(name, STI_NAME_INDEX ".%ld.%llx.tmp%n", &pid, &time_ns, &n_bytes) != 2 ||
        n_bytes == 0 || name[n_bytes] != '\0' || pid <= 0)
        return 0;
    (void)snprintf(process, sizeof(process), "/proc/%ld", pid); /* it fits */
    if (access(process, F_OK) < 0 && errno == ENOENT)
        (void)snprintf(left->names[left->n++], NAME_BYTES, "%s", name); /* it fits */
    return 0;
}

static void
remove_if_old(struct sti_aio *aio, const char *path)
{
    struct statx found;
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .dir_fd = AT_FDCWD,
                            .path = path,
                            .statx = &found,
                            .statx_mask = STATX_MTIME};

    if (sti_aio_run(aio, &op) < 0 ||
        (int64_t)sti_clock_wall_ns() - sti_time_ns(&found.stx_mtime) < LEFT_NS)
        return;
    op = (struct sti_aio_op){.kind = STI_AIO_UNLINK, .dir_fd = AT_FDCWD, .path = path};
    (void)sti_aio_run(aio, &op); /* what stays is never looked at */
}

/* Removes what processes that were killed while they wrote have left where path will
 * lie. */
static void
remove_left(struct sti_aio *aio, const char *path)
{
    struct left left = {.n = 0};
    char *directory = sti_path_directory(path);

    if (!directory)
        return;
    struct sti_aio_op op = {.kind = STI_AIO_LIST,
                            .dir_fd = AT_FDCWD,
                            .path = directory,
                            .list_fn = note_left,
                            .list_context = &left};
    (void)sti_aio_run(aio, &op); /* nothing depends on it */
    for (uint32_t at = 0; at < left.n; at++) {
        char *temporary = sti_path_join(directory, left.names[at]);

        if (temporary)
            remove_if_old(aio, temporary);
        sti_mem_free(temporary);
    }
    sti_mem_free(directory);
}

/* Renames and makes the new name last. */
static int
publish(struct sti_aio *aio, const char *temporary, const char *path)
{
    struct sti_aio_op op = {.kind = STI_AIO_RENAME,
                            .dir_fd = AT_FDCWD,
                            .path = temporary,
                            .dir_fd2 = AT_FDCWD,
                            .path2 = path};
    int rc = sti_aio_run(aio, &op);
    if (rc < 0)
        return rc;
    char *directory = sti_path_directory(path);
    if (!directory)
        return -ENOMEM;
    op = (struct sti_aio_op){.kind = STI_AIO_SYNC_DIR, .dir_fd = AT_FDCWD, .path = directory};
    rc = sti_aio_run(aio, &op);
    sti_mem_free(directory);
    return rc;
}

int
sti_store_save(struct sti_aio *aio, const char *path, const struct sti_store_image *image,
               stk_error *err)
{
    char *temporary = NULL;

    remove_left(aio, path);
    int fd = create_beside(aio, path, &temporary);
    if (fd < 0)
        return sti_error_set_path(err, fd, path, "cannot create the index: %s", sti_error_text(fd));
    int rc = sti_store_write(aio, fd, image->bytes, image->n_bytes, 0);
    if (rc == 0) {
        struct sti_aio_op op = {.kind = STI_AIO_SYNC, .fd = fd};
        rc = sti_aio_run(aio, &op);
    }
    sti_store_close_fd(aio, fd);
    if (rc == 0)
        rc = publish(aio, temporary, path);
    if (rc < 0) {
        struct sti_aio_op op = {.kind = STI_AIO_UNLINK, .dir_fd = AT_FDCWD, .path = temporary};
        (void)sti_aio_run(aio, &op); /* what stays is never looked at */
        (void)sti_error_set_path(err, rc, path, "cannot write the index: %s", sti_error_text(rc));
    }
    sti_mem_free(temporary);
    return rc;
}
