/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 (FIPS 180-4) and HMAC over it (FIPS 198-1): for knowing who says something, not
 * for bulk data. Values; one thread at a time each.
 */
#ifndef STI_BASE_SHA256_H
#define STI_BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STI_SHA256_BYTES 32

struct sti_sha256 {
    uint32_t state[8];
    uint64_t n_bytes;
    unsigned char block[64]; /* what does not fill a block yet */
};

void
sti_sha256_init(struct sti_sha256 *sha);

void
sti_sha256_add(struct sti_sha256 *sha, const void *bytes, size_t n_bytes);

void
sti_sha256_end(struct sti_sha256 *sha, unsigned char digest[STI_SHA256_BYTES]);

/* A key, worked in once: a short message then costs two or three blocks. */
struct sti_hmac {
    struct sti_sha256 inner;
    struct sti_sha256 outer;
};

/* A key of any length; n_bytes 0 is one, too. */
void
sti_hmac_init(struct sti_hmac *hmac, const void *key, size_t n_bytes);

/* A message is begun, added to with sti_sha256_add(), and ended. */
void
sti_hmac_begin(const struct sti_hmac *hmac, struct sti_sha256 *sha);

void
sti_hmac_end(const struct sti_hmac *hmac, struct sti_sha256 *sha,
             unsigned char digest[STI_SHA256_BYTES]);

/* Whether two secrets are the same, in a time that does not say where they differ. */
bool
sti_bytes_equal(const void *a, const void *b, size_t n_bytes);

#endif
