/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root's side of rounds. It decides once: when all are there, when a vote has somebody
 * against it, or at the time of the one who came first. What was decided is kept for
 * comm->timeout_ns, because a rank that lost the connection asks again; its newer request
 * then takes the place of the older one.
 *
 * An outcome on the wire, little-endian: rank (u32), and where an allgather is decided for
 * everyone's bytes, then a byte for each rank that says whether it was there.
 */
#include "comm/hall.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define NS_PER_MS UINT64_C(1000000)

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

uint64_t
sti_hall_outcome_bytes(const struct sti_comm *comm, uint32_t kind, uint32_t n_bytes)
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
    hall->outcome = sti_mem_new(sti_hall_outcome_bytes(comm, kind, share->n_bytes), 1);
    if (!hall->who || !hall->is_here || !hall->outcome) {
        free_hall(hall);
        return NULL;
    }
    hall->comm = comm;
    hall->kind = kind;
    hall->id = share->id;
    hall->n_bytes = share->n_bytes;
    hall->flags = share->flags & STI_SHARE_MAY_MISS;
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
        .n_bytes =
            hall->verdict == 0 ? sti_hall_outcome_bytes(hall->comm, hall->kind, hall->n_bytes) : 4,
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
            sti_round_read(hall->own, hall->outcome);
        sti_round_end(hall->own, verdict, about);
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
    if (hall->kind == STI_VERB_VOTE && !(share->flags & STI_SHARE_IS_FOR))
        decide(hall, -EPERM, from);
    else if (hall->n_here == hall->comm->world)
        decide(hall, 0, STI_COMM_NO_RANK);
}

static bool
agrees(const struct hall *hall, const struct share *share)
{
    return hall->n_bytes == share->n_bytes && hall->flags == (share->flags & STI_SHARE_MAY_MISS);
}

static bool
read_share(const struct taken *taken, struct share *ret_share)
{
    const unsigned char *from = taken->incoming.small;

    if (taken->incoming.n_small < STI_SHARE_HEAD)
        return false;
    *ret_share = (struct share){
        .id = sti_wire_get(from, 8),
        .ms = (uint32_t)sti_wire_get(from + 8, 4),
        .n_bytes = (uint32_t)sti_wire_get(from + 12, 4),
        .flags = sti_wire_get(from + 16, 8),
        .bytes = from + STI_SHARE_HEAD,
    };
    return taken->incoming.n_small - STI_SHARE_HEAD == ret_share->n_bytes;
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
    if (hall->n_here + 1 < comm->world || !hall->own)
        sti_comm_promise(comm, &taken->incoming); /* it may take long */
    count(hall, from, &share);
}

int
sti_hall_join(struct sti_comm *comm, struct sti_comm_round *round, const struct share *share)
{
    struct hall *hall = find_hall(comm, round->kind, share);

    if (!hall)
        return comm->n_halls >= STI_COMM_ROUNDS_MAX ? -EAGAIN : -ENOMEM;
    if (!agrees(hall, share))
        return STK_E_MISMATCH;
    if (hall->is_decided) { /* it was late, or somebody was against it */
        if (hall->verdict == 0)
            sti_round_read(round, hall->outcome);
        sti_round_end(round, hall->verdict, hall->about);
        return 0;
    }
    hall->own = round;
    count(hall, comm->rank, share);
    return 0;
}

static void
check_hall(struct hall *hall, uint64_t now_ns)
{
    if (hall->is_decided || hall->due_ns > now_ns)
        return;
    /* An allgather may go on without some, but not without the root. */
    if (hall->flags & STI_SHARE_MAY_MISS && hall->own)
        decide(hall, 0, STI_COMM_NO_RANK);
    else
        decide(hall, -ETIMEDOUT, first_missing(hall));
}

void
sti_hall_check(struct sti_comm *comm, uint64_t now_ns)
{
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
sti_hall_end(struct sti_comm *comm, int code)
{
    for (struct hall *hall = comm->halls; hall; hall = hall->next) {
        if (!hall->is_decided)
            decide(hall, code, comm->rank);
    }
}
