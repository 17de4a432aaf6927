/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What others ask of this rank and tell it, and the loss of a peer. An incoming request is
 * one of a fixed number; the answer goes out of the same memory, and its body belongs to
 * its owner again when the link says so, or has given the peer up.
 *
 * The owner's thread alone. What is called back here runs inside of progress.
 */
#include "comm/comm_internal.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"

/* What is shorter is sent: it would cost another message to say that it was taken. */
#define LIES_LEAST_BYTES (UINT64_C(8) << 10)

static void
refuse(struct sti_comm *comm, const struct sti_wire *asked, int code)
{
    struct sti_wire wire = {
        .kind = STI_WIRE_ANSWER, .flags = STI_WIRE_REFUSED, .id = asked->id, .code = code};

    comm->stats.refused++;
    (void)sti_comm_send(comm, asked->from, &wire); /* else the asker's time runs out */
}

static void
give_back(struct taken *taken)
{
    struct sti_comm *comm = taken->comm;

    comm->peers[taken->incoming.from].n_in--;
    taken->generation++;
    taken->next = comm->free_takens;
    comm->free_takens = taken;
}

static void
take(struct sti_comm *comm, const struct sti_wire *wire)
{
    struct peer *peer = &comm->peers[wire->from];
    struct taken *taken = comm->free_takens;
    bool is_round = wire->verb >= STI_COMM_VERBS_MAX;

    if (!is_round && !comm->events.request) {
        refuse(comm, wire, -ENOSYS);
        return;
    }
    /* Twice: an asker asks again when it has its answer, before the link says here that
     * the answer has left. */
    if (!taken || peer->n_in >= 2 * comm->max_requests + STI_COMM_ROUNDS_MAX) {
        refuse(comm, wire, -EAGAIN);
        return;
    }
    comm->free_takens = taken->next;
    peer->n_in++;
    taken->incoming = (struct sti_comm_incoming){
        .from = wire->from,
        .verb = wire->verb,
        .small = taken->head,
        .n_small = wire->n_small,
        .room_bytes = wire->n_bytes,
    };
    if (wire->n_small > 0)
        memcpy(taken->head, wire->small, wire->n_small);
    taken->comm = comm;
    taken->id = wire->id;
    taken->epoch = peer->epoch;
    taken->is_answered = false;
    taken->is_dropped = false;
    taken->may_lie = (wire->flags & STI_WIRE_MAY_LIE) != 0;
    taken->is_lying = false;
    taken->code = 0;
    if (is_round)
        sti_comm_contribution(comm, taken);
    else
        comm->events.request(comm->events.context, &taken->incoming);
}

static void
unlink_taken(struct taken *taken)
{
    if (!taken->link)
        return;
    *taken->link = taken->next;
    if (taken->next)
        taken->next->link = taken->link;
    taken->link = NULL;
}

static void
answer_done(struct sti_link_send *send, int code)
{
    struct taken *taken = (struct taken *)(void *)((char *)send - offsetof(struct taken, send));
    struct sti_comm_answer answer = taken->answer;

    unlink_taken(taken);
    give_back(taken);
    if (answer.done)
        answer.done(answer.context, code);
}

/* Done is called by progress. */
static void
end_soon(struct taken *taken, int code)
{
    struct sti_comm *comm = taken->comm;

    unlink_taken(taken);
    taken->code = code;
    taken->next = comm->unsendable;
    comm->unsendable = taken;
}

static void
send_answer(struct taken *taken)
{
    struct sti_comm *comm = taken->comm;
    const struct sti_comm_answer *answer = &taken->answer;
    uint32_t to = taken->incoming.from;
    bool fits = answer->n_bytes <= taken->incoming.room_bytes;
    const struct sti_wire wire = {
        .kind = STI_WIRE_ANSWER,
        .flags = (answer->has_crc ? STI_WIRE_HAS_CRC : 0) | (fits ? 0 : STI_WIRE_REFUSED),
        .from = comm->rank,
        .to = to,
        .incarnation = comm->incarnation,
        .id = taken->id,
        .n_bytes = fits ? answer->n_bytes : 0,
        .code = fits ? answer->code : -EMSGSIZE,
        .crc = answer->crc,
    };

    taken->send = (struct sti_link_send){
        .peer = to,
        .head = taken->head,
        .n_head = sti_wire_encode(&wire, &comm->key, taken->head),
        .body = answer->body,
        .n_body = wire.n_bytes,
        .done = answer_done,
    };
    sti_comm_flush(comm, to); /* a promise comes first */
    comm->method->send(comm->link, &taken->send);
}

/* ---- answers whose bytes lie here until the asker has copied them ---- */

/* Tells the asker where the bytes lie. False: they have to be sent. */
static bool
tell_where(struct taken *taken)
{
    struct sti_comm *comm = taken->comm;
    const struct sti_comm_answer *answer = &taken->answer;
    unsigned char place[LIES_BYTES];
    uint64_t id = (uint64_t)taken->generation << 32 | (uint32_t)(taken - comm->takens);
    struct sti_wire wire = {
        .kind = STI_WIRE_ANSWER,
        .flags = STI_WIRE_LIES | STI_WIRE_HAS_CRC,
        .id = taken->id,
        .n_bytes = answer->n_bytes,
        .code = answer->code,
        .crc = answer->crc,
        .small = place,
        .n_small = LIES_BYTES,
    };

    /* Without a CRC nobody could tell that they had changed. */
    if (!taken->may_lie || !answer->has_crc || answer->n_bytes < LIES_LEAST_BYTES ||
        answer->n_bytes > taken->incoming.room_bytes)
        return false;
    taken->is_lying = sti_comm_lies(comm, answer->body, answer->n_bytes, id, place) &&
                      sti_comm_send(comm, taken->incoming.from, &wire) == 0;
    return taken->is_lying;
}

static void
take_one(struct sti_comm *comm, uint32_t from, uint64_t id, int code)
{
    struct taken *taken = &comm->takens[(uint32_t)id];

    if ((uint32_t)id >= comm->max_taken || taken->generation != id >> 32 || !taken->is_lying ||
        taken->incoming.from != from)
        return; /* it was given up */
    taken->is_lying = false;
    if (code < 0)
        send_answer(taken);
    else
        end_soon(taken, 0);
}

void
sti_comm_taken(struct sti_comm *comm, const struct sti_wire *wire)
{
    const unsigned char *ids = wire->small;

    for (uint32_t at = 0; at + STI_WIRE_ID_BYTES <= wire->n_small; at += STI_WIRE_ID_BYTES)
        take_one(comm, wire->from, sti_wire_get(ids + at, STI_WIRE_ID_BYTES), wire->code);
}

void
sti_comm_end_lying(struct sti_comm *comm, uint32_t peer, int code)
{
    for (struct taken *taken = comm->answering, *next; taken; taken = next) {
        next = taken->next;
        if (!taken->is_lying || (peer != STI_COMM_NO_RANK && taken->incoming.from != peer))
            continue;
        taken->is_lying = false;
        end_soon(taken, code);
    }
}

bool
sti_comm_has_lying(const struct sti_comm *comm)
{
    const struct taken *taken = comm->answering;

    while (taken && !taken->is_lying)
        taken = taken->next;
    return taken != NULL;
}

void
sti_comm_answer(struct sti_comm *comm, struct sti_comm_incoming *incoming,
                const struct sti_comm_answer *answer)
{
    struct taken *taken = (struct taken *)incoming;
    const struct peer *peer = &comm->peers[incoming->from];

    assert(!taken->is_answered);
    assert(answer->done || answer->n_bytes == 0);
    taken->is_answered = true;
    taken->answer = *answer;
    taken->link = NULL;
    if (taken->epoch != peer->epoch || comm->aborted != 0 || comm->is_closing) {
        end_soon(taken, peer->code != 0 ? peer->code : -ECANCELED);
        return;
    }
    taken->due_ns = sti_clock_ns() + comm->timeout_ns;
    sti_comm_due(comm, taken->due_ns);
    taken->link = &comm->answering;
    taken->next = comm->answering;
    if (taken->next)
        taken->next->link = &taken->next;
    comm->answering = taken;
    comm->stats.answers++;
    if (answer->n_bytes <= incoming->room_bytes)
        comm->stats.bytes_out += answer->n_bytes;
    if (!tell_where(taken))
        send_answer(taken);
}

bool
sti_comm_run_unsendable(struct sti_comm *comm)
{
    struct taken *first = comm->unsendable;

    comm->unsendable = NULL;
    for (struct taken *taken = first, *next; taken; taken = next) {
        next = taken->next;
        answer_done(&taken->send, taken->code);
    }
    return first != NULL;
}

void
sti_comm_promise(struct sti_comm *comm, struct sti_comm_incoming *incoming)
{
    struct taken *taken = (struct taken *)incoming;
    struct sti_wire wire = {.kind = STI_WIRE_PROMISE, .id = taken->id};

    if (taken->epoch == comm->peers[incoming->from].epoch && comm->aborted == 0)
        (void)sti_comm_send(comm, incoming->from, &wire); /* else the asker's time runs out */
}

/* A peer that does not take its answer holds the memory of it: after a time it is given
 * up, which gives the memory back. */
void
sti_comm_check_answers(struct sti_comm *comm, uint64_t now_ns)
{
    for (struct taken *taken = comm->answering, *next; taken; taken = next) {
        next = taken->next;
        if (taken->due_ns > now_ns) {
            sti_comm_due(comm, taken->due_ns);
        } else if (!taken->is_dropped) {
            taken->is_dropped = true;
            comm->stats.timeouts++;
            sti_comm_drop(comm, taken->incoming.from, -ETIMEDOUT);
            next = comm->answering; /* that ends those which lie here */
        }
    }
}

void
sti_comm_lost(void *context, uint32_t rank, int code)
{
    struct sti_comm *comm = context;
    struct peer *peer = &comm->peers[rank];
    bool is_news = peer->code == 0;

    if (comm->is_closing)
        return;
    peer->code = code;
    peer->epoch++;
    peer->retry_at_ns = sti_clock_ns() + comm->retry_ns;
    comm->stats.lost++;
    sti_comm_end_requests(comm, rank, code);
    sti_comm_end_lying(comm, rank, code);
    sti_comm_end_views(comm, rank, NULL);
    if (is_news && comm->events.peer)
        comm->events.peer(comm->events.context, rank, code);
}

void
sti_comm_drop(struct sti_comm *comm, uint32_t rank, int code)
{
    comm->method->drop(comm->link, rank);
    sti_comm_lost(comm, rank, code);
}

void
sti_comm_be_aborted(struct sti_comm *comm, uint32_t from, int code)
{
    (void)from;
    comm->aborted = code;
    sti_comm_end_requests(comm, STI_COMM_NO_RANK, -ECANCELED);
    sti_comm_end_lying(comm, STI_COMM_NO_RANK, -ECANCELED);
    sti_comm_end_rounds(comm, -ECANCELED);
}

static void
hear_abort(struct sti_comm *comm, const struct sti_wire *wire)
{
    char text[STI_COMM_SMALL_MAX + 1];

    memcpy(text, wire->small, wire->n_small);
    text[wire->n_small] = '\0';
    sti_comm_be_aborted(comm, wire->from, wire->code < 0 ? wire->code : -ECANCELED);
    if (comm->events.abort)
        comm->events.abort(comm->events.context, wire->from, comm->aborted, text);
}

/* Whether a head is of a rank of this job, of this run of it, and meant for this rank. */
static bool
is_of_peer(const struct sti_comm *comm, const struct sti_wire *wire)
{
    return wire->to == comm->rank && wire->from < comm->world && wire->from != comm->rank &&
           wire->incarnation == comm->peers[wire->from].incarnation;
}

static void
hear_one(struct sti_comm *comm, const void *head, size_t n_head, struct sti_link_body *body)
{
    struct sti_wire wire;

    if (sti_wire_decode(&wire, &comm->key, head, n_head) < 0 || !is_of_peer(comm, &wire)) {
        comm->stats.refused++;
        return;
    }
    if (comm->is_closing || comm->aborted != 0 || (comm->is_leaving && wire.kind != STI_WIRE_TOOK))
        return;
    if (comm->peers[wire.from].code != 0) {
        comm->peers[wire.from].code = 0;
        if (comm->events.peer)
            comm->events.peer(comm->events.context, wire.from, 0);
    }
    switch (wire.kind) {
    case STI_WIRE_REQUEST:
        take(comm, &wire);
        break;
    case STI_WIRE_PROMISE:
        sti_comm_promised(comm, &wire);
        break;
    case STI_WIRE_ANSWER:
        sti_comm_answered(comm, &wire, body);
        break;
    case STI_WIRE_NOTE:
        if (comm->events.note)
            comm->events.note(comm->events.context, wire.from, wire.verb, wire.small, wire.n_small);
        break;
    case STI_WIRE_ABORT:
        hear_abort(comm, &wire);
        break;
    case STI_WIRE_TOOK:
        sti_comm_taken(comm, &wire);
        break;
    case STI_WIRE_GONE:
        if (wire.n_small == LIES_TOKEN_BYTES)
            sti_comm_end_views(comm, wire.from, wire.small);
        break;
    case STI_WIRE_KINDS:
        break; /* decoding lets none through */
    }
}

void
sti_comm_message(void *context, const void *head, size_t n_head, struct sti_link_body *body)
{
    struct sti_comm *comm = context;
    const unsigned char *from = head;
    size_t n_first = sti_wire_first(head, n_head);

    /* One that has a body is alone. */
    while (n_first > 0 && n_first < n_head && body->n_bytes == 0) {
        hear_one(comm, from, n_first, body);
        from += n_first;
        n_head -= n_first;
        n_first = sti_wire_first(from, n_head);
    }
    hear_one(comm, from, n_head, body);
}
