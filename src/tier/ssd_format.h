/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a cache directory holds, byte by byte (docs/format/ssd-cache.md): the header in
 * front of each sample in `data`, the head and the entries of `catalog`. Pure.
 */
#ifndef STI_TIER_SSD_FORMAT_H
#define STI_TIER_SSD_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#define STI_SSD_VERSION 1u
#define STI_SSD_HEADER_BYTES 64u /* before each sample; also what they are aligned to */
#define STI_SSD_HEAD_BYTES 64u   /* of the catalogue */
#define STI_SSD_ENTRY_BYTES 32u

/* Which cache it is: of which data set, and which of its lives. */
struct sti_ssd_identity {
    uint64_t dataset_id;
    uint64_t nonce; /* random, made with the files: bytes of another life do not verify */
};

/* A sample in the cache. offset: of its header in the data file. */
struct sti_ssd_record {
    uint64_t sample;
    uint64_t offset;
    uint32_t n_bytes;
    uint32_t crc; /* CRC-32C of its bytes */
};

/* Where the next header may begin at or after an offset: a multiple of 64, such that the
 * sample behind it does not begin on a block of 512 (its place in a block is then less
 * than a block). */
uint64_t
sti_ssd_align(uint64_t offset);

void
sti_ssd_header_encode(void *header, const struct sti_ssd_identity *identity,
                      const struct sti_ssd_record *record);

/*
 * Whether a header is that of a sample at its offset and whole; takes crc from it.
 * record: sample, offset and n_bytes are what is expected.
 */
bool
sti_ssd_header_check(const void *header, const struct sti_ssd_identity *identity,
                     struct sti_ssd_record *record);

void
sti_ssd_head_encode(void *head, const struct sti_ssd_identity *identity);

/* Checks the catalogue's head; takes the nonce from it. dataset_id is what is expected.
 * Errors: STK_E_CORRUPT, STK_E_VERSION. */
int
sti_ssd_head_check(const void *head, struct sti_ssd_identity *identity);

void
sti_ssd_entry_encode(void *entry, const struct sti_ssd_identity *identity,
                     const struct sti_ssd_record *record);

/* False if the entry is damaged, torn or of another cache. */
bool
sti_ssd_entry_decode(const void *entry, const struct sti_ssd_identity *identity,
                     struct sti_ssd_record *ret_record);

#endif
