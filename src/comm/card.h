/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A card: what a rank shows the others at the start. Who it is, of how many, which version
 * it speaks, on what it insists, its machine, its address. Cards come from outside and are
 * parsed as such.
 */
#ifndef STI_COMM_CARD_H
#define STI_COMM_CARD_H

#include <stdint.h>

#include "comm/comm.h"
#include "comm/mac.h"

#define STI_CARD_VERSION 2u
#define STI_CARD_NAME_SIZE 32u
#define STI_CARD_TEXT_SIZE 128u
#define STI_CARD_KEY_BYTES 16u

struct sti_card {
    uint32_t version;
    uint32_t rank;
    uint32_t world;
    uint64_t incarnation;
    unsigned char key[STI_CARD_KEY_BYTES]; /* rank 0's counts: of it the job's key is made */
    char node[STI_CARD_TEXT_SIZE];
    uint32_t n_values;
    struct {
        char name[STI_CARD_NAME_SIZE];
        char text[STI_CARD_TEXT_SIZE];
    } values[STI_COMM_VALUES_MAX];
    const void *address; /* decode: within the bytes given */
    uint32_t n_address;
};

/*
 * Writes a card into room for STI_COMM_CARD_MAX, tagged with the job's secret. Returns its
 * length, or -EMSGSIZE.
 */
int
sti_card_encode(const struct sti_card *card, const struct hmac_sha256_ctx *secret,
                unsigned char *bytes);

/* Reads a card that may be anything. Errors: -EBADMSG malformed, STK_E_VERSION (card's
 * version is set), -EACCES made with another secret. */
int
sti_card_decode(struct sti_card *ret_card, const struct hmac_sha256_ctx *secret, const void *bytes,
                size_t n_bytes);

/*
 * Whether a rank's card goes with rank 0's: world, values, and that it is the card of
 * rank. Errors: STK_E_MISMATCH with both values named, err->rank: rank.
 */
int
sti_card_check(const struct sti_card *first, const struct sti_card *card, uint32_t rank,
               stk_error *err);

/* Two versions that do not go together. Returns STK_E_VERSION. */
int
sti_card_version_error(uint32_t rank, uint32_t version, stk_error *err);

#endif
