/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading an index. The file may be anything, so the head is checked before a table is
 * touched and every reference of a table before it is followed. Invariant: a string that
 * leaves this file begins and ends inside the names. Nothing is kept; any thread may
 * read.
 *
 * A path must stay below the data set: not absolute and without "..", so that an index
 * from elsewhere cannot make a job read another person's files by way of a data set's
 * name.
 */
#include "format/index.h"

#include <limits.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "format/hash.h"
#include "format/index_layout.h"

#define SAMPLES_MAX (UINT64_C(1) << 48)

bool
sti_index_is_one_file(uint32_t format)
{
    return format >= STK_FORMAT_RECORD && format <= STK_FORMAT_WINDOW;
}

static void
decode_head(struct sti_index_head *head, const unsigned char *at)
{
    head->format = get_u32(at + AT_FORMAT);
    head->auto_format = get_u32(at + AT_AUTO_FORMAT);
    head->has_labels = get_u32(at + AT_HAS_LABELS);
    head->dims = get_u32(at + AT_DIMS);
    head->samples = get_u64(at + AT_SAMPLES);
    head->n_bytes = get_u64(at + AT_BYTES);
    head->max_bytes = get_u64(at + AT_MAX_BYTES);
    head->uniform_bytes = get_u64(at + AT_UNIFORM_BYTES);
    head->fingerprint = get_u64(at + AT_FINGERPRINT);
    head->options_hash = get_u64(at + AT_OPTIONS_HASH);
    head->data_offset = get_u64(at + AT_DATA_OFFSET);
    head->stride_bytes = get_u64(at + AT_STRIDE_BYTES);
    head->fields = get_u32(at + AT_FIELDS);
    head->home_hash = get_u64(at + AT_HOME_HASH);
    head->names_bytes = get_u64(at + AT_NAMES_BYTES);
    head->index_bytes = get_u64(at + AT_INDEX_BYTES);
    head->classes = get_u32(at + AT_CLASSES);
    head->sources = get_u32(at + AT_SOURCES);
    head->home_source = get_u32(at + AT_HOME_SOURCE);
    head->tables_crc = get_u32(at + AT_TABLES_CRC);
    memcpy(head->dtype, at + AT_DTYPE, sizeof(head->dtype));
    for (unsigned i = 0; i < STK_MAX_DIMS; i++)
        head->shape[i] = get_u64(at + AT_SHAPE + (size_t)8 * i);
    for (unsigned i = 0; i < STI_INDEX_LARGEST; i++)
        head->largest[i] = get_u64(at + AT_LARGEST + (size_t)8 * i);
}

/* What of the head is out of its range, or NULL. */
static const char *
head_fault(const struct sti_index_head *head)
{
    if (head->format < STK_FORMAT_CLASS_FOLDER || head->format > STK_FORMAT_TAR)
        return "unknown format";
    if (head->auto_format > STK_FORMAT_TAR)
        return "unknown detected format";
    if (head->has_labels > 1 || (head->has_labels && entry_bytes(head->format) == ENTRY_BYTES))
        return "bad label flag";
    if (head->samples == 0 || head->samples > SAMPLES_MAX)
        return "number of samples out of range";
    if ((head->format == STK_FORMAT_CLASS_FOLDER) != (head->classes > 0))
        return "number of classes out of range";
    if ((head->format == STK_FORMAT_TAR) != (head->fields > 0) || head->fields > STK_MAX_FIELDS)
        return "number of fields out of range";
    if (head->sources == 0)
        return "no sources";
    if (head->home_source != STI_INDEX_NO_HOME && head->home_source >= head->sources)
        return "home directory out of range";
    if (head->dims > STK_MAX_DIMS || head->dtype[sizeof(head->dtype) - 1] != '\0')
        return "bad shape or type";
    if (head->n_bytes > INT64_MAX || head->max_bytes > head->n_bytes)
        return "sizes out of range";
    if (sti_index_is_one_file(head->format) && head->uniform_bytes == 0)
        return "samples without a size";
    return NULL;
}

/* Finds the tables; false where they do not fill the index exactly. */
static bool
place_tables(struct sti_index *index)
{
    const struct sti_index_head *head = &index->head;
    /* No sum can overflow: 2^48 x (32 + 32 x 16 + 8) + 2 x 2^32 x 32 is far below
     * 2^64. */
    uint64_t entries = head->samples * entry_bytes(head->format);
    uint64_t ranges = head->samples * ranges_bytes(head->fields);
    uint64_t labels = head->has_labels ? head->samples * LABEL_BYTES : 0;
    uint64_t sources = (uint64_t)head->sources * SOURCE_BYTES;
    uint64_t classes = (uint64_t)head->classes * CLASS_BYTES;
    uint64_t fields = (uint64_t)head->fields * FIELD_BYTES;
    uint64_t tables = STI_INDEX_HEAD_BYTES + entries + ranges + labels + sources + classes + fields;

    if (tables > head->index_bytes || head->names_bytes != head->index_bytes - tables)
        return false;
    index->entries = index->image + STI_INDEX_HEAD_BYTES;
    index->ranges = index->entries + entries;
    index->labels = index->ranges + ranges;
    index->source_table = index->labels + labels;
    index->class_table = index->source_table + sources;
    index->field_table = index->class_table + classes;
    index->names = (const char *)index->field_table + fields;
    return true;
}

int
sti_index_parse(struct sti_index *ret_index, const void *image, uint64_t n_bytes, stk_error *err)
{
    struct sti_index index = {.image = image};

    if (n_bytes < STI_INDEX_HEAD_BYTES)
        return sti_error_set(
            err, STK_E_CORRUPT,
            "the index is cut off: %llu bytes are less than its head" STI_INDEX_HINT,
            (unsigned long long)n_bytes);
    if (memcmp(index.image, INDEX_MAGIC, strlen(INDEX_MAGIC)) != 0)
        return sti_error_set(
            err, STK_E_CORRUPT,
            "this is no index: it does not begin with %s; give another index_path, or "
            "have it replaced (option rebuild, or: stoker index --rebuild)",
            INDEX_MAGIC);
    uint32_t version = get_u32(index.image + AT_VERSION);
    if (version < STI_INDEX_VERSION_MIN || version > STI_INDEX_VERSION)
        return sti_error_set(
            err, STK_E_VERSION,
            "the index has format version %u, this library reads %d to %d" STI_INDEX_HINT, version,
            STI_INDEX_VERSION_MIN, STI_INDEX_VERSION);
    if (get_u32(index.image + AT_HEAD_CRC) != sti_crc32c(0, index.image, AT_HEAD_CRC) ||
        get_u32(index.image + AT_HEAD_BYTES) != STI_INDEX_HEAD_BYTES)
        return sti_error_set(err, STK_E_CORRUPT,
                             "the checksum of the index's head is wrong" STI_INDEX_HINT);
    decode_head(&index.head, index.image);
    const char *fault = head_fault(&index.head);
    if (!fault && version < 2 && index.head.format == STK_FORMAT_TAR)
        fault = "its version has no shards";
    if (fault)
        return sti_error_set(err, STK_E_CORRUPT, "the index's head is damaged: %s" STI_INDEX_HINT,
                             fault);
    if (index.head.index_bytes != n_bytes)
        return sti_error_set(
            err, STK_E_CORRUPT,
            "the index is %s: it should have %llu bytes and has %llu" STI_INDEX_HINT,
            n_bytes < index.head.index_bytes ? "cut off" : "longer than it was made",
            (unsigned long long)index.head.index_bytes, (unsigned long long)n_bytes);
    if (!place_tables(&index))
        return sti_error_set(
            err, STK_E_CORRUPT,
            "the index's head is damaged: its tables do not fill it" STI_INDEX_HINT);
    *ret_index = index;
    return 0;
}

/* A string of the names by offset and length; NULL where it leads out of them. */
static const char *
get_name(const struct sti_index *index, uint64_t at, uint32_t length)
{
    uint64_t room = index->head.names_bytes;

    if (at >= room || length >= room - at || index->names[at + length] != '\0')
        return NULL;
    return index->names + at;
}

int
sti_index_get_entry(const struct sti_index *index, uint64_t sample,
                    struct sti_index_entry *ret_entry)
{
    const unsigned char *at = index->entries + sample * ENTRY_BYTES;
    const char *path = get_name(index, get_u64(at), get_u32(at + 20));

    if (!path)
        return STK_E_CORRUPT;
    ret_entry->path = path;
    ret_entry->n_bytes = get_u64(at + 8);
    ret_entry->label = get_u32(at + 16);
    return 0;
}

int
sti_index_get_span(const struct sti_index *index, uint64_t sample, struct sti_index_span *ret_span)
{
    const unsigned char *at = index->entries + sample * SPAN_BYTES;
    const char *key = get_name(index, get_u64(at), get_u32(at + 20));

    if (!key || get_u32(at + 16) >= index->head.sources)
        return STK_E_CORRUPT;
    ret_span->key = key;
    ret_span->n_bytes = get_u64(at + 8);
    ret_span->source_idx = get_u32(at + 16);
    ret_span->offset = get_u64(at + 24);
    return 0;
}

int
sti_index_get_range(const struct sti_index *index, uint64_t sample, uint32_t field_idx,
                    struct sti_index_range *ret_range)
{
    const unsigned char *entry = index->entries + sample * SPAN_BYTES;
    uint64_t span_bytes = get_u64(entry + 8);

    if (index->head.fields == 1) {
        *ret_range = (struct sti_index_range){.at = 0, .n_bytes = span_bytes};
        return 0;
    }
    const unsigned char *at =
        index->ranges + (sample * index->head.fields + field_idx) * RANGE_BYTES;
    struct sti_index_range range = {.at = get_u64(at), .n_bytes = get_u64(at + 8)};
    if (range.at == STI_INDEX_NO_FIELD
            ? range.n_bytes > 0
            : range.at > span_bytes || range.n_bytes > span_bytes - range.at)
        return STK_E_CORRUPT;
    *ret_range = range;
    return 0;
}

const char *
sti_index_get_field(const struct sti_index *index, uint32_t field_idx)
{
    const unsigned char *at = index->field_table + (size_t)field_idx * FIELD_BYTES;

    return get_name(index, get_u64(at), get_u32(at + 8));
}

int64_t
sti_index_get_label(const struct sti_index *index, uint64_t sample)
{
    return (int64_t)get_u64(index->labels + sample * LABEL_BYTES);
}

int
sti_index_get_source(const struct sti_index *index, uint32_t source_idx,
                     struct sti_index_source *ret_source)
{
    const unsigned char *at = index->source_table + (size_t)source_idx * SOURCE_BYTES;
    const char *path = get_name(index, get_u64(at), get_u32(at + 28));
    uint32_t kind = get_u32(at + 24);

    if (!path || kind > STI_INDEX_LABELS)
        return STK_E_CORRUPT;
    ret_source->path = path;
    ret_source->mtime_ns = (int64_t)get_u64(at + 8);
    ret_source->n_bytes = get_u64(at + 16);
    ret_source->kind = (enum sti_index_source_kind)kind;
    return 0;
}

const char *
sti_index_get_class(const struct sti_index *index, uint32_t class_idx)
{
    const unsigned char *at = index->class_table + (size_t)class_idx * CLASS_BYTES;

    return get_name(index, get_u64(at), get_u32(at + 8));
}

bool
sti_index_get_stamp(const struct sti_index *index, int64_t *ret_mtime_ns)
{
    const unsigned char *at = index->image + AT_STAMP;

    if (get_u32(at + 8) != 1 || get_u32(at + 12) != sti_crc32c(0, at, 12))
        return false;
    *ret_mtime_ns = (int64_t)get_u64(at);
    return true;
}

uint64_t
sti_index_name_hash(const char *name)
{
    return sti_hash(STI_HASH_START, name, strlen(name));
}

/* Whether a path of this length holds no NUL, stays below the data set and can be
 * opened. */
static bool
is_inside(const char *path, size_t length)
{
    if (length >= PATH_MAX || path[0] == '/' || memchr(path, '\0', length))
        return false;
    for (const char *dots = path; (dots = strstr(dots, "..")) != NULL; dots++)
        if ((dots == path || dots[-1] == '/') && (dots[2] == '/' || dots[2] == '\0'))
            return false;
    return true;
}

/* Sums over the sizes of samples, as the head has them. */
struct sums {
    uint64_t sum, max, smallest;
};

static bool
add_size(struct sums *sums, uint64_t n_bytes)
{
    if (n_bytes > INT64_MAX - sums->sum)
        return false;
    sums->sum += n_bytes;
    sums->max = n_bytes > sums->max ? n_bytes : sums->max;
    sums->smallest = n_bytes < sums->smallest ? n_bytes : sums->smallest;
    return true;
}

static const char *
sums_fault(const struct sti_index_head *head, const struct sums *sums)
{
    if (sums->sum != head->n_bytes || sums->max != head->max_bytes)
        return "the sizes of the samples do not fit their sums";
    if (head->uniform_bytes != (sums->smallest == sums->max ? sums->max : 0))
        return "the sizes of the samples differ";
    return NULL;
}

static const char *
entries_fault(const struct sti_index *index)
{
    const struct sti_index_head *head = &index->head;
    struct sti_index_entry entry;
    struct sums sums = {.smallest = UINT64_MAX};

    for (uint64_t sample = 0; sample < head->samples; sample++) {
        const unsigned char *at = index->entries + sample * ENTRY_BYTES;

        if (sti_index_get_entry(index, sample, &entry) != 0 || entry.path[0] == '\0' ||
            !is_inside(entry.path, get_u32(at + 20)))
            return "a sample's path leads out of the data set";
        if (head->classes > 0 ? entry.label >= head->classes : entry.label != STI_INDEX_NO_LABEL)
            return "a sample's label is no class";
        if (!add_size(&sums, entry.n_bytes))
            return "the sizes add up to too much";
    }
    return sums_fault(head, &sums);
}

/* Spans have to lie in their shards, and fields in their spans. Keys are no paths. */
static const char *
spans_fault(const struct sti_index *index)
{
    const struct sti_index_head *head = &index->head;
    struct sums sums = {.smallest = UINT64_MAX};
    struct sti_index_source source = {0};
    uint32_t source_idx = UINT32_MAX;
    struct sti_index_span span;
    struct sti_index_range range;

    for (uint64_t sample = 0; sample < head->samples; sample++) {
        if (sti_index_get_span(index, sample, &span) != 0)
            return "a sample's key or shard does not exist";
        if (span.source_idx != source_idx &&
            sti_index_get_source(index, span.source_idx, &source) != 0)
            return "a shard has no path";
        source_idx = span.source_idx;
        if (source.n_bytes > INT64_MAX || span.offset > source.n_bytes ||
            span.n_bytes > source.n_bytes - span.offset)
            return "a sample lies beyond the end of its shard";
        for (uint32_t field = 0; field < head->fields; field++)
            if (sti_index_get_range(index, sample, field, &range) != 0)
                return "a field lies outside of its sample";
        if (!add_size(&sums, span.n_bytes))
            return "the sizes add up to too much";
    }
    return sums_fault(head, &sums);
}

/* Samples of one file have to lie in it, and sizes to fit their sums. */
static const char *
ranges_fault(const struct sti_index *index)
{
    const struct sti_index_head *head = &index->head;
    struct sti_index_source data;
    uint64_t last, end, sum;

    if (sti_index_get_source(index, 0, &data) != 0 || data.kind != STI_INDEX_DATA ||
        data.path[0] == '\0' || strchr(data.path, '/'))
        return "there is no data file";
    if (__builtin_mul_overflow(head->samples - 1, head->stride_bytes, &last) ||
        __builtin_add_overflow(last, head->data_offset, &end) ||
        __builtin_add_overflow(end, head->uniform_bytes, &end) || end > data.n_bytes ||
        data.n_bytes > INT64_MAX)
        return "samples lie beyond the end of the file";
    if (__builtin_mul_overflow(head->samples, head->uniform_bytes, &sum) || sum != head->n_bytes ||
        head->max_bytes != head->uniform_bytes)
        return "the sizes of the samples do not fit their sums";
    return NULL;
}

/* Sums of the largest: each at least the one before and at most twice it, ending in the
 * sum of all where there are no more samples. */
static const char *
largest_fault(const struct sti_index_head *head)
{
    uint64_t before = head->max_bytes;

    if (head->largest[0] != head->max_bytes)
        return "the largest sample is not the largest";
    for (unsigned i = 1; i < STI_INDEX_LARGEST; i++) {
        uint64_t sum = head->largest[i];

        if (sum < before || sum - before > before || sum > head->n_bytes ||
            (head->samples <= UINT64_C(1) << i && sum != head->n_bytes))
            return "the sums of the largest samples are wrong";
        before = sum;
    }
    return NULL;
}

static const char *
sources_fault(const struct sti_index *index)
{
    const struct sti_index_head *head = &index->head;
    struct sti_index_source source;

    for (uint32_t i = 0; i < head->sources; i++) {
        if (sti_index_get_source(index, i, &source) != 0 ||
            !is_inside(source.path, get_u32(index->source_table + (size_t)i * SOURCE_BYTES + 28)))
            return "a source's path leads out of the data set";
        if (head->format == STK_FORMAT_TAR && (source.kind != STI_INDEX_DATA || !*source.path))
            return "a shard is no file";
        if (i == head->home_source && source.kind != STI_INDEX_DIRECTORY)
            return "the home of the index is no directory";
    }
    for (uint32_t i = 0; i < head->classes; i++) {
        const char *name = sti_index_get_class(index, i);

        if (!name || name[0] == '\0')
            return "a class has no name";
    }
    for (uint32_t i = 0; i < head->fields; i++)
        if (!sti_index_get_field(index, i))
            return "a field has no name";
    return NULL;
}

int
sti_index_verify(const struct sti_index *index, stk_error *err)
{
    const unsigned char *tables = index->image + STI_INDEX_HEAD_BYTES;
    uint64_t n_bytes = index->head.index_bytes - STI_INDEX_HEAD_BYTES;

    if (sti_crc32c(0, tables, n_bytes) != index->head.tables_crc)
        return sti_error_set(err, STK_E_CORRUPT,
                             "the checksum of the index's tables is wrong" STI_INDEX_HINT);
    const char *fault = sources_fault(index);
    if (!fault && index->head.format == STK_FORMAT_TAR)
        fault = spans_fault(index);
    else if (!fault)
        fault =
            sti_index_is_one_file(index->head.format) ? ranges_fault(index) : entries_fault(index);
    if (!fault)
        fault = largest_fault(&index->head);
    if (fault)
        return sti_error_set(err, STK_E_CORRUPT,
                             "the index's tables are damaged: %s" STI_INDEX_HINT, fault);
    return 0;
}
