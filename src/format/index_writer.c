/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making an index, in memory: whoever indexes knows all counts before the first sample is
 * put, so the image is allocated once and filled in place. Invariant: the same samples in
 * the same order give the same bytes but for the sources' times. One thread per writer.
 */
#include "format/index.h"

#include <assert.h>
#include <errno.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "format/hash.h"
#include "format/index_layout.h"
#include "format/sizes.h"

struct table_offsets {
    uint64_t ranges, labels, sources, classes, fields, names;
};

static struct table_offsets
offsets_of(const struct sti_index_head *head)
{
    struct table_offsets at;

    at.ranges = STI_INDEX_HEAD_BYTES + head->samples * entry_bytes(head->format);
    at.labels = at.ranges + head->samples * ranges_bytes(head->fields);
    at.sources = at.labels + (head->has_labels ? head->samples * LABEL_BYTES : 0);
    at.classes = at.sources + (uint64_t)head->sources * SOURCE_BYTES;
    at.fields = at.classes + (uint64_t)head->classes * CLASS_BYTES;
    at.names = at.fields + (uint64_t)head->fields * FIELD_BYTES;
    return at;
}

int
sti_index_writer_init(struct sti_index_writer *writer, const struct sti_index_head *head)
{
    memset(writer, 0, sizeof(*writer));
    writer->head = *head;
    writer->head.index_bytes = offsets_of(head).names + head->names_bytes;
    writer->image = sti_mem_new(writer->head.index_bytes, 1);
    return writer->image ? 0 : -ENOMEM;
}

void
sti_index_writer_fini(struct sti_index_writer *writer)
{
    sti_mem_free(writer->image);
    writer->image = NULL;
}

/* Appends directory/name (or name) to the names. Returns its length and writes its
 * offset. */
static uint32_t
put_name(struct sti_index_writer *writer, const char *directory, const char *name, uint64_t *ret_at)
{
    size_t directory_bytes = strlen(directory), name_bytes = strlen(name);
    unsigned char *names = writer->image + offsets_of(&writer->head).names;
    unsigned char *to = names + writer->names_at;
    size_t n_bytes = directory_bytes + (directory_bytes > 0) + name_bytes;

    assert(writer->names_at + n_bytes + 1 <= writer->head.names_bytes);
    memcpy(to, directory, directory_bytes);
    if (directory_bytes > 0)
        to[directory_bytes++] = '/';
    memcpy(to + directory_bytes, name, name_bytes); /* the NUL is there: the image was zero */
    *ret_at = writer->names_at;
    writer->names_at += n_bytes + 1;
    return (uint32_t)n_bytes;
}

void
sti_index_put_entry(struct sti_index_writer *writer, uint64_t sample, const char *directory,
                    const char *name, uint64_t n_bytes, uint32_t label)
{
    unsigned char *at = writer->image + STI_INDEX_HEAD_BYTES + sample * ENTRY_BYTES;
    uint64_t path_at;

    put_u32(at + 20, put_name(writer, directory, name, &path_at));
    put_u64(at, path_at);
    put_u64(at + 8, n_bytes);
    put_u32(at + 16, label);
}

void
sti_index_put_span(struct sti_index_writer *writer, uint64_t sample,
                   const struct sti_index_span *span)
{
    unsigned char *at = writer->image + STI_INDEX_HEAD_BYTES + sample * SPAN_BYTES;
    uint64_t key_at;

    put_u32(at + 20, put_name(writer, "", span->key, &key_at));
    put_u64(at, key_at);
    put_u64(at + 8, span->n_bytes);
    put_u32(at + 16, span->source_idx);
    put_u64(at + 24, span->offset);
}

void
sti_index_put_range(struct sti_index_writer *writer, uint64_t sample, uint32_t field_idx,
                    const struct sti_index_range *range)
{
    unsigned char *at = writer->image + offsets_of(&writer->head).ranges;

    assert(writer->head.fields > 1);
    at += (sample * writer->head.fields + field_idx) * RANGE_BYTES;
    put_u64(at, range->at);
    put_u64(at + 8, range->n_bytes);
}

void
sti_index_put_field(struct sti_index_writer *writer, uint32_t field_idx, const char *name)
{
    unsigned char *at = writer->image + offsets_of(&writer->head).fields;
    uint64_t name_at;

    at += (size_t)field_idx * FIELD_BYTES;
    put_u32(at + 8, put_name(writer, "", name, &name_at));
    put_u64(at, name_at);
}

void
sti_index_put_label(struct sti_index_writer *writer, uint64_t sample, int64_t label)
{
    put_u64(writer->image + offsets_of(&writer->head).labels + sample * LABEL_BYTES,
            (uint64_t)label);
}

void
sti_index_put_class(struct sti_index_writer *writer, uint32_t class_idx, const char *name)
{
    unsigned char *at = writer->image + offsets_of(&writer->head).classes;
    uint64_t name_at;

    at += (size_t)class_idx * CLASS_BYTES;
    put_u32(at + 8, put_name(writer, "", name, &name_at));
    put_u64(at, name_at);
}

void
sti_index_put_fingerprint(struct sti_index_writer *writer)
{
    const struct sti_index_head *head = &writer->head;
    struct table_offsets at = offsets_of(head);
    uint64_t hash = STI_HASH_START;

    hash = sti_hash_u64(hash, head->format);
    hash = sti_hash_u64(hash, head->samples);
    hash = sti_hash_u64(hash, head->data_offset);
    hash = sti_hash_u64(hash, head->stride_bytes);
    hash = sti_hash_u64(hash, head->uniform_bytes);
    hash = sti_hash(hash, writer->image + STI_INDEX_HEAD_BYTES, at.sources - STI_INDEX_HEAD_BYTES);
    hash = sti_hash(hash, writer->image + at.classes, at.names - at.classes);
    hash = sti_hash(hash, writer->image + at.names, writer->names_at);
    writer->head.fingerprint = hash ? hash : 1;
}

void
sti_index_put_source(struct sti_index_writer *writer, uint32_t source_idx,
                     const struct sti_index_source *source)
{
    unsigned char *at = writer->image + offsets_of(&writer->head).sources;
    uint64_t path_at;

    at += (size_t)source_idx * SOURCE_BYTES;
    put_u32(at + 28, put_name(writer, "", source->path, &path_at));
    put_u64(at, path_at);
    put_u64(at + 8, (uint64_t)source->mtime_ns);
    put_u64(at + 16, source->n_bytes);
    put_u32(at + 24, source->kind);
}

/* One file: all samples have one size. */
static int
sum_uniform(struct sti_index_head *head)
{
    head->max_bytes = head->uniform_bytes;
    if (__builtin_mul_overflow(head->samples, head->uniform_bytes, &head->n_bytes) ||
        head->n_bytes > INT64_MAX)
        return -E2BIG;
    for (unsigned step = 0; step < STI_INDEX_LARGEST; step++) {
        uint64_t n = UINT64_C(1) << step;

        head->largest[step] = (n < head->samples ? n : head->samples) * head->uniform_bytes;
    }
    return 0;
}

/* Entries and spans have their size at the same place. */
static int
sum_sizes(struct sti_index_writer *writer)
{
    struct sti_index_head *head = &writer->head;
    const unsigned char *at = writer->image + STI_INDEX_HEAD_BYTES;
    struct sti_sizes sizes;

    if (sti_index_is_one_file(head->format))
        return sum_uniform(head);
    int rc = sti_sizes_begin(&sizes, head->samples);
    if (rc < 0)
        return rc;
    for (uint64_t sample = 0; rc == 0 && sample < head->samples; sample++)
        rc = sti_sizes_add(&sizes, get_u64(at + sample * entry_bytes(head->format) + 8), 1);
    sti_sizes_end(&sizes);
    head->n_bytes = sizes.n_bytes;
    head->max_bytes = sizes.max_bytes;
    head->uniform_bytes = sizes.uniform_bytes;
    memcpy(head->largest, sizes.largest, sizeof(head->largest));
    return rc;
}

static void
encode_head(const struct sti_index_head *head, unsigned char *at)
{
    memcpy(at + AT_MAGIC, INDEX_MAGIC, strlen(INDEX_MAGIC));
    put_u32(at + AT_VERSION, STI_INDEX_VERSION);
    put_u32(at + AT_HEAD_BYTES, STI_INDEX_HEAD_BYTES);
    put_u32(at + AT_FORMAT, head->format);
    put_u32(at + AT_AUTO_FORMAT, head->auto_format);
    put_u32(at + AT_HAS_LABELS, head->has_labels);
    put_u32(at + AT_DIMS, head->dims);
    put_u64(at + AT_SAMPLES, head->samples);
    put_u64(at + AT_BYTES, head->n_bytes);
    put_u64(at + AT_MAX_BYTES, head->max_bytes);
    put_u64(at + AT_UNIFORM_BYTES, head->uniform_bytes);
    put_u64(at + AT_FINGERPRINT, head->fingerprint);
    put_u64(at + AT_OPTIONS_HASH, head->options_hash);
    put_u64(at + AT_DATA_OFFSET, head->data_offset);
    put_u64(at + AT_STRIDE_BYTES, head->stride_bytes);
    put_u32(at + AT_FIELDS, head->fields);
    put_u64(at + AT_HOME_HASH, head->home_hash);
    put_u64(at + AT_NAMES_BYTES, head->names_bytes);
    put_u64(at + AT_INDEX_BYTES, head->index_bytes);
    put_u32(at + AT_CLASSES, head->classes);
    put_u32(at + AT_SOURCES, head->sources);
    put_u32(at + AT_HOME_SOURCE, head->home_source);
    memcpy(at + AT_DTYPE, head->dtype, sizeof(head->dtype));
    for (unsigned i = 0; i < STK_MAX_DIMS; i++)
        put_u64(at + AT_SHAPE + (size_t)8 * i, head->shape[i]);
    for (unsigned i = 0; i < STI_INDEX_LARGEST; i++)
        put_u64(at + AT_LARGEST + (size_t)8 * i, head->largest[i]);
}

void
sti_index_put_checksums(unsigned char *image, uint64_t n_bytes)
{
    put_u32(image + AT_TABLES_CRC,
            sti_crc32c(0, image + STI_INDEX_HEAD_BYTES, n_bytes - STI_INDEX_HEAD_BYTES));
    put_u32(image + AT_HEAD_CRC, sti_crc32c(0, image, AT_HEAD_CRC));
}

int
sti_index_seal(struct sti_index_writer *writer)
{
    int rc = sum_sizes(writer);
    if (rc < 0)
        return rc;
    assert(writer->names_at == writer->head.names_bytes);
    encode_head(&writer->head, writer->image);
    sti_index_put_checksums(writer->image, writer->head.index_bytes);
    return 0;
}

void
sti_index_make_stamp(unsigned char stamp[STI_INDEX_STAMP_BYTES], int64_t mtime_ns)
{
    put_u64(stamp, (uint64_t)mtime_ns);
    put_u32(stamp + 8, 1);
    put_u32(stamp + 12, sti_crc32c(0, stamp, 12));
}

void
sti_index_put_home(unsigned char *image, uint32_t home_source, uint64_t home_hash)
{
    put_u32(image + AT_HOME_SOURCE, home_source);
    put_u64(image + AT_HOME_HASH, home_hash);
    put_u32(image + AT_HEAD_CRC, sti_crc32c(0, image, AT_HEAD_CRC));
}
