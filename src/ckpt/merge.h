/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the writers of a set have written, each in a stream of its own, becomes one
 * checkpoint: one stream, one header, and where in it each part's bytes belong.
 */
#ifndef STI_CKPT_MERGE_H
#define STI_CKPT_MERGE_H

#include "ckpt/manifest.h"
#include "ckpt/vote.h"

/* What the ballots must be of, and the ballots, one of each writer; borrowed for the call. */
struct sti_merge {
    uint64_t step;
    const char *id;
    uint32_t world;
    uint32_t chunk_bytes;
    const struct sti_ballot *ballots;
};

/* manifest has everything but the time and the header's part, for which there is room at the
 * end of its parts. The rest is its memory. All zero is empty. */
struct sti_merged {
    struct sti_manifest manifest;
    struct sti_manifest *ballots;
    uint32_t world;
    uint32_t **places; /* of each writer's tensors: in the list that the layout was made from */
    struct sti_part_extent *extents;
};

/*
 * Puts ballots together. Metadata is the first writer's. Errors: STK_E_MISMATCH the writers
 * do not hold the same, or two give one name (err says which tensor and names the writers,
 * err->rank is the later one), STK_E_CORRUPT a ballot, -EINVAL, -ENOMEM. Then merged is empty.
 */
int
sti_merge(struct sti_merged *merged, const struct sti_merge *from, stk_error *err);

void
sti_merged_fini(struct sti_merged *merged);

#endif
