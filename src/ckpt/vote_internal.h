/* SPDX-License-Identifier: Apache-2.0 */
/* What kinds of votes share; nobody else includes this. */
#ifndef STI_CKPT_VOTE_INTERNAL_H
#define STI_CKPT_VOTE_INTERNAL_H

#include "ckpt/vote.h"

/* The calls of vote.h, each of one kind. */
struct sti_vote_method {
    void (*free)(struct sti_vote *vote);
    void (*join)(struct sti_vote *vote, uint32_t writer, struct sti_aio *aio);
    void (*cast)(struct sti_vote *vote, uint32_t writer, uint64_t serial,
                 const struct sti_ballot *ballot);
    bool (*tally)(struct sti_vote *vote, uint64_t serial, struct sti_ballot *ballots,
                  struct sti_verdict *ret_verdict, uint64_t *ret_due_ns);
    int (*publish)(struct sti_vote *vote, uint64_t serial, char *bytes, uint64_t n_bytes);
    int (*published)(struct sti_vote *vote, uint64_t serial, const char **ret_bytes,
                     uint64_t *ret_n_bytes, uint64_t *ret_due_ns);
    void (*decide)(struct sti_vote *vote, uint64_t serial, const struct sti_verdict *verdict);
    bool (*verdict)(struct sti_vote *vote, uint64_t serial, struct sti_verdict *ret_verdict,
                    uint64_t *ret_due_ns);
};

/* The first member of each kind. */
struct sti_vote {
    const struct sti_vote_method *method;
};

#endif
