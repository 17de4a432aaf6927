/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that talk to each other: a handful of verbs over one table of methods (local,
 * ucx). A request asks a peer for bytes, which come straight from the peer's memory into
 * the asker's; a note tells it something; a round (allgather, vote) has all ranks agree.
 *
 * A comm has one owner, the thread that makes all calls after sti_comm_open(). No call
 * blocks but open and close. What was begun ends in a callback, always out of
 * sti_comm_progress() (or of close), never out of the call that began it; a callback may
 * make any call but progress and close. An object of the caller (request, round) belongs
 * to the comm from the call until its done callback begins.
 *
 * A peer that dies, stops or cannot be reached ends the requests to it with an error and
 * nothing else. The next request that is made after a pause connects to it again.
 */
#ifndef STI_COMM_COMM_H
#define STI_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stoker/types.h>

#include "base/mem.h"

#define STI_COMM_RANKS_MAX 65536u
#define STI_COMM_SMALL_MAX 1024u              /* bytes of a request's own, or of a note */
#define STI_COMM_SHARE_MAX 1000u              /* bytes of a rank in an allgather */
#define STI_COMM_BODY_MAX (UINT64_C(1) << 30) /* bytes of an answer */
#define STI_COMM_VERBS_MAX 0xff00u            /* verbs of the program lie below */
#define STI_COMM_SECRET_MAX 256u
#define STI_COMM_VALUES_MAX 16u
#define STI_COMM_CARD_MAX 4096u
#define STI_COMM_REQUESTS_MAX 4096u /* to one peer at a time */
#define STI_COMM_PENDING_MAX 65536u /* in all */
#define STI_COMM_ROUNDS_MAX 16u     /* under way at a time */
#define STI_COMM_LENT_MAX 16u       /* arenas */
#define STI_COMM_NO_RANK UINT32_MAX

struct sti_comm;
struct sti_comm_hub;
struct sti_comm_incoming;
struct sti_comm_request;
struct sti_comm_round;

/* Something on which all ranks must agree: data set, order, tiers. name: up to 31 bytes,
 * text: up to 127. Both borrowed for the call. */
struct sti_comm_value {
    const char *name;
    const char *text;
};

/*
 * Gives every rank the same n_bytes of each: all has room for world of them. Called once
 * or never, by open, on its thread; may block. Returns 0 or a negative code.
 */
typedef int (*sti_comm_exchange_fn)(void *context, const void *mine, size_t n_bytes, void *all);

/* What the program hears of others, on the owner's thread. Any may be NULL. */
struct sti_comm_events {
    void *context;
    /* Somebody asks: to be answered with sti_comm_answer(), now or later, exactly once.
     * NULL: all are answered -ENOSYS. */
    void (*request)(void *context, struct sti_comm_incoming *incoming);
    void (*note)(void *context, uint32_t from, uint32_t verb, const void *bytes, size_t n_bytes);
    /* A peer is lost (code negative), or was heard of again (0). */
    void (*peer)(void *context, uint32_t rank, int code);
    void (*abort)(void *context, uint32_t from, int code, const char *text);
};

/*
 * Zero is the default in each field. All is borrowed for the call but hub, which must
 * outlive the comm.
 *
 * method            "local", "ucx"; NULL: "ucx", where world is 1 "local"
 * hub               where the ranks of method "local" meet; NULL: a world of one
 * node              names this rank's machine; NULL: is found out
 * transports        ucx: a list as UCX has it ("tcp", "shm,tcp"); NULL: what the machine has
 * values            must be the same on every rank
 * secret            known to the ranks of the job alone; NULL: none
 * exchange          carries cards of up to STI_COMM_CARD_MAX bytes; NULL: by TCP, at rank 0
 * host, port        where rank 0 waits for the others (not with exchange)
 * hosts             addresses of the job's machines, from which ranks are let in where there
 *                   is no secret; NULL: rank 0's own machine
 * start_timeout_ns  all ranks are there within: 60 s
 * timeout_ns        of a request, and of an answer on its way: 10 s
 * retry_ns          a lost peer is tried again after: 1 s
 * max_requests      under way to one peer, and from one: 64
 * max_pending       under way to all: 512; twice as many, and 2 for each rank, from all
 */
struct sti_comm_opts {
    const char *method;
    uint32_t rank;
    uint32_t world;
    struct sti_comm_hub *hub;
    const char *node;
    const char *transports;
    const struct sti_comm_value *values;
    uint32_t n_values;
    const char *secret;
    sti_comm_exchange_fn exchange;
    void *exchange_context;
    const char *host;
    uint16_t port;
    const char *const *hosts;
    uint32_t n_hosts;
    uint64_t start_timeout_ns;
    uint64_t timeout_ns;
    uint64_t retry_ns;
    uint32_t max_requests;
    uint32_t max_pending;
    struct sti_comm_events events;
};

/*
 * Joins the ranks: returns when all are there and agree. Blocks. Errors: -EINVAL an
 * option; -ENOSYS no such method in this build or on this machine; -ETIMEDOUT, -EACCES a
 * secret or an address; STK_E_MISMATCH ranks that disagree, with both values named;
 * STK_E_VERSION; -ENOMEM; of sockets. err->rank: whom it is about. ret_comm: returns owned.
 */
int
sti_comm_open(struct sti_comm **ret_comm, const struct sti_comm_opts *opts, stk_error *err);

/*
 * Ends all that is under way with -ECANCELED, lets answers that are on their way leave for
 * a second at most, and closes. Every incoming request must have been answered. NULL is
 * allowed.
 */
void
sti_comm_close(struct sti_comm *comm);

uint32_t
sti_comm_rank(const struct sti_comm *comm);
uint32_t
sti_comm_world(const struct sti_comm *comm);
const char *
sti_comm_method(const struct sti_comm *comm);

/* Nodes are counted in the order of their lowest ranks. */
uint32_t
sti_comm_nodes(const struct sti_comm *comm);
uint32_t
sti_comm_node_of(const struct sti_comm *comm, uint32_t rank);

/* ---- waiting: the owner sleeps on a descriptor, nobody polls ---- */

/* Becomes readable when there is something to do; only after sti_comm_arm(). */
int
sti_comm_fd(const struct sti_comm *comm);

/* 0: sleep on the descriptor. -EBUSY: there is something to do now. */
int
sti_comm_arm(struct sti_comm *comm);

/* Does what there is to do and calls back. Returns after how many nanoseconds it wants to
 * be called if the descriptor is silent: UINT64_MAX for never, 0: now. It is 0 whenever
 * something has happened, so that whoever was called back has its turn before the loop
 * sleeps. */
uint64_t
sti_comm_progress(struct sti_comm *comm);

/* ---- request and answer ---- */

struct sti_comm_request {
    uint32_t peer;
    uint32_t verb;     /* the program's, below STI_COMM_VERBS_MAX */
    const void *small; /* what is asked; copied by the call */
    uint32_t n_small;
    void *into; /* where the answer's bytes go, of which they may fill a part */
    uint64_t into_bytes;
    bool may_lie;        /* they may be left where they lie, see lies */
    uint64_t timeout_ns; /* until the answer has come, or a promise; 0: the comm's */
    uint64_t wait_ns;    /* after a promise; 0: timeout_ns again */
    void (*done)(struct sti_comm_request *request);
    void *context; /* the caller's */

    /* Written before done. result 0: the peer has answered, and code is what it says;
     * else -ETIMEDOUT, -ECANCELED, -ECONNRESET or what else a peer was lost by, -EMSGSIZE,
     * -EAGAIN the peer has too much to do. */
    int result;
    int code;
    uint64_t n_bytes;
    uint32_t crc; /* CRC-32C of the bytes as the owner has it; not compared here */
    bool has_crc;
    bool is_summed;    /* the bytes were summed up as they were copied to their place */
    uint32_t came_crc; /* and that is their CRC */
    bool is_promised;  /* the peer has said that it is going to answer */
    /* Where may_lie: NULL, or the answer's bytes in the peer's own memory, to be copied from
     * there, by any thread, until sti_comm_took(), which has to be called once. What was copied
     * is right where its CRC is. */
    const void *lies;

    /* The comm's. */
    uint64_t id;
    uint64_t due_ns;
    int state;
    bool is_internal;
    uint32_t view;
    uint64_t lies_id;
    struct sti_comm_request *next;
};

/*
 * Asks. Errors, and done is then not called: -EAGAIN max_requests or max_pending are under
 * way, -EMSGSIZE, -EINVAL, -ECANCELED the job was aborted, what the peer was lost by where
 * it is too early to try again.
 */
int
sti_comm_request(struct sti_comm *comm, struct sti_comm_request *request);

/* Gives up: done is called with -ECANCELED, soon; where the answer's bytes are coming in,
 * after them. */
void
sti_comm_cancel(struct sti_comm *comm, struct sti_comm_request *request);

/* The bytes of an answer that lay at the peer are copied, or not wanted. Not after close, with
 * which nothing can be read there any more. */
void
sti_comm_took(struct sti_comm *comm, struct sti_comm_request *request);

/* A request of a peer. small: borrowed until it is answered. */
struct sti_comm_incoming {
    uint32_t from;
    uint32_t verb;
    const void *small;
    uint32_t n_small;
    uint64_t room_bytes; /* that the asker has for an answer */
    void *context;       /* the program's */
};

/* code: the program's. body: borrowed until done, which is told 0 or why the answer is
 * lost; done may be NULL where there is no body. */
struct sti_comm_answer {
    int code;
    const void *body;
    uint64_t n_bytes;
    uint32_t crc;
    bool has_crc;
    void (*done)(void *context, int code);
    void *context;
};

/* Answers; incoming is the comm's again. An answer larger than the room is cut to none and
 * the asker told -EMSGSIZE. Never fails: that is told to done. */
void
sti_comm_answer(struct sti_comm *comm, struct sti_comm_incoming *incoming,
                const struct sti_comm_answer *answer);

/* Tells the asker that the answer is going to come: it waits its wait_ns from then on. At
 * most once for each. */
void
sti_comm_promise(struct sti_comm *comm, struct sti_comm_incoming *incoming);

/* Tells a peer something; bytes are copied. It may be lost with its peer. Errors: as
 * sti_comm_request(). */
int
sti_comm_note(struct sti_comm *comm, uint32_t peer, uint32_t verb, const void *bytes,
              uint32_t n_bytes);

/* ---- memory that ranks of one machine read themselves ---- */

/* Whether there are other ranks on this machine, and the transports let them. */
bool
sti_comm_lends(const struct sti_comm *comm);

/*
 * From here on answers with a CRC whose body lies in this arena may tell a rank of this machine
 * where the body lies instead of sending it; done is called when it was taken. Borrowed until
 * sti_comm_take_back(). Errors: -E2BIG there are STI_COMM_LENT_MAX already, -EINVAL it is not a
 * shared one, -EIO.
 */
int
sti_comm_lend(struct sti_comm *comm, const struct sti_arena *arena);

/* No answer out of it is on its way. An arena that was not lent is allowed. */
void
sti_comm_take_back(struct sti_comm *comm, const struct sti_arena *arena);

/* ---- rounds: all ranks take part, one decides ---- */

struct sti_comm_round {
    const void *mine; /* allgather: n_bytes of this rank's, copied by the call */
    void *all;        /* allgather: world times n_bytes, in order of rank */
    uint8_t *present; /* NULL, or world bytes: a rank that is late is left out, and 0 here */
    uint32_t n_bytes; /* allgather: up to STI_COMM_SHARE_MAX */
    uint32_t root;    /* who counts and decides */
    uint64_t id;      /* vote: on what */
    bool is_for;      /* vote */
    uint64_t timeout_ns;
    void (*done)(struct sti_comm_round *round);
    void *context; /* the caller's */

    /* Written before done. result: 0, all are there and, in a vote, for it; -EPERM somebody
     * is against it; -ETIMEDOUT somebody is not there, STK_E_MISMATCH somebody asks for
     * something else. rank: who. -ECANCELED and, where rank is the root, all other results:
     * nothing is known. */
    int result;
    uint32_t rank;

    /* The comm's. */
    struct sti_comm_request request;
    struct sti_comm *comm;
    unsigned char *bytes;
    uint64_t due_ns;
    uint32_t kind;
    struct sti_comm_round *next;
};

/*
 * Every rank's bytes to every rank. All ranks make the same calls in the same order, with
 * the same n_bytes and root and all or none with present. The root decides who is there,
 * once for all. Errors: as sti_comm_request(), -ENOMEM.
 */
int
sti_comm_allgather(struct sti_comm *comm, struct sti_comm_round *round);

/*
 * All ranks say whether they are for something, and the root counts: it is decided for
 * only where all are. The root acts on it; a rank that loses the root does not know what
 * was decided, and has to look. An id is voted on once. Errors: as above.
 */
int
sti_comm_vote(struct sti_comm *comm, struct sti_comm_round *round);

/*
 * Tells all peers that the job is over, as well as that can be told, and ends what is
 * under way here and there with -ECANCELED. What comes after it is refused. text: up to
 * 200 bytes.
 */
void
sti_comm_abort(struct sti_comm *comm, int code, const char *text);

/* ---- peers ---- */

/* 0, or why the peer is lost. */
int
sti_comm_peer(const struct sti_comm *comm, uint32_t rank);

/* Lets a lost peer be tried again by the next request, without the pause. */
void
sti_comm_retry(struct sti_comm *comm, uint32_t rank);

struct sti_comm_stats {
    uint64_t requests; /* asked */
    uint64_t answers;  /* given */
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t timeouts;
    uint64_t lost;      /* times that a peer was lost */
    uint64_t refused;   /* messages of strangers, malformed or beyond a limit */
    uint64_t wakes;     /* calls of progress */
    uint64_t bytes_lay; /* of bytes_in: were read where they lay */
    uint64_t unread;    /* answers that could not be read where they lay, and were sent */
};

void
sti_comm_get_stats(const struct sti_comm *comm, struct sti_comm_stats *ret_stats);

/* ---- ranks as threads of one process ---- */

/* Errors: -ENOMEM, -EINVAL, -EMFILE. ret_hub: returns owned. */
int
sti_comm_hub_new(struct sti_comm_hub **ret_hub, uint32_t world);

/* All comms must have been closed. NULL is allowed. */
void
sti_comm_hub_free(struct sti_comm_hub *hub);

#endif
