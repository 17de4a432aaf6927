/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a loader has to do with the same loader on other ranks: what they ask of it, what
 * it asks of them, which of them can be asked at all, and the end, which comes for all
 * together. The bytes are the fetcher's (serve.c, reads_peer.c). Owned by the loop's
 * thread, but for open.
 *
 * A message is 16 bytes, little-endian: what it is (u32), 0 (u32), a sample (u64). It is
 * answered by 0 with the sample's bytes and their CRC-32C, or by why not: -ENOENT the
 * sample is not here, -EAGAIN there is too much to do, or what the origin said.
 */
#ifndef STI_TIER_PEERING_H
#define STI_TIER_PEERING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/thread.h"
#include "comm/comm.h"
#include "policy/holders.h"
#include "tier/crcs.h"
#include "tier/replan.h"

#define STI_PEERING_MESSAGE_BYTES 16u

struct sti_fetcher;
struct sti_peering;

/* A CRC of bytes, which are copied first where they are not here yet. */
struct sti_sum {
    struct sti_job job;
    struct sti_peering *peering;
    const void *bytes;
    void *into; /* NULL: bytes stay where they are */
    uint64_t n_bytes;
    uint32_t crc;
    void (*done)(struct sti_sum *sum); /* on the loop's thread */
    struct sti_sum *next;
};

#define STI_SUMMERS 4u

/* A job of the pool that makes sums as long as there are some. */
struct sti_summer {
    struct sti_job job;
    struct sti_peering *peering;
    int is_out; /* atomic: set by the loop, cleared by the job */
};

/* What a peer asks. */
struct sti_question {
    struct sti_sum sum;
    struct sti_comm_incoming *incoming;
    struct sti_peering *peering;
    uint64_t sample;
    bool is_promised;
    bool is_measured;          /* it is being served, which is counted */
    struct sti_question *next; /* free, or wanted */
};

/* What is asked of a peer: a sample, straight into its place in the store. */
struct sti_fetch {
    struct sti_sum sum;
    struct sti_comm_request request;
    struct sti_peering *peering;
    uint64_t sample;
    uint64_t address; /* in the store */
    uint64_t length;
    uint64_t next_use; /* where it is used if nobody waits for it; or unknown */
    uint32_t holder;
    uint32_t n_tries;
    uint32_t n_busy; /* times that its holder had too much to do */
    uint64_t busy_since_ns;
    uint64_t again_ns; /* of one that is busy: when it is asked for again */
    bool is_used;
    bool is_relief;         /* it is for others, in fetches of their own */
    struct sti_fetch *next; /* free, or orphans, or busy */
};

/* A peer, as it is known from here. */
struct sti_neighbour {
    struct sti_comm_request leave;
    struct sti_peering *peering;
    uint32_t n_out;          /* fetches under way to it */
    uint64_t avoid_until_ns; /* 0: it answers */
    uint64_t pause_ns;       /* of the last time that it was avoided */
    bool has_left;           /* it needs nothing more */
    uint8_t told;            /* that this rank needs nothing more */
};

struct sti_peering_opts {
    struct sti_comm *comm; /* borrowed, as the pool is */
    struct sti_pool *pool;
    void (*wake)(void *wake_context); /* the loop; callable as long as the pool lives */
    void *wake_context;
    uint32_t n_fetches; /* under way at a time */
    uint64_t timeout_ns;
    uint64_t close_timeout_ns;
};

struct sti_peering {
    struct sti_peering_opts opts;
    uint32_t verb;
    uint32_t rank;
    uint32_t world;
    uint32_t n_filling;
    struct sti_fetcher *fetcher; /* or NULL: not there yet, or no more */
    struct sti_holders holders;
    struct sti_crcs crcs;     /* of samples held here, as they were sent first */
    uint64_t fill;            /* of holders.mine: what is not looked at yet */
    uint64_t begun_bytes;     /* of what is held here in memory: has its place in the store */
    uint64_t ssd_begun_bytes; /* the same on the SSDs */
    uint64_t
        copies_position; /* copies ahead of their use are looked for from here on; 0: not yet */

    struct sti_question *questions;
    struct sti_question *free_questions;
    struct sti_question *wanted; /* not looked at, or waiting for a read; oldest first */
    struct sti_question **wanted_end;
    uint32_t n_questions;
    uint32_t n_asked; /* questions that are not answered, or whose answer is not out */

    struct sti_fetch *fetches;
    struct sti_fetch *free_fetches;
    struct sti_fetch *orphans; /* no peer has given them: the origin's, when a read is free */
    struct sti_fetch *busy;    /* their holders have too much to do; they are asked again */
    uint64_t busy_ns;          /* the first of them is asked for again after, or UINT64_MAX */
    struct sti_neighbour *neighbours; /* by rank */
    uint32_t n_fetches;               /* nodes: opts.n_fetches, and for relief */
    uint32_t n_fetching;
    uint32_t n_relieving; /* of them, for relief */

    uint32_t n_summing;
    uint32_t lost_rank;
    struct sti_summer summers[STI_SUMMERS];
    struct sti_mutex lock;
    struct sti_sum *to_sum STI_GUARDED_BY(&lock); /* the loop's and the helpers' */
    struct sti_sum **to_sum_end STI_GUARDED_BY(&lock);
    uint32_t n_to_sum STI_GUARDED_BY(&lock);
    struct sti_sum *summed STI_GUARDED_BY(&lock); /* back from the pool */
    bool has_plan STI_GUARDED_BY(&lock);          /* so is what replan's job has made */
    bool is_lent;   /* the fetcher's memory, to ranks of this machine */
    bool is_filled; /* spare room has been full of copies once */
    bool is_paper;
    bool is_closed; /* nothing is answered any more but that it is not here */
    bool is_leaving;
    bool has_news;  /* a peer was lost */
    bool must_step; /* something is left to be summed by the loop */
    int lost_code;
    struct sti_replan replan;

    uint64_t leaving_until_ns;
    uint64_t tell_again_ns;

    uint64_t served_samples;
    uint64_t served_bytes;
    uint64_t copied_samples; /* from peers, for nobody who waited */
    uint64_t copied_bytes;
    uint64_t n_failed;  /* fetches that a peer did not serve */
    uint64_t n_corrupt; /* of them, those with wrong bytes */
};

/* Errors: -ENOMEM, -EAGAIN. ret_peering: returns owned. */
int
sti_peering_new(struct sti_peering **ret_peering, const struct sti_peering_opts *opts);

/* Nothing is under way. NULL is allowed. */
void
sti_peering_free(struct sti_peering *peering);

/* Computes who holds what. Any thread, before there is a fetcher. Errors: -ENOMEM. */
int
sti_peering_plan(struct sti_peering *peering, const struct sti_holders_opts *opts);

/* The port's: somebody asks; something has become of a peer. context is the peering. */
void
sti_peering_on_request(void *context, struct sti_comm_incoming *incoming);
void
sti_peering_on_peer(void *context, uint32_t rank, int code);

/* Answers all that is asked, now and from now on, that nothing is here. context is the
 * peering. */
void
sti_peering_refuse(void *context);

/* Whether a peer can be asked. */
enum sti_may_ask {
    STI_ASK,
    STI_ASK_LATER, /* as much as can be is under way to it */
    STI_ASK_NOT,   /* it did not answer lately */
};

enum sti_may_ask
sti_peering_may_ask(const struct sti_peering *peering, uint32_t rank);

/* Whether something can be asked of a peer for relief: though batches ask for all they may. */
bool
sti_peering_may_relieve(const struct sti_peering *peering, uint32_t rank);

/* Whether more can be asked of a peer, and as much again besides. */
bool
sti_peering_is_idle(const struct sti_peering *peering, uint32_t rank);

/* Of the holders of a sample, but for one (this rank: none), that need not be avoided the
 * one of which least is asked, who serves for a holder before the holder itself;
 * STI_HOLDERS_NOBODY without any. */
uint32_t
sti_peering_holder(const struct sti_peering *peering, uint64_t sample, uint32_t but);

/* A peer has answered, or (code not 0) has not. */
void
sti_peering_note(struct sti_peering *peering, uint32_t rank, int code);

/* Answers a question without bytes and gives it back. */
void
sti_peering_answer(struct sti_peering *peering, struct sti_question *question, int code);

/* Tells who asks to wait, once. */
void
sti_peering_promise(struct sti_peering *peering, struct sti_question *question);

/* Gives a question back that was answered. */
void
sti_peering_put_question(struct sti_peering *peering, struct sti_question *question);

/* Has bytes copied, if they are to be, and their CRC made, and done called: at once where they
 * are few and here, else out of sti_peering_take_summed(). */
void
sti_peering_sum(struct sti_peering *peering, struct sti_sum *sum);

/* Makes some of the sums that are to be made, and calls done for those that are. must_step:
 * there are more. */
void
sti_peering_take_summed(struct sti_peering *peering);

/* Writes a message. */
void
sti_peering_write(unsigned char *message, uint32_t what, uint64_t sample);

enum { STI_PEERING_FETCH = 1, STI_PEERING_LEAVE = 2, STI_PEERING_REPORT = 3 };

/*
 * This rank needs nothing more: tells the others, and finds out whether they do. Returns 0
 * when nobody needs this rank any more or the time is over, else after how many nanoseconds
 * it wants to be called again.
 */
uint64_t
sti_peering_leave(struct sti_peering *peering);

#endif
