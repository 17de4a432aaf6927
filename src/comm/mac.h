/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Knowing who says something: HMAC-SHA-256 (FIPS 198-1), of nettle. A key is worked in once,
 * by hmac_sha256_set_key(), and stays as it is: each message begins with a copy of it. Pure;
 * any thread.
 */
#ifndef STI_COMM_MAC_H
#define STI_COMM_MAC_H

#include <stdbool.h>
#include <stddef.h>

#include <nettle/hmac.h>

#define STI_MAC_BYTES SHA256_DIGEST_SIZE

/* Writes the first n_mac bytes of a message's code, STI_MAC_BYTES at most. */
void
sti_mac(const struct hmac_sha256_ctx *key, const void *bytes, size_t n_bytes, size_t n_mac,
        unsigned char *mac);

/* Whether a message has this code, in a time that does not say where it differs. */
bool
sti_mac_is(const struct hmac_sha256_ctx *key, const void *bytes, size_t n_bytes, size_t n_mac,
           const unsigned char *mac);

#endif
