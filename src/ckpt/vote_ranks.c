/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vote among ranks. A writer's ballot goes to rank 0 as a request, whose answer is
 * the verdict; what it has written may be large, so rank 0 fetches that by a request of
 * its own. A writer that loses the connection casts again, until its time is over; rank 0
 * remembers what it has decided for those who ask late.
 *
 * A writer that never hears the verdict of a ballot for it knows nothing: it keeps its
 * parts. Rank 0 commits only with everybody's ballot, so a verdict that it gives for want
 * of one is certain.
 *
 * What rank 0 publishes with a verdict the others fetch in the same way from it, who want
 * it.
 */
#include "ckpt/vote_ranks_internal.h"

#include <assert.h>
#include <errno.h>

#include "base/mem.h"

void
sti_vote_ranks_on_request(void *context, struct sti_comm_incoming *incoming)
{
    struct sti_vote_ranks *vote = sti_ranks_of(context);
    const unsigned char *head = incoming->small;
    uint32_t what = incoming->n_small >= STI_VOTE_HEAD_BYTES ? (uint32_t)sti_ranks_get(head, 4) : 0;

    if (vote->is_leaving)
        sti_ranks_answer(vote, incoming, -ESTALE, NULL);
    else if (what == STI_VOTE_CAST && vote->rank == 0)
        sti_ranks_on_cast(vote, incoming);
    else if (what == STI_VOTE_FETCH && incoming->from == 0 && vote->letter &&
             sti_ranks_get(head + 8, 8) == vote->serial)
        sti_ranks_answer(vote, incoming, 0, vote->letter);
    else if (what == STI_VOTE_FETCH && vote->rank == 0 &&
             sti_ranks_has_published(vote, sti_ranks_get(head + 8, 8)))
        sti_ranks_answer(vote, incoming, 0, vote->published);
    else
        sti_ranks_answer(vote, incoming, -ENOENT, NULL);
}

static void
ranks_join(struct sti_vote *base, uint32_t writer, struct sti_aio *aio)
{
    (void)writer; /* this rank's */
    __atomic_store_n(&sti_ranks_of(base)->aio, aio, __ATOMIC_RELEASE);
}

void
sti_vote_ranks_leave(struct sti_vote *base)
{
    struct sti_vote_ranks *vote = sti_ranks_of(base);

    vote->is_leaving = true;
    if (vote->is_asking)
        sti_comm_cancel(vote->opts.comm, &vote->request);
    if (vote->reading.is_asking)
        sti_comm_cancel(vote->opts.comm, &vote->reading.request);
    for (struct sti_vote_fetch *fetch = vote->fetches; fetch; fetch = fetch->next)
        sti_comm_cancel(vote->opts.comm, &fetch->request);
    for (int at = 0; at < 2; at++)
        for (uint32_t writer = 0; vote->rounds[at].entries && writer < vote->world; writer++) {
            struct sti_vote_entry *entry = &vote->rounds[at].entries[writer];

            if (entry->incoming)
                sti_ranks_answer(vote, entry->incoming, -ESTALE, NULL);
            entry->incoming = NULL;
        }
}

bool
sti_vote_ranks_is_idle(const struct sti_vote *base)
{
    const struct sti_vote_ranks *vote = (const struct sti_vote_ranks *)(const void *)base;

    return !vote->is_asking && !vote->reading.is_asking && !vote->fetches && vote->n_lent == 0;
}

static void
ranks_free(struct sti_vote *base)
{
    struct sti_vote_ranks *vote = sti_ranks_of(base);

    assert(sti_vote_ranks_is_idle(base));
    for (int at = 0; at < 2; at++) {
        sti_ranks_clear(vote, &vote->rounds[at]);
        sti_mem_free(vote->rounds[at].entries);
    }
    sti_letter_drop(vote->letter);
    sti_letter_drop(vote->published);
    sti_mem_free(vote->reading.bytes);
    sti_mem_free(vote);
}

static const struct sti_vote_method method = {.free = ranks_free,
                                              .join = ranks_join,
                                              .cast = sti_ranks_cast,
                                              .tally = sti_ranks_tally,
                                              .publish = sti_ranks_publish,
                                              .published = sti_ranks_published,
                                              .decide = sti_ranks_decide,
                                              .verdict = sti_ranks_verdict};

void
sti_vote_ranks_set_verb(struct sti_vote *base, uint32_t verb)
{
    sti_ranks_of(base)->opts.verb = verb;
}

int
sti_vote_ranks_new(struct sti_vote **ret_vote, const struct sti_vote_ranks_opts *opts)
{
    struct sti_vote_ranks *vote = sti_mem_new(1, sizeof(*vote));

    if (!vote)
        return -ENOMEM;
    vote->base.method = &method;
    vote->opts = *opts;
    vote->rank = sti_comm_rank(opts->comm);
    vote->world = sti_comm_world(opts->comm);
    vote->retry_ns = UINT64_MAX;
    for (uint32_t at = 0; at < STI_VOTES_REMEMBERED; at++)
        vote->decided[at].serial = UINT64_MAX;
    for (int at = 0; at < 2; at++) {
        vote->rounds[at].serial = UINT64_MAX;
        if (vote->rank == 0)
            vote->rounds[at].entries = sti_mem_new(vote->world, sizeof(struct sti_vote_entry));
        if (vote->rank == 0 && !vote->rounds[at].entries) {
            ranks_free(&vote->base);
            return -ENOMEM;
        }
    }
    *ret_vote = &vote->base;
    return 0;
}
