/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints, written beside the training at the speed of the disks. A save returns at
 * once; its bytes are taken in the background, until the fence; and nothing is said to be
 * saved before it is.
 *
 *     stk_ckpt_fence(ckpt, &err);                 the last save has taken what it needs
 *     optimizer_step();
 *     stk_ckpt_save(ckpt, &save, &err);           returns at once
 *     ...
 *     stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err);
 *
 * The guarantee: after any crash at any moment, opening finds a checkpoint at least as
 * new as the last one acknowledged as durable, every byte of it, or says what is wrong;
 * never wrong bytes. A checkpoint is one safetensors stream (docs/format/checkpoint.md).
 *
 * One thread saves; fences and waits may be on any thread. What fails in the background
 * is returned by the next of these calls, once, with the step and the part.
 *
 * Ranks (an engine with stk_engine_opts.comm) save together: all open the checkpointer, each
 * calls stk_ckpt_save() as often as the others, with what it holds, and one checkpoint comes
 * of it or none: it is durable on all ranks or fails on all, and the error names the rank. All
 * that ranks do together (opening, stk_view_load_together()) they do in one order, with loaders,
 * too. What several ranks hold alike is cut among them, so each writes its share. Loading takes
 * any number of ranks and asks nobody, but with node_local.
 */
#ifndef STOKER_CHECKPOINT_H
#define STOKER_CHECKPOINT_H

#include <stoker/engine.h>
#include <stoker/loader.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stk_ckpt stk_ckpt;
typedef struct stk_view stk_view;

#define STK_LATEST UINT64_MAX  /* a step: the newest checkpoint that is whole */
#define STK_FOREVER UINT64_MAX /* a timeout */

/* How far a save has come. */
typedef enum stk_level {
    STK_CAPTURED = 0,        /* the tensors may be changed again */
    STK_DURABLE_LOCAL = 1,   /* survives a power cut of this machine */
    STK_DURABLE_PARTNER = 2, /* survives its loss: stk_ckpt_opts.partner */
    STK_DURABLE_SHARED = 3   /* survives the job's node-local storage: stk_ckpt_opts.shared */
} stk_level;

/* Which of the ranks that hold a tensor together write it. */
typedef enum stk_writers {
    STK_WRITERS_ALL = 0,   /* every one, an equal share */
    STK_WRITERS_NODE = 1,  /* the first on each node: where a node's disks are its limit */
    STK_WRITERS_SOCKET = 2 /* the first on each socket, by the processors it may use */
} stk_writers;

/*
 * roots        where the bytes go: absolute directories on different devices, separated
 *              by blanks, each made if it is not there. NULL or "": the checkpoint
 *              directory. At most 63, each of at most 1000 bytes of UTF-8. Best ones that
 *              no other checkpoint directory uses; see STK_PRUNE_ORPHANS.
 * slot_bytes   one write, 64 KiB .. 256 MiB, a multiple of chunk_bytes; 0: 8 MiB.
 * slots        2 .. 1024; 0: 8. slots x slot_bytes is the memory that a checkpointer
 *              takes.
 * chunk_bytes  that have one checksum, 4 KiB .. 64 MiB, a power of two; 0: 1 MiB, or
 *              slot_bytes if that is less.
 * outstanding  saves that may be unfinished, 1 .. 8; 0: 1. One more waits in
 *              stk_ckpt_save().
 * keep         checkpoints that stay when a new one is durable, 1 ..; 0: 2. STK_NONE:
 *              all.
 * buffered     1: never direct I/O. The default tries it and falls back per root.
 * read_only    1: nothing will be saved or pruned; nothing is made or tried. Asks no other rank.
 * alone        1: this rank's directory is its own, and no other rank saves into it.
 * shared       a directory on storage that outlives the machine's own: what is durable here is
 *              copied there in the background and committed there by the same rules, slower than
 *              everything else that uses the devices, with half as many slots of its own. NULL:
 *              none. Made if it is not there (its parent must be). Opening, listing and loading
 *              look into both directories, here first.
 * shared_every which saves are copied: every so many-th, or the next one after it while a copy is
 *              still under way; 0: each that finds none under way. STK_NONE: only those with
 *              STK_SAVE_SHARED.
 * shared_keep  checkpoints that stay there, as keep; 0: 2.
 *
 * Of ranks that save together; directory and roots must be the same places for all of them, but
 * with node_local:
 * vote_timeout_ms  from the first rank's end on all must have written their part; then the save
 *                  fails, and whoever is missing is named. 0: 300,000.
 * check_replicas   1: what several ranks hold is compared, by sums of all of it that are made
 *                  before stk_ckpt_save() returns; a difference fails the save with STK_E_MISMATCH.
 *                  The same on all ranks.
 * writers          stk_writers, the same on all ranks.
 * node_local       1: directory and roots are each node's own, the same paths on all of them (root
 *                  paths then have at most 900 bytes); a node's ranks have them together. Every
 *                  node gets the whole manifest before a save is durable. The same on all ranks;
 *                  without other ranks it means nothing. Loading finds on other nodes what is not
 *                  on this one, as long as the checkpointers of their ranks are open: close them
 *                  when all have loaded. With read_only or alone only this node's are seen.
 *                  Pruning is each node's own.
 * partner          1: each save that is durable is also copied to another node in the background,
 *                  by the ranks of each node from the node before it, into the same roots; with
 *                  that it is durable as STK_DURABLE_PARTNER, and the loss of any one node loses
 *                  nothing of it. Needs node_local and two nodes at least, and takes half as many
 *                  slots more. A save waits while two copies are unfinished. The newest that was
 *                  copied stays beside those that keep keeps, and before the first copy nothing is
 *                  removed. The same on all ranks.
 * chunk_bytes      is the same on all ranks, too.
 */
typedef struct stk_ckpt_opts {
    size_t size;
    const char *roots;
    uint64_t slot_bytes;
    uint32_t slots;
    uint32_t chunk_bytes;
    uint32_t outstanding;
    uint32_t keep;
    uint32_t buffered;
    uint32_t read_only;
    uint32_t alone;
    uint32_t vote_timeout_ms;
    uint32_t check_replicas;
    uint32_t writers;
    const char *shared;
    uint32_t shared_every;
    uint32_t shared_keep;
    uint32_t node_local;
    uint32_t partner;
} stk_ckpt_opts;

#define STK_CKPT_OPTS_INIT .size = sizeof(stk_ckpt_opts)

/*
 * Opens a directory of checkpoints, made if it is not there (its parent must be). opts
 * may be NULL. ret_ckpt: returns owned, closed with stk_ckpt_close() before its engine.
 * Leaves what crashed writers left as it is; see STK_PRUNE_ORPHANS.
 * Errors: -EINVAL (err names the option and its range), -E2BIG, STK_E_INFEASIBLE (more
 * slots than there is memory for), -ENOTSUP (partner on one node), -ENOENT, -EACCES, -EROFS,
 * -ENOSPC (err names the root), -ENOMEM. Of ranks also STK_E_MISMATCH (an option differs),
 * -ECANCELED (another rank cannot), -ETIMEDOUT (one has not come); err->rank. Blocks, with ranks
 * until all are there.
 */
STK_API int
stk_ckpt_open(stk_ckpt **ret_ckpt, stk_engine *engine, const char *directory,
              const stk_ckpt_opts *opts, stk_error *err);

/* Waits for what is under way, then closes; NULL is allowed. Whoever wants to know what
 * became of it calls stk_ckpt_wait() first. No rank waits for another here. */
STK_API void
stk_ckpt_close(stk_ckpt *ckpt);

/* Flags of a tensor. */
#define STK_TENSOR_STABLE 1u /* not changed before the fence; else it is copied at once */
#define STK_TENSOR_UNIQUE \
    2u /* held by this rank alone: never cut over several ranks. Without
                              * it all ranks hold it, or those that its holding says. */

/*
 * One tensor, contiguous, in C order, little-endian.
 *
 * name     UTF-8. Not "__metadata__", and not beginning with "stoker.blob." or "stoker.shard.".
 *          What ranks hold each for itself must have names of its own, but for shards.
 * dtype    as the safetensors specification names it: BOOL F4 F6_E2M3 F6_E3M2 U8 I8
 *          F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32
 *          C64 F64 I64 U64.
 * shape    dims (0 .. 64) counts; NULL for dims 0, which is one element.
 * data     borrowed for the call, with STK_TENSOR_STABLE until it is captured.
 * n_bytes  0, or what dtype and shape make, which is then checked.
 */
typedef struct stk_tensor {
    const char *name;
    const char *dtype;
    const uint64_t *shape;
    const void *data;
    uint64_t n_bytes;
    uint32_t dims;
    uint32_t flags;
} stk_tensor;

/*
 * Who holds a tensor, and of what it is a shard.
 *
 * ranks         n_ranks of them, in rising order, this one among them: they all give this tensor,
 *               alike, and the tensors of these ranks in the same order. n_ranks 0: as its flags
 *               say. Borrowed for the call.
 * global_shape  the tensor is a shard: a box of one of this shape, which begins at start (each
 *               as many values as the tensor has dimensions). The shards that all ranks give of
 *               one name must be that tensor, each element once. NULL: it is whole. An element
 *               has whole bytes, and dims is not 0.
 */
typedef struct stk_holding {
    const uint32_t *ranks;
    const uint64_t *global_shape;
    const uint64_t *start;
    uint32_t n_ranks;
    uint32_t reserved; /* 0 */
} stk_holding;

/* Named bytes beside the tensors, of this rank, copied at once: the state of a generator, a
 * scheduler, ... */
typedef struct stk_blob {
    const char *name; /* UTF-8 */
    const void *data;
    uint64_t n_bytes;
} stk_blob;

/* Two strings, UTF-8. */
typedef struct stk_pair {
    const char *key;
    const char *value;
} stk_pair;

/* Flags of a save. STK_SAVE_SHARED: it is copied to the shared directory in any case; of ranks all
 * give it. It waits in stk_ckpt_save() while two copies are unfinished. */
#define STK_SAVE_SHARED 1u

/*
 * step      0 .. 2^63 - 1, not saved in this directory before. The same on all ranks.
 * metadata  of ranks that of rank 0 is kept.
 * loader    NULL, or its position is saved as the blob "loader".
 * holdings  NULL, or one for each tensor; all zero: by the tensor's flags.
 */
typedef struct stk_save {
    size_t size;
    uint64_t step;
    const stk_tensor *tensors;
    const stk_blob *blobs;
    const stk_pair *metadata;
    stk_loader *loader;
    uint32_t n_tensors;
    uint32_t n_blobs;
    uint32_t n_metadata;
    uint32_t flags; /* STK_SAVE_SHARED, or 0 */
    const stk_holding *holdings;
} stk_save;

#define STK_SAVE_INIT .size = sizeof(stk_save)

/*
 * Begins a save. Everything of save but the data of stable tensors is free again when it
 * returns. Waits only while `outstanding` saves are unfinished.
 * Errors: that of an earlier save (this one is then not begun), -EINVAL, -EOVERFLOW (err
 * names the tensor), -ENOTSUP the loader has no state, -EROFS opened read-only, -ENOMEM. Of ranks
 * each call is one vote, whatever it returns: one that fails here fails there, too; and what an
 * earlier save was lost by is told by fences and waits only.
 */
STK_API int
stk_ckpt_save(stk_ckpt *ckpt, const stk_save *save, stk_error *err);

/* Waits until all stable tensors of all saves are captured. Errors: that of a save. */
STK_API int
stk_ckpt_fence(stk_ckpt *ckpt, stk_error *err);

/* Waits until one tensor, by its place in the last save's list, is captured. Errors: that
 * of a save, -ERANGE. */
STK_API int
stk_ckpt_fence_tensor(stk_ckpt *ckpt, uint32_t tensor_idx, stk_error *err);

/* Waits until all saves have reached a level; STK_DURABLE_SHARED: those that are copied there.
 * Errors: that of a save or a copy, -ETIMEDOUT, -ENOTSUP the level. */
STK_API int
stk_ckpt_wait(stk_ckpt *ckpt, stk_level level, uint64_t timeout_ns, stk_error *err);

/* What a checkpointer has done since it was opened. */
typedef struct stk_ckpt_status {
    size_t size;
    uint64_t saves;         /* begun */
    uint64_t durable;       /* of them durable */
    uint64_t failed;        /* of them failed */
    uint64_t last_captured; /* step, STK_LATEST: none */
    uint64_t last_durable;  /* step, STK_LATEST: none */
    uint64_t bytes;         /* made durable */
    uint64_t save_wait_ns;  /* that stk_ckpt_save() waited for an earlier save */
    uint64_t fence_wait_ns; /* that fences waited */
    uint64_t captured_ns;   /* the last durable save: from its begin to captured */
    uint64_t durable_ns;    /* and to durable */
    uint32_t unfinished;
    uint32_t shared_unfinished; /* copies to the shared directory */
    uint64_t shared;            /* copies that are durable there */
    uint64_t shared_failed;
    uint64_t last_shared; /* step, STK_LATEST: none */
    uint64_t partner;     /* copies that are durable on another node */
    uint64_t partner_failed;
    uint64_t last_partner; /* step, STK_LATEST: none */
    uint32_t partner_unfinished;
    uint32_t reserved;
} stk_ckpt_status;

#define STK_CKPT_STATUS_INIT .size = sizeof(stk_ckpt_status)

/* Copies the status; status->size is set by the caller. Errors: -EINVAL. Any thread. */
STK_API int
stk_ckpt_get_status(stk_ckpt *ckpt, stk_ckpt_status *status);

/*
 * The newest checkpoint that is whole: its manifest is good and its parts are there.
 * Returns how many newer ones are not (0: it is the newest); if there are any, err says
 * what is wrong with the newest. Errors: -ENOENT there is none, STK_E_CORRUPT there are
 * some and none is whole, -EIO.
 */
STK_API int
stk_ckpt_latest(stk_ckpt *ckpt, uint64_t *ret_step, stk_error *err);

/* One checkpoint of a directory. */
typedef struct stk_ckpt_info {
    uint64_t step;
    uint64_t bytes;      /* of the stream */
    uint64_t created_ns; /* time of day; for people only */
    uint32_t tensors;    /* blobs among them */
    uint32_t parts;
    uint32_t world;
    int32_t state; /* 0 whole; STK_E_CORRUPT, STK_E_VERSION, -EIO ...: why not */
} stk_ckpt_info;

/*
 * Lists checkpoints, newest first, damaged ones too. out: room for capacity. Returns how
 * many were written; ret_total counts all. Errors: -EIO, -EACCES, -ENOMEM. Blocks.
 */
STK_API int
stk_ckpt_list(stk_ckpt *ckpt, stk_ckpt_info *out, uint32_t capacity, uint32_t *ret_total,
              stk_error *err);

/* A part of a checkpoint: what one writer wrote to one root. */
typedef struct stk_ckpt_part {
    uint64_t bytes;
    uint32_t writer; /* a rank of those that saved; beyond the last: the header, by rank 0 */
    uint32_t flags;  /* STK_PART_COMING, or 0 */
    int32_t state;   /* 0 here; -ENOENT not here; STK_E_CORRUPT, -EIO ...: what is wrong with it */
    uint32_t reserved;
} stk_ckpt_part;

#define STK_PART_COMING 1u /* not here, but the beginning of a copy for a partner is */

/* Reads what is here and checks every chunk of it; without it only sizes are looked at. */
#define STK_PARTS_VERIFY 1u

/*
 * Lists the parts of a checkpoint of this directory in the order of the manifest, and whether each
 * is here, in the roots that this machine sees, whatever other nodes have: with node_local those
 * that ranks of this node wrote, and with partner the copies that they made. step: one that is in
 * stk_ckpt_list(); not STK_LATEST. flags: STK_PARTS_VERIFY or 0. out: room for capacity; only
 * those that are written are looked at. Returns how many were written; ret_total counts all; err
 * says what is wrong with the first that is here and bad, also on success. Errors: -ENOENT no such
 * step, -EINVAL, STK_E_CORRUPT its manifest, STK_E_VERSION, -EIO, -ENOMEM. Blocks.
 */
STK_API int
stk_ckpt_parts(stk_ckpt *ckpt, uint64_t step, uint32_t flags, stk_ckpt_part *out, uint32_t capacity,
               uint32_t *ret_total, stk_error *err);

/* Also removes what crashed writers left: parts without a checkpoint in this directory,
 * unfinished manifests and copies for a partner. Nobody else may be saving into the directory or
 * the roots, and the roots may not hold parts of checkpoints of another directory: those would
 * go, too. */
#define STK_PRUNE_ORPHANS 1u

/*
 * Removes all but the newest keep (at least 1) checkpoints; damaged ones neither count
 * nor are removed. ret_removed (may be NULL): directories removed. Errors: -EINVAL,
 * -EROFS opened read-only, -EBUSY a save is under way, -EIO, -EACCES. Blocks.
 */
STK_API int
stk_ckpt_prune(stk_ckpt *ckpt, uint32_t keep, uint32_t flags, uint32_t *ret_removed,
               stk_error *err);

/*
 * Opens a checkpoint for reading, or with STK_LATEST the newest whole one. Returns 0, or
 * with STK_LATEST how many newer ones are not whole (err says what is wrong with the
 * newest). ret_view: returns owned, closed with stk_view_close() before its checkpointer;
 * used by one thread at a time.
 * Errors: -ENOENT, STK_E_CORRUPT (err names the part that is missing or cut),
 * STK_E_VERSION, -EIO, -ENOMEM. Blocks.
 */
STK_API int
stk_view_open(stk_view **ret_view, stk_ckpt *ckpt, uint64_t step, stk_error *err);

/* Opens a plain .safetensors file of anybody's; it has no checksums. Closed before the
 * engine. */
STK_API int
stk_view_open_file(stk_view **ret_view, stk_engine *engine, const char *path, stk_error *err);

/* NULL is allowed. */
STK_API void
stk_view_close(stk_view *view);

typedef struct stk_view_info {
    size_t size;
    uint64_t step;         /* STK_LATEST: a plain file */
    uint64_t bytes;        /* of the stream */
    uint64_t header_bytes; /* of them the header */
    uint64_t created_ns;
    uint64_t mended_bytes; /* read so far that were damaged and came from another copy */
    uint32_t tensors;      /* without blobs */
    uint32_t blobs;
    uint32_t metadata;
    uint32_t parts;
    uint32_t world;
    uint32_t chunk_bytes;
} stk_view_info;

#define STK_VIEW_INFO_INIT .size = sizeof(stk_view_info)

/* Describes what is open; info->size is set by the caller. Errors: -EINVAL. */
STK_API int
stk_view_get_info(const stk_view *view, stk_view_info *info);

/* A tensor of a view, with its global shape where it was saved in shards; or a blob (as U8).
 * Pointers are borrowed until the view is closed. */
typedef struct stk_view_tensor {
    const char *name;
    const char *dtype;
    const uint64_t *shape;
    uint64_t n_bytes;
    uint64_t offset; /* in the stream; STK_LATEST: in shards */
    uint32_t dims;
    uint32_t rank; /* of a blob: whose it is */
} stk_view_tensor;

/* The idx-th tensor, in the order of the stream. Errors: -ERANGE. */
STK_API int
stk_view_tensor_at(const stk_view *view, uint32_t idx, stk_view_tensor *ret_tensor);

/* The tensor of a name. Errors: -ENOENT. */
STK_API int
stk_view_tensor_find(const stk_view *view, const char *name, stk_view_tensor *ret_tensor);

/* The idx-th blob. Errors: -ERANGE. */
STK_API int
stk_view_blob_at(const stk_view *view, uint32_t idx, stk_view_tensor *ret_blob);

/* The idx-th pair of the metadata. Errors: -ERANGE. */
STK_API int
stk_view_metadata_at(const stk_view *view, uint32_t idx, stk_pair *ret_pair);

/*
 * What is to be loaded: a tensor, or the box of it that begins at start and is count
 * elements long in each dimension (both NULL: all of it), into dst, contiguous, n_bytes
 * exactly.
 */
typedef struct stk_load {
    const char *name;
    void *dst;
    uint64_t n_bytes;
    const uint64_t *start;
    const uint64_t *count;
} stk_load;

/*
 * Loads n tensors or boxes in one go: parallel direct reads, every chunk checked before
 * any byte of it is handed out. What is damaged or cannot be read where it lies first is taken
 * from another node (node_local) or from the shared directory, if it is right there:
 * stk_view_info.mended_bytes. Errors: -ENOENT no such tensor, -EINVAL n_bytes (err has
 * the right one), -ERANGE a box beyond its tensor, STK_E_CORRUPT (err names part and
 * byte), -EIO, -ENOMEM. After an error the destinations hold nothing of use. Blocks.
 */
STK_API int
stk_view_load(stk_view *view, const stk_load *loads, uint32_t n, stk_error *err);

/*
 * The same, called by all ranks of the checkpointer with the same n loads of the same step: each
 * reads a part of the bytes and gets the rest out of the others' memory, so that storage gives
 * each byte once instead of to every rank. What does not come from a rank is read from storage.
 * Blocks until all are done, or those that are missing are given up. A rank alone just loads.
 * Errors: also STK_E_MISMATCH (a rank loads something else), -ECANCELED (a rank cannot), -ETIMEDOUT
 * (a rank has not come); err->rank.
 */
STK_API int
stk_view_load_together(stk_view *view, const stk_load *loads, uint32_t n, stk_error *err);

/* Loads a blob of at most capacity bytes: this rank's, or rank 0's where the checkpoint is one of
 * fewer ranks. ret_bytes: how many it has, also where they do not fit. Errors: -ENOENT, -ENOSPC,
 * those of stk_view_load(). Blocks. */
STK_API int
stk_view_load_blob(stk_view *view, const char *name, void *dst, uint64_t capacity,
                   uint64_t *ret_bytes, stk_error *err);

/* The same of a rank of the checkpoint's. Errors: also -ERANGE it had no such rank. */
STK_API int
stk_view_load_blob_of(stk_view *view, uint32_t rank, const char *name, void *dst, uint64_t capacity,
                      uint64_t *ret_bytes, stk_error *err);

/* Reads bytes of the stream itself, which is a .safetensors file. Errors: -ERANGE, those
 * of stk_view_load(). Blocks. */
STK_API int
stk_view_read(stk_view *view, uint64_t offset, void *dst, uint64_t n_bytes, stk_error *err);

/* Called as work goes on, on the calling thread; any result but 0 ends it with
 * -ECANCELED. */
typedef int (*stk_progress_fn)(void *context, uint64_t done_bytes, uint64_t total_bytes);

/* Reads everything and checks every chunk where it lies first: a copy elsewhere is not looked
 * at. progress may be NULL. Errors: STK_E_CORRUPT (err names part and byte), -EIO, -ECANCELED,
 * -ENOMEM. Blocks. */
STK_API int
stk_view_verify(stk_view *view, stk_progress_fn progress, void *context, stk_error *err);

#ifdef __cplusplus
}
#endif

#endif
