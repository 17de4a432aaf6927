/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest: what makes a checkpoint of some files. Its existence under the name
 * step-N is the checkpoint's. The bytes are described in docs/format/checkpoint.md.
 *
 * A ballot is the same of what one writer of several has written, in a stream of its own:
 * from all of them the manifest is put together (ckpt/merge.h).
 */
#ifndef STI_CKPT_MANIFEST_H
#define STI_CKPT_MANIFEST_H

#include <stdint.h>

#include <stoker/types.h>

#include "ckpt/layout.h"
#include "ckpt/names.h"
#include "ckpt/text.h"

#define STI_MANIFEST_VERSION 2 /* the newest that is read */
#define STI_MANIFEST_MAX_BYTES (UINT64_C(1) << 30)
#define STI_MANIFEST_CRC_BYTES 8u /* of text, for each chunk */
#define STI_CHUNK_MIN_BYTES 4096u
#define STI_CHUNK_MAX_BYTES (64u << 20)
#define STI_ROOTS_MAX 64u

/* A stretch of the stream; the extents of a part lie one after the other in its file. */
struct sti_part_extent {
    uint64_t offset; /* in the stream */
    uint64_t n_bytes;
};

/* What one writer wrote to one root: a file. The writer beyond the last is the header's. */
struct sti_part {
    uint32_t writer;
    uint32_t root;
    uint32_t number; /* of the writer's own roots; the file is named by it */
    uint32_t n_extents;
    uint32_t n_chunks;
    uint64_t n_bytes;
    struct sti_part_extent *extents;
    uint32_t *crcs; /* CRC-32C of each chunk_bytes of the file, the last one shorter */
};

/* Writers that hold the same tensors, in rising order. */
struct sti_group {
    const uint32_t *writers;
    uint32_t n_writers;
};

struct sti_manifest {
    uint64_t step;
    uint64_t created_ns; /* time of day, for people */
    uint32_t world;
    uint32_t chunk_bytes;
    char id[STI_ID_SIZE];
    struct sti_layout layout; /* without header bytes */
    const char **roots;       /* "." is the directory of the manifest's own checkpoint */
    struct sti_part *parts;
    uint32_t n_roots;
    uint32_t n_parts;
    void *memory; /* of a decoded one: what roots, extents and CRCs lie in */

    /* Of a ballot. An owner in its layout is the number of a group. */
    const struct sti_group *groups;
    uint32_t n_groups;
    const uint32_t *sums; /* NULL, or the CRC-32C of each tensor of the layout */
    void *group_memory;   /* of a decoded one */
};

/* Appends the manifest's bytes. layout has its header. Failure is in text->is_failed. */
void
sti_manifest_encode(const struct sti_manifest *manifest, struct sti_text *text);

/*
 * Reads a manifest that may come from anywhere. Errors: STK_E_CORRUPT (err says what),
 * STK_E_VERSION, -ENOMEM. On success it is owned by the caller.
 */
int
sti_manifest_decode(struct sti_manifest *manifest, const char *bytes, uint64_t n_bytes,
                    stk_error *err);

/* The same of ballots. Everything that a manifest has is checked but that the extents cover
 * the stream: they only lie in its data, none over another. */
void
sti_ballot_encode(const struct sti_manifest *ballot, struct sti_text *text);
int
sti_ballot_decode(struct sti_manifest *ballot, const char *bytes, uint64_t n_bytes, stk_error *err);

/* Whether the extents of all parts cover the stream exactly once. Errors: STK_E_CORRUPT,
 * -ENOMEM. */
int
sti_manifest_check_cover(const struct sti_manifest *manifest, stk_error *err);

/* Frees what a decoded manifest owns; all zero is allowed. */
void
sti_manifest_fini(struct sti_manifest *manifest);

#endif
