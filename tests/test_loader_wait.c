/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wait for the order: a full store evicts nothing before it is known what the next
 * epoch reads, however late that becomes known, and no such wait lasts. Orders are late
 * here because the engine's only worker is busy decoding for another loader, because they
 * are long, or because a jump has made them worthless; stores hold little more than they
 * must, batches are held as long as they may be, and calls are interrupted.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader_util.h"

#define N_SMALL 60
#define N_LONG 50000 /* an order that takes a while */
#define BORROW_MOST 4
#define ROUNDS 8
#define STEPS 80

static struct set files, sizes, many, noise_set;

static int
make_sets(void **state)
{
    (void)watchdog(state);
    set_make(&files, SET_FILES, N_SMALL);
    set_make(&sizes, SET_SIZES, N_SMALL);
    set_make(&many, SET_WINDOWS, N_LONG);
    set_make(&noise_set, SET_RECORDS, 500);
    return 0;
}

static int
remove_sets(void **state)
{
    (void)state;
    set_remove(&files);
    set_remove(&sizes);
    set_remove(&many);
    set_remove(&noise_set);
    return 0;
}

static void
pause_us(uint64_t us)
{
    const struct timespec time = {.tv_nsec = (long)(us * 1000)};

    (void)nanosleep(&time, NULL);
}

/* ---- a busy engine ----------------------------------------------------------------- */

/* Another loader whose decoding takes the worker's time, and its consumer. */
struct noise {
    pthread_t thread;
    stk_dataset *dataset;
    stk_loader *loader;
    atomic_bool is_ending;
    atomic_uint least_us; /* of an item's decoding */
};

static int
decode_slowly(void *context, const stk_decode_args *args)
{
    const struct noise *noise = context;

    pause_us(atomic_load(&noise->least_us) + args->seed % 300);
    memcpy(args->slot, args->bytes, args->item_bytes);
    return 0;
}

static void *
consume_noise(void *context)
{
    struct noise *noise = context;
    stk_batch batch;

    while (!atomic_load(&noise->is_ending) && stk_loader_next(noise->loader, &batch) == STK_BATCH)
        (void)stk_loader_release(noise->loader, &batch);
    return NULL;
}

static void
start_noise(struct noise *noise, stk_engine *engine)
{
    const stk_loader_opts opts = {STK_LOADER_OPTS_INIT,    .batch_size = 8,
                                  .decode = decode_slowly, .decode_context = noise,
                                  .item_bytes = 100,       .staging_batches = 8,
                                  .ram_bytes = 1 << 16};

    memset(noise, 0, sizeof(*noise));
    atomic_store(&noise->least_us, 100);
    noise->dataset = dataset_open(engine, &noise_set);
    noise->loader = loader_open(engine, noise->dataset, &opts);
    assert_int_equal(pthread_create(&noise->thread, NULL, consume_noise, noise), 0);
}

static void
stop_noise(struct noise *noise)
{
    atomic_store(&noise->is_ending, true);
    stk_loader_interrupt(noise->loader);
    assert_int_equal(pthread_join(noise->thread, NULL), 0);
    stk_loader_close(noise->loader);
    stk_dataset_close(noise->dataset);
}

/* ---- random use -------------------------------------------------------------------- */

struct round {
    const struct set *set;
    stk_order_opts order;
    stk_loader_opts opts;
    stk_loader *loader;
    stk_batch held[BORROW_MOST];
    uint32_t n_held;
    uint64_t n_pushed;
    uint64_t seed;
};

static uint64_t
one_of(struct round *round, uint64_t n)
{
    return draw(&round->seed) % n;
}

static uint64_t
largest(const struct set *set)
{
    uint64_t most = 0;

    for (uint64_t sample = 0; sample < set->n; sample++)
        if (set->lengths[sample] > most)
            most = set->lengths[sample];
    return most;
}

static void
draw_round(struct round *round, uint64_t seed)
{
    static const struct set *const kinds[] = {&files, &sizes, &many};
    static const uint32_t orders[] = {STK_ORDER_TORCH, STK_ORDER_TORCH, STK_ORDER_TORCH,
                                      STK_ORDER_KEYED, STK_ORDER_LIST};

    *round = (struct round){.seed = seed};
    round->set = kinds[one_of(round, 3)];
    round->order = (stk_order_opts){STK_ORDER_OPTS_INIT, .kind = orders[one_of(round, 5)],
                                    .seed = (int64_t)one_of(round, 100)};
    if (round->order.kind != STK_ORDER_LIST && one_of(round, 3) == 0) {
        round->order.world = 3;
        round->order.rank = (uint32_t)one_of(round, 3);
    }
    round->opts = (stk_loader_opts){STK_LOADER_OPTS_INIT, .order = &round->order};
    round->opts.batch_size = 1 + (uint32_t)one_of(round, round->set == &many ? 2000 : 7);
    round->opts.epochs = one_of(round, 2) ? 0 : 1 + one_of(round, 6);
    round->opts.horizon_epochs = (uint32_t)one_of(round, 4);
    round->opts.borrow_max = 1 + (uint32_t)one_of(round, BORROW_MOST);
    round->opts.layout =
        round->set != &sizes && one_of(round, 2) ? STK_LAYOUT_FIXED : STK_LAYOUT_RAW;
    uint64_t least = round->opts.borrow_max < 2 ? 2 : round->opts.borrow_max;
    least *= round->opts.batch_size * largest(round->set);
    round->opts.staging_bytes = least + (one_of(round, 2) ? one_of(round, least) : 0);
    round->opts.ram_bytes = 1 + one_of(round, round->set->bytes / 2);
}

static void
push_some(struct round *round)
{
    uint64_t ids[64];
    uint64_t n = 1 + one_of(round, 64);

    for (uint64_t at = 0; at < n; at++)
        ids[at] = one_of(round, round->set->n);
    int rc = stk_loader_push(round->loader, ids, n, one_of(round, 4) == 0, 0);
    assert_true(rc == 0 || rc == -ENOSPC);
    if (rc == 0)
        round->n_pushed += n;
}

static void
give_back(struct round *round)
{
    uint32_t out = (uint32_t)one_of(round, round->n_held);

    assert_int_equal(stk_loader_release(round->loader, &round->held[out]), 0);
    round->held[out] = round->held[--round->n_held];
}

/* One call of next. Returns whether there may be more. */
static bool
take_next(struct round *round)
{
    stk_batch *batch = &round->held[round->n_held];

    if (one_of(round, 8) == 0)
        stk_loader_interrupt(round->loader);
    int rc = stk_loader_next(round->loader, batch);
    while (rc == -EINTR)
        rc = stk_loader_next(round->loader, batch);
    if (rc == -EAGAIN) { /* a list */
        assert_int_equal(round->order.kind, STK_ORDER_LIST);
        push_some(round);
        return true;
    }
    if (rc == STK_END)
        return false;
    assert_int_equal(rc, STK_BATCH);
    check_bytes(round->set, batch);
    round->n_held++;
    return true;
}

static void
seek_somewhere(struct round *round)
{
    uint64_t n = round->set->n;
    uint64_t length = round->order.world > 1 ? (n + 2) / 3 : n;
    uint64_t batches = (length + round->opts.batch_size - 1) / round->opts.batch_size;

    while (round->n_held > 0)
        give_back(round);
    uint64_t epoch = one_of(round, round->opts.epochs ? round->opts.epochs : 9);
    assert_int_equal(stk_loader_seek(round->loader, epoch, one_of(round, batches)), 0);
}

static void
use(struct round *round)
{
    for (int step = 0; step < STEPS; step++) {
        uint64_t what = one_of(round, 60);

        if (what == 0 && round->order.kind != STK_ORDER_LIST) {
            seek_somewhere(round);
        } else if (what < 4) {
            pause_us(one_of(round, 3000));
        } else if (round->n_held == round->opts.borrow_max || (round->n_held > 0 && what < 20)) {
            give_back(round);
        } else if (!take_next(round)) {
            if (round->order.kind == STK_ORDER_LIST)
                return;
            seek_somewhere(round);
        }
    }
}

static void
no_wait_lasts(void **state)
{
    const char *is_long = getenv("STOKER_TEST_LONG"); /* NOLINT(concurrency-mt-unsafe) */
    uint64_t n = is_long ? 40 * ROUNDS : ROUNDS;

    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (uint64_t at = 0; at < n; at++) {
            const stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT, .io_method = *method,
                                                 .workers = 1 + (uint32_t)at % 2,
                                                 .tiers = "ram:64M"};
            stk_engine *engine = engine_open_by(&engine_opts);
            struct noise noise;
            struct round round;

            (void)alarm(240); /* for each round anew */
            draw_round(&round, 4242 + at);
            start_noise(&noise, engine);
            stk_dataset *dataset = dataset_open(engine, round.set);
            round.loader = loader_open(engine, dataset, &round.opts);
            use(&round);
            stk_loader_close(round.loader); /* with batches out, an order in the making */
            stk_dataset_close(dataset);
            stop_noise(&noise);
            stk_engine_close(engine);
        }
}

/* However late the order, the bound is met: a consumer that always waits is what would
 * once have made the store guess. */
static void
a_late_order_costs_no_reads(void **state)
{
    static const struct set *const kinds[] = {&files, &many};

    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (int at = 0; at < 4; at++) {
            const struct set *set = kinds[at % 2];
            const stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT, .io_method = *method,
                                                 .workers = 1, .tiers = "ram:64M"};
            stk_engine *engine = engine_open_by(&engine_opts);
            const stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = at};
            stk_loader_opts opts = {STK_LOADER_OPTS_INIT,
                                    .batch_size = (uint32_t)set->n / 30,
                                    .epochs = 5,
                                    .layout = at & 2 ? STK_LAYOUT_FIXED : STK_LAYOUT_RAW,
                                    .ram_bytes = set->bytes / 4,
                                    .order = &order};
            struct noise noise;

            opts.staging_bytes = 3 * opts.batch_size * largest(set);
            start_noise(&noise, engine);
            stk_dataset *dataset = dataset_open(engine, set);
            stk_loader *loader = loader_open(engine, dataset, &opts);
            const struct course whole = {.set = set, .opts = &opts, .end_epoch = 5};
            (void)follow(loader, &whole);
            stk_loader_stats stats = loader_stats(loader, UINT64_MAX);
            if (stats.origin_bytes > stats.bound_bytes + largest(set))
                fail_msg("round %d: origin %lu, bound %lu", at, (unsigned long)stats.origin_bytes,
                         (unsigned long)stats.bound_bytes);
            assert_true(stats.origin_bytes >= stats.bound_bytes);
            stk_loader_close(loader);
            stk_dataset_close(dataset);
            stop_noise(&noise);
            stk_engine_close(engine);
        }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_wait_lasts),
        cmocka_unit_test(a_late_order_costs_no_reads),
    };

    return cmocka_run_group_tests(tests, make_sets, remove_sets);
}
