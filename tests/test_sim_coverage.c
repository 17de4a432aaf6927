/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is read from where, without a clock: the coverage of the published policy against
 * what is known of it, the coordinated placement against the lower bound, caches without
 * peers.
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

#include "sim/sim.h"

static const double capacities[] = {1, 1.5, 2, 3};

struct row {
    uint64_t ranks;
    uint64_t epochs;
    const char *ties;
    double origin_percent[4];
};

/* A sort that is not stable left ties as they were in the first two. */
static const struct row rows[] = {
    {16, 90, "unstable", {29, 14, 6, 0.6}},
    {64, 90, "unstable", {34, 20, 11, 2.5}},
    {64, 10, "random", {31, 17, 9, 2}},
};

static void
set(struct sti_scenario *scenario, const char *key, double value)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "%.17g", value);
    assert_int_equal(sti_scenario_set(scenario, key, text, NULL), 0);
}

static void
coverage(struct sti_scenario *scenario, uint64_t ranks, uint64_t epochs, double capacity)
{
    sti_scenario_init(scenario);
    assert_int_equal(sti_scenario_from_builtin(scenario, "coverage", NULL), 0);
    set(scenario, "ranks", (double)ranks);
    set(scenario, "epochs", (double)epochs);
    set(scenario, "capacity", capacity);
}

static stk_sim_result
run(const struct sti_scenario *scenario, stk_sim_policy policy)
{
    stk_sim_result result;
    stk_error err;

    if (sti_sim_run(scenario, policy, &result, &err))
        fail_msg("%s", err.message);
    return result;
}

static void
test_paper_rows(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
        for (size_t c = 0; c < 4; c++) {
            struct sti_scenario scenario;

            coverage(&scenario, rows[r].ranks, rows[r].epochs, capacities[c]);
            assert_int_equal(sti_scenario_set(&scenario, "ties", rows[r].ties, NULL), 0);
            double percent = 100 * run(&scenario, STK_SIM_PAPER).steady_origin_share;
            print_message("%llu ranks, %llu epochs, %.1f S, ties %s: %.2f %%, known %.1f %%\n",
                          (unsigned long long)rows[r].ranks, (unsigned long long)rows[r].epochs,
                          capacities[c], rows[r].ties, percent, rows[r].origin_percent[c]);
            assert_true(fabs(percent - rows[r].origin_percent[c]) <= 1.5);
        }
}

/* Nothing of the steady state from the origin, and hardly fewer local hits. */
static void
test_coordinated_rows(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
        for (size_t c = 0; c < 4; c++) {
            struct sti_scenario scenario;

            coverage(&scenario, rows[r].ranks, rows[r].epochs, capacities[c]);
            stk_sim_result ours = run(&scenario, STK_SIM_COORDINATED);
            stk_sim_result paper = run(&scenario, STK_SIM_PAPER);
            print_message("%.1f S: local %.2f %%, paper %.2f %%\n", capacities[c],
                          100 * ours.steady_local_share, 100 * paper.steady_local_share);
            assert_true(ours.steady_origin_share <= 0);
            assert_int_equal(ours.origin_bytes, ours.distinct_bytes);
            assert_true(ours.steady_local_share >= paper.steady_local_share - 0.015);
        }
}

/* Share of all reads that a rank serves from its own cache, the first epoch included. */
static double
hit_percent(const struct sti_scenario *scenario, stk_sim_policy policy)
{
    stk_sim_result result = run(scenario, policy);
    double n_reads = (double)(scenario->samples * scenario->epochs);
    double n_hits =
        (double)(result.source_samples[STK_SIM_FROM_RAM] + result.source_samples[STK_SIM_FROM_SSD]);

    /* Filled on demand, each sample that is held costs the one read that brought it. */
    if (policy == STK_SIM_PAPER)
        n_hits -= scenario->capacity * (double)scenario->samples;
    return 100 * n_hits / n_reads;
}

static void
test_without_peers(void **state)
{
    static const struct {
        double share;
        double lru;
        double frequency;
        double next_use;
    } known[] = {
        {0.0625, 1.6, 9.3, 28.1},
        {0.125, 6.4, 17.3, 40.9},
        {0.25, 19.6, 31.8, 56.9},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        struct sti_scenario scenario;

        coverage(&scenario, 8, 90, 8 * known[i].share);
        double lru = hit_percent(&scenario, STK_SIM_LRU);
        double frequency = hit_percent(&scenario, STK_SIM_PAPER);
        double next_use = hit_percent(&scenario, STK_SIM_NEXT_USE);
        print_message("%.2f %% each: LRU %.2f, frequency %.2f, next use %.2f\n",
                      100 * known[i].share, lru, frequency, next_use);
        assert_true(fabs(lru - known[i].lru) <= 1);
        assert_true(fabs(frequency - known[i].frequency) <= 1);
        assert_true(fabs(next_use - known[i].next_use) <= 1);
    }
}

/* One rank: hits reach C / S with next use; LRU gets c + (1 - c) ln(1 - c). */
static void
test_one_rank(void **state)
{
    struct sti_scenario scenario;

    (void)state;
    for (double c = 0.1; c < 1; c += 0.2) {
        coverage(&scenario, 1, 20, c);
        double next_use = run(&scenario, STK_SIM_NEXT_USE).steady_local_share;
        double lru = run(&scenario, STK_SIM_LRU).steady_local_share;
        assert_true(fabs(next_use - c) < 0.001);
        assert_true(fabs(lru - (c + (1 - c) * log(1 - c))) < 0.01);
    }
}

/* A case of the bound: sizes, room and horizon. */
struct bound_case {
    double sigma_mb;
    double tier_mb; /* RAM and SSD, each */
    uint64_t ranks;
    const char *drop_last;
    const char *order;
    uint64_t horizon;
};

static void
check_bound(const struct bound_case *c)
{
    struct sti_scenario scenario;

    sti_scenario_init(&scenario);
    set(&scenario, "samples", 5003);
    set(&scenario, "sample_mb", 0.1);
    set(&scenario, "sample_sigma_mb", c->sigma_mb);
    set(&scenario, "ranks", (double)c->ranks);
    set(&scenario, "batch", 16);
    set(&scenario, "epochs", 6);
    set(&scenario, "horizon_epochs", (double)c->horizon);
    set(&scenario, "staging_mb", 8);
    set(&scenario, "ram_mb", c->tier_mb);
    set(&scenario, "ssd_mb", c->tier_mb);
    assert_int_equal(sti_scenario_set(&scenario, "drop_last", c->drop_last, NULL), 0);
    assert_int_equal(sti_scenario_set(&scenario, "order", c->order, NULL), 0);
    double largest_mb = c->sigma_mb > 0 ? 0.1 + 4 * c->sigma_mb : 0.1;
    stk_sim_result result = run(&scenario, STK_SIM_COORDINATED);
    /* In each of the five epochs that can have hits, one per rank and tier (staging is
     * one). */
    double slack = 5 * (double)c->ranks * 3 * largest_mb * STI_SIM_BYTES_PER_MB;

    assert_true(result.origin_bytes >= result.bound_bytes);
    assert_true((double)(result.origin_bytes - result.bound_bytes) <= slack);
    for (uint32_t policy = STK_SIM_PAPER; policy < STK_SIM_POLICIES; policy++)
        assert_true(run(&scenario, (stk_sim_policy)policy).origin_bytes >= result.bound_bytes);
}

static void
test_bound(void **state)
{
    static const double sigmas[] = {0, 0.05};
    static const double rooms[] = {0, 2, 10, 30, 60, 200};
    static const uint64_t ranks[] = {1, 4, 7};
    static const char *const drops[] = {"no", "yes"};
    static const char *const orders[] = {"torch", "keyed"};
    static const uint64_t horizons[] = {0, 2, 8};

    (void)state;
    uint32_t step = getenv("STOKER_TEST_LONG") ? 1 : 11; /* a prime that meets every value */
    for (uint32_t i = 0; i < 2 * 6 * 3 * 2 * 2 * 3; i += step) {
        struct bound_case c = {sigmas[i % 2],     rooms[i / 2 % 6],   ranks[i / 12 % 3],
                               drops[i / 36 % 2], orders[i / 72 % 2], horizons[i / 144]};

        check_bound(&c);
    }
}

/* Bit for bit the same, and another seed is another run. */
static void
test_deterministic(void **state)
{
    struct sti_scenario scenario;

    (void)state;
    sti_scenario_init(&scenario);
    assert_int_equal(sti_scenario_from_builtin(&scenario, "io-bound", NULL), 0);
    set(&scenario, "samples", 20000);
    set(&scenario, "ram_mb", 400);
    set(&scenario, "ssd_mb", 500);
    for (uint32_t policy = 0; policy < STK_SIM_POLICIES; policy++) {
        stk_sim_result a;
        stk_sim_result b;
        stk_error err;

        memset(&a, 0, sizeof(a));
        memset(&b, 0, sizeof(b));
        int rc = sti_sim_run(&scenario, (stk_sim_policy)policy, &a, &err);
        assert_int_equal(sti_sim_run(&scenario, (stk_sim_policy)policy, &b, &err), rc);
        assert_memory_equal(&a, &b, sizeof(a));
    }
    stk_sim_result first = run(&scenario, STK_SIM_COORDINATED);
    set(&scenario, "seed", 9);
    assert_true(fabs(run(&scenario, STK_SIM_COORDINATED).seconds - first.seconds) > 1e-9);
}

/* Orders that the physics demands, whatever the policy. */
static void
test_honest_times(void **state)
{
    struct sti_scenario scenario;

    (void)state;
    sti_scenario_init(&scenario);
    assert_int_equal(sti_scenario_from_builtin(&scenario, "io-bound", NULL), 0);
    set(&scenario, "samples", 40000);
    set(&scenario, "ram_mb", 800);
    set(&scenario, "ssd_mb", 1000);
    double perfect_s = run(&scenario, STK_SIM_PERFECT).seconds;
    double naive_s = run(&scenario, STK_SIM_NAIVE).seconds;
    for (uint32_t policy = STK_SIM_STAGING; policy < STK_SIM_POLICIES; policy++) {
        stk_sim_result result;

        if (sti_sim_run(&scenario, (stk_sim_policy)policy, &result, NULL))
            continue;
        assert_true(result.seconds >= perfect_s);
        assert_true(result.seconds <= naive_s);
        assert_true(fabs(result.bound_seconds - perfect_s) < 1e-6);
        /* 400 MB/s is all that the file system ever gives. */
        assert_true(result.seconds >= (double)result.origin_bytes / 400e6 * 0.999);
    }
    double paper_s = run(&scenario, STK_SIM_PAPER).seconds;
    double ours_s = run(&scenario, STK_SIM_COORDINATED).seconds;
    assert_true(ours_s < paper_s);
}

/* At the settings of the paper's evaluation the file system is fast enough for plain
 * staging. */
static void
test_staging_suffices(void **state)
{
    struct sti_scenario scenario;

    (void)state;
    sti_scenario_init(&scenario);
    assert_int_equal(sti_scenario_from_builtin(&scenario, "sc21-openimages", NULL), 0);
    set(&scenario, "samples", 100000);
    stk_sim_result result = run(&scenario, STK_SIM_STAGING);
    assert_true(result.seconds < 1.005 * result.bound_seconds);
}

/* A checkpoint on the SSD that serves the loader slows both, and nothing else changes. */
static void
test_checkpoint_contention(void **state)
{
    struct sti_scenario scenario;

    (void)state;
    sti_scenario_init(&scenario);
    assert_int_equal(sti_scenario_from_builtin(&scenario, "io-bound", NULL), 0);
    set(&scenario, "samples", 40000);
    set(&scenario, "ram_mb", 100);
    set(&scenario, "ssd_mb", 3000);
    stk_sim_result without = run(&scenario, STK_SIM_COORDINATED);
    set(&scenario, "ckpt_mb", 8000);
    set(&scenario, "ckpt_every_steps", 10);
    stk_sim_result with = run(&scenario, STK_SIM_COORDINATED);
    assert_true(with.seconds > without.seconds);
    assert_int_equal(with.origin_bytes, without.origin_bytes);
}

static void
test_checkpoint_model(void **state)
{
    struct sti_scenario scenario;
    stk_sim_checkpoint result;

    (void)state;
    sti_scenario_init(&scenario);
    assert_int_equal(sti_scenario_from_builtin(&scenario, "fastpersist-0.7b", NULL), 0);
    assert_int_equal(sti_sim_checkpoint(&scenario, &result, NULL), 0);
    assert_true(fabs(result.creation_factor - 116) < 1.5);
    assert_true(fabs(result.device_factor * result.devices_factor * result.nodes_factor -
                     result.creation_factor) < 1e-9);
    assert_true(result.stall_seconds <= 0);
    /* One device of one node cannot hide it: the stall is what is left. */
    set(&scenario, "ckpt_devices", 1);
    set(&scenario, "ckpt_nodes", 1);
    set(&scenario, "ckpt_efficiency", 1);
    set(&scenario, "mtbf_hours", 2);
    set(&scenario, "run_steps", 1000000);
    assert_int_equal(sti_sim_checkpoint(&scenario, &result, NULL), 0);
    assert_true(fabs(result.stall_seconds - (9800 / 2219.0 - 0.55)) < 1e-9);
    /* Young's interval is better than twice and half of it, and drawn failures agree. */
    double steps = result.optimum_steps;
    double best = result.optimum_lost_share;
    for (double factor = 0.5; factor <= 2; factor *= 4) {
        set(&scenario, "ckpt_every_steps", round(steps * factor));
        assert_int_equal(sti_sim_checkpoint(&scenario, &result, NULL), 0);
        assert_true(result.configured_lost_share > best);
    }
    set(&scenario, "ckpt_every_steps", steps);
    assert_int_equal(sti_sim_checkpoint(&scenario, &result, NULL), 0);
    assert_true(result.simulated_failures > 50);
    print_message("lost: %.2f %% in closed form, %.2f %% drawn\n", 100 * best,
                  100 * result.simulated_lost_share);
    assert_true(fabs(result.simulated_lost_share / best - 1) < 0.15);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paper_rows),
        cmocka_unit_test(test_coordinated_rows),
        cmocka_unit_test(test_without_peers),
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_honest_times),
        cmocka_unit_test(test_staging_suffices),
        cmocka_unit_test(test_checkpoint_contention),
        cmocka_unit_test(test_checkpoint_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
