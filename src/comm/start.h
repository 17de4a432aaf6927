/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks find each other: cards are exchanged, by the program or by TCP at rank 0. */
#ifndef STI_COMM_START_H
#define STI_COMM_START_H

#include <stdint.h>

#include "comm/mac.h"
#include "comm/card.h"
#include "comm/comm.h"

struct sti_start {
    const struct sti_comm_opts *opts;
    const struct hmac_sha256_ctx *secret;
    const unsigned char *mine; /* this rank's card, in STI_COMM_CARD_MAX bytes */
    uint32_t n_mine;
    unsigned char *cards; /* STI_COMM_CARD_MAX for each rank, as they are encoded */
    uint64_t timeout_ns;  /* for all to come */
    uint64_t deadline_ns;
};

/* Fills start->cards. Errors: see sti_comm_open(). */
int
sti_start_exchange(struct sti_start *start, stk_error *err);

/* By TCP: rank 0 waits, the others come. */
int
sti_meet_wait(struct sti_start *start, stk_error *err);
int
sti_meet_come(struct sti_start *start, stk_error *err);

/* Names this machine as far as processes on it can share memory and addresses. text: room
 * for STI_CARD_TEXT_SIZE. */
void
sti_start_node(char *text);

/* Bytes that nobody can guess. Errors: -EIO. */
int
sti_start_random(void *bytes, uint32_t n_bytes);

#endif
