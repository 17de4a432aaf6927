/* SPDX-License-Identifier: Apache-2.0 */
/* The public face of simulations: keys, ranges, errors, built-in scenarios. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <stoker/simulate.h>

static void
test_every_builtin(void **state)
{
    const char *name;
    const char *summary;

    (void)state;
    for (uint32_t i = 0; (name = stk_scenario_builtin(i, &summary)) != NULL; i++) {
        stk_scenario *scenario;
        stk_error err;

        if (stk_scenario_new(&scenario, name, &err) || stk_scenario_check(scenario, &err))
            fail_msg("%s: %s", name, err.message);
        assert_string_equal(stk_scenario_name(scenario), name);
        assert_true(stk_scenario_has_loader(scenario) || stk_scenario_has_checkpoint(scenario));
        assert_true(strlen(summary) > 0);
        stk_scenario_free(scenario);
    }
}

struct bad {
    const char *key;
    const char *value;
    int rc;
};

static void
test_bad_values(void **state)
{
    static const struct bad bads[] = {
        {"no_such_key", "1", -ENOENT},
        {"ranks", "0", -EINVAL},
        {"ranks", "16385", -EINVAL},
        {"ranks", "1.5", -EINVAL},
        {"ranks", "4x", -EINVAL},
        {"ranks", "", -EINVAL},
        {"ranks", " 4", -EINVAL},
        {"ranks", "0x4", -EINVAL},
        {"sample_mb", "nan", -EINVAL},
        {"sample_mb", "inf", -EINVAL},
        {"sample_mb", "1e999", -EINVAL},
        {"sample_mb", "-1", -EINVAL},
        {"mode", "hones", -EINVAL},
        {"mode", "honest published", -EINVAL},
        {"drop_last", "1", -EINVAL},
        {"origin_mb_s", "", -EINVAL},
        {"origin_mb_s", "1", -EINVAL},
        {"origin_mb_s", "1:", -EINVAL},
        {"origin_mb_s", "2:5 1:6", -EINVAL},
        {"origin_mb_s", "1:0", -EINVAL},
        {"origin_mb_s", "1:5,2:6", -EINVAL},
        {"name", "", -EINVAL},
        {"origin_mb_s",
         "1:1 2:1 3:1 4:1 5:1 6:1 7:1 8:1 9:1 10:1 11:1 12:1 13:1 14:1 15:1 16:1 17:1", -EINVAL},
    };
    stk_scenario *scenario;

    (void)state;
    assert_int_equal(stk_scenario_new(&scenario, NULL, NULL), 0);
    for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
        stk_error err;

        assert_int_equal(stk_scenario_set(scenario, bads[i].key, bads[i].value, &err), bads[i].rc);
        assert_non_null(strstr(err.message, bads[i].key));
    }
    assert_int_equal(stk_scenario_set(scenario, "origin_mb_s", "1:330 2:730", NULL), 0);
    assert_int_equal(stk_scenario_set(scenario, "sample_mb", "1e-3", NULL), 0);
    assert_int_equal(stk_scenario_set(NULL, "ranks", "1", NULL), -EINVAL);
    assert_int_equal(stk_scenario_new(&scenario, "no such scenario", NULL), -ENOENT);
    stk_scenario_free(scenario);
}

/* The range that a key shows is the range that it has. */
static void
test_ranges_are_true(void **state)
{
    stk_scenario_key_info info;
    stk_scenario *scenario;
    uint32_t n_checked = 0;

    (void)state;
    assert_int_equal(stk_scenario_new(&scenario, NULL, NULL), 0);
    for (uint32_t i = 0; stk_scenario_key(i, &info) == 0; i++) {
        char low[32];
        char high[32];
        char beyond[48];

        assert_true(strlen(info.help) > 0);
        if (sscanf(info.range, "%31s .. %31[^ ,]", low, high) != 2 || !strcmp(info.key, "name") ||
            !strcmp(info.key, "origin_mb_s"))
            continue;
        assert_int_equal(stk_scenario_set(scenario, info.key, low, NULL), 0);
        assert_int_equal(stk_scenario_set(scenario, info.key, high, NULL), 0);
        (void)snprintf(beyond, sizeof(beyond), "%s1", high);
        if (strchr(high, 'e') == NULL)
            assert_int_equal(stk_scenario_set(scenario, info.key, beyond, NULL), -EINVAL);
        assert_int_equal(stk_scenario_set(scenario, info.key, "-1", NULL), -EINVAL);
        n_checked++;
    }
    assert_true(n_checked > 30);
    stk_scenario_free(scenario);
}

static void
test_contradictions(void **state)
{
    static const struct bad bads[] = {
        {"staging_mb", "1", 0},
        {"samples", "2", 0},
        {"samples", "0", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
        stk_scenario *scenario;
        stk_sim_result result;
        stk_error err;

        assert_int_equal(stk_scenario_new(&scenario, NULL, NULL), 0);
        assert_int_equal(stk_scenario_set(scenario, bads[i].key, bads[i].value, &err), 0);
        assert_int_equal(stk_scenario_check(scenario, &err), -EINVAL);
        assert_non_null(strstr(err.message, bads[i].key));
        assert_int_equal(stk_simulate(scenario, STK_SIM_COORDINATED, &result, &err), -EINVAL);
        stk_scenario_free(scenario);
    }
}

static void
test_simulate(void **state)
{
    stk_scenario *scenario;
    stk_sim_result result;
    stk_sim_checkpoint checkpoint;
    stk_error err;

    (void)state;
    assert_int_equal(stk_scenario_new(&scenario, NULL, NULL), 0);
    assert_int_equal(stk_scenario_set(scenario, "samples", "5000", NULL), 0);
    assert_int_equal(stk_simulate(scenario, STK_SIM_COORDINATED, &result, &err), 0);
    assert_true(result.seconds > 0);
    assert_int_equal(stk_simulate(scenario, STK_SIM_LBANN_DYNAMIC, &result, &err),
                     STK_E_INFEASIBLE);
    assert_non_null(strstr(err.message, "does not fit"));
    assert_int_equal(stk_simulate(scenario, STK_SIM_POLICIES, &result, &err), -EINVAL);
    assert_int_equal(stk_simulate_checkpoint(scenario, &checkpoint, &err), -EINVAL);
    assert_null(stk_sim_policy_name(STK_SIM_POLICIES));
    stk_scenario_free(scenario);
    stk_scenario_free(NULL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_builtin),   cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_ranges_are_true), cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_simulate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
