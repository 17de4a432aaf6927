/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The side of every other rank in the vote among ranks: it casts, asks what was decided
 * until it hears it or its time is over, and fetches what was published with that if it
 * is wanted. The thread that owns the comm alone.
 */
#include "ckpt/vote_ranks_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/mem.h"

static void
know(struct sti_vote_ranks *vote, const struct sti_verdict *verdict)
{
    vote->verdict = *verdict;
    vote->is_over = true;
    vote->retry_ns = UINT64_MAX;
    sti_letter_drop(vote->letter);
    vote->letter = NULL;
    sti_ranks_wake(vote);
}

/* Rank 0 may have committed where this one was for it, and cannot have where it was
 * not. */
static void
know_nothing(struct sti_vote_ranks *vote, int code)
{
    struct sti_verdict verdict = {.code = code, .keep_parts = vote->code == 0};

    (void)snprintf(verdict.text, sizeof(verdict.text),
                   "it has not said what became of the save, which may be there"); /* fits */
    know(vote, &verdict);
}

static void
on_answered(struct sti_comm_request *request)
{
    struct sti_vote_ranks *vote = request->context;
    struct sti_verdict verdict = {.code = request->code, .keep_parts = vote->code == 0};
    uint64_t now_ns = sti_clock_ns();

    vote->is_asking = false;
    if (request->result == -ECANCELED || request->code == -ESTALE) {
        know_nothing(vote, request->result < 0 ? request->result : -ESTALE);
    } else if (request->result < 0 || request->code == -EAGAIN) {
        vote->retry_ns = now_ns + STI_VOTE_RETRY_NS;
        sti_ranks_wake(vote);
    } else {
        if (request->n_bytes >= STI_VERDICT_BYTES) {
            size_t n_text = request->n_bytes - STI_VERDICT_BYTES;

            verdict.writer = (uint32_t)sti_ranks_get(vote->body, 4);
            verdict.keep_parts = (sti_ranks_get(vote->body + 4, 4) & STI_VERDICT_KEEP_PARTS) != 0;
            verdict.must_drain = (sti_ranks_get(vote->body + 4, 4) & STI_VERDICT_MUST_DRAIN) != 0;
            verdict.n_published = sti_ranks_get(vote->body + 8, 8);
            memcpy(verdict.text, vote->body + STI_VERDICT_BYTES, n_text);
            verdict.text[n_text < sizeof(verdict.text) ? n_text : sizeof(verdict.text) - 1] = '\0';
        }
        know(vote, &verdict);
    }
}

static void
ask(struct sti_vote_ranks *vote, uint64_t now_ns)
{
    if (now_ns >= vote->due_ns || vote->is_leaving) {
        know_nothing(vote, vote->is_leaving ? -ECANCELED : -ETIMEDOUT);
        return;
    }
    vote->request = (struct sti_comm_request){.peer = 0,
                                              .verb = vote->opts.verb,
                                              .small = vote->small,
                                              .n_small = vote->n_small,
                                              .into = vote->body,
                                              .into_bytes = sizeof(vote->body) - 1,
                                              .wait_ns = vote->due_ns - now_ns,
                                              .done = on_answered,
                                              .context = vote};
    vote->is_asking = sti_comm_request(vote->opts.comm, &vote->request) == 0;
    vote->retry_ns = vote->is_asking ? UINT64_MAX : now_ns + STI_VOTE_RETRY_NS;
}

void
sti_ranks_cast(struct sti_vote *base, uint32_t writer, uint64_t serial,
               const struct sti_ballot *given)
{
    struct sti_vote_ranks *vote = sti_ranks_of(base);
    struct sti_ballot ballot = *given;
    uint64_t now_ns = sti_clock_ns();

    if (ballot.code < 0 && ballot.n_bytes >= STK_ERROR_MESSAGE_SIZE)
        ballot.n_bytes = STK_ERROR_MESSAGE_SIZE - 1;
    if (vote->rank == 0) {
        struct sti_vote_round *round = sti_ranks_own_round(vote, serial);

        sti_ranks_take_ballot(vote, round, writer, ballot);
        return;
    }
    assert(!vote->reading.is_asking); /* the saver has waited for it */
    sti_mem_free(vote->reading.bytes);
    vote->reading = (struct sti_vote_reading){0};
    vote->serial = serial;
    vote->code = ballot.code;
    vote->is_over = false;
    vote->due_ns = now_ns + 2 * vote->opts.timeout_ns;
    vote->n_small = STI_VOTE_HEAD_BYTES;
    sti_ranks_write_head(vote->small, STI_VOTE_CAST, ballot.code, serial,
                         ballot.bytes ? ballot.n_bytes : 0);
    if (ballot.code < 0 && ballot.bytes) {
        memcpy(vote->small + STI_VOTE_HEAD_BYTES, ballot.bytes, ballot.n_bytes);
        vote->n_small += (uint32_t)ballot.n_bytes;
        sti_mem_free(ballot.bytes);
    } else if (ballot.bytes) {
        vote->letter = sti_letter_new(vote, ballot.bytes, ballot.n_bytes);
        if (!vote->letter) /* without it rank 0 cannot be for it */
            sti_ranks_write_head(vote->small, STI_VOTE_CAST, vote->code = -ENOMEM, serial, 0);
    }
    ask(vote, now_ns);
}

bool
sti_ranks_verdict(struct sti_vote *base, uint64_t serial, struct sti_verdict *ret_verdict,
                  uint64_t *ret_due_ns)
{
    struct sti_vote_ranks *vote = sti_ranks_of(base);
    uint64_t now_ns = sti_clock_ns();

    if (vote->rank == 0) {
        const struct sti_verdict *verdict = sti_ranks_remembered(vote, serial);

        *ret_due_ns = UINT64_MAX;
        if (verdict)
            *ret_verdict = *verdict;
        return verdict != NULL;
    }
    if (!vote->is_over && vote->retry_ns <= now_ns)
        ask(vote, now_ns);
    *ret_due_ns = vote->retry_ns;
    if (vote->is_over)
        *ret_verdict = vote->verdict;
    return vote->is_over;
}

/* ---- what is published ---------------------------------------------------------- */

static void
on_read(struct sti_comm_request *request)
{
    struct sti_vote_ranks *vote = request->context;
    struct sti_vote_reading *reading = &vote->reading;

    reading->is_asking = false;
    if (request->result == 0 && request->code == 0 && request->has_crc &&
        request->n_bytes == reading->n_bytes &&
        request->crc == sti_crc32c(0, reading->bytes, request->n_bytes))
        reading->code = 1;
    else if (request->result == -ECANCELED)
        reading->code = -ECANCELED;
    else if (request->result == 0 && request->code < 0 && request->code != -EAGAIN)
        reading->code = request->code; /* it has gone on without this rank */
    else
        reading->retry_ns = sti_clock_ns() + STI_VOTE_RETRY_NS;
    sti_ranks_wake(vote);
}

static void
ask_for_published(struct sti_vote_ranks *vote, uint64_t now_ns)
{
    struct sti_vote_reading *reading = &vote->reading;

    if (reading->due_ns == 0) {
        reading->due_ns = now_ns + 2 * vote->opts.timeout_ns;
        reading->n_bytes = vote->verdict.n_published;
        reading->bytes =
            reading->n_bytes <= STI_COMM_BODY_MAX ? sti_mem_new(reading->n_bytes, 1) : NULL;
    }
    if (!reading->bytes || now_ns >= reading->due_ns || vote->is_leaving) {
        reading->code = !reading->bytes ? -ENOMEM : vote->is_leaving ? -ECANCELED : -ETIMEDOUT;
        return;
    }
    sti_ranks_write_head(reading->head, STI_VOTE_FETCH, 0, vote->serial, 0);
    reading->request = (struct sti_comm_request){.peer = 0,
                                                 .verb = vote->opts.verb,
                                                 .small = reading->head,
                                                 .n_small = STI_VOTE_HEAD_BYTES,
                                                 .into = reading->bytes,
                                                 .into_bytes = reading->n_bytes,
                                                 .done = on_read,
                                                 .context = vote};
    reading->is_asking = sti_comm_request(vote->opts.comm, &reading->request) == 0;
    reading->retry_ns = now_ns + STI_VOTE_RETRY_NS;
}

int
sti_ranks_published(struct sti_vote *base, uint64_t serial, const char **ret_bytes,
                    uint64_t *ret_n_bytes, uint64_t *ret_due_ns)
{
    struct sti_vote_ranks *vote = sti_ranks_of(base);
    struct sti_vote_reading *reading = &vote->reading;
    uint64_t now_ns = sti_clock_ns();

    *ret_due_ns = UINT64_MAX;
    if (vote->rank == 0) {
        if (!sti_ranks_has_published(vote, serial))
            return -ENOENT;
        *ret_bytes = vote->published->bytes;
        *ret_n_bytes = vote->published->n_bytes;
        return 1;
    }
    if (vote->serial != serial || !vote->is_over || vote->verdict.n_published == 0)
        return -ENOENT;
    if (reading->code == 0 && !reading->is_asking && now_ns >= reading->retry_ns)
        ask_for_published(vote, now_ns);
    if (reading->code == 0 && !reading->is_asking)
        *ret_due_ns = reading->retry_ns;
    *ret_bytes = reading->bytes;
    *ret_n_bytes = reading->n_bytes;
    return reading->code;
}
