/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding checkpoints by looking. A directory step-N with a good manifest is one;
 * anything else is not, whatever its name. Blocking, on the calling thread's aio.
 */
#include "ckpt/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/mem.h"
#include "ckpt/names.h"
#include "ckpt/nodes.h"

#define PATH_SIZE 2048u

/* What other nodes have, as far as they answer; ret_lost: what one that does not was lost by. */
static int
add_of_nodes(const struct sti_scan *scan, struct sti_steps *steps, int *ret_lost)
{
    int rc = 0;

    for (uint32_t node = 0; scan->nodes && rc == 0 && node < scan->nodes->n; node++) {
        uint64_t *more;
        uint32_t n;
        int lost = sti_nodes_steps(scan, node, &more, &n);

        if (lost < 0) {
            *ret_lost = lost;
            continue;
        }
        if (n > 0)
            rc = sti_steps_add(steps, more, n);
        sti_mem_free(more);
    }
    return rc;
}

int
sti_scan_steps(const struct sti_scan *scan, struct sti_steps *steps, stk_error *err)
{
    struct sti_aio_op op = {.kind = STI_AIO_LIST,
                            .dir_fd = scan->dir_fd,
                            .path = ".",
                            .list_fn = sti_steps_note,
                            .list_context = steps};
    int lost = 0;
    int rc = sti_aio_run(scan->aio, &op);

    if (rc == 0)
        rc = add_of_nodes(scan, steps, &lost);
    if (rc < 0)
        return sti_error_set_path(err, rc, scan->path, "the directory cannot be listed: %s",
                                  sti_error_text(rc));
    if (steps->n == 0 && lost < 0)
        return sti_error_set_path(err, lost, scan->path,
                                  "there is no checkpoint here, and not all other nodes answer: %s",
                                  sti_error_text(lost));
    sti_steps_sort(steps);
    return 0;
}

/* ---- manifests --------------------------------------------------------------------- */

static int
read_bytes(const struct sti_scan *scan, const char *name, char **ret_bytes, uint64_t *ret_n_bytes)
{
    struct statx found = {0};
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .dir_fd = scan->dir_fd,
                            .path = name,
                            .statx_mask = STATX_SIZE | STATX_TYPE,
                            .statx = &found};
    int rc = sti_aio_run(scan->aio, &op);

    if (rc < 0)
        return rc;
    if (!S_ISREG(found.stx_mode)) /* opening a FIFO would wait for its writer */
        return S_ISDIR(found.stx_mode) ? -EISDIR : -EINVAL;
    if (found.stx_size > STI_MANIFEST_MAX_BYTES - 1)
        return -EFBIG;
    char *bytes = sti_mem_new(found.stx_size + 1, 1);
    if (!bytes)
        return -ENOMEM;
    op = (struct sti_aio_op){.kind = STI_AIO_READ_FILE,
                             .dir_fd = scan->dir_fd,
                             .path = name,
                             .bytes = bytes,
                             .n_bytes = (uint32_t)found.stx_size + 1};
    rc = sti_aio_run(scan->aio, &op);
    if (rc < 0) {
        sti_mem_free(bytes);
        return rc;
    }
    *ret_bytes = bytes;
    *ret_n_bytes = (uint64_t)rc;
    return 0;
}

/* Puts the path into an error whose message is made already. */
static int
name_path(const struct sti_scan *scan, const char *name, int rc, stk_error *err)
{
    if (err && rc < 0)
        (void)snprintf(err->path, sizeof(err->path), "%s/%s", scan->path, name); /* cut is fine */
    return rc;
}

/* Reads a manifest's bytes, which are freed. */
static int
decode(uint64_t step, char *bytes, uint64_t n_bytes, struct sti_manifest *manifest, stk_error *err)
{
    int rc = sti_manifest_decode(manifest, bytes, n_bytes, err);

    sti_mem_free(bytes);
    if (rc == 0 && manifest->step != step) {
        rc = sti_error_set(err, STK_E_MISMATCH, "the manifest is of step %" PRIu64, manifest->step);
        sti_manifest_fini(manifest);
    }
    return rc;
}

int
sti_scan_manifest(const struct sti_scan *scan, uint64_t step, struct sti_manifest *manifest,
                  stk_error *err)
{
    char dir[STI_NAME_SIZE];
    char name[2 * STI_NAME_SIZE];
    char *bytes;
    uint64_t n_bytes;

    sti_name_make(dir, STI_NAME_STEP, step, "");
    (void)snprintf(name, sizeof(name), "%s/%s", dir, STI_MANIFEST_NAME); /* fits */
    int rc = read_bytes(scan, name, &bytes, &n_bytes);
    if (rc < 0) {
        (void)sti_error_set(err, rc, "the manifest of step %" PRIu64 " cannot be read: %s", step,
                            sti_error_text(rc));
        return name_path(scan, name, rc, err);
    }
    rc = decode(step, bytes, n_bytes, manifest, err);
    return name_path(scan, name, rc, err);
}

/* The manifest that another node has of a step, if all parts of it are somewhere. */
static int
find_on_node(const struct sti_scan *scan, uint32_t node, uint64_t step,
             struct sti_manifest *manifest, stk_error *err)
{
    char *bytes;
    uint64_t n_bytes;
    int rc = sti_nodes_manifest(scan, node, step, &bytes, &n_bytes);

    if (rc < 0)
        return sti_error_set(err, rc,
                             "the manifest of step %" PRIu64 " cannot be read on rank %" PRIu32
                             "'s node: %s",
                             step, scan->nodes->keepers[node], sti_error_text(rc));
    rc = decode(step, bytes, n_bytes, manifest, err);
    if (rc < 0)
        return rc;
    rc = sti_scan_check_parts(scan, manifest, err);
    if (rc < 0)
        sti_manifest_fini(manifest);
    return rc;
}

/* Whether an error says more than another: that there is no such step says the least. */
static bool
says_more(int rc, int than)
{
    return than == -ENOENT && rc != -ENOENT;
}

int
sti_scan_whole(const struct sti_scan *scan, uint64_t step, struct sti_manifest *manifest,
               stk_error *err)
{
    int rc = sti_scan_manifest(scan, step, manifest, err);

    if (rc == 0) {
        rc = sti_scan_check_parts(scan, manifest, err);
        if (rc < 0)
            sti_manifest_fini(manifest);
    }
    for (uint32_t node = 0; rc < 0 && scan->nodes && node < scan->nodes->n; node++) {
        stk_error why;
        int other = find_on_node(scan, node, step, manifest, &why);

        if (other == 0 || says_more(other, rc)) {
            rc = other;
            if (err && rc < 0)
                *err = why;
        }
    }
    return rc;
}

/* ---- parts
 *
 *
 * --------------------------------------------------------------------------------------- */

int
sti_scan_part_path(const struct sti_scan *scan, const struct sti_manifest *manifest, uint32_t part,
                   char *path, size_t path_size)
{
    const char *root = manifest->roots[manifest->parts[part].root];
    bool is_here = strcmp(root, ".") == 0;
    char dir[STI_NAME_SIZE];
    char file[STI_NAME_SIZE];

    sti_name_make(dir, STI_NAME_PARTS, manifest->step, manifest->id);
    sti_name_part(file, manifest->parts[part].writer, manifest->parts[part].number,
                  manifest->n_parts);
    int n =
        snprintf(path, path_size, "%s%s%s/%s", is_here ? "" : root, is_here ? "" : "/", dir, file);
    if (n < 0 || (size_t)n >= path_size)
        return -ENAMETOOLONG;
    return is_here ? scan->dir_fd : AT_FDCWD;
}

static int
check_part_here(const struct sti_scan *scan, const struct sti_manifest *manifest, uint32_t part,
                stk_error *err)
{
    char path[PATH_SIZE];
    struct statx found = {0};
    uint64_t expected = manifest->parts[part].n_bytes;
    int dir_fd = sti_scan_part_path(scan, manifest, part, path, sizeof(path));

    if (dir_fd == -ENAMETOOLONG)
        return sti_error_set(err, STK_E_CORRUPT, "the path of part %" PRIu32 " is too long", part);
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .dir_fd = dir_fd,
                            .path = path,
                            .statx_mask = STATX_SIZE,
                            .statx = &found};
    int rc = sti_aio_run(scan->aio, &op);
    if (rc == -ENOENT || rc == -ENOTDIR)
        return sti_error_set_path(err, STK_E_CORRUPT, path,
                                  "part %" PRIu32 " of step %" PRIu64 " is not there (root %.100s)",
                                  part, manifest->step,
                                  manifest->roots[manifest->parts[part].root]);
    if (rc < 0)
        return sti_error_set_path(err, rc, path, "part %" PRIu32 " of step %" PRIu64 ": %s", part,
                                  manifest->step, sti_error_text(rc));
    if (found.stx_size != expected)
        return sti_error_set_path(err, STK_E_CORRUPT, path,
                                  "part %" PRIu32 " of step %" PRIu64 " has %" PRIu64
                                  " bytes, not %" PRIu64,
                                  part, manifest->step, (uint64_t)found.stx_size, expected);
    return 0;
}

/* node: which one to ask first, then which one has it. */
static int
check_part(const struct sti_scan *scan, const struct sti_manifest *manifest, uint32_t part,
           uint32_t *node, stk_error *err)
{
    int rc = check_part_here(scan, manifest, part, err);

    return rc < 0 && scan->nodes ? sti_nodes_find_part(scan, manifest, part, node, err) : rc;
}

int
sti_scan_check_parts(const struct sti_scan *scan, const struct sti_manifest *manifest,
                     stk_error *err)
{
    uint32_t node = 0;
    int rc = 0;

    for (uint32_t part = 0; rc == 0 && part < manifest->n_parts; part++)
        rc = check_part(scan, manifest, part, &node, err);
    return rc;
}

int
sti_scan_latest(const struct sti_scan *scan, struct sti_manifest *manifest, uint32_t *ret_skipped,
                stk_error *err)
{
    struct sti_steps steps = {0};
    stk_error own;
    stk_error why;
    stk_error lost = {.rank = -1};
    int rc = sti_scan_steps(scan, &steps, err);

    *ret_skipped = 0;
    if (rc < 0) {
        sti_steps_fini(&steps);
        return rc;
    }
    rc = sti_error_set_path(&own, -ENOENT, scan->path, "there is no checkpoint");
    for (uint32_t at = 0; at < steps.n; at++) {
        /* Only what is wrong with the newest is told. */
        bool is_newest = *ret_skipped == 0;

        rc = sti_scan_whole(scan, steps.list[at], manifest, is_newest ? &own : &why);
        /* Removed since it was listed, or a directory of others. */
        if (rc == -ENOENT && is_newest) {
            rc = sti_error_set_path(&own, rc, scan->path, "there is no checkpoint");
            continue;
        }
        if (rc == 0)
            break;
        ++*ret_skipped;
        /* But who does not answer, since without that one there would be something. */
        if (!is_newest && own.rank < 0 && why.rank >= 0)
            lost = why;
    }
    sti_steps_fini(&steps);
    if (rc < 0 && lost.rank >= 0)
        own = lost;
    if (rc < 0 && *ret_skipped > 0)
        rc = STK_E_CORRUPT;
    if (err && (rc < 0 || *ret_skipped > 0))
        *err = own;
    if (err && rc < 0)
        err->code = rc;
    return rc;
}
