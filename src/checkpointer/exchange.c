/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request names a run by its number and a piece by its place; the answer is the piece, straight
 * from its owner's memory into the asker's. Who is asked before it has begun that run promises and
 * answers when it has. A piece that does not come is not asked for again: storage has it, too.
 *
 * A message, little-endian: number (u64), place (u32).
 *
 * Threads: agree, run and end are the program's, one at a time; all else is the loop's. What the
 * program waits for is under the lock.
 */
#include "checkpointer/exchange.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"
#include "engine/agree.h"
#include "engine/loop.h"
#include "engine/peers.h"

#define EXCHANGE_VERSION 1
#define N_ASKS 32u
#define MESSAGE_BYTES 12u
#define EARLY_MAX 4096u
#define RETRY_NS UINT64_C(1000000)

/* Who has asked for a run that has not begun here. */
struct early {
    struct sti_comm_incoming *incoming;
    struct early *next;
};

struct ask {
    struct sti_exchange *exchange;
    struct sti_piece *piece; /* NULL: free */
    unsigned char message[MESSAGE_BYTES];
    struct sti_comm_request request;
};

struct sti_exchange {
    struct sti_engine *engine;
    struct sti_peers *peers;
    struct sti_port port;
    struct sti_task task;
    uint32_t rank;
    uint32_t world;
    uint64_t timeout_ns;
    uint64_t agreed; /* the number of the run that comes; the program's */

    /* The loop's. */
    uint64_t number;          /* of the run that was begun last */
    struct sti_piece *pieces; /* NULL: none is under way */
    uint32_t n;
    uint32_t next;   /* the first that may not have been asked for */
    uint32_t n_left; /* of others, that are to come */
    uint32_t n_lent; /* answers on their way */
    uint32_t n_early;
    struct early *early;
    struct ask asks[N_ASKS];

    struct sti_mutex lock;
    struct sti_cond changed;
    bool has_all STI_GUARDED_BY(&lock); /* nothing more will come */
    bool is_idle STI_GUARDED_BY(&lock); /* and nobody reads here */
};

/* ---- giving: the loop -------------------------------------------------------------- */

static void
tell(struct sti_exchange *exchange)
{
    sti_mutex_lock(&exchange->lock);
    exchange->has_all = exchange->n_left == 0;
    exchange->is_idle = !exchange->pieces && exchange->n_lent == 0;
    sti_cond_broadcast(&exchange->changed);
    sti_mutex_unlock(&exchange->lock);
}

static void
on_given(void *context, int code)
{
    struct sti_exchange *exchange = context;

    (void)code; /* who has not got it reads it from storage */
    exchange->n_lent--;
    tell(exchange);
}

static void
refuse(struct sti_exchange *exchange, struct sti_comm_incoming *incoming, int code)
{
    const struct sti_comm_answer answer = {.code = code};

    sti_comm_answer(sti_peers_comm(exchange->peers), incoming, &answer);
}

static void
give(struct sti_exchange *exchange, struct sti_comm_incoming *incoming, uint32_t place)
{
    const struct sti_piece *piece = place < exchange->n ? &exchange->pieces[place] : NULL;

    if (!piece || piece->owner != exchange->rank || !piece->is_here) {
        refuse(exchange, incoming, -ENODATA);
        return;
    }
    const struct sti_comm_answer answer = {.body = piece->memory,
                                           .n_bytes = piece->n_bytes,
                                           .crc = piece->crc,
                                           .has_crc = true,
                                           .done = on_given,
                                           .context = exchange};

    exchange->n_lent++;
    sti_comm_answer(sti_peers_comm(exchange->peers), incoming, &answer);
}

static void
read_message(const struct sti_comm_incoming *incoming, uint64_t *ret_number, uint32_t *ret_place)
{
    memcpy(ret_number, incoming->small, sizeof(*ret_number));
    memcpy(ret_place, (const char *)incoming->small + sizeof(*ret_number), sizeof(*ret_place));
    *ret_number = le64toh(*ret_number);
    *ret_place = le32toh(*ret_place);
}

static void
on_request(void *context, struct sti_comm_incoming *incoming)
{
    struct sti_exchange *exchange = context;
    uint64_t number;
    uint32_t place;

    if (incoming->n_small != MESSAGE_BYTES) {
        refuse(exchange, incoming, -EBADMSG);
        return;
    }
    read_message(incoming, &number, &place);
    if (number == exchange->number && exchange->pieces) {
        give(exchange, incoming, place);
        return;
    }
    struct early *early = number > exchange->number && exchange->n_early < EARLY_MAX
                              ? sti_mem_new(1, sizeof(*early))
                              : NULL;
    if (!early) {
        refuse(exchange, incoming, number > exchange->number ? -EAGAIN : -ESTALE);
        return;
    }
    *early = (struct early){.incoming = incoming, .next = exchange->early};
    exchange->early = early;
    exchange->n_early++;
    sti_comm_promise(sti_peers_comm(exchange->peers), incoming);
}

/* Looks again at what came early. */
static void
serve_early(struct sti_exchange *exchange)
{
    struct early *list = exchange->early;

    exchange->early = NULL;
    exchange->n_early = 0;
    for (struct early *early = list, *next; early; early = next) {
        uint64_t number;
        uint32_t place;

        next = early->next;
        read_message(early->incoming, &number, &place);
        if (number > exchange->number) {
            early->next = exchange->early;
            exchange->early = early;
            exchange->n_early++;
            continue;
        }
        if (number == exchange->number && exchange->pieces)
            give(exchange, early->incoming, place);
        else
            refuse(exchange, early->incoming, -ESTALE);
        sti_mem_free(early);
    }
}

static void
ignore_peer(void *context, uint32_t rank, int code)
{
    (void)context; /* its requests end by themselves */
    (void)rank;
    (void)code;
}

/* ---- getting: the loop ------------------------------------------------------------- */

static void
on_got(struct sti_comm_request *request)
{
    struct ask *ask = request->context;
    struct sti_exchange *exchange = ask->exchange;

    ask->piece->is_here = request->result == 0 && request->code == 0 && request->has_crc &&
                          request->n_bytes == ask->piece->n_bytes;
    ask->piece->crc = request->crc;
    ask->piece = NULL;
    exchange->n_left--;
    if (exchange->n_left == 0)
        tell(exchange);
}

/* Begins to get a piece. Returns 0, -EAGAIN: later, or why it cannot be had. */
static int
ask_for(struct sti_exchange *exchange, struct ask *ask, uint32_t place)
{
    struct sti_piece *piece = &exchange->pieces[place];
    uint64_t number = htole64(exchange->number);
    uint32_t at = htole32(place);

    memcpy(ask->message, &number, sizeof(number));
    memcpy(ask->message + sizeof(number), &at, sizeof(at));
    ask->exchange = exchange;
    ask->request = (struct sti_comm_request){.peer = piece->owner,
                                             .verb = exchange->port.verb,
                                             .small = ask->message,
                                             .n_small = MESSAGE_BYTES,
                                             .into = piece->memory,
                                             .into_bytes = piece->n_bytes,
                                             .wait_ns = exchange->timeout_ns,
                                             .done = on_got,
                                             .context = ask};
    int rc = sti_comm_request(sti_peers_comm(exchange->peers), &ask->request);
    if (rc == 0)
        ask->piece = piece;
    return rc;
}

static struct ask *
free_ask(struct sti_exchange *exchange)
{
    for (uint32_t at = 0; at < N_ASKS; at++)
        if (!exchange->asks[at].piece)
            return &exchange->asks[at];
    return NULL;
}

/* Asks for as much as may be under way; begins behind this rank's own, so that not all ask the
 * same one first. */
static uint64_t
step(void *context)
{
    struct sti_exchange *exchange = context;
    uint64_t wait_ns = UINT64_MAX;

    while (exchange->pieces && exchange->next < exchange->n) {
        struct ask *ask = free_ask(exchange);
        struct sti_piece *piece = &exchange->pieces[exchange->next];

        if (piece->owner == exchange->rank || piece->is_asked) {
            exchange->next++;
            continue;
        }
        if (!ask)
            return UINT64_MAX; /* one that ends wakes the loop */
        int rc = ask_for(exchange, ask, exchange->next);
        if (rc == -EAGAIN) {
            wait_ns = RETRY_NS;
            break;
        }
        piece->is_asked = true;
        if (rc == 0)
            continue;
        exchange->n_left--; /* its owner is lost: storage has it */
        if (exchange->n_left == 0)
            tell(exchange);
    }
    return wait_ns;
}

/* ---- a run: the program ------------------------------------------------------------ */

struct begin {
    struct sti_exchange *exchange;
    struct sti_piece *pieces;
    uint32_t n;
    uint64_t number;
};

static void
begin_run(void *context)
{
    const struct begin *begin = context;
    struct sti_exchange *exchange = begin->exchange;

    exchange->pieces = begin->pieces;
    exchange->n = begin->n;
    exchange->next = 0;
    exchange->n_left = 0;
    for (uint32_t at = 0; at < begin->n; at++)
        exchange->n_left += begin->pieces[at].owner != exchange->rank;
    exchange->number = begin->number;
    tell(exchange);
    serve_early(exchange);
}

void
sti_exchange_run(struct sti_exchange *exchange, struct sti_piece *pieces, uint32_t n)
{
    struct begin begin = {
        .exchange = exchange, .pieces = pieces, .n = n, .number = exchange->agreed};

    for (uint32_t at = 0; at < n; at++)
        pieces[at].is_asked = false;
    sti_loop_call(sti_engine_loop(exchange->engine), begin_run, &begin);
    sti_loop_wake(sti_engine_loop(exchange->engine));
    sti_mutex_lock(&exchange->lock);
    while (!exchange->has_all)
        sti_cond_wait(&exchange->changed, &exchange->lock);
    sti_mutex_unlock(&exchange->lock);
}

static void
end_run(void *context)
{
    struct sti_exchange *exchange = context;

    exchange->pieces = NULL;
    exchange->n = 0;
    tell(exchange);
}

static void
wait_until_idle(struct sti_exchange *exchange)
{
    sti_mutex_lock(&exchange->lock);
    while (!exchange->is_idle)
        sti_cond_wait(&exchange->changed, &exchange->lock);
    sti_mutex_unlock(&exchange->lock);
}

void
sti_exchange_end(struct sti_exchange *exchange)
{
    uint64_t *all = sti_mem_new(exchange->world, sizeof(*all));
    uint64_t mine = 0;

    /* A courtesy: who is late reads from storage what it does not find here any more. */
    if (all)
        (void)sti_peers_gather(exchange->peers, &mine, sizeof(mine), all, NULL);
    sti_mem_free(all);
    sti_loop_call(sti_engine_loop(exchange->engine), end_run, exchange);
    wait_until_idle(exchange);
}

int
sti_exchange_agree(struct sti_exchange *exchange, uint64_t what, int code, stk_error *err)
{
    enum { VERSION, WHAT, ALIKE, CODE = ALIKE, NUMBER, FACTS };
    static const char *const names[ALIKE] = {
        [VERSION] = "version of the exchange",
        [WHAT] = "the sum of step, tensors and boxes in their order"};
    static const struct sti_agreement agreement = {.names = names,
                                                   .things = "the ranks' loads",
                                                   .doing = "load",
                                                   .n_alike = ALIKE,
                                                   .n = FACTS};
    /* The number of the run that comes is agreed on, too: one that a rank has missed leaves no
     * trace. Nobody changes it meanwhile. */
    const uint64_t mine[FACTS] = {[VERSION] = EXCHANGE_VERSION,
                                  [WHAT] = what,
                                  [CODE] = (uint64_t)(int64_t)code,
                                  [NUMBER] = exchange->agreed};
    uint64_t *all = sti_mem_new(exchange->world, sizeof(mine));
    uint64_t highest = 0;

    if (!all)
        return code < 0 ? code : sti_error_set(err, -ENOMEM, "no memory for what ranks say");
    int rc = sti_agree(exchange->peers, &agreement, mine, all, err);
    for (uint32_t rank = 0; rc == 0 && rank < exchange->world; rank++) {
        uint64_t number = all[(size_t)rank * FACTS + NUMBER];

        highest = number > highest ? number : highest;
    }
    sti_mem_free(all);
    if (rc == 0)
        exchange->agreed = highest + 1;
    return rc;
}

/* ---- life -------------------------------------------------------------------------- */

static void
leave(void *context)
{
    struct sti_exchange *exchange = context;

    exchange->number = UINT64_MAX; /* no run comes any more */
    serve_early(exchange);
}

int
sti_exchange_new(struct sti_exchange **ret_exchange, struct sti_engine *engine, uint64_t timeout_ns)
{
    struct sti_exchange *exchange = sti_mem_new(1, sizeof(*exchange));

    if (!exchange)
        return -ENOMEM;
    exchange->engine = engine;
    exchange->peers = sti_engine_peers(engine);
    exchange->rank = sti_comm_rank(sti_peers_comm(exchange->peers));
    exchange->world = sti_comm_world(sti_peers_comm(exchange->peers));
    exchange->timeout_ns = timeout_ns;
    int rc = sti_mutex_init(&exchange->lock, STI_RANK_LEAF);
    if (rc < 0)
        goto err_free;
    rc = sti_cond_init(&exchange->changed);
    if (rc < 0)
        goto err_lock;
    exchange->port =
        (struct sti_port){.context = exchange, .request = on_request, .peer = ignore_peer};
    rc = sti_peers_attach(exchange->peers, &exchange->port);
    if (rc < 0)
        goto err_cond;
    exchange->task = (struct sti_task){.step = step, .context = exchange};
    sti_loop_attach(sti_engine_loop(engine), &exchange->task);
    *ret_exchange = exchange;
    return 0;

err_cond:
    sti_cond_fini(&exchange->changed);
err_lock:
    sti_mutex_fini(&exchange->lock);
err_free:
    sti_mem_free(exchange);
    return rc;
}

void
sti_exchange_free(struct sti_exchange *exchange)
{
    if (!exchange)
        return;
    sti_peers_detach(exchange->peers, &exchange->port, leave);
    sti_loop_detach(sti_engine_loop(exchange->engine), &exchange->task);
    sti_cond_fini(&exchange->changed);
    sti_mutex_fini(&exchange->lock);
    sti_mem_free(exchange);
}
