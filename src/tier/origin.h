/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The origin: the data set where it lies. Says what to read for a sample so that direct
 * I/O can do it, and whether what came back is the sample.
 */
#ifndef STI_TIER_ORIGIN_H
#define STI_TIER_ORIGIN_H

#include <stdbool.h>
#include <stdint.h>

#include "format/dataset.h"
#include "io/aio.h"
#include "io/dio.h"
#include "tier/files.h"

struct sti_origin {
    const struct sti_dataset *dataset; /* borrowed */
    struct sti_dio dio;                /* what suits all parts of the data set */
    bool is_one_file;
    struct sti_files files;
};

/* What is read for a sample: a covering range, aligned for the file. */
struct sti_origin_range {
    uint64_t offset;
    uint64_t n_bytes; /* 32 bits are enough: samples have 1 GiB at most */
    uint64_t skew;    /* bytes of the range before the sample */
};

/* Samples larger than this are refused when a loader is opened. */
#define STI_ORIGIN_SAMPLE_MAX (UINT64_C(1) << 30)

/* Opens what has to stay open. aio: borrowed, the loop's; open_files: how many files may
 * be held open. Errors, with the path: what opening gives, STK_E_STALE. Blocks. */
struct sti_origin_opts {
    const struct sti_dataset *dataset;
    struct sti_aio *aio;
    uint32_t open_files;
    bool is_buffered;
};

int
sti_origin_open(struct sti_origin *origin, const struct sti_origin_opts *opts, stk_error *err);

/* Nothing is under way. All zero is allowed. */
void
sti_origin_close(struct sti_origin *origin);

/* Whether files are being opened or closed: sti_origin_close() has to wait for it, no
 * read has. */
bool
sti_origin_is_busy(const struct sti_origin *origin);

/* Bytes that a covering range can have beyond its sample, and the alignment of its
 * memory. */
uint64_t
sti_origin_padding_bytes(const struct sti_origin *origin);
uint32_t
sti_origin_align(const struct sti_origin *origin);

/* The range that covers an extent, or several of one file put together; where a file is a
 * sample, with one byte more, so that a file that has grown is seen without a stat. */
struct sti_origin_range
sti_origin_cover(const struct sti_origin *origin, const struct sti_extent *extent);

/*
 * Makes op read a range of the file of extent into bytes (aligned to sti_origin_align()).
 * Returns the open file that it uses, to be given to sti_files_put() when the operation
 * is done for good; NULL where it opens the file itself.
 */
struct sti_file_slot *
sti_origin_prepare(struct sti_origin *origin, const struct sti_extent *extent,
                   const struct sti_origin_range *range, void *bytes, struct sti_aio_op *op);

/*
 * Whether a read of range that returned result holds the extent: 0, the read's own error,
 * -ENODATA the file is shorter than indexed, -EFBIG it is longer.
 */
int
sti_origin_check(const struct sti_extent *extent, const struct sti_origin_range *range,
                 int32_t result);

/* What a code of sti_origin_check() or sti_files_compare() means, for people. Returns a
 * constant string. */
const char *
sti_origin_reason(int code);

#endif
