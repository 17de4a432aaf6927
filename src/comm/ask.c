/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this rank asks of others and tells them. A request has a slot from the call until
 * its end is decided; the slot's place and generation are its id, so an answer that comes
 * too late finds nobody. Only while an answer's bytes are coming in is the end put off:
 * they are written into the caller's memory.
 *
 * The owner's thread alone.
 */
#include "comm/comm_internal.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"

#define SUM_MOST_BYTES (UINT64_C(128) << 10) /* others do it for longer ones, who have threads */

enum { IDLE, ASKED, PULLING, ENDED };

int
sti_comm_may_send(const struct sti_comm *comm, uint32_t peer, uint64_t now_ns)
{
    if (comm->aborted != 0 || comm->is_closing)
        return -ECANCELED;
    if (peer >= comm->world || peer == comm->rank)
        return -EINVAL;
    if (comm->peers[peer].code != 0 && now_ns < comm->peers[peer].retry_at_ns)
        return comm->peers[peer].code;
    return 0;
}

static void
out_done(struct sti_link_send *send, int code)
{
    struct out *out = (struct out *)(void *)((char *)send - offsetof(struct out, send));
    struct sti_comm *comm = out->comm;

    (void)code; /* a request that did not get out ends by its time or its peer's loss */
    comm->peers[send->peer].n_notes -= out->n_notes;
    out->next = comm->free_outs;
    comm->free_outs = out;
}

/* A message costs a system call, and often a wake-up at the peer, however short it is. */
static struct out *
begin_filling(struct sti_comm *comm, uint32_t peer)
{
    struct out *out = comm->free_outs;

    if (!out)
        return NULL;
    comm->free_outs = out->next;
    out->send = (struct sti_link_send){.peer = peer, .head = out->head, .done = out_done};
    out->n_notes = 0;
    out->next = NULL;
    *comm->filling_end = out;
    comm->filling_end = &out->next;
    comm->peers[peer].filling = out;
    return out;
}

void
sti_comm_flush(struct sti_comm *comm, uint32_t peer)
{
    struct out **at = &comm->filling;

    while (*at) {
        struct out *out = *at;

        if (peer != STI_COMM_NO_RANK && out->send.peer != peer) {
            at = &out->next;
            continue;
        }
        *at = out->next;
        if (!*at)
            comm->filling_end = at;
        comm->peers[out->send.peer].filling = NULL;
        comm->method->send(comm->link, &out->send);
    }
}

int
sti_comm_send(struct sti_comm *comm, uint32_t peer, struct sti_wire *wire)
{
    struct out *out = comm->peers[peer].filling;
    uint32_t n_bytes = STI_WIRE_FIXED + wire->n_small + STI_WIRE_TAG;

    if (out && out->send.n_head + n_bytes > STI_HEAD_MAX) {
        sti_comm_flush(comm, peer);
        out = NULL;
    }
    if (!out)
        out = begin_filling(comm, peer);
    if (!out)
        return -EAGAIN;
    wire->from = comm->rank;
    wire->to = peer;
    wire->incarnation = comm->incarnation;
    if (wire->kind == STI_WIRE_NOTE) {
        out->n_notes++;
        comm->peers[peer].n_notes++;
    }
    out->send.n_head += sti_wire_encode(wire, &comm->key, out->head + out->send.n_head);
    return 0;
}

/* Gives the slot back; done is called by progress. */
static void
end(struct sti_comm *comm, struct slot *slot, int result)
{
    struct sti_comm_request *request = slot->request;

    slot->request = NULL;
    slot->generation++;
    slot->next_free = comm->free_slot;
    comm->free_slot = (uint32_t)(slot - comm->slots);
    if (!request->is_internal)
        comm->peers[request->peer].n_out--;
    request->state = ENDED;
    request->result = result;
    request->next = NULL;
    *comm->ended_end = request;
    comm->ended_end = &request->next;
}

static void
pull_done(struct sti_link_pull *pull, int code)
{
    struct slot *slot = (struct slot *)(void *)((char *)pull - offsetof(struct slot, pull));

    end(slot->comm, slot, slot->why != 0 ? slot->why : code);
}

static int
check_request(const struct sti_comm_request *request)
{
    if (request->n_small > STI_COMM_SMALL_MAX || request->into_bytes > STI_COMM_BODY_MAX)
        return -EMSGSIZE;
    if (!request->done || (request->n_small > 0 && !request->small))
        return -EINVAL;
    if (request->into_bytes > 0 && !request->into)
        return -EINVAL;
    return 0;
}

static bool
may_lie(const struct sti_comm *comm, const struct sti_comm_request *request)
{
    const struct peer *peer = &comm->peers[request->peer];

    return request->may_lie && comm->lends && !peer->is_far &&
           peer->node == comm->peers[comm->rank].node;
}

int
sti_comm_ask(struct sti_comm *comm, struct sti_comm_request *request, uint64_t now_ns)
{
    int rc = check_request(request);

    if (rc == 0)
        rc = sti_comm_may_send(comm, request->peer, now_ns);
    if (rc < 0)
        return rc;
    if (comm->free_slot == NO_SLOT)
        return -EAGAIN;

    struct slot *slot = &comm->slots[comm->free_slot];
    struct sti_wire wire = {
        .kind = STI_WIRE_REQUEST,
        .flags = may_lie(comm, request) ? STI_WIRE_MAY_LIE : 0,
        .id = (uint64_t)slot->generation << 32 | comm->free_slot,
        .n_bytes = request->into_bytes,
        .verb = request->verb,
        .small = request->small,
        .n_small = request->n_small,
    };
    rc = sti_comm_send(comm, request->peer, &wire);
    if (rc < 0)
        return rc;
    comm->free_slot = slot->next_free;
    slot->comm = comm;
    slot->request = request;
    slot->pull.done = pull_done;
    slot->why = 0;
    request->id = wire.id;
    request->state = ASKED;
    request->result = 0;
    request->code = 0;
    request->n_bytes = 0;
    request->crc = 0;
    request->has_crc = false;
    request->is_summed = false;
    request->is_promised = false;
    request->lies = NULL;
    if (request->timeout_ns == 0)
        request->timeout_ns = comm->timeout_ns;
    request->due_ns = now_ns + request->timeout_ns;
    sti_comm_due(comm, request->due_ns);
    if (!request->is_internal)
        comm->peers[request->peer].n_out++;
    comm->stats.requests++;
    return 0;
}

int
sti_comm_request(struct sti_comm *comm, struct sti_comm_request *request)
{
    if (request->verb >= STI_COMM_VERBS_MAX || request->peer >= comm->world)
        return -EINVAL;
    if (comm->peers[request->peer].n_out >= comm->max_requests)
        return -EAGAIN;
    request->is_internal = false;
    return sti_comm_ask(comm, request, sti_clock_ns());
}

static struct slot *
slot_of(struct sti_comm *comm, uint64_t id)
{
    uint32_t place = (uint32_t)id;

    if (place >= comm->max_pending)
        return NULL;
    struct slot *slot = &comm->slots[place];
    return slot->request && slot->generation == id >> 32 ? slot : NULL;
}

void
sti_comm_cancel(struct sti_comm *comm, struct sti_comm_request *request)
{
    struct slot *slot = slot_of(comm, request->id);

    if (!slot || slot->request != request)
        return; /* it has ended, and done is called or about to be */
    if (request->state == PULLING)
        slot->why = -ECANCELED;
    else
        end(comm, slot, -ECANCELED);
}

/* The request that a message is about, where it is of the rank that was asked. */
static struct slot *
asked(struct sti_comm *comm, const struct sti_wire *wire)
{
    struct slot *slot = slot_of(comm, wire->id);

    if (!slot || slot->request->peer != wire->from || slot->request->state != ASKED)
        return NULL;
    return slot;
}

void
sti_comm_promised(struct sti_comm *comm, const struct sti_wire *wire)
{
    struct slot *slot = asked(comm, wire);

    if (!slot || slot->request->is_promised)
        return; /* one promise, or a peer could hold us for ever */
    struct sti_comm_request *request = slot->request;
    request->is_promised = true;
    request->due_ns =
        sti_clock_ns() + (request->wait_ns > 0 ? request->wait_ns : request->timeout_ns);
    sti_comm_due(comm, request->due_ns);
}

/* An answer whose bytes lie at the peer: they are the program's to copy. Where they cannot be
 * read from here, the peer is asked to send them and the request goes on; others do not name
 * their bytes from then on. */
static void
answered_lying(struct sti_comm *comm, struct slot *slot, const struct sti_wire *wire)
{
    struct sti_comm_request *request = slot ? slot->request : NULL;
    struct lies lies;

    if (sti_comm_read_lies(&lies, wire) < 0) {
        if (slot)
            end(comm, slot, -EBADMSG);
        return;
    }
    if (!slot || !request->may_lie || wire->n_bytes > request->into_bytes) {
        sti_comm_tell_took(comm, wire->from, lies.id);
        if (slot)
            end(comm, slot, -EMSGSIZE);
        return;
    }
    request->n_bytes = wire->n_bytes;
    int rc = sti_comm_view(comm, request, &lies);
    if (rc < 0) {
        unsigned char id[STI_WIRE_ID_BYTES];
        struct sti_wire unread = {
            .kind = STI_WIRE_TOOK, .code = rc, .small = id, .n_small = sizeof(id)};

        sti_wire_put(id, lies.id, sizeof(id));
        comm->stats.unread++;
        comm->peers[wire->from].is_far = true;
        (void)sti_comm_send(comm, wire->from, &unread); /* else both run out of time */
        return;
    }
    request->code = wire->code;
    request->has_crc = (wire->flags & STI_WIRE_HAS_CRC) != 0;
    request->crc = wire->crc;
    comm->stats.bytes_in += wire->n_bytes;
    comm->stats.bytes_lay += wire->n_bytes;
    end(comm, slot, 0);
}

/* A body that has come with its head. */
static void
take_body(struct sti_comm_request *request, const struct sti_link_body *body)
{
    request->is_summed = request->has_crc && body->n_bytes <= SUM_MOST_BYTES;
    if (request->is_summed)
        request->came_crc = sti_crc32c_copy(request->into, body->bytes, body->n_bytes);
    else
        memcpy(request->into, body->bytes, body->n_bytes);
}

void
sti_comm_answered(struct sti_comm *comm, const struct sti_wire *wire, struct sti_link_body *body)
{
    struct slot *slot = asked(comm, wire);

    if (wire->flags & STI_WIRE_LIES) {
        answered_lying(comm, slot, wire);
        return;
    }
    if (!slot)
        return; /* too late: its request has ended */
    struct sti_comm_request *request = slot->request;
    if (wire->flags & STI_WIRE_REFUSED || body->n_bytes != wire->n_bytes) {
        end(comm, slot, wire->code < 0 ? wire->code : -EBADMSG);
        return;
    }
    if (body->n_bytes > request->into_bytes) {
        end(comm, slot, -EMSGSIZE);
        return;
    }
    request->code = wire->code;
    request->n_bytes = body->n_bytes;
    request->has_crc = (wire->flags & STI_WIRE_HAS_CRC) != 0;
    request->crc = wire->crc;
    if (body->n_bytes == 0) {
        end(comm, slot, 0);
        return;
    }
    comm->stats.bytes_in += body->n_bytes;
    if (body->bytes) {
        take_body(request, body);
        end(comm, slot, 0);
        return;
    }
    request->state = PULLING;
    int rc = comm->method->pull(comm->link, body, request->into, &slot->pull);
    if (rc != 0)
        end(comm, slot, rc < 0 ? rc : 0);
}

void
sti_comm_end_requests(struct sti_comm *comm, uint32_t peer, int code)
{
    for (uint32_t place = 0; place < comm->max_pending; place++) {
        struct slot *slot = &comm->slots[place];

        if (slot->request && slot->request->state == ASKED &&
            (peer == STI_COMM_NO_RANK || slot->request->peer == peer))
            end(comm, slot, code);
    }
}

void
sti_comm_check_requests(struct sti_comm *comm, uint64_t now_ns)
{
    for (uint32_t place = 0; place < comm->max_pending; place++) {
        struct slot *slot = &comm->slots[place];
        struct sti_comm_request *request = slot->request;

        if (!request || request->due_ns > now_ns) {
            if (request)
                sti_comm_due(comm, request->due_ns);
            continue;
        }
        comm->stats.timeouts++;
        if (request->state == ASKED) {
            end(comm, slot, -ETIMEDOUT);
            continue;
        }
        /* Its bytes are being written into the caller's memory, and only the end of the
         * connection stops that. */
        request->due_ns = UINT64_MAX;
        if (slot->why == 0)
            slot->why = -ETIMEDOUT;
        sti_comm_drop(comm, request->peer, -ETIMEDOUT);
    }
}

bool
sti_comm_run_ended(struct sti_comm *comm)
{
    struct sti_comm_request *first = comm->ended;

    comm->ended = NULL;
    comm->ended_end = &comm->ended;
    for (struct sti_comm_request *request = first, *next; request; request = next) {
        next = request->next;
        request->state = IDLE;
        request->done(request);
    }
    return first != NULL;
}

int
sti_comm_note(struct sti_comm *comm, uint32_t peer, uint32_t verb, const void *bytes,
              uint32_t n_bytes)
{
    struct sti_wire wire = {
        .kind = STI_WIRE_NOTE, .verb = verb, .small = bytes, .n_small = n_bytes};
    int rc = sti_comm_may_send(comm, peer, sti_clock_ns());

    if (rc < 0)
        return rc;
    if (verb >= STI_COMM_VERBS_MAX || (n_bytes > 0 && !bytes))
        return -EINVAL;
    if (n_bytes > STI_COMM_SMALL_MAX)
        return -EMSGSIZE;
    if (comm->peers[peer].n_notes >= comm->max_requests)
        return -EAGAIN;
    return sti_comm_send(comm, peer, &wire);
}
