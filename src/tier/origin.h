/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The origin: the data set where it lies. Says what to read for a sample so that direct I/O can
 * do it, and whether what came back is the sample.
 */
#ifndef STI_TIER_ORIGIN_H
#define STI_TIER_ORIGIN_H

#include <stdbool.h>
#include <stdint.h>

#include "format/dataset.h"
#include "io/aio.h"
#include "io/dio.h"

struct sti_origin {
    const struct sti_dataset *dataset; /* borrowed */
    struct sti_dio dio;
    bool is_one_file;
    int fd; /* of the one file, else -1 */
};

/* What is read for a sample: a covering range, aligned for the file. */
struct sti_origin_range {
    uint64_t offset;
    uint64_t n_bytes; /* 32 bits are enough: samples have 1 GiB at most */
    uint64_t skew;    /* bytes of the range before the sample */
};

/* Samples larger than this are refused when a loader is opened. */
#define STI_ORIGIN_SAMPLE_MAX (UINT64_C(1) << 30)

/* Opens what has to stay open. Errors, with the path: what opening gives. Blocks. */
int
sti_origin_open(struct sti_origin *origin, const struct sti_dataset *dataset, bool is_buffered,
                stk_error *err);

/* All zero but fd -1 is allowed. */
void
sti_origin_close(struct sti_origin *origin);

/* Bytes that a covering range can have beyond its sample, and the alignment of its memory. */
uint64_t
sti_origin_padding_bytes(const struct sti_origin *origin);
uint32_t
sti_origin_align(const struct sti_origin *origin);

/* The range that covers [offset, offset + length) of a file; where a file is a sample, with one
 * byte more, so that a file that has grown is seen without a stat. */
struct sti_origin_range
sti_origin_cover(const struct sti_origin *origin, uint64_t offset, uint64_t length);

/* Makes op read a range of the file of extent into bytes (aligned to sti_origin_align()). */
void
sti_origin_prepare(const struct sti_origin *origin, const struct sti_extent *extent,
                   const struct sti_origin_range *range, void *bytes, struct sti_aio_op *op);

/*
 * Whether a read of range that returned result holds [skew, skew + length): 0, the read's own
 * error, -ENODATA the file is shorter than indexed, -EFBIG it is longer.
 */
int
sti_origin_check(const struct sti_origin *origin, const struct sti_origin_range *range,
                 uint64_t length, int32_t result);

/* What a code of sti_origin_check() means, for people. Returns a constant string. */
const char *
sti_origin_reason(int code);

#endif
