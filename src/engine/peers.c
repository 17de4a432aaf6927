/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The comm as a task of the loop. It was attached before all others, so its step runs
 * behind theirs: what they have begun goes out in the same turn, and nothing is begun
 * between the arming and the sleep. What comes in is handed to the port of its verb.
 *
 * Threads: ports, rounds and the comm are the loop's; others reach them by calls.
 */
#include "engine/peers.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"

#define NS_PER_MS UINT64_C(1000000)
#define START_TIMEOUT_MS 60000
#define TIMEOUT_MS 10000
#define CLOSE_TIMEOUT_MS 60000
#define FIRST_VERB 1u
#define IN_VAIN_MAX 256u
#define REST_NS UINT64_C(2000000)
#define MAX_REQUESTS 64u /* to one peer at a time: what a read queue has */
#define MAX_PENDING 1024u

struct sti_peers {
    struct sti_loop *loop;
    struct sti_comm *comm;
    struct sti_task task;
    uint64_t start_timeout_ns;
    uint64_t timeout_ns;
    uint64_t close_timeout_ns;
    struct sti_mutex lock;
    struct sti_cond ended; /* a gathering */
    struct sti_port *ports;
    uint32_t next_verb;
    uint64_t mapped_bytes; /* atomic: the loop's */
    uint32_t n_in_vain;    /* steps since there was something to do */
    bool is_resting;
};

static bool
is_readable(const struct sti_peers *peers)
{
    struct pollfd poll_fd = {.fd = sti_comm_fd(peers->comm), .events = POLLIN};

    return poll(&poll_fd, 1, 0) > 0;
}

/*
 * UCX (1.13 at least) leaves its descriptor readable, with nothing to do, as long as a
 * connection to a stopped process is being made: the loop would not sleep. After some steps
 * in vain it is seen whether that is so; the descriptor is then not watched, and looked at
 * every now and then.
 */
static uint64_t
rest(struct sti_peers *peers, uint64_t wanted_ns)
{
    if (peers->n_in_vain < IN_VAIN_MAX) {
        peers->n_in_vain++;
        return wanted_ns;
    }
    bool must_rest = is_readable(peers);
    if (must_rest != peers->is_resting)
        sti_aio_watch(sti_loop_aio(peers->loop), must_rest ? -1 : sti_comm_fd(peers->comm));
    peers->is_resting = must_rest;
    if (!must_rest) {
        peers->n_in_vain = 0;
        return wanted_ns;
    }
    return wanted_ns < REST_NS ? wanted_ns : REST_NS;
}

static uint64_t
step(void *context)
{
    struct sti_peers *peers = context;
    uint64_t wanted_ns = sti_comm_progress(peers->comm);
    struct sti_comm_stats stats;

    sti_comm_get_stats(peers->comm, &stats);
    __atomic_store_n(&peers->mapped_bytes, stats.bytes_lay, __ATOMIC_RELAXED);
    if (wanted_ns == 0 || sti_comm_arm(peers->comm) == -EBUSY) {
        if (peers->is_resting)
            sti_aio_watch(sti_loop_aio(peers->loop), sti_comm_fd(peers->comm));
        peers->is_resting = false;
        peers->n_in_vain = 0;
        return 0;
    }
    return rest(peers, wanted_ns);
}

static struct sti_port *
find_port(const struct sti_peers *peers, uint32_t verb)
{
    struct sti_port *port = peers->ports;

    while (port && port->verb != verb)
        port = port->next;
    return port;
}

static void
on_request(void *context, struct sti_comm_incoming *incoming)
{
    struct sti_peers *peers = context;
    const struct sti_port *port = find_port(peers, incoming->verb);
    const struct sti_comm_answer nobody = {.code = -ENOENT};

    if (port)
        port->request(port->context, incoming);
    else
        sti_comm_answer(peers->comm, incoming, &nobody);
}

static void
on_peer(void *context, uint32_t rank, int code)
{
    const struct sti_peers *peers = context;

    for (const struct sti_port *port = peers->ports; port; port = port->next)
        port->peer(port->context, rank, code);
}

static uint64_t
ms_or(uint32_t ms, uint32_t standard)
{
    return (ms ? ms : standard) * NS_PER_MS;
}

static int
open_comm(struct sti_peers *peers, const stk_comm_opts *opts, stk_error *err)
{
    const struct sti_comm_opts comm_opts = {
        .method = opts->method ? opts->method
                  : opts->hub  ? "local"
                               : NULL,
        .rank = opts->rank,
        .world = opts->world,
        .hub = (struct sti_comm_hub *)opts->hub,
        .node = opts->node,
        .transports = opts->transports,
        .secret = opts->secret,
        .exchange = opts->exchange,
        .exchange_context = opts->exchange_context,
        .host = opts->host,
        .port = (uint16_t)opts->port,
        .hosts = opts->hosts,
        .n_hosts = opts->n_hosts,
        .start_timeout_ns = peers->start_timeout_ns,
        .timeout_ns = peers->timeout_ns,
        .max_requests = MAX_REQUESTS,
        .max_pending = MAX_PENDING,
        .events = {.context = peers, .request = on_request, .peer = on_peer},
    };

    if (opts->port > UINT16_MAX)
        return sti_error_set(err, -EINVAL, "comm: port %" PRIu32 " is not in 1 .. %d", opts->port,
                             UINT16_MAX);
    if (opts->tiers_per_rank > 1)
        return sti_error_set(err, -EINVAL, "comm: tiers_per_rank %" PRIu32 " is not 0 or 1",
                             opts->tiers_per_rank);
    return sti_comm_open(&peers->comm, &comm_opts, err);
}

static void
watch(void *context)
{
    struct sti_peers *peers = context;

    sti_aio_watch(sti_loop_aio(peers->loop), sti_comm_fd(peers->comm));
}

static void
end_watch(void *context)
{
    struct sti_peers *peers = context;

    sti_aio_watch(sti_loop_aio(peers->loop), -1);
}

int
sti_peers_open(struct sti_peers **ret_peers, struct sti_loop *loop, const stk_comm_opts *opts,
               stk_error *err)
{
    struct sti_peers *peers = sti_mem_new(1, sizeof(*peers));
    int rc = -ENOMEM;

    if (!peers)
        return sti_error_set(err, rc, "no memory for the way to other ranks");
    peers->loop = loop;
    peers->next_verb = FIRST_VERB;
    peers->start_timeout_ns = ms_or(opts->start_timeout_ms, START_TIMEOUT_MS);
    peers->timeout_ns = ms_or(opts->timeout_ms, TIMEOUT_MS);
    peers->close_timeout_ns = ms_or(opts->close_timeout_ms, CLOSE_TIMEOUT_MS);
    rc = sti_mutex_init(&peers->lock, STI_RANK_LEAF);
    if (rc == 0) {
        rc = sti_cond_init(&peers->ended);
        if (rc < 0)
            sti_mutex_fini(&peers->lock);
    }
    if (rc < 0) {
        sti_mem_free(peers);
        return sti_error_set(err, rc, "no lock for the way to other ranks: %s", sti_error_text(rc));
    }
    rc = open_comm(peers, opts, err);
    if (rc < 0) {
        sti_cond_fini(&peers->ended);
        sti_mutex_fini(&peers->lock);
        sti_mem_free(peers);
        return rc;
    }
    peers->task = (struct sti_task){.step = step, .context = peers};
    sti_loop_call(loop, watch, peers);
    sti_loop_attach(loop, &peers->task);
    *ret_peers = peers;
    return 0;
}

void
sti_peers_close(struct sti_peers *peers)
{
    if (!peers)
        return;
    sti_loop_detach(peers->loop, &peers->task);
    sti_loop_call(peers->loop, end_watch, peers);
    sti_comm_close(peers->comm);
    sti_cond_fini(&peers->ended);
    sti_mutex_fini(&peers->lock);
    sti_mem_free(peers);
}

struct sti_comm *
sti_peers_comm(struct sti_peers *peers)
{
    return peers->comm;
}

uint64_t
sti_peers_mapped_bytes(const struct sti_peers *peers)
{
    return peers ? __atomic_load_n(&peers->mapped_bytes, __ATOMIC_RELAXED) : 0;
}

void
sti_peers_node(const struct sti_peers *peers, uint32_t *ret_at, uint32_t *ret_n)
{
    const struct sti_comm *comm = peers->comm;
    uint32_t own = sti_comm_rank(comm);

    *ret_at = 0;
    *ret_n = 0;
    for (uint32_t rank = 0; rank < sti_comm_world(comm); rank++) {
        if (sti_comm_node_of(comm, rank) != sti_comm_node_of(comm, own))
            continue;
        *ret_at += rank < own;
        *ret_n += 1;
    }
}

uint64_t
sti_peers_start_timeout_ns(const struct sti_peers *peers)
{
    return peers->start_timeout_ns;
}

uint64_t
sti_peers_timeout_ns(const struct sti_peers *peers)
{
    return peers->timeout_ns;
}

uint64_t
sti_peers_close_timeout_ns(const struct sti_peers *peers)
{
    return peers->close_timeout_ns;
}

/* ---- ports ---- */

struct change {
    struct sti_peers *peers;
    struct sti_port *port;
    void (*finish)(void *context);
    int result;
};

static void
add_port(void *context)
{
    struct change *change = context;
    struct sti_peers *peers = change->peers;

    if (peers->next_verb == STI_COMM_VERBS_MAX) {
        change->result = -E2BIG;
        return;
    }
    change->port->verb = peers->next_verb++;
    change->port->next = peers->ports;
    peers->ports = change->port;
}

static void
remove_port(void *context)
{
    struct change *change = context;
    struct sti_port **at = &change->peers->ports;

    change->finish(change->port->context);
    while (*at && *at != change->port)
        at = &(*at)->next;
    if (*at)
        *at = change->port->next;
}

int
sti_peers_attach(struct sti_peers *peers, struct sti_port *port)
{
    struct change change = {.peers = peers, .port = port};

    sti_loop_call(peers->loop, add_port, &change);
    return change.result;
}

void
sti_peers_detach(struct sti_peers *peers, struct sti_port *port, void (*finish)(void *context))
{
    struct change change = {.peers = peers, .port = port, .finish = finish};

    sti_loop_call(peers->loop, remove_port, &change);
}

/* ---- gatherings ---- */

struct gathering {
    struct sti_peers *peers;
    struct sti_comm_round round;
    bool is_ended; /* under the lock */
};

static void
end_gathering(struct gathering *gathering)
{
    struct sti_peers *peers = gathering->peers;

    sti_mutex_lock(&peers->lock);
    gathering->is_ended = true; /* from here on its memory is the caller's again */
    sti_cond_broadcast(&peers->ended);
    sti_mutex_unlock(&peers->lock);
}

static void
round_done(struct sti_comm_round *round)
{
    end_gathering((struct gathering *)(void *)((char *)round - offsetof(struct gathering, round)));
}

static void
begin_gathering(void *context)
{
    struct gathering *gathering = context;
    int rc = sti_comm_allgather(gathering->peers->comm, &gathering->round);

    if (rc == 0)
        return;
    gathering->round.result = rc;
    gathering->round.rank = STI_COMM_NO_RANK;
    end_gathering(gathering);
}

int
sti_peers_gather(struct sti_peers *peers, const void *mine, uint32_t n_bytes, void *all,
                 stk_error *err)
{
    struct gathering gathering = {.peers = peers,
                                  .round = {.mine = mine,
                                            .all = all,
                                            .n_bytes = n_bytes,
                                            .timeout_ns = peers->start_timeout_ns,
                                            .rank = STI_COMM_NO_RANK,
                                            .done = round_done}};

    sti_loop_call(peers->loop, begin_gathering, &gathering);
    sti_mutex_lock(&peers->lock);
    while (!gathering.is_ended)
        sti_cond_wait(&peers->ended, &peers->lock);
    sti_mutex_unlock(&peers->lock);
    int rc = gathering.round.result;
    if (rc == 0)
        return 0;
    if (gathering.round.rank == STI_COMM_NO_RANK)
        return sti_error_set(err, rc, "the ranks cannot be asked: %s", sti_error_text(rc));
    (void)sti_error_set(err, rc,
                        rc == -ETIMEDOUT
                            ? "rank %" PRIu32 " has not opened the same within %" PRIu64 " s"
                            : "rank %" PRIu32 " does not take part (after %" PRIu64 " s at most)",
                        gathering.round.rank, peers->start_timeout_ns / STI_NS_PER_S);
    if (err)
        err->rank = (int)gathering.round.rank;
    return rc;
}
