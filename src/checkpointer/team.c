/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that save together. The port is attached before the agreement: who has agreed may
 * vote at once, and rank 0 keeps a ballot that comes before it saves itself.
 *
 * Threads: join and leave are the program's, the vote is the loop's.
 */
#include "checkpointer/team.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>

#include "base/error.h"
#include "base/mem.h"
#include "checkpointer/place.h"
#include "ckpt/vote_ranks.h"
#include "engine/agree.h"

/* Of what ranks say to each other: what differs in it cannot work together. */
#define TEAM_VERSION 2

#define DEPOT_MIN_BYTES (UINT64_C(8) << 20) /* that others are given at a time */

enum fact {
    FACT_VERSION, /* first: what the others mean depends on it */
    FACT_CHUNK_BYTES,
    FACT_CHECKED,
    FACT_WRITERS,
    FACT_SHARED,
    FACT_NODE_LOCAL,
    FACT_PARTNER,
    FACTS_ALIKE, /* those before are the same on all ranks */
    FACT_CODE = FACTS_ALIKE,
    FACT_SESSION,
    FACT_SOCKET,
    FACTS
};

static const char *const names[FACTS_ALIKE] = {
    [FACT_VERSION] = "version of the vote",
    [FACT_CHUNK_BYTES] = "chunk_bytes",
    [FACT_CHECKED] = "check_replicas",
    [FACT_WRITERS] = "writers",
    [FACT_SHARED] = "shared directories",
    [FACT_NODE_LOCAL] = "node_local",
    [FACT_PARTNER] = "partner",
};

static const struct sti_agreement agreement = {.names = names,
                                               .things = "the ranks' checkpointers",
                                               .doing = "open its checkpointer",
                                               .n_alike = FACTS_ALIKE,
                                               .n = FACTS};

static struct sti_peers *
peers_of(const struct sti_team *team)
{
    return sti_engine_peers(team->engine);
}

static uint64_t
fact_of(const uint64_t *all, uint32_t rank, enum fact fact)
{
    return all[(size_t)rank * FACTS + fact];
}

/* ---- agreeing ---------------------------------------------------------------------- */

/* Where each rank is, as far as it matters for who writes. */
static int
take_places(struct sti_team *team, const uint64_t *all, uint32_t writers)
{
    const struct sti_comm *comm = sti_peers_comm(peers_of(team));

    if (writers == STK_WRITERS_ALL)
        return 0;
    team->places = sti_mem_new(team->world, sizeof(team->places[0]));
    if (!team->places)
        return -ENOMEM;
    for (uint32_t rank = 0; rank < team->world; rank++) {
        uint32_t socket =
            writers == STK_WRITERS_SOCKET ? (uint32_t)fact_of(all, rank, FACT_SOCKET) : 0;

        team->places[rank] = sti_comm_node_of(comm, rank) * STI_PLACE_SOCKETS_MAX + socket;
    }
    return 0;
}

static int
agree(struct sti_team *team, const struct sti_team_opts *opts, stk_error *err)
{
    uint64_t *all = sti_mem_new((size_t)team->world, FACTS * sizeof(*all));
    uint64_t mine[FACTS] = {[FACT_VERSION] = TEAM_VERSION,
                            [FACT_CHUNK_BYTES] = opts->chunk_bytes,
                            [FACT_CHECKED] = opts->is_checked,
                            [FACT_WRITERS] = opts->writers,
                            [FACT_SHARED] = opts->is_shared,
                            [FACT_NODE_LOCAL] = opts->is_of_node,
                            [FACT_PARTNER] = opts->has_partner,
                            [FACT_CODE] = (uint64_t)(int64_t)opts->code,
                            [FACT_SESSION] = opts->session,
                            [FACT_SOCKET] =
                                opts->writers == STK_WRITERS_SOCKET ? sti_place_socket() : 0};

    if (!all)
        return sti_error_set(err, -ENOMEM, "no memory for what %" PRIu32 " ranks say", team->world);
    int rc = sti_agree(peers_of(team), &agreement, mine, all, err);
    if (rc == 0) {
        team->session = fact_of(all, 0, FACT_SESSION);
        rc = take_places(team, all, opts->writers);
        if (rc < 0)
            (void)sti_error_set(err, rc, "no memory for where the ranks are");
    }
    sti_mem_free(all);
    return rc;
}

static void
ignore_peer(void *context, uint32_t rank, int code)
{
    (void)context; /* who does not vote in time is named, why ever */
    (void)rank;
    (void)code;
}

static int
open_vote(struct sti_team *team, struct sti_team_vote *vote, uint64_t timeout_ns)
{
    const struct sti_vote_ranks_opts opts = {.comm = sti_peers_comm(peers_of(team)),
                                             .timeout_ns = timeout_ns};
    int rc = sti_vote_ranks_new(&vote->vote, &opts);

    if (rc < 0)
        return rc;
    vote->port = (struct sti_port){
        .context = vote->vote, .request = sti_vote_ranks_on_request, .peer = ignore_peer};
    rc = sti_peers_attach(peers_of(team), &vote->port);
    if (rc < 0) {
        sti_vote_free(vote->vote);
        vote->vote = NULL;
        return rc;
    }
    sti_vote_ranks_set_verb(vote->vote, vote->port.verb);
    return 0;
}

/* All of them on every rank, or the ranks' verbs would differ from then on. */
static int
open_votes(struct sti_team *team, uint64_t timeout_ns)
{
    int rc = 0;

    for (int at = 0; rc == 0 && at < STI_TEAM_TOPICS; at++)
        rc = open_vote(team, &team->votes[at], timeout_ns);
    return rc;
}

/* What is on this node is given to the others, whether they are going to ask for it or not. */
static int
open_depot(struct sti_team *team, const struct sti_team_opts *opts)
{
    uint64_t most = opts->chunk_bytes > DEPOT_MIN_BYTES ? opts->chunk_bytes : DEPOT_MIN_BYTES;
    struct sti_loop *loop = sti_engine_loop(team->engine);
    const struct sti_depot_opts depot = {.comm = sti_peers_comm(peers_of(team)),
                                         .aio = sti_loop_aio(loop),
                                         .roots = opts->roots,
                                         .n_roots = opts->code < 0 ? 0 : opts->n_roots,
                                         .most_bytes = most};
    int rc = sti_depot_new(&team->depot, &depot);

    if (rc < 0)
        return rc;
    team->port = (struct sti_port){
        .context = team->depot, .request = sti_depot_on_request, .peer = ignore_peer};
    rc = sti_peers_attach(peers_of(team), &team->port);
    if (rc < 0) {
        sti_depot_free(team->depot);
        team->depot = NULL;
        return rc;
    }
    sti_depot_set_verb(team->depot, team->port.verb);
    team->depot_task = (struct sti_task){.step = sti_depot_step, .context = team->depot};
    sti_loop_attach(loop, &team->depot_task);
    return 0;
}

/* Who keeps each node, from the next one on; this one's is the last. */
static int
find_keepers(struct sti_team *team)
{
    const struct sti_comm *comm = sti_peers_comm(peers_of(team));
    uint32_t n = sti_comm_nodes(comm);
    uint32_t own = sti_comm_node_of(comm, team->rank);

    team->keepers = sti_mem_new(n, sizeof(team->keepers[0]));
    if (!team->keepers)
        return -ENOMEM;
    for (uint32_t rank = team->world; rank-- > 0;)
        team->keepers[(sti_comm_node_of(comm, rank) + n - own - 1) % n] = rank;
    team->is_keeper = team->keepers[n - 1] == team->rank;
    team->nodes = (struct sti_nodes){.depot = team->depot, .keepers = team->keepers, .n = n - 1};
    return 0;
}

/* The ranks of a node take the parts of the node before it in turn. The header is on rank 0's. */
static int
share_parts(struct sti_team *team)
{
    const struct sti_comm *comm = sti_peers_comm(peers_of(team));
    uint32_t n = sti_comm_nodes(comm);
    uint32_t own = sti_comm_node_of(comm, team->rank);
    uint32_t before = (own + n - 1) % n;
    uint32_t n_own = 0;
    uint32_t turn = 0;
    uint32_t mine = 0;

    team->takes = sti_mem_new((size_t)team->world + 1, sizeof(team->takes[0]));
    if (!team->takes)
        return -ENOMEM;
    for (uint32_t rank = 0; rank < team->world; rank++) {
        if (rank == team->rank)
            mine = n_own;
        n_own += sti_comm_node_of(comm, rank) == own;
    }
    for (uint32_t writer = 0; writer <= team->world; writer++) {
        uint32_t where = writer < team->world ? writer : 0;

        if (sti_comm_node_of(comm, where) != before)
            continue;
        team->takes[writer] = turn == mine;
        turn = turn + 1 < n_own ? turn + 1 : 0;
    }
    return 0;
}

/* What a team is without its agreement. */
static int
set_up(struct sti_team *team, const struct sti_team_opts *opts)
{
    const struct sti_comm *comm = sti_peers_comm(peers_of(team));
    int rc = sti_mutex_init(&team->lock, STI_RANK_LEAF);

    if (rc < 0)
        return rc;
    rc = sti_cond_init(&team->ended);
    if (rc < 0)
        goto err_lock;
    team->rank = sti_comm_rank(comm);
    team->world = sti_comm_world(comm);
    rc = open_votes(team, opts->timeout_ns);
    if (rc == 0)
        rc = open_depot(team, opts);
    if (rc == 0)
        rc = find_keepers(team);
    if (rc == 0)
        rc = share_parts(team);
    if (rc < 0)
        sti_team_leave(team);
    return rc;

err_lock:
    sti_mutex_fini(&team->lock);
    *team = (struct sti_team){0};
    return rc;
}

int
sti_team_join(struct sti_team *team, const struct sti_team_opts *opts, stk_error *err)
{
    *team = (struct sti_team){.engine = opts->engine};
    int rc = set_up(team, opts);

    if (rc < 0)
        return sti_error_set(err, rc,
                             rc == -E2BIG
                                 ? "more checkpointers and loaders have been opened than one "
                                   "engine can tell apart"
                                 : "no memory for the ranks' vote");
    rc = agree(team, opts, err);
    if (rc < 0)
        sti_team_leave(team);
    return rc;
}

/* ---- leaving ----------------------------------------------------------------------- */

static bool
are_idle(const struct sti_team *team)
{
    for (int at = 0; at < STI_TEAM_TOPICS; at++)
        if (team->votes[at].vote && !sti_vote_ranks_is_idle(team->votes[at].vote))
            return false;
    return !team->depot || sti_depot_is_idle(team->depot);
}

/* Whether the last messages have left, on the loop. */
static uint64_t
look(void *context)
{
    struct sti_team *team = context;

    if (!are_idle(team))
        return UINT64_MAX; /* votes and depot wake the loop */
    sti_mutex_lock(&team->lock);
    team->is_idle = true;
    sti_cond_broadcast(&team->ended);
    sti_mutex_unlock(&team->lock);
    return UINT64_MAX;
}

static void
close_depot(void *context)
{
    sti_depot_leave(context);
}

static void
begin_leaving(void *context)
{
    sti_vote_ranks_leave(context);
}

void
sti_team_leave(struct sti_team *team)
{
    struct sti_task task = {.step = look, .context = team};

    if (!team->engine)
        return;
    struct sti_loop *loop = sti_engine_loop(team->engine);
    for (int at = 0; at < STI_TEAM_TOPICS; at++)
        if (team->votes[at].vote) {
            /* Who has no saver is woken, too. */
            sti_vote_join(team->votes[at].vote, team->rank, sti_loop_aio(loop));
            sti_peers_detach(peers_of(team), &team->votes[at].port, begin_leaving);
        }
    if (team->depot)
        sti_peers_detach(peers_of(team), &team->port, close_depot);
    sti_loop_attach(loop, &task);
    sti_loop_wake(loop);
    sti_mutex_lock(&team->lock);
    while (!team->is_idle)
        sti_cond_wait(&team->ended, &team->lock);
    sti_mutex_unlock(&team->lock);
    sti_loop_detach(loop, &task);
    if (team->depot)
        sti_loop_detach(loop, &team->depot_task);
    sti_depot_free(team->depot);
    for (int at = 0; at < STI_TEAM_TOPICS; at++)
        sti_vote_free(team->votes[at].vote);
    sti_mem_free(team->places);
    sti_mem_free(team->keepers);
    sti_mem_free(team->takes);
    sti_cond_fini(&team->ended);
    sti_mutex_fini(&team->lock);
    *team = (struct sti_team){0};
}
