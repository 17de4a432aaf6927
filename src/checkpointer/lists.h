/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program saves, as the saver takes it: names as they stand in the stream, blobs
 * behind the tensors, who holds what as groups of ranks.
 */
#ifndef STI_CHECKPOINTER_LISTS_H
#define STI_CHECKPOINTER_LISTS_H

#include <stoker/checkpoint.h>

#include "ckpt/saver.h"
#include "ckpt/text.h"

/* rank and world: of those that save together; the rest all zero at first. Borrows from the
 * stk_save. */
struct sti_lists {
    uint32_t rank;
    uint32_t world;
    struct sti_layout_input *inputs;
    struct sti_saver_tensor *tensors;
    struct sti_layout_pair *pairs;
    struct sti_group *groups;
    uint32_t n;
    uint32_t n_groups;
    uint64_t *blob_bytes;  /* shapes of blobs */
    struct sti_text names; /* of blobs and shards */
};

/* state: the loader's, n_state bytes (0: none). Errors: -EINVAL (err names the tensor or blob),
 * -ENOMEM. Freed with sti_lists_fini() in any case. */
int
sti_lists_take(struct sti_lists *lists, const stk_save *save, const void *state, size_t n_state,
               stk_error *err);

/* All zero is allowed. */
void
sti_lists_fini(struct sti_lists *lists);

#endif
