/* SPDX-License-Identifier: Apache-2.0 */
/* The exported order: arguments, ranges, parts of a stream, memory that is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include <stoker/plan.h>

#include "base/mem.h"

static stk_order *
make(stk_order_opts opts)
{
    stk_order *order = NULL;

    opts.size = sizeof(opts);
    assert_int_equal(stk_order_new(&order, &opts, NULL), 0);
    return order;
}

static void
test_new(void **state)
{
    stk_order_opts opts = {STK_ORDER_OPTS_INIT, .n = 10, .rank = 1};
    stk_order *order = NULL;
    stk_error err;

    (void)state;
    assert_int_equal(stk_order_new(&order, &opts, &err), -EINVAL);
    assert_non_null(strstr(err.message, "rank is 1"));
    assert_int_equal(stk_order_new(&order, NULL, &err), -EINVAL);
    assert_int_equal(stk_order_new(NULL, &opts, &err), -EINVAL);
    opts.size = 0;
    assert_int_equal(stk_order_new(&order, &opts, &err), -EINVAL);
    struct {
        stk_order_opts opts;
        uint64_t unknown;
    } newer = {{.size = sizeof(newer), .n = 10}, 1};
    assert_int_equal(stk_order_new(&order, &newer.opts, &err), -E2BIG);
    assert_null(order);
    newer.unknown = 0;
    assert_int_equal(stk_order_new(&order, &newer.opts, &err), 0);
    stk_order_free(order);
    stk_order_free(NULL);
}

static void
test_list_has_no_ids(void **state)
{
    stk_order *order = make((stk_order_opts){.n = 10, .kind = STK_ORDER_LIST});
    uint64_t value;
    uint32_t counts[10];

    (void)state;
    assert_int_equal(stk_order_length(order, &value), -ENOTSUP);
    assert_int_equal(stk_order_ids(order, 0, 0, 0, &value), -ENOTSUP);
    assert_int_equal(stk_order_next_use(order, 0, 0, 0, 0, &value, &value), -ENOTSUP);
    assert_int_equal(stk_order_frequency(order, 0, 1, counts), -ENOTSUP);
    stk_order_free(order);
}

static void
test_ranges(void **state)
{
    stk_order *order = make((stk_order_opts){.n = 10});
    uint64_t ids[10];
    uint64_t epoch;
    uint64_t position;
    uint32_t counts[10];

    (void)state;
    assert_int_equal(stk_order_ids(order, 0, 0, 10, ids), 0);
    assert_int_equal(stk_order_ids(order, 0, 10, 0, ids), 0);
    assert_int_equal(stk_order_ids(order, 0, 0, 11, ids), -ERANGE);
    assert_int_equal(stk_order_ids(order, 0, 11, 0, ids), -ERANGE);
    assert_int_equal(stk_order_ids(order, 0, 5, UINT64_MAX - 2, ids), -ERANGE);
    assert_int_equal(stk_order_ids(order, 0, 0, 1, NULL), -EINVAL);
    assert_int_equal(stk_order_ids(NULL, 0, 0, 1, ids), -EINVAL);
    assert_int_equal(stk_order_next_use(order, 10, 0, 0, 0, &epoch, &position), -ERANGE);
    assert_int_equal(stk_order_next_use(order, 9, 0, 10, 0, &epoch, &position), -ERANGE);
    assert_int_equal(stk_order_next_use(order, 9, 0, 9, 0, &epoch, &position), 0);
    assert_int_equal(stk_order_next_use(order, 9, 1, 0, 0, &epoch, &position), 0);
    assert_int_equal(stk_order_next_use(order, 9, 0, UINT64_MAX, 0, &epoch, &position), 1);
    assert_true(epoch == 0 && position == 5); /* 4 1 7 5 3 9 0 8 6 2 */
    assert_int_equal(stk_order_frequency(order, 0, 0, counts), -EINVAL);
    assert_int_equal(stk_order_frequency(order, 1, UINT64_MAX, counts), 0);
    assert_int_equal(stk_order_frequency(order, 2, UINT64_MAX, counts), -ERANGE);
    assert_int_equal(stk_order_frequency(order, 2, 1, NULL), -EINVAL);
    stk_order_free(order);
}

/* Any part of a stream is that part of the whole. */
static void
test_parts(void **state)
{
    const stk_order_opts cases[] = {
        {.n = 50, .world = 3, .rank = 1},
        {.n = 50, .kind = STK_ORDER_KEYED, .world = 3, .rank = 1},
        {.n = 50, .sampler = STK_SAMPLER_STATEFUL, .num_samples = 17},
        {.n = UINT64_C(1) << 40,
         .sampler = STK_SAMPLER_GENERATOR,
         .num_samples = 17,
         .replacement = 1},
    };

    (void)state;
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        stk_order *order = make(cases[i]);
        uint64_t whole[17];
        uint64_t part[17];
        uint64_t length;

        assert_int_equal(stk_order_length(order, &length), 0);
        assert_int_equal(length, 17);
        assert_int_equal(stk_order_ids(order, 3, 0, 17, whole), 0);
        for (uint64_t first = 0; first < 17; first++) {
            assert_int_equal(stk_order_ids(order, 3, first, 17 - first, part), 0);
            assert_memory_equal(part, whole + first, (17 - first) * sizeof(*part));
        }
        stk_order_free(order);
    }
}

static void
test_no_memory(void **state)
{
    stk_order *order = make((stk_order_opts){.n = 10, .world = 2});
    stk_order *none = NULL;
    stk_order_opts opts = {STK_ORDER_OPTS_INIT, .n = 10};
    uint64_t ids[5];
    uint32_t counts[10];
    uint64_t value;

    (void)state;
    for (uint64_t at = 1; at <= 2; at++) {
        sti_mem_fail_at(at, 0);
        assert_int_equal(stk_order_ids(order, 0, 0, 5, ids), -ENOMEM);
        sti_mem_fail_at(at, 0);
        assert_int_equal(stk_order_frequency(order, 0, 1, counts), -ENOMEM);
        sti_mem_fail_at(at, 0);
        assert_int_equal(stk_order_next_use(order, 0, 0, 0, 1, &value, &value), -ENOMEM);
    }
    sti_mem_fail_at(1, 0);
    assert_int_equal(stk_order_new(&none, &opts, NULL), -ENOMEM);
    sti_mem_fail_at(0, 0);
    assert_int_equal(stk_order_ids(order, 0, 0, 5, ids), 0);
    stk_order_free(order);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new),       cmocka_unit_test(test_list_has_no_ids),
        cmocka_unit_test(test_ranges),    cmocka_unit_test(test_parts),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
