/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From one epoch to a plan for the next. Who is relieved holds on; so whatever ranks know of
 * a decision, and whenever, every sample has a holder that gives it, and the origin is not
 * asked for one more byte.
 *
 * A rank serves for another only what it has: it answers at once that it has not, and never
 * asks anybody but the holder itself. So nobody waits in a circle.
 */
#include "tier/replan.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tier/fetcher_internal.h"

#define HEAD_BYTES 8u
#define ENTRY_BYTES 24u
#define WAIT_TIMES 30u   /* the timeout, that all ranks have for telling */
#define CHANGE_SHARE 0.2 /* of what a rank holds: less is the same decision */
#define ALIKE_LEAST 2u   /* epochs in a row that have to say the same */
#define COMING_MAX 8u    /* samples that come at a time */

static void
put(unsigned char *bytes, uint64_t value, int n)
{
    for (int at = 0; at < n; at++)
        bytes[at] = (unsigned char)(value >> 8 * at);
}

static uint64_t
get(const unsigned char *bytes, int n)
{
    uint64_t value = 0;

    while (n-- > 0)
        value = value << 8 | bytes[n];
    return value;
}

/* ---- open and close ---- */

static int
init_root(struct sti_replan *replan, const struct sti_relief_rank *ranks)
{
    struct sti_replan_root *root = &replan->root;
    uint32_t world = replan->peering->world;

    root->ranks = sti_mem_new(world, sizeof(*root->ranks));
    root->reports = sti_mem_new(world, sizeof(struct sti_comm_incoming *));
    root->has_told = sti_mem_new(world, sizeof(bool));
    root->decision = sti_mem_new(HEAD_BYTES + (uint64_t)world * ENTRY_BYTES, 1);
    if (!root->ranks || !root->reports || !root->has_told || !root->decision)
        return -ENOMEM;
    memcpy(root->ranks, ranks, world * sizeof(*ranks));
    root->n_decision = HEAD_BYTES; /* no number, no ranks */
    return 0;
}

int
sti_replan_init(struct sti_peering *peering, const struct sti_dataset *dataset,
                const struct sti_relief_rank *ranks, uint64_t ram_spare_bytes)
{
    struct sti_replan *replan = &peering->replan;
    uint32_t world = peering->world;

    *replan = (struct sti_replan){.peering = peering,
                                  .dataset = dataset,
                                  .ram_spare_bytes = ram_spare_bytes,
                                  .epoch = UINT64_MAX};
    replan->answer = sti_mem_new(HEAD_BYTES + (uint64_t)world * ENTRY_BYTES, 1);
    replan->shares = sti_mem_new(world, 2 * sizeof(uint64_t));
    if (!replan->answer || !replan->shares)
        return -ENOMEM;
    int rc = peering->rank == 0 ? init_root(replan, ranks) : 0;
    replan->is_on = rc == 0;
    return rc;
}

void
sti_replan_fini(struct sti_replan *replan)
{
    if (replan->is_planning)
        sti_pool_withdraw(replan->peering->opts.pool, &replan->job);
    sti_mem_free(replan->root.ranks);
    sti_mem_free(replan->root.reports);
    sti_mem_free(replan->root.has_told);
    sti_mem_free(replan->root.decision);
    sti_mem_free(replan->answer);
    sti_mem_free(replan->shares);
    sti_mem_free(replan->next);
    sti_mem_free(replan->next_list);
    sti_mem_free(replan->relief);
    sti_mem_free(replan->list);
    *replan = (struct sti_replan){0};
}

bool
sti_replan_is_busy(const struct sti_replan *replan)
{
    return replan->is_asking || replan->root.n_answering > 0;
}

/* ---- measuring ---- */

void
sti_replan_begin(struct sti_replan *replan)
{
    if (replan->n_serving++ == 0)
        replan->serving_since_ns = sti_clock_ns();
}

void
sti_replan_end(struct sti_replan *replan, uint64_t n_bytes)
{
    replan->served_bytes += n_bytes;
    if (--replan->n_serving == 0)
        replan->busy_ns += sti_clock_ns() - replan->serving_since_ns;
}

/* ---- the decision, as every rank takes it ---- */

/* The samples' sizes where they differ; false: no memory for them. */
static bool
make_sizes(const struct sti_dataset *dataset, uint32_t **ret_bytes)
{
    uint64_t n = sti_dataset_count(dataset);

    *ret_bytes = NULL;
    if (sti_dataset_uniform_bytes(dataset) > 0)
        return true;
    *ret_bytes = sti_mem_new(n, sizeof(**ret_bytes));
    for (uint64_t sample = 0; *ret_bytes && sample < n; sample++)
        (*ret_bytes)[sample] = (uint32_t)sti_dataset_length(dataset, sample);
    return *ret_bytes != NULL;
}

static void
plan_job(struct sti_job *job)
{
    struct sti_replan *replan =
        (struct sti_replan *)(void *)((char *)job - offsetof(struct sti_replan, job));
    struct sti_peering *peering = replan->peering;
    const struct sti_holders *holders = &peering->holders;
    /* The peering may be gone as soon as the loop has seen it. */
    void (*wake)(void *) = peering->opts.wake;
    void *wake_context = peering->opts.wake_context;
    uint32_t *bytes;
    uint64_t n = 0;

    memset(replan->next, 0xff, holders->n_samples * sizeof(*replan->next));
    if (make_sizes(replan->dataset, &bytes)) {
        const struct sti_relief_input input = {
            .first = holders->first,
            .bytes = bytes,
            .same_bytes = (uint32_t)sti_dataset_uniform_bytes(replan->dataset),
            .n_samples = holders->n_samples,
            .n_ranks = peering->world};

        sti_relief_assign(&input, replan->shares, replan->shares + peering->world, replan->next);
    }
    sti_mem_free(bytes);
    for (uint64_t sample = 0; sample < holders->n_samples; sample++)
        if (replan->next[sample] == peering->rank)
            replan->next_list[n++] = (uint32_t)sample;
    replan->n_next_list = n;
    sti_mutex_lock(&peering->lock);
    peering->has_plan = true;
    sti_mutex_unlock(&peering->lock);
    wake(wake_context);
}

/* The most that this rank is to take, in samples. */
static uint64_t
most_taken(const struct sti_replan *replan)
{
    uint64_t n_bytes = replan->shares[replan->peering->world + replan->peering->rank];
    uint64_t n_samples = replan->peering->holders.n_samples;
    uint64_t least_bytes = sti_dataset_uniform_bytes(replan->dataset);

    /* Where sizes differ there may be many of a byte. */
    uint64_t n = n_bytes / (least_bytes > 0 ? least_bytes : 1);
    return n < n_samples ? n : n_samples;
}

/* Without memory it stays as it is. */
static void
begin_planning(struct sti_replan *replan)
{
    uint64_t n_samples = replan->peering->holders.n_samples;

    replan->next = sti_mem_new(n_samples, sizeof(*replan->next));
    replan->next_list = sti_mem_new(most_taken(replan) + 1, sizeof(*replan->next_list));
    if (!replan->next || !replan->next_list) {
        sti_mem_free(replan->next);
        sti_mem_free(replan->next_list);
        replan->next = NULL;
        replan->next_list = NULL;
        return;
    }
    replan->is_planning = true;
    replan->job.fn = plan_job;
    sti_pool_submit(replan->peering->opts.pool, STI_LANE_NORMAL, &replan->job, 1);
}

/* bytes: a decision as it is sent. What is no decision changes nothing. */
static void
take_decision(struct sti_replan *replan, const unsigned char *bytes, uint64_t n_bytes)
{
    uint32_t world = replan->peering->world;

    if (n_bytes < HEAD_BYTES || replan->is_planning)
        return;
    uint32_t number = (uint32_t)get(bytes, 4);
    uint64_t n_ranks = get(bytes + 4, 4);
    if (number == replan->number || n_ranks > world ||
        n_bytes != HEAD_BYTES + n_ranks * ENTRY_BYTES)
        return;
    memset(replan->shares, 0, 2 * (uint64_t)world * sizeof(uint64_t));
    for (uint64_t at = 0; at < n_ranks; at++) {
        const unsigned char *entry = bytes + HEAD_BYTES + at * ENTRY_BYTES;
        uint64_t rank = get(entry, 4);

        if (rank >= world)
            return;
        replan->shares[rank] = get(entry + 8, 8);
        replan->shares[world + rank] = get(entry + 16, 8);
    }
    replan->number = number;
    begin_planning(replan);
}

/* ---- rank 0 ---- */

static void
on_answered(void *context, int code)
{
    struct sti_replan *replan = context;

    (void)code; /* who has not got it goes on as it is */
    replan->root.n_answering--;
}

static void
answer_report(struct sti_replan *replan, uint32_t rank, int code)
{
    struct sti_replan_root *root = &replan->root;
    struct sti_comm_answer answer = {.code = code};

    if (!root->reports[rank])
        return;
    if (code == 0) {
        answer.body = root->decision;
        answer.n_bytes = root->n_decision;
        answer.done = on_answered;
        answer.context = replan;
        root->n_answering++;
    }
    struct sti_comm_incoming *incoming = root->reports[rank];
    root->reports[rank] = NULL;
    sti_comm_answer(replan->peering->opts.comm, incoming, &answer);
}

/* Whether what is decided now is not what was decided last, but for little. */
static bool
has_changed(const struct sti_replan_root *root, const struct sti_relief_rank *before,
            uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        const struct sti_relief_rank *now = &root->ranks[rank];
        uint64_t give = before[rank].give_bytes;
        uint64_t off_bytes =
            now->give_bytes > give ? now->give_bytes - give : give - now->give_bytes;

        if ((double)off_bytes > CHANGE_SHARE * (double)now->held_bytes ||
            (now->give_bytes > 0) != (give > 0))
            return true;
    }
    return false;
}

static void
write_decision(struct sti_replan_root *root, uint32_t world)
{
    uint32_t n = 0;

    for (uint32_t rank = 0; rank < world; rank++) {
        unsigned char *entry = root->decision + HEAD_BYTES + (uint64_t)n * ENTRY_BYTES;

        if (root->ranks[rank].give_bytes == 0 && root->ranks[rank].take_bytes == 0)
            continue;
        put(entry, rank, 4);
        put(entry + 4, 0, 4);
        put(entry + 8, root->ranks[rank].give_bytes, 8);
        put(entry + 16, root->ranks[rank].take_bytes, 8);
        n++;
    }
    put(root->decision, ++root->number, 4);
    put(root->decision + 4, n, 4);
    root->n_decision = HEAD_BYTES + n * ENTRY_BYTES;
}

/* All that are there have told: decides, and answers all. */
static void
decide(struct sti_replan *replan)
{
    struct sti_replan_root *root = &replan->root;
    uint32_t world = replan->peering->world;
    struct sti_relief_rank *before = sti_mem_new(world, sizeof(*before));

    if (before) {
        memcpy(before, root->ranks, world * sizeof(*before));
        bool is_wanted = sti_relief_decide(root->ranks, world);
        root->n_alike = is_wanted == root->was_wanted ? root->n_alike + 1 : 1;
        root->was_wanted = is_wanted;
        if (root->n_alike >= ALIKE_LEAST && has_changed(root, before, world)) {
            write_decision(root, world);
        } else {
            for (uint32_t rank = 0; rank < world; rank++) {
                root->ranks[rank].give_bytes = before[rank].give_bytes;
                root->ranks[rank].take_bytes = before[rank].take_bytes;
            }
        }
    }
    sti_mem_free(before);
    for (uint32_t rank = 0; rank < world; rank++) {
        root->has_told[rank] = false;
        answer_report(replan, rank, 0);
    }
    take_decision(replan, root->decision, root->n_decision);
}

/* A rank that has left, or does not answer, is not waited for. */
static void
decide_if_all_told(struct sti_replan *replan)
{
    const struct sti_peering *peering = replan->peering;

    if (replan->root.n_answering > 0 || replan->is_planning || !replan->root.has_told[0])
        return;
    for (uint32_t rank = 1; rank < peering->world; rank++)
        if (!replan->root.has_told[rank] && !peering->neighbours[rank].has_left &&
            peering->neighbours[rank].avoid_until_ns == 0)
            return;
    decide(replan);
}

/* A mean in which the newest counts for a third, so that chance in one epoch does not decide. */
static uint64_t
mean_of(uint64_t known, uint64_t newest)
{
    return known == 0 ? newest : known / 3 * 2 + newest / 3;
}

/* Of a rank that has served nothing in an epoch what was measured before stands. */
static void
note(struct sti_replan *replan, uint32_t rank, uint64_t served_bytes, uint64_t busy_ns,
     uint64_t wall_ns)
{
    struct sti_relief_rank *known = &replan->root.ranks[rank];

    replan->root.has_told[rank] = true;
    known->wall_ns = mean_of(known->wall_ns, wall_ns);
    if (served_bytes == 0 || busy_ns == 0)
        return;
    known->served_bytes = mean_of(known->served_bytes, served_bytes);
    known->busy_ns = mean_of(known->busy_ns, busy_ns);
}

void
sti_replan_on_report(struct sti_peering *peering, struct sti_comm_incoming *incoming)
{
    struct sti_replan *replan = &peering->replan;
    const unsigned char *message = incoming->small;
    const struct sti_comm_answer no = {.code = -ENOENT};
    uint32_t rank = incoming->from;

    /* Without a fetcher the rest is another thread's still. */
    if (peering->rank != 0 || peering->is_closed || peering->is_leaving || !peering->fetcher ||
        !replan->is_on || incoming->n_small != STI_REPLAN_REPORT_BYTES) {
        sti_comm_answer(peering->opts.comm, incoming, &no);
        return;
    }
    answer_report(replan, rank, -ESTALE); /* one that it has given up */
    replan->root.reports[rank] = incoming;
    sti_comm_promise(peering->opts.comm, incoming);
    note(replan, rank, get(message + 16, 8), get(message + 24, 8), get(message + 32, 8));
    decide_if_all_told(replan);
}

void
sti_replan_refuse(struct sti_replan *replan)
{
    if (!replan->is_on || replan->peering->rank != 0)
        return;
    for (uint32_t rank = 0; rank < replan->peering->world; rank++)
        answer_report(replan, rank, -ENOENT);
}

/* ---- at an epoch's end ---- */

static void
on_decision(struct sti_comm_request *request)
{
    struct sti_replan *replan = request->context;

    replan->is_asking = false;
    if (request->result == 0 && request->code == 0)
        take_decision(replan, replan->answer, request->n_bytes);
}

static void
report(struct sti_replan *replan, uint64_t wall_ns)
{
    struct sti_peering *peering = replan->peering;
    unsigned char message[STI_REPLAN_REPORT_BYTES];

    sti_peering_write(message, STI_PEERING_REPORT, 0);
    put(message + 16, replan->served_bytes, 8);
    put(message + 24, replan->busy_ns, 8);
    put(message + 32, wall_ns, 8);
    replan->request = (struct sti_comm_request){
        .peer = 0,
        .verb = peering->verb,
        .small = message,
        .n_small = STI_REPLAN_REPORT_BYTES,
        .into = replan->answer,
        .into_bytes = HEAD_BYTES + (uint64_t)peering->world * ENTRY_BYTES,
        .timeout_ns = peering->opts.timeout_ns,
        .wait_ns = WAIT_TIMES * peering->opts.timeout_ns,
        .done = on_decision,
        .context = replan,
    };
    replan->is_asking = sti_comm_request(peering->opts.comm, &replan->request) == 0;
}

void
sti_replan_epoch(struct sti_replan *replan, uint64_t epoch, bool is_last)
{
    if (!replan->is_on || epoch == replan->epoch)
        return;
    uint64_t now_ns = sti_clock_ns();
    bool is_next = replan->epoch != UINT64_MAX && epoch == replan->epoch + 1 && !replan->is_first;

    if (replan->n_serving > 0) {
        replan->busy_ns += now_ns - replan->serving_since_ns;
        replan->serving_since_ns = now_ns;
    }
    /* After a seek nothing was measured of a whole epoch; behind the last one nothing is
     * gained. */
    if (is_next && !is_last && replan->peering->rank == 0) {
        note(replan, 0, replan->served_bytes, replan->busy_ns, now_ns - replan->epoch_began_ns);
        decide_if_all_told(replan);
    } else if (is_next && !is_last && !replan->is_asking) {
        report(replan, now_ns - replan->epoch_began_ns);
    }
    replan->is_first = replan->epoch == UINT64_MAX;
    replan->epoch = epoch;
    replan->epoch_began_ns = now_ns;
    replan->served_bytes = 0;
    replan->busy_ns = 0;
}

/* ---- samples ---- */

/* Puts the job's samples in place of those before them. */
static void
take_plan(struct sti_fetcher *fetcher)
{
    struct sti_replan *replan = &fetcher->peering->replan;
    uint32_t *old_list = replan->list;
    uint64_t n_old = replan->n_list;

    sti_mem_free(replan->relief);
    replan->relief = replan->next;
    replan->list = replan->next_list;
    replan->n_list = replan->n_next_list;
    replan->next = NULL;
    replan->next_list = NULL;
    replan->cursor = 0;
    replan->is_planning = false;
    /* What was kept for others and is not any more stays as long as it is of use here. */
    for (uint64_t at = 0; at < n_old; at++)
        sti_fetcher_settle_again(fetcher, old_list[at]);
    sti_mem_free(old_list);
    if (replan->peering->rank == 0) /* others may have told while it was made */
        decide_if_all_told(replan);
}

/* Has a sample come that this rank is to serve, too; false: later. */
static bool
look_at(struct sti_fetcher *fetcher, uint64_t sample)
{
    struct sti_peering *peering = fetcher->peering;
    const struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);
    uint32_t holder = sti_holders_next(&peering->holders, sample, peering->rank);

    if (sti_ssd_has(fetcher->ssd, sample) || (entry && entry->state == STI_SAMPLE_BAD))
        return true;
    if (entry && entry->state == STI_SAMPLE_READING) /* its coming settles it */
        return true;
    if (entry && entry->state == STI_SAMPLE_PRESENT) {
        sti_fetcher_keep_for_others(fetcher, sample);
        sti_fetcher_settle_again(fetcher, sample);
        return true;
    }
    if (holder == STI_HOLDERS_NOBODY || sti_peering_may_ask(peering, holder) == STI_ASK_NOT)
        return true;
    if (!sti_ssd_is_ready(fetcher->ssd, COMING_MAX,
                          COMING_MAX * sti_dataset_length(fetcher->opts.dataset, sample)))
        return false;
    return sti_fetcher_read_for_others(fetcher, sample, holder);
}

void
sti_fetcher_take_relief(struct sti_fetcher *fetcher)
{
    struct sti_peering *peering = fetcher->peering;

    if (!peering || !peering->replan.is_on)
        return;
    sti_mutex_lock(&peering->lock);
    bool has_plan = peering->has_plan;
    peering->has_plan = false;
    sti_mutex_unlock(&peering->lock);
    if (has_plan)
        take_plan(fetcher);
    struct sti_replan *replan = &peering->replan;
    while (replan->cursor < replan->n_list && look_at(fetcher, replan->list[replan->cursor]))
        replan->cursor++;
}
