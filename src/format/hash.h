/* SPDX-License-Identifier: Apache-2.0 */
/* FNV-1a with 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv): fingerprints, not
 * checksums. */
#ifndef STI_FORMAT_HASH_H
#define STI_FORMAT_HASH_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>

#define STI_HASH_START UINT64_C(0xcbf29ce484222325)

/* Continues hash (STI_HASH_START for a new one) over bytes. */
static inline uint64_t
sti_hash(uint64_t hash, const void *bytes, size_t n_bytes)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < n_bytes; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* The same over a number, as eight bytes, the least significant first. */
static inline uint64_t
sti_hash_u64(uint64_t hash, uint64_t value)
{
    uint64_t little = htole64(value);

    return sti_hash(hash, &little, sizeof(little));
}

#endif
