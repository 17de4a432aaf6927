/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Halls: where the root of a round keeps the shares and decides once. They come as requests
 * and from the root's own round; the outcome goes to all who have come, and for a while to
 * those who come later.
 */
#ifndef STI_COMM_HALL_H
#define STI_COMM_HALL_H

#include "comm/comm_internal.h"

#define STI_SHARE_HEAD 24u

enum { STI_SHARE_IS_FOR = 1, STI_SHARE_MAY_MISS = 2 };

/* What a rank brings to a round. */
struct share {
    uint64_t id;
    uint32_t ms;
    uint32_t n_bytes;
    uint64_t flags;
    const unsigned char *bytes;
};

/* The length of an outcome that is not an error; of one, it is 4. */
uint64_t
sti_hall_outcome_bytes(const struct sti_comm *comm, uint32_t kind, uint32_t n_bytes);

/* The root's own round. Errors: -EAGAIN, -ENOMEM, STK_E_MISMATCH. */
int
sti_hall_join(struct sti_comm *comm, struct sti_comm_round *round, const struct share *share);

/* Decides what is due and forgets what is over. */
void
sti_hall_check(struct sti_comm *comm, uint64_t now_ns);

/* Decides all with an error. */
void
sti_hall_end(struct sti_comm *comm, int code);

/* round.c: a round of this rank ends, and is told by progress. */
void
sti_round_end(struct sti_comm_round *round, int result, uint32_t rank);

/* round.c: copies what was decided to where the caller wants it. */
void
sti_round_read(struct sti_comm_round *round, const unsigned char *outcome);

#endif
