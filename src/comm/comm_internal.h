/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share: a comm, its peers, requests and incoming requests. */
#ifndef STI_COMM_COMM_INTERNAL_H
#define STI_COMM_COMM_INTERNAL_H

#include "comm/card.h"
#include "comm/comm.h"
#include "comm/method.h"
#include "comm/wire.h"

/* Verbs of rounds, which programs cannot use. */
enum { STI_VERB_ALLGATHER = STI_COMM_VERBS_MAX, STI_VERB_VOTE };

struct peer {
    uint64_t incarnation;
    uint64_t retry_at_ns; /* a lost one is not tried before */
    int code;             /* 0, or what it was lost by */
    uint32_t epoch;       /* counts losses: what was asked before one is not answered after */
    uint32_t node;
    uint32_t n_out; /* requests to it */
    uint32_t n_notes;
    struct out *filling; /* or NULL */
    uint32_t n_in;       /* requests from it */
    bool is_far;         /* what lies in its memory cannot be read from here */
};

/* A request under way; its place and generation are the id on the wire. */
struct slot {
    struct sti_link_pull pull;
    struct sti_comm *comm;
    struct sti_comm_request *request; /* NULL: free */
    uint32_t generation;
    uint32_t next_free;
    int why; /* of a body that is coming in and not wanted any more */
};

#define LIES_TOKEN_BYTES 16u

/* Memory that peers may read; its token tells it from all other. */
struct lent {
    const char *base; /* NULL: none */
    uint64_t n_bytes;
    int fd;
    unsigned char token[LIES_TOKEN_BYTES];
};

/* Where the bytes of an answer lie. */
struct lies {
    unsigned char token[LIES_TOKEN_BYTES];
    uint64_t offset;
    uint64_t lent_bytes;
    uint64_t id; /* of the answer, at its sender */
    uint32_t pid;
    uint32_t fd;
};

#define LIES_BYTES 48u
#define VIEWS_MAX 128u

/* A peer's memory, as it is mapped here. */
struct view {
    const char *base; /* NULL: none */
    uint64_t n_bytes;
    uint32_t peer;
    uint32_t n_uses; /* answers that are being copied out of it */
    uint64_t used_at;
    bool is_gone; /* unmapped as soon as nothing is copied out of it */
    unsigned char token[LIES_TOKEN_BYTES];
};

/* What is to be told to a peer: an answer was copied out of its memory. */
struct took {
    uint64_t id;
    uint32_t peer;
};

/* Heads of messages on their way out, to one peer. */
struct out {
    struct sti_link_send send;
    struct sti_comm *comm;
    struct out *next; /* free, or filling */
    uint32_t n_notes; /* among them */
    unsigned char head[STI_HEAD_MAX];
};

/* An incoming request and, in the same memory, the answer to it. */
struct taken {
    struct sti_comm_incoming incoming; /* first: the program's handle is this */
    struct sti_link_send send;
    struct sti_comm *comm;
    uint64_t id;
    uint64_t due_ns; /* of an answer on its way */
    uint32_t epoch;
    int code; /* the answer cannot be sent: why */
    bool is_answered;
    bool is_dropped; /* its peer was given up because of it */
    bool may_lie;
    bool is_lying;       /* it says where the bytes lie, and they are not taken yet */
    uint32_t generation; /* with its place the id of an answer that lies */
    struct sti_comm_answer answer;
    struct taken *next; /* free, or answering, or unsendable */
    struct taken **link;
    unsigned char head[STI_HEAD_MAX];
};

struct hall;

struct sti_comm {
    uint32_t rank;
    uint32_t world;
    uint32_t n_nodes;
    uint32_t max_requests;
    uint32_t max_pending;
    uint32_t max_taken;
    uint64_t timeout_ns;
    uint64_t retry_ns;
    uint64_t incarnation;
    struct hmac_sha256_ctx key; /* of the job */
    struct sti_comm_events events;

    const struct sti_method *method;
    struct sti_link *link;
    struct sti_comm_hub *own_hub; /* of a world of one */
    struct peer *peers;
    unsigned char *cards; /* of all ranks; their addresses are used from here */

    struct slot *slots;
    uint32_t free_slot;
    struct out *outs;
    struct out *free_outs;
    struct out *filling; /* not handed to the link yet, at most one to a peer */
    struct out **filling_end;
    struct taken *takens;
    struct taken *free_takens;
    struct taken *answering;  /* their answers are on their way */
    struct taken *unsendable; /* done is to be called */
    struct sti_comm_request *ended;
    struct sti_comm_request **ended_end;

    struct hall *halls;
    uint32_t n_halls;
    uint64_t n_allgathers;
    struct sti_comm_round *ended_rounds;
    struct sti_comm_round *paused_rounds; /* lost their root and ask again */

    uint32_t pid;
    bool lends; /* ranks of this machine read each other's memory */
    struct lent lents[STI_COMM_LENT_MAX];
    struct view *views;
    uint64_t n_view_uses;
    struct took *tooks;
    uint32_t n_tooks;
    uint32_t max_tooks;

    uint64_t next_due_ns;
    int aborted;
    bool is_leaving; /* nothing is taken any more but what ends an answer */
    bool is_closing;
    struct sti_comm_stats stats;
};

#define NO_SLOT UINT32_MAX

/* Something is due: progress looks no later than that. */
static inline void
sti_comm_due(struct sti_comm *comm, uint64_t due_ns)
{
    if (due_ns < comm->next_due_ns)
        comm->next_due_ns = due_ns;
}

/* join.c: exchanges cards; the link is open. Errors: see sti_comm_open(). */
int
sti_comm_join(struct sti_comm *comm, const struct sti_comm_opts *opts, stk_error *err);

/* ask.c */

/* A request of a round, which does not count among a peer's. */
int
sti_comm_ask(struct sti_comm *comm, struct sti_comm_request *request, uint64_t now_ns);
void
sti_comm_answered(struct sti_comm *comm, const struct sti_wire *wire, struct sti_link_body *body);
void
sti_comm_promised(struct sti_comm *comm, const struct sti_wire *wire);

/* Ends what was asked of a peer (STI_COMM_NO_RANK: of all) and is not coming in yet. */
void
sti_comm_end_requests(struct sti_comm *comm, uint32_t peer, int code);

/* Ends what is late, and says when the next is due. */
void
sti_comm_check_requests(struct sti_comm *comm, uint64_t now_ns);
/* Calls back; returns whether there was something. */
bool
sti_comm_run_ended(struct sti_comm *comm);

/* Sends a head alone, with others at the end of this turn. Errors: -EAGAIN too many are on
 * their way. */
int
sti_comm_send(struct sti_comm *comm, uint32_t peer, struct sti_wire *wire);
/* Hands what sti_comm_send() has collected to the link: what goes to a peer, or (NO_RANK) all. */
void
sti_comm_flush(struct sti_comm *comm, uint32_t peer);
/* 0, or why nothing can be sent to a peer now. */
int
sti_comm_may_send(const struct sti_comm *comm, uint32_t peer, uint64_t now_ns);

/* serve.c */
void
sti_comm_message(void *context, const void *head, size_t n_head, struct sti_link_body *body);
/* Ends what waits for a peer; the link has lost it. */
void
sti_comm_lost(void *context, uint32_t rank, int code);
/* The same for one that is given up from here. */
void
sti_comm_drop(struct sti_comm *comm, uint32_t rank, int code);
void
sti_comm_check_answers(struct sti_comm *comm, uint64_t now_ns);
bool
sti_comm_run_unsendable(struct sti_comm *comm);
void
sti_comm_be_aborted(struct sti_comm *comm, uint32_t from, int code);

/* An answer that lay at this rank was taken, or (code) is to be sent. */
void
sti_comm_taken(struct sti_comm *comm, const struct sti_wire *wire);
/* Ends those to a peer (STI_COMM_NO_RANK: to all) that are not taken. */
void
sti_comm_end_lying(struct sti_comm *comm, uint32_t peer, int code);
bool
sti_comm_has_lying(const struct sti_comm *comm);

/* lend.c */

/* Whether memory is lent at all; the ranks are known. Errors: -ENOMEM. */
int
sti_comm_lend_init(struct sti_comm *comm, const char *transports);
void
sti_comm_lend_fini(struct sti_comm *comm);
/* Writes where a body lies, if that is in memory that is lent. */
bool
sti_comm_lies(const struct sti_comm *comm, const void *body, uint64_t n_bytes, uint64_t id,
              unsigned char *bytes);

/* view.c */

/* Finds the bytes of an answer that lies at its sender. Errors: why they cannot be read. */
int
sti_comm_view(struct sti_comm *comm, struct sti_comm_request *request, const struct lies *lies);
/* Remembers to tell. */
void
sti_comm_tell_took(struct sti_comm *comm, uint32_t peer, uint64_t id);
/* Tells. */
void
sti_comm_run_tooks(struct sti_comm *comm);
/* A peer's memory is gone: that with the token, or (NULL) all. */
void
sti_comm_end_views(struct sti_comm *comm, uint32_t peer, const unsigned char *token);
/* Nobody reads any more. */
void
sti_comm_close_views(struct sti_comm *comm);
/* Errors: -EBADMSG. */
int
sti_comm_read_lies(struct lies *ret_lies, const struct sti_wire *wire);

/* round.c */
void
sti_comm_contribution(struct sti_comm *comm, struct taken *taken);
void
sti_comm_check_rounds(struct sti_comm *comm, uint64_t now_ns);
bool
sti_comm_run_rounds(struct sti_comm *comm);
/* All rounds end; the link is closed, and nothing is on its way. */
void
sti_comm_end_rounds(struct sti_comm *comm, int code);
void
sti_comm_free_halls(struct sti_comm *comm);

#endif
