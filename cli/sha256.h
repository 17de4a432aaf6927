/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 (FIPS 180-4). Its own hundred lines, because a checksum of ids that can be
 * compared across machines is all that the CLI needs of cryptography; a library for it
 * would be the largest thing that the program depends on.
 */
#ifndef CLI_SHA256_H
#define CLI_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define CLI_SHA256_HEX_SIZE 65

struct cli_sha256 {
    uint32_t state[8];
    uint64_t n_bytes;
    unsigned char block[64]; /* what does not fill a block yet */
};

void
cli_sha256_init(struct cli_sha256 *sha);

void
cli_sha256_add(struct cli_sha256 *sha, const void *bytes, size_t n_bytes);

/* Ends the message and writes its digest as 64 hexadecimal digits and a NUL. */
void
cli_sha256_hex(struct cli_sha256 *sha, char hex[CLI_SHA256_HEX_SIZE]);

#endif
