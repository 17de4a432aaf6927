/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More ranks than a peer can listen to at a time: one holds everything, and eighty ask it for as
 * much as they may. Who is told that there is too much to do asks again, and nothing is read
 * twice.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader_util.h"

#define WORLD 80u
#define BATCH 32u
#define EACH (2 * BATCH) /* samples of an epoch for each rank */
#define EPOCHS 3u

struct rank {
    pthread_t thread;
    uint32_t rank;
    stk_comm_hub *hub;
    const struct set *set;
    stk_loader_stats stats;
    uint64_t batches;
};

static struct rank ranks[WORLD];
static pthread_barrier_t barrier;
static unsigned char *cards;

static int
exchange(void *context, const void *mine, size_t n_bytes, void *all)
{
    const struct rank *rank = context;

    memcpy(cards + rank->rank * n_bytes, mine, n_bytes);
    (void)pthread_barrier_wait(&barrier);
    memcpy(all, cards, WORLD * n_bytes);
    (void)pthread_barrier_wait(&barrier);
    return 0;
}

static void *
run(void *context)
{
    struct rank *rank = context;
    const stk_comm_opts comm = {STK_COMM_OPTS_INIT, .rank = rank->rank, .world = WORLD,
                                .hub = rank->hub, .exchange = exchange, .exchange_context = rank,
                                .tiers_per_rank = 1,
                                /* However slow the machine: nobody is given up. */
                                .timeout_ms = 300000};
    const stk_engine_opts engine_opts = {
        STK_ENGINE_OPTS_INIT, .io_method = "sync", .tiers = "ram:32M", .workers = 1,
        .queue_depth = 64,    .io_threads = 1,     .comm = &comm};
    const stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 7, .world = WORLD,
                                  .rank = rank->rank};
    const stk_loader_opts opts = {STK_LOADER_OPTS_INIT,
                                  .batch_size = BATCH,
                                  .epochs = EPOCHS,
                                  .layout = STK_LAYOUT_RAW,
                                  .order = &order,
                                  .ram_bytes = rank->rank == 0 ? rank->set->bytes : 1,
                                  .staging_bytes = 3 * EACH * rank->set->lengths[0] / 2};
    const struct course course = {.set = rank->set, .opts = &opts, .end_epoch = EPOCHS};
    stk_engine *engine = engine_open_by(&engine_opts);
    stk_dataset *dataset = dataset_open(engine, rank->set);
    stk_loader *loader = loader_open(engine, dataset, &opts);

    rank->batches = follow(loader, &course);
    assert_int_equal(stk_loader_leave(loader), 0);
    rank->stats = loader_stats(loader, UINT64_MAX);
    stk_loader_close(loader);
    stk_dataset_close(dataset);
    stk_engine_close(engine);
    return NULL;
}

static void
one_holder_serves_a_crowd(void **state)
{
    static struct set set;
    uint64_t origin_bytes = 0, n_failed = 0;
    stk_comm_hub *hub;

    (void)state;
    set_make(&set, SET_FILES, (uint64_t)WORLD * EACH);
    cards = calloc(WORLD, 1 << 16);
    assert_non_null(cards);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, WORLD), 0);
    assert_int_equal(stk_comm_hub_new(&hub, WORLD, NULL), 0);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        ranks[rank] = (struct rank){.rank = rank, .hub = hub, .set = &set};
        assert_int_equal(pthread_create(&ranks[rank].thread, NULL, run, &ranks[rank]), 0);
    }
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        assert_int_equal(pthread_join(ranks[rank].thread, NULL), 0);
        assert_int_equal(ranks[rank].batches, EPOCHS * EACH / BATCH);
        origin_bytes += ranks[rank].stats.origin_bytes;
        n_failed += ranks[rank].stats.peer_failed;
    }
    print_message("%lu of %lu bytes from the origin, %lu fetches failed\n",
                  (unsigned long)origin_bytes, (unsigned long)set.bytes, (unsigned long)n_failed);
    assert_int_equal(origin_bytes, set.bytes);
    assert_int_equal(n_failed, 0);
    stk_comm_hub_free(hub);
    (void)pthread_barrier_destroy(&barrier);
    free(cards);
    set_remove(&set);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_holder_serves_a_crowd)};

    return cmocka_run_group_tests(tests, watchdog, NULL);
}
