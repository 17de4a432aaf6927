/* SPDX-License-Identifier: Apache-2.0 */
/* What is read from the origin: with next-use placement the bound, within one sample;
 * nothing after the first epoch where RAM holds the set. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader_util.h"

static struct set sets[SET_KINDS];

static int
make_sets(void **state)
{
    (void)watchdog(state);
    for (int kind = 0; kind < SET_KINDS; kind++)
        set_make(&sets[kind], (enum set_kind)kind, kind == SET_BIG || kind == SET_ROWS ? 100 : 600);
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

static uint64_t
largest(const struct set *set)
{
    uint64_t most = 0;

    for (uint64_t sample = 0; sample < set->n; sample++)
        if (set->lengths[sample] > most)
            most = set->lengths[sample];
    return most;
}

/*
 * Reads epochs and compares origin and bound, within one sample in all epochs together.
 * Samples of one size fill the capacity exactly. Of many sizes, something is left unused
 * at each epoch's end: what made room last was not just as long as what came. SET_BIG has
 * so few samples that only a handful can be chosen from there: two in all.
 */
static void
check_bound(stk_engine *engine, const struct set *set, stk_loader_opts *opts)
{
    stk_dataset *dataset = dataset_open(engine, set);
    stk_loader *loader = loader_open(engine, dataset, opts);
    const struct course whole = {.set = set, .opts = opts, .end_epoch = opts->epochs};
    uint64_t slack = largest(set) * (set->kind == SET_BIG ? 2 : 1);

    (void)follow(loader, &whole);
    stk_loader_stats stats = loader_stats(loader, UINT64_MAX);
    uint64_t missing = set->bytes > stats.capacity_bytes ? set->bytes - stats.capacity_bytes : 0;
    assert_int_equal(stats.bound_bytes, set->bytes + (opts->epochs - 1) * missing);
    if (stats.origin_bytes > stats.bound_bytes + slack)
        print_error("kind %d, order %u: origin %lu, bound %lu, capacity %lu of %lu\n",
                    (int)set->kind, opts->order->kind, (unsigned long)stats.origin_bytes,
                    (unsigned long)stats.bound_bytes, (unsigned long)stats.capacity_bytes,
                    (unsigned long)set->bytes);
    assert_true(stats.origin_bytes >= stats.bound_bytes);
    assert_true(stats.origin_bytes <= stats.bound_bytes + slack);
    stk_loader_close(loader);
    stk_dataset_close(dataset);
}

static void
origin_bytes_equal_the_bound(void **state)
{
    static const uint32_t kinds[] = {STK_ORDER_TORCH, STK_ORDER_KEYED, STK_ORDER_SEQUENTIAL};

    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        stk_engine *engine = engine_open(*method, "ram:64M");

        for (int kind = 0; kind < SET_KINDS; kind++)
            for (uint64_t tenths = 2; tenths <= 8; tenths += 3)
                for (size_t at = 0; at < 3; at++) {
                    const struct set *set = &sets[kind];
                    const stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = kinds[at],
                                                  .seed = (int64_t)tenths};
                    stk_loader_opts opts = {STK_LOADER_OPTS_INIT,
                                            .batch_size =
                                                kind == SET_BIG || kind == SET_ROWS ? 2 : 8,
                                            .epochs = 5, .layout = STK_LAYOUT_RAW, .order = &order};

                    opts.ram_bytes = set->bytes * tenths / 10;
                    opts.staging_bytes = 3 * opts.batch_size * largest(set);
                    if (kinds[at] == STK_ORDER_SEQUENTIAL && (kind == SET_SIZES || kind == SET_BIG))
                        continue; /* evicting by next use alone is not the best there */
                    if (opts.ram_bytes < opts.staging_bytes)
                        opts.ram_bytes = opts.staging_bytes; /* half of the capacity is staged */
                    check_bound(engine, set, &opts);
                }
        stk_engine_close(engine);
    }
}

/* Of several ranks each reads a part of the set in an epoch, and most of it is new to it:
 * that is each epoch's bound, and their sum is the run's. */
static void
every_epoch_has_its_bound(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (uint64_t tenths = 3; tenths <= 10; tenths += 7) {
            const struct set *set = &sets[SET_FILES];
            const stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 3, .world = 4, .rank = 1};
            const stk_loader_opts opts = {STK_LOADER_OPTS_INIT,
                                          .batch_size = 10,
                                          .epochs = 12,
                                          .layout = STK_LAYOUT_RAW,
                                          .ram_bytes = set->bytes * tenths / 10,
                                          .staging_bytes = 4 * 10 * largest(set),
                                          .order = &order};
            stk_engine *engine = engine_open(*method, "ram:64M");
            stk_dataset *dataset = dataset_open(engine, set);
            stk_loader *loader = loader_open(engine, dataset, &opts);
            const struct course whole = {.set = set, .opts = &opts, .end_epoch = 12};
            uint64_t sum_bytes = 0;

            (void)follow(loader, &whole);
            stk_loader_stats run = loader_stats(loader, UINT64_MAX);
            for (uint64_t epoch = 0; epoch < 12; epoch++) {
                stk_loader_stats stats = loader_stats(loader, epoch);

                assert_true(stats.origin_bytes >= stats.bound_bytes);
                if (tenths == 10)
                    assert_int_equal(stats.origin_bytes, stats.bound_bytes);
                assert_true(epoch > 3 || stats.bound_bytes > 0);
                sum_bytes += stats.bound_bytes;
            }
            assert_int_equal(sum_bytes, run.bound_bytes);
            stk_loader_close(loader);
            stk_dataset_close(dataset);
            stk_engine_close(engine);
        }
}

/* RAM that holds the set: not one read after the first epoch, in any layout and any
 * world. */
static void
a_held_set_is_read_once(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (int kind = 0; kind < SET_KINDS; kind++)
            for (uint32_t policy = STK_POLICY_DEFAULT; policy <= STK_POLICY_NEXT_USE; policy++) {
                const struct set *set = &sets[kind];
                stk_engine *engine = engine_open(*method, "ram:64M");
                stk_dataset *dataset = dataset_open(engine, set);
                const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 16, .epochs = 5,
                                              .policy = policy};
                struct course course = {.set = set, .opts = &opts, .end_epoch = 1};

                if (policy == STK_POLICY_NONE) {
                    stk_dataset_close(dataset);
                    stk_engine_close(engine);
                    continue;
                }
                stk_loader *loader = loader_open(engine, dataset, &opts);
                (void)follow(loader, &course);
                uint64_t reads = engine_stats(engine).reads;
                course.epoch = 1;
                course.end_epoch = 5;
                (void)follow(loader, &course);
                assert_int_equal(engine_stats(engine).reads, reads);
                assert_int_equal(loader_stats(loader, UINT64_MAX).origin_bytes, set->bytes);
                for (uint64_t epoch = 1; epoch < 5; epoch++)
                    assert_int_equal(loader_stats(loader, epoch).origin_bytes, 0);
                stk_loader_close(loader);
                stk_dataset_close(dataset);
                stk_engine_close(engine);
            }
}

/* The order in which batches come back, and when, costs no reads: one batch is always
 * out, also over the ends of epochs. */
static void
holding_a_batch_costs_nothing(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        const struct set *set = &sets[SET_FILES];
        const stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 5};
        stk_loader_opts opts = {STK_LOADER_OPTS_INIT,
                                .batch_size = 10,
                                .epochs = 6,
                                .layout = STK_LAYOUT_RAW,
                                .ram_bytes = set->bytes / 2,
                                .staging_bytes = 8 * 10 * 3000,
                                .order = &order};
        stk_engine *engine = engine_open(*method, "ram:64M");
        stk_dataset *dataset = dataset_open(engine, set);
        stk_loader *loader = loader_open(engine, dataset, &opts);
        stk_batch held = {0}, batch;

        while (stk_loader_next(loader, &batch) == STK_BATCH) {
            if (held.handle)
                assert_int_equal(stk_loader_release(loader, &held), 0);
            held = batch;
        }
        stk_loader_stats stats = loader_stats(loader, UINT64_MAX);
        assert_true(stats.origin_bytes >= stats.bound_bytes);
        if (stats.origin_bytes > stats.bound_bytes + 3000)
            print_error("origin %lu, bound %lu\n", (unsigned long)stats.origin_bytes,
                        (unsigned long)stats.bound_bytes);
        assert_true(stats.origin_bytes <= stats.bound_bytes + 3000);
        stk_loader_close(loader);
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(origin_bytes_equal_the_bound),
        cmocka_unit_test(every_epoch_has_its_bound),
        cmocka_unit_test(a_held_set_is_read_once),
        cmocka_unit_test(holding_a_batch_costs_nothing),
    };

    return cmocka_run_group_tests(tests, make_sets, remove_sets);
}
