/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A vote among ranks. All calls, those of vote.h too, are on the thread that owns the comm
 * and runs the savers, but for those that say otherwise.
 */
#ifndef STI_CKPT_VOTE_RANKS_H
#define STI_CKPT_VOTE_RANKS_H

#include "ckpt/vote.h"
#include "comm/comm.h"

/*
 * comm        borrowed until freed; writers are its ranks.
 * verb        of the requests, the same on every rank; see sti_vote_ranks_set_verb().
 * timeout_ns  from the first ballot on, all must have voted; and in twice as much a writer must
 *             have heard what was decided.
 */
struct sti_vote_ranks_opts {
    struct sti_comm *comm;
    uint32_t verb;
    uint64_t timeout_ns;
};

/* Errors: -ENOMEM. ret_vote: returns owned, freed with sti_vote_free() when it is idle. Both are
 * for any thread, as long as nobody votes. sti_vote_join() is for any thread, too. */
int
sti_vote_ranks_new(struct sti_vote **ret_vote, const struct sti_vote_ranks_opts *opts);

/* The verb, where it is known only when the vote can already be asked; before it is used. Any
 * thread. */
void
sti_vote_ranks_set_verb(struct sti_vote *base, uint32_t verb);

/* A request of the verb; context: the vote. */
void
sti_vote_ranks_on_request(void *context, struct sti_comm_incoming *incoming);

/* Begins to end: what is asked is given up, who asks is told so. */
void
sti_vote_ranks_leave(struct sti_vote *base);

/* Whether nothing of it is under way in the comm. */
bool
sti_vote_ranks_is_idle(const struct sti_vote *base);

#endif
