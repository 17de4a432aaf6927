/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks' agreement. Each tells all what it is about to read and how much it can hold;
 * everybody compares everybody with rank 0, so all find the same disagreement, and from the
 * same numbers everybody computes the same plan. Who cannot open its loader says so instead
 * of letting the others wait for it.
 *
 * The port is attached before the agreement: who has agreed may ask at once, and whoever it
 * asks has a place where that waits.
 */
#include "loader/share.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "engine/agree.h"
#include "loader/warm.h"

/* Of what ranks say to each other and of how they plan: what differs in it cannot work
 * together. */
#define SHARE_VERSION 3
#define FETCHES_MAX 256u
#define HORIZON_EPOCHS 8u

enum fact {
    FACT_VERSION, /* first: what the others mean depends on it */
    FACT_DATASET,
    FACT_ORDER,
    FACT_SAMPLES,
    FACT_WORLD,
    FACT_BATCH,
    FACT_DROP_LAST,
    FACT_EPOCHS,
    FACT_FIRST_EPOCH,
    FACT_LOOKED_AT,
    FACT_POLICY,
    FACT_REPLACE,
    FACTS_ALIKE, /* those before are the same on all ranks */
    FACT_CODE = FACTS_ALIKE,
    FACT_ROOM,
    FACT_SSD, /* free */
    FACT_TOTAL,
    FACT_WARM, /* bytes of the list of what its SSDs have */
    FACTS
};

static const char *const names[FACTS_ALIKE] = {
    [FACT_VERSION] = "version of the peers' protocol",
    [FACT_DATASET] = "data set fingerprint",
    [FACT_ORDER] = "order fingerprint (kind, sampler, seed, flags)",
    [FACT_SAMPLES] = "number of samples",
    [FACT_WORLD] = "world",
    [FACT_BATCH] = "batch_size",
    [FACT_DROP_LAST] = "drop_last",
    [FACT_EPOCHS] = "epochs",
    [FACT_FIRST_EPOCH] = "first epoch",
    [FACT_LOOKED_AT] = "number of epochs looked at",
    [FACT_POLICY] = "policy",
    [FACT_REPLACE] = "bad_sample",
};

static const struct sti_agreement agreement = {.names = names,
                                               .things = "the ranks' loaders",
                                               .doing = "open its loader",
                                               .n_alike = FACTS_ALIKE,
                                               .n = FACTS};

static uint64_t
fact_of(const uint64_t *all, uint32_t rank, enum fact fact)
{
    return all[(size_t)rank * FACTS + fact];
}

/* Epochs whose order the plan is made from. */
static uint64_t
epochs_looked_at(const struct sti_fetcher_opts *fetcher, uint64_t first_epoch)
{
    if (fetcher->epochs == 0)
        return fetcher->held_epochs > HORIZON_EPOCHS ? fetcher->held_epochs : HORIZON_EPOCHS;
    return fetcher->epochs > first_epoch ? fetcher->epochs - first_epoch : 1;
}

uint64_t
sti_share_total_bytes(const struct sti_fetcher_opts *fetcher, uint64_t ssd_bytes)
{
    uint64_t beside_bytes =
        fetcher->item_bytes > 0 ? fetcher->undecoded_bytes : fetcher->staging_bytes;
    uint64_t n_bytes = fetcher->ram_bytes + beside_bytes + ssd_bytes;
    uint64_t most = sti_dataset_bytes(fetcher->dataset);

    return n_bytes < most ? n_bytes : most;
}

static void
fill_facts(const struct sti_share_opts *opts, uint64_t warm_bytes, uint64_t facts[FACTS])
{
    const struct sti_fetcher_opts *fetcher = &opts->resolved->fetcher;

    memset(facts, 0, FACTS * sizeof(facts[0]));
    facts[FACT_VERSION] = SHARE_VERSION;
    facts[FACT_CODE] = (uint64_t)(int64_t)opts->code;
    if (opts->code == 0) {
        facts[FACT_DATASET] = sti_dataset_fingerprint(opts->dataset);
        facts[FACT_ORDER] = sti_order_fingerprint(&fetcher->order);
        facts[FACT_SAMPLES] = sti_dataset_count(opts->dataset);
        facts[FACT_WORLD] = fetcher->order.world;
        facts[FACT_BATCH] = fetcher->batch_size;
        facts[FACT_DROP_LAST] = fetcher->drop_last;
        facts[FACT_EPOCHS] = fetcher->epochs;
        facts[FACT_FIRST_EPOCH] = opts->first_epoch;
        facts[FACT_LOOKED_AT] = epochs_looked_at(fetcher, opts->first_epoch);
        facts[FACT_POLICY] = fetcher->shared_policy;
        facts[FACT_REPLACE] = fetcher->must_replace;
        facts[FACT_ROOM] = fetcher->ram_bytes;
        facts[FACT_SSD] = sti_fetcher_ssd_free_bytes(opts->fetcher);
        facts[FACT_TOTAL] = sti_share_total_bytes(fetcher, sti_fetcher_ssd_bytes(opts->fetcher));
        facts[FACT_WARM] = warm_bytes;
    }
}

/* The samples' sizes, where they differ. */
static int
make_sizes(const struct sti_dataset *dataset, uint32_t **ret_bytes)
{
    uint64_t n = sti_dataset_count(dataset);

    *ret_bytes = NULL;
    if (sti_dataset_uniform_bytes(dataset) > 0)
        return 0;
    *ret_bytes = sti_mem_new(n, sizeof(**ret_bytes));
    if (!*ret_bytes)
        return -ENOMEM;
    for (uint64_t sample = 0; sample < n; sample++) /* 1 GiB at most */
        (*ret_bytes)[sample] = (uint32_t)sti_dataset_length(dataset, sample);
    return 0;
}

int
sti_share_plan_opts(const struct sti_fetcher_opts *fetcher, uint64_t first_epoch,
                    struct sti_holders_opts *ret_opts, uint32_t **ret_bytes)
{
    uint64_t length = sti_order_length(&fetcher->order);
    int rc = make_sizes(fetcher->dataset, ret_bytes);

    if (rc < 0)
        return rc;
    *ret_opts = (struct sti_holders_opts){
        .order = fetcher->order,
        .first_epoch = first_epoch,
        .epochs = epochs_looked_at(fetcher, first_epoch),
        .used_length = fetcher->drop_last ? length - length % fetcher->batch_size : length,
        .bytes = *ret_bytes,
        .same_bytes = (uint32_t)sti_dataset_uniform_bytes(fetcher->dataset),
        .is_paper = fetcher->shared_policy == STK_POLICY_PAPER,
    };
    return 0;
}

/* What is to be known of each rank to plan anew later. rooms: in memory, then free on
 * SSDs. */
static int
plan_later(struct sti_share *share, const struct sti_dataset *dataset, const uint64_t *rooms,
           const uint16_t *rank_of)
{
    const struct sti_holders *holders = &share->peering->holders;
    uint32_t world = holders->world;
    struct sti_relief_rank *ranks = sti_mem_new(world, sizeof(*ranks));
    uint64_t *cold_bytes = sti_mem_new(world, sizeof(*cold_bytes));
    int rc = ranks && cold_bytes ? 0 : -ENOMEM;

    for (uint64_t sample = 0; rc == 0 && sample < holders->n_samples; sample++) {
        uint16_t rank = holders->first[sample];

        if (rank >= world)
            continue;
        ranks[rank].held_bytes += sti_dataset_length(dataset, sample);
        if (!rank_of || rank_of[sample] == STI_ASSIGN_COLD)
            cold_bytes[rank] += sti_dataset_length(dataset, sample);
    }
    for (uint32_t rank = 0; rc == 0 && rank < world; rank++) {
        const uint64_t *ssd_bytes = rooms + world;

        /* What memory holds goes onto SSDs as well, where there is room. */
        if (ssd_bytes[rank] > cold_bytes[rank])
            ranks[rank].spare_bytes = ssd_bytes[rank] - cold_bytes[rank];
        if (rooms[rank] > ranks[rank].held_bytes)
            ranks[rank].spare_bytes += rooms[rank] - ranks[rank].held_bytes;
    }
    if (rc == 0)
        rc = sti_replan_init(share->peering, dataset, ranks,
                             rooms[holders->rank] > holders->mine_bytes
                                 ? rooms[holders->rank] - holders->mine_bytes
                                 : 0);
    sti_mem_free(cold_bytes);
    sti_mem_free(ranks);
    return rc;
}

/* rank_of: what SSDs have already, or NULL. */
static int
plan(struct sti_share *share, const struct sti_share_opts *opts, const uint64_t *all,
     const uint16_t *rank_of)
{
    uint32_t world = opts->resolved->fetcher.order.world;
    uint64_t *rooms = sti_mem_new(world, 2 * sizeof(*rooms));
    uint64_t ssd_bytes = 0;
    uint32_t *bytes = NULL;
    struct sti_holders_opts holders;
    int rc =
        rooms ? sti_share_plan_opts(&opts->resolved->fetcher, opts->first_epoch, &holders, &bytes)
              : -ENOMEM;

    if (rc == 0) {
        holders.room_bytes = rooms;
        for (uint32_t rank = 0; rank < world; rank++) {
            rooms[rank] = fact_of(all, rank, FACT_ROOM);
            rooms[world + rank] = fact_of(all, rank, FACT_SSD);
            ssd_bytes += rooms[world + rank];
            holders.total_bytes += fact_of(all, rank, FACT_TOTAL);
        }
        holders.ssd_bytes = ssd_bytes > 0 || rank_of ? rooms + world : NULL;
        holders.warm = rank_of;
        rc = sti_peering_plan(share->peering, &holders);
        if (rc == 0 && share->peering->holders.first)
            rc = plan_later(share, opts->dataset, rooms, rank_of);
        if (rc == 0)
            sti_fetcher_begin_plan(opts->fetcher);
    }
    sti_mem_free(bytes);
    sti_mem_free(rooms);
    return rc;
}

static void
wake_loop(void *loop)
{
    sti_loop_wake(loop);
}

/* Tells and hears what SSDs have already, and makes the plan. */
static int
plan_with_warm(struct sti_share *share, const struct sti_share_opts *opts, struct sti_warm *warm,
               const uint64_t *all, stk_error *err)
{
    uint32_t world = sti_comm_world(sti_peers_comm(share->peers));
    uint64_t *lengths = sti_mem_new(world, sizeof(*lengths));
    int rc = lengths ? 0 : -ENOMEM;

    for (uint32_t rank = 0; rc == 0 && rank < world; rank++) {
        lengths[rank] = fact_of(all, rank, FACT_WARM);
        if (lengths[rank] > STI_WARM_MOST_BYTES)
            rc = -EBADMSG;
    }
    if (rc < 0)
        (void)sti_error_set(err, rc, "no list of what the ranks' SSDs have: %s",
                            sti_error_text(rc));
    else
        rc = sti_warm_exchange(warm, share->peers, lengths, sti_dataset_count(opts->dataset), err);
    sti_mem_free(lengths);
    if (rc < 0)
        return rc;
    rc = plan(share, opts, all, warm->rank_of);
    return rc < 0 ? sti_error_set(err, rc, "no memory for the plan of who holds which sample") : 0;
}

int
sti_share_init(struct sti_share *share, struct sti_engine *engine, stk_error *err)
{
    *share = (struct sti_share){.peers = sti_engine_peers(engine)};
    uint32_t n_fetches = 2 * sti_engine_queue_depth(engine);
    const struct sti_peering_opts peering_opts = {
        .comm = sti_peers_comm(share->peers),
        .pool = sti_engine_pool(engine),
        .wake = wake_loop,
        .wake_context = sti_engine_loop(engine),
        .n_fetches = n_fetches < FETCHES_MAX ? n_fetches : FETCHES_MAX,
        .timeout_ns = sti_peers_timeout_ns(share->peers),
        .close_timeout_ns = sti_peers_close_timeout_ns(share->peers),
    };
    int rc = sti_peering_new(&share->peering, &peering_opts);

    if (rc < 0)
        return sti_error_set(err, rc, "no memory for what ranks ask each other");
    share->port = (struct sti_port){
        .context = share->peering, .request = sti_peering_on_request, .peer = sti_peering_on_peer};
    rc = sti_peers_attach(share->peers, &share->port);
    if (rc < 0) {
        sti_peering_free(share->peering);
        share->peering = NULL;
        return sti_error_set(err, rc,
                             "more loaders have been opened than one engine can tell apart");
    }
    share->peering->verb = share->port.verb;
    return 0;
}

int
sti_share_meet(struct sti_share *share, stk_error *err)
{
    uint32_t world = sti_comm_world(sti_peers_comm(share->peers));
    const unsigned char mine = 0;
    unsigned char *all = sti_mem_new(world, 1);
    int rc = all ? sti_peers_gather(share->peers, &mine, 1, all, err) : -ENOMEM;

    if (!all)
        (void)sti_error_set(err, rc, "no memory to meet %" PRIu32 " ranks", world);
    sti_mem_free(all);
    return rc;
}

int
sti_share_open(struct sti_share *share, const struct sti_share_opts *opts, stk_error *err)
{
    uint32_t world = sti_comm_world(sti_peers_comm(share->peers));
    uint64_t *all = sti_mem_new(world, FACTS * sizeof(*all));
    struct sti_warm warm = {0};
    uint64_t mine[FACTS];

    if (!all)
        return sti_error_set(err, -ENOMEM, "no memory for what %" PRIu32 " ranks say", world);
    int rc = 0;
    if (opts->code == 0)
        rc = sti_warm_init(&warm, opts->fetcher, sti_dataset_count(opts->dataset));
    if (rc < 0)
        warm.n_bytes = 0; /* its SSDs serve it all the same, and others do not know */
    fill_facts(opts, warm.n_bytes, mine);
    rc = sti_agree(share->peers, &agreement, mine, all, err);
    if (rc == 0)
        rc = plan_with_warm(share, opts, &warm, all, err);
    sti_warm_fini(&warm);
    sti_mem_free(all);
    return rc;
}

void
sti_share_close(struct sti_share *share)
{
    if (!share->peering)
        return;
    sti_peers_detach(share->peers, &share->port, sti_peering_refuse);
    sti_peering_free(share->peering);
    *share = (struct sti_share){0};
}
