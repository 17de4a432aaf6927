/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a checkpoint: its parts in parallel, directly, whole chunks, each checked
 * before a byte of it is handed out. One thread, which brings an aio of its own.
 */
#ifndef STI_CKPT_READER_H
#define STI_CKPT_READER_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/types.h>

#include "ckpt/scan.h"
#include "ckpt/slice.h"

struct sti_reader;

/* Reads bytes of the stream out of another copy of the checkpoint. They need not be right: the
 * reader checks them. Called on the reading thread, with its aio. */
typedef int (*sti_reader_spare_fn)(void *context, struct sti_aio *aio, uint64_t offset,
                                   uint64_t n_bytes, char *dst);

/*
 * slots, slot_bytes  reads at a time and of what size; a multiple of the chunk is used.
 * spare              NULL, or asked for what cannot be read, or is wrong, on all nodes.
 * may_lack           parts may be missing or cut: reading what they have fails.
 */
struct sti_reader_opts {
    struct sti_scan scan;
    uint32_t slots;
    uint32_t slot_bytes;
    bool is_buffered;
    bool may_lack;
    sti_reader_spare_fn spare;
    void *spare_context;
};

/* Called on the reading thread as work goes on; any result but 0 ends it with
 * -ECANCELED. */
typedef int (*sti_reader_progress_fn)(void *context, uint64_t done_bytes, uint64_t total_bytes);

/* Where a box of a tensor goes. */
struct sti_want {
    struct sti_slice slice;
    char *dst; /* sti_slice_bytes() */
};

/*
 * Opens the parts of a checkpoint. manifest: taken, also on failure. Errors:
 * STK_E_CORRUPT a part is missing or of another size, -EACCES, -EMFILE, -ENOMEM; err
 * names the part. ret_reader: returns owned.
 */
int
sti_reader_open(struct sti_reader **ret_reader, struct sti_manifest *manifest,
                const struct sti_reader_opts *opts, stk_error *err);

/* Opens a plain .safetensors file, which has no checksums. Errors: STK_E_CORRUPT, -ENOENT
 * ... */
int
sti_reader_open_file(struct sti_reader **ret_reader, const char *path,
                     const struct sti_reader_opts *opts, stk_error *err);

/* NULL is allowed. */
void
sti_reader_close(struct sti_reader *reader);

/* Uses another aio from now on: that of the thread that reads next, or NULL while none
 * does. */
void
sti_reader_set_aio(struct sti_reader *reader, struct sti_aio *aio);

/* Returns borrowed until the reader is closed. */
const struct sti_manifest *
sti_reader_manifest(const struct sti_reader *reader);

/* Bytes of the stream, and where they go. */
struct sti_range {
    uint64_t offset;
    uint64_t n_bytes;
    char *dst;
};

/* What is to be read in one go. */
struct sti_read_list {
    const struct sti_want *wants;
    const struct sti_range *ranges;
    uint32_t n_wants;
    uint32_t n_ranges;
};

/* Bytes so far that were wrong or could not be read where they were looked for first, and
 * came from another copy. */
uint64_t
sti_reader_mended_bytes(const struct sti_reader *reader);

/* What is wrong in one place is taken from another, if it is right there. Errors: STK_E_CORRUPT
 * (err names part and offset), -EIO, -ENOMEM. Blocks. */
int
sti_reader_read_list(struct sti_reader *reader, const struct sti_read_list *list, stk_error *err);

/* The same of n wants. */
int
sti_reader_read(struct sti_reader *reader, const struct sti_want *wants, uint32_t n,
                stk_error *err);

/* Reads the stream's bytes [offset, offset + n_bytes). */
int
sti_reader_read_stream(struct sti_reader *reader, uint64_t offset, uint64_t n_bytes, char *dst,
                       stk_error *err);

/* Reads one part and checks every chunk of it. Errors: as sti_reader_read_list(). */
int
sti_reader_verify_part(struct sti_reader *reader, uint32_t part, stk_error *err);

/* Reads everything and checks every chunk, each in one place only. progress may be NULL. */
int
sti_reader_verify(struct sti_reader *reader, sti_reader_progress_fn progress, void *context,
                  stk_error *err);

#endif
