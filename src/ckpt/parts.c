/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a part is here, and good. The reader needs all parts of a checkpoint; of several nodes'
 * each has some, and whoever looks after one node wants to know about those. One read at a time,
 * through the page cache, whose reading ahead keeps the device busy while sums are made.
 */
#include "ckpt/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/mem.h"

#define PATH_SIZE 2048u
#define READ_BYTES (4u << 20) /* whole chunks, one at least */
#define PULL_SUFFIX ".pull"

struct look {
    const struct sti_scan *scan;
    const struct sti_manifest *manifest;
    const struct sti_part *part;
    uint32_t idx;
    int dir_fd;
    char path[PATH_SIZE];
    stk_error *err;
};

static int
stat_size(const struct look *look, const char *path, uint64_t *ret_size)
{
    struct statx found = {0};
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .dir_fd = look->dir_fd,
                            .path = path,
                            .statx_mask = STATX_SIZE | STATX_TYPE,
                            .statx = &found};
    int rc = sti_aio_run(look->scan->aio, &op);

    if (rc < 0)
        return rc == -ENOTDIR ? -ENOENT : rc;
    if (!S_ISREG(found.stx_mode)) /* opening a FIFO would wait for its writer */
        return S_ISDIR(found.stx_mode) ? -EISDIR : -EINVAL;
    *ret_size = found.stx_size;
    return 0;
}

static int
fail(const struct look *look, int rc)
{
    return sti_error_set_path(look->err, rc, look->path, "part %" PRIu32 " of step %" PRIu64 ": %s",
                              look->idx, look->manifest->step, sti_error_text(rc));
}

/* Reads n bytes at offset, all of them. */
static int
read_all(const struct look *look, int fd, void *bytes, uint32_t n, uint64_t offset)
{
    for (uint32_t done = 0; done < n;) {
        struct sti_aio_op op = {.kind = STI_AIO_READ,
                                .fd = fd,
                                .bytes = (char *)bytes + done,
                                .n_bytes = n - done,
                                .offset = offset + done};
        int rc = sti_aio_run(look->scan->aio, &op);

        if (rc <= 0) /* it has become shorter since its size was seen */
            return fail(look, rc < 0 ? rc : STK_E_CORRUPT);
        done += (uint32_t)rc;
    }
    return 0;
}

static int
check_chunks(const struct look *look, const char *bytes, uint32_t n, uint64_t offset)
{
    const uint32_t chunk_bytes = look->manifest->chunk_bytes;

    for (uint32_t at = 0; at < n; at += chunk_bytes) {
        uint32_t length = n - at < chunk_bytes ? n - at : chunk_bytes;

        if (sti_crc32c(0, bytes + at, length) != look->part->crcs[(offset + at) / chunk_bytes])
            return sti_error_set_path(look->err, STK_E_CORRUPT, look->path,
                                      "part %" PRIu32 " of step %" PRIu64 ": the %" PRIu32
                                      " bytes at %" PRIu64 " do not match their checksum",
                                      look->idx, look->manifest->step, length, offset + at);
    }
    return 0;
}

static int
read_part(const struct look *look, int fd)
{
    const uint32_t chunk_bytes = look->manifest->chunk_bytes;
    const uint32_t step_bytes =
        chunk_bytes < READ_BYTES ? READ_BYTES / chunk_bytes * chunk_bytes : chunk_bytes;
    char *bytes = sti_mem_new(step_bytes, 1);
    int rc = 0;

    if (!bytes)
        return sti_error_set(look->err, -ENOMEM, "no memory to read a part");
    for (uint64_t at = 0; rc == 0 && at < look->part->n_bytes; at += step_bytes) {
        uint64_t left = look->part->n_bytes - at;
        uint32_t n = left < step_bytes ? (uint32_t)left : step_bytes;

        rc = read_all(look, fd, bytes, n, at);
        if (rc == 0)
            rc = check_chunks(look, bytes, n, at);
    }
    sti_mem_free(bytes);
    return rc;
}

static int
verify(const struct look *look)
{
    struct sti_aio_op op = {
        .kind = STI_AIO_OPEN, .dir_fd = look->dir_fd, .path = look->path, .open_flags = O_RDONLY};
    int fd = sti_aio_run(look->scan->aio, &op);

    if (fd < 0)
        return fail(look, fd);
    int rc = read_part(look, fd);
    op = (struct sti_aio_op){.kind = STI_AIO_CLOSE, .fd = fd};
    (void)sti_aio_run(look->scan->aio, &op); /* only read */
    return rc;
}

int
sti_part_look(const struct sti_scan *scan, const struct sti_manifest *manifest, uint32_t part,
              bool is_read, bool *ret_is_coming, stk_error *err)
{
    struct look look = {.scan = scan,
                        .manifest = manifest,
                        .part = &manifest->parts[part],
                        .idx = part,
                        .err = err};
    uint64_t size = 0;
    size_t n;

    look.dir_fd =
        sti_scan_part_path(scan, manifest, part, look.path, PATH_SIZE - sizeof(PULL_SUFFIX));
    if (look.dir_fd == -ENAMETOOLONG)
        return sti_error_set(err, STK_E_CORRUPT, "the path of part %" PRIu32 " is too long", part);
    int rc = stat_size(&look, look.path, &size);
    if (rc == -ENOENT) {
        n = strlen(look.path);
        memcpy(look.path + n, PULL_SUFFIX, sizeof(PULL_SUFFIX));
        *ret_is_coming = stat_size(&look, look.path, &size) == 0;
        return rc;
    }
    if (rc < 0)
        return fail(&look, rc);
    if (size != look.part->n_bytes)
        return sti_error_set_path(err, STK_E_CORRUPT, look.path,
                                  "part %" PRIu32 " of step %" PRIu64 " has %" PRIu64
                                  " bytes, not %" PRIu64,
                                  part, manifest->step, size, look.part->n_bytes);
    return is_read ? verify(&look) : 0;
}
