/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses ahead: the window against a search through the whole run, and when the order of
 * next uses decides.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "order/mix.h"
#include "policy/future.h"

#define SAMPLES 40
#define READ 23
#define EPOCHS 12

static uint32_t orders[EPOCHS][SAMPLES];

/* Permutations, of which the first READ places are read. */
static void
draw_orders(uint64_t seed)
{
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++)
        for (uint32_t at = 0; at < SAMPLES; at++) {
            seed += STI_MIX_INCREMENT;
            uint32_t other = (uint32_t)(sti_mix(seed) % (at + 1));

            orders[epoch][at] = orders[epoch][other];
            orders[epoch][other] = at;
        }
}

/* The epoch and place of a sample's next use in epochs after one; false without one. */
static bool
search(uint32_t epoch, uint32_t end, uint32_t sample, uint32_t *ret_epoch, uint32_t *ret_place)
{
    for (*ret_epoch = epoch + 1; *ret_epoch < end; ++*ret_epoch)
        for (*ret_place = 0; *ret_place < READ; ++*ret_place)
            if (orders[*ret_epoch][*ret_place] == sample)
                return true;
    return false;
}

static void
check_epoch(const struct sti_future *future, uint32_t epoch)
{
    for (uint32_t sample = 0; sample < SAMPLES; sample++) {
        uint32_t later;
        uint32_t place;
        uint32_t key;
        bool is_used = search(epoch, (uint32_t)future->n_ordered, sample, &later, &place);

        assert_int_equal(sti_future_next(future, epoch, sample, &key), is_used);
        if (!is_used)
            continue;
        assert_int_equal(key, sti_future_first_key(future, later) + place);
        assert_int_equal(future->ids[key], sample);
    }
}

static void
test_window(void **state)
{
    (void)state;
    for (uint32_t n_window = 1; n_window <= EPOCHS; n_window++) {
        struct sti_future future;

        draw_orders(n_window);
        assert_int_equal(sti_future_init(&future, SAMPLES, n_window), 0);
        for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
            while (future.n_ordered < epoch + n_window && future.n_ordered < EPOCHS) {
                memcpy(sti_future_ids(&future, future.n_ordered), orders[future.n_ordered],
                       sizeof(orders[0]));
                sti_future_order(&future, READ);
            }
            check_epoch(&future, epoch);
        }
        sti_future_fini(&future);
    }
}

static void
test_window_length(void **state)
{
    (void)state;
    assert_int_equal(sti_future_window(1000, 90, 8000 * 10), 10);
    assert_int_equal(sti_future_window(1000, 5, 8000 * 10), 5);
    assert_int_equal(sti_future_window(1000, 90, 1), 2);
    assert_int_equal(sti_future_window(1000, 1, 1), 1);
}

static void
test_decides(void **state)
{
    (void)state;
    assert_false(sti_future_decides(1000, 1000, 500)); /* nothing is dropped */
    assert_false(sti_future_decides(1000, 1000, 1000));
    assert_true(sti_future_decides(1000, 990, 990)); /* no misses but of what was dropped */
    assert_true(sti_future_decides(1000, 990, 5000));
    assert_false(sti_future_decides(1000, 990, 500));
    assert_true(sti_future_decides(1999, 1000, 500)); /* half is dropped, misses are few */
    assert_false(sti_future_decides(1999, 1000, 100));
    assert_false(sti_future_decides(1999, 1000, 0));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_window_length),
        cmocka_unit_test(test_decides),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
