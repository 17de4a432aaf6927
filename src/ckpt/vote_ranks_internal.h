/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the vote among ranks share; nobody else includes this.
 *
 * A message, little-endian: what (u32), code (i32), serial (u64), n_bytes (u64); a ballot
 * against has its words behind it. A verdict's body: writer (u32), flags (u32),
 * n_published (u64), words.
 */
#ifndef STI_CKPT_VOTE_RANKS_INTERNAL_H
#define STI_CKPT_VOTE_RANKS_INTERNAL_H

#include "base/clock.h"
#include "ckpt/vote_internal.h"
#include "ckpt/vote_ranks.h"

#define STI_VOTE_RETRY_NS (STI_NS_PER_S / 4)
#define STI_VOTES_REMEMBERED 16u
#define STI_VOTE_HEAD_BYTES 24u
#define STI_VERDICT_BYTES 16u
#define STI_VOTE_BODY_BYTES (STI_VERDICT_BYTES + STK_ERROR_MESSAGE_SIZE)

enum { STI_VOTE_CAST = 1, STI_VOTE_FETCH = 2 };
enum { STI_VERDICT_KEEP_PARTS = 1, STI_VERDICT_MUST_DRAIN = 2 };
enum sti_ballot_state { STI_BALLOT_NONE, STI_BALLOT_WANTED, STI_BALLOT_FETCHING, STI_BALLOT_HERE };

struct sti_vote_ranks;

/* Bytes that the comm may have borrowed. */
struct sti_letter {
    struct sti_vote_ranks *vote;
    char *bytes;
    uint64_t n_bytes;
    uint32_t crc;
    uint32_t n_lent;
    bool is_dropped; /* freed when nobody has it any more */
};

/* Rank 0: a ballot of a writer, and its question what was decided. */
struct sti_vote_entry {
    enum sti_ballot_state state;
    struct sti_ballot ballot;
    struct sti_comm_incoming *incoming; /* to be answered with the verdict */
};

struct sti_vote_fetch {
    struct sti_vote_ranks *vote;
    uint64_t serial;
    uint32_t writer;
    char *bytes;
    unsigned char head[STI_VOTE_HEAD_BYTES];
    struct sti_comm_request request;
    struct sti_vote_fetch *next;
};

struct sti_vote_round {
    uint64_t serial; /* UINT64_MAX: none yet */
    uint64_t due_ns; /* everybody has voted, or it is over */
    bool is_decided;
    struct sti_vote_entry *entries; /* world; of rank 0 */
};

struct sti_vote_decided {
    uint64_t serial;
    struct sti_verdict verdict;
};

/* Another: what rank 0 has published with its verdict, as far as it is here. */
struct sti_vote_reading {
    char *bytes;
    uint64_t n_bytes;
    uint64_t due_ns; /* 0: not begun */
    uint64_t retry_ns;
    int code; /* 1: it is here; 0: not yet; else why not */
    bool is_asking;
    unsigned char head[STI_VOTE_HEAD_BYTES];
    struct sti_comm_request request;
};

struct sti_vote_ranks {
    struct sti_vote base;
    struct sti_vote_ranks_opts opts;
    uint32_t rank;
    uint32_t world;
    struct sti_aio *aio; /* atomic: given by any thread */
    uint32_t n_lent;     /* letters that the comm has, times */
    bool is_leaving;

    /* Rank 0's. */
    struct sti_vote_round rounds[2];
    struct sti_vote_fetch *fetches;
    struct sti_vote_decided decided[STI_VOTES_REMEMBERED];
    struct sti_letter *published; /* the last; NULL: none */
    uint64_t published_serial;
    uint64_t own_next; /* rank 0 has voted on all saves below */

    /* Another's: the save that it votes on. */
    uint64_t serial;
    uint64_t due_ns;
    uint64_t retry_ns; /* when to ask again; UINT64_MAX: it is under way, or over */
    int code;
    bool is_asking;
    bool is_over;
    struct sti_letter *letter;
    struct sti_verdict verdict;
    struct sti_vote_reading reading;
    unsigned char small[STI_VOTE_HEAD_BYTES + STK_ERROR_MESSAGE_SIZE];
    uint32_t n_small;
    unsigned char body[STI_VOTE_BODY_BYTES];
    struct sti_comm_request request;
};

/* ---- messages and letters (vote_letter.c) --------------------------------------- */

struct sti_vote_ranks *
sti_ranks_of(struct sti_vote *base);
void
sti_ranks_put(unsigned char *bytes, uint64_t value, int n);
uint64_t
sti_ranks_get(const unsigned char *bytes, int n);
void
sti_ranks_write_head(unsigned char *head, uint32_t what, int code, uint64_t serial,
                     uint64_t n_bytes);

/* The thread that votes looks again. */
void
sti_ranks_wake(struct sti_vote_ranks *vote);

/* Takes bytes. NULL: no memory, and bytes are freed. */
struct sti_letter *
sti_letter_new(struct sti_vote_ranks *vote, char *bytes, uint64_t n_bytes);

/* Freed as soon as nobody has it. NULL is allowed. */
void
sti_letter_drop(struct sti_letter *letter);

/* Answers with a letter's bytes; NULL: with the code alone. */
void
sti_ranks_answer(struct sti_vote_ranks *vote, struct sti_comm_incoming *incoming, int code,
                 struct sti_letter *letter);
void
sti_ranks_answer_verdict(struct sti_vote_ranks *vote, struct sti_comm_incoming *incoming,
                         const struct sti_verdict *verdict);

/* ---- rank 0 (vote_first.c) ------------------------------------------------------ */

/* What was decided, as far back as that is known; NULL: nothing is. */
const struct sti_verdict *
sti_ranks_remembered(const struct sti_vote_ranks *vote, uint64_t serial);
void
sti_ranks_clear(struct sti_vote_ranks *vote, struct sti_vote_round *round);

/* The round of a save; NULL: it is over, or the one before it is not. */
struct sti_vote_round *
sti_ranks_round_of(struct sti_vote_ranks *vote, uint64_t serial);

struct sti_vote_round *
sti_ranks_own_round(struct sti_vote_ranks *vote, uint64_t serial);

/* A ballot, the first time or again; its bytes are taken. */
void
sti_ranks_take_ballot(struct sti_vote_ranks *vote, struct sti_vote_round *round, uint32_t writer,
                      struct sti_ballot ballot);
void
sti_ranks_on_cast(struct sti_vote_ranks *vote, struct sti_comm_incoming *incoming);
bool
sti_ranks_has_published(const struct sti_vote_ranks *vote, uint64_t serial);

/* Calls of vote.h. */
bool
sti_ranks_tally(struct sti_vote *base, uint64_t serial, struct sti_ballot *ballots,
                struct sti_verdict *ret_verdict, uint64_t *ret_due_ns);
int
sti_ranks_publish(struct sti_vote *base, uint64_t serial, char *bytes, uint64_t n_bytes);
void
sti_ranks_decide(struct sti_vote *base, uint64_t serial, const struct sti_verdict *given);

/* ---- another (vote_other.c) ----------------------------------------------------- */

void
sti_ranks_cast(struct sti_vote *base, uint32_t writer, uint64_t serial,
               const struct sti_ballot *given);
bool
sti_ranks_verdict(struct sti_vote *base, uint64_t serial, struct sti_verdict *ret_verdict,
                  uint64_t *ret_due_ns);
int
sti_ranks_published(struct sti_vote *base, uint64_t serial, const char **ret_bytes,
                    uint64_t *ret_n_bytes, uint64_t *ret_due_ns);

#endif
