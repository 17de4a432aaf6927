/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks_util.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct meeting {
    pthread_barrier_t barrier;
    stk_comm_hub *hub;
    unsigned char *cards;
};

const char *const *
comms(void)
{
    static const char *methods[3] = {"local"};
#ifdef STI_HAVE_UCX
    const char *wanted = getenv("STOKER_TEST_METHODS");

    /* ThreadSanitizer sees the method whose threads are ours. */
    if (!wanted || strstr(wanted, "ucx"))
        methods[1] = "ucx";
#endif
    return methods;
}

void
job_meet(struct job *job)
{
    struct meeting *meeting = job->meeting;

    (void)pthread_barrier_wait(&meeting->barrier);
}

static int
exchange(void *context, const void *mine, size_t n_bytes, void *all)
{
    struct rank *rank = context;
    struct meeting *meeting = rank->job->meeting;

    memcpy(meeting->cards + rank->rank * n_bytes, mine, n_bytes);
    job_meet(rank->job);
    memcpy(all, meeting->cards, rank->job->world * n_bytes);
    job_meet(rank->job);
    return 0;
}

static void
open_engine(struct rank *rank)
{
    struct job *job = rank->job;
    char tiers[256];
    struct meeting *meeting = job->meeting;
    bool is_local = !job->comm || strcmp(job->comm, "local") == 0;
    char node[16];

    (void)snprintf(node, sizeof(node), "node%u", job->per_node ? rank->rank / job->per_node : 0);
    const stk_comm_opts comm = {STK_COMM_OPTS_INIT,
                                .rank = rank->rank,
                                .world = job->world,
                                .method = job->comm,
                                .hub = is_local ? meeting->hub : NULL,
                                .node = job->per_node ? node : NULL,
                                .exchange = exchange,
                                .exchange_context = rank,
                                .start_timeout_ms = 20000,
                                .timeout_ms = job->timeout_ms,
                                .close_timeout_ms = job->close_timeout_ms,
                                .tiers_per_rank = job->tiers_per_rank || job->caches};
    (void)snprintf(tiers, sizeof(tiers), "%s", job->tiers ? job->tiers : "");
    if (job->caches)
        (void)snprintf(tiers, sizeof(tiers), "%s ssd:%s/%u:%lu", job->tiers, job->caches,
                       rank->rank, (unsigned long)job->ssd_bytes);
    const stk_engine_opts opts = {STK_ENGINE_OPTS_INIT, .io_method = job->method,
                                  .tiers = tiers,       .workers = 1,
                                  .queue_depth = 16,    .io_threads = 2,
                                  .comm = &comm,        .ssd_shape = job->ssd_shapes[rank->rank]};

    rank->engine = engine_open_by(&opts);
}

void
rank_follow(struct rank *rank, uint64_t epoch, uint64_t end_epoch)
{
    const struct course course = {
        .set = rank->job->set, .opts = &rank->opts, .epoch = epoch, .end_epoch = end_epoch};

    rank->batches += follow(rank->loader, &course);
}

static void
finish(struct rank *rank)
{
    assert_int_equal(stk_loader_leave(rank->loader), 0);
    rank->stats = loader_stats(rank->loader, UINT64_MAX);
    rank->engine_stats = engine_stats(rank->engine);
    stk_error warning;

    rank->warned = stk_loader_last_warning(rank->loader, &warning);
    if (rank->warned != -ENOENT)
        print_message("rank %u warns: %s: %s\n", rank->rank, warning.path, warning.message);
    for (uint64_t epoch = 0; epoch < rank->opts.epochs && epoch < 8; epoch++) {
        rank->epochs[epoch] = (stk_loader_stats){STK_LOADER_STATS_INIT};
        (void)stk_loader_get_stats(rank->loader, epoch, &rank->epochs[epoch]); /* if there is */
    }
    stk_loader_close(rank->loader);
}

static void
run_loader(struct rank *rank)
{
    struct job *job = rank->job;

    rank->dataset = dataset_open(rank->engine, job->set);
    rank->order = job->order;
    rank->order.world = job->world;
    rank->order.rank = rank->rank;
    rank->opts = job->opts;
    rank->opts.order = &rank->order;
    if (job->change)
        job->change(rank);
    rank->opened =
        stk_loader_open(&rank->loader, rank->engine, rank->dataset, &rank->opts, &rank->err);
    if (rank->opened == 0) {
        if (job->work)
            job->work(rank);
        else
            rank_follow(rank, 0, rank->opts.epochs);
        finish(rank);
    } else if (!job->change) {
        print_error("rank %u: %s\n", rank->rank, rank->err.message);
    }
    stk_dataset_close(rank->dataset);
}

static void *
run_rank(void *context)
{
    struct rank *rank = context;

    open_engine(rank);
    if (rank->job->set)
        run_loader(rank);
    else
        rank->job->work(rank);
    stk_engine_close(rank->engine);
    return NULL;
}

void
job_run(struct job *job)
{
    struct meeting meeting;
    pthread_t threads[RANKS_MAX];

    assert_true(job->world <= RANKS_MAX);
    assert_int_equal(stk_comm_hub_new(&meeting.hub, job->world, NULL), 0);
    assert_int_equal(pthread_barrier_init(&meeting.barrier, NULL, job->world), 0);
    meeting.cards = calloc(job->world, 1 << 16);
    assert_non_null(meeting.cards);
    job->meeting = &meeting;
    for (uint32_t rank = 0; rank < job->world; rank++) {
        job->ranks[rank] = (struct rank){.job = job, .rank = rank};
        assert_int_equal(pthread_create(&threads[rank], NULL, run_rank, &job->ranks[rank]), 0);
    }
    for (uint32_t rank = 0; rank < job->world; rank++)
        assert_int_equal(pthread_join(threads[rank], NULL), 0);
    free(meeting.cards);
    (void)pthread_barrier_destroy(&meeting.barrier);
    stk_comm_hub_free(meeting.hub);
}

uint64_t
job_origin_bytes(const struct job *job)
{
    uint64_t n_bytes = 0;

    for (uint32_t rank = 0; rank < job->world; rank++)
        n_bytes += job->ranks[rank].stats.origin_bytes;
    return n_bytes;
}

uint64_t
job_tier_samples(const struct job *job, stk_tier tier)
{
    uint64_t n = 0;

    for (uint32_t rank = 0; rank < job->world; rank++)
        n += job->ranks[rank].stats.tier_samples[tier];
    return n;
}
