/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of an index, version 2. All numbers are little-endian; tables follow the head
 * and each other without a gap, in this order, and everything but the names is 8 B
 * aligned.
 *
 *   head         512 B, below
 *   entries      samples x 24 B     folders only: path u64, bytes u64, label u32, path length u32
 *   spans        samples x 32 B     shards only: key u64, bytes u64, source u32, key length u32,
 *                                   offset u64
 *   ranges       samples x fields x 16 B   more than one field only: at u64, bytes u64
 *   labels       samples x 8 B      only with has_labels: i64
 *   sources      sources x 32 B     path u64, mtime_ns i64, bytes u64, kind u32, path length u32
 *   classes      classes x 16 B     name u64, length u32, 0 u32
 *   fields       fields x 16 B      as classes
 *   names        names_bytes        strings, each ended by a NUL
 *
 * A path or name is an offset into the names. The head:
 *
 *     0  8  "STKINDEX"                        104  8  home_hash
 *     8  4  version, 2                        112  8  names_bytes
 *    12  4  bytes of the head, 512            120  8  index_bytes, of the whole index
 *    16  4  format                            128  4  classes
 *    20  4  auto_format                       132  4  sources
 *    24  4  has_labels, 0 or 1                136  4  home_source
 *    28  4  dims                              140  4  CRC-32C of everything behind the head
 *    32  8  samples                           144  8  dtype, padded with NUL
 *    40  8  bytes of all samples              152 64  shape, dims x u64, then 0
 *    48  8  max_bytes                         216 152 largest, 19 x u64
 *    56  8  uniform_bytes                     368 124 0
 *    64  8  fingerprint                       492  4  CRC-32C of bytes 0 .. 491
 *    72  8  options_hash                      496 16  the stamp
 *    80  8  data_offset
 *    88  8  stride_bytes
 *    96  4  fields
 *   100  4  0
 *
 * Version 1 is the same without shards: fields is 0.
 *
 * The stamp is the one part that is written after the index has its name: mtime_ns i64, 1
 * u32, CRC-32C of these 12 bytes. It is all zero, or anything, where it was not written.
 */
#ifndef STI_FORMAT_INDEX_LAYOUT_H
#define STI_FORMAT_INDEX_LAYOUT_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#include <stoker/engine.h>

#define INDEX_MAGIC "STKINDEX"

enum index_head_offset {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_HEAD_BYTES = 12,
    AT_FORMAT = 16,
    AT_AUTO_FORMAT = 20,
    AT_HAS_LABELS = 24,
    AT_DIMS = 28,
    AT_SAMPLES = 32,
    AT_BYTES = 40,
    AT_MAX_BYTES = 48,
    AT_UNIFORM_BYTES = 56,
    AT_FINGERPRINT = 64,
    AT_OPTIONS_HASH = 72,
    AT_DATA_OFFSET = 80,
    AT_STRIDE_BYTES = 88,
    AT_FIELDS = 96,
    AT_HOME_HASH = 104,
    AT_NAMES_BYTES = 112,
    AT_INDEX_BYTES = 120,
    AT_CLASSES = 128,
    AT_SOURCES = 132,
    AT_HOME_SOURCE = 136,
    AT_TABLES_CRC = 140,
    AT_DTYPE = 144,
    AT_SHAPE = 152,
    AT_LARGEST = 216,
    AT_HEAD_CRC = 492,
    AT_STAMP = 496
};

enum index_record_bytes {
    ENTRY_BYTES = 24,
    SPAN_BYTES = 32, /* begins as an entry does */
    RANGE_BYTES = 16,
    LABEL_BYTES = 8,
    SOURCE_BYTES = 32,
    CLASS_BYTES = 16,
    FIELD_BYTES = 16
};

/* Bytes per sample of its entry or span, 0 where it needs none; and of its ranges. */
static inline uint64_t
entry_bytes(uint32_t format)
{
    if (format == STK_FORMAT_TAR)
        return SPAN_BYTES;
    return format == STK_FORMAT_CLASS_FOLDER || format == STK_FORMAT_FOLDER ? ENTRY_BYTES : 0;
}

static inline uint64_t
ranges_bytes(uint32_t fields)
{
    return fields > 1 ? (uint64_t)fields * RANGE_BYTES : 0;
}

static inline uint32_t
get_u32(const unsigned char *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof(value));
    return le32toh(value);
}

static inline uint64_t
get_u64(const unsigned char *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof(value));
    return le64toh(value);
}

static inline void
put_u32(unsigned char *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof(value));
}

static inline void
put_u64(unsigned char *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof(value));
}

#endif
