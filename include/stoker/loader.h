/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loader hands out the batches of one rank, in order, across epochs, each already in
 * memory when it is asked for. One thread uses a loader at a time; several loaders of one
 * engine may be used by several threads.
 *
 *     while ((rc = stk_loader_next(loader, &batch)) == STK_BATCH) {
 *         train_step(batch.data, batch.labels, batch.count);
 *         stk_loader_release(loader, &batch);
 *     }
 */
#ifndef STOKER_LOADER_H
#define STOKER_LOADER_H

#include <stoker/engine.h>
#include <stoker/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Results of stk_loader_next(). */
#define STK_END 0
#define STK_BATCH 1

typedef struct stk_loader stk_loader;

/* What stays in a cache when it has been used. DESIGN: docs/design/policy.md. */
typedef enum stk_policy {
    STK_POLICY_DEFAULT = 0,  /* COORDINATED with peers and world > 1, else NEXT_USE */
    STK_POLICY_NONE = 1,     /* nothing: samples are staged only */
    STK_POLICY_PIN = 2,      /* the first that fit, for good */
    STK_POLICY_LRU = 3,      /* the most recently used */
    STK_POLICY_NEXT_USE = 4, /* those used again soonest (Belady 1966) */
    /* With peers: each sample by one rank for all, copies by next use. */
    STK_POLICY_COORDINATED = 5,
    /* With peers: each rank what it reads most itself (Dryden et al., SC'21). */
    STK_POLICY_PAPER = 6
} stk_policy;

/* How a batch comes. */
typedef enum stk_layout {
    STK_LAYOUT_DEFAULT = 0, /* FIXED with a decode function or where all samples have one size */
    STK_LAYOUT_RAW = 1,     /* a pointer and a length per sample, into the cache, no copy */
    STK_LAYOUT_FIXED = 2    /* one contiguous buffer of count x item_bytes */
} stk_layout;

/* What to do about a sample that cannot be read or decoded, after the retries. */
typedef enum stk_bad_sample {
    STK_BAD_DEFAULT = 0, /* STK_BAD_FAIL */
    STK_BAD_FAIL = 1,    /* the batch that it is in fails with STK_E_SAMPLE */
    /* The next good id modulo n takes its place: batch.samples has that id, and a ledger
     * says so. After 64 bad neighbours, or where no good one is left, the batch fails as
     * by STK_BAD_FAIL. */
    STK_BAD_REPLACE = 2
} stk_bad_sample;

/* A field of a stored sample. */
typedef struct stk_decode_field {
    const char *name;
    const void *bytes; /* NULL: this sample lacks the field */
    uint64_t n_bytes;
} stk_decode_field;

/* What a decode function is given. All of it is borrowed for the call. */
typedef struct stk_decode_args {
    const void *bytes; /* the stored sample; with several fields, the first of them */
    uint64_t n_bytes;
    void *slot; /* item_bytes of the batch, contents undefined */
    uint64_t item_bytes;
    uint64_t sample;
    uint64_t epoch;
    uint64_t seed; /* a hash of (order seed, epoch, sample): the same on every run and rank */
    int64_t label;
    const stk_decode_field *fields; /* n_fields of them, in the data set's order */
    uint64_t n_fields;              /* 1 or more */
} stk_decode_args;

/*
 * Turns a stored sample into its slot of a batch. Runs on several worker threads at once.
 * Any result but 0 makes the sample bad.
 */
typedef int (*stk_decode_fn)(void *context, const stk_decode_args *args);

/*
 * batch_size      samples of a batch, 1 .. 2^18. Required.
 * epochs          length of the run; 0: unknown, goes on until the loader is closed.
 * horizon_epochs  with epochs 0: how many epochs are looked ahead, 1 .. 64; 0: 8. Where every
 *                 rank reads the whole set in every epoch (world 1) two are enough and used.
 * order           kind, sampler, seed, world, rank and so on; its n is set by the loader and
 *                 must be 0 or the data set's.
 * drop_last       1: the incomplete batch at an epoch's end is left out.
 * policy          stk_policy.
 * layout          stk_layout.
 * ram_bytes       this loader's part of the engine's RAM tier; 0: what the data set needs, as
 *                 far as it is still free. STK_E_INFEASIBLE if it is not free.
 * ssd_bytes       this loader's part of the engine's SSD tiers, likewise, all of them together.
 * staging_bytes   memory for batches being filled or borrowed; 0: 256 MiB, or four of the
 *                 largest batches (borrow_max + 2, if that is more) where it is less; with the
 *                 fixed layout no more than an epoch fills, or 8 MiB. At least two of the
 *                 largest batches, and as many as borrow_max. Samples between arrival and
 *                 decoding take up to half as much beside it, 32 MiB at most.
 * staging_batches at most so many batches are staged or borrowed, 2 .. 65536, borrow_max at
 *                 least; 0: as many as staging_bytes holds.
 * borrow_max      batches that may be out at a time, 1 .. 64; 0: 2. With the batch size it may
 *                 not make more than 2^20 - 1 samples.
 * retries         of a read that failed, 1 .. 16 (STK_NONE: none); 0: 1.
 * bad_sample      stk_bad_sample.
 * decode          NULL: the bytes as they are stored; with several fields, RAW only.
 * state           begins where this state was saved rather than at the start, so that a resumed
 *                 job makes no order that it will not read. Checked as by
 *                 stk_loader_restore_state(), with its errors.
 * item_bytes      bytes of a slot; with decode, required; without, 0 or the record size.
 */
typedef struct stk_loader_opts {
    size_t size;
    uint32_t batch_size;
    uint32_t drop_last;
    uint64_t epochs;
    uint32_t horizon_epochs;
    uint32_t policy;
    uint32_t layout;
    uint32_t bad_sample;
    uint64_t ram_bytes;
    uint64_t staging_bytes;
    uint32_t staging_batches;
    uint32_t borrow_max;
    uint32_t retries;
    uint32_t reserved; /* 0 */
    stk_decode_fn decode;
    void *decode_context; /* borrowed until the loader is closed */
    uint64_t item_bytes;
    const stk_order_opts *order; /* NULL: TORCH, seed 0, world 1 */
    const void *state;           /* NULL, or where to begin, of stk_loader_save_state() */
    uint64_t state_bytes;
    uint64_t ssd_bytes;
} stk_loader_opts;

#define STK_LOADER_OPTS_INIT .size = sizeof(stk_loader_opts)

/* A field of a batch. Arrays of count elements, as in stk_batch. */
typedef struct stk_field {
    const char *name;         /* as stk_dataset_field_name(); "" of what was decoded */
    void *data;               /* FIXED: count x item_bytes, writable; RAW: NULL */
    uint64_t item_bytes;      /* FIXED */
    const void *const *items; /* pointers; NULL where a sample lacks the field */
    const uint64_t *n_bytes;  /* lengths */
} stk_field;

/* A batch, borrowed from stk_loader_next() until it is given to stk_loader_release(). */
typedef struct stk_batch {
    uint64_t epoch;
    uint64_t step;       /* batches of this run before it */
    uint64_t epoch_step; /* batches of this epoch before it */
    uint32_t count;      /* samples in it, batch_size but for the last of an epoch */
    uint32_t last_of_epoch;
    const uint64_t *samples;  /* count ids; of a replaced sample, its substitute's */
    const int64_t *labels;    /* count labels, -1 without */
    void *data;               /* FIXED: count x item_bytes, writable; RAW: NULL */
    uint64_t item_bytes;      /* FIXED */
    const void *const *items; /* count pointers, in both layouts; of the first field */
    const uint64_t *n_bytes;  /* count lengths */
    const stk_field *fields;  /* n_fields of them; the first is what is above */
    uint64_t n_fields;        /* RAW: those of the data set; FIXED: 1 */
    void *reserved[2];
    void *handle; /* the library's own */
} stk_batch;

/*
 * Opens a loader. dataset is borrowed until the loader is closed. ret_loader: returns
 * owned. Reading begins at once. Errors: -EINVAL (err names the option and its range),
 * -E2BIG, STK_E_INFEASIBLE (staging below two of the largest batches, or beyond the
 * memory that there is; ram_bytes not to be had), STK_E_STALE (the one file of the data
 * set changed since it was opened), -ENOMEM.
 *
 * With peers (stk_policy) all ranks open their loaders at the same time and in the same
 * order; blocks until they have, and until it is planned who holds what. Errors then also:
 * STK_E_MISMATCH the ranks' loaders differ (err names what in, with both values),
 * -ETIMEDOUT a rank is missing, -ECANCELED another rank cannot open its loader.
 */
STK_API int
stk_loader_open(stk_loader **ret_loader, stk_engine *engine, stk_dataset *dataset,
                const stk_loader_opts *opts, stk_error *err);

/*
 * Closes a loader; NULL is allowed. Batches still borrowed become invalid. With peers it
 * goes on serving the other ranks' loaders until all of them are closed or have left, or
 * close_timeout_ms is over.
 */
STK_API void
stk_loader_close(stk_loader *loader);

/*
 * The next batch. Returns STK_BATCH and fills batch, or STK_END when the run is over (or, with
 * STK_ORDER_LIST, when what was pushed is read and the list is ended), or
 *   STK_E_BORROW  borrow_max batches are out; nothing changes
 *   STK_E_SAMPLE  a sample of the batch is bad (stk_loader_last_error() tells); the batch is
 *                 skipped: the call after that goes on with the one behind it. Bad are also
 *                 all samples of a shard that had changed when it was opened (again)
 *   -EINTR        stk_loader_interrupt() was called
 *   -EAGAIN       STK_ORDER_LIST: nothing is pushed that makes a batch
 *   -ENOMEM       there was no memory for an epoch's order for a second; nothing is lost, a
 *                 later call goes on if there is some then
 *   -EIO          the engine cannot go on
 * Blocks until the batch is there; no allocation, no system call where it already is.
 */
STK_API int
stk_loader_next(stk_loader *loader, stk_batch *batch);

/*
 * stk_loader_next() that waits at most timeout_ns nanoseconds (0: only looks; UINT64_MAX:
 * as long as it takes) and returns -ETIMEDOUT when the batch is not there by then; the
 * next call waits for the same one, and the statistics count what both have waited. For a
 * caller that has something else to look at now and then.
 */
STK_API int
stk_loader_next_timeout(stk_loader *loader, stk_batch *batch, uint64_t timeout_ns);

/* Gives a batch back, in any order: its pointers are set to NULL, its numbers stay.
 * Errors: -EINVAL not borrowed. Does not block. */
STK_API int
stk_loader_release(stk_loader *loader, stk_batch *batch);

/*
 * Makes a stk_loader_next() that waits, or else the next call of it, return -EINTR. Any
 * thread; safe in a signal handler. NULL is allowed.
 */
STK_API void
stk_loader_interrupt(stk_loader *loader);

/*
 * With peers: this rank wants no more batches. Serves the other ranks as
 * stk_loader_close() does, but leaves the loader open, so that its statistics have all that
 * was read for them; nothing but those and closing is left to do. Returns 0; nothing
 * happens without peers. Errors: -EBUSY batches are out.
 */
STK_API int
stk_loader_leave(stk_loader *loader);

/*
 * Goes to a batch of an epoch: the next batch will be (epoch, epoch_step). What is staged
 * is dropped, what is cached stays. Batches must have been released. Errors: -ERANGE,
 * -EBUSY batches are out, -ENOTSUP with STK_ORDER_LIST.
 */
STK_API int
stk_loader_seek(stk_loader *loader, uint64_t epoch, uint64_t epoch_step);

/*
 * STK_ORDER_LIST: appends ids to the current epoch (n may be 0). end_epoch 1 ends it (the
 * incomplete batch is then handed out or, by drop_last, dropped); end_run 1 ends the run.
 * Errors: -ERANGE an id is not of the data set (none is taken), -ENOSPC more than 2^20
 * ids would wait (none is taken), -EINVAL another kind or an ended run.
 */
STK_API int
stk_loader_push(stk_loader *loader, const uint64_t *ids, uint64_t n, int end_epoch, int end_run);

/* Bytes that a saved state takes at most. */
#define STK_LOADER_STATE_SIZE 128

/*
 * Saves the position: the batch that next would return. state: STK_LOADER_STATE_SIZE
 * bytes; ret_bytes how many are used. The format is versioned and checksummed
 * (docs/format/loader-state.md). Errors: -ENOTSUP with STK_ORDER_LIST. Does not block.
 */
STK_API int
stk_loader_save_state(stk_loader *loader, void *state, size_t *ret_bytes);

/*
 * Goes to a saved position. Another world is allowed when world x batch_size is the same.
 * Errors: STK_E_CORRUPT, STK_E_VERSION, STK_E_MISMATCH (err names the field that
 * differs), -ERANGE (the position is beyond the end of this run), -EBUSY batches are out,
 * -ENOTSUP.
 */
STK_API int
stk_loader_restore_state(stk_loader *loader, const void *state, size_t n_bytes, stk_error *err);

/* One sample that stands in for another in one place of a batch. */
typedef struct stk_replacement {
    uint64_t epoch;
    uint64_t sample;      /* by the order */
    uint64_t replacement; /* the one that is there instead */
    int32_t reason;       /* why sample is not: negative code, or the decode function's result */
    uint32_t reserved;
} stk_replacement;

/*
 * The ledger of replaced samples, oldest first, one line each time one is replaced. out:
 * room for capacity. Returns how many were written; ret_total counts all, also those
 * beyond the 4,096 that are kept.
 */
STK_API int
stk_loader_replacements(stk_loader *loader, stk_replacement *out, uint32_t capacity,
                        uint64_t *ret_total);

/* The last negative result of next, in words. Errors: -ENOENT none yet. */
STK_API int
stk_loader_last_error(stk_loader *loader, stk_error *err);

/*
 * The last thing that went worse than asked for while the run goes on, in words: an SSD
 * directory that is full, in use by another job, or was given up. Errors: -ENOENT nothing
 * did. Any thread.
 */
STK_API int
stk_loader_last_warning(stk_loader *loader, stk_error *err);

typedef enum stk_tier {
    STK_TIER_RAM = 0,
    STK_TIER_SSD = 1,
    STK_TIER_PEER = 2,
    STK_TIER_ORIGIN = 3,
    STK_TIERS = 4
} stk_tier;

/*
 * What a loader has done. Bytes are payload: bytes of samples, without block padding.
 * bound_bytes is the least that could have been read from the origin for the epochs
 * staged so far with the capacity this loader has (DESIGN: docs/design/policy.md). Waits
 * are of stk_loader_next(), from a histogram with steps of a sixteenth of an octave.
 */
typedef struct stk_loader_stats {
    size_t size;
    uint64_t epoch;   /* UINT64_MAX: since open or reset */
    uint64_t batches; /* returned by next */
    uint64_t samples;
    uint64_t bytes;
    uint64_t wait_ns; /* sum over next */
    uint64_t elapsed_ns;
    uint64_t wait_p50_ns;
    uint64_t wait_p99_ns;
    uint64_t wait_max_ns;
    uint64_t tier_samples[STK_TIERS]; /* by the tier that served them */
    uint64_t tier_bytes[STK_TIERS];
    uint64_t origin_bytes;   /* read from the origin, first-time fills included */
    uint64_t bound_bytes;    /* with peers, of all ranks together, as capacity_bytes is */
    uint64_t capacity_bytes; /* RAM part + staging + SSD part that the bound is made with */
    uint64_t resident_bytes;
    uint64_t replaced;          /* items that have a substitute, since open */
    uint64_t allocations;       /* staged outside the arena because it was fragmented */
    uint64_t ssd_bytes;         /* of samples on the SSDs now */
    uint64_t ssd_written_bytes; /* to them by this loader, headers and padding included */
    uint64_t ssd_refused;       /* samples on them that did not verify and came from the origin */
    uint64_t ssd_dropped;       /* directories given up; stk_loader_last_warning() says why */
    uint64_t peer_served;       /* samples given to other ranks, since open */
    uint64_t peer_served_bytes;
    uint64_t peer_failed;  /* requests to other ranks that did not bring their sample */
    uint64_t peer_corrupt; /* of them, those that brought wrong bytes, which were not used */
    uint64_t peer_copied;  /* samples that other ranks gave ahead of their use, for spare room */
    uint64_t peer_copied_bytes;
} stk_loader_stats;

#define STK_LOADER_STATS_INIT .size = sizeof(stk_loader_stats)

/*
 * Copies the statistics of one epoch, or with UINT64_MAX those since open; the last 64
 * epochs are kept. Errors: -EINVAL size, -ENOENT no such epoch. Any thread.
 */
STK_API int
stk_loader_get_stats(stk_loader *loader, uint64_t epoch, stk_loader_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
