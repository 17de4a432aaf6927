/* SPDX-License-Identifier: Apache-2.0 */
/* Draws of a mix: exact shares, every sample before one comes again, the same for every
 * world. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "order/draws.h"
#include "order/order.h"

static const uint64_t first_id[] = {0, 10, 110, 1110};
static const double weights[] = {1, 1, 2};

/* Three parts of 10, 100 and 1,000 samples; draws of an epoch as told. */
static struct sti_draws
make(uint64_t *first_draw, uint64_t samples)
{
    assert_int_equal(sti_draws_divide(first_draw, weights, 3, samples), 3);
    return (struct sti_draws){.n_parts = 3, .first_id = first_id, .first_draw = first_draw};
}

static void
test_divide(void **state)
{
    uint64_t first[5];
    static const double thirds[] = {1, 1, 1};
    static const double bad[][2] = {
        {1, 0}, {-1, 1}, {1, (double)NAN}, {(double)INFINITY, 1}, {1, 1e-9}};
    static const uint32_t bad_part[] = {1, 0, 1, 0, 1};
    double many[4] = {0.1, 0.2, 0.3, 0.4};

    (void)state;
    assert_int_equal(sti_draws_divide(first, thirds, 3, 100), 3);
    assert_int_equal(first[1], 34);
    assert_int_equal(first[2], 67);
    assert_int_equal(first[3], 100);
    for (uint32_t at = 0; at < 5; at++)
        assert_int_equal(sti_draws_divide(first, bad[at], 2, 1000), bad_part[at]);
    for (uint64_t samples = 10; samples < 2000; samples += 13) {
        assert_int_equal(sti_draws_divide(first, many, 4, samples), 4);
        assert_int_equal(first[4], samples);
        for (uint32_t p = 0; p < 4; p++) {
            double exact = (double)samples * many[p];
            double given = (double)(first[p + 1] - first[p]);

            assert_true(given > exact - 1 && given < exact + 1);
        }
    }
    assert_int_equal(sti_draws_divide(first, weights, 3, UINT64_C(1) << 48), 3);
    assert_int_equal(first[3], UINT64_C(1) << 48);
}

static void
write_epoch(const struct sti_draws *draws, uint64_t epoch, uint64_t *ids)
{
    struct sti_draws_range range = {.step = 1, .n = sti_draws_count(draws)};

    sti_draws_write(draws, 5, epoch, &range, ids);
}

/* Over the epochs each part's samples come equally often, but for those of the last
 * pass. */
static void
test_passes(void **state)
{
    uint64_t first_draw[4], ids[40];
    uint32_t counts[1110] = {0};
    struct sti_draws draws = make(first_draw, 40);

    (void)state;
    for (uint64_t epoch = 0; epoch < 100; epoch++) {
        uint32_t parts[3] = {0};

        write_epoch(&draws, epoch, ids);
        for (int at = 0; at < 40; at++) {
            counts[ids[at]]++;
            parts[ids[at] < 10 ? 0 : ids[at] < 110 ? 1 : 2]++;
        }
        assert_int_equal(parts[0], 10);
        assert_int_equal(parts[1], 10);
        assert_int_equal(parts[2], 20);
    }
    for (int id = 0; id < 1110; id++)
        assert_int_equal(counts[id], id < 10 ? 100 : id < 110 ? 10 : 2);
}

static int
compare_ids(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

/* The ranks of a world together draw what one draws alone; another seed or epoch,
 * otherwise. */
static void
test_order(void **state)
{
    uint64_t first_draw[4], alone[120], together[120], other[120];
    uint32_t ids[120];
    struct sti_draws draws = make(first_draw, 120);
    stk_order_opts opts = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_KEYED, .n = 1110, .seed = 5};
    struct sti_order order;

    (void)state;
    write_epoch(&draws, 3, alone);
    for (uint32_t rank = 0; rank < 4; rank++) {
        opts.world = 4;
        opts.rank = rank;
        assert_int_equal(sti_order_init(&order, &opts, NULL), 0);
        uint64_t plain = sti_order_fingerprint(&order);
        sti_order_set_draws(&order, &draws);
        assert_true(sti_order_fingerprint(&order) != plain);
        assert_false(sti_order_seekable(&order));
        assert_int_equal(sti_order_length(&order), 30);
        sti_order_epoch(&order, 3, NULL, ids, NULL);
        for (uint32_t at = 0; at < 30; at++) {
            together[4 * at + rank] = sti_order_id(&order, ids, at);
            assert_int_equal(together[4 * at + rank], alone[4 * at + rank]);
        }
    }
    write_epoch(&draws, 4, other);
    assert_memory_not_equal(alone, other, sizeof(alone));
    qsort(alone, 120, sizeof(alone[0]), compare_ids);
    write_epoch(&draws, 3, other);
    qsort(other, 120, sizeof(other[0]), compare_ids);
    assert_memory_equal(alone, other, sizeof(alone));
}

/* Padding goes round; the sequence is pinned, since saved states depend on it. */
static void
test_padding_and_golden(void **state)
{
    static const uint64_t golden[] = {20, 0, 8, 37, 680, 3, 249, 1102, 307, 913};
    uint64_t first_draw[4];
    uint32_t ids[4];
    struct sti_draws draws = make(first_draw, 10);
    stk_order_opts opts = {
        STK_ORDER_OPTS_INIT, .kind = STK_ORDER_KEYED, .n = 1110, .seed = 5, .world = 4, .rank = 3};
    struct sti_order order;
    uint64_t all[10];

    (void)state;
    write_epoch(&draws, 1, all);
    assert_memory_equal(all, golden, sizeof(golden));
    assert_int_equal(sti_order_init(&order, &opts, NULL), 0);
    sti_order_set_draws(&order, &draws);
    assert_int_equal(sti_order_length(&order), 3);
    sti_order_epoch(&order, 1, NULL, ids, NULL);
    assert_int_equal(ids[0], all[3]);
    assert_int_equal(ids[1], all[7]);
    assert_int_equal(ids[2], all[1]); /* 11 modulo 10 */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_divide),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_padding_and_golden),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
