/* SPDX-License-Identifier: Apache-2.0 */
/* Orders as a whole: options, streams of ranks, the two ways to an epoch,
 * fingerprints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "order/order.h"

static struct sti_order
make(stk_order_opts opts)
{
    struct sti_order order;
    stk_error err;

    opts.size = sizeof(opts);
    int rc = sti_order_init(&order, &opts, &err);
    if (rc)
        print_error("%s\n", err.message);
    assert_int_equal(rc, 0);
    return order;
}

/* A rank's stream of an epoch as 64-bit ids, in memory to be freed. */
static uint64_t *
ids_of(const struct sti_order *order, uint64_t epoch, struct sti_order_cursor *cursor)
{
    uint64_t length = sti_order_length(order);
    void *ids = malloc(length * sti_order_id_bytes(order) + 1);
    void *scratch = malloc(sti_order_scratch_bytes(order) + 1);
    uint64_t *wide = calloc(length + 1, sizeof(*wide));

    assert_true(ids && scratch && wide);
    sti_order_epoch(order, epoch, cursor, ids, scratch);
    for (uint64_t i = 0; i < length; i++)
        wide[i] = sti_order_id(order, ids, i);
    free(ids);
    free(scratch);
    return wide;
}

static void
assert_ids(const struct sti_order *order, uint64_t epoch, const uint64_t *expected, uint64_t count)
{
    uint64_t *ids = ids_of(order, epoch, NULL);

    assert_int_equal(sti_order_length(order), count);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(ids[i], expected[i]);
    free(ids);
}

static void
assert_refused(stk_order_opts opts, const char *field)
{
    struct sti_order order;
    stk_error err = {0};

    opts.size = sizeof(opts);
    assert_int_equal(sti_order_init(&order, &opts, &err), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
    assert_non_null(strstr(err.message, field));
}

#define OPTS(...) ((stk_order_opts){__VA_ARGS__})
#define MAX_N STI_ORDER_MAX_N

static void
test_limits(void **state)
{
    (void)state;
    (void)make(OPTS(.n = 1));
    (void)make(OPTS(.n = MAX_N, .world = STI_ORDER_MAX_WORLD, .rank = STI_ORDER_MAX_WORLD - 1));
    (void)make(OPTS(.n = 1, .kind = STK_ORDER_LIST));
    (void)make(OPTS(.n = 9, .sampler = STK_SAMPLER_STATEFUL, .num_samples = MAX_N, .replacement = 1,
                    .legacy_torch = 1, .workers = 2));
    assert_refused(OPTS(.n = 0), "option n is 0; it must be 1 to 281474976710656");
    assert_refused(OPTS(.n = MAX_N + 1), "option n is 281474976710657");
    assert_refused(OPTS(.n = 9, .kind = STK_ORDER_LIST + 1), "kind");
    assert_refused(OPTS(.n = 9, .sampler = STK_SAMPLER_STATEFUL + 1), "sampler");
    assert_refused(OPTS(.n = 9, .world = STI_ORDER_MAX_WORLD + 1), "world");
    assert_refused(OPTS(.n = 9, .rank = 1), "rank");
    assert_refused(OPTS(.n = 9, .world = 4, .rank = 4), "rank is 4; it must be 0 to 3");
    assert_refused(OPTS(.n = 9, .no_shuffle = 2), "no_shuffle");
    assert_refused(OPTS(.n = 9, .drop_uneven = 2), "drop_uneven");
    assert_refused(OPTS(.n = 9, .legacy_torch = 2), "legacy_torch");
    assert_refused(OPTS(.n = 9, .sampler = 2, .replacement = 2), "replacement");
    assert_refused(OPTS(.n = 9, .sampler = 2, .num_samples = MAX_N + 1), "num_samples");
    assert_refused(OPTS(.n = 9, .workers = 3), "workers");
    assert_refused(OPTS(.n = 9, .reserved = 1), "reserved");
}

static void
test_exclusions(void **state)
{
    (void)state;
    assert_refused(OPTS(.n = 9, .kind = STK_ORDER_KEYED, .sampler = 1), "sampler");
    assert_refused(OPTS(.n = 9, .kind = STK_ORDER_SEQUENTIAL, .legacy_torch = 1), "legacy_torch");
    assert_refused(OPTS(.n = 9, .kind = STK_ORDER_LIST, .workers = 1), "workers");
    assert_refused(OPTS(.n = 9, .kind = STK_ORDER_KEYED, .no_shuffle = 1), "no_shuffle");
    assert_refused(OPTS(.n = 9, .replacement = 1), "replacement");
    assert_refused(OPTS(.n = 9, .num_samples = 9), "num_samples");
    assert_refused(OPTS(.n = 9, .kind = STK_ORDER_KEYED, .num_samples = 9), "num_samples");
    for (uint32_t sampler = STK_SAMPLER_DATALOADER; sampler <= STK_SAMPLER_STATEFUL; sampler++) {
        assert_refused(OPTS(.n = 9, .sampler = sampler, .world = 2), "world");
        assert_refused(OPTS(.n = 9, .sampler = sampler, .no_shuffle = 1, .replacement = 1),
                       "no_shuffle");
        assert_refused(OPTS(.n = 9, .sampler = sampler, .no_shuffle = 1, .num_samples = 3),
                       "no_shuffle");
    }
}

/* DistributedSampler(range(10), 4, r, seed=0), and the same with drop_last. */
static void
test_distributed_vectors(void **state)
{
    static const uint64_t padded[4][3] = {{4, 3, 6}, {1, 9, 2}, {7, 0, 4}, {5, 8, 1}};

    (void)state;
    for (uint32_t rank = 0; rank < 4; rank++) {
        struct sti_order order = make(OPTS(.n = 10, .world = 4, .rank = rank));
        struct sti_order cut = make(OPTS(.n = 10, .world = 4, .rank = rank, .drop_uneven = 1));

        assert_ids(&order, 0, padded[rank], 3);
        assert_ids(&cut, 0, padded[rank], 2);
        order.seed = -3; /* seed + epoch counts, also below zero */
        assert_ids(&order, 3, padded[rank], 3);
    }
}

static void
count_rank(stk_order_opts opts, uint64_t epoch, uint32_t *counts)
{
    struct sti_order order = make(opts);
    uint64_t *ids = ids_of(&order, epoch, NULL);

    for (uint64_t i = 0; i < order.length; i++)
        counts[ids[i]]++;
    free(ids);
}

/* All ranks together read every sample once, but for padding or cutting. */
static void
check_union(uint64_t n, uint32_t world, uint32_t kind, uint32_t no_shuffle, uint32_t drop_uneven)
{
    uint32_t *counts = calloc(n, sizeof(*counts));
    uint64_t once = 0;
    uint64_t total = 0;
    uint32_t highest = 0;

    assert_non_null(counts);
    for (uint32_t rank = 0; rank < world; rank++)
        count_rank(OPTS(.n = n, .world = world, .rank = rank, .kind = kind, .seed = 5,
                        .no_shuffle = no_shuffle, .drop_uneven = drop_uneven),
                   world, counts);
    for (uint64_t i = 0; i < n; i++) {
        once += counts[i] > 0;
        total += counts[i];
        highest = counts[i] > highest ? counts[i] : highest;
    }
    if (drop_uneven) {
        assert_int_equal(total, n / world * world);
        assert_int_equal(once, total);
    } else {
        assert_int_equal(total, (n + world - 1) / world * world);
        assert_int_equal(once, n);
        assert_int_equal(highest, (total + n - 1) / n);
    }
    free(counts);
}

static void
test_union_of_ranks(void **state)
{
    static const uint64_t ns[] = {1, 2, 5, 12, 64, 97};
    static const uint32_t worlds[] = {1, 2, 3, 4, 5, 12, 13, 64, 200};

    (void)state;
    for (uint32_t i = 0; i < sizeof(ns) / sizeof(ns[0]); i++)
        for (uint32_t k = 0; k < sizeof(worlds) / sizeof(worlds[0]); k++)
            for (uint32_t drop = 0; drop < 2; drop++) {
                check_union(ns[i], worlds[k], STK_ORDER_TORCH, 0, drop);
                check_union(ns[i], worlds[k], STK_ORDER_TORCH, 1, drop);
                check_union(ns[i], worlds[k], STK_ORDER_KEYED, 0, drop);
                check_union(ns[i], worlds[k], STK_ORDER_SEQUENTIAL, 0, drop);
            }
}

/* Marks the samples of a global step, of world ranks with batch samples each. */
static void
mark_step(uint64_t n, uint32_t kind, uint32_t world, uint64_t batch, uint64_t step, uint8_t *marks)
{
    memset(marks, 0, n);
    for (uint32_t rank = 0; rank < world; rank++) {
        struct sti_order order =
            make(OPTS(.n = n, .kind = kind, .world = world, .rank = rank, .seed = 2));
        uint64_t *ids = ids_of(&order, 1, NULL);

        for (uint64_t i = step * batch; i < (step + 1) * batch; i++)
            marks[ids[i]]++;
        free(ids);
    }
}

/* A job may go on with another number of ranks: world x batch makes the step. */
static void
test_steps_do_not_depend_on_world(void **state)
{
    enum { N = 500, GLOBAL = 24 };
    uint8_t alone[N];
    uint8_t split[N];

    (void)state;
    for (uint32_t kind = STK_ORDER_SEQUENTIAL; kind <= STK_ORDER_KEYED; kind++)
        for (uint64_t step = 0; step < N / GLOBAL; step += 5) {
            mark_step(N, kind, 1, GLOBAL, step, alone);
            for (uint32_t world = 2; world <= GLOBAL; world++) {
                if (GLOBAL % world)
                    continue;
                mark_step(N, kind, world, GLOBAL / world, step, split);
                assert_memory_equal(alone, split, N);
            }
        }
}

static void
check_seekable(const struct sti_order *order, uint64_t epoch)
{
    uint64_t *ids = ids_of(order, epoch, NULL);
    uint64_t *positions = calloc(order->n, sizeof(*positions));

    assert_non_null(positions);
    for (uint64_t i = 0; i < order->length; i++) {
        assert_true(sti_order_at(order, epoch, i) == ids[i]);
        assert_int_equal(positions[ids[i]], 0); /* at most once per rank */
        positions[ids[i]] = i + 1;
    }
    for (uint64_t sample = 0; sample < order->n; sample++) {
        uint64_t position = 77;
        bool found = sti_order_find(order, epoch, sample, &position);

        assert_int_equal(found, positions[sample] != 0);
        if (found)
            assert_true(position == positions[sample] - 1);
    }
    free(ids);
    free(positions);
}

static void
test_at_and_find(void **state)
{
    (void)state;
    for (uint32_t world = 1; world < 40; world += 3)
        for (uint64_t n = 1; n < 60; n += 4)
            for (uint32_t i = 0; i < 6; i++) {
                uint32_t kind =
                    i / 2 ? i / 2 == 1 ? STK_ORDER_KEYED : STK_ORDER_SEQUENTIAL : STK_ORDER_TORCH;
                struct sti_order order =
                    make(OPTS(.n = n, .kind = kind, .world = world, .rank = world / 2,
                              .no_shuffle = kind == STK_ORDER_TORCH, .drop_uneven = i % 2));

                assert_true(sti_order_seekable(&order));
                assert_int_equal(sti_order_scratch_bytes(&order), 0);
                check_seekable(&order, 9);
            }
}

/* An epoch is the same whether it is rolled to, jumped to, or both, forwards or
 * backwards. */
static void
check_cursor(const struct sti_order *order)
{
    static const uint64_t epochs[] = {0, 1, 2, 3, 7, 8, 2000, 2001, 2, 3};
    struct sti_order_cursor cursor = {0};

    for (uint32_t i = 0; i < sizeof(epochs) / sizeof(epochs[0]); i++) {
        uint64_t *direct = ids_of(order, epochs[i], NULL);
        uint64_t *rolled = ids_of(order, epochs[i], &cursor);

        assert_memory_equal(direct, rolled, order->length * sizeof(*direct));
        free(direct);
        free(rolled);
    }
}

static void
test_cursor(void **state)
{
    (void)state;
    for (uint32_t sampler = STK_SAMPLER_DISTRIBUTED; sampler <= STK_SAMPLER_STATEFUL; sampler++)
        for (uint32_t workers = 0; workers < 3; workers++) {
            struct sti_order order =
                make(OPTS(.n = 5000, .sampler = sampler, .workers = workers, .seed = 4));

            check_cursor(&order);
            if (sampler == STK_SAMPLER_DISTRIBUTED)
                continue;
            order.num_samples = order.length = 7777;
            check_cursor(&order);
            order.replacement = true;
            check_cursor(&order);
        }
}

/* The last epoch that can be named is reached, and a cursor goes no further. */
static void
test_last_epoch(void **state)
{
    struct sti_order order = make(OPTS(.n = 100, .sampler = STK_SAMPLER_GENERATOR));
    struct sti_order_cursor cursor = {0};
    uint64_t *last = ids_of(&order, UINT64_MAX, &cursor);
    uint64_t *first = ids_of(&order, 0, &cursor);
    uint64_t *again = ids_of(&order, 0, NULL);

    (void)state;
    assert_memory_equal(first, again, 100 * sizeof(*first));
    assert_memory_not_equal(first, last, 100 * sizeof(*first));
    free(last);
    free(first);
    free(again);
}

static void
test_fingerprint(void **state)
{
    const stk_order_opts base = {.n = 1000, .seed = 3};
    const stk_order_opts different[] = {
        base,
        {.n = 1001, .seed = 3},
        {.n = 1000, .seed = 4},
        {.n = 1000, .seed = 3, .drop_uneven = 1},
        {.n = 1000, .seed = 3, .no_shuffle = 1},
        {.n = 1000, .seed = 3, .kind = STK_ORDER_KEYED},
        {.n = 1000, .seed = 3, .kind = STK_ORDER_SEQUENTIAL},
        {.n = 1000, .seed = 3, .kind = STK_ORDER_LIST},
        {.n = 1000, .seed = 3, .sampler = STK_SAMPLER_DATALOADER},
        {.n = 1000, .seed = 3, .sampler = STK_SAMPLER_DATALOADER, .workers = 2},
        {.n = 1000, .seed = 3, .sampler = STK_SAMPLER_GENERATOR},
        {.n = 1000, .seed = 3, .sampler = STK_SAMPLER_GENERATOR, .replacement = 1},
        {.n = 1000, .seed = 3, .sampler = STK_SAMPLER_GENERATOR, .num_samples = 999},
        {.n = 1000, .seed = 3, .sampler = STK_SAMPLER_STATEFUL},
        {.n = 1000, .seed = 3, .sampler = STK_SAMPLER_STATEFUL, .workers = 1},
        {.n = UINT32_MAX, .seed = 3},
        {.n = UINT32_MAX, .seed = 3, .legacy_torch = 1},
    };
    const stk_order_opts alike[] = {
        {.n = 1000, .seed = 3, .kind = STK_ORDER_TORCH, .sampler = STK_SAMPLER_DISTRIBUTED},
        {.n = 1000, .seed = 3, .world = 8, .rank = 5},
        {.n = 1000, .seed = 3, .legacy_torch = 1},
        {.n = 1000, .seed = 3, .workers = 2},
    };
    enum { DIFFERENT = sizeof(different) / sizeof(different[0]) };
    uint64_t prints[DIFFERENT];

    (void)state;
    for (uint32_t i = 0; i < DIFFERENT; i++) {
        struct sti_order order = make(different[i]);

        prints[i] = sti_order_fingerprint(&order);
        for (uint32_t k = 0; k < i; k++)
            assert_true(prints[k] != prints[i]);
    }
    for (uint32_t i = 0; i < sizeof(alike) / sizeof(alike[0]); i++) {
        struct sti_order order = make(alike[i]);

        assert_true(sti_order_fingerprint(&order) == prints[0]);
    }
    assert_true(prints[0] ==
                UINT64_C(0x3d84a7707cd354dd)); /* saved states have it: never changes */
}

static void
test_list(void **state)
{
    struct sti_order order = make(OPTS(.n = 10, .kind = STK_ORDER_LIST));

    (void)state;
    assert_int_equal(sti_order_length(&order), 0);
    assert_int_equal(sti_order_scratch_bytes(&order), 0);
    assert_false(sti_order_seekable(&order));
}

/* Memory: a permutation where a part of it is taken, none where the stream is one. */
static void
test_scratch(void **state)
{
    const uint64_t n = UINT64_C(1) << 32;
    struct sti_order alone = make(OPTS(.n = n));
    struct sti_order many = make(OPTS(.n = n - 1, .world = 8));
    struct sti_order wide = make(OPTS(.n = n, .world = 8));

    (void)state;
    assert_int_equal(sti_order_scratch_bytes(&alone), 0);
    assert_int_equal(sti_order_scratch_bytes(&many), (n - 1) * 4);
    assert_int_equal(sti_order_scratch_bytes(&wide), n * 8);
    assert_int_equal(sti_order_id_bytes(&many), 4);
    assert_int_equal(sti_order_id_bytes(&wide), 8);
    struct sti_order part = make(OPTS(.n = 1000, .sampler = 2, .num_samples = 999));
    struct sti_order whole = make(OPTS(.n = 1000, .sampler = 2));
    assert_true(sti_order_scratch_bytes(&whole) <= 104 << 10);
    assert_int_equal(sti_order_scratch_bytes(&part), sti_order_scratch_bytes(&whole) + 4000);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_exclusions),
        cmocka_unit_test(test_distributed_vectors),
        cmocka_unit_test(test_union_of_ranks),
        cmocka_unit_test(test_steps_do_not_depend_on_world),
        cmocka_unit_test(test_at_and_find),
        cmocka_unit_test(test_cursor),
        cmocka_unit_test(test_last_epoch),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_scratch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
