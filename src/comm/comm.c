/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A comm from its opening to its end: options, cards, peers, and the one place that gives
 * time to everything. Memory is taken here once; requests, answers and notes take none.
 *
 * Invariant: a callback of the program runs only in progress and close, with nothing of
 * the comm half changed.
 */
#include "comm/comm_internal.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"

#define TIMEOUT_NS (10 * STI_NS_PER_S)
#define RETRY_NS (1 * STI_NS_PER_S)
#define CLOSE_NS (1 * STI_NS_PER_S)
#define MAX_REQUESTS 64u
#define MAX_PENDING 512u
#define TURNS 16u /* of progress, before the caller's other work has its turn */

/* ---- options ---- */

static uint64_t
or_default(uint64_t value, uint64_t standard)
{
    return value > 0 ? value : standard;
}

static int
check_limits(const struct sti_comm_opts *opts, stk_error *err)
{
    if (opts->max_requests > STI_COMM_REQUESTS_MAX)
        return sti_error_set(err, -EINVAL, "max_requests is %u and can be %u at most",
                             opts->max_requests, STI_COMM_REQUESTS_MAX);
    if (opts->max_pending > STI_COMM_PENDING_MAX)
        return sti_error_set(err, -EINVAL, "max_pending is %u and can be %u at most",
                             opts->max_pending, STI_COMM_PENDING_MAX);
    if (opts->secret && strnlen(opts->secret, STI_COMM_SECRET_MAX + 1) > STI_COMM_SECRET_MAX)
        return sti_error_set(err, -EINVAL, "the secret is longer than %u bytes",
                             STI_COMM_SECRET_MAX);
    if (opts->secret && opts->secret[0] == '\0')
        return sti_error_set(err, -EINVAL, "the secret is empty; leave it out to have none");
    if (opts->node && strlen(opts->node) >= STI_CARD_TEXT_SIZE)
        return sti_error_set(err, -EINVAL, "the node's name is longer than %u bytes",
                             STI_CARD_TEXT_SIZE - 1);
    if (opts->n_values > STI_COMM_VALUES_MAX)
        return sti_error_set(err, -EINVAL, "%u values are to be compared, and %u are the most",
                             opts->n_values, STI_COMM_VALUES_MAX);
    return 0;
}

static int
check_opts(const struct sti_comm_opts *opts, stk_error *err)
{
    if (opts->world == 0 || opts->world > STI_COMM_RANKS_MAX)
        return sti_error_set(err, -EINVAL, "world is %u; it is the number of ranks, 1 to %u",
                             opts->world, STI_COMM_RANKS_MAX);
    if (opts->rank >= opts->world)
        return sti_error_set(err, -EINVAL, "rank is %u; with a world of %u it is 0 to %u",
                             opts->rank, opts->world, opts->world - 1);
    for (uint32_t i = 0; i < opts->n_values && i < STI_COMM_VALUES_MAX; i++) {
        if (strlen(opts->values[i].name) >= STI_CARD_NAME_SIZE ||
            strlen(opts->values[i].text) >= STI_CARD_TEXT_SIZE)
            return sti_error_set(
                err, -EINVAL, "value %.40s is too long: names are %u bytes at most, texts %u",
                opts->values[i].name, STI_CARD_NAME_SIZE - 1, STI_CARD_TEXT_SIZE - 1);
    }
    if (opts->world > 1 && !opts->exchange && (!opts->host || opts->port == 0))
        return sti_error_set(err, -EINVAL,
                             "a world of %u ranks needs to know where rank 0 waits: give an "
                             "address and a port that is not the launcher's own",
                             opts->world);
    return check_limits(opts, err);
}

static int
find_method(const struct sti_comm_opts *opts, const struct sti_method **ret_method, stk_error *err)
{
    const char *name = opts->method ? opts->method : opts->world == 1 ? "local" : "ucx";

    if (strcmp(name, "local") == 0) {
        if (opts->world > 1 && !opts->hub)
            return sti_error_set(err, -EINVAL, "method local needs the hub where its ranks meet");
        *ret_method = &sti_method_local;
        return 0;
    }
    if (strcmp(name, "ucx") == 0) {
#ifdef STI_HAVE_UCX
        *ret_method = &sti_method_ucx;
        return 0;
#else
        return sti_error_set(err, -ENOSYS,
                             "this Stoker was built without UCX, and ranks of several processes "
                             "need it: install UCX's headers (Debian: libucx-dev) and build again "
                             "with -Ducx=enabled");
#endif
    }
    return sti_error_set(err, -EINVAL, "there is no method %s: ucx and local are there", name);
}

/* ---- memory ---- */

static int
take_memory(struct sti_comm *comm)
{
    uint32_t n_outs = 3 * comm->max_pending + comm->world;

    comm->max_taken = 2 * comm->max_pending + 2 * comm->world;
    comm->peers = sti_mem_new(comm->world, sizeof(struct peer));
    comm->cards = sti_mem_new(comm->world, STI_COMM_CARD_MAX);
    comm->slots = sti_mem_new(comm->max_pending, sizeof(struct slot));
    comm->outs = sti_mem_new(n_outs, sizeof(struct out));
    comm->takens = sti_mem_new(comm->max_taken, sizeof(struct taken));
    if (!comm->peers || !comm->cards || !comm->slots || !comm->outs || !comm->takens)
        return -ENOMEM;
    for (uint32_t i = 0; i < comm->max_pending; i++)
        comm->slots[i].next_free = i + 1 < comm->max_pending ? i + 1 : NO_SLOT;
    for (uint32_t i = 0; i < n_outs; i++) {
        comm->outs[i].comm = comm;
        comm->outs[i].next = i + 1 < n_outs ? &comm->outs[i + 1] : NULL;
    }
    for (uint32_t i = 0; i < comm->max_taken; i++) {
        comm->takens[i].comm = comm;
        comm->takens[i].next = i + 1 < comm->max_taken ? &comm->takens[i + 1] : NULL;
    }
    comm->free_slot = 0;
    comm->free_outs = comm->outs;
    comm->free_takens = comm->takens;
    comm->ended_end = &comm->ended;
    comm->filling_end = &comm->filling;
    return 0;
}

static void
free_memory(struct sti_comm *comm)
{
    sti_comm_free_halls(comm);
    sti_comm_hub_free(comm->own_hub);
    sti_comm_lend_fini(comm);
    sti_mem_free(comm->takens);
    sti_mem_free(comm->outs);
    sti_mem_free(comm->slots);
    sti_mem_free(comm->cards);
    sti_mem_free(comm->peers);
    sti_mem_free(comm);
}

static int
open_link(struct sti_comm *comm, const struct sti_comm_opts *opts, stk_error *err)
{
    struct sti_link_opts link_opts = {
        .rank = comm->rank,
        .world = comm->world,
        .hub = opts->hub,
        .transports = opts->transports,
        .events = {.context = comm, .message = sti_comm_message, .lost = sti_comm_lost},
    };

    if (comm->method == &sti_method_local && !opts->hub) {
        int rc = sti_comm_hub_new(&comm->own_hub, 1);

        if (rc < 0)
            return sti_error_set(err, rc, "no hub for this rank: %s", sti_error_text(rc));
        link_opts.hub = comm->own_hub;
    }
    return comm->method->open(&comm->link, &link_opts, err);
}

int
sti_comm_open(struct sti_comm **ret_comm, const struct sti_comm_opts *opts, stk_error *err)
{
    stk_error unwanted;
    struct sti_comm *comm;

    if (!err)
        err = &unwanted;
    *err = (stk_error){.rank = -1, .sample = STK_NO_SAMPLE};
    int rc = check_opts(opts, err);
    if (rc < 0)
        return rc;
    comm = sti_mem_new(1, sizeof(*comm));
    if (!comm)
        return sti_error_set(err, -ENOMEM, "no memory for the ranks' connections");
    comm->rank = opts->rank;
    comm->world = opts->world;
    comm->events = opts->events;
    comm->timeout_ns = or_default(opts->timeout_ns, TIMEOUT_NS);
    comm->retry_ns = or_default(opts->retry_ns, RETRY_NS);
    comm->max_requests = (uint32_t)or_default(opts->max_requests, MAX_REQUESTS);
    comm->max_pending = (uint32_t)or_default(opts->max_pending, MAX_PENDING);
    comm->next_due_ns = UINT64_MAX;
    rc = find_method(opts, &comm->method, err);
    if (rc < 0)
        goto err_free;
    rc = take_memory(comm);
    if (rc < 0) {
        (void)sti_error_set(err, rc, "no memory for connections to %u ranks", comm->world);
        goto err_free;
    }
    rc = open_link(comm, opts, err);
    if (rc < 0)
        goto err_free;
    rc = sti_comm_join(comm, opts, err);
    if (rc < 0)
        goto err_link;
    rc = sti_comm_lend_init(comm, opts->transports);
    if (rc < 0) {
        (void)sti_error_set(err, rc, "no memory for what ranks of this machine read of each other");
        goto err_link;
    }
    *ret_comm = comm;
    return 0;

err_link:
    comm->is_closing = true;
    comm->method->close(comm->link, 0);
err_free:
    free_memory(comm);
    return rc;
}

/* ---- end ---- */

/* What lies here may still be read. */
static void
wait_for_takers(struct sti_comm *comm)
{
    uint64_t until_ns = sti_clock_ns() + CLOSE_NS;

    comm->is_leaving = true;
    sti_comm_run_tooks(comm);
    sti_comm_flush(comm, STI_COMM_NO_RANK);
    while (sti_comm_has_lying(comm) && sti_clock_ns() < until_ns) {
        struct pollfd poll_fd = {.fd = comm->method->fd(comm->link), .events = POLLIN};

        if (!comm->method->progress(comm->link) && comm->method->arm(comm->link) == 0)
            (void)poll(&poll_fd, 1, 10); /* a pause; it may be short */
    }
}

void
sti_comm_close(struct sti_comm *comm)
{
    if (!comm)
        return;
    wait_for_takers(comm);
    comm->is_closing = true;
    comm->method->close(comm->link, CLOSE_NS);
    comm->link = NULL;
    sti_comm_end_lying(comm, STI_COMM_NO_RANK, -ECANCELED);
    sti_comm_end_requests(comm, STI_COMM_NO_RANK, -ECANCELED);
    sti_comm_end_rounds(comm, -ECANCELED);
    /* What ends may end more, but nothing new begins. */
    bool is_busy = true;
    while (is_busy) {
        is_busy = sti_comm_run_ended(comm);
        is_busy = sti_comm_run_unsendable(comm) || is_busy;
        is_busy = sti_comm_run_rounds(comm) || is_busy;
    }
    free_memory(comm);
}

void
sti_comm_abort(struct sti_comm *comm, int code, const char *text)
{
    if (comm->aborted != 0 || comm->is_closing)
        return;
    for (uint32_t rank = 0; rank < comm->world; rank++) {
        struct sti_wire wire = {
            .kind = STI_WIRE_ABORT,
            .code = code,
            .small = text,
            .n_small = (uint32_t)strnlen(text, 200),
        };

        if (sti_comm_may_send(comm, rank, sti_clock_ns()) == 0)
            (void)sti_comm_send(comm, rank, &wire); /* as well as it can be told */
    }
    sti_comm_flush(comm, STI_COMM_NO_RANK);
    sti_comm_be_aborted(comm, comm->rank, code < 0 ? code : -ECANCELED);
}

/* ---- waiting ---- */

int
sti_comm_fd(const struct sti_comm *comm)
{
    return comm->method->fd(comm->link);
}

static bool
has_ended(const struct sti_comm *comm)
{
    return comm->ended || comm->unsendable || comm->ended_rounds;
}

int
sti_comm_arm(struct sti_comm *comm)
{
    sti_comm_run_tooks(comm);
    sti_comm_flush(comm, STI_COMM_NO_RANK);
    return has_ended(comm) ? -EBUSY : comm->method->arm(comm->link);
}

static void
check_time(struct sti_comm *comm)
{
    uint64_t now_ns = sti_clock_ns();

    if (now_ns < comm->next_due_ns)
        return;
    comm->next_due_ns = UINT64_MAX;
    sti_comm_check_requests(comm, now_ns);
    sti_comm_check_answers(comm, now_ns);
    sti_comm_check_rounds(comm, now_ns);
}

uint64_t
sti_comm_progress(struct sti_comm *comm)
{
    bool is_busy = true, was_busy = false;

    comm->stats.wakes++;
    for (uint32_t turn = 0; turn < TURNS && is_busy; turn++) {
        is_busy = comm->method->progress(comm->link);
        check_time(comm);
        is_busy = sti_comm_run_ended(comm) || is_busy;
        is_busy = sti_comm_run_unsendable(comm) || is_busy;
        is_busy = sti_comm_run_rounds(comm) || is_busy;
        was_busy = was_busy || is_busy;
        sti_comm_run_tooks(comm);
        sti_comm_flush(comm, STI_COMM_NO_RANK);
    }
    if (was_busy)
        return 0;
    if (comm->next_due_ns == UINT64_MAX)
        return UINT64_MAX;
    uint64_t now_ns = sti_clock_ns();
    return comm->next_due_ns > now_ns ? comm->next_due_ns - now_ns : 0;
}

/* ---- what is known ---- */

uint32_t
sti_comm_rank(const struct sti_comm *comm)
{
    return comm->rank;
}

uint32_t
sti_comm_world(const struct sti_comm *comm)
{
    return comm->world;
}

const char *
sti_comm_method(const struct sti_comm *comm)
{
    return comm->method->name;
}

uint32_t
sti_comm_nodes(const struct sti_comm *comm)
{
    return comm->n_nodes;
}

uint32_t
sti_comm_node_of(const struct sti_comm *comm, uint32_t rank)
{
    return comm->peers[rank].node;
}

int
sti_comm_peer(const struct sti_comm *comm, uint32_t rank)
{
    return comm->peers[rank].code;
}

void
sti_comm_retry(struct sti_comm *comm, uint32_t rank)
{
    comm->peers[rank].retry_at_ns = 0;
}

void
sti_comm_get_stats(const struct sti_comm *comm, struct sti_comm_stats *ret_stats)
{
    *ret_stats = comm->stats;
}
