/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lower bound on what the origin gives, over scenarios drawn at random: unequal nodes
 * of several ranks, unequal samples, any room, dropped tails, known and unknown epochs.
 * No policy may be below it, and coordinated placement is above it by less than one
 * sample per holder and tier in each epoch that can have hits; with dropped tails, above
 * what is in reach.
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
    set(&one, "ranks", 1);
    set(&one, "node_ranks", 1);
    set(&one, "batch", (double)(scenario->ranks * scenario->batch));
    assert_int_equal(sti_scenario_set(&one, "timing", "no", NULL), 0);
    set_alike(&one);
    set(&one, "ram_mb", mb);
    set(&one, "staging_mb", 1e6);
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
        slack += 1.25 * out_of_reach; /* it looks through the whole run, the plan one epoch ahead */
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
