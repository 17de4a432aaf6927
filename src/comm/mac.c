/* SPDX-License-Identifier: Apache-2.0 */
/* Codes of whole messages. */
#include "comm/mac.h"

#include <assert.h>

#include <nettle/memops.h>

void
sti_mac(const struct hmac_sha256_ctx *key, const void *bytes, size_t n_bytes, size_t n_mac,
        unsigned char *mac)
{
    struct hmac_sha256_ctx message = *key;

    assert(n_mac <= STI_MAC_BYTES);
    hmac_sha256_update(&message, n_bytes, bytes);
    hmac_sha256_digest(&message, n_mac, mac);
}

bool
sti_mac_is(const struct hmac_sha256_ctx *key, const void *bytes, size_t n_bytes, size_t n_mac,
           const unsigned char *mac)
{
    unsigned char right[STI_MAC_BYTES];

    sti_mac(key, bytes, n_bytes, n_mac, right);
    return memeql_sec(right, mac, n_mac);
}
