/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allgathers and votes. A rank's share goes to the root as a request, whose answer is the
 * outcome; the root keeps the shares of a round in a hall and decides once: when all are
 * there, when a vote has somebody against it, or at the time of the one who came first. Who
 * comes later is told what was decided. A rank that loses the connection asks again until its
 * time is over; the root takes the newer request in place of the older one.
 *
 * A share on the wire, little-endian: id (u64), milliseconds (u32), n_bytes (u32), flags
 * (u64), then the bytes. An outcome: rank (u32), and where an allgather is decided for
 * everyone's bytes, then a byte for each rank that says whether it was there.
 */
#include "comm/comm_internal.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define SHARE_HEAD 24u
#define NS_PER_MS UINT64_C(1000000)
#define SLACK_NS (STI_NS_PER_S / 2) /* for the root's outcome to come before the own time ends */

enum { IS_FOR = 1, MAY_MISS = 2 };

struct share {
    uint64_t id;
    uint32_t ms;
    uint32_t n_bytes;
    uint64_t flags;
    const unsigned char *bytes;
};

struct hall {
    uint32_t kind;
    uint32_t n_bytes;
    uint64_t id;
    uint64_t flags;
    uint64_t due_ns;
    uint32_t n_here;
    uint32_t n_out; /* outcomes on their way */
    bool is_decided;
    int verdict;
    uint32_t about;
    struct sti_comm *comm;
    struct sti_comm_round *own;
    struct taken **who; /* who waits for the outcome */
    uint8_t *is_here;
    unsigned char *outcome; /* 4 + world * n_bytes + world */
    struct hall *next;
};

_Static_assert(STI_COMM_SHARE_MAX + SHARE_HEAD <= STI_COMM_SMALL_MAX, "a share is a request");

static uint64_t
outcome_bytes(const struct sti_comm *comm, uint32_t kind, uint32_t n_bytes)
{
    return kind == STI_VERB_VOTE ? 4 : 4 + (uint64_t)comm->world * n_bytes + comm->world;
}

static void
free_hall(struct hall *hall)
{
    sti_mem_free(hall->who);
    sti_mem_free(hall->is_here);
    sti_mem_free(hall->outcome);
    sti_mem_free(hall);
}

void
sti_comm_free_halls(struct sti_comm *comm)
{
    for (struct hall *hall = comm->halls, *next; hall; hall = next) {
        next = hall->next;
        free_hall(hall);
    }
    comm->halls = NULL;
}

/* Makes room: the oldest that was decided and told is kept for those who ask again only.
 * Returns whether there was one. */
static bool
forget_oldest(struct sti_comm *comm)
{
    struct hall **oldest = NULL;

    for (struct hall **at = &comm->halls; *at; at = &(*at)->next) {
        if ((*at)->is_decided && (*at)->n_out == 0)
            oldest = at;
    }
    if (!oldest)
        return false;
    struct hall *hall = *oldest;
    *oldest = hall->next;
    comm->n_halls--;
    free_hall(hall);
    return true;
}

static struct hall *
new_hall(struct sti_comm *comm, uint32_t kind, const struct share *share)
{
    struct hall *hall;

    if (comm->n_halls >= STI_COMM_ROUNDS_MAX && !forget_oldest(comm))
        return NULL;
    hall = sti_mem_new(1, sizeof(*hall));
    if (!hall)
        return NULL;
    hall->who = sti_mem_new(comm->world, sizeof(struct taken *));
    hall->is_here = sti_mem_new(comm->world, 1);
    hall->outcome = sti_mem_new(outcome_bytes(comm, kind, share->n_bytes), 1);
    if (!hall->who || !hall->is_here || !hall->outcome) {
        free_hall(hall);
        return NULL;
    }
    hall->comm = comm;
    hall->kind = kind;
    hall->id = share->id;
    hall->n_bytes = share->n_bytes;
    hall->flags = share->flags & MAY_MISS;
    hall->due_ns = sti_clock_ns() + share->ms * NS_PER_MS;
    sti_comm_due(comm, hall->due_ns);
    hall->next = comm->halls;
    comm->halls = hall;
    comm->n_halls++;
    return hall;
}

static struct hall *
find_hall(struct sti_comm *comm, uint32_t kind, const struct share *share)
{
    struct hall *hall = comm->halls;

    while (hall && (hall->kind != kind || hall->id != share->id))
        hall = hall->next;
    return hall ? hall : new_hall(comm, kind, share);
}

/* ---- outcomes ---- */

static void
end_round(struct sti_comm_round *round, int result, uint32_t rank)
{
    round->result = result;
    round->rank = rank;
    round->next = round->comm->ended_rounds;
    round->comm->ended_rounds = round;
}

/* Copies what was decided to where the caller wants it. */
static void
read_outcome(struct sti_comm_round *round, const unsigned char *outcome)
{
    uint64_t n_bytes = (uint64_t)round->comm->world * round->n_bytes;

    if (round->kind != STI_VERB_ALLGATHER)
        return;
    memcpy(round->all, outcome + 4, n_bytes);
    if (round->present)
        memcpy(round->present, outcome + 4 + n_bytes, round->comm->world);
}

static void
told(void *context, int code)
{
    struct hall *hall = context;

    (void)code; /* who did not hear it asks again */
    hall->n_out--;
}

static void
tell(struct hall *hall, struct taken *taken)
{
    const struct sti_comm_answer answer = {
        .code = hall->verdict,
        .body = hall->outcome,
        .n_bytes = hall->verdict == 0 ? outcome_bytes(hall->comm, hall->kind, hall->n_bytes) : 4,
        .done = told,
        .context = hall,
    };

    hall->n_out++;
    sti_comm_answer(hall->comm, &taken->incoming, &answer);
}

static void
decide(struct hall *hall, int verdict, uint32_t about)
{
    struct sti_comm *comm = hall->comm;

    hall->is_decided = true;
    hall->verdict = verdict;
    hall->about = about;
    sti_wire_put(hall->outcome, about, 4);
    if (hall->kind == STI_VERB_ALLGATHER)
        memcpy(hall->outcome + 4 + (uint64_t)comm->world * hall->n_bytes, hall->is_here,
               comm->world);
    for (uint32_t rank = 0; rank < comm->world; rank++) {
        if (hall->who[rank])
            tell(hall, hall->who[rank]);
        hall->who[rank] = NULL;
    }
    if (hall->own) {
        if (verdict == 0)
            read_outcome(hall->own, hall->outcome);
        end_round(hall->own, verdict, about);
        hall->own = NULL;
    }
    /* Those who come later are told, too, for as long again. */
    hall->due_ns = sti_clock_ns() + comm->timeout_ns;
    sti_comm_due(comm, hall->due_ns);
}

static uint32_t
first_missing(const struct hall *hall)
{
    uint32_t rank = 0;

    while (rank < hall->comm->world && hall->is_here[rank])
        rank++;
    return rank < hall->comm->world ? rank : STI_COMM_NO_RANK;
}

/* Counts a share in. */
static void
count(struct hall *hall, uint32_t from, const struct share *share)
{
    if (!hall->is_here[from]) {
        hall->is_here[from] = 1;
        hall->n_here++;
    }
    if (hall->is_decided)
        return;
    if (hall->kind == STI_VERB_ALLGATHER && share->n_bytes > 0)
        memcpy(hall->outcome + 4 + (uint64_t)from * hall->n_bytes, share->bytes, share->n_bytes);
    if (hall->kind == STI_VERB_VOTE && !(share->flags & IS_FOR))
        decide(hall, -EPERM, from);
    else if (hall->n_here == hall->comm->world)
        decide(hall, 0, STI_COMM_NO_RANK);
}

static bool
agrees(const struct hall *hall, const struct share *share)
{
    return hall->n_bytes == share->n_bytes && hall->flags == (share->flags & MAY_MISS);
}

static bool
read_share(const struct taken *taken, struct share *ret_share)
{
    const unsigned char *from = taken->incoming.small;

    if (taken->incoming.n_small < SHARE_HEAD)
        return false;
    *ret_share = (struct share){
        .id = sti_wire_get(from, 8),
        .ms = (uint32_t)sti_wire_get(from + 8, 4),
        .n_bytes = (uint32_t)sti_wire_get(from + 12, 4),
        .flags = sti_wire_get(from + 16, 8),
        .bytes = from + SHARE_HEAD,
    };
    return taken->incoming.n_small - SHARE_HEAD == ret_share->n_bytes;
}

void
sti_comm_contribution(struct sti_comm *comm, struct taken *taken)
{
    uint32_t from = taken->incoming.from;
    struct share share;
    struct hall *hall = NULL;
    bool is_good = read_share(taken, &share) && taken->incoming.verb <= STI_VERB_VOTE;

    if (is_good)
        hall = find_hall(comm, taken->incoming.verb, &share);
    if (!hall || !agrees(hall, &share)) {
        const struct sti_comm_answer answer = {.code = hall || !is_good ? STK_E_MISMATCH : -EAGAIN};

        sti_comm_answer(comm, &taken->incoming, &answer);
        return;
    }
    if (hall->is_decided) {
        hall->is_here[from] = 1;
        tell(hall, taken);
        return;
    }
    if (hall->who[from]) {
        const struct sti_comm_answer answer = {.code = -ESTALE};

        sti_comm_answer(comm, &hall->who[from]->incoming, &answer);
    }
    hall->who[from] = taken;
    count(hall, from, &share);
}

/* ---- of this rank ---- */

static void
share_of(const struct sti_comm_round *round, struct share *ret_share)
{
    uint64_t ms = round->timeout_ns / NS_PER_MS;

    *ret_share = (struct share){
        .id = round->id,
        .ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX,
        .n_bytes = round->n_bytes,
        .flags = (round->is_for ? IS_FOR : 0) | (round->present ? MAY_MISS : 0),
        .bytes = round->mine,
    };
}

static int
join_as_root(struct sti_comm *comm, struct sti_comm_round *round)
{
    struct share share;

    share_of(round, &share);
    struct hall *hall = find_hall(comm, round->kind, &share);

    if (!hall)
        return comm->n_halls >= STI_COMM_ROUNDS_MAX ? -EAGAIN : -ENOMEM;
    if (!agrees(hall, &share))
        return STK_E_MISMATCH;
    if (hall->is_decided) { /* it was late, or somebody was against it */
        if (hall->verdict == 0)
            read_outcome(round, hall->outcome);
        end_round(round, hall->verdict, hall->about);
        return 0;
    }
    hall->own = round;
    count(hall, comm->rank, &share);
    return 0;
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
    bool is_lost = request->result < 0 && request->result != -ECANCELED &&
                   request->result != -ETIMEDOUT && comm->aborted == 0 && !comm->is_closing;

    if (is_lost && now_ns < round->due_ns) {
        pause_round(round, now_ns);
        return;
    }
    if (request->result < 0) {
        end_round(round, request->result, root);
    } else if (request->code == 0) {
        if (request->n_bytes != request->into_bytes) {
            end_round(round, -EBADMSG, root);
            return;
        }
        read_outcome(round, round->bytes + STI_COMM_SMALL_MAX);
        end_round(round, 0, STI_COMM_NO_RANK);
    } else {
        bool is_about = request->n_bytes == 4;

        end_round(round, request->code,
                  is_about ? (uint32_t)sti_wire_get(round->bytes + STI_COMM_SMALL_MAX, 4) : root);
    }
}

static int
ask_root(struct sti_comm *comm, struct sti_comm_round *round, uint64_t now_ns)
{
    round->request = (struct sti_comm_request){
        .peer = round->root,
        .verb = round->kind,
        .small = round->bytes,
        .n_small = SHARE_HEAD + round->n_bytes,
        .into = round->bytes + STI_COMM_SMALL_MAX,
        .into_bytes = outcome_bytes(comm, round->kind, round->n_bytes),
        .timeout_ns = round->due_ns - now_ns,
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
    round->bytes =
        sti_mem_new(STI_COMM_SMALL_MAX + outcome_bytes(comm, round->kind, round->n_bytes), 1);
    if (!round->bytes)
        return -ENOMEM;
    sti_wire_put(round->bytes, share.id, 8);
    sti_wire_put(round->bytes + 8, share.ms, 4);
    sti_wire_put(round->bytes + 12, share.n_bytes, 4);
    sti_wire_put(round->bytes + 16, share.flags, 8);
    if (share.n_bytes > 0)
        memcpy(round->bytes + SHARE_HEAD, share.bytes, share.n_bytes);
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
    if (comm->aborted != 0 || comm->is_closing)
        return -ECANCELED;
    if (round->root >= comm->world || !round->done)
        return -EINVAL;
    round->comm = comm;
    round->kind = kind;
    round->bytes = NULL;
    if (round->timeout_ns == 0)
        round->timeout_ns = comm->timeout_ns;
    return round->root == comm->rank ? join_as_root(comm, round) : join(comm, round);
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

/* ---- time and end ---- */

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
            end_round(round, rc, round->root);
    }
}

static void
check_hall(struct hall *hall, uint64_t now_ns)
{
    if (hall->is_decided || hall->due_ns > now_ns)
        return;
    /* An allgather may go on without some, but not without the root. */
    if (hall->flags & MAY_MISS && hall->own)
        decide(hall, 0, STI_COMM_NO_RANK);
    else
        decide(hall, -ETIMEDOUT, first_missing(hall));
}

void
sti_comm_check_rounds(struct sti_comm *comm, uint64_t now_ns)
{
    if (comm->paused_rounds)
        check_paused(comm, now_ns);
    for (struct hall **at = &comm->halls; *at;) {
        struct hall *hall = *at;

        check_hall(hall, now_ns);
        /* Where all have come, somebody may yet ask again: until the time is over. */
        if (hall->is_decided && hall->n_out == 0 && hall->due_ns <= now_ns) {
            *at = hall->next;
            comm->n_halls--;
            free_hall(hall);
            continue;
        }
        sti_comm_due(comm, hall->due_ns);
        at = &hall->next;
    }
}

void
sti_comm_end_rounds(struct sti_comm *comm, int code)
{
    for (struct sti_comm_round *round = comm->paused_rounds, *next; round; round = next) {
        next = round->next;
        end_round(round, code, round->root);
    }
    comm->paused_rounds = NULL;
    for (struct hall *hall = comm->halls; hall; hall = hall->next) {
        if (!hall->is_decided)
            decide(hall, code, comm->rank);
    }
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
