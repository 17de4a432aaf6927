/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of the meeting at rank 0, to bytes and back. */
#include "comm/meet.h"

#include <errno.h>
#include <string.h>

#include <nettle/memops.h>

#include "comm/wire.h"

#define MAGIC UINT32_C(0x524b5453)

void
sti_meet_put_head(unsigned char *bytes, enum sti_meet_kind kind, uint32_t n_bytes)
{
    sti_wire_put(bytes, MAGIC, 4);
    sti_wire_put(bytes + 4, STI_MEET_VERSION, 4);
    sti_wire_put(bytes + 8, kind, 4);
    sti_wire_put(bytes + 12, n_bytes, 4);
}

int
sti_meet_get_head(const unsigned char *bytes, enum sti_meet_kind *ret_kind, uint32_t *ret_n_bytes)
{
    uint32_t version = (uint32_t)sti_wire_get(bytes + 4, 4);
    uint32_t kind = (uint32_t)sti_wire_get(bytes + 8, 4);

    if (sti_wire_get(bytes, 4) != MAGIC)
        return -EBADMSG;
    if (version != STI_MEET_VERSION) {
        *ret_n_bytes = version;
        return STK_E_VERSION;
    }
    if (kind < STI_MEET_CHALLENGE || kind >= STI_MEET_KINDS)
        return -EBADMSG;
    *ret_kind = (enum sti_meet_kind)kind;
    *ret_n_bytes = (uint32_t)sti_wire_get(bytes + 12, 4);
    return 0;
}

void
sti_meet_prove(const struct hmac_sha256_ctx *secret, const unsigned char nonce[STI_MEET_NONCE],
               enum sti_meet_kind kind, const void *bytes, size_t n_bytes,
               unsigned char proof[STI_MEET_PROOF])
{
    struct hmac_sha256_ctx message = *secret;
    unsigned char what = (unsigned char)kind; /* a hello's proof is not a welcome's */

    hmac_sha256_update(&message, 1, &what);
    hmac_sha256_update(&message, STI_MEET_NONCE, nonce);
    hmac_sha256_update(&message, n_bytes, bytes);
    hmac_sha256_digest(&message, STI_MEET_PROOF, proof);
}

int
sti_meet_read_hello(const struct hmac_sha256_ctx *secret, const unsigned char nonce[STI_MEET_NONCE],
                    const unsigned char *bytes, uint32_t n_bytes, struct sti_card *ret_card)
{
    const uint32_t before = STI_MEET_NONCE + STI_MEET_PROOF;
    unsigned char proof[STI_MEET_PROOF];

    if (n_bytes < before || n_bytes > STI_MEET_HELLO_MAX)
        return -EBADMSG;
    sti_meet_prove(secret, nonce, STI_MEET_HELLO, bytes + before, n_bytes - before, proof);
    if (!memeql_sec(proof, bytes + STI_MEET_NONCE, sizeof(proof)))
        return -EACCES;
    return sti_card_decode(ret_card, secret, bytes + before, n_bytes - before);
}

int
sti_meet_read_cards(const unsigned char *bytes, size_t n_bytes, uint32_t world,
                    unsigned char *cards)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        uint64_t length = n_bytes >= 12 ? sti_wire_get(bytes + 8, 4) : 0;

        if (length < 12 || length > n_bytes || length > STI_COMM_CARD_MAX)
            return -EBADMSG;
        memcpy(cards + (uint64_t)rank * STI_COMM_CARD_MAX, bytes, length);
        bytes += length;
        n_bytes -= length;
    }
    return n_bytes == 0 ? 0 : -EBADMSG;
}
