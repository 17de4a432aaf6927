/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A data set: n samples, each an extent, with labels. Opening makes or maps its index;
 * after that nothing here touches a file system, allocates, locks or blocks: the getters
 * read the mapped index, about one cache line per sample, and may be called by any
 * thread.
 */
#ifndef STI_FORMAT_DATASET_H
#define STI_FORMAT_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stoker/engine.h>

#include "model/extent.h"

struct sti_aio;
struct sti_dataset;

/* Samples of a data set at most. */
#define STI_DATASET_SAMPLES_MAX (UINT64_C(1) << 48)

/*
 * Opens the data set at path, indexing it if it has no index yet (many listings and statx
 * calls in flight on aio, names sorted on its pool).
 *
 * ret_dataset  returns owned, closed with sti_dataset_close().
 * aio          borrowed for the call; the calling thread is its owner. Nothing may be pending on
 *              it that cannot bear to be served by this call's waits.
 * path         a directory or a file.
 * opts         NULL: all defaults. Of full size (the caller has checked and copied it).
 * cache_dir    where the index goes when its place beside the data cannot be written; made if
 *              it is missing. NULL: such an index stays in memory.
 *
 * Errors, each with the path that it is about: -ENOENT, -EACCES, -ENOTDIR, -EISDIR,
 * -ELOOP (a symbolic link to one of its own parents), -ENAMETOOLONG, -EINVAL (an option;
 * nothing in it; a file that is not of its format, a remainder, a label count), -E2BIG
 * (more than 2^48 samples), STK_E_STALE, STK_E_CORRUPT, STK_E_VERSION (the index),
 * -ENOMEM, -EIO, -ENOSPC. Blocks.
 */
int
sti_dataset_open(struct sti_dataset **ret_dataset, struct sti_aio *aio, const char *path,
                 const stk_dataset_opts *opts, const char *cache_dir, stk_error *err);

/* Unmaps the index and closes the directory. NULL is allowed. Blocks for these calls
 * only. Views of it have been closed before. */
void
sti_dataset_close(struct sti_dataset *dataset);

/* Number of samples, 1 .. STI_DATASET_SAMPLES_MAX; they are 0 .. count - 1. */
uint64_t
sti_dataset_count(const struct sti_dataset *dataset);

/*
 * Where a sample lies. sample < count. Errors: STK_E_CORRUPT, only if somebody has
 * written into the index file since it was opened; ret_extent is not written then.
 */
int
sti_dataset_extent(const struct sti_dataset *dataset, uint64_t sample,
                   struct sti_extent *ret_extent);

/* Bytes of a sample. sample < count. */
uint64_t
sti_dataset_length(const struct sti_dataset *dataset, uint64_t sample);

/* Label of a sample: the class for class folders, the value of a labels file, else -1. */
int64_t
sti_dataset_label(const struct sti_dataset *dataset, uint64_t sample);

/*
 * The whole path of the file that a sample lies in, for people: as the data set's path
 * was given, then the sample's. buffer: size >= 1 bytes, always terminated. Errors:
 * -ENAMETOOLONG (cut off), STK_E_CORRUPT as sti_dataset_extent().
 */
int
sti_dataset_path(const struct sti_dataset *dataset, uint64_t sample, char *buffer, size_t size);

/* The directory of a data set that is no view; its extents name it too. Borrowed until
 * the data set is closed. */
int
sti_dataset_dir_fd(const struct sti_dataset *dataset);

/* Files that hold many samples each: extents' `file` is below it. 0 where each sample is
 * a file of its own. */
uint32_t
sti_dataset_files(const struct sti_dataset *dataset);

/* The data sets that a data set is made of, itself where it is no view, and the first
 * sample of each: what may be asked of the file system once for all. part_idx < parts.
 * Errors: as sti_dataset_extent(). */
uint32_t
sti_dataset_parts(const struct sti_dataset *dataset);
int
sti_dataset_part_extent(const struct sti_dataset *dataset, uint32_t part_idx,
                        struct sti_extent *ret_extent);

/* Fields of a sample, 1 or more, and their names: "data" where the format gives none.
 * Borrowed until the data set is closed; field_idx < fields. */
uint32_t
sti_dataset_fields(const struct sti_dataset *dataset);
const char *
sti_dataset_field_name(const struct sti_dataset *dataset, uint32_t field_idx);

/* Where a field lies in the bytes of a sample's extent. */
struct sti_field_range {
    uint64_t at; /* STI_FIELD_NONE: the sample has no such field */
    uint64_t n_bytes;
};
#define STI_FIELD_NONE UINT64_MAX

/* A field that cannot be told, since the index was written to, is none. */
struct sti_field_range
sti_dataset_field(const struct sti_dataset *dataset, uint64_t sample, uint32_t field_idx);

/* The key of a sample of shards, the path of one in a folder, else "". Borrowed until the
 * data set is closed. */
const char *
sti_dataset_sample_name(const struct sti_dataset *dataset, uint64_t sample);

/* True: all samples are ranges of one file, evenly spaced, and neighbours in it are
 * neighbours in their ids. */
bool
sti_dataset_is_one_file(const struct sti_dataset *dataset);

/* Size of that one file when it was indexed; else 0. */
uint64_t
sti_dataset_file_bytes(const struct sti_dataset *dataset);

/* Sum of the bytes of all samples (windows that overlap count each time). */
uint64_t
sti_dataset_bytes(const struct sti_dataset *dataset);

/* Bytes of the largest sample. */
uint64_t
sti_dataset_max_bytes(const struct sti_dataset *dataset);

/* The size that all samples have; 0 where they differ. */
uint64_t
sti_dataset_uniform_bytes(const struct sti_dataset *dataset);

/*
 * An upper bound on the bytes of any k samples, repetitions excluded: exact where k is a
 * power of two up to 2^18 or sizes are uniform, else the sum for the next power of two. k
 * 0 gives 0.
 */
uint64_t
sti_dataset_largest(const struct sti_dataset *dataset, uint64_t k);

/*
 * Identifies the samples: format, options, names, sizes and labels, in order; not the
 * place and not the times, so that a copy elsewhere has the same one. Never 0.
 */
uint64_t
sti_dataset_fingerprint(const struct sti_dataset *dataset);

/*
 * Identifies the samples and the files that they lie in, as far as names, times and sizes
 * tell: what caches that outlive the job know them by. Another data set of the same shape
 * has another one, and so has a copy elsewhere, or the same one once it was changed and
 * indexed again.
 */
uint64_t
sti_dataset_identity(const struct sti_dataset *dataset);

/*
 * The identity as it is now: that of sti_dataset_identity(), unless another process has put an
 * index of its own into the place of this one's since. Errors: as of loading it, STK_E_MISMATCH it
 * has other samples. Blocks.
 */
int
sti_dataset_look(const struct sti_dataset *dataset, struct sti_aio *aio, uint64_t *ret_identity);

/* Fills everything but size. Any thread. */
void
sti_dataset_info(const struct sti_dataset *dataset, stk_dataset_info *ret_info);

/* Name of a class; NULL out of range. Borrowed until the data set is closed. */
const char *
sti_dataset_class_name(const struct sti_dataset *dataset, uint32_t class_idx);

/* Path of the index in use, or NULL where it is in memory only. Borrowed until closed. */
const char *
sti_dataset_index_path(const struct sti_dataset *dataset);

#endif
