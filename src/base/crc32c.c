/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32C. ISA-L picks the fastest code for the processor and leaves the two inversions
 * to its caller; here they are, so that a CRC can be continued. Pure; any thread.
 */
#include "base/crc32c.h"

#include <string.h>

#include <isa-l/crc.h>

/* As quick as copying alone, where 32 KiB are a tenth slower: seen with 108 KB of memory. */
#define COPY_BYTES ((size_t)4 << 10)
#define MAX_STEP_BYTES ((size_t)1 << 30) /* ISA-L counts in int */

uint32_t
sti_crc32c(uint32_t crc, const void *bytes, size_t n_bytes)
{
    const char *at = bytes;

    crc = ~crc;
    while (n_bytes > 0) {
        size_t step = n_bytes < MAX_STEP_BYTES ? n_bytes : MAX_STEP_BYTES;

        /* ISA-L forgets the const; it only reads. */
        crc = crc32_iscsi((unsigned char *)(uintptr_t)at, (int)step, crc);
        at += step;
        n_bytes -= step;
    }
    return ~crc;
}

uint32_t
sti_crc32c_copy(void *into, const void *from, size_t n_bytes)
{
    uint32_t crc = 0;

    for (size_t at = 0; at < n_bytes; at += COPY_BYTES) {
        size_t n = n_bytes - at < COPY_BYTES ? n_bytes - at : COPY_BYTES;

        memcpy((char *)into + at, (const char *)from + at, n);
        crc = sti_crc32c(crc, (const char *)into + at, n);
    }
    return crc;
}
