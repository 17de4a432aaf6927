/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli, RFC 3720 appendix B.4), by ISA-L. */
#ifndef STI_BASE_CRC32C_H
#define STI_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The CRC of bytes, continued from crc (0 for a new one). "123456789" gives
 * 0xe3069283. */
uint32_t
sti_crc32c(uint32_t crc, const void *bytes, size_t n_bytes);

/* Copies bytes and gives the CRC of the copy, which is summed up while it is in the cache: what
 * it was copied from may be somebody else's to change. They do not overlap. */
uint32_t
sti_crc32c_copy(void *into, const void *from, size_t n_bytes);

#endif
