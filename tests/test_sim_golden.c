/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The published simulator's tables, reproduced with its habits: every cell of the
 * thesis's four scenarios and its table of hierarchies, and the count of hot samples of
 * the paper's third figure, in closed form and by going through the order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "order/frequency.h"
#include "sim/hot.h"
#include "sim/sim.h"

#define DOES_NOT_FIT 0

struct cell {
    const char *scenario;
    stk_sim_policy policy;
    double seconds;
    double tolerance;
};

static const struct cell cells[] = {
    {"thesis-s1", STK_SIM_PERFECT, 7.30, 0.01},
    {"thesis-s1", STK_SIM_NAIVE, 27.78, 0.01},
    {"thesis-s1", STK_SIM_PAPER, 7.78, 0.01},
    {"thesis-s1", STK_SIM_STAGING, 10.24, 0.01},
    {"thesis-s1", STK_SIM_DEEPIO_ORDERED, 8.41, 0.01},
    {"thesis-s1", STK_SIM_DEEPIO_OPPORTUNISTIC, 8.40, 0.01},
    {"thesis-s1", STK_SIM_PARALLEL_STAGING, 10.11, 0.01},
    {"thesis-s1", STK_SIM_LBANN_DYNAMIC, 7.71, 0.01},
    {"thesis-s1", STK_SIM_LBANN_PRELOADING, 8.41, 0.01},
    {"thesis-s1", STK_SIM_LOCALITY_AWARE, 8.41, 0.01},
    {"thesis-s2", STK_SIM_PERFECT, 3825.66, 0.01},
    {"thesis-s2", STK_SIM_NAIVE, 15130.54, 0.01},
    {"thesis-s2", STK_SIM_PAPER, 3836.12, 0.01},
    {"thesis-s2", STK_SIM_STAGING, 4982.27, 0.01},
    {"thesis-s2", STK_SIM_DEEPIO_ORDERED, 4433.27, 0.01},
    {"thesis-s2", STK_SIM_DEEPIO_OPPORTUNISTIC, 4432.90, 0.01},
    {"thesis-s2", STK_SIM_PARALLEL_STAGING, 4972.65, 0.01},
    {"thesis-s2", STK_SIM_LBANN_DYNAMIC, 4051.12, 0.01},
    {"thesis-s2", STK_SIM_LBANN_PRELOADING, 4433.27, 0.01},
    {"thesis-s2", STK_SIM_LOCALITY_AWARE, 4433.27, 0.01},
    {"thesis-s3", STK_SIM_PERFECT, 7655.25, 0.01},
    {"thesis-s3", STK_SIM_NAIVE, 30272.96, 0.01},
    {"thesis-s3", STK_SIM_PAPER, 7661.26, 0.01},
    {"thesis-s3", STK_SIM_STAGING, 9945.29, 0.01},
    {"thesis-s3", STK_SIM_DEEPIO_ORDERED, 23948.24, 0.01},
    {"thesis-s3", STK_SIM_DEEPIO_OPPORTUNISTIC, 8487.42, 0.01},
    {"thesis-s3", STK_SIM_PARALLEL_STAGING, 9313.58, 0.01},
    {"thesis-s3", STK_SIM_LBANN_DYNAMIC, DOES_NOT_FIT, 0},
    {"thesis-s3", STK_SIM_LBANN_PRELOADING, DOES_NOT_FIT, 0},
    {"thesis-s3", STK_SIM_LOCALITY_AWARE, 9314.33, 0.01},
    {"thesis-s4", STK_SIM_PERFECT, 15204.78, 0.025},
    {"thesis-s4", STK_SIM_NAIVE, 60526.36, 0.025},
    {"thesis-s4", STK_SIM_PAPER, 16795.17, 0.025},
    {"thesis-s4", STK_SIM_STAGING, 19888.26, 0.025},
    {"thesis-s4", STK_SIM_DEEPIO_ORDERED, 54122.52, 0.025},
    {"thesis-s4", STK_SIM_DEEPIO_OPPORTUNISTIC, 16034.89, 0.025},
    {"thesis-s4", STK_SIM_PARALLEL_STAGING, 16861.82, 0.025},
    {"thesis-s4", STK_SIM_LBANN_DYNAMIC, DOES_NOT_FIT, 0},
    {"thesis-s4", STK_SIM_LBANN_PRELOADING, DOES_NOT_FIT, 0},
    {"thesis-s4", STK_SIM_LOCALITY_AWARE, 19082.99, 0.025},
};

static const struct cell hierarchies[] = {
    {"thesis-env-none", STK_SIM_NAIVE, 30275.72, 0.025},
    {"thesis-env-none", STK_SIM_PERFECT, 7655.47, 0.025},
    {"thesis-env-none", STK_SIM_PAPER, 9947, 0.025},
    {"thesis-env-ram10", STK_SIM_PAPER, 9554, 0.025},
    {"thesis-env-ram20", STK_SIM_PAPER, 9240, 0.025},
    {"thesis-env-ram40", STK_SIM_PAPER, 8613, 0.025},
    {"thesis-env-disk20", STK_SIM_PAPER, 9580, 0.025},
    {"thesis-env-disk40", STK_SIM_PAPER, 9258, 0.025},
    {"thesis-env-disk80", STK_SIM_PAPER, 8704, 0.025},
};

/* Returns 1 when a cell is not met, after saying so. */
static int
check_cell(const struct cell *cell)
{
    struct sti_scenario scenario;
    stk_sim_result result = {0};
    stk_error err;

    sti_scenario_init(&scenario);
    assert_int_equal(sti_scenario_from_builtin(&scenario, cell->scenario, NULL), 0);
    assert_int_equal(sti_scenario_set(&scenario, "mode", "published", NULL), 0);
    int rc = sti_sim_run(&scenario, cell->policy, &result, &err);
    if (cell->seconds <= DOES_NOT_FIT) {
        print_message("%-10s %-21s %s\n", cell->scenario, sti_sim_policy_name(cell->policy),
                      rc ? err.message : "runs, and should not fit");
        return rc != STK_E_INFEASIBLE;
    }
    assert_int_equal(rc, 0);
    double off = result.seconds / cell->seconds - 1;
    print_message("%-17s %-21s %9.2f, published %9.2f: %+.2f %%\n", cell->scenario,
                  sti_sim_policy_name(cell->policy), result.seconds, cell->seconds, 100 * off);
    return fabs(off) > cell->tolerance;
}

static void
test_policies(void **state)
{
    int n_missed = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++)
        n_missed += check_cell(&cells[i]);
    assert_int_equal(n_missed, 0);
}

static void
test_hierarchies(void **state)
{
    int n_missed = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(hierarchies) / sizeof(hierarchies[0]); i++)
        n_missed += check_cell(&hierarchies[i]);
    assert_int_equal(n_missed, 0);
}

static void
test_refuses_other_policies(void **state)
{
    struct sti_scenario scenario;
    stk_sim_result result;
    stk_error err;

    (void)state;
    sti_scenario_init(&scenario);
    assert_int_equal(sti_scenario_set(&scenario, "mode", "published", NULL), 0);
    assert_int_equal(sti_sim_run(&scenario, STK_SIM_COORDINATED, &result, &err), STK_E_INFEASIBLE);
    assert_non_null(strstr(err.message, "coordinated"));
}

static void
test_hot_samples(void **state)
{
    uint64_t uses;

    (void)state;
    assert_true(fabs(sti_sim_hot_samples(1281167, 16, 90, 0.8, &uses) - 31634.7) < 0.1);
    assert_int_equal(uses, 11);
    assert_true(fabs(sti_sim_hot_samples(10000, 4, 1000, 0.1, NULL) - 322.9) < 0.1);
    assert_true(fabs(sti_sim_hot_samples(100, 1, 10, -0.1, NULL) - 100) < 1e-9);
}

/* The same by reading the order of one rank: 90 epochs of ImageNet-1k. */
static void
test_hot_samples_read(void **state)
{
    stk_order_opts opts = {STK_ORDER_OPTS_INIT, .n = 1281167, .world = 16, .rank = 3, .seed = 5};
    struct sti_order_memory memory = {0};
    struct sti_order order;
    uint32_t *counts = calloc(opts.n, sizeof(*counts));
    uint64_t n_hot = 0;

    (void)state;
    assert_int_equal(sti_order_init(&order, &opts, NULL), 0);
    memory.ids = malloc(order.length * sizeof(uint32_t));
    memory.scratch = malloc(sti_order_scratch_bytes(&order));
    assert_true(counts && memory.ids && memory.scratch);
    sti_frequency_count(&order, 0, 90, &memory, counts);
    for (uint64_t sample = 0; sample < opts.n; sample++)
        n_hot += counts[sample] >= 11;
    print_message("%llu samples read at least 11 times, 31635 expected\n",
                  (unsigned long long)n_hot);
    assert_true(fabs((double)n_hot / 31634.7 - 1) < 0.01);
    free(counts);
    free(memory.ids);
    free(memory.scratch);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policies),
        cmocka_unit_test(test_hierarchies),
        cmocka_unit_test(test_refuses_other_policies),
        cmocka_unit_test(test_hot_samples),
        cmocka_unit_test(test_hot_samples_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
