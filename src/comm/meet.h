/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is spoken at rank 0's port. A frame is magic 53 54 4b 52, version, kind and length
 * of the payload (u32 each, little-endian), and the payload:
 *
 *   CHALLENGE  rank 0: nonce (16)
 *   HELLO      the other: nonce (16), proof (32), its card
 *   WELCOME    rank 0: proof (32), the cards of all ranks
 *   REFUSED    rank 0: code (i32), text
 *
 * A proof is the HMAC under the job's secret of the nonce of the one who is to believe it
 * and of the frame's cards. Frames of other versions have the same first 16 bytes.
 */
#ifndef STI_COMM_MEET_H
#define STI_COMM_MEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/card.h"

#define STI_MEET_VERSION 1u
#define STI_MEET_HEAD 16u
#define STI_MEET_NONCE 16u
#define STI_MEET_PROOF STI_MAC_BYTES
#define STI_MEET_HELLO_MAX (STI_MEET_NONCE + STI_MEET_PROOF + STI_COMM_CARD_MAX)
#define STI_MEET_TEXT_MAX STK_ERROR_MESSAGE_SIZE

enum sti_meet_kind {
    STI_MEET_CHALLENGE = 1,
    STI_MEET_HELLO,
    STI_MEET_WELCOME,
    STI_MEET_REFUSED,
    STI_MEET_KINDS
};

void
sti_meet_put_head(unsigned char *bytes, enum sti_meet_kind kind, uint32_t n_bytes);

/* Reads a frame's first STI_MEET_HEAD bytes. Errors: -EBADMSG, STK_E_VERSION (and
 * ret_n_bytes is then the version). */
int
sti_meet_get_head(const unsigned char *bytes, enum sti_meet_kind *ret_kind, uint32_t *ret_n_bytes);

void
sti_meet_prove(const struct hmac_sha256_ctx *secret, const unsigned char nonce[STI_MEET_NONCE],
               enum sti_meet_kind kind, const void *bytes, size_t n_bytes,
               unsigned char proof[STI_MEET_PROOF]);

/* Takes a HELLO's payload apart. Errors: -EACCES the proof is wrong; of cards. */
int
sti_meet_read_hello(const struct hmac_sha256_ctx *secret, const unsigned char nonce[STI_MEET_NONCE],
                    const unsigned char *bytes, uint32_t n_bytes, struct sti_card *ret_card);

/* Listens where rank 0 waits. Errors: of sockets, and err says what to change. Returns the
 * descriptor. */
int
sti_meet_listen(const struct sti_comm_opts *opts, stk_error *err);

/* Whether who has connected may speak at all. */
bool
sti_meet_may_come(const struct sti_comm_opts *opts, int fd);

/* Writes a connection's other address. */
void
sti_meet_name(int fd, char *text, size_t size);

/* Takes the cards of a WELCOME apart into STI_COMM_CARD_MAX bytes each. Errors: -EBADMSG. */
int
sti_meet_read_cards(const unsigned char *bytes, size_t n_bytes, uint32_t world,
                    unsigned char *cards);

#endif
