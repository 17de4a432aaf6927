/* SPDX-License-Identifier: Apache-2.0 */
/* The file of an index: mapping one that is there, putting one in its place. */
#ifndef STI_FORMAT_STORE_H
#define STI_FORMAT_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/types.h>

struct sti_aio;

/* The bytes of an index, mapped from its file or in memory. */
struct sti_store_image {
    void *bytes;
    uint64_t n_bytes;
    bool is_mapped;
};

/* Unmaps or frees; all zero is allowed. */
void
sti_store_release(struct sti_store_image *image);

/*
 * Maps the index at path for reading. It stays whole until it is released: indexes are
 * replaced by renaming, never shortened. Errors: -ENOENT, -EACCES (without words in err),
 * STK_E_CORRUPT no regular file or empty, -EIO, -ENOMEM.
 */
int
sti_store_load(struct sti_store_image *ret_image, struct sti_aio *aio, const char *path,
               stk_error *err);

/*
 * Puts an index at path: written beside it under another name, synced, renamed, the
 * directory synced; a crash leaves the old one, the new one, or a file that nobody looks
 * at. Errors: -EROFS, -EACCES, -EPERM where the place cannot be written, -ENOSPC, -EIO,
 * -ENOMEM.
 */
int
sti_store_save(struct sti_aio *aio, const char *path, const struct sti_store_image *image,
               stk_error *err);

/* Writes n_bytes at an offset of an open file, continuing short writes. */
int
sti_store_write(struct sti_aio *aio, int fd, const void *bytes, uint64_t n_bytes, uint64_t offset);

/* Opens dir_fd/path. Returns the descriptor or a negative code. */
int
sti_store_open_fd(struct sti_aio *aio, int dir_fd, const char *path, uint32_t open_flags);

void
sti_store_close_fd(struct sti_aio *aio, int fd);

#endif
