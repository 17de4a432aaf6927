/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A data set of extents that the program lists: an index as shards have one, made from
 * the list and kept in memory. The files' paths are in its fingerprint, because nothing
 * else says what is in them. One thread, the aio's owner.
 */
#include "format/extents.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/mem.h"
#include "format/dataset_internal.h"
#include "format/hash.h"
#include "format/identity.h"
#include "format/time.h"
#include "io/aio.h"

#define FIELD "data"

struct place {
    const char *path; /* of an extent */
    uint64_t sample;
};

struct listing {
    struct sti_aio *aio;
    const stk_extent *extents;
    uint64_t n;
    struct place *places;  /* by path */
    uint32_t *source_of;   /* each sample's file */
    uint64_t *first_place; /* each file's, in places */
    uint32_t n_sources;
    struct sti_index_writer writer;
    stk_error *err;
};

static int
no_memory(const struct listing *listing)
{
    return sti_error_set(listing->err, -ENOMEM, "no memory for %" PRIu64 " extents", listing->n);
}

static int
compare_places(const void *left, const void *right)
{
    const struct place *a = left;
    const struct place *b = right;
    int order = strcmp(a->path, b->path);

    if (order != 0)
        return order;
    return a->sample < b->sample ? -1 : 1;
}

/* Numbers the files. */
static int
sort_files(struct listing *listing)
{
    listing->places = sti_mem_new(listing->n, sizeof(*listing->places));
    listing->source_of = sti_mem_new(listing->n, sizeof(*listing->source_of));
    listing->first_place = sti_mem_new(listing->n, sizeof(*listing->first_place));
    if (!listing->places || !listing->source_of || !listing->first_place)
        return no_memory(listing);
    for (uint64_t sample = 0; sample < listing->n; sample++) {
        const char *path = listing->extents[sample].path;

        if (!path || path[0] != '/' || path[1] == '\0')
            return sti_error_set(listing->err, -EINVAL,
                                 "extent %" PRIu64 ": its path must be absolute, not \"%.200s\"",
                                 sample, path ? path : "");
        listing->places[sample] = (struct place){path, sample};
    }
    qsort(listing->places, listing->n, sizeof(*listing->places), compare_places);
    for (uint64_t at = 0; at < listing->n; at++) {
        if (at == 0 || strcmp(listing->places[at - 1].path, listing->places[at].path) != 0) {
            if (listing->n_sources == UINT32_MAX)
                return sti_error_set(listing->err, -E2BIG, "extents of more than 2^32 - 1 files");
            listing->first_place[listing->n_sources++] = at;
        }
        listing->source_of[listing->places[at].sample] = listing->n_sources - 1;
    }
    return 0;
}

static int
begin_index(struct listing *listing)
{
    struct sti_index_head head = {.format = STK_FORMAT_TAR,
                                  .auto_format = STK_FORMAT_TAR,
                                  .home_source = STI_INDEX_NO_HOME,
                                  .samples = listing->n,
                                  .sources = listing->n_sources,
                                  .fields = 1,
                                  .names_bytes = listing->n + sizeof(FIELD)};

    for (uint64_t sample = 0; sample < listing->n && !head.has_labels; sample++)
        head.has_labels = listing->extents[sample].label != -1;
    for (uint32_t at = 0; at < listing->n_sources; at++) /* without the slash, with a NUL */
        head.names_bytes += strlen(listing->places[listing->first_place[at]].path);
    return sti_index_writer_init(&listing->writer, &head) < 0 ? no_memory(listing) : 0;
}

static void
put_samples(struct listing *listing)
{
    for (uint64_t sample = 0; sample < listing->n; sample++) {
        const stk_extent *extent = &listing->extents[sample];
        struct sti_index_span span = {.key = "",
                                      .offset = extent->offset,
                                      .n_bytes = extent->n_bytes,
                                      .source_idx = listing->source_of[sample]};

        sti_index_put_span(&listing->writer, sample, &span);
        if (listing->writer.head.has_labels)
            sti_index_put_label(&listing->writer, sample, extent->label);
    }
    sti_index_put_field(&listing->writer, 0, FIELD);
    sti_index_put_fingerprint(&listing->writer);
}

/* All extents of a file against its size. */
static int
check_file(const struct listing *listing, uint32_t source_idx, uint64_t file_bytes)
{
    uint64_t end =
        source_idx + 1 < listing->n_sources ? listing->first_place[source_idx + 1] : listing->n;

    for (uint64_t at = listing->first_place[source_idx]; at < end; at++) {
        const stk_extent *extent = &listing->extents[listing->places[at].sample];

        if (extent->n_bytes > file_bytes || extent->offset > file_bytes - extent->n_bytes)
            return sti_error_set_path(listing->err, -EINVAL, extent->path,
                                      "extent %" PRIu64 " (%" PRIu64 " bytes from %" PRIu64
                                      " on) ends behind the file's %" PRIu64 " bytes",
                                      listing->places[at].sample, extent->n_bytes, extent->offset,
                                      file_bytes);
    }
    return 0;
}

static int
put_file(struct listing *listing, uint32_t source_idx)
{
    const char *path = listing->places[listing->first_place[source_idx]].path;
    uint64_t *fingerprint = &listing->writer.head.fingerprint;
    struct statx found;
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .dir_fd = AT_FDCWD,
                            .path = path,
                            .statx = &found,
                            .statx_mask = STATX_TYPE | STATX_SIZE | STATX_MTIME};
    int rc = sti_aio_run(listing->aio, &op);

    if (rc == 0 && !S_ISREG(found.stx_mode))
        rc = S_ISDIR(found.stx_mode) ? -EISDIR : -EINVAL;
    if (rc < 0)
        return sti_error_set_path(listing->err, rc, path, "cannot use the file of an extent: %s",
                                  sti_error_text(rc));
    struct sti_index_source source = {.path = path + 1,
                                      .kind = STI_INDEX_DATA,
                                      .mtime_ns = sti_time_ns(&found.stx_mtime),
                                      .n_bytes = found.stx_size};
    sti_index_put_source(&listing->writer, source_idx, &source);
    *fingerprint = sti_hash(*fingerprint, path, strlen(path) + 1);
    return check_file(listing, source_idx, source.n_bytes);
}

static int
make_index(struct listing *listing)
{
    int rc = sort_files(listing);

    if (rc == 0)
        rc = begin_index(listing);
    if (rc < 0)
        return rc;
    put_samples(listing);
    for (uint32_t at = 0; rc == 0 && at < listing->n_sources; at++)
        rc = put_file(listing, at);
    if (rc < 0)
        return rc;
    if (listing->writer.head.fingerprint == 0)
        listing->writer.head.fingerprint = 1;
    rc = sti_index_seal(&listing->writer);
    return rc < 0 ? sti_error_set(listing->err, rc, "the extents add up to more than 2^63 bytes")
                  : 0;
}

/* Takes the index over. */
static int
fill(struct sti_dataset *dataset, struct listing *listing)
{
    dataset->image = (struct sti_store_image){.bytes = listing->writer.image,
                                              .n_bytes = listing->writer.head.index_bytes};
    listing->writer.image = NULL;
    dataset->was_built = true;
    dataset->n_files = listing->n_sources;
    dataset->shown = sti_mem_strdup("/");
    if (!dataset->shown)
        return no_memory(listing);
    dataset->dir_fd = sti_store_open_fd(listing->aio, AT_FDCWD, "/", O_RDONLY | O_DIRECTORY);
    if (dataset->dir_fd < 0)
        return sti_error_set_path(listing->err, dataset->dir_fd, "/", "cannot open it: %s",
                                  sti_error_text(dataset->dir_fd));
    int rc = sti_index_parse(&dataset->index, dataset->image.bytes, dataset->image.n_bytes,
                             listing->err);
    if (rc < 0)
        return rc;
    rc = sti_dataset_identify(dataset, listing->aio);
    return rc < 0 ? sti_error_set_path(listing->err, rc, "/", "cannot look at it: %s",
                                       sti_error_text(rc))
                  : 0;
}

int
sti_extents_open(struct sti_dataset **ret_dataset, struct sti_aio *aio, const stk_extent *extents,
                 uint64_t n, stk_error *err)
{
    struct listing listing = {.aio = aio, .extents = extents, .n = n, .err = err};

    if (n == 0 || n > STI_DATASET_SAMPLES_MAX)
        return sti_error_set(err, n == 0 ? -EINVAL : -E2BIG,
                             "%" PRIu64 " extents; a data set has 1 to 2^48", n);
    struct sti_dataset *dataset = sti_mem_new(1, sizeof(*dataset));
    if (!dataset)
        return no_memory(&listing);
    dataset->dir_fd = -1;
    int rc = make_index(&listing);
    if (rc == 0)
        rc = fill(dataset, &listing);
    sti_index_writer_fini(&listing.writer);
    sti_mem_free(listing.places);
    sti_mem_free(listing.source_of);
    sti_mem_free(listing.first_place);
    if (rc < 0) {
        sti_dataset_close(dataset);
        return rc;
    }
    *ret_dataset = dataset;
    return 0;
}
