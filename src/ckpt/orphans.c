/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing what dead writers left. A live writer's parts look the same as a dead one's,
 * and no clock or process id can tell them apart over machines; so this is done only
 * where somebody says that nobody is saving. Parts go whose id is in no good or damaged
 * manifest's directory: as long as a manifest cannot be read, everything of its step
 * stays.
 */
#include "ckpt/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "ckpt/names.h"

#define PATH_SIZE (2 * STI_NAME_SIZE + 256)

/* Names of a directory that are wanted. */
struct names {
    bool (*is_wanted)(const char *name);
    char (*names)[256];
    uint32_t n;
    uint32_t capacity;
};

static int
note_name(void *context, const char *name, unsigned char d_type)
{
    struct names *names = context;

    (void)d_type;
    if (names->is_wanted && !names->is_wanted(name))
        return 0;
    if (names->n == names->capacity) {
        uint32_t capacity = names->capacity ? 2 * names->capacity : 16;
        void *grown = sti_mem_resize(names->names, capacity, sizeof(names->names[0]));

        if (!grown)
            return -ENOMEM;
        names->names = grown;
        names->capacity = capacity;
    }
    int n = snprintf(names->names[names->n], sizeof(names->names[0]), "%s", name);
    if (n < 0 || (size_t)n >= sizeof(names->names[0]))
        return -ENAMETOOLONG;
    names->n++;
    return 0;
}

static int
list(struct sti_aio *aio, int dir_fd, const char *path, struct names *names)
{
    struct sti_aio_op op = {.kind = STI_AIO_LIST,
                            .dir_fd = dir_fd,
                            .path = path,
                            .list_fn = note_name,
                            .list_context = names};

    return sti_aio_run(aio, &op);
}

static int
remove_path(struct sti_aio *aio, int dir_fd, const char *path, bool is_dir)
{
    struct sti_aio_op op = {.kind = STI_AIO_UNLINK,
                            .dir_fd = dir_fd,
                            .path = path,
                            .unlink_flags = is_dir ? AT_REMOVEDIR : 0};
    int rc = sti_aio_run(aio, &op);

    return rc == -ENOENT ? 0 : rc;
}

/* Removes files of a directory: those that are wanted, NULL: all. */
static int
remove_files(struct sti_aio *aio, int dir_fd, const char *dir, bool (*is_wanted)(const char *name))
{
    struct names files = {.is_wanted = is_wanted};
    char path[PATH_SIZE];
    int rc = list(aio, dir_fd, dir, &files);

    for (uint32_t at = 0; rc == 0 && at < files.n; at++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, files.names[at]); /* fits */
        rc = remove_path(aio, dir_fd, path, false);
    }
    sti_mem_free(files.names);
    return rc;
}

/* Removes a directory of ours with the files in it; one that has directories stays. */
static int
remove_dir(struct sti_aio *aio, int dir_fd, const char *dir)
{
    int rc = remove_files(aio, dir_fd, dir, NULL);

    return rc < 0 ? rc : remove_path(aio, dir_fd, dir, true);
}

static bool
is_left_over(const char *name)
{
    uint64_t step;
    char id[STI_ID_SIZE];
    enum sti_name_kind kind = sti_name_parse(name, &step, id);

    return kind == STI_NAME_PARTS || kind == STI_NAME_COMMIT;
}

/* Whether a checkpoint of the step has this id, or has a manifest that does not tell. */
static bool
is_alive(const struct sti_scan *scan, uint64_t step, const char *id)
{
    struct sti_manifest manifest;
    int rc = sti_scan_manifest(scan, step, &manifest, NULL);

    if (rc < 0)
        return rc != -ENOENT;
    bool is_its = strcmp(manifest.id, id) == 0;
    sti_manifest_fini(&manifest);
    return is_its;
}

static bool
is_unfinished_copy(const char *name)
{
    size_t n = strlen(name);

    return n > strlen(STI_PULL_SUFFIX) &&
           strcmp(name + n - strlen(STI_PULL_SUFFIX), STI_PULL_SUFFIX) == 0;
}

static int
clean(const struct sti_scan *scan, int dir_fd, uint32_t *n_removed)
{
    struct names names = {.is_wanted = is_left_over};
    int rc = list(scan->aio, dir_fd, ".", &names);

    for (uint32_t at = 0; rc == 0 && at < names.n; at++) {
        uint64_t step;
        char id[STI_ID_SIZE];
        enum sti_name_kind kind = sti_name_parse(names.names[at], &step, id);

        if (kind == STI_NAME_PARTS && is_alive(scan, step, id)) {
            /* It stays, but for copies in it that were cut off. */
            rc = remove_files(scan->aio, dir_fd, names.names[at], is_unfinished_copy);
            continue;
        }
        rc = remove_dir(scan->aio, dir_fd, names.names[at]);
        *n_removed += rc == 0;
    }
    sti_mem_free(names.names);
    return rc;
}

static int
clean_root(const struct sti_scan *scan, const char *root, uint32_t *n_removed)
{
    struct sti_aio_op op = {.kind = STI_AIO_OPEN,
                            .dir_fd = AT_FDCWD,
                            .path = root,
                            .open_flags = O_RDONLY | O_DIRECTORY};
    int fd = sti_aio_run(scan->aio, &op);

    if (fd < 0)
        return fd;
    int rc = clean(scan, fd, n_removed);
    op = (struct sti_aio_op){.kind = STI_AIO_CLOSE, .fd = fd};
    (void)sti_aio_run(scan->aio, &op); /* a directory: nothing to lose */
    return rc;
}

int
sti_scan_remove_orphans(const struct sti_scan *scan, const char *const *roots, uint32_t n_roots,
                        uint32_t *ret_n, stk_error *err)
{
    uint32_t n_removed = 0;
    const char *where = scan->path;
    int rc = clean(scan, scan->dir_fd, &n_removed);

    for (uint32_t at = 0; rc == 0 && at < n_roots; at++) {
        where = roots[at];
        if (strcmp(where, ".") != 0)
            rc = clean_root(scan, where, &n_removed);
    }
    *ret_n = n_removed;
    return rc < 0 ? sti_error_set_path(err, rc, where, "what dead writers left: %s",
                                       sti_error_text(rc))
                  : 0;
}
