/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lower bound on what the origin gives, over scenarios drawn at random: unequal nodes
 * of several ranks, unequal samples, any room, dropped tails, known and unknown epochs.
 * No policy may be below it, and coordinated placement is above it by less than one
 * sample per holder and tier in each epoch that can have hits; with dropped tails, above
 * what is in reach: what one rank with all the room reads that knows what comes. Where
 * samples are alike that is the least of all, and is met to the byte.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "order/mix.h"
#include "sim/plan.h"
#include "sim/sim.h"

static uint64_t drawn;

static uint64_t
draw(uint64_t least, uint64_t most)
{
    drawn += STI_MIX_INCREMENT;
    return least + sti_mix(drawn) % (most - least + 1);
}

static void
set(struct sti_scenario *scenario, const char *key, double value)
{
    char text[64];
    stk_error err;

    (void)snprintf(text, sizeof(text), "%.17g", value);
    if (sti_scenario_set(scenario, key, text, &err))
        fail_msg("%s", err.message);
}

/* A capacity of each node, the last steps alike: up to twice an equal share of the data. */
static void
set_rooms(struct sti_scenario *scenario, const char *key, uint64_t n_nodes)
{
    double total_mb = scenario->sample_mb * (double)scenario->samples;
    uint64_t n_steps = n_nodes < 5 ? n_nodes : 5;
    double most_mb = (double)draw(0, 20) / 10 * total_mb / (double)n_nodes;
    char text[512] = "";
    size_t used = 0;

    for (uint64_t step = 0; step < n_steps; step++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%llu:%.6f ",
                                 (unsigned long long)step, most_mb * (double)draw(0, 100) / 100);
    assert_int_equal(sti_scenario_set(scenario, key, text, NULL), 0);
}

static void
draw_scenario(struct sti_scenario *scenario)
{
    uint64_t ranks = draw(1, 24);
    uint64_t batch = draw(1, 20);
    uint64_t samples = ranks * batch + draw(0, 3000);

    sti_scenario_init(scenario);
    set(scenario, "samples", (double)samples);
    set(scenario, "sample_mb", (double)draw(1, 100) / 1000);
    if (draw(0, 2))
        set(scenario, "sample_sigma_mb", scenario->sample_mb * (double)draw(1, 20) / 10);
    set(scenario, "ranks", (double)ranks);
    set(scenario, "node_ranks", (double)(draw(0, 1) ? 1 : draw(1, 8)));
    set(scenario, "batch", (double)batch);
    set(scenario, "epochs", (double)draw(1, 7));
    set(scenario, "horizon_epochs", (double)draw(0, 8));
    set(scenario, "seed", (double)draw(0, 1000));
    set(scenario, "staging_mb", 2.5 * scenario->sample_mb * (double)batch);
    assert_int_equal(sti_scenario_set(scenario, "drop_last", draw(0, 1) ? "yes" : "no", NULL), 0);
    assert_int_equal(sti_scenario_set(scenario, "order", draw(0, 1) ? "torch" : "keyed", NULL), 0);
    assert_int_equal(sti_scenario_set(scenario, "timing", draw(0, 3) ? "no" : "yes", NULL), 0);
    set_rooms(scenario, "ram_mb", sti_scenario_nodes(scenario));
    set_rooms(scenario, "ssd_mb", sti_scenario_nodes(scenario));
    if (draw(0, 4) == 0)
        set(scenario, "capacity", (double)draw(1, 30) / 10);
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

/* One sample per holder and tier, in each epoch but the first; and what the next epoch
 * drops where that cannot be known. */
static double
slack_of(const struct sti_scenario *scenario)
{
    struct sti_sim_data data;
    uint64_t per_step = scenario->ranks * scenario->batch;
    uint64_t n_dropped =
        scenario->drop_last && scenario->horizon_epochs == 1 ? scenario->samples % per_step : 0;

    assert_int_equal(sti_sim_data_init(&data, scenario, NULL), 0);
    double slack = (double)(scenario->epochs - 1) * (double)data.max_bytes *
                   (double)(2 * sti_scenario_nodes(scenario) + n_dropped);
    sti_sim_data_fini(&data);
    return slack;
}

/* Nothing by node. */
static void
set_alike(struct sti_scenario *scenario)
{
    set(scenario, "ssd_mb", 0);
    set(scenario, "ram_mb", 0);
}

/* All ranks as one, that has so much room. */
static void
make_one(struct sti_scenario *scenario, double mb)
{
    uint64_t per_step = scenario->ranks * scenario->batch;

    set(scenario, "ranks", 1);
    set(scenario, "node_ranks", 1);
    set(scenario, "batch", (double)per_step);
    set(scenario, "capacity", 0);
    assert_int_equal(sti_scenario_set(scenario, "timing", "no", NULL), 0);
    set_alike(scenario);
    set(scenario, "ram_mb", mb);
    set(scenario, "staging_mb", 1e6);
}

/* What one rank that has all room and knows what it reads next needs: with a dropped tail
 * the bound may be out of anybody's reach, because what an epoch drops can be there for
 * the next only at the cost of a hit in between. */
static double
clairvoyant_bytes(const struct sti_scenario *scenario)
{
    struct sti_scenario one = *scenario;
    double mb =
        scenario->timing ? scenario->tiers[0].capacity_mb.value[0] * (double)scenario->ranks : 0;

    for (uint64_t node = 0; node < sti_scenario_nodes(scenario); node++)
        mb += sti_by_node_at(&scenario->tiers[STI_SIM_RAM_TIER].capacity_mb, node) +
              sti_by_node_at(&scenario->tiers[STI_SIM_SSD_TIER].capacity_mb, node);
    make_one(&one, mb);
    set(&one, "capacity", scenario->capacity);
    return (double)run(&one, STK_SIM_NEXT_USE).origin_bytes;
}

static void
test_bound(void **state)
{
    uint32_t n = getenv("STOKER_TEST_LONG") ? 20000 : 200;
    double worst = 0;
    uint32_t n_cached = 0;

    (void)state;
    for (uint32_t at = 0; at < n; at++) {
        struct sti_scenario scenario;

        drawn = at;
        draw_scenario(&scenario);
        stk_sim_result ours = run(&scenario, STK_SIM_COORDINATED);
        double over = (double)ours.origin_bytes - (double)ours.bound_bytes;
        double out_of_reach = 0;
        double slack = slack_of(&scenario);

        if (scenario.drop_last)
            out_of_reach = fmax(0, clairvoyant_bytes(&scenario) - (double)ours.bound_bytes);
        slack += out_of_reach;
        if (over < 0 || over > slack)
            fail_msg("scenario %u (%llu samples of %g MB, %llu ranks, %llu of a node, batch %llu, "
                     "%llu epochs, horizon %llu, drop_last %llu, capacity %g, timing %llu): %.0f "
                     "bytes above the bound, %.0f would do",
                     at, (unsigned long long)scenario.samples, scenario.sample_mb,
                     (unsigned long long)scenario.ranks, (unsigned long long)scenario.node_ranks,
                     (unsigned long long)scenario.batch, (unsigned long long)scenario.epochs,
                     (unsigned long long)scenario.horizon_epochs,
                     (unsigned long long)scenario.drop_last, scenario.capacity,
                     (unsigned long long)scenario.timing, over, slack);
        worst = slack > 0 && over / slack > worst ? over / slack : worst;
        n_cached += ours.source_samples[STK_SIM_FROM_ORIGIN] < scenario.samples * scenario.epochs;
        for (uint32_t policy = STK_SIM_PAPER; policy < STK_SIM_POLICIES; policy++)
            assert_true(run(&scenario, (stk_sim_policy)policy).origin_bytes >= ours.bound_bytes);
    }
    print_message("%u scenarios, %u of them with hits: at worst %.0f %% of what is allowed\n", n,
                  n_cached, 100 * worst);
    assert_true(n_cached > n / 2);
}

/* Epochs that drop much, samples alike. */
static void
draw_dropping(struct sti_scenario *scenario)
{
    uint64_t ranks = draw(0, 1) ? 1 : draw(2, 12);
    uint64_t batch = draw(1, 400 / ranks);
    uint64_t steps = draw(1, 4);
    uint64_t tail = draw(1, ranks * batch);

    sti_scenario_init(scenario);
    set(scenario, "samples", (double)(steps * ranks * batch + tail - (tail == ranks * batch)));
    set(scenario, "sample_mb", (double)draw(1, 100) / 1000);
    set(scenario, "ranks", (double)ranks);
    set(scenario, "node_ranks", (double)draw(1, 3));
    set(scenario, "batch", (double)batch);
    set(scenario, "epochs", (double)draw(2, 14));
    set(scenario, "horizon_epochs", (double)(draw(0, 2) ? 0 : draw(2, 5)));
    set(scenario, "seed", (double)draw(0, 1000));
    set(scenario, "staging_mb", 2.5 * scenario->sample_mb * (double)batch);
    assert_int_equal(sti_scenario_set(scenario, "drop_last", "yes", NULL), 0);
    assert_int_equal(sti_scenario_set(scenario, "timing", "no", NULL), 0);
}

/* Whole samples that all holders can hold, and whether next uses decide or all is held. */
static uint64_t
room_of(const struct sti_scenario *scenario, bool *ret_is_exact)
{
    struct sti_sim_data data;
    struct sti_sim_plan plan;
    uint64_t n = 0;

    assert_int_equal(sti_sim_data_init(&data, scenario, NULL), 0);
    assert_int_equal(sti_sim_plan_init(&plan, &data, STK_SIM_COORDINATED, NULL), 0);
    for (uint32_t holder = 0; holder < plan.n_holders; holder++)
        n += plan.ram_bytes[holder] / data.same_bytes + plan.ssd_bytes[holder] / data.same_bytes;
    *ret_is_exact = plan.by_next_use || plan.planner == STI_SIM_PLAN_STATIC;
    sti_sim_plan_fini(&plan);
    sti_sim_data_fini(&data);
    return n;
}

/* More and more room, on all nodes alike: never more from the origin than the least, and
 * never more than with less room. Where worth decides a few samples may be lost in each
 * epoch. */
static void
check_dropping(struct sti_scenario *scenario, uint32_t at, uint32_t *n_exact)
{
    double ram_part = (double)draw(6, 10) / 100;
    double ssd_part = (double)draw(0, 2) / 100;
    double share_mb =
        scenario->sample_mb * (double)scenario->samples / (double)sti_scenario_nodes(scenario);
    double few = 2 * scenario->sample_mb * 1e6 * (double)scenario->epochs;
    double before = HUGE_VAL;

    for (uint32_t step = 0; step <= 12; step++) {
        struct sti_scenario one = *scenario;
        bool is_exact;

        set(scenario, "ram_mb", share_mb * step * ram_part);
        set(scenario, "ssd_mb", share_mb * step * ssd_part);
        double n_room = (double)room_of(scenario, &is_exact);
        is_exact = is_exact && scenario->horizon_epochs == 0;
        make_one(&one, (n_room + 0.5) * scenario->sample_mb);
        double most = (double)run(&one, STK_SIM_NEXT_USE).origin_bytes;
        set(&one, "horizon_epochs", 0);
        double least = (double)run(&one, STK_SIM_NEXT_USE).origin_bytes;
        double ours = (double)run(scenario, STK_SIM_COORDINATED).origin_bytes;
        if (ours < least || ours > most + (is_exact ? 0 : few))
            fail_msg("scenario %u (%llu samples, %llu ranks, batch %llu, %llu epochs, horizon "
                     "%llu), room for %.0f: %.0f bytes, the least are %.0f, next use %.0f",
                     at, (unsigned long long)scenario->samples, (unsigned long long)scenario->ranks,
                     (unsigned long long)scenario->batch, (unsigned long long)scenario->epochs,
                     (unsigned long long)scenario->horizon_epochs, n_room, ours, least, most);
        assert_true(ours <= before + (is_exact ? 0 : few));
        before = ours;
        *n_exact += is_exact;
    }
}

static void
test_dropped_tails(void **state)
{
    uint32_t n = getenv("STOKER_TEST_LONG") ? 2000 : 60;
    uint32_t n_exact = 0;

    (void)state;
    for (uint32_t at = 0; at < n; at++) {
        struct sti_scenario scenario;

        drawn = at;
        draw_dropping(&scenario);
        check_dropping(&scenario, at, &n_exact);
    }
    print_message("%u of %u rooms: as little as can be, to the byte\n", n_exact, 13 * n);
    assert_true(n_exact > 13 * n / 3);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_dropped_tails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
