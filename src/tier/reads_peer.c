/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples that come from a peer, straight into their place in the store. What a peer does
 * not give, or gives wrongly, comes from another holder, and then from the origin in a
 * read as from anywhere else. A fetch is no read: it takes none of the reads that this
 * rank needs to serve others, so two ranks that wait for each other's samples cannot keep
 * each other from reading them.
 *
 * Invariant: an entry is READING for a fetch exactly while the fetch is used.
 */
#include <errno.h>
#include <stddef.h>

#include "base/clock.h"
#include "tier/fetcher_internal.h"
#include "tier/ssd_format.h"

#define TRIES_MAX 2u                  /* one holder, and another */
#define BUSY_NS (STI_NS_PER_S / 1000) /* the first pause of who asks a busy holder */
#define BUSY_DOUBLINGS 6u
#define PROMISE_TIMES 6 /* who promises has to read from the origin, or waits for others */

static struct sti_fetcher *
fetcher_of(const struct sti_fetch *fetch)
{
    return fetch->peering->fetcher;
}

static void
give_back(struct sti_fetch *fetch)
{
    struct sti_peering *peering = fetch->peering;

    fetch->is_used = false;
    fetch->next = peering->free_fetches;
    peering->free_fetches = fetch;
    peering->n_fetching--;
    peering->n_relieving -= fetch->is_relief ? 1 : 0;
}

static void
fail(struct sti_fetch *fetch);

/* The holder has too much to do: it is asked again a little later, and the longer after the more
 * often that was so. Those who were turned away together do not come back together. False: it
 * has been so for as long as a peer has to answer. */
static bool
ask_later(struct sti_fetch *fetch)
{
    struct sti_peering *peering = fetch->peering;
    uint32_t n_doublings = fetch->n_busy < BUSY_DOUBLINGS ? fetch->n_busy : BUSY_DOUBLINGS;
    uint64_t pause_ns = BUSY_NS << n_doublings;
    uint64_t spread = (fetch->sample + peering->rank) * UINT64_C(0x9e3779b97f4a7c15);

    uint64_t now_ns = sti_clock_ns();

    if (fetch->n_busy == 0)
        fetch->busy_since_ns = now_ns;
    if (now_ns - fetch->busy_since_ns > peering->opts.timeout_ns || peering->fetcher->is_stopped)
        return false;
    fetch->n_busy++;
    fetch->again_ns = now_ns + pause_ns + spread % pause_ns;
    fetch->next = peering->busy;
    peering->busy = fetch;
    return true;
}

static void
take_bytes(struct sti_fetch *fetch)
{
    struct sti_fetcher *fetcher = fetcher_of(fetch);
    struct sti_entry *entry = sti_catalog_find(fetcher->catalog, fetch->sample);

    sti_peering_note(fetch->peering, fetch->holder, 0);
    if (sti_fetcher_is_in_place(fetcher, fetch->sample))
        sti_store_trim(fetcher->store, fetch->address, fetch->length);
    if (entry->pins == 0) {
        fetch->peering->copied_samples++;
        fetch->peering->copied_bytes += fetch->length;
    }
    uint64_t sample = fetch->sample;
    uint64_t next_use = fetch->next_use;
    give_back(fetch);
    sti_fetcher_keep_for_others(fetcher, sample);
    /* What was to be its use may be passed, or forgotten by a seek. */
    sti_fetcher_give(fetcher, sample, entry,
                     next_use < fetcher->position ? STI_POSITION_UNKNOWN : next_use);
}

static void
compare(struct sti_fetch *fetch, uint32_t crc)
{
    if (crc == fetch->request.crc) {
        take_bytes(fetch);
        return;
    }
    fetch->peering->n_corrupt++;
    fail(fetch);
}

static void
on_summed(struct sti_sum *sum)
{
    struct sti_fetch *fetch =
        (struct sti_fetch *)(void *)((char *)sum - offsetof(struct sti_fetch, sum));

    if (fetch->request.lies)
        sti_comm_took(fetch->peering->opts.comm, &fetch->request);
    compare(fetch, sum->crc);
}

static void
on_done(struct sti_comm_request *request)
{
    struct sti_fetch *fetch = request->context;
    bool is_whole = request->code == 0 && request->n_bytes == fetch->length && request->has_crc;

    fetch->peering->neighbours[fetch->holder].n_out--;
    if (request->result == -EAGAIN || (request->result == 0 && request->code == -EAGAIN)) {
        if (!ask_later(fetch))
            fail(fetch);
        return;
    }
    if (request->result != 0) {
        if (request->result != -ECANCELED)
            sti_peering_note(fetch->peering, fetch->holder, request->result);
        fail(fetch);
        return;
    }
    if (!is_whole) {
        if (request->lies)
            sti_comm_took(fetch->peering->opts.comm, request);
        fail(fetch);
        return;
    }
    if (request->is_summed) {
        compare(fetch, request->came_crc);
        return;
    }
    fetch->sum = (struct sti_sum){.bytes = request->lies ? request->lies : request->into,
                                  .into = request->lies ? request->into : NULL,
                                  .n_bytes = fetch->length,
                                  .done = on_summed};
    sti_peering_sum(fetch->peering, &fetch->sum);
}

static int
ask(struct sti_fetch *fetch)
{
    struct sti_peering *peering = fetch->peering;
    unsigned char message[STI_PEERING_MESSAGE_BYTES];

    sti_peering_write(message, STI_PEERING_FETCH, fetch->sample);
    fetch->n_tries++;
    fetch->request = (struct sti_comm_request){
        .peer = fetch->holder,
        .verb = peering->verb,
        .small = message,
        .n_small = sizeof(message),
        .into = sti_store_pointer(peering->fetcher->store, fetch->address),
        .into_bytes = fetch->length,
        .may_lie = true,
        .timeout_ns = peering->opts.timeout_ns,
        .wait_ns = PROMISE_TIMES * peering->opts.timeout_ns,
        .done = on_done,
        .context = fetch,
    };
    int rc = sti_comm_request(peering->opts.comm, &fetch->request);
    if (rc == 0)
        peering->neighbours[fetch->holder].n_out++;
    else if (rc != -EAGAIN && rc != -ECANCELED)
        sti_peering_note(peering, fetch->holder, rc);
    return rc;
}

/* Whether who was asked holds the sample, and does not only serve for its holder. */
static bool
is_by_plan(const struct sti_fetch *fetch)
{
    const struct sti_holders *holders = &fetch->peering->holders;
    uint32_t rank = sti_holders_next(holders, fetch->sample, holders->rank);

    while (rank != STI_HOLDERS_NOBODY && rank != fetch->holder)
        rank = sti_holders_next(holders, fetch->sample, rank);
    return rank == fetch->holder;
}

/* The holder has not given the sample: another, or the origin. */
static void
fail(struct sti_fetch *fetch)
{
    struct sti_peering *peering = fetch->peering;

    if (is_by_plan(fetch))
        peering->n_failed++; /* else it has not come there yet, or is there no more */
    while (fetch->n_tries < TRIES_MAX && !fetcher_of(fetch)->is_stopped) {
        fetch->holder = sti_peering_holder(peering, fetch->sample, fetch->holder);
        if (fetch->holder == STI_HOLDERS_NOBODY)
            break;
        if (ask(fetch) == 0)
            return;
    }
    fetch->next = peering->orphans;
    peering->orphans = fetch;
}

uint64_t
sti_fetcher_ask_again(struct sti_fetcher *fetcher)
{
    struct sti_peering *peering = fetcher->peering;
    struct sti_fetch *busy = peering->busy;
    uint64_t now_ns = busy ? sti_clock_ns() : 0, due_ns = UINT64_MAX;

    peering->busy = NULL;
    for (struct sti_fetch *fetch = busy, *next; fetch; fetch = next) {
        next = fetch->next;
        if (fetch->again_ns > now_ns && !fetcher->is_stopped) {
            due_ns = fetch->again_ns < due_ns ? fetch->again_ns : due_ns;
            fetch->next = peering->busy;
            peering->busy = fetch;
            continue;
        }
        fetch->n_tries--; /* the same try goes on */
        int rc = fetcher->is_stopped ? -ECANCELED : ask(fetch);
        if (rc == -EAGAIN && ask_later(fetch))
            due_ns = fetch->again_ns < due_ns ? fetch->again_ns : due_ns;
        else if (rc < 0)
            fail(fetch);
    }
    return due_ns == UINT64_MAX ? UINT64_MAX : due_ns - now_ns;
}

/* What sti_fetcher_read_peer() does when it may. */
static bool
begin(struct sti_fetcher *fetcher, uint32_t waiter, uint64_t sample, uint32_t holder,
      uint64_t next_use, bool is_relief)
{
    struct sti_peering *peering = fetcher->peering;
    struct sti_fetch *fetch = peering->free_fetches;

    uint64_t address = sti_fetcher_make_room(fetcher, sample);
    if (address == STI_STORE_NONE)
        return false;
    if (!sti_fetcher_begin_entry(fetcher, sample, address, waiter))
        return false;
    peering->free_fetches = fetch->next;
    peering->n_fetching++;
    fetch->is_used = true;
    fetch->sample = sample;
    fetch->address = address;
    fetch->length = sti_dataset_length(fetcher->opts.dataset, sample);
    fetch->next_use = next_use;
    fetch->holder = holder;
    fetch->n_tries = 0;
    fetch->n_busy = 0;
    fetch->is_relief = is_relief;
    peering->n_relieving += is_relief ? 1 : 0;
    int rc = ask(fetch);
    if (rc < 0 && (rc != -EAGAIN || !ask_later(fetch)))
        fail(fetch);
    return true;
}

bool
sti_fetcher_read_peer(struct sti_fetcher *fetcher, uint32_t waiter, uint64_t sample,
                      uint32_t holder, uint64_t next_use)
{
    const struct sti_peering *peering = fetcher->peering;

    return peering->n_fetching - peering->n_relieving < peering->opts.n_fetches &&
           sti_peering_may_ask(peering, holder) != STI_ASK_LATER &&
           begin(fetcher, waiter, sample, holder, next_use, false);
}

bool
sti_fetcher_read_for_others(struct sti_fetcher *fetcher, uint64_t sample, uint32_t holder)
{
    return sti_peering_may_relieve(fetcher->peering, holder) &&
           begin(fetcher, STI_NO_WAITER, sample, holder, STI_POSITION_UNKNOWN, true);
}

/* A copy that came for nobody, and does not: the origin is not asked for it. */
static void
forget(struct sti_fetcher *fetcher, struct sti_fetch *fetch, struct sti_entry *entry)
{
    sti_fetcher_put_memory(fetcher, fetch->sample, fetch->address);
    entry->state = STI_SAMPLE_ABSENT;
    sti_catalog_forget(fetcher->catalog, fetch->sample);
    give_back(fetch);
}

/* An orphan's place and waiters become those of a read. */
static void
adopt(struct sti_fetcher *fetcher, struct sti_fetch *fetch, struct sti_read *read)
{
    struct sti_ssd_place place;

    read->pieces[read->n_pieces++] = (struct sti_piece){.sample = fetch->sample,
                                                        .address = fetch->address,
                                                        .length = fetch->length,
                                                        .slot = {.segment = STI_SSD_NO_SLOT}};
    /* What this rank holds itself: who serves it, too, did not. */
    bool is_here = sti_ssd_find(fetcher->ssd, fetch->sample, &place);
    read->pieces[0].offset = is_here ? place.offset + STI_SSD_HEADER_BYTES : 0;
    sti_fetcher_account_again(fetcher, fetch->sample, STK_TIER_PEER,
                              is_here ? STK_TIER_SSD : STK_TIER_ORIGIN);
    give_back(fetch);
    if (is_here)
        sti_fetcher_read_ssd_again(fetcher, read, &place);
    else
        sti_fetcher_read_again(fetcher, read);
}

void
sti_fetcher_adopt_orphans(struct sti_fetcher *fetcher)
{
    struct sti_peering *peering = fetcher->peering;

    while (peering->orphans) {
        struct sti_fetch *fetch = peering->orphans;

        struct sti_entry *entry = sti_catalog_find(fetcher->catalog, fetch->sample);

        if (entry->pins == 0) {
            peering->orphans = fetch->next;
            forget(fetcher, fetch, entry);
            continue;
        }
        if (fetcher->is_stopped) {
            peering->orphans = fetch->next;
            give_back(fetch);
            sti_fetcher_lose(fetcher, fetch->sample, fetch->address, -ECANCELED);
            continue;
        }
        struct sti_read *read = sti_fetcher_new_read(fetcher, fetch->length);
        if (!read)
            return;
        peering->orphans = fetch->next;
        adopt(fetcher, fetch, read);
    }
}

void
sti_fetcher_cancel_fetches(struct sti_fetcher *fetcher)
{
    struct sti_peering *peering = fetcher->peering;

    for (uint32_t at = 0; at < peering->n_fetches; at++)
        if (peering->fetches[at].is_used)
            sti_comm_cancel(peering->opts.comm, &peering->fetches[at].request);
    (void)sti_fetcher_ask_again(fetcher); /* all of them end */
    sti_fetcher_adopt_orphans(fetcher);
}
