/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a part is here, in its size. Of several nodes' each has some, and whoever looks after one
 * node wants to know about those; scan.c misses any. */
#include "ckpt/parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"

#define PATH_SIZE 2048u

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

int
sti_part_look(const struct sti_scan *scan, const struct sti_manifest *manifest, uint32_t part,
              bool *ret_is_coming, stk_error *err)
{
    struct look look = {.scan = scan,
                        .manifest = manifest,
                        .part = &manifest->parts[part],
                        .idx = part,
                        .err = err};
    uint64_t size = 0;
    size_t n;

    look.dir_fd =
        sti_scan_part_path(scan, manifest, part, look.path, PATH_SIZE - sizeof(STI_PULL_SUFFIX));
    if (look.dir_fd == -ENAMETOOLONG)
        return sti_error_set(err, STK_E_CORRUPT, "the path of part %" PRIu32 " is too long", part);
    int rc = stat_size(&look, look.path, &size);
    if (rc == -ENOENT) {
        n = strlen(look.path);
        memcpy(look.path + n, STI_PULL_SUFFIX, sizeof(STI_PULL_SUFFIX));
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
    return 0;
}
