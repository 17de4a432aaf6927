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

#include "format/hash.h"

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

int
sti_dataset_identify(struct sti_dataset *dataset, struct sti_aio *aio)
{
    const struct sti_index_head *head = &dataset->index.head;
    uint64_t hash = sti_hash_u64(STI_HASH_START, head->fingerprint);
    struct sti_index_source source;
    struct statx found;

    int rc = look_at(aio, dataset->dir_fd, ".", &found);
    if (rc < 0)
        return rc;
    hash = sti_hash_u64(hash, found.stx_ino);
    for (uint32_t at = 0; at < head->sources; at++) {
        rc = sti_index_get_source(&dataset->index, at, &source);
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
    dataset->identity = hash;
    return 0;
}
