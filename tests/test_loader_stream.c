/* SPDX-License-Identifier: Apache-2.0 */
/* What a loader hands out is what the order says, byte for byte: every kind of order and
 * data set, every policy and layout, any batch size. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader_util.h"

#define N 211

static struct set sets[SET_KINDS];

static int
make_sets(void **state)
{
    (void)watchdog(state);
    for (int kind = 0; kind < SET_KINDS; kind++)
        set_make(&sets[kind], (enum set_kind)kind, kind == SET_BIG || kind == SET_ROWS ? 40 : N);
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

static void
read_all(stk_engine *engine, stk_dataset *dataset, const struct set *set,
         const stk_loader_opts *opts)
{
    stk_loader *loader = loader_open(engine, dataset, opts);
    const struct course course = {.set = set, .opts = opts, .end_epoch = opts->epochs};
    stk_batch batch;
    uint64_t n_batches = follow(loader, &course);
    stk_loader_stats stats = loader_stats(loader, UINT64_MAX);
    uint64_t n_samples = 0;

    assert_int_equal(stk_loader_next(loader, &batch), STK_END);
    assert_int_equal(stk_loader_next(loader, &batch), STK_END);
    assert_int_equal(stats.batches, n_batches);
    for (int tier = 0; tier < STK_TIERS; tier++)
        n_samples += stats.tier_samples[tier];
    assert_int_equal(n_samples, stats.samples);
    /* Neighbours are read along that drop_last or another rank leaves out. */
    assert_true(stats.tier_bytes[STK_TIER_ORIGIN] <= stats.origin_bytes);
    assert_true(stats.origin_bytes >= stats.bound_bytes || opts->policy == STK_POLICY_LRU ||
                opts->order->replacement);
    stk_loader_close(loader);
}

/* ---- orders ------------------------------------------------------------------------ */

static const stk_order_opts orders[] = {
    {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL},
    {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL, .world = 3, .rank = 2},
    {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_TORCH, .seed = 7},
    {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_TORCH, .seed = 8, .world = 4, .rank = 3},
    {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_TORCH, .world = 4, .rank = 1, .drop_uneven = 1},
    {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_TORCH, .world = 2, .rank = 1, .no_shuffle = 1},
    {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_TORCH, .world = 300, .rank = 250},
    {STK_ORDER_OPTS_INIT, .sampler = STK_SAMPLER_DATALOADER, .seed = 3, .legacy_torch = 1},
    {STK_ORDER_OPTS_INIT, .sampler = STK_SAMPLER_GENERATOR, .seed = 4},
    {STK_ORDER_OPTS_INIT, .sampler = STK_SAMPLER_STATEFUL, .seed = 5,
     .workers = STK_SAMPLER_WORKERS_SOME},
    {STK_ORDER_OPTS_INIT, .sampler = STK_SAMPLER_GENERATOR, .num_samples = 500, .replacement = 1},
    {STK_ORDER_OPTS_INIT, .sampler = STK_SAMPLER_DATALOADER, .num_samples = 450},
    {STK_ORDER_OPTS_INIT, .sampler = STK_SAMPLER_DATALOADER, .num_samples = 50},
    {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_KEYED, .seed = 11},
    {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_KEYED, .seed = -1, .world = 3, .rank = 1},
};

static void
every_order_comes_as_it_is(void **state)
{
    static const uint32_t batch_sizes[] = {1, 16, N + 1};

    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        stk_engine *engine = engine_open(*method, "ram:4M");
        stk_dataset *dataset = dataset_open(engine, &sets[SET_SIZES]);

        for (size_t at = 0; at < sizeof(orders) / sizeof(orders[0]); at++)
            for (size_t size_idx = 0; size_idx < 3; size_idx++)
                for (uint32_t drop_last = 0; drop_last < 2; drop_last++) {
                    stk_loader_opts opts = {
                        STK_LOADER_OPTS_INIT, .batch_size = batch_sizes[size_idx],
                        .drop_last = drop_last, .epochs = 3, .order = &orders[at]};
                    uint64_t n;

                    free(expected_ids(&sets[SET_SIZES], &orders[at], 0, &n));
                    if (drop_last && n < opts.batch_size)
                        loader_refused(engine, dataset, &opts, STK_E_INFEASIBLE, "has no batch");
                    else
                        read_all(engine, dataset, &sets[SET_SIZES], &opts);
                }
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

/* All ranks of a world share an engine and together read every sample. */
static void
ranks_cover_the_set(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        stk_engine *engine = engine_open(*method, NULL);
        stk_dataset *dataset = dataset_open(engine, &sets[SET_RECORDS]);
        char seen[N] = {0};
        stk_batch batch;

        for (uint32_t rank = 0; rank < 5; rank++) {
            stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 2, .world = 5, .rank = rank};
            stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 10, .epochs = 1,
                                    .order = &order};
            stk_loader *loader = loader_open(engine, dataset, &opts);

            while (stk_loader_next(loader, &batch) == STK_BATCH) {
                for (uint32_t item = 0; item < batch.count; item++)
                    seen[batch.samples[item]] = 1;
                assert_int_equal(stk_loader_release(loader, &batch), 0);
            }
            stk_loader_close(loader);
        }
        assert_null(memchr(seen, 0, N));
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

/* ---- data sets, policies, layouts -------------------------------------------------- */

static void
try_policies(stk_engine *engine, const struct set *set, uint32_t layout)
{
    const stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 21};
    stk_dataset *dataset = dataset_open(engine, set);

    for (uint32_t policy = STK_POLICY_DEFAULT; policy <= STK_POLICY_NEXT_USE; policy++) {
        for (uint64_t part = 0; part < 3; part++) { /* nothing, a third, all of it cached */
            stk_loader_opts opts = {STK_LOADER_OPTS_INIT,
                                    .batch_size = 6,
                                    .epochs = 3,
                                    .policy = policy,
                                    .layout = layout,
                                    .ram_bytes = part == 0 ? 1 : set->bytes * part / 3 + 1,
                                    .staging_bytes = UINT64_C(1300) << 10,
                                    .order = &order};

            if (part == 2)
                opts.ram_bytes = set->bytes;
            read_all(engine, dataset, set, &opts);
        }
    }
    stk_dataset_close(dataset);
}

static void
every_policy_hands_out_the_same(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        stk_engine *engine = engine_open(*method, "ram:16M");

        for (int kind = 0; kind < SET_KINDS; kind++) {
            const struct set *set = &sets[kind];

            try_policies(engine, set, STK_LAYOUT_RAW);
            if (kind != SET_SIZES && kind != SET_BIG)
                try_policies(engine, set, STK_LAYOUT_FIXED);
        }
        stk_engine_close(engine);
    }
}

static void
buffered_reads_give_the_same(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        const stk_engine_opts engine_opts = {
            STK_ENGINE_OPTS_INIT, .io_method = *method, .tiers = "ram:1M", .buffered = 1,
            .queue_depth = 1,     .max_open_files = 4,  .io_threads = 1,   .workers = 1};
        stk_engine *engine = engine_open_by(&engine_opts);

        for (int kind = 0; kind < SET_KINDS; kind++) {
            stk_dataset *dataset = dataset_open(engine, &sets[kind]);
            const stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 6};
            stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 9, .epochs = 2,
                                    .order = &order};

            read_all(engine, dataset, &sets[kind], &opts);
            stk_dataset_close(dataset);
        }
        stk_engine_close(engine);
    }
}

/* ---- decoding ---------------------------------------------------------------------- */

#define SLOT_BYTES 24u

/* A slot: the seed, a checksum of the bytes, the sample. */
static int
digest(void *context, const stk_decode_args *args)
{
    uint64_t slot[3] = {args->seed, 0, args->sample};
    const unsigned char *bytes = args->bytes;

    (void)context;
    for (uint64_t at = 0; at < args->n_bytes; at++)
        slot[1] = slot[1] * 31 + bytes[at];
    memcpy(args->slot, slot, sizeof(slot));
    return args->item_bytes == SLOT_BYTES && args->label == -1 ? 0 : -1;
}

static uint64_t
digest_of(const struct set *set, uint64_t sample)
{
    uint64_t sum = 0;

    for (uint64_t at = 0; at < set->lengths[sample]; at++)
        sum = sum * 31 + set->contents[set->offsets[sample] + at];
    return sum;
}

static void
decoding_sees_every_sample(void **state)
{
    static uint64_t first[2][N], again[2][N];
    const struct set *set = &sets[SET_SIZES];
    const stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 99};

    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        stk_engine *engine = engine_open(*method, "ram:300K");
        stk_dataset *dataset = dataset_open(engine, set);
        stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .epochs = 2, .decode = digest,
                                .item_bytes = SLOT_BYTES, .order = &order};

        for (uint32_t round = 0; round < 2; round++) { /* another batch size: the same seeds */
            opts.batch_size = round == 0 ? N : 13;
            stk_loader *loader = loader_open(engine, dataset, &opts);
            stk_batch batch;
            uint64_t n_read = 0;

            while (stk_loader_next(loader, &batch) == STK_BATCH) {
                for (uint32_t item = 0; item < batch.count; item++) {
                    uint64_t slot[3];

                    memcpy(slot, batch.items[item], SLOT_BYTES);
                    assert_int_equal(batch.n_bytes[item], SLOT_BYTES);
                    assert_int_equal(slot[2], batch.samples[item]);
                    assert_int_equal(slot[1], digest_of(set, batch.samples[item]));
                    (round == 0 ? first : again)[batch.epoch][batch.samples[item]] = slot[0];
                }
                n_read += batch.count;
                assert_int_equal(stk_loader_release(loader, &batch), 0);
            }
            assert_int_equal(n_read, 2 * N);
            stk_loader_close(loader);
        }
        assert_memory_equal(first, again, sizeof(first));
        for (uint64_t sample = 0; sample < N; sample++)
            assert_true(first[0][sample] != first[1][sample]);
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

/* ---- the run ----------------------------------------------------------------------- */

static void
an_endless_run_goes_on(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        stk_engine *engine = engine_open(*method, "ram:1M");
        stk_dataset *dataset = dataset_open(engine, &sets[SET_RECORDS]);

        for (uint32_t at = 0; at < 4; at++) {
            stk_order_opts order = {STK_ORDER_OPTS_INIT,
                                    .kind = at % 2 ? STK_ORDER_KEYED : STK_ORDER_TORCH,
                                    .world = at < 2 ? 1 : 3, .rank = at < 2 ? 0 : 1};
            stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 50, .order = &order};
            stk_loader *loader = loader_open(engine, dataset, &opts);
            const struct course course = {
                .set = &sets[SET_RECORDS], .opts = &opts, .end_epoch = 90};

            (void)follow(loader, &course);
            assert_int_equal(loader_stats(loader, 89).epoch, 89);
            stk_loader_stats gone = {STK_LOADER_STATS_INIT};
            assert_int_equal(stk_loader_get_stats(loader, 3, &gone), -ENOENT);
            stk_loader_close(loader);
        }
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

/* The consumer takes nothing before the reader has all it can have: batches of the next
 * epochs are there already. */
static void
look_ahead_crosses_epoch_ends(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        stk_engine *engine = engine_open(*method, NULL);
        stk_dataset *dataset = dataset_open(engine, &sets[SET_RECORDS]);
        stk_loader_opts opts = {
            STK_LOADER_OPTS_INIT,      .batch_size = N,          .epochs = 6,
            .policy = STK_POLICY_NONE, .layout = STK_LAYOUT_RAW, .staging_batches = 3};
        stk_loader *loader = loader_open(engine, dataset, &opts);
        const struct course course = {.set = &sets[SET_RECORDS], .opts = &opts, .end_epoch = 6};

        while (loader_stats(loader, UINT64_MAX).resident_bytes < sets[SET_RECORDS].bytes)
            ;
        /* Three epochs are staged, two of them without a read of their own. */
        stk_batch batch;
        assert_int_equal(stk_loader_next(loader, &batch), STK_BATCH);
        assert_int_equal(stk_loader_release(loader, &batch), 0);
        assert_null(batch.handle); /* cleared by the release */
        struct course rest = course;
        rest.epoch = 1;
        assert_int_equal(follow(loader, &rest), 5);
        assert_true(loader_stats(loader, UINT64_MAX).tier_samples[STK_TIER_RAM] > 0);
        stk_loader_close(loader);
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_comes_as_it_is),
        cmocka_unit_test(ranks_cover_the_set),
        cmocka_unit_test(every_policy_hands_out_the_same),
        cmocka_unit_test(buffered_reads_give_the_same),
        cmocka_unit_test(decoding_sees_every_sample),
        cmocka_unit_test(an_endless_run_goes_on),
        cmocka_unit_test(look_ahead_crosses_epoch_ends),
    };

    return cmocka_run_group_tests(tests, make_sets, remove_sets);
}
