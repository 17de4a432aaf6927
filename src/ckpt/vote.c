/* SPDX-License-Identifier: Apache-2.0 */
/* Votes of any kind. */
#include "ckpt/vote_internal.h"

void
sti_vote_free(struct sti_vote *vote)
{
    if (vote)
        vote->method->free(vote);
}

void
sti_vote_join(struct sti_vote *vote, uint32_t writer, struct sti_aio *aio)
{
    vote->method->join(vote, writer, aio);
}

void
sti_vote_cast(struct sti_vote *vote, uint32_t writer, uint64_t serial,
              const struct sti_ballot *ballot)
{
    vote->method->cast(vote, writer, serial, ballot);
}

bool
sti_vote_tally(struct sti_vote *vote, uint64_t serial, struct sti_ballot *ballots,
               struct sti_verdict *ret_verdict, uint64_t *ret_due_ns)
{
    return vote->method->tally(vote, serial, ballots, ret_verdict, ret_due_ns);
}

int
sti_vote_publish(struct sti_vote *vote, uint64_t serial, char *bytes, uint64_t n_bytes)
{
    return vote->method->publish(vote, serial, bytes, n_bytes);
}

int
sti_vote_published(struct sti_vote *vote, uint64_t serial, const char **ret_bytes,
                   uint64_t *ret_n_bytes, uint64_t *ret_due_ns)
{
    return vote->method->published(vote, serial, ret_bytes, ret_n_bytes, ret_due_ns);
}

void
sti_vote_decide(struct sti_vote *vote, uint64_t serial, const struct sti_verdict *verdict)
{
    vote->method->decide(vote, serial, verdict);
}

bool
sti_vote_verdict(struct sti_vote *vote, uint64_t serial, struct sti_verdict *ret_verdict,
                 uint64_t *ret_due_ns)
{
    return vote->method->verdict(vote, serial, ret_verdict, ret_due_ns);
}
