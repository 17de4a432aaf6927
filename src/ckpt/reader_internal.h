/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the reader share; nobody else includes this. */
#ifndef STI_CKPT_READER_INTERNAL_H
#define STI_CKPT_READER_INTERNAL_H

#include "base/mem.h"
#include "ckpt/nodes.h"
#include "ckpt/reader.h"
#include "io/dio.h"

struct sti_reader_part {
    int fd;        /* -1: it is on another node */
    uint32_t node; /* which, of the scan's */
    bool is_missing;
    struct sti_dio dio;
};

/* An extent, and where it lies. */
struct sti_stretch {
    uint64_t offset; /* in the stream */
    uint64_t n_bytes;
    uint64_t part_offset;
    uint32_t part;
};

struct sti_reader {
    struct sti_reader_opts opts;
    struct sti_manifest manifest;
    struct sti_reader_part *parts;
    struct sti_stretch *stretches; /* all extents in the order of the stream, which they cover */
    uint32_t n_stretches;
    char *file_path; /* of a plain file, else NULL */
    uint32_t slot_bytes;
    uint64_t mended_bytes;
};

/* A stretch of a part's file that somebody wants. */
struct sti_segment {
    uint32_t part;
    uint64_t offset; /* in the part's file */
    uint64_t n_bytes;
    uint64_t stream_offset;
    const struct sti_want *want; /* NULL: plain bytes to dst, or only to be checked */
    char *dst;                   /* of plain bytes; NULL: only to be checked */
};

/* Segments in the order of parts and offsets. */
struct sti_segments {
    struct sti_segment *list;
    uint32_t n;
    uint32_t capacity;
};

/* What becomes of a read of segments. */
struct sti_reading {
    sti_reader_progress_fn progress;
    void *context;
    uint64_t total_bytes;
    bool is_strict; /* nothing is taken from another copy */
};

/* Fills the reader's stretches from its manifest. Errors: -ENOMEM. */
int
sti_reader_map(struct sti_reader *reader);

/* Adds where a range of the stream lies. Errors: -ENOMEM. */
int
sti_segments_add(struct sti_segments *segments, const struct sti_reader *reader,
                 struct sti_segment range, uint64_t n_bytes);

/* Reads what the segments want. */
int
sti_reader_run(struct sti_reader *reader, struct sti_segments *segments,
               const struct sti_reading *reading, stk_error *err);

/* For messages: the path of a part. */
const char *
sti_reader_part_path(const struct sti_reader *reader, uint32_t part, char *path, size_t path_size);

#endif
