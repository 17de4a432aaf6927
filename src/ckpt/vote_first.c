/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rank 0's side of the vote among ranks: it counts, fetches what was written, decides,
 * and remembers what it has decided for those who ask late. The thread that owns the comm
 * alone.
 */
#include "ckpt/vote_ranks_internal.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/mem.h"

const struct sti_verdict *
sti_ranks_remembered(const struct sti_vote_ranks *vote, uint64_t serial)
{
    const struct sti_vote_decided *decided = &vote->decided[serial % STI_VOTES_REMEMBERED];

    return decided->serial == serial ? &decided->verdict : NULL;
}

void
sti_ranks_clear(struct sti_vote_ranks *vote, struct sti_vote_round *round)
{
    for (uint32_t writer = 0; round->entries && writer < vote->world; writer++) {
        assert(!round->entries[writer].incoming);
        sti_mem_free(round->entries[writer].ballot.bytes);
        round->entries[writer] = (struct sti_vote_entry){0};
    }
}

/* The round of a save; NULL: it is over, or the one before it is not. */
struct sti_vote_round *
sti_ranks_round_of(struct sti_vote_ranks *vote, uint64_t serial)
{
    struct sti_vote_round *round = &vote->rounds[serial % 2];

    if (round->serial == serial)
        return round;
    if (round->serial != UINT64_MAX && (round->serial > serial || !round->is_decided))
        return NULL;
    sti_ranks_clear(vote, round);
    round->serial = serial;
    round->is_decided = false;
    round->due_ns = sti_clock_ns() + vote->opts.timeout_ns;
    return round;
}

/* The round of rank 0's own ballot. Others who have given up on some saves may have voted on a
 * later one, in the place of this: they are told to vote again. */
struct sti_vote_round *
sti_ranks_own_round(struct sti_vote_ranks *vote, uint64_t serial)
{
    struct sti_vote_round *round = sti_ranks_round_of(vote, serial);

    vote->own_next = serial + 1;
    if (round)
        return round;
    round = &vote->rounds[serial % 2];
    for (uint32_t writer = 0; writer < vote->world; writer++) {
        struct sti_comm_incoming *incoming = round->entries[writer].incoming;

        round->entries[writer].incoming = NULL;
        if (incoming)
            sti_ranks_answer(vote, incoming, -EAGAIN, NULL);
    }
    sti_ranks_clear(vote, round);
    round->serial = serial;
    round->is_decided = false;
    round->due_ns = sti_clock_ns() + vote->opts.timeout_ns;
    return round;
}

static void
on_fetched(struct sti_comm_request *request)
{
    struct sti_vote_fetch *fetch = request->context;
    struct sti_vote_ranks *vote = fetch->vote;
    struct sti_vote_round *round = &vote->rounds[fetch->serial % 2];
    struct sti_vote_entry *entry = &round->entries[fetch->writer];
    struct sti_vote_fetch **at = &vote->fetches;
    bool is_good = request->result == 0 && request->code == 0 && request->has_crc &&
                   request->n_bytes == request->into_bytes &&
                   request->crc == sti_crc32c(0, fetch->bytes, request->n_bytes);

    while (*at != fetch)
        at = &(*at)->next;
    *at = fetch->next;
    if (round->serial == fetch->serial && !round->is_decided &&
        entry->state == STI_BALLOT_FETCHING) {
        entry->state = is_good ? STI_BALLOT_HERE : STI_BALLOT_WANTED;
        if (is_good) {
            entry->ballot.bytes = fetch->bytes;
            fetch->bytes = NULL;
        }
    }
    sti_mem_free(fetch->bytes);
    sti_mem_free(fetch);
    sti_ranks_wake(vote);
}

/* Begins to fetch what a writer has written; without memory or a way it is tried
 * again. */
static void
begin_fetch(struct sti_vote_ranks *vote, const struct sti_vote_round *round, uint32_t writer)
{
    struct sti_vote_entry *entry = &round->entries[writer];
    struct sti_vote_fetch *fetch = sti_mem_new(1, sizeof(*fetch));

    if (!fetch)
        return;
    *fetch = (struct sti_vote_fetch){.vote = vote, .serial = round->serial, .writer = writer};
    fetch->bytes = sti_mem_new(entry->ballot.n_bytes, 1);
    sti_ranks_write_head(fetch->head, STI_VOTE_FETCH, 0, round->serial, 0);
    fetch->request = (struct sti_comm_request){.peer = writer,
                                               .verb = vote->opts.verb,
                                               .small = fetch->head,
                                               .n_small = STI_VOTE_HEAD_BYTES,
                                               .into = fetch->bytes,
                                               .into_bytes = entry->ballot.n_bytes,
                                               .done = on_fetched,
                                               .context = fetch};
    if (!fetch->bytes || sti_comm_request(vote->opts.comm, &fetch->request) < 0) {
        sti_mem_free(fetch->bytes);
        sti_mem_free(fetch);
        return;
    }
    entry->state = STI_BALLOT_FETCHING;
    fetch->next = vote->fetches;
    vote->fetches = fetch;
}

/* A ballot, the first time or again. words: of one against. */
void
sti_ranks_take_ballot(struct sti_vote_ranks *vote, struct sti_vote_round *round, uint32_t writer,
                      struct sti_ballot ballot)
{
    struct sti_vote_entry *entry = &round->entries[writer];

    if (entry->state != STI_BALLOT_NONE) {
        sti_mem_free(ballot.bytes);
        return;
    }
    entry->ballot = ballot;
    entry->state = ballot.code < 0 || ballot.bytes ? STI_BALLOT_HERE : STI_BALLOT_WANTED;
    if (entry->state == STI_BALLOT_WANTED)
        begin_fetch(vote, round, writer);
    sti_ranks_wake(vote);
}

void
sti_ranks_on_cast(struct sti_vote_ranks *vote, struct sti_comm_incoming *incoming)
{
    const unsigned char *head = incoming->small;
    uint64_t serial = sti_ranks_get(head + 8, 8);
    struct sti_ballot ballot = {.code = (int)(int32_t)sti_ranks_get(head + 4, 4),
                                .n_bytes = sti_ranks_get(head + 16, 8)};
    const struct sti_verdict *verdict = sti_ranks_remembered(vote, serial);

    if (verdict) {
        sti_ranks_answer_verdict(vote, incoming, verdict);
        return;
    }
    struct sti_vote_round *round = sti_ranks_round_of(vote, serial);
    if (!round || ballot.n_bytes > STI_COMM_BODY_MAX ||
        (ballot.code < 0 && ballot.n_bytes != incoming->n_small - STI_VOTE_HEAD_BYTES)) {
        sti_ranks_answer(vote, incoming, !round && serial >= vote->own_next ? -EAGAIN : -ESTALE,
                         NULL);
        return;
    }
    struct sti_vote_entry *entry = &round->entries[incoming->from];
    if (entry->incoming) /* its connection was lost */
        sti_ranks_answer(vote, entry->incoming, -EAGAIN, NULL);
    entry->incoming = incoming;
    sti_comm_promise(vote->opts.comm, incoming); /* the verdict may take long */
    if (ballot.code < 0 && entry->state == STI_BALLOT_NONE) {
        ballot.bytes = sti_mem_new(ballot.n_bytes + 1, 1); /* without it the code is told */
        if (ballot.bytes)
            memcpy(ballot.bytes, head + STI_VOTE_HEAD_BYTES, ballot.n_bytes);
    }
    sti_ranks_take_ballot(vote, round, incoming->from, ballot);
}

/* Who is the first that is against it, or has not voted; world: nobody. */
static uint32_t
first_against(const struct sti_vote_ranks *vote, const struct sti_vote_round *round, bool is_late)
{
    uint32_t late = vote->world;

    for (uint32_t writer = 0; writer < vote->world; writer++) {
        if (round->entries[writer].state == STI_BALLOT_HERE &&
            round->entries[writer].ballot.code < 0)
            return writer;
        if (is_late && late == vote->world && round->entries[writer].state != STI_BALLOT_HERE)
            late = writer;
    }
    return late;
}

bool
sti_ranks_tally(struct sti_vote *base, uint64_t serial, struct sti_ballot *ballots,
                struct sti_verdict *ret_verdict, uint64_t *ret_due_ns)
{
    struct sti_vote_ranks *vote = sti_ranks_of(base);
    const struct sti_vote_round *round = &vote->rounds[serial % 2];
    uint64_t now_ns = sti_clock_ns();
    uint32_t n_here = 0;

    *ret_due_ns = round->due_ns;
    for (uint32_t writer = 0; writer < vote->world; writer++) {
        if (round->entries[writer].state == STI_BALLOT_WANTED)
            begin_fetch(vote, round, writer);
        if (round->entries[writer].state == STI_BALLOT_WANTED)
            *ret_due_ns = now_ns + STI_VOTE_RETRY_NS;
        n_here += round->entries[writer].state == STI_BALLOT_HERE;
    }
    uint32_t against = first_against(vote, round, now_ns >= round->due_ns);
    *ret_verdict = (struct sti_verdict){.writer = against};
    if (against < vote->world) {
        const struct sti_vote_entry *entry = &round->entries[against];
        bool is_late = entry->state != STI_BALLOT_HERE;

        ret_verdict->code = is_late ? -ETIMEDOUT : entry->ballot.code;
        if (is_late)
            (void)snprintf(ret_verdict->text, sizeof(ret_verdict->text),
                           "it has not voted within %" PRIu64 " ms",
                           vote->opts.timeout_ns / (STI_NS_PER_S / 1000)); /* fits */
        else if (entry->ballot.bytes)
            (void)snprintf(ret_verdict->text, sizeof(ret_verdict->text), "%s",
                           entry->ballot.bytes); /* cut is fine */
        return true;
    }
    for (uint32_t writer = 0; n_here == vote->world && writer < vote->world; writer++)
        ballots[writer] = round->entries[writer].ballot;
    ret_verdict->writer = 0;
    return n_here == vote->world;
}

int
sti_ranks_publish(struct sti_vote *base, uint64_t serial, char *bytes, uint64_t n_bytes)
{
    struct sti_vote_ranks *vote = sti_ranks_of(base);

    sti_letter_drop(vote->published);
    vote->published = sti_letter_new(vote, bytes, n_bytes);
    vote->published_serial = serial;
    return vote->published ? 0 : -ENOMEM;
}

bool
sti_ranks_has_published(const struct sti_vote_ranks *vote, uint64_t serial)
{
    return vote->published && vote->published_serial == serial;
}

void
sti_ranks_decide(struct sti_vote *base, uint64_t serial, const struct sti_verdict *given)
{
    struct sti_vote_ranks *vote = sti_ranks_of(base);
    struct sti_vote_round *round = &vote->rounds[serial % 2];
    struct sti_verdict decided = *given;
    const struct sti_verdict *verdict = &decided;

    decided.n_published = sti_ranks_has_published(vote, serial) ? vote->published->n_bytes : 0;
    vote->decided[serial % STI_VOTES_REMEMBERED] = (struct sti_vote_decided){serial, decided};
    if (round->serial != serial)
        return;
    round->is_decided = true;
    for (uint32_t writer = 0; writer < vote->world; writer++) {
        struct sti_comm_incoming *incoming = round->entries[writer].incoming;

        round->entries[writer].incoming = NULL;
        if (incoming)
            sti_ranks_answer_verdict(vote, incoming, verdict);
    }
    sti_ranks_clear(vote, round);
    sti_ranks_wake(vote);
}
