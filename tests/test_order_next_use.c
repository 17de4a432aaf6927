/* SPDX-License-Identifier: Apache-2.0 */
/* Next use and frequency against brute force over the epochs' ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "order/frequency.h"
#include "order/next_use.h"

#define EPOCHS 5
#define MAX_LENGTH 200

struct run {
    struct sti_order order;
    struct sti_order_memory memory;
    uint64_t ids[EPOCHS][MAX_LENGTH]; /* all that is read */
};

static void
run_init(struct run *run, const stk_order_opts *opts)
{
    memset(run, 0, sizeof(*run));
    assert_int_equal(sti_order_init(&run->order, opts, NULL), 0);
    assert_true(run->order.length <= MAX_LENGTH);
    run->memory.ids = calloc(MAX_LENGTH, sizeof(uint64_t));
    run->memory.scratch = malloc(sti_order_scratch_bytes(&run->order) + 1);
    assert_true(run->memory.ids && run->memory.scratch);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        sti_order_epoch(&run->order, epoch, NULL, run->memory.ids, run->memory.scratch);
        for (uint64_t i = 0; i < run->order.length; i++)
            run->ids[epoch][i] = sti_order_id(&run->order, run->memory.ids, i);
    }
}

static void
run_fini(struct run *run)
{
    free(run->memory.ids);
    free(run->memory.scratch);
}

static bool
find_plainly(const struct run *run, uint64_t sample, struct sti_use after, uint64_t last_epoch,
             struct sti_use *ret_use)
{
    for (uint64_t epoch = after.epoch; epoch <= last_epoch; epoch++)
        for (uint64_t i = epoch == after.epoch ? after.position + 1 : 0; i < run->order.length; i++)
            if (run->ids[epoch][i] == sample) {
                *ret_use = (struct sti_use){epoch, i};
                return true;
            }
    return false;
}

static void
check_next_use(struct run *run)
{
    for (uint64_t sample = 0; sample < run->order.n; sample++)
        for (uint64_t k = 0; k < 3 * EPOCHS; k++) {
            const uint64_t positions[] = {UINT64_MAX, 0, run->order.length - 1};
            struct sti_use after = {k % EPOCHS, positions[k / EPOCHS]};
            uint64_t last_epoch = (k * 7 + sample) % EPOCHS;
            struct sti_use expected = {77, 77};
            struct sti_use got = {77, 77};

            if (after.position != UINT64_MAX && after.position >= run->order.length)
                continue;
            assert_int_equal(
                find_plainly(run, sample, after, last_epoch, &expected),
                sti_next_use_find(&run->order, sample, after, last_epoch, &run->memory, &got));
            assert_int_equal(expected.epoch, got.epoch);
            assert_int_equal(expected.position, got.position);
        }
}

static void
check_frequency(struct run *run)
{
    for (uint64_t first = 0; first < EPOCHS; first++) {
        uint32_t expected[MAX_LENGTH] = {0};
        uint32_t got[MAX_LENGTH];

        for (uint64_t epoch = first; epoch < EPOCHS; epoch++)
            for (uint64_t i = 0; i < run->order.length; i++)
                expected[run->ids[epoch][i]]++;
        memset(got, 0xff, sizeof(got));
        sti_frequency_count(&run->order, first, EPOCHS - first, &run->memory, got);
        assert_memory_equal(expected, got, run->order.n * sizeof(*got));
    }
}

static void
test_against_brute_force(void **state)
{
    static struct run run;
    const stk_order_opts cases[] = {
        {.n = 40},
        {.n = 1},
        {.n = 41, .world = 4, .rank = 3},
        {.n = 41, .world = 4, .rank = 0, .drop_uneven = 1},
        {.n = 3, .world = 5, .rank = 4},
        {.n = 3, .world = 5, .rank = 4, .drop_uneven = 1},
        {.n = 41, .world = 4, .rank = 1, .no_shuffle = 1},
        {.n = 41, .world = 4, .rank = 1, .kind = STK_ORDER_KEYED},
        {.n = 41, .world = 4, .rank = 1, .kind = STK_ORDER_SEQUENTIAL, .drop_uneven = 1},
        {.n = 30, .sampler = STK_SAMPLER_DATALOADER},
        {.n = 30, .sampler = STK_SAMPLER_GENERATOR, .num_samples = 100},
        {.n = 30, .sampler = STK_SAMPLER_GENERATOR, .num_samples = 60},
        {.n = 30, .sampler = STK_SAMPLER_STATEFUL, .num_samples = 7},
        {.n = 30, .sampler = STK_SAMPLER_STATEFUL, .num_samples = 90, .replacement = 1},
        {.n = 30, .sampler = STK_SAMPLER_GENERATOR, .num_samples = 30, .replacement = 1},
    };

    (void)state;
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run_init(&run, &cases[i]);
        check_next_use(&run);
        check_frequency(&run);
        run_fini(&run);
    }
}

/* A sample that this rank never reads is not looked for until the end of time. */
static void
test_never_read(void **state)
{
    const stk_order_opts opts = {.n = 10, .world = 2, .kind = STK_ORDER_SEQUENTIAL};
    const stk_order_opts none = {.n = 1, .world = 2, .drop_uneven = 1};
    struct sti_order order;
    struct sti_use use;

    (void)state;
    assert_int_equal(sti_order_init(&order, &opts, NULL), 0);
    assert_false(
        sti_next_use_find(&order, 1, (struct sti_use){0, UINT64_MAX}, UINT64_MAX, NULL, &use));
    assert_true(
        sti_next_use_find(&order, 2, (struct sti_use){UINT64_MAX - 1, 4}, UINT64_MAX, NULL, &use));
    assert_true(use.epoch == UINT64_MAX && use.position == 1);
    assert_int_equal(sti_order_init(&order, &none, NULL), 0);
    assert_false(
        sti_next_use_find(&order, 0, (struct sti_use){0, UINT64_MAX}, UINT64_MAX, NULL, &use));
}

static void
test_counts_saturate(void **state)
{
    const stk_order_opts alone = {.n = 3};
    const stk_order_opts constant = {.n = 3, .world = 2, .no_shuffle = 1};
    struct sti_order order;
    uint32_t counts[3];

    (void)state;
    assert_int_equal(sti_order_init(&order, &alone, NULL), 0);
    sti_frequency_count(&order, 0, UINT32_MAX - 1, NULL, counts);
    assert_int_equal(counts[2], UINT32_MAX - 1);
    sti_frequency_count(&order, 0, UINT64_MAX, NULL, counts);
    assert_int_equal(counts[2], UINT32_MAX);
    assert_int_equal(sti_order_init(&order, &constant, NULL), 0);
    sti_frequency_count(&order, 1, UINT64_MAX, NULL, counts);
    assert_int_equal(counts[0], UINT32_MAX);
    assert_int_equal(counts[1], 0);
    assert_int_equal(counts[2], UINT32_MAX);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_brute_force),
        cmocka_unit_test(test_never_read),
        cmocka_unit_test(test_counts_saturate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
