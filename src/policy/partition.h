/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who writes which bytes of a checkpoint, and where to: a pure decision that every writer
 * makes alike from the same inputs.
 *
 * The stream is a row of spans. A span that all writers hold may be cut anywhere at a
 * chunk; a span that one writer alone holds goes whole to one of that writer's targets.
 * Shares are such that all targets end at the same time, by their speeds, within one
 * chunk.
 */
#ifndef STI_POLICY_PARTITION_H
#define STI_POLICY_PARTITION_H

#include <stdint.h>

#define STI_SPAN_SHARED UINT32_MAX

/* A stretch of the stream, in stream order. */
struct sti_span {
    uint64_t n_bytes;
    uint32_t owner; /* the one writer that holds it, or STI_SPAN_SHARED: all do */
};

/* A root of a writer. bytes_per_s: its speed, only compared with others; > 0. */
struct sti_target {
    uint32_t writer;
    uint32_t root;
    double bytes_per_s;
};

/* A stretch of the stream that one target writes. Cuts cover the stream once, in its
 * order. */
struct sti_cut {
    uint64_t offset;
    uint64_t n_bytes;
    uint32_t target;
};

struct sti_partition {
    const struct sti_span *spans;
    uint32_t n_spans;
    const struct sti_target *targets; /* every owner has at least one */
    uint32_t n_targets;               /* 1 .. STI_TARGETS_MAX */
    uint32_t chunk_bytes;
};

#define STI_TARGETS_MAX 4096u

/* How many cuts a partition may need. */
uint32_t
sti_partition_cuts_max(const struct sti_partition *partition);

/* Where the share of a member of n begins in n_bytes that all of them hold: at a chunk, shares
 * being equal within one; with member n, n_bytes. */
uint64_t
sti_partition_share(uint64_t n_bytes, uint32_t n, uint32_t member, uint32_t chunk_bytes);

/*
 * Fills cuts (room for sti_partition_cuts_max()) and returns how many there are.
 * load_bytes: scratch for 2 x n_targets values; the first n_targets hold the bytes of
 * each target afterwards. Neighbouring stretches of one target are one cut; empty spans
 * have none. Errors: -EINVAL a span's owner has no target, or too many targets.
 */
int64_t
sti_partition_cut(const struct sti_partition *partition, struct sti_cut *cuts, double *load_bytes);

#endif
