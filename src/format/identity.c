/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a data set is to a cache that outlives the job: not its shape alone, which another
 * data set may share, but the files that it lies in. Its fingerprint, the directory, each
 * source's name, time and size as they were indexed, and the index's own file, which a
 * rebuilt index has anew: the one thing that a file of a class folder leaves, whose bytes
 * were changed in their place.
 *
 * Names of devices are not in it, since network file systems get other ones with each
 * mount, and neither is how the path was spelled.
 */
#include "format/identity.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "format/dataset.h"
#include "format/hash.h"
#include "format/store.h"

static int
look_at(struct sti_aio *aio, int dir_fd, const char *path, struct statx *ret_found)
{
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .dir_fd = dir_fd,
                            .path = path,
                            .statx = ret_found,
                            .statx_mask = STATX_INO | STATX_BTIME};

    return sti_aio_run(aio, &op);
}

static uint64_t
add_file(uint64_t hash, const struct statx *found)
{
    hash = sti_hash_u64(hash, found->stx_ino);
    if (found->stx_mask & STATX_BTIME) {
        hash = sti_hash_u64(hash, (uint64_t)found->stx_btime.tv_sec);
        hash = sti_hash_u64(hash, found->stx_btime.tv_nsec);
    }
    return hash;
}

/* The identity of a data set by an index, its own or one that is in its place. */
static int
identify_by(const struct sti_dataset *dataset, const struct sti_index *index, struct sti_aio *aio,
            uint64_t *ret_identity)
{
    uint64_t hash = sti_hash_u64(STI_HASH_START, index->head.fingerprint);
    struct sti_index_source source;
    struct statx found;

    int rc = look_at(aio, dataset->dir_fd, ".", &found);
    if (rc < 0)
        return rc;
    hash = sti_hash_u64(hash, found.stx_ino);
    for (uint32_t at = 0; at < index->head.sources; at++) {
        rc = sti_index_get_source(index, at, &source);
        if (rc < 0)
            return rc;
        hash = sti_hash(hash, source.path, strlen(source.path) + 1);
        hash = sti_hash_u64(hash, source.kind);
        hash = sti_hash_u64(hash, (uint64_t)source.mtime_ns);
        hash = sti_hash_u64(hash, source.n_bytes);
    }
    if (dataset->index_path) {
        rc = look_at(aio, AT_FDCWD, dataset->index_path, &found);
        if (rc < 0)
            return rc;
        hash = add_file(hash, &found);
    }
    *ret_identity = hash;
    return 0;
}

int
sti_dataset_identify(struct sti_dataset *dataset, struct sti_aio *aio)
{
    return identify_by(dataset, &dataset->index, aio, &dataset->identity);
}

/* By the index that has come into the place of a data set's own, if it is of the same samples.
 * What it says of the sources' times may differ: the folder's is that of another index. */
static int
look_at_index(const struct sti_dataset *dataset, struct sti_aio *aio, uint64_t *ret_identity)
{
    struct sti_store_image image;
    struct sti_index index;

    int rc = sti_store_load(&image, aio, dataset->index_path, NULL);
    if (rc < 0)
        return rc;
    rc = sti_index_parse(&index, image.bytes, image.n_bytes, NULL);
    if (rc == 0 && index.head.fingerprint != dataset->index.head.fingerprint)
        rc = STK_E_MISMATCH;
    if (rc == 0)
        rc = identify_by(dataset, &index, aio, ret_identity);
    sti_store_release(&image);
    return rc;
}

static int
look_at_view(const struct sti_view *view, struct sti_aio *aio, uint64_t *ret_identity)
{
    uint64_t hash = view->identity_start;

    for (uint32_t at = 0; at < view->n; at++) {
        uint64_t child = 0;
        int rc = sti_dataset_look(view->children[at], aio, &child);

        if (rc < 0)
            return rc;
        hash = sti_hash_u64(hash, child);
    }
    *ret_identity = hash;
    return 0;
}

int
sti_dataset_look(const struct sti_dataset *dataset, struct sti_aio *aio, uint64_t *ret_identity)
{
    if (dataset->view)
        return look_at_view(dataset->view, aio, ret_identity);
    if (dataset->index_path)
        return look_at_index(dataset, aio, ret_identity);
    *ret_identity = dataset->identity; /* nobody else knows of its index */
    return 0;
}
