/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpointer: resolves what a person asked for, opens directory and roots, owns a
 * saver attached to the engine's loop, and opens checkpoints for reading.
 */
#ifndef STI_CHECKPOINTER_CHECKPOINTER_H
#define STI_CHECKPOINTER_CHECKPOINTER_H

#include <stoker/checkpoint.h>

#include "ckpt/reader.h"
#include "engine/engine.h"

struct sti_checkpointer;

/* Errors: see stk_ckpt_open(); opts of full size. ret_checkpointer: returns owned. */
int
sti_checkpointer_open(struct sti_checkpointer **ret_checkpointer, struct sti_engine *engine,
                      const char *directory, const stk_ckpt_opts *opts, stk_error *err);

/* NULL is allowed. */
void
sti_checkpointer_close(struct sti_checkpointer *checkpointer);

/* These are what the public functions of the same names do. state: the loader's, n_state
 * bytes (0: none). */
int
sti_checkpointer_save(struct sti_checkpointer *checkpointer, const stk_save *save,
                      const void *state, size_t n_state, stk_error *err);
int
sti_checkpointer_fence(struct sti_checkpointer *checkpointer, stk_error *err);
int
sti_checkpointer_fence_tensor(struct sti_checkpointer *checkpointer, uint32_t tensor,
                              stk_error *err);
int
sti_checkpointer_wait(struct sti_checkpointer *checkpointer, stk_level level, uint64_t timeout_ns,
                      stk_error *err);
void
sti_checkpointer_status(struct sti_checkpointer *checkpointer, stk_ckpt_status *status);
int
sti_checkpointer_latest(struct sti_checkpointer *checkpointer, uint64_t *ret_step, stk_error *err);
int
sti_checkpointer_list(struct sti_checkpointer *checkpointer, stk_ckpt_info *out, uint32_t capacity,
                      uint32_t *ret_total, stk_error *err);
int
sti_checkpointer_prune(struct sti_checkpointer *checkpointer, uint32_t keep, bool orphans,
                       uint32_t *ret_removed, stk_error *err);

/* A checkpoint or a file open for reading. */
struct sti_view {
    struct sti_engine *engine;
    struct sti_reader *reader;
    uint32_t *places; /* in the layout: of tensors, then of blobs */
    uint32_t n_tensors;
    uint32_t n_blobs;
};

/* Errors: see stk_view_open(). */
int
sti_view_open(struct sti_view *view, struct sti_checkpointer *checkpointer, uint64_t step,
              stk_error *err);
int
sti_view_open_file(struct sti_view *view, struct sti_engine *engine, const char *path,
                   stk_error *err);
void
sti_view_close(struct sti_view *view);
int
sti_view_load(struct sti_view *view, const stk_load *loads, uint32_t n, stk_error *err);
int
sti_view_read(struct sti_view *view, uint64_t offset, void *dst, uint64_t n_bytes, stk_error *err);
int
sti_view_verify(struct sti_view *view, stk_progress_fn progress, void *context, stk_error *err);

/* Blobs are tensors of a name that begins so. */
#define STI_BLOB_PREFIX "stoker.blob."

/* The idx-th tensor that is, or is not, a blob; NULL beyond the last. */
const struct sti_layout_tensor *
sti_view_at(const struct sti_view *view, uint32_t idx, bool is_blob);
uint32_t
sti_view_count(const struct sti_view *view, bool is_blob);

#endif
