/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms: a quantile lies at or above the true one, by a sixteenth of an octave at
 * most. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/stats.h"

#define ENTRIES 3000

static uint64_t
draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static int
compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

static void
quantiles_are_close(void **state)
{
    static const double fractions[] = {0.01, 0.25, 0.5, 0.9, 0.99, 1.0};
    static uint64_t values[ENTRIES];
    uint64_t seed = 3;

    (void)state;
    for (uint32_t bits = 1; bits <= 60; bits += 7) {
        static struct sti_histogram histogram;
        uint64_t sum = 0;

        memset(&histogram, 0, sizeof(histogram));
        for (int at = 0; at < ENTRIES; at++) {
            values[at] = (draw(&seed) << 31 ^ draw(&seed)) >> (62 - bits);
            sti_histogram_add(&histogram, values[at]);
            sum += values[at];
        }
        qsort(values, ENTRIES, sizeof(values[0]), compare);
        assert_int_equal(histogram.n, ENTRIES);
        assert_true(histogram.sum_ns == sum);
        assert_true(histogram.max_ns == values[ENTRIES - 1]);
        for (size_t at = 0; at < sizeof(fractions) / sizeof(fractions[0]); at++) {
            uint64_t exact = values[(uint64_t)(fractions[at] * ENTRIES) - 1];
            uint64_t found = sti_histogram_quantile(&histogram, fractions[at]);

            assert_true(found >= exact);
            assert_true(found <= exact + exact / 16);
        }
    }
}

static void
the_ends_of_the_scale_hold(void **state)
{
    static struct sti_histogram histogram;

    (void)state;
    assert_int_equal(sti_histogram_quantile(&histogram, 0.5), 0);
    sti_histogram_add(&histogram, 0);
    assert_int_equal(sti_histogram_quantile(&histogram, 0.99), 0);
    sti_histogram_add(&histogram, UINT64_MAX);
    assert_true(sti_histogram_quantile(&histogram, 1.0) == UINT64_MAX);
    assert_int_equal(sti_histogram_quantile(&histogram, 0.5), 0);
    for (uint64_t value = 0; value < 16; value++) {
        static struct sti_histogram single;

        memset(&single, 0, sizeof(single));
        sti_histogram_add(&single, value);
        assert_int_equal(sti_histogram_quantile(&single, 0.5), value);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_close),
        cmocka_unit_test(the_ends_of_the_scale_hold),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
