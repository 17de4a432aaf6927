/* SPDX-License-Identifier: Apache-2.0 */
/* Loaders of any options, used in any way: random, and the same in every run. Each batch
 * is compared with what the order says, with substitutes where files are missing. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader_util.h"

#define N 90
#define EPOCHS 5
#define ROUNDS 60
#define STEPS 60
#define BORROW_MOST 6

static struct set sets[SET_KINDS];
static uint64_t first_seed = 1000; /* another one by argument, for long runs by hand */
static const uint64_t missing[] = {0, 17, 18, 19, 55, N - 1};

static int
make_sets(void **state)
{
    (void)watchdog(state);
    for (int kind = 0; kind < SET_KINDS; kind++)
        set_make(&sets[kind], (enum set_kind)kind, N);
    return 0;
}

static int
remove_sets(void **state)
{
    (void)state;
    for (int kind = 0; kind < SET_KINDS; kind++)
        set_remove(&sets[kind]);
    return 0;
}

/* Everything that a round was drawn. */
struct round {
    const struct set *set;
    bool has_missing; /* with replace */
    stk_order_opts order;
    stk_loader_opts opts;
    uint64_t batches; /* of an epoch */
    stk_loader *loader;
    stk_batch held[BORROW_MOST];
    uint32_t n_held;
    uint32_t borrow_max;
    uint64_t epoch; /* of the next batch */
    uint64_t epoch_step;
    uint64_t *ids; /* of ids_epoch */
    uint64_t ids_epoch;
    uint64_t n;
    uint64_t seed;
};

static uint64_t
one_of(struct round *round, uint64_t n)
{
    return draw(&round->seed) % n;
}

static void
draw_order(struct round *round)
{
    static const uint32_t kinds[] = {STK_ORDER_TORCH, STK_ORDER_KEYED, STK_ORDER_SEQUENTIAL};
    stk_order_opts *order = &round->order;

    *order = (stk_order_opts){STK_ORDER_OPTS_INIT, .kind = kinds[one_of(round, 3)]};
    order->seed = (int64_t)one_of(round, 1000);
    if (one_of(round, 2)) {
        order->world = 1 + (uint32_t)one_of(round, 4);
        order->rank = (uint32_t)one_of(round, order->world);
    } else if (order->kind == STK_ORDER_TORCH && one_of(round, 2)) {
        order->sampler = STK_SAMPLER_DATALOADER;
        order->num_samples = 20 + one_of(round, 3 * N);
        order->replacement = (uint32_t)one_of(round, 2);
    }
}

static int
copy_head(void *context, const stk_decode_args *args)
{
    (void)context;
    memset(args->slot, 0, args->item_bytes);
    memcpy(args->slot, args->bytes,
           args->n_bytes < args->item_bytes ? args->n_bytes : args->item_bytes);
    return 0;
}

static uint64_t
least_staging(const struct round *round)
{
    uint64_t item_bytes = round->opts.decode ? round->opts.item_bytes : 0;

    for (uint64_t sample = 0; sample < N && !round->opts.decode; sample++)
        if (round->set->lengths[sample] > item_bytes)
            item_bytes = round->set->lengths[sample];
    return (round->borrow_max < 2 ? 2 : round->borrow_max) * round->opts.batch_size * item_bytes;
}

static void
draw_opts(struct round *round)
{
    stk_loader_opts *opts = &round->opts;

    *opts = (stk_loader_opts){STK_LOADER_OPTS_INIT, .epochs = EPOCHS, .order = &round->order};
    opts->batch_size = 1 + (uint32_t)one_of(round, 20);
    opts->drop_last = (uint32_t)one_of(round, 2);
    opts->policy = (uint32_t)one_of(round, 5);
    opts->borrow_max = (uint32_t)one_of(round, BORROW_MOST + 1);
    opts->ram_bytes = one_of(round, 2) ? 0 : 1 + one_of(round, 1 << 20);
    opts->retries = one_of(round, 2) ? STK_NONE : 0;
    round->borrow_max = opts->borrow_max ? opts->borrow_max : 2;
    if (one_of(round, 2))
        opts->staging_batches =
            (round->borrow_max < 2 ? 2 : round->borrow_max) + (uint32_t)one_of(round, 5);
    if (one_of(round, 3) == 0) {
        opts->decode = copy_head;
        opts->item_bytes = 1 + one_of(round, 64);
    } else if (one_of(round, 2)) {
        opts->layout = STK_LAYOUT_RAW;
    }
    opts->staging_bytes = least_staging(round) + one_of(round, 3) * one_of(round, 1 << 19);
    if (round->has_missing)
        opts->bad_sample = STK_BAD_REPLACE;
}

static uint64_t
really(const struct round *round, uint64_t sample)
{
    for (size_t at = 0; round->has_missing && at < 2 * sizeof(missing) / sizeof(missing[0]); at++)
        if (missing[at % (sizeof(missing) / sizeof(missing[0]))] == sample)
            sample = (sample + 1) % N;
    return sample;
}

static void
check_held(const struct round *round, const stk_batch *batch)
{
    const struct set *set = round->set;

    if (!round->opts.decode) {
        check_bytes(set, batch);
        return;
    }
    for (uint32_t item = 0; item < batch->count; item++) {
        uint64_t sample = batch->samples[item];
        uint64_t n_bytes = set->lengths[sample] < round->opts.item_bytes ? set->lengths[sample]
                                                                         : round->opts.item_bytes;

        assert_memory_equal(batch->items[item], set->contents + set->offsets[sample], n_bytes);
    }
}

static void
take_next(struct round *round)
{
    stk_batch *batch = &round->held[round->n_held];
    int rc = stk_loader_next(round->loader, batch);

    if (round->n_held == round->borrow_max) {
        assert_int_equal(rc, STK_E_BORROW);
        return;
    }
    if (round->epoch == EPOCHS) {
        assert_int_equal(rc, STK_END);
        return;
    }
    assert_int_equal(rc, STK_BATCH);
    if (!round->ids || round->ids_epoch != round->epoch) {
        free(round->ids);
        round->ids = expected_ids(round->set, &round->order, round->epoch, &round->n);
        round->ids_epoch = round->epoch;
    }
    assert_int_equal(batch->epoch, round->epoch);
    assert_int_equal(batch->epoch_step, round->epoch_step);
    for (uint32_t item = 0; item < batch->count; item++)
        assert_int_equal(
            batch->samples[item],
            really(round, round->ids[round->epoch_step * round->opts.batch_size + item]));
    check_held(round, batch);
    round->n_held++;
    round->epoch_step++;
    assert_int_equal(batch->last_of_epoch, round->epoch_step == round->batches);
    if (round->epoch_step == round->batches) {
        round->epoch++;
        round->epoch_step = 0;
    }
}

static void
give_back(struct round *round)
{
    if (round->n_held == 0)
        return;
    uint64_t at = one_of(round, round->n_held);
    check_held(round, &round->held[at]); /* still what it was */
    assert_int_equal(stk_loader_release(round->loader, &round->held[at]), 0);
    round->held[at] = round->held[--round->n_held];
}

static void
jump(struct round *round)
{
    char state[STK_LOADER_STATE_SIZE];
    size_t n_bytes;

    while (round->n_held > 0)
        give_back(round);
    if (one_of(round, 3) == 0) { /* there and back */
        assert_int_equal(stk_loader_save_state(round->loader, state, &n_bytes), 0);
        assert_int_equal(stk_loader_seek(round->loader, one_of(round, EPOCHS), 0), 0);
        assert_int_equal(stk_loader_restore_state(round->loader, state, n_bytes, NULL), 0);
        return;
    }
    round->epoch = one_of(round, EPOCHS);
    round->epoch_step = one_of(round, round->batches);
    assert_int_equal(stk_loader_seek(round->loader, round->epoch, round->epoch_step), 0);
}

static void
play(struct round *round, stk_engine *engine)
{
    stk_dataset *dataset = dataset_open(engine, round->set);
    uint64_t n;

    free(expected_ids(round->set, &round->order, 0, &n));
    round->batches = round->opts.drop_last
                         ? n / round->opts.batch_size
                         : (n + round->opts.batch_size - 1) / round->opts.batch_size;
    if (round->batches > 0) {
        round->loader = loader_open(engine, dataset, &round->opts);
        for (int step = 0; step < STEPS; step++) {
            uint64_t what = one_of(round, 20);

            if (what == 0)
                jump(round);
            else if (what < 10 || round->n_held < round->borrow_max)
                take_next(round);
            else
                give_back(round);
        }
        stk_loader_close(round->loader); /* with whatever is out */
    }
    free(round->ids);
    stk_dataset_close(dataset);
}

static void
anything_goes(const char *method, bool has_missing)
{
    stk_engine *engine = engine_open(method, has_missing ? "ram:300K" : "ram:2M");

    for (uint64_t at = 0; at < ROUNDS; at++) {
        struct round round = {.seed = first_seed + at, .has_missing = has_missing};

        round.set = &sets[has_missing ? one_of(&round, 2) : one_of(&round, SET_KINDS)];
        draw_order(&round);
        draw_opts(&round);
        if (round.opts.ram_bytes > 300 << 10)
            round.opts.ram_bytes = 300 << 10;
        play(&round, engine);
    }
    stk_engine_close(engine);
}

static void
good_sets_come_whole(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++)
        anything_goes(*method, false);
}

static void
bad_sets_come_with_substitutes(void **state)
{
    stk_engine *engine = engine_open("sync", NULL);

    (void)state;
    stk_dataset_close(dataset_open(engine, &sets[SET_FILES])); /* indexed while all is there */
    stk_dataset_close(dataset_open(engine, &sets[SET_SIZES]));
    stk_engine_close(engine);
    for (size_t at = 0; at < sizeof(missing) / sizeof(missing[0]); at++)
        for (int kind = SET_FILES; kind <= SET_SIZES; kind++) {
            uint64_t sample = missing[at];
            const struct set *set = &sets[kind];

            write_file(set_file(set, sample), set->contents, set->lengths[sample] + 1);
        }
    for (const char *const *method = methods(); *method; method++)
        anything_goes(*method, true);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_sets_come_whole),
        cmocka_unit_test(bad_sets_come_with_substitutes),
    };

    if (argc > 1)
        first_seed = strtoull(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, make_sets, remove_sets);
}
