/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of a data set as bytes: reading it, checking it, making it. index_layout.h
 * specifies the layout; docs/format/index.md says the same for people. No I/O in here.
 */
#ifndef STI_FORMAT_INDEX_H
#define STI_FORMAT_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stoker/engine.h>

#define STI_INDEX_VERSION 2
#define STI_INDEX_VERSION_MIN 1 /* the oldest that is read */
#define STI_INDEX_HEAD_BYTES 512
#define STI_INDEX_LARGEST 19 /* sums of the 2^0, 2^1 .. 2^18 largest samples */
#define STI_INDEX_NO_HOME UINT32_MAX
#define STI_INDEX_NO_LABEL UINT32_MAX
#define STI_INDEX_NO_FIELD UINT64_MAX
#define STI_INDEX_STAMP_AT 496
#define STI_INDEX_STAMP_BYTES 16

/* What to do about an index that cannot be used: the end of a message. */
#define STI_INDEX_HINT "; rebuild the index (option rebuild, or: stoker index --rebuild)"

/* What an index was made from and is only good for while it has not changed. */
enum sti_index_source_kind {
    STI_INDEX_DIRECTORY = 0, /* of folders: path relative to the root, "" the root itself */
    STI_INDEX_DATA = 1,      /* the one file or a shard; path relative to the directory */
    STI_INDEX_LABELS = 2     /* the labels file; path "", it is what the options say */
};

struct sti_index_source {
    const char *path; /* borrowed from the index */
    enum sti_index_source_kind kind;
    int64_t mtime_ns; /* of the epoch 1970, modulo 2^64 */
    uint64_t n_bytes; /* files; directories 0 */
};

struct sti_index_entry {
    const char *path; /* relative to the root; borrowed from the index */
    uint64_t n_bytes;
    uint32_t label; /* STI_INDEX_NO_LABEL without */
};

/* A sample of shards: its fields lie in [offset, offset + n_bytes) of a source. */
struct sti_index_span {
    const char *key; /* borrowed from the index */
    uint64_t offset;
    uint64_t n_bytes;
    uint32_t source_idx;
};

/* A field in its sample's span; at STI_INDEX_NO_FIELD where the sample has none. */
struct sti_index_range {
    uint64_t at;
    uint64_t n_bytes;
};

/* The head, decoded. */
struct sti_index_head {
    uint32_t format;      /* stk_format, never AUTO */
    uint32_t auto_format; /* what AUTO would have chosen; 0 nothing */
    uint32_t has_labels;  /* 1: a table of labels */
    uint32_t classes;
    uint32_t sources;
    uint32_t home_source; /* the directory that the index itself lies in, or NO_HOME */
    uint32_t dims;
    uint32_t tables_crc;
    uint64_t samples;
    uint64_t n_bytes; /* sum of all samples */
    uint64_t max_bytes;
    uint64_t uniform_bytes; /* 0 where sizes differ */
    uint64_t fingerprint;
    uint64_t options_hash;
    uint64_t data_offset;  /* one file: where sample 0 begins */
    uint64_t stride_bytes; /* one file: from one sample to the next */
    uint64_t home_hash;    /* sti_index_name_hash() summed over the names in the home directory */
    uint64_t names_bytes;
    uint64_t index_bytes;
    uint32_t fields; /* shards: fields of a sample; else 0 */
    uint64_t shape[STK_MAX_DIMS];
    uint64_t largest[STI_INDEX_LARGEST];
    char dtype[8];
};

/* An index in memory of somebody else. */
struct sti_index {
    struct sti_index_head head;
    const unsigned char *image;
    const unsigned char *entries;
    const unsigned char *ranges;
    const unsigned char *labels;
    const unsigned char *source_table;
    const unsigned char *class_table;
    const unsigned char *field_table;
    const char *names;
};

/* Whether all samples of a format lie in one file. */
bool
sti_index_is_one_file(uint32_t format);

/*
 * Reads and checks the head. image: borrowed as long as ret_index is used, 8 B aligned.
 * Errors: STK_E_CORRUPT, STK_E_VERSION; err says what is wrong, without a path.
 */
int
sti_index_parse(struct sti_index *ret_index, const void *image, uint64_t n_bytes, stk_error *err);

/*
 * Checks all tables: the checksum, every reference into the names, that no path leaves
 * the data set, that sizes agree with their sums. Reads the whole index once. Errors as
 * parse.
 */
int
sti_index_verify(const struct sti_index *index, stk_error *err);

/*
 * A sample of folders; sample < samples. Errors: STK_E_CORRUPT: the reference leads out
 * of the index, which after sti_index_verify() means that the memory has changed.
 */
int
sti_index_get_entry(const struct sti_index *index, uint64_t sample,
                    struct sti_index_entry *ret_entry);

/* A sample of shards, and its fields (field_idx < fields). Errors as
 * sti_index_get_entry(). */
int
sti_index_get_span(const struct sti_index *index, uint64_t sample, struct sti_index_span *ret_span);
int
sti_index_get_range(const struct sti_index *index, uint64_t sample, uint32_t field_idx,
                    struct sti_index_range *ret_range);

/* The name of a field; field_idx < fields. NULL: the reference leads out of the index. */
const char *
sti_index_get_field(const struct sti_index *index, uint32_t field_idx);

/* A label of the table; has_labels, sample < samples. */
int64_t
sti_index_get_label(const struct sti_index *index, uint64_t sample);

/* A source; source_idx < sources. Errors as sti_index_get_entry(). */
int
sti_index_get_source(const struct sti_index *index, uint32_t source_idx,
                     struct sti_index_source *ret_source);

/* A class name; class_idx < classes. NULL: the reference leads out of the index. */
const char *
sti_index_get_class(const struct sti_index *index, uint32_t class_idx);

/* The mtime that the home directory had when the index lay in it. False where none is
 * noted. */
bool
sti_index_get_stamp(const struct sti_index *index, int64_t *ret_mtime_ns);

/* Makes the bytes of a stamp, to be written at STI_INDEX_STAMP_AT. */
void
sti_index_make_stamp(unsigned char stamp[STI_INDEX_STAMP_BYTES], int64_t mtime_ns);

/* One name's part of home_hash. */
uint64_t
sti_index_name_hash(const char *name);

/* An index being made. Names are put in the order of their use; see sti_index_seal(). */
struct sti_index_writer {
    struct sti_index_head head;
    unsigned char *image; /* owned until taken */
    uint64_t names_at;    /* of the next name, from the start of the names */
};

/*
 * Starts an index: head's format, counts, names_bytes (with a NUL per name) and
 * has_labels are set. Errors: -ENOMEM.
 */
int
sti_index_writer_init(struct sti_index_writer *writer, const struct sti_index_head *head);

/* Frees the image; what was never started (all zero) is allowed. */
void
sti_index_writer_fini(struct sti_index_writer *writer);

/* Sample number sample is directory/name (directory may be ""). */
void
sti_index_put_entry(struct sti_index_writer *writer, uint64_t sample, const char *directory,
                    const char *name, uint64_t n_bytes, uint32_t label);

/* A sample of shards; without its fields where they are one, which then is the span. */
void
sti_index_put_span(struct sti_index_writer *writer, uint64_t sample,
                   const struct sti_index_span *span);
void
sti_index_put_range(struct sti_index_writer *writer, uint64_t sample, uint32_t field_idx,
                    const struct sti_index_range *range);
void
sti_index_put_field(struct sti_index_writer *writer, uint32_t field_idx, const char *name);

void
sti_index_put_label(struct sti_index_writer *writer, uint64_t sample, int64_t label);

void
sti_index_put_class(struct sti_index_writer *writer, uint32_t class_idx, const char *name);

/* Notes where the names of samples, classes and fields end and those of sources begin:
 * the former belong to the fingerprint. */
void
sti_index_put_fingerprint(struct sti_index_writer *writer);

void
sti_index_put_source(struct sti_index_writer *writer, uint32_t source_idx,
                     const struct sti_index_source *source);

/*
 * Sums up sizes, writes head and checksums. Order of calls: entries or spans, labels,
 * classes and fields, fingerprint, sources, seal. Errors: -ENOMEM, -E2BIG the sizes add
 * up to more than INT64_MAX.
 */
int
sti_index_seal(struct sti_index_writer *writer);

/* Notes in a sealed image in which of its directories it will lie. home_hash: as in the
 * head. */
void
sti_index_put_home(unsigned char *image, uint32_t home_source, uint64_t home_hash);

/* Writes the checksums of an image of n_bytes >= STI_INDEX_HEAD_BYTES anew. */
void
sti_index_put_checksums(unsigned char *image, uint64_t n_bytes);

#endif
