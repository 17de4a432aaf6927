/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache's format. All numbers are little-endian, as on the machines that this runs
 * on.
 *
 * Header of a sample, 64 bytes         Entry of the catalogue, 32 bytes
 *    0  4  "STKs"                         0  8  sample
 *    4  4  CRC-32C of bytes 8 .. 63       8  8  offset of the header in `data`
 *    8  8  nonce                         16  4  length of the sample
 *   16  8  dataset_id                   20  4  CRC-32C of the sample
 *   24  8  sample                        24  4  0
 *   32  8  offset of this header         28  4  CRC-32C of the nonce and bytes 0 .. 27
 *   40  4  length of the sample
 *   44  4  CRC-32C of the sample        Head of the catalogue, 64 bytes
 *   48 16  0                              0  8  "STKcache"
 *                                         8  4  version
 *                                        12  4  CRC-32C of bytes 16 .. 63
 *                                        16  8  nonce
 *                                        24  8  dataset_id
 *                                        32 32  0
 *
 * Invariant: nothing verifies but what was written for this cache, sample and place; the
 * nonce keeps a data set from containing such bytes by itself.
 */
#include "tier/ssd_format.h"

#include <string.h>

#include <stoker/types.h>

#include "base/crc32c.h"

#define BLOCK_BYTES 512u

static const char header_magic[4] = {'S', 'T', 'K', 's'};
static const char head_magic[8] = {'S', 'T', 'K', 'c', 'a', 'c', 'h', 'e'};

static void
put(void *bytes, uint32_t at, const void *value, size_t n)
{
    memcpy((char *)bytes + at, value, n);
}

static uint32_t
get_u32(const void *bytes, uint32_t at)
{
    uint32_t value;

    memcpy(&value, (const char *)bytes + at, sizeof(value));
    return value;
}

static uint64_t
get_u64(const void *bytes, uint32_t at)
{
    uint64_t value;

    memcpy(&value, (const char *)bytes + at, sizeof(value));
    return value;
}

uint64_t
sti_ssd_align(uint64_t offset)
{
    offset = (offset + STI_SSD_HEADER_BYTES - 1) / STI_SSD_HEADER_BYTES * STI_SSD_HEADER_BYTES;
    if ((offset + STI_SSD_HEADER_BYTES) % BLOCK_BYTES == 0)
        offset += STI_SSD_HEADER_BYTES;
    return offset;
}

void
sti_ssd_header_encode(void *header, const struct sti_ssd_identity *identity,
                      const struct sti_ssd_record *record)
{
    memset(header, 0, STI_SSD_HEADER_BYTES);
    put(header, 0, header_magic, sizeof(header_magic));
    put(header, 8, &identity->nonce, 8);
    put(header, 16, &identity->dataset_id, 8);
    put(header, 24, &record->sample, 8);
    put(header, 32, &record->offset, 8);
    put(header, 40, &record->n_bytes, 4);
    put(header, 44, &record->crc, 4);
    uint32_t crc = sti_crc32c(0, (const char *)header + 8, STI_SSD_HEADER_BYTES - 8);
    put(header, 4, &crc, 4);
}

bool
sti_ssd_header_check(const void *header, const struct sti_ssd_identity *identity,
                     struct sti_ssd_record *record)
{
    if (memcmp(header, header_magic, sizeof(header_magic)) != 0 ||
        get_u32(header, 4) != sti_crc32c(0, (const char *)header + 8, STI_SSD_HEADER_BYTES - 8) ||
        get_u64(header, 8) != identity->nonce || get_u64(header, 16) != identity->dataset_id ||
        get_u64(header, 24) != record->sample || get_u64(header, 32) != record->offset ||
        get_u32(header, 40) != record->n_bytes)
        return false;
    record->crc = get_u32(header, 44);
    return true;
}

void
sti_ssd_head_encode(void *head, const struct sti_ssd_identity *identity)
{
    const uint32_t version = STI_SSD_VERSION;

    memset(head, 0, STI_SSD_HEAD_BYTES);
    put(head, 0, head_magic, sizeof(head_magic));
    put(head, 8, &version, 4);
    put(head, 16, &identity->nonce, 8);
    put(head, 24, &identity->dataset_id, 8);
    uint32_t crc = sti_crc32c(0, (const char *)head + 16, STI_SSD_HEAD_BYTES - 16);
    put(head, 12, &crc, 4);
}

int
sti_ssd_head_check(const void *head, struct sti_ssd_identity *identity)
{
    if (memcmp(head, head_magic, sizeof(head_magic)) != 0)
        return STK_E_CORRUPT;
    if (get_u32(head, 8) != STI_SSD_VERSION)
        return STK_E_VERSION;
    if (get_u32(head, 12) != sti_crc32c(0, (const char *)head + 16, STI_SSD_HEAD_BYTES - 16) ||
        get_u64(head, 24) != identity->dataset_id)
        return STK_E_CORRUPT;
    identity->nonce = get_u64(head, 16);
    return 0;
}

/* Entries of a catalogue that lay in the same place before do not verify either. */
static uint32_t
entry_crc(const void *entry, const struct sti_ssd_identity *identity)
{
    uint32_t seed = sti_crc32c(0, &identity->nonce, sizeof(identity->nonce));

    return sti_crc32c(seed, entry, STI_SSD_ENTRY_BYTES - 4);
}

void
sti_ssd_entry_encode(void *entry, const struct sti_ssd_identity *identity,
                     const struct sti_ssd_record *record)
{
    memset(entry, 0, STI_SSD_ENTRY_BYTES);
    put(entry, 0, &record->sample, 8);
    put(entry, 8, &record->offset, 8);
    put(entry, 16, &record->n_bytes, 4);
    put(entry, 20, &record->crc, 4);
    uint32_t crc = entry_crc(entry, identity);
    put(entry, 28, &crc, 4);
}

bool
sti_ssd_entry_decode(const void *entry, const struct sti_ssd_identity *identity,
                     struct sti_ssd_record *ret_record)
{
    if (get_u32(entry, 28) != entry_crc(entry, identity))
        return false;
    ret_record->sample = get_u64(entry, 0);
    ret_record->offset = get_u64(entry, 8);
    ret_record->n_bytes = get_u32(entry, 16);
    ret_record->crc = get_u32(entry, 20);
    return true;
}
