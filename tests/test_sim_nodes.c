/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that differ, and nodes of several ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <string.h>

#include "sim/sim.h"

static void
set(struct sti_scenario *scenario, const char *key, const char *value)
{
    stk_error err;

    if (sti_scenario_set(scenario, key, value, &err))
        fail_msg("%s", err.message);
}

/* 8 ranks, 4,000 samples of 0.1 MB. */
static void
small(struct sti_scenario *scenario)
{
    sti_scenario_init(scenario);
    set(scenario, "samples", "4000");
    set(scenario, "ranks", "8");
    set(scenario, "batch", "10");
    set(scenario, "epochs", "4");
    set(scenario, "staging_mb", "4");
    set(scenario, "staging_threads", "4");
    set(scenario, "origin_mb_s", "1:300");
    set(scenario, "ram_mb", "10");
    set(scenario, "ssd_mb", "20");
}

static stk_sim_result
run(const struct sti_scenario *scenario, stk_sim_policy policy)
{
    stk_sim_result result;
    stk_error err;

    memset(&result, 0, sizeof(result));
    if (sti_sim_run(scenario, policy, &result, &err))
        fail_msg("%s", err.message);
    return result;
}

/* The same value for each node is the same as one value, bit for bit. */
static void
test_steps_alike(void **state)
{
    struct sti_scenario one;
    struct sti_scenario steps;

    (void)state;
    small(&one);
    small(&steps);
    set(&steps, "ram_mb", "0:10 3:10 7:10");
    set(&steps, "ssd_mb", "0:20 1:20");
    set(&steps, "compute_mb_s", "0:100 4:100");
    set(&steps, "net_mb_s", "0:10000 5:10000");
    for (uint32_t policy = 0; policy < STK_SIM_POLICIES; policy++) {
        stk_sim_result a;
        stk_sim_result b;
        stk_error err;

        memset(&a, 0, sizeof(a));
        memset(&b, 0, sizeof(b));
        int rc = sti_sim_run(&one, (stk_sim_policy)policy, &a, &err);
        assert_int_equal(sti_sim_run(&steps, (stk_sim_policy)policy, &b, &err), rc);
        assert_memory_equal(&a, &b, sizeof(a));
    }
}

/* The slowest node's ranks set the pace; all room counts, wherever it is. */
static void
test_unequal(void **state)
{
    struct sti_scenario scenario;

    (void)state;
    small(&scenario);
    stk_sim_result alike = run(&scenario, STK_SIM_COORDINATED);
    set(&scenario, "compute_mb_s", "0:100 7:50");
    stk_sim_result slow = run(&scenario, STK_SIM_COORDINATED);
    assert_true(fabs(slow.bound_seconds / alike.bound_seconds - 2) < 0.01);
    assert_true(slow.seconds >= slow.bound_seconds);
    assert_int_equal(slow.origin_bytes, alike.origin_bytes);

    /* 8 x 30 MB, or all on two nodes: as much is held. */
    set(&scenario, "ram_mb", "0:0 2:40 3:0");
    set(&scenario, "ssd_mb", "0:0 6:200");
    set(&scenario, "ssd_mb", "0:0 6:200 7:0");
    stk_sim_result two = run(&scenario, STK_SIM_COORDINATED);
    assert_int_equal(two.bound_bytes, alike.bound_bytes);
    assert_true(two.origin_bytes - two.bound_bytes <= 3 * 8 * 2 * 100000);
    /* What is on an SSD of 100 MB/s for all comes no faster than that. */
    set(&scenario, "ssd_mb_s", "0:2000 6:100");
    stk_sim_result slow_ssd = run(&scenario, STK_SIM_COORDINATED);
    uint64_t n_peer_bytes =
        slow_ssd.source_bytes[STK_SIM_FROM_PEER] + slow_ssd.source_bytes[STK_SIM_FROM_SSD];
    assert_true(slow_ssd.seconds > two.seconds);
    assert_true(slow_ssd.seconds >= ((double)n_peer_bytes - 3 * 72e6) / 100e6);
}

/* Ranks of one node share what it holds: nothing crosses the network; and they share what
 * its SSD gives. */
static void
test_node_of_several(void **state)
{
    struct sti_scenario scenario;

    (void)state;
    small(&scenario);
    set(&scenario, "node_ranks", "8");
    set(&scenario, "ram_mb", "80");
    set(&scenario, "ssd_mb", "160");
    stk_sim_result node = run(&scenario, STK_SIM_COORDINATED);
    assert_int_equal(node.source_samples[STK_SIM_FROM_PEER], 0);
    assert_true(node.source_samples[STK_SIM_FROM_SSD] > 0);

    set(&scenario, "node_ranks", "1");
    set(&scenario, "ram_mb", "10");
    set(&scenario, "ssd_mb", "20");
    stk_sim_result ranks = run(&scenario, STK_SIM_COORDINATED);
    assert_int_equal(ranks.bound_bytes, node.bound_bytes);
    assert_true(ranks.source_samples[STK_SIM_FROM_PEER] > 0);

    set(&scenario, "node_ranks", "4");
    set(&scenario, "ram_mb", "0");
    set(&scenario, "ssd_mb", "300");
    set(&scenario, "net_mb_s", "1e9");
    set(&scenario, "compute_mb_s", "1e9");
    set(&scenario, "decode_mb_s", "1e9");
    set(&scenario, "ssd_mb_s", "200");
    stk_sim_result shared = run(&scenario, STK_SIM_COORDINATED);
    double ssd_bytes =
        (double)(shared.source_bytes[STK_SIM_FROM_SSD] + shared.source_bytes[STK_SIM_FROM_PEER]);
    assert_true(shared.seconds > ssd_bytes / 400e6);
    assert_true(shared.seconds < (ssd_bytes / 400e6 + 400e6 / 300e6) * 1.3);
    /* Each rank alone has its part of the node's room. */
    stk_sim_result alone = run(&scenario, STK_SIM_NEXT_USE);
    assert_int_equal(alone.bound_bytes, shared.bound_bytes);
}

/* Room to spare is for copies: fewer samples cross the network the more there is. */
static void
test_spare_room(void **state)
{
    static const char *const rooms[] = {"50", "100", "200", "400"};
    uint64_t before = UINT64_MAX;

    (void)state;
    for (size_t at = 0; at < 4; at++) {
        struct sti_scenario scenario;

        small(&scenario);
        set(&scenario, "epochs", "20");
        set(&scenario, "ssd_mb", "0");
        set(&scenario, "ram_mb", rooms[at]);
        stk_sim_result result = run(&scenario, STK_SIM_COORDINATED);
        assert_int_equal(result.origin_bytes, result.distinct_bytes);
        assert_true(result.source_samples[STK_SIM_FROM_PEER] < before);
        before = result.source_samples[STK_SIM_FROM_PEER];
    }
    /* 400 MB hold everything on every rank: each rank fetches each sample once. */
    assert_true(before <= 4000 * 7);
}

static void
check_refused(const char *key, const char *value, const char *expected)
{
    struct sti_scenario scenario;
    stk_error err;

    small(&scenario);
    int rc = sti_scenario_set(&scenario, key, value, &err);
    if (!rc)
        rc = sti_scenario_check(&scenario, &err);
    assert_int_equal(rc, -EINVAL);
    if (!strstr(err.message, expected) || strncmp(err.message, key, strlen(key)) != 0)
        fail_msg("%s", err.message);
}

static void
test_refused(void **state)
{
    (void)state;
    check_refused("ssd_mb", "1:20", "it must be 0 .. 1e9, or NODE:VALUE ... from node 0 on");
    check_refused("ssd_mb", "0:20 0:30", "it must be");
    check_refused("ssd_mb", "0:20 3:-1", "it must be");
    check_refused("ssd_mb", "0:20 1.5:1", "it must be");
    check_refused("ssd_mb", "0:20 8:1", "node 8; there are 8 nodes");
    check_refused("ssd_mb", " : ", "it must be");
    check_refused("ssd_mb",
                  "0:1 1:1 2:1 3:1 4:1 5:1 6:1 7:1 8:1 9:1 10:1 11:1 12:1 13:1 14:1 15:1 16:1",
                  "it must be");
    check_refused("node_ranks", "0", "it must be 1 .. 16384");

    struct sti_scenario scenario;
    stk_error err;
    sti_scenario_init(&scenario);
    set(&scenario, "mode", "published");
    set(&scenario, "ram_mb", "0:1 1:2");
    assert_int_equal(sti_scenario_check(&scenario, &err), -EINVAL);
    assert_non_null(strstr(err.message, "ram_mb is by node"));
}

/* Four ranks whose SSDs and network have these rates; samples as in small(). */
static stk_sim_result
run_slow(const char *ssd_mb_s, const char *net_mb_s, const char *relief)
{
    struct sti_scenario scenario;

    small(&scenario);
    set(&scenario, "ranks", "4");
    set(&scenario, "epochs", "5");
    set(&scenario, "batch", "16");
    set(&scenario, "staging_mb", "8");
    set(&scenario, "staging_threads", "16");
    set(&scenario, "ram_mb", "40");
    set(&scenario, "ssd_mb", "200");
    set(&scenario, "compute_mb_s", "100");
    set(&scenario, "origin_mb_s", "1:40");
    set(&scenario, "ssd_mb_s", ssd_mb_s);
    set(&scenario, "net_mb_s", net_mb_s);
    set(&scenario, "relief", relief);
    return run(&scenario, STK_SIM_COORDINATED);
}

/* A rank whose SSD or network is slow holds up all; where others have room they serve for it,
 * and no more comes from the origin. Where all are alike nothing changes, bit for bit. */
static void
test_relief(void **state)
{
    static const struct {
        const char *ssd_mb_s, *net_mb_s;
        double least; /* times as long without relief */
    } cases[] = {{"0:10 1:500", "0:500", 1.8}, {"0:500", "0:10 1:200", 1.1}};

    (void)state;
    for (size_t at = 0; at < sizeof(cases) / sizeof(cases[0]); at++) {
        stk_sim_result without = run_slow(cases[at].ssd_mb_s, cases[at].net_mb_s, "no");
        stk_sim_result with = run_slow(cases[at].ssd_mb_s, cases[at].net_mb_s, "yes");

        print_message("%.2f s without relief, %.2f with\n", without.seconds, with.seconds);
        assert_true(with.seconds * cases[at].least < without.seconds);
        assert_int_equal(with.origin_bytes, without.origin_bytes);
        assert_int_equal(with.origin_bytes, with.bound_bytes);
    }
    stk_sim_result without = run_slow("0:500", "0:200", "no");
    stk_sim_result with = run_slow("0:500", "0:200", "yes");
    assert_memory_equal(&with, &without, sizeof(with));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_alike),     cmocka_unit_test(test_unequal),
        cmocka_unit_test(test_node_of_several), cmocka_unit_test(test_spare_room),
        cmocka_unit_test(test_relief),          cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
