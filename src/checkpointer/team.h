/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks that save together: they have agreed, when they opened their checkpointers, on
 * what must be the same, and vote on every save.
 */
#ifndef STI_CHECKPOINTER_TEAM_H
#define STI_CHECKPOINTER_TEAM_H

#include <stdint.h>

#include <stoker/checkpoint.h>

#include "base/thread.h"
#include "ckpt/nodes.h"
#include "ckpt/vote.h"
#include "engine/engine.h"
#include "engine/peers.h"

/* What is voted on apart from each other. */
enum sti_team_topic {
    STI_TEAM_SAVES,
    STI_TEAM_COPIES,
    STI_TEAM_COMMITS,
    STI_TEAM_PARTNERS,
    STI_TEAM_TOPICS
};

/* A vote, and the port where it is asked. */
struct sti_team_vote {
    struct sti_port port;
    struct sti_vote *vote; /* NULL: a rank alone */
};

/* All zero: a rank alone. */
struct sti_team {
    struct sti_engine *engine; /* NULL: alone */
    struct sti_team_vote votes[STI_TEAM_TOPICS];
    struct sti_port port; /* where other ranks ask for what is here */
    struct sti_depot *depot;
    struct sti_task depot_task;
    struct sti_nodes nodes; /* the others, the next one first */
    uint32_t *keepers;      /* the first rank of each node */
    bool is_keeper;         /* this one is */
    uint8_t *takes;         /* of each rank, and the header: this one copies its parts */
    uint32_t rank;
    uint32_t world;
    uint64_t session; /* the same on all ranks */
    uint32_t *places; /* of all ranks: where each is, as far as writers are chosen by it; NULL:
                       * everybody writes */
    struct sti_mutex lock;
    struct sti_cond ended;
    bool is_idle STI_GUARDED_BY(&lock); /* nothing of the votes is under way any more */
};

/*
 * code         of this rank's opening so far: a rank that cannot open says so, so that the others
 *              do not wait for it.
 * session      this rank's own; rank 0's is taken.
 * chunk_bytes, is_checked, writers, is_shared, is_of_node and has_partner must be the same on all
 * ranks.
 * roots        n_roots of this rank's, to be given to others; borrowed until it leaves.
 * timeout_ns   of the vote.
 */
struct sti_team_opts {
    struct sti_engine *engine;
    int code;
    uint64_t session;
    uint32_t chunk_bytes;
    bool is_checked;
    bool is_shared;   /* there is a shared directory */
    bool is_of_node;  /* directory and roots are each node's own */
    bool has_partner; /* they are copied to another node */
    const struct sti_root *roots;
    uint32_t n_roots;
    uint32_t writers; /* stk_writers */
    uint64_t timeout_ns;
};

/*
 * Joins the other ranks, which do the same. Blocks. Errors: opts->code, where that is one (err
 * is left); STK_E_MISMATCH (err names the ranks and both values), -ECANCELED another rank
 * cannot, -ETIMEDOUT one has not come, -E2BIG, -ENOMEM. Then team is all zero.
 */
int
sti_team_join(struct sti_team *team, const struct sti_team_opts *opts, stk_error *err);

/* When no save is under way. Blocks until nothing of the vote is under way. */
void
sti_team_leave(struct sti_team *team);

#endif
