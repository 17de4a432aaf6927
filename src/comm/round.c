/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allgathers and votes as a rank takes part in them. Its share goes to the root as a
 * request, whose answer is the outcome. A rank that loses the connection asks again until
 * its time is over: a link that was cut for a moment ends no round.
 *
 * A share on the wire, little-endian: id (u64), milliseconds (u32), n_bytes (u32), flags
 * (u64), then the bytes.
 */
#include "comm/hall.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define NS_PER_MS UINT64_C(1000000)
#define SLACK_NS (STI_NS_PER_S / 2) /* for the root's outcome to come before the own time ends */

_Static_assert(STI_COMM_SHARE_MAX + STI_SHARE_HEAD <= STI_COMM_SMALL_MAX, "a share is a request");

void
sti_round_end(struct sti_comm_round *round, int result, uint32_t rank)
{
    round->result = result;
    round->rank = rank;
    round->next = round->comm->ended_rounds;
    round->comm->ended_rounds = round;
}

void
sti_round_read(struct sti_comm_round *round, const unsigned char *outcome)
{
    uint64_t n_bytes = (uint64_t)round->comm->world * round->n_bytes;

    if (round->kind != STI_VERB_ALLGATHER)
        return;
    memcpy(round->all, outcome + 4, n_bytes);
    if (round->present)
        memcpy(round->present, outcome + 4 + n_bytes, round->comm->world);
}

static void
share_of(const struct sti_comm_round *round, struct share *ret_share)
{
    uint64_t ms = round->timeout_ns / NS_PER_MS;

    *ret_share = (struct share){
        .id = round->id,
        .ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX,
        .n_bytes = round->n_bytes,
        .flags = (round->is_for ? STI_SHARE_IS_FOR : 0) | (round->present ? STI_SHARE_MAY_MISS : 0),
        .bytes = round->mine,
    };
}

static void
pause_round(struct sti_comm_round *round, uint64_t now_ns)
{
    struct sti_comm *comm = round->comm;

    round->next = comm->paused_rounds;
    comm->paused_rounds = round;
    sti_comm_due(comm, now_ns + comm->retry_ns);
}

static void
share_done(struct sti_comm_request *request)
{
    struct sti_comm_round *round = request->context;
    struct sti_comm *comm = round->comm;
    uint64_t now_ns = sti_clock_ns();
    uint32_t root = round->root;
    bool is_lost = request->result < 0 && request->result != -ECANCELED && comm->aborted == 0 &&
                   !comm->is_closing;

    /* Not heard of, or a promise would have come: a connection that was begun while the link was
     * down can stay silent for ever, so another one is made. */
    if (request->result == -ETIMEDOUT && !request->is_promised)
        sti_comm_drop(comm, root, -ETIMEDOUT);
    if (is_lost && now_ns < round->due_ns) {
        pause_round(round, now_ns);
        return;
    }
    if (request->result < 0) {
        sti_round_end(round, request->result, root);
    } else if (request->code == 0) {
        if (request->n_bytes != request->into_bytes) {
            sti_round_end(round, -EBADMSG, root);
            return;
        }
        sti_round_read(round, round->bytes + STI_COMM_SMALL_MAX);
        sti_round_end(round, 0, STI_COMM_NO_RANK);
    } else {
        bool is_about = request->n_bytes == 4;

        sti_round_end(round, request->code,
                      is_about ? (uint32_t)sti_wire_get(round->bytes + STI_COMM_SMALL_MAX, 4)
                               : root);
    }
}

/* The root promises an outcome as soon as it has heard of the share. */
static int
ask_root(struct sti_comm *comm, struct sti_comm_round *round, uint64_t now_ns)
{
    uint64_t left_ns = round->due_ns - now_ns;

    round->request = (struct sti_comm_request){
        .peer = round->root,
        .verb = round->kind,
        .small = round->bytes,
        .n_small = STI_SHARE_HEAD + round->n_bytes,
        .into = round->bytes + STI_COMM_SMALL_MAX,
        .into_bytes = sti_hall_outcome_bytes(comm, round->kind, round->n_bytes),
        .timeout_ns = left_ns < comm->timeout_ns ? left_ns : comm->timeout_ns,
        .wait_ns = left_ns,
        .done = share_done,
        .context = round,
        .is_internal = true,
    };
    return sti_comm_ask(comm, &round->request, now_ns);
}

static int
join(struct sti_comm *comm, struct sti_comm_round *round)
{
    uint64_t now_ns = sti_clock_ns();
    struct share share;

    share_of(round, &share);
    round->due_ns = now_ns + round->timeout_ns + SLACK_NS;
    round->bytes = sti_mem_new(
        STI_COMM_SMALL_MAX + sti_hall_outcome_bytes(comm, round->kind, round->n_bytes), 1);
    if (!round->bytes)
        return -ENOMEM;
    sti_wire_put(round->bytes, share.id, 8);
    sti_wire_put(round->bytes + 8, share.ms, 4);
    sti_wire_put(round->bytes + 12, share.n_bytes, 4);
    sti_wire_put(round->bytes + 16, share.flags, 8);
    if (share.n_bytes > 0)
        memcpy(round->bytes + STI_SHARE_HEAD, share.bytes, share.n_bytes);
    if (comm->peers[round->root].code != 0 && now_ns < comm->peers[round->root].retry_at_ns) {
        pause_round(round, now_ns);
        return 0;
    }
    int rc = ask_root(comm, round, now_ns);
    if (rc < 0) {
        sti_mem_free(round->bytes);
        round->bytes = NULL;
    }
    return rc;
}

static int
begin(struct sti_comm *comm, struct sti_comm_round *round, uint32_t kind)
{
    struct share share;

    if (comm->aborted != 0 || comm->is_closing)
        return -ECANCELED;
    if (round->root >= comm->world || !round->done)
        return -EINVAL;
    round->comm = comm;
    round->kind = kind;
    round->bytes = NULL;
    if (round->timeout_ns == 0)
        round->timeout_ns = comm->timeout_ns;
    if (round->root != comm->rank)
        return join(comm, round);
    share_of(round, &share);
    return sti_hall_join(comm, round, &share);
}

int
sti_comm_allgather(struct sti_comm *comm, struct sti_comm_round *round)
{
    if (round->n_bytes > STI_COMM_SHARE_MAX)
        return -EMSGSIZE;
    if (round->n_bytes > 0 && (!round->mine || !round->all))
        return -EINVAL;
    if ((uint64_t)comm->world * (round->n_bytes + 1) + 4 > STI_COMM_BODY_MAX)
        return -EMSGSIZE;
    round->id = comm->n_allgathers;
    round->is_for = true;
    int rc = begin(comm, round, STI_VERB_ALLGATHER);
    if (rc == 0)
        comm->n_allgathers++;
    return rc;
}

int
sti_comm_vote(struct sti_comm *comm, struct sti_comm_round *round)
{
    round->n_bytes = 0;
    round->present = NULL;
    return begin(comm, round, STI_VERB_VOTE);
}

static void
check_paused(struct sti_comm *comm, uint64_t now_ns)
{
    struct sti_comm_round *rounds = comm->paused_rounds;

    comm->paused_rounds = NULL;
    for (struct sti_comm_round *round = rounds, *next; round; round = next) {
        next = round->next;
        int rc = now_ns < round->due_ns ? ask_root(comm, round, now_ns) : -ETIMEDOUT;

        if (rc < 0 && rc != -ETIMEDOUT)
            pause_round(round, now_ns);
        else if (rc < 0)
            sti_round_end(round, rc, round->root);
    }
}

void
sti_comm_check_rounds(struct sti_comm *comm, uint64_t now_ns)
{
    if (comm->paused_rounds)
        check_paused(comm, now_ns);
    sti_hall_check(comm, now_ns);
}

void
sti_comm_end_rounds(struct sti_comm *comm, int code)
{
    for (struct sti_comm_round *round = comm->paused_rounds, *next; round; round = next) {
        next = round->next;
        sti_round_end(round, code, round->root);
    }
    comm->paused_rounds = NULL;
    sti_hall_end(comm, code);
}

bool
sti_comm_run_rounds(struct sti_comm *comm)
{
    struct sti_comm_round *rounds = comm->ended_rounds;

    comm->ended_rounds = NULL;
    for (struct sti_comm_round *round = rounds, *next; round; round = next) {
        next = round->next;
        sti_mem_free(round->bytes);
        round->bytes = NULL;
        round->done(round);
    }
    return rounds != NULL;
}
