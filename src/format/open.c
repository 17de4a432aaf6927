/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a data set: find what is at the path; take the index that is there if it was
 * made with these options; else make one, and put it where it can be written: at
 * index_path if that is given, else beside the data, else in the cache directory, else
 * nowhere. Places that may not be written or are full are passed over.
 *
 * A data set of shards is a list of names before it is anything else: it is made at every
 * open, from the pattern or the directory, and compared with the index's. Only where a
 * directory is opened without a format is that put off until an index was found or has to
 * be made, because a plain folder of many files should not be listed for nothing.
 *
 * An index made with other options is replaced. One that is damaged, of another version
 * or stale is refused with the reason, because a job that silently trains on other
 * samples than the day before is worse than one that does not start. One thread, the
 * aio's owner.
 */
#include "format/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/mem.h"
#include "format/file.h"
#include "format/folder.h"
#include "format/fresh.h"
#include "format/identity.h"
#include "format/name.h"
#include "format/open_internal.h"
#include "format/options.h"
#include "format/path.h"
#include "format/tar_index.h"
#include "format/time.h"
#include "io/aio.h"

static void
opening_fini(struct sti_opening *opening)
{
    sti_mem_free(opening->name);
    for (uint32_t i = 0; i < STI_OPENING_PLACES; i++)
        sti_mem_free(opening->places[i]);
    sti_shards_fini(&opening->shards);
    sti_tree_fini(&opening->tree);
}

static struct sti_fresh_place
fresh_place(const struct sti_opening *opening, const char *index_path)
{
    return (struct sti_fresh_place){.dir_fd = opening->dataset->dir_fd,
                                    .shown = opening->dataset->shown,
                                    .labels_path = opening->opts.labels_path,
                                    .index_path = index_path};
}

/* Makes the data set read its image, and names the index in errors. */
static int
adopt(struct sti_opening *opening, const char *index_path)
{
    struct sti_dataset *dataset = opening->dataset;
    struct sti_index_source data;

    dataset->index_path = index_path ? sti_mem_strdup(index_path) : NULL;
    if (index_path && !dataset->index_path)
        return sti_opening_no_memory(opening);
    if (dataset->index.head.format == STK_FORMAT_TAR)
        dataset->n_files = dataset->index.head.sources;
    if (!sti_index_is_one_file(dataset->index.head.format))
        return 0;
    if (sti_index_get_source(&dataset->index, 0, &data) < 0)
        return sti_error_set_path(opening->err, STK_E_CORRUPT, index_path,
                                  "the index changed while it was read");
    dataset->file_name = data.path;
    dataset->file_bytes = data.n_bytes;
    dataset->file_mtime_ns = data.mtime_ns;
    dataset->n_files = 1;
    return 0;
}

/* Whether an index that can be read is one of this data set with these options. */
static bool
is_wanted(const struct sti_opening *opening, const struct sti_index *index)
{
    struct sti_index_source data;

    if (!sti_options_match(&opening->opts, &index->head))
        return false;
    if (index->head.format == STK_FORMAT_TAR)
        return opening->is_tar || opening->is_dir;
    if (opening->is_tar)
        return false;
    if (opening->is_dir == sti_index_is_one_file(index->head.format))
        return false;
    return opening->is_dir ||
           (sti_index_get_source(index, 0, &data) == 0 && strcmp(data.path, opening->name) == 0);
}

/* Whether an index of shards is of those that are there. */
static int
check_shards(struct sti_opening *opening)
{
    const struct sti_dataset *dataset = opening->dataset;
    int rc = 0;

    if (dataset->index.head.format != STK_FORMAT_TAR)
        return 0;
    if (!opening->is_tar) { /* a directory that was put off */
        opening->is_tar = true;
        rc = sti_opening_find_shards(opening);
    }
    if (rc == 0)
        rc = sti_shards_compare(&opening->shards, &dataset->index, dataset->shown, opening->err);
    return rc;
}

static int
check_index(struct sti_opening *opening, const char *place)
{
    struct sti_dataset *dataset = opening->dataset;
    struct sti_fresh_place fresh = fresh_place(opening, place);
    stk_error *err = opening->err;
    int rc = sti_index_verify(&dataset->index, err);

    if (rc < 0)
        (void)snprintf(err->path, sizeof(err->path), "%s", place); /* truncation is fine here */
    else
        rc = check_shards(opening);
    if (rc == 0)
        rc = sti_fresh_check(&dataset->index, opening->aio, &fresh, err);
    return rc;
}

/* Takes the index at a place. Returns 1 if it is taken, 0 if there is none to be
 * taken. */
static int
take(struct sti_opening *opening, const char *place)
{
    struct sti_dataset *dataset = opening->dataset;
    stk_error *err = opening->err;
    int rc = sti_store_load(&dataset->image, opening->aio, place, err);

    if (rc == -ENOENT || rc == -EACCES || rc == -ENOTDIR)
        return 0;
    if (rc < 0)
        return rc;
    rc = sti_index_parse(&dataset->index, dataset->image.bytes, dataset->image.n_bytes, err);
    if (rc < 0) {
        (void)snprintf(err->path, sizeof(err->path), "%s", place); /* as above */
        return rc;
    }
    if (!is_wanted(opening, &dataset->index)) {
        sti_store_release(&dataset->image);
        return 0;
    }
    rc = check_index(opening, place);
    if (rc == 0)
        rc = adopt(opening, place);
    return rc < 0 ? rc : 1;
}

/* Whether a directory that was opened without a format holds shards. */
static int
recognise_shards(struct sti_opening *opening)
{
    const struct sti_dataset *dataset = opening->dataset;
    bool is_alone = false;

    if (!opening->is_dir || opening->is_tar || opening->opts.format != STK_FORMAT_AUTO ||
        opening->opts.extensions)
        return 0;
    int rc = sti_shards_list(&opening->shards, opening->aio, dataset->dir_fd, dataset->shown,
                             &is_alone, opening->err);
    opening->is_tar = is_alone;
    return rc;
}

static int
build(struct sti_opening *opening)
{
    struct sti_dataset *dataset = opening->dataset;
    struct sti_index_writer writer = {.image = NULL};
    int rc = recognise_shards(opening);

    if (rc < 0)
        return rc;
    if (!opening->is_tar && opening->opts.fields)
        return sti_error_set_path(opening->err, -EINVAL, opening->path,
                                  "fields is an option of shards; these are none");
    if (opening->is_tar) {
        struct sti_tar_place place = {
            .dir_fd = dataset->dir_fd, .shown = dataset->shown, .shards = &opening->shards};
        rc = sti_tar_index(&writer, opening->aio, &place, &opening->opts, opening->err);
    } else if (opening->is_dir) {
        opening->tree.root_fd = dataset->dir_fd;
        opening->tree.shown = opening->path;
        rc = sti_folder_index(&writer, &opening->tree, opening->aio, &opening->opts, opening->err);
    } else {
        struct sti_file file = {.dir_fd = dataset->dir_fd,
                                .name = opening->name,
                                .shown = opening->path,
                                .n_bytes = opening->found.stx_size,
                                .mtime_ns = sti_time_ns(&opening->found.stx_mtime)};
        rc = sti_file_index(&writer, opening->aio, &file, &opening->opts, opening->err);
    }
    if (rc == 0)
        dataset->image =
            (struct sti_store_image){.bytes = writer.image, .n_bytes = writer.head.index_bytes};
    else
        sti_index_writer_fini(&writer);
    dataset->was_built = true;
    return rc;
}

/* Notes in the image whether it is going to lie in a directory of its own data set. */
static int
note_home(struct sti_opening *opening, const char *place)
{
    struct statx found;
    char *directory = sti_path_directory(place);
    uint32_t home = STI_INDEX_NO_HOME;
    uint64_t hash = 0;

    if (!directory)
        return sti_opening_no_memory(opening);
    int rc = sti_opening_stat(opening->aio, directory, &found);
    sti_mem_free(directory);
    if (rc == 0) {
        uint32_t dir_idx = sti_tree_find(&opening->tree, sti_time_device(&found), found.stx_ino);
        if (dir_idx != STI_TREE_NONE) {
            home = dir_idx;
            hash = opening->tree.dirs[dir_idx]->names_hash;
        }
    }
    const char *slash = strrchr(place, '/');
    if (home != STI_INDEX_NO_HOME && !sti_name_is_index(slash ? slash : place))
        return sti_error_set_path(opening->err, -EINVAL, place,
                                  "index_path lies inside the data set and would look like a "
                                  "sample; its name must end in " STI_NAME_INDEX);
    sti_index_put_home(opening->dataset->image.bytes, home, hash);
    return 0;
}

static int
make_cache_dir(const struct sti_opening *opening)
{
    struct sti_aio_op op = {
        .kind = STI_AIO_MKDIR, .dir_fd = AT_FDCWD, .path = opening->cache_dir, .mode = 0777};

    int rc = sti_aio_run(opening->aio, &op);
    if (rc == 0 || rc == -EEXIST)
        return 0;
    return sti_error_set_path(opening->err, rc, opening->cache_dir,
                              "cannot make the cache directory: %s", sti_error_text(rc));
}

static bool
is_unwritable(int code)
{
    static const int codes[] = {-EROFS, -EACCES, -EPERM, -ENOSPC, -EDQUOT, -EFBIG, -ENOTDIR};

    for (size_t at = 0; at < sizeof(codes) / sizeof(codes[0]); at++)
        if (codes[at] == code)
            return true;
    return false;
}

/* Puts what was built at the first place that takes it. Returns that, or NULL in
 * ret_place. */
static int
save(struct sti_opening *opening, const char **ret_place)
{
    struct sti_dataset *dataset = opening->dataset;

    *ret_place = NULL;
    for (uint32_t i = 0; i < opening->n_places; i++) {
        const char *place = opening->places[i];
        int rc = i > 0 ? make_cache_dir(opening) : 0;

        if (rc < 0) {
            dataset->save_code = rc;
            continue;
        }
        rc = note_home(opening, place);
        if (rc == 0)
            rc = sti_store_save(opening->aio, place, &dataset->image, opening->err);
        dataset->save_code = rc;
        if (rc == 0) {
            *ret_place = place;
            return 0;
        }
        if (!is_unwritable(rc) || opening->opts.index_path)
            return rc;
    }
    return 0;
}

/* Trades the image in memory for its file, which costs nothing when it is not looked at;
 * where that cannot be mapped, or is another process's by now, the one in memory
 * stays. */
static void
map_instead(struct sti_opening *opening, const char *place)
{
    struct sti_dataset *dataset = opening->dataset;
    struct sti_store_image mapped;

    if (sti_store_load(&mapped, opening->aio, place, NULL) < 0)
        return;
    if (mapped.n_bytes == dataset->image.n_bytes &&
        memcmp(mapped.bytes, dataset->image.bytes, STI_INDEX_STAMP_AT) == 0) {
        sti_store_release(&dataset->image);
        dataset->image = mapped;
    } else {
        sti_store_release(&mapped);
    }
}

static int
make(struct sti_opening *opening)
{
    struct sti_dataset *dataset = opening->dataset;
    const char *place = NULL;
    int rc = build(opening);

    if (rc == 0)
        rc = save(opening, &place);
    if (rc < 0)
        return rc;
    if (place)
        map_instead(opening, place);
    rc = sti_index_parse(&dataset->index, dataset->image.bytes, dataset->image.n_bytes,
                         opening->err);
    if (rc == 0)
        rc = adopt(opening, place);
    if (rc == 0 && dataset->index.head.format == STK_FORMAT_TAR) {
        struct sti_fresh_place fresh = fresh_place(opening, place);

        /* Reading headers takes a while; what was changed meanwhile is not what was
         * indexed. */
        rc = sti_fresh_check(&dataset->index, opening->aio, &fresh, opening->err);
    } else if (rc == 0 && place) {
        struct sti_fresh_place fresh = fresh_place(opening, place);

        /* What has changed meanwhile, the next open will find. */
        (void)sti_fresh_settle(&dataset->index, opening->aio, &fresh, NULL);
    }
    return rc;
}

static int
open_data(struct sti_opening *opening)
{
    int rc = sti_opening_find(opening);

    if (rc == 0)
        rc = sti_opening_list_places(opening);
    for (uint32_t i = 0; rc == 0 && i < opening->n_places && !opening->opts.rebuild; i++)
        rc = take(opening, opening->places[i]);
    if (rc == 0)
        rc = make(opening);
    if (rc < 0)
        return rc;
    rc = sti_dataset_identify(opening->dataset, opening->aio);
    return rc < 0 ? sti_error_set_path(opening->err, rc, opening->path,
                                       "cannot look at what was indexed: %s", sti_error_text(rc))
                  : 0;
}

int
sti_dataset_open(struct sti_dataset **ret_dataset, struct sti_aio *aio, const char *path,
                 const stk_dataset_opts *opts, const char *cache_dir, stk_error *err)
{
    stk_error scratch; /* places that are tried in vain leave words, err is for failure only */
    struct sti_opening opening = {
        .aio = aio, .path = path, .cache_dir = cache_dir, .err = &scratch};
    int rc = sti_options_check(&opening.opts, opts, err);

    if (rc < 0)
        return rc;
    opening.dataset = sti_mem_new(1, sizeof(*opening.dataset));
    if (!opening.dataset)
        return sti_error_set_path(err, -ENOMEM, path, "no memory to open the data set");
    opening.dataset->dir_fd = -1;
    rc = open_data(&opening);
    opening_fini(&opening);
    if (rc < 0) {
        sti_dataset_close(opening.dataset);
        if (err)
            *err = scratch;
        return rc;
    }
    *ret_dataset = opening.dataset;
    return 0;
}
