/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keyed order: a bijection both ways, that looks like a random one. The statistics
 * are deterministic (fixed seeds); their limits are six or more standard deviations wide.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "order/keyed.h"

static void
check_bijection(uint64_t n, uint64_t seed, uint64_t epoch)
{
    struct sti_keyed keyed;
    bool *seen = calloc(n, sizeof(*seen));

    assert_non_null(seen);
    sti_keyed_init(&keyed, n, seed, epoch);
    for (uint64_t p = 0; p < n; p++) {
        uint64_t element = sti_keyed_at(&keyed, p);

        assert_true(element < n);
        assert_false(seen[element]);
        seen[element] = true;
        assert_true(sti_keyed_find(&keyed, element) == p);
    }
    free(seen);
}

static void
test_bijection(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 300; n++)
        check_bijection(n, n, 3);
    for (uint32_t bit = 9; bit < 18; bit++) {
        check_bijection((UINT64_C(1) << bit) - 1, 0, bit);
        check_bijection(UINT64_C(1) << bit, 0, bit);
        check_bijection((UINT64_C(1) << bit) + 1, 0, bit);
    }
}

static void
test_inverse_of_large(void **state)
{
    static const uint64_t ns[] = {UINT32_MAX, UINT64_C(1) << 32, (UINT64_C(1) << 40) + 12345,
                                  (UINT64_C(1) << 48) - 1, UINT64_C(1) << 48};

    (void)state;
    for (uint32_t k = 0; k < sizeof(ns) / sizeof(ns[0]); k++) {
        struct sti_keyed keyed;

        sti_keyed_init(&keyed, ns[k], 99, k);
        for (uint64_t i = 0; i < 2000; i++) {
            uint64_t p = i < 1000 ? i * (ns[k] / 1000) : ns[k] - 1 - (i - 1000);
            uint64_t element = sti_keyed_at(&keyed, p);

            assert_true(element < ns[k]);
            assert_true(sti_keyed_find(&keyed, element) == p);
        }
    }
}

/* What a saved position means depends on these; they may never change. */
static void
test_pinned(void **state)
{
    static const uint64_t ten[] = {2, 9, 7, 3, 8, 1, 4, 5, 0, 6};
    struct sti_keyed keyed;

    (void)state;
    sti_keyed_init(&keyed, 10, 7, 3);
    for (uint32_t i = 0; i < 10; i++)
        assert_true(sti_keyed_at(&keyed, i) == ten[i]);
    sti_keyed_init(&keyed, UINT64_C(1) << 48, 7, 3);
    assert_true(sti_keyed_at(&keyed, 0) == UINT64_C(68776722575304));
}

/* chi-square of counts that should be equal, in units of its mean. */
static double
chi_square(const uint32_t *counts, uint32_t n_cells, double expected)
{
    double sum = 0;

    for (uint32_t i = 0; i < n_cells; i++) {
        double off = counts[i] - expected;

        sum += off * off / expected;
    }
    return sum / (n_cells - 1);
}

/* Every permutation of four is as likely as any other. */
static void
test_all_permutations_of_four(void **state)
{
    uint32_t counts[256] = {0};
    uint32_t dense[24];
    uint32_t n_dense = 0;

    (void)state;
    for (uint64_t key = 0; key < 48000; key++) {
        struct sti_keyed keyed;
        uint32_t code = 0;

        sti_keyed_init(&keyed, 4, key / 100, key % 100);
        for (uint32_t p = 0; p < 4; p++)
            code = code << 2 | (uint32_t)sti_keyed_at(&keyed, p);
        counts[code]++;
    }
    for (uint32_t code = 0; code < 256; code++)
        if (counts[code]) {
            assert_true(n_dense < 24);
            dense[n_dense++] = counts[code];
        }
    assert_int_equal(n_dense, 24);
    assert_true(chi_square(dense, 24, 2000) < 1 + 6 * 0.295); /* sd sqrt(2 / 23) */
}

/* Position to sample, and the step from one position to the next: 100 x 100 cells
 * each. */
static void
test_mixing(void **state)
{
    static const uint64_t ns[] = {1000000, 1 << 20, (1 << 20) + 1};
    static uint32_t places[10000];
    static uint32_t steps[10000];

    (void)state;
    for (uint32_t k = 0; k < 3; k++) {
        uint64_t n = ns[k];
        struct sti_keyed keyed;
        uint64_t previous = 0;

        memset(places, 0, sizeof(places));
        memset(steps, 0, sizeof(steps));
        sti_keyed_init(&keyed, n, 1, k);
        for (uint64_t p = 0; p < n; p++) {
            uint64_t element = sti_keyed_at(&keyed, p);

            places[p * 100 / n * 100 + element * 100 / n]++;
            steps[previous * 100 / n * 100 + element * 100 / n]++;
            previous = element;
        }
        assert_in_range((uint64_t)(1000 * chi_square(places, 10000, (double)n / 10000)), 890, 1090);
        assert_in_range((uint64_t)(1000 * chi_square(steps, 10000, (double)n / 10000)), 890, 1090);
    }
}

/* Two keys, whichever bit tells them apart, agree at about one position. */
static void
test_keys_differ(void **state)
{
    const uint64_t n = 10000;

    (void)state;
    for (uint32_t bit = 0; bit < 128; bit++) {
        struct sti_keyed a;
        struct sti_keyed b;
        uint32_t same = 0;
        uint32_t shifted = 0;

        sti_keyed_init(&a, n, 5, 8);
        sti_keyed_init(&b, n, bit < 64 ? 5 ^ UINT64_C(1) << bit : 5,
                       bit < 64 ? 8 : 8 ^ UINT64_C(1) << (bit - 64));
        for (uint64_t p = 0; p < n; p++) {
            same += sti_keyed_at(&a, p) == sti_keyed_at(&b, p);
            shifted += sti_keyed_at(&a, p) == sti_keyed_at(&b, (p + 1) % n);
        }
        assert_in_range(same, 0, 9);
        assert_in_range(shifted, 0, 9);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bijection), cmocka_unit_test(test_inverse_of_large),
        cmocka_unit_test(test_pinned),    cmocka_unit_test(test_all_permutations_of_four),
        cmocka_unit_test(test_mixing),    cmocka_unit_test(test_keys_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
