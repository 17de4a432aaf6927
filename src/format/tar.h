/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tar archives, uncompressed: GNU, pax, ustar and v7 headers. A parser that is given
 * windows of the archive and says which member comes next or what it has to see; it reads
 * nothing itself, so the data of members is never looked at but where they are very
 * short. Pure; any thread.
 */
#ifndef STI_FORMAT_TAR_H
#define STI_FORMAT_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stoker/types.h>

#define STI_TAR_BLOCK_BYTES 512
#define STI_TAR_PATH_SIZE 4096 /* with its NUL */
/* Data of members up to this size is shown along with them. */
#define STI_TAR_SHORT_BYTES 64
/* What has to be seen at once, at most: an extended header with its records. */
#define STI_TAR_NEED_MAX ((uint64_t)1 << 20)

/* Bytes of an archive. */
struct sti_tar_window {
    const unsigned char *bytes;
    uint64_t offset; /* in the archive */
    uint64_t n_bytes;
};

/* A regular file in an archive. */
struct sti_tar_member {
    const char *path; /* as it is stored; borrowed until the next call */
    uint64_t header_offset;
    uint64_t offset; /* of the data */
    uint64_t n_bytes;
    const unsigned char *data; /* up to STI_TAR_SHORT_BYTES of them, in the window; else NULL */
};

/* Where one is in an archive. */
struct sti_tar {
    uint64_t n_bytes;  /* of the archive, at most INT64_MAX */
    const char *shown; /* its path, for errors; borrowed */
    uint64_t offset;   /* of the header that comes next */
    uint64_t need_bytes;
    uint64_t size; /* from an extended header, for the next member */
    bool has_size;
    bool has_path;
    char path[STI_TAR_PATH_SIZE];
};

enum sti_tar_step {
    STI_TAR_END,    /* there are no more members */
    STI_TAR_MEMBER, /* one was found */
    STI_TAR_NEED    /* [offset, offset + need_bytes) must be in the window, within n_bytes */
};

/* Starts at the beginning of an archive of n_bytes. shown: borrowed as long as tar is
 * used. */
void
sti_tar_init(struct sti_tar *tar, uint64_t n_bytes, const char *shown);

/*
 * Finds the next regular file. Directories, devices and FIFOs are passed over. Returns an
 * enum sti_tar_step, or -EINVAL: err says what is wrong, where, and what to do (no
 * archive, compressed, a damaged header, sparse, a link, a member that runs past the
 * end).
 */
int
sti_tar_next(struct sti_tar *tar, const struct sti_tar_window *window,
             struct sti_tar_member *ret_member, stk_error *err);

/*
 * Splits a member's path as WebDataset does: the key is everything up to the first dot of
 * the last part, what is behind that dot is the field. Returns the length of the key,
 * with ret_field pointing into path; 0 where the file belongs to no sample: no dot, a
 * name that begins with one, or __name__.
 */
size_t
sti_tar_split(const char *path, const char **ret_field);

#endif
