/* SPDX-License-Identifier: Apache-2.0 */
/* The arbiter: order, no waiting without a reason, no waiting for ever, and off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "budget/budget.h"

#define MS UINT64_C(1000000)

static void
test_nobody_short(void **unused)
{
    struct sti_budget budget;
    (void)unused;

    sti_budget_init(&budget, false);
    for (uint32_t at = 0; at < 1000; at++)
        for (uint32_t class_ = 0; class_ < STI_BUDGET_CLASSES; class_++)
            assert_int_equal(sti_budget_ask(&budget, class_, at), 0);
}

/* A class that is short holds up all below it, none above it, and not itself. */
static void
test_order(void **unused)
{
    (void)unused;
    for (uint32_t needy = 0; needy < STI_BUDGET_CLASSES; needy++) {
        struct sti_budget budget;

        sti_budget_init(&budget, false);
        for (uint32_t class_ = 0; class_ < STI_BUDGET_CLASSES; class_++)
            assert_int_equal(sti_budget_ask(&budget, class_, 1000 * MS), 0);
        sti_budget_set_short(&budget, needy, true);
        for (uint32_t class_ = 0; class_ < STI_BUDGET_CLASSES; class_++) {
            uint64_t wait_ns = sti_budget_ask(&budget, class_, 1001 * MS);

            assert_true((wait_ns == 0) == (class_ <= needy));
        }
        sti_budget_set_short(&budget, needy, false);
        for (uint32_t class_ = 0; class_ < STI_BUDGET_CLASSES; class_++)
            assert_int_equal(sti_budget_ask(&budget, class_, 1002 * MS), 0);
    }
}

/* Two users of a class: short as long as one of them is. */
static void
test_two_users(void **unused)
{
    struct sti_budget budget;
    (void)unused;

    sti_budget_init(&budget, false);
    assert_int_equal(sti_budget_ask(&budget, STI_BUDGET_CHECKPOINT, 500 * MS), 0);
    sti_budget_set_short(&budget, STI_BUDGET_SAMPLE, true);
    sti_budget_set_short(&budget, STI_BUDGET_SAMPLE, true);
    sti_budget_set_short(&budget, STI_BUDGET_SAMPLE, false);
    assert_true(sti_budget_ask(&budget, STI_BUDGET_CHECKPOINT, 501 * MS) > 0);
    sti_budget_set_short(&budget, STI_BUDGET_SAMPLE, false);
    assert_int_equal(sti_budget_ask(&budget, STI_BUDGET_CHECKPOINT, 502 * MS), 0);
}

/* However long another is short: one operation at a time, one in each patience time, and
 * the time said is when it works. */
static void
test_none_waits_for_ever(void **unused)
{
    struct sti_budget budget;
    uint64_t now_ns = 1000 * MS;
    uint32_t n_granted = 0;
    (void)unused;

    sti_budget_init(&budget, false);
    sti_budget_set_short(&budget, STI_BUDGET_SAMPLE, true);
    assert_int_equal(sti_budget_ask(&budget, STI_BUDGET_CHECKPOINT, now_ns), 0);
    assert_true(sti_budget_ask(&budget, STI_BUDGET_CHECKPOINT, now_ns + 1000 * MS) > 0);
    sti_budget_done(&budget, STI_BUDGET_CHECKPOINT);
    for (uint64_t end_ns = now_ns + 10 * STI_BUDGET_PATIENCE_NS; now_ns < end_ns;) {
        uint64_t wait_ns = sti_budget_ask(&budget, STI_BUDGET_CHECKPOINT, now_ns);

        if (wait_ns == 0) {
            sti_budget_done(&budget, STI_BUDGET_CHECKPOINT);
            n_granted++;
        }
        assert_true(wait_ns <= STI_BUDGET_PATIENCE_NS);
        now_ns += wait_ns > 0 ? wait_ns : 1;
    }
    assert_int_equal(n_granted, 9);
}

static void
test_off(void **unused)
{
    struct sti_budget budget;
    (void)unused;

    sti_budget_init(&budget, true);
    sti_budget_set_short(&budget, STI_BUDGET_SAMPLE, true);
    for (uint32_t at = 0; at < 100; at++)
        assert_int_equal(sti_budget_ask(&budget, STI_BUDGET_DRAIN, at), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_short), cmocka_unit_test(test_order),
        cmocka_unit_test(test_two_users),    cmocka_unit_test(test_none_waits_for_ever),
        cmocka_unit_test(test_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
