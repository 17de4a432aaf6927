/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a path is: a folder, a file, or shards, and where its index may be. A pattern is
 * one only where nothing has that very name. Invariant: dir_fd and shown are the
 * directory that every name of the data set is relative to. One thread, the aio's owner.
 */
#include "format/open_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"
#include "format/hash.h"
#include "format/name.h"
#include "format/options.h"
#include "format/path.h"
#include "io/aio.h"

#define MASK (STATX_TYPE | STATX_MODE | STATX_INO | STATX_SIZE | STATX_MTIME)

int
sti_opening_no_memory(const struct sti_opening *opening)
{
    return sti_error_set_path(opening->err, -ENOMEM, opening->path,
                              "no memory to open the data set");
}

int
sti_opening_stat(struct sti_aio *aio, const char *path, struct statx *ret_found)
{
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .dir_fd = AT_FDCWD,
                            .path = path,
                            .statx = ret_found,
                            .statx_mask = MASK};

    return sti_aio_run(aio, &op);
}

/* Options that contradict shards. */
static int
check_tar(const struct sti_opening *opening)
{
    if (opening->opts.labels_path || opening->opts.extensions)
        return sti_error_set_path(opening->err, -EINVAL, opening->path,
                                  "labels_path and extensions are no options of shards");
    return 0;
}

/* Options that contradict what lies at the path. */
static int
check_kind(const struct sti_opening *opening)
{
    const stk_dataset_opts *opts = &opening->opts;

    if (opening->is_tar)
        return check_tar(opening);
    if (opening->is_dir && sti_index_is_one_file(opts->format))
        return sti_error_set_path(opening->err, -EISDIR, opening->path,
                                  "a directory; the format asked for is one file");
    if (!opening->is_dir && !S_ISREG(opening->found.stx_mode))
        return sti_error_set_path(opening->err, -EINVAL, opening->path,
                                  "neither a directory nor a regular file");
    if (!opening->is_dir && opts->format && !sti_index_is_one_file(opts->format))
        return sti_error_set_path(opening->err, -ENOTDIR, opening->path,
                                  "a file; the format asked for is a folder");
    if (opening->is_dir && opts->labels_path)
        return sti_error_set_path(opening->err, -EINVAL, opening->path,
                                  "labels_path is an option of data sets that are one file");
    if (!opening->is_dir && opts->extensions)
        return sti_error_set_path(opening->err, -EINVAL, opening->path,
                                  "extensions is an option of folders; this is a file");
    return 0;
}

/* What AUTO takes for shards by name, compressed ones too: what to do about these is told
 * when they are read. */
#define TAR_ENDINGS ".tar .tar.gz .tgz .tar.zst .tar.xz .tar.bz2 .tar.lz4"

/* Looks at the path. */
static int
find_kind(struct sti_opening *opening)
{
    const char *path = opening->path;
    uint32_t format = opening->opts.format;
    bool may_be_tar = format == STK_FORMAT_AUTO || format == STK_FORMAT_TAR;
    int rc = sti_opening_stat(opening->aio, path, &opening->found);

    if ((rc == -ENOENT || rc == -ENOTDIR || rc == -ENAMETOOLONG) && may_be_tar &&
        sti_shards_is_pattern(path)) {
        opening->is_list = true;
        opening->is_tar = true;
        return check_tar(opening);
    }
    if (rc < 0)
        return sti_error_set_path(opening->err, rc, path, "cannot open the data set: %s",
                                  sti_error_text(rc));
    opening->is_dir = S_ISDIR(opening->found.stx_mode);
    opening->is_tar =
        format == STK_FORMAT_TAR || (format == STK_FORMAT_AUTO && !opening->is_dir &&
                                     sti_name_has_ending(path, strlen(path), TAR_ENDINGS));
    return check_kind(opening);
}

/* The directory that extents are relative to, and what is in it. */
static int
name_data(struct sti_opening *opening)
{
    struct sti_dataset *dataset = opening->dataset;
    const char *part = sti_shards_pattern_part(opening->path);

    if (opening->is_dir) {
        dataset->shown = sti_mem_strdup(opening->path);
        return dataset->shown ? 0 : sti_opening_no_memory(opening);
    }
    if (opening->is_list) {
        dataset->shown =
            part == opening->path ? sti_mem_strdup(".") : sti_mem_strdup(opening->path);
        if (dataset->shown && part > opening->path + 1)
            dataset->shown[part - opening->path - 1] = '\0';
        else if (dataset->shown && part > opening->path)
            dataset->shown[1] = '\0'; /* the root */
        opening->name = sti_mem_strdup(part);
    } else {
        dataset->shown = sti_path_directory(opening->path);
        opening->name = sti_path_name(opening->path);
    }
    return dataset->shown && opening->name ? 0 : sti_opening_no_memory(opening);
}

/* The names of the shards, where it is known that there are some. */
int
sti_opening_find_shards(struct sti_opening *opening)
{
    const struct sti_dataset *dataset = opening->dataset;
    int rc;

    if (!opening->is_tar)
        return 0;
    if (opening->is_list)
        return sti_shards_find(&opening->shards, opening->aio, dataset->dir_fd, dataset->shown,
                               opening->path, opening->err);
    if (!opening->is_dir) {
        rc = sti_shards_add(&opening->shards, opening->name);
        return rc < 0 ? sti_opening_no_memory(opening) : 0;
    }
    rc = sti_shards_list(&opening->shards, opening->aio, dataset->dir_fd, dataset->shown, NULL,
                         opening->err);
    if (rc == 0 && opening->shards.n == 0)
        return sti_error_set_path(opening->err, -EINVAL, dataset->shown,
                                  "no file in it ends in .tar; compressed archives have to be "
                                  "decompressed first: gunzip, zstd -d, xz -d");
    return rc;
}

/* Finds what is at the path and opens the directory that extents are relative to. */
int
sti_opening_find(struct sti_opening *opening)
{
    struct sti_dataset *dataset = opening->dataset;
    int rc = find_kind(opening);

    if (rc == 0)
        rc = name_data(opening);
    if (rc < 0)
        return rc;
    rc = sti_store_open_fd(opening->aio, AT_FDCWD, dataset->shown, O_PATH | O_DIRECTORY);
    if (rc < 0)
        return sti_error_set_path(opening->err, rc, dataset->shown, "cannot open: %s",
                                  sti_error_text(rc));
    dataset->dir_fd = rc;
    return sti_opening_find_shards(opening);
}

/* The path of the index in the cache directory: named by the data's canonical path, which
 * the kernel tells of an open directory, and the options. */
static char *
cache_place(const struct sti_opening *opening)
{
    char link[64], name[64];
    char *canonical = sti_mem_new(PATH_MAX, 1);

    if (!canonical)
        return NULL;
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", opening->dataset->dir_fd);
    ssize_t n = readlink(link, canonical, PATH_MAX - 1);
    const char *directory = n > 0 ? canonical : opening->dataset->shown;
    uint64_t hash = sti_hash(STI_HASH_START, directory, strlen(directory) + 1);
    if (opening->name)
        hash = sti_hash(hash, opening->name, strlen(opening->name) + 1);
    hash = sti_hash_u64(hash, sti_options_hash(&opening->opts, opening->opts.format));
    sti_mem_free(canonical);
    (void)snprintf(name, sizeof(name), "%016llx" STI_NAME_INDEX, (unsigned long long)hash);
    return sti_path_join(opening->cache_dir, name);
}

/* The index of a list lies in the shards' directory, named by the pattern. */
static char *
list_place(const struct sti_opening *opening)
{
    char name[64];
    uint64_t hash = sti_hash(STI_HASH_START, opening->name, strlen(opening->name));

    (void)snprintf(name, sizeof(name), ".%016llx" STI_NAME_INDEX, (unsigned long long)hash);
    return sti_path_join(opening->dataset->shown, name);
}

int
sti_opening_list_places(struct sti_opening *opening)
{
    if (opening->opts.index_path) {
        opening->places[0] = sti_mem_strdup(opening->opts.index_path);
    } else if (opening->is_dir) {
        opening->places[0] = sti_path_join(opening->path, STI_NAME_INDEX);
    } else if (opening->is_list) {
        opening->places[0] = list_place(opening);
    } else {
        size_t n = strlen(opening->name) + sizeof(STI_NAME_INDEX);
        char *name = sti_mem_new(n, 1);
        if (!name)
            return sti_opening_no_memory(opening);
        (void)snprintf(name, n, "%s" STI_NAME_INDEX, opening->name); /* it fits */
        opening->places[0] = sti_path_join(opening->dataset->shown, name);
        sti_mem_free(name);
    }
    if (!opening->places[0])
        return sti_opening_no_memory(opening);
    opening->n_places = 1;
    if (opening->opts.index_path || !opening->cache_dir)
        return 0;
    opening->places[1] = cache_place(opening);
    if (!opening->places[1])
        return sti_opening_no_memory(opening);
    opening->n_places = 2;
    return 0;
}
