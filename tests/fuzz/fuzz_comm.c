/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks hear of each other and of strangers: heads of messages, cards, frames of the
 * start. The first byte says which. With a capital letter the tag is made right first, as
 * of somebody who has the key, so that what lies behind it is reached. Beside not reading
 * too far: what is taken is within its limits, and encodes to what it was.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "comm/card.h"
#include "comm/meet.h"
#include "comm/wire.h"
#include "fuzz.h"

static const unsigned char nonce[STI_MEET_NONCE] = "0123456789abcde";

static void
key_of(struct hmac_sha256_ctx *key)
{
    hmac_sha256_set_key(key, 3, (const uint8_t *)"key");
}

static void
try_wire(unsigned char *bytes, size_t n_bytes, bool has_key)
{
    unsigned char again[STI_HEAD_MAX];
    struct sti_wire wire;
    struct hmac_sha256_ctx key;

    key_of(&key);
    if (has_key && n_bytes >= STI_WIRE_TAG)
        sti_mac(&key, bytes, n_bytes - STI_WIRE_TAG, STI_WIRE_TAG, bytes + n_bytes - STI_WIRE_TAG);
    int rc = sti_wire_decode(&wire, &key, bytes, n_bytes);
    if (rc < 0) {
        must(rc == -EBADMSG || rc == STK_E_VERSION || rc == -EACCES);
        return;
    }
    must(wire.n_small <= STI_COMM_SMALL_MAX && wire.n_bytes <= STI_COMM_BODY_MAX);
    must(wire.kind >= STI_WIRE_REQUEST && wire.kind < STI_WIRE_KINDS);
    must(sti_wire_encode(&wire, &key, again) == n_bytes);
    must(memcmp(again, bytes, n_bytes) == 0);
}

static void
try_card(unsigned char *bytes, size_t n_bytes, bool has_key)
{
    static unsigned char again[STI_COMM_CARD_MAX];
    struct sti_card card;
    struct hmac_sha256_ctx key;
    stk_error err;
    uint64_t length = n_bytes >= 12 ? sti_wire_get(bytes + 8, 4) : 0;

    key_of(&key);
    if (has_key && length >= STI_MAC_BYTES && length <= n_bytes)
        sti_mac(&key, bytes, length - STI_MAC_BYTES, STI_MAC_BYTES, bytes + length - STI_MAC_BYTES);
    int rc = sti_card_decode(&card, &key, bytes, n_bytes);
    if (rc < 0) {
        must(rc == -EBADMSG || rc == STK_E_VERSION || rc == -EACCES);
        return;
    }
    must(card.rank < card.world && card.n_values <= STI_COMM_VALUES_MAX);
    must(sti_card_encode(&card, &key, again) == (int)length);
    must(memcmp(again, bytes, length) == 0);
    must(sti_card_check(&card, &card, card.rank, &err) == 0);
    must(sti_card_check(&card, &card, card.rank + 1, &err) == STK_E_MISMATCH);
}

static void
try_frame(unsigned char *bytes, size_t n_bytes, bool has_key)
{
    struct hmac_sha256_ctx key;
    struct sti_card card;
    enum sti_meet_kind kind = STI_MEET_KINDS;
    uint32_t n_payload = 0;

    key_of(&key);
    if (n_bytes < STI_MEET_HEAD)
        return;
    int rc = sti_meet_get_head(bytes, &kind, &n_payload);
    must(rc == 0 || rc == -EBADMSG || rc == STK_E_VERSION);
    unsigned char *payload = bytes + STI_MEET_HEAD;
    n_payload = (uint32_t)(n_bytes - STI_MEET_HEAD);
    const uint32_t before = STI_MEET_NONCE + STI_MEET_PROOF;
    if (has_key && n_payload >= before)
        sti_meet_prove(&key, nonce, STI_MEET_HELLO, payload + before, n_payload - before,
                       payload + STI_MEET_NONCE);
    (void)sti_meet_read_hello(&key, nonce, payload, n_payload, &card); /* any code, no crash */
    static unsigned char cards[4 * STI_COMM_CARD_MAX];
    rc = sti_meet_read_cards(payload, n_payload, 4, cards);
    must(rc == 0 || rc == -EBADMSG);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    if (n_bytes == 0 || n_bytes > 8192)
        return 0;
    unsigned char *copy = malloc(n_bytes > 1 ? n_bytes - 1 : 1); /* ends where its block does */
    must(copy != NULL);
    memcpy(copy, bytes + 1, n_bytes - 1);
    switch (bytes[0]) {
    case 'w':
    case 'W':
        try_wire(copy, n_bytes - 1, bytes[0] == 'W');
        break;
    case 'c':
    case 'C':
        try_card(copy, n_bytes - 1, bytes[0] == 'C');
        break;
    case 'f':
    case 'F':
        try_frame(copy, n_bytes - 1, bytes[0] == 'F');
        break;
    default:
        break;
    }
    free(copy);
    return 0;
}
