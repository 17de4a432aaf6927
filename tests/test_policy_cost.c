/* SPDX-License-Identifier: Apache-2.0 */
/* Cost curves and the choice of a source. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "policy/choose.h"
#include "policy/cost.h"

static void
check_near(double value, double expected)
{
    if (fabs(value - expected) > 1e-9 * fabs(expected))
        fail_msg("%.12g, expected %.12g", value, expected);
}

static void
test_curve(void **state)
{
    struct sti_curve curve = {3, {1, 2, 4}, {100, 180, 200}};
    struct sti_curve flat = sti_curve_flat(7);

    (void)state;
    check_near(sti_curve_at(&curve, 0.5), 100);
    check_near(sti_curve_at(&curve, 1), 100);
    check_near(sti_curve_at(&curve, 1.5), 140);
    check_near(sti_curve_at(&curve, 2), 180);
    check_near(sti_curve_at(&curve, 3), 190);
    check_near(sti_curve_at(&curve, 4), 200);
    check_near(sti_curve_at(&curve, 1000), 200);
    check_near(sti_curve_at(&flat, 0.1), 7);
    check_near(sti_curve_at(&flat, 99), 7);
}

static void
test_seconds(void **state)
{
    struct sti_cost cost = {0.002, {2, {1, 4}, {1e8, 2e8}}};

    (void)state;
    check_near(sti_cost_seconds(&cost, 1e6, 1), 0.012);
    check_near(sti_cost_seconds(&cost, 1e6, 4), 0.022);
    check_near(sti_cost_seconds(&cost, 0, 4), 0.002);
}

/* With latency the small ones are worth more of their room; without it all are alike. */
static void
test_worth(void **state)
{
    struct sti_cost slow = {0.002, sti_curve_flat(1e8)};
    struct sti_cost fast = {0, sti_curve_flat(1e8)};

    (void)state;
    assert_true(sti_cost_saved_per_byte(&slow, 1e4, 1) > sti_cost_saved_per_byte(&slow, 1e5, 1));
    check_near(sti_cost_saved_per_byte(&fast, 1e4, 1), sti_cost_saved_per_byte(&fast, 1e5, 1));
    assert_true(isfinite(sti_cost_saved_per_byte(&slow, 0, 1)));
}

static void
test_choice(void **state)
{
    struct sti_source_seconds seconds = {{1, 5, 2, 6, 0.1}};
    struct sti_source_seconds equal = {{1, 1, 1, 1, 1}};

    (void)state;
    /* The origin serves what nobody else has, however quick it is. */
    assert_int_equal(sti_choose_source(&seconds, 0), STI_SOURCE_ORIGIN);
    for (uint32_t only = 0; only < STI_SOURCE_ORIGIN; only++)
        assert_int_equal(sti_choose_source(&seconds, STI_SOURCE_BIT(only)), only);
    assert_int_equal(sti_choose_source(&seconds, STI_SOURCE_BIT(STI_SOURCE_SSD) |
                                                     STI_SOURCE_BIT(STI_SOURCE_PEER_RAM)),
                     STI_SOURCE_PEER_RAM);
    assert_int_equal(sti_choose_source(&equal, STI_SOURCE_BIT(STI_SOURCE_SSD) |
                                                   STI_SOURCE_BIT(STI_SOURCE_PEER_RAM)),
                     STI_SOURCE_SSD);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_curve),
        cmocka_unit_test(test_seconds),
        cmocka_unit_test(test_worth),
        cmocka_unit_test(test_choice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
