/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where bytes of the stream lie: all extents of all parts in the stream's order, made once
 * when a reader is opened, so that finding one of many tensors in many extents is a search
 * and not a walk. Values only; one thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "ckpt/reader_internal.h"

static int
compare(const void *left, const void *right)
{
    const struct sti_stretch *a = left;
    const struct sti_stretch *b = right;

    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

int
sti_reader_map(struct sti_reader *reader)
{
    const struct sti_manifest *manifest = &reader->manifest;
    size_t n = 0;

    for (uint32_t part = 0; part < manifest->n_parts; part++)
        n += manifest->parts[part].n_extents;
    reader->stretches = n <= UINT32_MAX ? sti_mem_new(n, sizeof(reader->stretches[0])) : NULL;
    if (!reader->stretches)
        return -ENOMEM;
    for (uint32_t part = 0; part < manifest->n_parts; part++) {
        uint64_t part_offset = 0;

        for (uint32_t at = 0; at < manifest->parts[part].n_extents; at++) {
            const struct sti_part_extent *extent = &manifest->parts[part].extents[at];

            reader->stretches[reader->n_stretches++] =
                (struct sti_stretch){.offset = extent->offset,
                                     .n_bytes = extent->n_bytes,
                                     .part_offset = part_offset,
                                     .part = part};
            part_offset += extent->n_bytes;
        }
    }
    qsort(reader->stretches, reader->n_stretches, sizeof(reader->stretches[0]), compare);
    return 0;
}

/* The first stretch that ends behind an offset. */
static uint32_t
find(const struct sti_reader *reader, uint64_t offset)
{
    uint32_t low = 0;
    uint32_t high = reader->n_stretches;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (reader->stretches[middle].offset + reader->stretches[middle].n_bytes > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int
add_segment(struct sti_segments *segments, const struct sti_segment *segment)
{
    if (segments->n == segments->capacity) {
        uint32_t capacity = segments->capacity ? 2 * segments->capacity : 64;
        void *grown = sti_mem_resize(segments->list, capacity, sizeof(segments->list[0]));

        if (!grown)
            return -ENOMEM;
        segments->list = grown;
        segments->capacity = capacity;
    }
    segments->list[segments->n++] = *segment;
    return 0;
}

int
sti_segments_add(struct sti_segments *segments, const struct sti_reader *reader,
                 struct sti_segment range, uint64_t n_bytes)
{
    uint64_t from = range.stream_offset;
    uint64_t to = from + n_bytes;
    char *dst = range.dst;
    int rc = 0;

    for (uint32_t at = find(reader, from); rc == 0 && at < reader->n_stretches; at++) {
        const struct sti_stretch *stretch = &reader->stretches[at];
        uint64_t begin = stretch->offset > from ? stretch->offset : from;
        uint64_t end = stretch->offset + stretch->n_bytes;

        if (begin >= to)
            break;
        end = end < to ? end : to;
        range.part = stretch->part;
        range.offset = stretch->part_offset + (begin - stretch->offset);
        range.n_bytes = end - begin;
        range.stream_offset = begin;
        range.dst = dst ? dst + (begin - from) : NULL;
        rc = add_segment(segments, &range);
    }
    return rc;
}
