/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vote of a set of writers on one save: each casts a ballot when its parts are
 * durable or lost; the coordinator, writer 0, commits when all are for it, and its
 * verdict is what every writer then believes. Writers are threads of one process, or ranks
 * (ckpt/vote_ranks.h).
 */
#ifndef STI_CKPT_VOTE_H
#define STI_CKPT_VOTE_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/types.h>

#include "io/aio.h"

/* What a writer says. bytes: with code 0 what it has written (sti_ballot_encode()), else an
 * error's message; NULL: nothing. */
struct sti_ballot {
    int code; /* 0, or why its parts are lost */
    char *bytes;
    uint64_t n_bytes;
};

/* What the coordinator says. */
struct sti_verdict {
    int code;             /* 0: committed and durable */
    uint32_t writer;      /* who was against it, where somebody was */
    bool keep_parts;      /* the commit may have happened although it failed */
    bool must_drain;      /* committed, and to be copied on by all */
    uint64_t n_published; /* bytes that were published with it; 0: none */
    /* Why, for people; empty: no more than the code. */
    char text[STK_ERROR_MESSAGE_SIZE];
};

struct sti_vote;

/* Writers are threads. world 1 .. 65536. Errors: -ENOMEM, -EINVAL, -EAGAIN. ret_vote: returns
 * owned. */
int
sti_vote_new(struct sti_vote **ret_vote, uint32_t world);

/* NULL is allowed. */
void
sti_vote_free(struct sti_vote *vote);

/* Names the aio that is woken when something changes; NULL takes it back. Any thread. */
void
sti_vote_join(struct sti_vote *vote, uint32_t writer, struct sti_aio *aio);

/* Casts a ballot on the save number serial, and takes its bytes (sti_mem_free). A writer does
 * so once for each serial, in order, and not before it knows the verdict on the one before.
 * Any thread. */
void
sti_vote_cast(struct sti_vote *vote, uint32_t writer, uint64_t serial,
              const struct sti_ballot *ballot);

/*
 * Whether the outcome is certain: all are for it (ret_verdict->code 0) or one is against
 * it. ballots: room for world; filled where all are for it, their bytes borrowed until the
 * verdict. ret_due_ns: when to ask again if nothing wakes the aio; UINT64_MAX: never.
 */
bool
sti_vote_tally(struct sti_vote *vote, uint64_t serial, struct sti_ballot *ballots,
               struct sti_verdict *ret_verdict, uint64_t *ret_due_ns);

/*
 * The coordinator's, before it decides for a save: bytes that every writer may have with the
 * verdict. Taken (sti_mem_free) in any case; they stay until it publishes again, which it may
 * when all have cast on a later save. Errors: -ENOMEM.
 */
int
sti_vote_publish(struct sti_vote *vote, uint64_t serial, char *bytes, uint64_t n_bytes);

/*
 * What was published with the verdict on the save that this writer voted on last. Returns 1, and
 * ret_bytes is borrowed until the writer casts again; 0: it is not here yet, ret_due_ns as above.
 * Errors: -ENOENT nothing was, -ETIMEDOUT, -ECANCELED, -ENOMEM; the same each time.
 */
int
sti_vote_published(struct sti_vote *vote, uint64_t serial, const char **ret_bytes,
                   uint64_t *ret_n_bytes, uint64_t *ret_due_ns);

/* The coordinator's, once for each serial. */
void
sti_vote_decide(struct sti_vote *vote, uint64_t serial, const struct sti_verdict *verdict);

/* Whether the coordinator has decided. ret_due_ns: as above. */
bool
sti_vote_verdict(struct sti_vote *vote, uint64_t serial, struct sti_verdict *ret_verdict,
                 uint64_t *ret_due_ns);

#endif
