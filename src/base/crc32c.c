/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32C. ISA-L picks the fastest code for the processor and leaves the two inversions
 * to its caller; here they are, so that a CRC can be continued. Pure; any thread.
 */
#include "base/crc32c.h"

#include <isa-l/crc.h>

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
