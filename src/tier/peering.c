/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers. One that does not answer, or whose connection ends, is avoided for a pause that
 * doubles each time; then one request, no more, finds out how it is. So a rank that is
 * gone, or stopped, costs one timeout at a time and the origin serves meanwhile, and one
 * that comes back is used again.
 *
 * Leaving is by requests that are answered, not by notes: who leaves has to know that the
 * others have heard it before its connection ends. A rank stays until all others have left
 * or cannot be reached, since any of them may need what it holds.
 */
#include "tier/peering.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/mem.h"
#include "tier/fetcher_internal.h"

#define OUT_MAX 60u   /* to one peer: a few less than the comm lets through, for other messages */
#define RELIEF_OUT 2u /* and these for relief, which would else never come from who is slow */
#define RELIEF_FETCHES 8u
/* Twice what is asked at a time: who has an answer asks again before it is known here that the
 * answer has left. A question too many would be a read from the origin too many. */
#define QUESTIONS_PER_PEER 128u
#define QUESTIONS_MAX 8192u
#define PAUSE_NS STI_NS_PER_S
#define PAUSE_MAX_NS (60 * STI_NS_PER_S)
#define TELL_AGAIN_NS (2 * STI_NS_PER_S)
#define TELL_SOON_NS (STI_NS_PER_S / 100)
#define SUMS_PER_STEP 4 /* of the loop, which has more to do */
#define SUMS_PER_HELPER 4u
/* Less than this is summed by the loop: a hand-over would cost more. */
#define SUM_AT_ONCE_BYTES (UINT64_C(128) << 10)

enum { NOT_TOLD, TELLING, TOLD };

/* ---- open and close ---- */

static int
take_memory(struct sti_peering *peering)
{
    uint32_t n = (peering->world - 1) * QUESTIONS_PER_PEER;

    peering->n_questions = peering->world > QUESTIONS_MAX / QUESTIONS_PER_PEER ? QUESTIONS_MAX : n;
    peering->questions = sti_mem_new(peering->n_questions + 1, sizeof(struct sti_question));
    peering->n_fetches = peering->opts.n_fetches + RELIEF_FETCHES;
    peering->fetches = sti_mem_new(peering->n_fetches, sizeof(struct sti_fetch));
    peering->neighbours = sti_mem_new(peering->world, sizeof(struct sti_neighbour));
    if (!peering->questions || !peering->fetches || !peering->neighbours)
        return -ENOMEM;
    for (uint32_t at = peering->n_questions; at-- > 0;) {
        struct sti_question *question = &peering->questions[at];

        question->peering = peering;
        question->next = peering->free_questions;
        peering->free_questions = question;
    }
    for (uint32_t at = peering->n_fetches; at-- > 0;) {
        peering->fetches[at].peering = peering;
        peering->fetches[at].next = peering->free_fetches;
        peering->free_fetches = &peering->fetches[at];
    }
    for (uint32_t rank = 0; rank < peering->world; rank++)
        peering->neighbours[rank].peering = peering;
    return 0;
}

int
sti_peering_new(struct sti_peering **ret_peering, const struct sti_peering_opts *opts)
{
    struct sti_peering *peering = sti_mem_new(1, sizeof(*peering));

    if (!peering)
        return -ENOMEM;
    peering->opts = *opts;
    peering->rank = sti_comm_rank(opts->comm);
    peering->world = sti_comm_world(opts->comm);
    peering->wanted_end = &peering->wanted;
    int rc = sti_mutex_init(&peering->lock, STI_RANK_LEAF);
    if (rc < 0) {
        sti_mem_free(peering);
        return rc;
    }
    sti_mutex_lock(&peering->lock);
    peering->to_sum_end = &peering->to_sum;
    sti_mutex_unlock(&peering->lock);
    rc = take_memory(peering);
    if (rc < 0) {
        sti_peering_free(peering);
        return rc;
    }
    *ret_peering = peering;
    return 0;
}

void
sti_peering_free(struct sti_peering *peering)
{
    if (!peering)
        return;
    assert(peering->n_asked == 0 && peering->n_fetching == 0 && peering->n_summing == 0);
    for (uint32_t at = 0; at < STI_SUMMERS; at++)
        sti_pool_withdraw(peering->opts.pool, &peering->summers[at].job);
    sti_holders_fini(&peering->holders);
    sti_replan_fini(&peering->replan);
    sti_mutex_fini(&peering->lock);
    sti_crcs_fini(&peering->crcs);
    sti_mem_free(peering->questions);
    sti_mem_free(peering->fetches);
    sti_mem_free(peering->neighbours);
    sti_mem_free(peering);
}

int
sti_peering_plan(struct sti_peering *peering, const struct sti_holders_opts *opts)
{
    int rc = sti_holders_init(&peering->holders, opts);

    peering->is_paper = opts->is_paper;
    return rc < 0 ? rc : sti_crcs_init(&peering->crcs, peering->holders.n_mine);
}

/* ---- sums ---- */

static void
make_sum(struct sti_sum *sum)
{
    sum->crc = sum->into ? sti_crc32c_copy(sum->into, sum->bytes, sum->n_bytes)
                         : sti_crc32c(0, sum->bytes, sum->n_bytes);
}

static void
hand_back(struct sti_peering *peering, struct sti_sum *sum)
{
    /* The peering may be gone as soon as the loop has the sum. */
    void (*wake)(void *) = peering->opts.wake;
    void *wake_context = peering->opts.wake_context;

    sti_mutex_lock(&peering->lock);
    bool is_first = !peering->summed;
    sum->next = peering->summed;
    peering->summed = sum;
    sti_mutex_unlock(&peering->lock);
    if (is_first)
        wake(wake_context);
}

static struct sti_sum *
next_to_sum(struct sti_peering *peering)
{
    sti_mutex_lock(&peering->lock);
    struct sti_sum *sum = peering->to_sum;

    if (sum) {
        peering->to_sum = sum->next;
        peering->n_to_sum--;
        if (!sum->next)
            peering->to_sum_end = &peering->to_sum;
    }
    sti_mutex_unlock(&peering->lock);
    return sum;
}

/* A helper ends when there is nothing to be summed. It may be submitted again from then on. */
static void
help(struct sti_job *job)
{
    struct sti_summer *summer =
        (struct sti_summer *)(void *)((char *)job - offsetof(struct sti_summer, job));
    struct sti_peering *peering = summer->peering;
    struct sti_sum *sum;

    while ((sum = next_to_sum(peering)) != NULL) {
        make_sum(sum);
        hand_back(peering, sum);
    }
    __atomic_store_n(&summer->is_out, 0, __ATOMIC_RELEASE); /* with call_helpers() */
}

/* Calls helpers for what is to be summed, as many as there is work for. One that is just about
 * to end may not come; then the loop does the work. */
static void
call_helpers(struct sti_peering *peering)
{
    sti_mutex_lock(&peering->lock);
    uint32_t n = peering->n_to_sum / SUMS_PER_HELPER;
    sti_mutex_unlock(&peering->lock);
    uint32_t most = sti_pool_cpu_threads(peering->opts.pool) / 2; /* the loop is another */
    most = most == 0 ? 1 : most < STI_SUMMERS ? most : STI_SUMMERS;
    for (uint32_t at = 0; at < most && n > 0; at++, n--) {
        struct sti_summer *summer = &peering->summers[at];

        if (__atomic_load_n(&summer->is_out, __ATOMIC_ACQUIRE))
            continue;
        __atomic_store_n(&summer->is_out, 1, __ATOMIC_RELAXED);
        summer->peering = peering;
        summer->job.fn = help;
        sti_pool_submit(peering->opts.pool, STI_LANE_URGENT, &summer->job, 1);
    }
}

static void
sum_job(struct sti_job *job)
{
    struct sti_sum *sum = (struct sti_sum *)(void *)((char *)job - offsetof(struct sti_sum, job));

    make_sum(sum);
    hand_back(sum->peering, sum);
}

/* What is to be copied waits for the next step: what came with it is shared with the pool. */
void
sti_peering_sum(struct sti_peering *peering, struct sti_sum *sum)
{
    if (sum->n_bytes <= SUM_AT_ONCE_BYTES && !sum->into) {
        make_sum(sum);
        sum->done(sum);
        return;
    }
    peering->n_summing++;
    sum->peering = peering;
    sum->next = NULL;
    if (sum->n_bytes > SUM_AT_ONCE_BYTES) {
        sum->job.fn = sum_job;
        sti_pool_submit(peering->opts.pool, STI_LANE_URGENT, &sum->job, 1);
        return;
    }
    sti_mutex_lock(&peering->lock);
    *peering->to_sum_end = sum;
    peering->to_sum_end = &sum->next;
    peering->n_to_sum++;
    sti_mutex_unlock(&peering->lock);
}

static void
end_sum(struct sti_peering *peering, struct sti_sum *sum)
{
    peering->n_summing--;
    sum->done(sum);
}

void
sti_peering_take_summed(struct sti_peering *peering)
{
    struct sti_sum *sum;

    if (peering->n_summing == 0)
        return;
    call_helpers(peering);
    for (int n = 0; n < SUMS_PER_STEP && (sum = next_to_sum(peering)) != NULL; n++) {
        make_sum(sum);
        end_sum(peering, sum);
    }
    sti_mutex_lock(&peering->lock);
    sum = peering->summed;
    peering->summed = NULL;
    peering->must_step = peering->to_sum != NULL;
    sti_mutex_unlock(&peering->lock);
    for (struct sti_sum *next; sum; sum = next) {
        next = sum->next;
        end_sum(peering, sum);
    }
}

/* ---- messages ---- */

static void
put_u32(unsigned char *bytes, uint32_t value)
{
    for (int at = 0; at < 4; at++)
        bytes[at] = (unsigned char)(value >> 8 * at);
}

static uint32_t
get_u32(const unsigned char *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

void
sti_peering_write(unsigned char *message, uint32_t what, uint64_t sample)
{
    put_u32(message, what);
    put_u32(message + 4, 0);
    put_u32(message + 8, (uint32_t)sample);
    put_u32(message + 12, (uint32_t)(sample >> 32));
}

/* ---- what is asked here ---- */

static void
answer(struct sti_peering *peering, struct sti_comm_incoming *incoming, int code)
{
    const struct sti_comm_answer plain = {.code = code};

    sti_comm_answer(peering->opts.comm, incoming, &plain);
}

void
sti_peering_put_question(struct sti_peering *peering, struct sti_question *question)
{
    question->incoming = NULL;
    question->next = peering->free_questions;
    peering->free_questions = question;
    peering->n_asked--;
    if (question->is_measured)
        sti_replan_end(&peering->replan, 0);
    question->is_measured = false;
}

void
sti_peering_answer(struct sti_peering *peering, struct sti_question *question, int code)
{
    answer(peering, question->incoming, code);
    sti_peering_put_question(peering, question);
}

void
sti_peering_promise(struct sti_peering *peering, struct sti_question *question)
{
    if (question->is_promised)
        return;
    question->is_promised = true;
    sti_comm_promise(peering->opts.comm, question->incoming);
}

void
sti_peering_on_request(void *context, struct sti_comm_incoming *incoming)
{
    struct sti_peering *peering = context;
    struct sti_question *question = peering->free_questions;
    const unsigned char *message = incoming->small;

    if (incoming->n_small < STI_PEERING_MESSAGE_BYTES || get_u32(message + 4) != 0 ||
        (incoming->n_small > STI_PEERING_MESSAGE_BYTES && get_u32(message) != STI_PEERING_REPORT)) {
        answer(peering, incoming, -EINVAL);
        return;
    }
    switch (get_u32(message)) {
    case STI_PEERING_LEAVE:
        peering->neighbours[incoming->from].has_left = true;
        answer(peering, incoming, 0);
        return;
    case STI_PEERING_REPORT:
        sti_replan_on_report(peering, incoming);
        return;
    case STI_PEERING_FETCH:
        break;
    default:
        answer(peering, incoming, -EINVAL);
        return;
    }
    if (peering->is_closed || !question) {
        answer(peering, incoming, question ? -ENOENT : -EAGAIN);
        return;
    }
    peering->free_questions = question->next;
    peering->n_asked++;
    question->incoming = incoming;
    question->sample = get_u32(message + 8) | (uint64_t)get_u32(message + 12) << 32;
    question->is_promised = false;
    question->is_measured = false;
    question->next = NULL;
    *peering->wanted_end = question;
    peering->wanted_end = &question->next;
    if (!peering->fetcher) /* the plan is being made */
        sti_peering_promise(peering, question);
}

void
sti_peering_refuse(void *context)
{
    struct sti_peering *peering = context;
    struct sti_question *question = peering->wanted;

    peering->is_closed = true;
    if (peering->is_lent)
        sti_comm_take_back(peering->opts.comm, sti_store_arena(peering->fetcher->store));
    peering->is_lent = false;
    sti_replan_refuse(&peering->replan);
    peering->wanted = NULL;
    peering->wanted_end = &peering->wanted;
    for (struct sti_question *next; question; question = next) {
        next = question->next;
        sti_peering_answer(peering, question, -ENOENT);
    }
}

/* ---- whom to ask ---- */

void
sti_peering_note(struct sti_peering *peering, uint32_t rank, int code)
{
    struct sti_neighbour *neighbour = &peering->neighbours[rank];
    uint64_t now_ns = sti_clock_ns();

    if (code == 0) {
        neighbour->avoid_until_ns = 0;
        neighbour->pause_ns = 0;
        return;
    }
    if (now_ns < neighbour->avoid_until_ns) /* others were under way to it */
        return;
    neighbour->pause_ns = neighbour->pause_ns == 0                 ? PAUSE_NS
                          : neighbour->pause_ns < PAUSE_MAX_NS / 2 ? 2 * neighbour->pause_ns
                                                                   : PAUSE_MAX_NS;
    neighbour->avoid_until_ns = now_ns + neighbour->pause_ns;
    peering->has_news = true;
    peering->lost_rank = rank;
    peering->lost_code = code;
}

void
sti_peering_on_peer(void *context, uint32_t rank, int code)
{
    struct sti_peering *peering = context;

    if (code != 0)
        sti_peering_note(peering, rank, code);
    else if (peering->neighbours[rank].avoid_until_ns != 0)
        peering->neighbours[rank].avoid_until_ns = 1; /* long ago: it is tried again */
}

enum sti_may_ask
sti_peering_may_ask(const struct sti_peering *peering, uint32_t rank)
{
    const struct sti_neighbour *neighbour = &peering->neighbours[rank];

    if (neighbour->avoid_until_ns != 0)
        return neighbour->n_out > 0 || sti_clock_ns() < neighbour->avoid_until_ns ? STI_ASK_NOT
                                                                                  : STI_ASK;
    return neighbour->n_out < OUT_MAX ? STI_ASK : STI_ASK_LATER;
}

bool
sti_peering_may_relieve(const struct sti_peering *peering, uint32_t rank)
{
    return peering->n_relieving < RELIEF_FETCHES &&
           peering->neighbours[rank].n_out < OUT_MAX + RELIEF_OUT;
}

bool
sti_peering_is_idle(const struct sti_peering *peering, uint32_t rank)
{
    return peering->n_fetching < peering->opts.n_fetches / 2 &&
           peering->neighbours[rank].n_out < OUT_MAX / 2;
}

uint32_t
sti_peering_holder(const struct sti_peering *peering, uint64_t sample, uint32_t but)
{
    uint32_t best = STI_HOLDERS_NOBODY;
    uint32_t rank = sti_holders_next(&peering->holders, sample, peering->rank);
    uint32_t relief = peering->replan.relief ? peering->replan.relief[sample] : STI_RELIEF_NOBODY;

    /* Asked first; if it has nothing yet, the holder is asked next. */
    if (relief != STI_RELIEF_NOBODY && relief != peering->rank && but == peering->rank &&
        rank != STI_HOLDERS_NOBODY && sti_peering_may_ask(peering, relief) == STI_ASK)
        return relief;

    for (; rank != STI_HOLDERS_NOBODY; rank = sti_holders_next(&peering->holders, sample, rank)) {
        if (rank == but || sti_peering_may_ask(peering, rank) == STI_ASK_NOT)
            continue;
        if (best == STI_HOLDERS_NOBODY ||
            peering->neighbours[rank].n_out < peering->neighbours[best].n_out)
            best = rank;
    }
    return best;
}

/* ---- leaving ---- */

static void
on_told(struct sti_comm_request *request)
{
    struct sti_neighbour *neighbour = request->context;

    if (request->result == -EAGAIN) { /* it has too much to do, and may need what is here */
        neighbour->told = NOT_TOLD;
        return;
    }
    neighbour->told = TOLD;
    /* Who cannot be reached needs nothing, or has to do without. */
    if (request->result != 0)
        neighbour->has_left = true;
}

static bool
tell(struct sti_peering *peering, uint32_t rank)
{
    struct sti_neighbour *neighbour = &peering->neighbours[rank];
    unsigned char message[STI_PEERING_MESSAGE_BYTES];

    sti_peering_write(message, STI_PEERING_LEAVE, 0);
    neighbour->leave = (struct sti_comm_request){.peer = rank,
                                                 .verb = peering->verb,
                                                 .small = message,
                                                 .n_small = STI_PEERING_MESSAGE_BYTES,
                                                 .timeout_ns = peering->opts.timeout_ns,
                                                 .done = on_told,
                                                 .context = neighbour};
    int rc = sti_comm_request(peering->opts.comm, &neighbour->leave);
    if (rc == -EAGAIN)
        return false;
    neighbour->told = rc == 0 ? TELLING : TOLD;
    if (rc < 0)
        neighbour->has_left = true;
    return true;
}

uint64_t
sti_peering_leave(struct sti_peering *peering)
{
    uint64_t now_ns = sti_clock_ns();
    bool is_all_told = true, is_telling = false, has_all_left = true;

    if (!peering->is_leaving) {
        peering->is_leaving = true;
        sti_replan_refuse(&peering->replan);
        peering->leaving_until_ns = now_ns + peering->opts.close_timeout_ns;
        peering->tell_again_ns = now_ns + TELL_AGAIN_NS;
    }
    bool must_tell_again = now_ns >= peering->tell_again_ns;
    if (must_tell_again)
        peering->tell_again_ns = now_ns + TELL_AGAIN_NS;
    for (uint32_t rank = 0; rank < peering->world; rank++) {
        struct sti_neighbour *neighbour = &peering->neighbours[rank];

        if (rank == peering->rank)
            continue;
        /* Whether those that still work are alive is found out by telling them again. */
        if (must_tell_again && neighbour->told == TOLD && !neighbour->has_left)
            neighbour->told = NOT_TOLD;
        if (neighbour->told == NOT_TOLD)
            is_all_told = tell(peering, rank) && is_all_told;
        is_telling = is_telling || neighbour->told == TELLING;
        has_all_left = has_all_left && neighbour->has_left;
    }
    bool is_over = now_ns >= peering->leaving_until_ns;
    if (is_over)
        for (uint32_t rank = 0; rank < peering->world && is_telling; rank++)
            if (peering->neighbours[rank].told == TELLING)
                sti_comm_cancel(peering->opts.comm, &peering->neighbours[rank].leave);
    if (!is_telling && (is_over || (is_all_told && has_all_left && peering->n_asked == 0)))
        return 0;
    if (!is_all_told || is_over)
        return TELL_SOON_NS;
    return peering->tell_again_ns - now_ns;
}
