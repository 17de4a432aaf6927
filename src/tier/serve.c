/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples for peers. This rank gives what it holds by the plan, out of the store without a
 * copy: the sample is pinned until the answer has left. What is not read yet is read now,
 * and who asked is told to wait; so nobody reads a sample that another rank holds, and
 * each is read from the origin once. What is not this rank's to hold is not here, even if
 * it is in memory: only what stays can be promised.
 *
 * The CRC is made when a sample is first sent and kept, so what goes bad in memory
 * afterwards is seen by whoever receives it.
 *
 * Invariant: a question is wanted, waits in its sample's list, is being summed, or its
 * answer is on its way; it has a pin of its sample in the last three.
 */
#include <errno.h>
#include <stddef.h>

#include "base/error.h"
#include "tier/fetcher_internal.h"

static void
on_sent(void *context, int code)
{
    struct sti_question *question = context;
    struct sti_peering *peering = question->peering;
    struct sti_fetcher *fetcher = peering->fetcher;
    uint64_t sample = question->sample;

    if (question->is_measured)
        sti_replan_end(&peering->replan,
                       code == 0 ? sti_dataset_length(fetcher->opts.dataset, sample) : 0);
    question->is_measured = false;
    if (code == 0) {
        peering->served_samples++;
        peering->served_bytes += sti_dataset_length(fetcher->opts.dataset, sample);
    }
    sti_peering_put_question(peering, question);
    sti_fetcher_unpin_sample(fetcher, sample);
}

static void
send_bytes(struct sti_question *question)
{
    const struct sti_comm_answer answer = {.body = question->sum.bytes,
                                           .n_bytes = question->sum.n_bytes,
                                           .crc = question->sum.crc,
                                           .has_crc = true,
                                           .done = on_sent,
                                           .context = question};

    sti_comm_answer(question->peering->opts.comm, question->incoming, &answer);
}

static void
on_summed(struct sti_sum *sum)
{
    struct sti_question *question =
        (struct sti_question *)(void *)((char *)sum - offsetof(struct sti_question, sum));
    struct sti_peering *peering = question->peering;

    sti_crcs_note(&peering->crcs, question->sample, sum->crc);
    send_bytes(question);
}

/* What is read from the origin for it is not this rank's doing. */
static void
begin_to_measure(struct sti_peering *peering, struct sti_question *question)
{
    if (!question->is_measured)
        sti_replan_begin(&peering->replan);
    question->is_measured = true;
}

/* The sample is in memory and pinned for the question. */
static void
give(struct sti_fetcher *fetcher, struct sti_question *question, const struct sti_entry *entry)
{
    struct sti_peering *peering = fetcher->peering;

    begin_to_measure(peering, question);
    question->sum =
        (struct sti_sum){.bytes = sti_store_pointer(fetcher->store, entry->address),
                         .n_bytes = sti_dataset_length(fetcher->opts.dataset, question->sample),
                         .done = on_summed};
    if (sti_crcs_find(&peering->crcs, question->sample, &question->sum.crc)) {
        send_bytes(question);
        return;
    }
    sti_peering_sum(peering, &question->sum);
}

void
sti_fetcher_serve_arrived(struct sti_fetcher *fetcher, uint32_t number,
                          const struct sti_entry *entry)
{
    give(fetcher, &fetcher->peering->questions[number], entry);
}

void
sti_fetcher_serve_lost(struct sti_fetcher *fetcher, uint32_t number, int code)
{
    sti_peering_answer(fetcher->peering, &fetcher->peering->questions[number], code);
}

/* Waits with others for a sample that is being read. */
static void
join(struct sti_fetcher *fetcher, struct sti_entry *entry, uint32_t waiter)
{
    fetcher->waiters[waiter].next = entry->key;
    entry->key = waiter;
    entry->pins++;
}

/* Whether a sample that this rank serves for another is here, or coming from its holder: not
 * if it is the holder that asks, which would then wait for itself. */
static bool
is_here(const struct sti_fetcher *fetcher, const struct sti_question *question)
{
    const struct sti_peering *peering = fetcher->peering;
    uint64_t sample = question->sample;
    const struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);
    enum sti_sample_state state = entry ? (enum sti_sample_state)entry->state : STI_SAMPLE_ABSENT;

    if (!sti_replan_is_relieving(&peering->replan, sample, peering->rank))
        return false;
    if (state == STI_SAMPLE_READING)
        return sti_holders_next(&peering->holders, sample, peering->rank) !=
               question->incoming->from;
    return state == STI_SAMPLE_PRESENT || sti_ssd_has(fetcher->ssd, sample);
}

/* Sees to a question; false: no read is free for it. */
static bool
look_at(struct sti_fetcher *fetcher, struct sti_question *question)
{
    struct sti_peering *peering = fetcher->peering;
    uint32_t waiter = fetcher->n_waiters + (uint32_t)(question - peering->questions);
    enum stk_tier tier;
    int code;

    if (question->sample >= sti_dataset_count(fetcher->opts.dataset) ||
        !(sti_fetcher_is_mine(fetcher, question->sample) || is_here(fetcher, question))) {
        sti_peering_answer(peering, question, -ENOENT);
        return true;
    }
    struct sti_entry *entry = sti_catalog_find(fetcher->catalog, question->sample);
    switch (entry ? (enum sti_sample_state)entry->state : STI_SAMPLE_ABSENT) {
    case STI_SAMPLE_PRESENT:
        sti_fetcher_pin(fetcher, question->sample, entry);
        give(fetcher, question, entry);
        return true;
    case STI_SAMPLE_READING:
        join(fetcher, entry, waiter);
        sti_peering_promise(peering, question);
        return true;
    case STI_SAMPLE_BAD:
        sti_peering_answer(peering, question, -EIO);
        return true;
    case STI_SAMPLE_ABSENT:
        break;
    }
    sti_peering_promise(peering, question);
    if (sti_ssd_has(fetcher->ssd, question->sample))
        begin_to_measure(peering, question);
    fetcher->is_serving = !sti_fetcher_is_in_ram(fetcher, question->sample);
    bool is_coming = sti_fetcher_bring(fetcher, waiter, question->sample, &tier, &code);
    fetcher->is_serving = false;
    if (!is_coming)
        return false;
    if (code < 0)
        sti_peering_answer(peering, question, code);
    return true;
}

bool
sti_fetcher_goes_to_ssd(const struct sti_fetcher *fetcher, uint64_t sample, uint64_t n_bytes)
{
    const struct sti_peering *peering = fetcher->peering;

    if (!peering || !fetcher->ssd)
        return true;
    if (sti_fetcher_is_mine(fetcher, sample) && !sti_fetcher_is_in_ram(fetcher, sample))
        return true;
    uint64_t used_bytes = sti_ssd_counts(fetcher->ssd).used_bytes +
                          (peering->holders.mine_ssd_bytes - peering->ssd_begun_bytes);

    return used_bytes + n_bytes <= sti_ssd_capacity_bytes(fetcher->ssd);
}

void
sti_fetcher_begin_plan(struct sti_fetcher *fetcher)
{
    struct sti_peering *peering = fetcher->peering;

    for (uint64_t at = 0; fetcher->ssd && at < peering->holders.n_mine; at++) {
        uint64_t sample = peering->holders.mine[at];

        if (!sti_fetcher_is_in_ram(fetcher, sample) && sti_ssd_has(fetcher->ssd, sample))
            peering->ssd_begun_bytes += sti_dataset_length(fetcher->opts.dataset, sample);
    }
}

static void
warn(struct sti_fetcher *fetcher)
{
    struct sti_peering *peering = fetcher->peering;
    stk_error warning;

    (void)sti_error_set(&warning, peering->lost_code,
                        "rank %u does not answer (%s); the origin serves what it holds",
                        peering->lost_rank, sti_error_text(peering->lost_code));
    warning.rank = (int)peering->lost_rank;
    sti_staging_warn(&fetcher->staging, &warning);
    peering->has_news = false;
}

static void
begin(struct sti_peering *peering, struct sti_fetcher *fetcher)
{
    const struct sti_arena *arena = sti_store_arena(fetcher->store);

    peering->fetcher = fetcher;
    /* Where it cannot be lent, what is asked for is sent. */
    peering->is_lent = arena->is_shared && sti_comm_lend(peering->opts.comm, arena) == 0;
}

void
sti_fetcher_serve(struct sti_fetcher *fetcher)
{
    struct sti_peering *peering = fetcher->peering;

    if (!peering)
        return;
    if (!peering->fetcher) /* the first step */
        begin(peering, fetcher);
    sti_peering_take_summed(peering);
    if (peering->has_news)
        warn(fetcher);
    struct sti_question *question = peering->wanted;
    peering->wanted = NULL;
    peering->wanted_end = &peering->wanted;
    for (struct sti_question *next; question; question = next) {
        next = question->next;
        question->next = NULL;
        if (look_at(fetcher, question))
            continue;
        *peering->wanted_end = question;
        peering->wanted_end = &question->next;
    }
    peering->busy_ns = sti_fetcher_ask_again(fetcher);
    sti_fetcher_adopt_orphans(fetcher);
    sti_fetcher_submit_growing(fetcher);
}

void
sti_fetcher_fill(struct sti_fetcher *fetcher)
{
    struct sti_peering *peering = fetcher->peering;
    uint32_t most = fetcher->opts.queue_depth / 2;
    enum stk_tier tier;
    int code;

    if (!peering)
        return;
    while (fetcher->n_reading < most && peering->fill < peering->holders.n_mine) {
        uint64_t sample = peering->holders.mine[peering->fill];
        const struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);

        /* What cannot be read is told by the batch that needs it. */
        if ((!entry || entry->state == STI_SAMPLE_ABSENT) && !sti_ssd_has(fetcher->ssd, sample) &&
            !sti_fetcher_bring(fetcher, STI_NO_WAITER, sample, &tier, &code))
            break;
        peering->fill++;
    }
    sti_fetcher_submit_growing(fetcher);
}
