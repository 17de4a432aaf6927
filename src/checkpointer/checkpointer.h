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
struct sti_exchange;
struct sti_team;

/* Errors: see stk_ckpt_open(); opts of full size. ret_checkpointer: returns owned. */
int
sti_checkpointer_open(struct sti_checkpointer **ret_checkpointer, struct sti_engine *engine,
                      const char *directory, const stk_ckpt_opts *opts, stk_error *err);

/* An opening whose arguments are wrong: err says how. Other ranks, which wait for this one, are
 * told. Returns code. */
int
sti_checkpointer_decline(struct sti_engine *engine, int code, stk_error *err);

/* NULL is allowed. */
void
sti_checkpointer_close(struct sti_checkpointer *checkpointer);

/* These are what the public functions of the same names do. state: the loader's, n_state
 * bytes (0: none). */
int
sti_checkpointer_save(struct sti_checkpointer *checkpointer, const stk_save *save,
                      const void *state, size_t n_state, stk_error *err);
/* A save whose arguments are wrong: err says how. Of several ranks it votes against the save.
 * Returns code, or that of an earlier save. */
int
sti_checkpointer_refuse(struct sti_checkpointer *checkpointer, uint64_t step, int code,
                        stk_error *err);
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
/* Where parts are told: room for capacity of them; total: how many there are. */
struct sti_part_list {
    stk_ckpt_part *out;
    uint32_t capacity;
    uint32_t *total;
};
int
sti_checkpointer_parts(struct sti_checkpointer *checkpointer, uint64_t step, bool is_read,
                       struct sti_part_list list, stk_error *err);
int
sti_checkpointer_prune(struct sti_checkpointer *checkpointer, uint32_t keep, bool orphans,
                       uint32_t *ret_removed, stk_error *err);

/* Blobs and shards are tensors of the stream whose names begin so. */
#define STI_BLOB_PREFIX "stoker.blob."
#define STI_SHARD_PREFIX "stoker.shard."

/* What a program finds in a view: a tensor, whose shards are one after the other in a list, or
 * one that is there whole; or a blob, whose name is what the program has given. */
struct sti_view_item {
    const char *name;
    const uint64_t *shape;
    const struct sti_dtype *dtype;
    uint64_t n_bytes;
    uint32_t dims;
    uint32_t rank; /* of a blob */
    bool is_blob;
    bool is_sharded;
    uint32_t n_pieces;
    const uint32_t *pieces; /* places in the layout */
};

/* Items in the order of the stream, tensors, then blobs. */
struct sti_contents {
    struct sti_view_item *items;
    uint32_t *by_name; /* of the tensors, places in items */
    uint32_t *pieces;
    uint32_t n_tensors;
    uint32_t n_blobs;
};

/* Sorts out a layout, borrowed, of a checkpoint of world writers. Errors: -ENOMEM,
 * STK_E_CORRUPT a blob of no rank. */
int
sti_contents_take(struct sti_contents *contents, const struct sti_layout *layout, uint32_t world,
                  stk_error *err);
void
sti_contents_fini(struct sti_contents *contents);

/* NULL: there is none. */
const struct sti_view_item *
sti_contents_tensor(const struct sti_contents *contents, const char *name);
const struct sti_view_item *
sti_contents_blob(const struct sti_contents *contents, uint32_t rank, const char *name);

/* A checkpoint or a file open for reading. */
struct sti_view {
    struct sti_engine *engine;
    struct sti_reader *reader;
    struct sti_contents contents;
    uint32_t rank; /* this one's, for what is a rank's */
    const struct sti_team *team;
    struct sti_exchange *exchange; /* NULL: of a rank alone */
    struct sti_scan spare_scan;    /* where another copy may be; without an aio */
    struct sti_reader *spare;      /* NULL: not looked for yet, or not there */
    bool has_looked_for_spare;
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

/* The same, by all ranks at once. */
int
sti_view_load_together(struct sti_view *view, const stk_load *loads, uint32_t n, stk_error *err);

/* All of one item. dst: n_bytes of it. */
int
sti_view_load_item(struct sti_view *view, const struct sti_view_item *item, void *dst,
                   stk_error *err);
/* Gives the reader the aio of this call, and takes it back. */
int
sti_view_begin(struct sti_view *view, struct sti_aio **ret_aio, stk_error *err);
void
sti_view_end(struct sti_view *view, struct sti_aio *aio);
int
sti_view_read(struct sti_view *view, uint64_t offset, void *dst, uint64_t n_bytes, stk_error *err);
int
sti_view_verify(struct sti_view *view, stk_progress_fn progress, void *context, stk_error *err);

#endif
