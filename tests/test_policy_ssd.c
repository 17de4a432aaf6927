/* SPDX-License-Identifier: Apache-2.0 */
/* The pure decisions behind the SSD tier: density, shares, lookahead, cost curves. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "policy/cost_curve.h"
#include "policy/density.h"
#include "policy/fit.h"
#include "policy/lookahead.h"
#include "policy/shares.h"

static uint64_t
next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static uint64_t
find_threshold(const uint64_t *sizes, uint32_t n, uint64_t capacity_bytes, uint64_t max_bytes)
{
    struct sti_density density;
    uint32_t n_passes = 0;

    sti_density_init(&density, capacity_bytes, max_bytes);
    do {
        for (uint32_t at = 0; at < n; at++)
            sti_density_add(&density, sizes[at]);
        assert_true(++n_passes < 8);
    } while (sti_density_refine(&density));
    return sti_density_threshold(&density);
}

/* All smaller than the threshold fit, with those of its size they do not. */
static void
test_threshold_is_exact(void **state)
{
    uint64_t sizes[500];
    uint64_t random = 5;

    (void)state;
    for (int round = 0; round < 200; round++) {
        uint32_t n = 1 + (uint32_t)(next_random(&random) % 500);
        uint64_t max_bytes = 0, all_bytes = 0, below_bytes = 0, with_bytes = 0;

        for (uint32_t at = 0; at < n; at++) {
            sizes[at] = next_random(&random) >> (next_random(&random) % 31);
            max_bytes = sizes[at] > max_bytes ? sizes[at] : max_bytes;
            all_bytes += sizes[at];
        }
        uint64_t capacity_bytes = next_random(&random) % (all_bytes + all_bytes / 10 + 2);
        uint64_t threshold = find_threshold(sizes, n, capacity_bytes, max_bytes);
        if (all_bytes <= capacity_bytes) {
            assert_int_equal(threshold, UINT64_MAX);
            continue;
        }
        for (uint32_t at = 0; at < n; at++) {
            below_bytes += sizes[at] < threshold ? sizes[at] : 0;
            with_bytes += sizes[at] <= threshold ? sizes[at] : 0;
        }
        assert_true(below_bytes <= capacity_bytes && with_bytes > capacity_bytes);
    }
}

/* Log-uniform from 1 KB to 10 MB, half of it kept, 2 ms a read and 500 MB/s. */
static void
test_density_saves_origin_time(void **state)
{
    enum { N = 2000 };
    uint64_t *sizes = calloc(N, sizeof(uint64_t));
    double all_s = 0, left_s = 0;
    uint64_t all_bytes = 0;

    (void)state;
    assert_non_null(sizes);
    for (uint32_t at = 0; at < N; at++) {
        double size = 1000;

        for (uint32_t k = 0; k < at; k++)
            size *= 1.0046158; /* 10^4 in 2,000 steps */
        sizes[at] = (uint64_t)size;
        all_bytes += sizes[at];
        all_s += 0.002 + size / 500e6;
    }
    uint64_t threshold = find_threshold(sizes, N, all_bytes / 2, sizes[N - 1]);
    for (uint32_t at = 0; at < N; at++)
        left_s += sizes[at] >= threshold ? 0.002 + (double)sizes[at] / 500e6 : 0;
    free(sizes);
    assert_true(left_s * 1.3 < all_s / 2);
}

static void
test_ssd_range(void **state)
{
    (void)state;
    struct sti_ssd_range all = sti_density_ssd_range(1000, 2000, true);
    assert_true(all.least_bytes == 0 && all.most_bytes == UINT64_MAX);
    struct sti_ssd_range part = sti_density_ssd_range(1000, 2000, false);
    assert_true(part.least_bytes == 1000 && part.most_bytes == 2000);
    struct sti_ssd_range free = sti_density_ssd_range(UINT64_MAX, UINT64_MAX, false);
    assert_true(free.least_bytes == 0 && free.most_bytes == UINT64_MAX);
}

static void
test_shares_follow_speed_and_room(void **state)
{
    struct sti_share shares[3] = {{.weight = 100, .room_bytes = 1000},
                                  {.weight = 300, .room_bytes = 1000},
                                  {.weight = 100, .room_bytes = 1000}};

    (void)state;
    sti_shares_divide(shares, 3, 500);
    assert_int_equal(shares[0].share_bytes, 100);
    assert_int_equal(shares[1].share_bytes, 300);
    assert_int_equal(shares[2].share_bytes, 100);
    sti_shares_divide(shares, 3, 2000); /* the second is full at 1,000 */
    assert_int_equal(shares[0].share_bytes, 500);
    assert_int_equal(shares[1].share_bytes, 1000);
    assert_int_equal(shares[2].share_bytes, 500);
    sti_shares_divide(shares, 3, 9999);
    for (int at = 0; at < 3; at++)
        assert_int_equal(shares[at].share_bytes, 1000);
    shares[0].weight = shares[1].weight = shares[2].weight = 0; /* nothing is known */
    sti_shares_divide(shares, 3, 301);
    assert_int_equal(shares[0].share_bytes + shares[1].share_bytes + shares[2].share_bytes, 301);
    assert_true(shares[2].share_bytes >= 100);
}

static void
test_shares_add_up(void **state)
{
    uint64_t random = 9;

    (void)state;
    for (int round = 0; round < 500; round++) {
        struct sti_share shares[8];
        uint32_t n = 1 + (uint32_t)(next_random(&random) % 8);
        uint64_t n_bytes = next_random(&random), room_bytes = 0, sum_bytes = 0;

        for (uint32_t at = 0; at < n; at++) {
            shares[at].weight = (double)(next_random(&random) % 5);
            shares[at].room_bytes = next_random(&random) % 3 ? next_random(&random) : 0;
            room_bytes += shares[at].room_bytes;
        }
        sti_shares_divide(shares, n, n_bytes);
        for (uint32_t at = 0; at < n; at++) {
            assert_true(shares[at].share_bytes <= shares[at].room_bytes);
            sum_bytes += shares[at].share_bytes;
        }
        assert_int_equal(sum_bytes, n_bytes < room_bytes ? n_bytes : room_bytes);
    }
}

static void
test_next_share(void **state)
{
    const struct sti_share shares[3] = {
        {.share_bytes = 100}, {.share_bytes = 300}, {.share_bytes = 0}};
    uint64_t used_bytes[3] = {0};
    uint32_t at;

    (void)state;
    while ((at = sti_shares_next(shares, used_bytes, 3, 10)) != UINT32_MAX) {
        assert_true(at < 2);
        used_bytes[at] += 10;
        double one = (double)used_bytes[0] / 100, two = (double)used_bytes[1] / 300;
        assert_true(one - two < 0.11 && two - one < 0.11);
    }
    assert_true(used_bytes[0] == 100 && used_bytes[1] == 300);
}

static void
test_lookahead(void **state)
{
    struct sti_lookahead l = {.limit_bytes = 100,
                              .least_bytes = 10,
                              .memory_bytes = 300,
                              .ssd_bytes = 200,
                              .data_bytes = 1000};

    (void)state;
    assert_int_equal(sti_lookahead_bytes(&l, 0, 1000), 10);
    assert_int_equal(sti_lookahead_bytes(&l, 50, 950), 40); /* 4/5 of what has passed */
    assert_int_equal(sti_lookahead_bytes(&l, 500, 500), 100);
    assert_int_equal(sti_lookahead_bytes(&l, 990, 10), 40); /* 4 x what is left */
    assert_int_equal(sti_lookahead_bytes(&l, 1000, 0), 10);
    l.data_bytes = 510; /* 10 bytes have no room: 10 / (200/510) may be staged */
    assert_int_equal(sti_lookahead_bytes(&l, 255, 255), 25);
    l.data_bytes = 500; /* everything has room */
    assert_int_equal(sti_lookahead_bytes(&l, 0, 500), 100);
    l.data_bytes = 1000;
    l.ssd_bytes = 0;
    assert_int_equal(sti_lookahead_bytes(&l, 0, 1000), 100);
    l.ssd_bytes = 200;
    l.transit_bytes = 16; /* 12 of them are counted on: enough for 60 staged */
    assert_int_equal(sti_lookahead_bytes(&l, 0, 1000), 60);
    assert_int_equal(sti_lookahead_bytes(&l, 60, 940), 60);
    assert_int_equal(sti_lookahead_bytes(&l, 80, 920), 76);
    assert_int_equal(sti_lookahead_bytes(&l, 995, 5), 80);
    assert_int_equal(sti_lookahead_bytes(&l, 1000, 0), 60);
}

/* One of them, the others, and what is left is never more than by the best one alone. */
static void
test_fit(void **state)
{
    const uint64_t sizes[] = {50, 9, 33, 4, 0, 60};
    uint64_t seed = 77;

    (void)state;
    assert_int_equal(sti_fit_choose(sizes, 6, 50), 0);
    assert_int_equal(sti_fit_choose(sizes, 6, 59), 0); /* 50 and 9, not 60 */
    assert_int_equal(sti_fit_choose(sizes, 6, 1), 3);
    assert_int_equal(sti_fit_choose(sizes + 4, 1, 7), 0);
    for (int round = 0; round < 2000; round++) {
        uint64_t left[STI_FIT_MOST], sum = 0, alone = UINT64_MAX;
        uint32_t n = 1 + (uint32_t)(next_random(&seed) % 20);
        uint64_t need = 1 + next_random(&seed) % 300, freed = 0;

        for (uint32_t at = 0; at < n; at++) {
            left[at] = next_random(&seed) % 200;
            sum += left[at];
            if (left[at] >= need && left[at] < alone)
                alone = left[at];
        }
        for (uint32_t gone = 0; gone < n && freed < need; gone++) {
            uint32_t at = sti_fit_choose(left, n, need - freed);

            assert_true(at < n);
            freed += left[at];
            left[at] = 0;
        }
        assert_true(freed >= need || freed == sum);
        assert_true(freed <= alone);
    }
}

static void
test_curve(void **state)
{
    struct sti_cost_curve curve = {0};

    (void)state;
    assert_true(sti_cost_curve_seconds(&curve, 10, 10, 1) <= 0);
    sti_cost_curve_add(&curve, &(struct sti_cost_point){16, 0.004, 400});
    sti_cost_curve_add(&curve, &(struct sti_cost_point){1, 0.001, 100});
    sti_cost_curve_add(&curve, &(struct sti_cost_point){4, 0.002, 200});
    sti_cost_curve_add(&curve, &(struct sti_cost_point){8, 0, 200}); /* no number */
    sti_cost_curve_add(&curve, &(struct sti_cost_point){4, 0.002, 250});
    assert_int_equal(curve.n_points, 3);
    assert_float_equal(sti_cost_curve_at(&curve, 0.5).bytes_per_s, 100, 1e-9);
    assert_float_equal(sti_cost_curve_at(&curve, 2).bytes_per_s, 150, 1e-9);
    assert_float_equal(sti_cost_curve_at(&curve, 10).bytes_per_s, 325, 1e-9);
    assert_float_equal(sti_cost_curve_at(&curve, 10).latency_s, 0.003, 1e-9);
    assert_float_equal(sti_cost_curve_at(&curve, 99).bytes_per_s, 400, 1e-9);
    assert_float_equal(sti_cost_curve_seconds(&curve, 1000, 100, 1), 1.0, 1e-6);
    assert_float_equal(sti_cost_curve_seconds(&curve, 1, 1000, 1), 10.0, 1e-6);
    for (int depth = 20; depth < 60; depth++)
        sti_cost_curve_add(&curve, &(struct sti_cost_point){depth, 0.1, 1});
    assert_int_equal(curve.n_points, STI_COST_POINTS_MAX);
}

/* Four at a time, a millisecond each, a megabyte a read. */
static void
test_learner(void **state)
{
    struct sti_cost_learner learner = {0};
    struct sti_cost_point point;
    uint64_t now_ns = 5000;

    (void)state;
    for (int round = 0; round < 8; round++) {
        uint64_t began_ns = now_ns;

        assert_int_equal(sti_cost_learner_point(&learner, &point), round < 4 ? -EAGAIN : 0);
        for (int at = 0; at < 4; at++)
            sti_cost_learner_begin(&learner, now_ns);
        now_ns += 1000000;
        for (int at = 0; at < 4; at++)
            sti_cost_learner_end(&learner, now_ns, began_ns, 1000000);
        now_ns += 7000000; /* idle: it counts for nothing */
    }
    assert_int_equal(sti_cost_learner_point(&learner, &point), 0);
    assert_float_equal(point.depth, 4, 1e-6);
    assert_float_equal(point.latency_s, 0.001, 1e-9);
    assert_float_equal(point.bytes_per_s, 4e9, 1e3);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threshold_is_exact),
        cmocka_unit_test(test_density_saves_origin_time),
        cmocka_unit_test(test_ssd_range),
        cmocka_unit_test(test_shares_follow_speed_and_room),
        cmocka_unit_test(test_shares_add_up),
        cmocka_unit_test(test_next_share),
        cmocka_unit_test(test_lookahead),
        cmocka_unit_test(test_fit),
        cmocka_unit_test(test_curve),
        cmocka_unit_test(test_learner),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
