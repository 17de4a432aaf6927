/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: what a process opens once. It owns the I/O loop, the workers and the
 * storage tiers; data sets and loaders attach to it and share them.
 */
#ifndef STOKER_ENGINE_H
#define STOKER_ENGINE_H

#include <stoker/comm.h>
#include <stoker/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stk_engine stk_engine;
typedef struct stk_dataset stk_dataset;

/*
 * tiers          where samples may be held, fastest first, separated by blanks:
 *                "ram:32G ssd:/local/cache:200G". ssd: a directory and how many bytes of samples
 *                it may hold (headers and padding come on top); up to eight, on one device each.
 *                They are kept for the next job; caches of other data sets in the directory are
 *                removed, the oldest first, when room is needed. A directory that cannot be used
 *                does not end a run: see stk_loader_last_warning().
 *                Sizes take the suffixes K, M, G, T (powers of 1024). NULL or "": none; samples
 *                are staged only. They are the machine's: with comm its ranks share them, see
 *                tiers_per_rank there. More RAM than the machine or the control group allows is
 *                refused with STK_E_INFEASIBLE.
 * io_method      "auto" (NULL; uring where the kernel allows it, else sync), "uring", "sync".
 * buffered       1: never use direct I/O. The default tries it and falls back per file system.
 * shape          emulates slow storage under the data sets, for demonstrations and tests:
 *                "rbps=40M riops=4000 rlat=500us", each part optional. NULL: none.
 * ssd_shape      the same under the SSD tiers, all of them together; it has wbps, wlat and so
 *                on, too. The engine's own probe does not see it.
 * cache_dir      where indexes go whose data set lies in a read-only place. NULL: such an index
 *                is kept in memory only.
 * workers        threads for decoding and copying, 1 .. 256; 0: the processors this process may
 *                use.
 * queue_depth    reads in flight at most, 1 .. 1024; 0: STK_QUEUE_DEPTH.
 * io_threads     threads that block in system calls where the method is sync, 1 .. 256; 0: 32.
 * max_open_files files open at a time at most, 4 .. 65536; 0: 256, less where RLIMIT_NOFILE
 *                leaves less.
 * unarbitrated   1: loaders and checkpoints use a device that they share as they come. The
 *                default lets samples that are needed soon go before checkpoints.
 * comm           the way to the other ranks of the job, which all open their engines at the same
 *                time; borrowed for the call. NULL: this rank is on its own.
 */
typedef struct stk_engine_opts {
    size_t size;
    const char *tiers;
    const char *io_method;
    const char *shape;
    const char *cache_dir;
    uint32_t buffered;
    uint32_t workers;
    uint32_t queue_depth;
    uint32_t io_threads;
    uint32_t max_open_files;
    uint32_t unarbitrated;
    const char *ssd_shape;
    const stk_comm_opts *comm;
} stk_engine_opts;

#define STK_ENGINE_OPTS_INIT .size = sizeof(stk_engine_opts)

/*
 * Starts an engine. ret_engine: returns owned, closed with stk_engine_close(). opts may
 * be NULL. Errors: -EINVAL (err names the option and its range), -E2BIG, STK_E_INFEASIBLE
 * (a tier does not fit), -ENOSYS (io_method "uring" where the kernel or the build has
 * none), -ENOMEM, -EAGAIN (no thread can be started). With comm, and blocking until all
 * ranks are there: -ETIMEDOUT (a rank is missing), -EACCES (a secret or an address),
 * STK_E_MISMATCH, STK_E_VERSION (ranks that do not belong together), -ENOSYS (no UCX in
 * this build). Any thread.
 */
STK_API int
stk_engine_open(stk_engine **ret_engine, const stk_engine_opts *opts, stk_error *err);

/*
 * Stops an engine; NULL is allowed. Everything attached to it must have been closed; what
 * has not is a bug of the caller and is asserted in debug builds. Waits for reads in
 * flight.
 */
STK_API void
stk_engine_close(stk_engine *engine);

/* The I/O method in use: "uring" or "sync". Returns a constant string, NULL for NULL. */
STK_API const char *
stk_engine_io_method(const stk_engine *engine);

/* What an engine has done since it was opened. Counts are exact, not sampled. */
typedef struct stk_engine_stats {
    size_t size;
    uint64_t reads;        /* read operations completed */
    uint64_t read_bytes;   /* bytes asked of the file system, block padding included */
    uint64_t submit_calls; /* system calls made to start reads (uring) */
    uint64_t loop_wakeups; /* times the loop has waited and gone on */
    uint64_t io_errors;    /* operations that failed */
    uint64_t allocations;  /* calls of the allocator since open, whole library */
    uint64_t mapped_bytes; /* that peers of this machine held, read out of their memory */
    uint64_t ram_bytes;    /* this rank's part of the tiers */
    uint64_t ssd_bytes;
    uint32_t node_rank; /* which of this machine's ranks it is, 0 .. node_ranks - 1 */
    uint32_t node_ranks;
} stk_engine_stats;

#define STK_ENGINE_STATS_INIT .size = sizeof(stk_engine_stats)

/* Copies the statistics; stats->size is set by the caller, also to that of an older version,
 * which does not have the last fields. Errors: -EINVAL. Any
 * thread. */
STK_API int
stk_engine_get_stats(stk_engine *engine, stk_engine_stats *stats);

/* How a data set's bytes become samples. */
typedef enum stk_format {
    STK_FORMAT_AUTO = 0,         /* recognised from what lies at the path */
    STK_FORMAT_CLASS_FOLDER = 1, /* path/class/.../file; order exactly torchvision's ImageFolder */
    STK_FORMAT_FOLDER = 2,       /* path/.../file, sorted by path; label -1 */
    STK_FORMAT_RECORD = 3,       /* fixed-size records in one file after a header (.bin) */
    STK_FORMAT_NPY = 4,          /* rows of a C-ordered .npy array */
    STK_FORMAT_IDX = 5,          /* items of an IDX file (MNIST and its like), uncompressed */
    STK_FORMAT_WINDOW = 6,       /* overlapping windows of fixed length over one file of tokens */
    STK_FORMAT_TAR = 7           /* uncompressed tar shards, files grouped as WebDataset does */
} stk_format;

/* Fields of a sample at most. */
#define STK_MAX_FIELDS 32

/*
 * format         stk_format; 0 recognises class folders, folders, .npy, IDX and tar shards.
 *                RECORD and WINDOW are never guessed.
 * header_bytes   RECORD, WINDOW: bytes before the first record or token.
 * record_bytes   RECORD: bytes of one record, 1 .. 2^40.
 * token_bytes    WINDOW: bytes of one token, 1 .. 64; 0: 2.
 * window_tokens  WINDOW: tokens of one sample (a context of L and its targets need L + 1).
 * stride_tokens  WINDOW: tokens from one sample's start to the next; 0: window_tokens.
 * labels_path    RECORD, NPY, IDX: an IDX or .npy file of one integer per sample; NULL: -1.
 * extensions     folders: accepted endings, separated by blanks, matched without regard to
 *                case. NULL: torchvision's image extensions for CLASS_FOLDER; every file for
 *                FOLDER. "*": every file.
 * fields         TAR: the fields to load, in order, separated by blanks ("jpg json"); every
 *                sample must have them. NULL: all that there are, in order of appearance, where
 *                a sample may lack some; without "cls" where that is a number everywhere.
 * index_path     where the index is; NULL: ".stoker-index" in or beside the data, or a file in
 *                the engine's cache_dir.
 * rebuild        1: makes the index anew even if the one that is there is good.
 */
typedef struct stk_dataset_opts {
    size_t size;
    uint32_t format;
    uint32_t rebuild;
    uint64_t header_bytes;
    uint64_t record_bytes;
    uint64_t window_tokens;
    uint64_t stride_tokens;
    uint32_t token_bytes;
    uint32_t reserved; /* 0 */
    const char *labels_path;
    const char *extensions;
    const char *index_path;
    const char *fields;
} stk_dataset_opts;

#define STK_DATASET_OPTS_INIT .size = sizeof(stk_dataset_opts)

/*
 * Opens a data set for reading. The first time its index is built, in parallel, and
 * stored; later it is mapped: no file but directories and shards is looked at. opts may
 * be NULL.
 *
 * path: a directory or a file. Tar shards also come as a list in braces or as a pattern
 * for the names of a directory: "train-{000000..000146}.tar", "{a,b,c}.tar",
 * "train-*.tar". A field "cls" of digits is a sample's label. ret_dataset: returns owned,
 * closed with stk_dataset_close() before its engine. Errors, each with the path: -ENOENT,
 * -EACCES, -ENOTDIR, -EINVAL (an option; an empty data set; a file that is not of its
 * format), STK_E_STALE (the data set changed since it was indexed, and how; open again
 * with rebuild or run "stoker index --rebuild"), STK_E_CORRUPT, STK_E_VERSION (the
 * index), -ENOMEM, -EIO. Blocks.
 */
STK_API int
stk_dataset_open(stk_dataset **ret_dataset, stk_engine *engine, const char *path,
                 const stk_dataset_opts *opts, stk_error *err);

/* A range of bytes of a file: path absolute; label -1: none. */
typedef struct stk_extent {
    const char *path;
    uint64_t offset;
    uint64_t n_bytes;
    int64_t label;
} stk_extent;

/*
 * A data set whose samples are extents that the program lists, n of them, 1 .. 2^48, in
 * this order; copied. Its format is TAR, with one field, "data". Each file is looked at
 * once, and its size and time are in the fingerprint; no index is stored. ret_dataset:
 * returns owned, closed with stk_dataset_close() before its engine. Errors: -EINVAL (no
 * extents; a path that is not absolute; an extent beyond its file's end; no regular
 * file), -E2BIG, and with the path -ENOENT, -EACCES, -EISDIR, -EIO; -ENOMEM. Blocks.
 */
STK_API int
stk_dataset_extents(stk_dataset **ret_dataset, stk_engine *engine, const stk_extent *extents,
                    uint64_t n, stk_error *err);

/* Closes a data set; NULL is allowed. Loaders and views over it must have been closed. */
STK_API void
stk_dataset_close(stk_dataset *dataset);

/*
 * Views: data sets made of others, to a loader like any other. The others are borrowed
 * and closed after the view. A view's fingerprint follows from theirs; labels stay what
 * they are there, and classes have names only where all have the same. ret_dataset:
 * returns owned, closed with stk_dataset_close(). No I/O; O(n) where sizes differ. Errors
 * of all: -EINVAL, -ENOMEM.
 *
 * stk_dataset_subset  the samples ids[0] .. ids[n - 1], copied, in this order; n 1 .. 2^48.
 *                     -ERANGE no such sample.
 * stk_dataset_range   count samples from first on. -ERANGE.
 * stk_dataset_concat  n data sets (1 .. 65536), one behind the other. They must have the same
 *                     fields, or one field each. -E2BIG more than 2^48 samples.
 * stk_dataset_mix     a concatenation of which a loader draws by weights (above 0, of any sum):
 *                     samples of each data set per epoch, in fixed proportion, all of it before
 *                     one comes again, also across epochs. The draws of an epoch are a function
 *                     of the order's seed and the epoch; the order's kind is left 0 (or LIST).
 *                     samples: of an epoch, 1 .. 2^48; 0: as many as there are.
 * A mix cannot be part of another view.
 */
STK_API int
stk_dataset_subset(stk_dataset **ret_dataset, stk_dataset *dataset, const uint64_t *ids, uint64_t n,
                   stk_error *err);
STK_API int
stk_dataset_range(stk_dataset **ret_dataset, stk_dataset *dataset, uint64_t first, uint64_t count,
                  stk_error *err);
STK_API int
stk_dataset_concat(stk_dataset **ret_dataset, stk_dataset *const *datasets, uint32_t n,
                   stk_error *err);
STK_API int
stk_dataset_mix(stk_dataset **ret_dataset, stk_dataset *const *datasets, const double *weights,
                uint32_t n, uint64_t samples, stk_error *err);

#define STK_MAX_DIMS 8

typedef struct stk_dataset_info {
    size_t size;
    uint32_t format;  /* stk_format; AUTO of a view of several formats */
    uint32_t classes; /* number of class names, 0 without */
    uint64_t samples;
    uint64_t bytes;            /* sum of all samples */
    uint64_t max_sample_bytes; /* the largest */
    uint64_t record_bytes;     /* the size that all have, 0 where sizes differ */
    uint64_t fingerprint;      /* identifies the data set and its indexing options */
    char dtype[8];             /* NumPy's type string of an element, "|u1"; "" if unknown */
    uint32_t dims;             /* of one sample, 0 if unknown */
    uint32_t index_built;      /* 1: this open built the index; 0: it was there */
    uint64_t shape[STK_MAX_DIMS];
    uint32_t fields;    /* of a sample, 1 .. STK_MAX_FIELDS */
    uint32_t files;     /* that samples are ranges of; 0 where each is a file of its own */
    int32_t index_code; /* 0: the index is stored; else why no place took it (-EROFS, -EACCES, ...),
                         * and the next open builds it again. Of a view 0. */
    uint32_t reserved;
} stk_dataset_info;

#define STK_DATASET_INFO_INIT .size = sizeof(stk_dataset_info)

/* Describes an open data set; info->size is set by the caller. Errors: -EINVAL. Any
 * thread. */
STK_API int
stk_dataset_get_info(const stk_dataset *dataset, stk_dataset_info *info);

/* The name of a class. Returns borrowed until the data set is closed; NULL out of range,
 * as for a data set that is NULL. */
STK_API const char *
stk_dataset_class_name(const stk_dataset *dataset, uint32_t class_idx);

/* The name of a field; "data" where a format has only one and gives it none. Returns
 * borrowed until the data set is closed; NULL likewise. */
STK_API const char *
stk_dataset_field_name(const stk_dataset *dataset, uint32_t field_idx);

/* What a sample is called: TAR its key, folders the path in them, "" for other formats.
 * Returns borrowed until the data set is closed; NULL for no such sample or a NULL data
 * set. */
STK_API const char *
stk_dataset_sample_name(const stk_dataset *dataset, uint64_t sample);

/*
 * Where a sample lies. path: room for path_size bytes, always terminated. ret_offset and
 * ret_bytes in the file (TAR: from the first to the last of its loaded fields), ret_label
 * -1 without one; each may be NULL. Errors: -ERANGE no such sample, -ENAMETOOLONG. Any
 * thread.
 */
STK_API int
stk_dataset_locate(const stk_dataset *dataset, uint64_t sample, char *path, size_t path_size,
                   uint64_t *ret_offset, uint64_t *ret_bytes, int64_t *ret_label);

#ifdef __cplusplus
}
#endif

#endif
