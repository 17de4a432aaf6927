/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulation from its scenario to its result. The two modes share the data set, its
 * order and the decisions' code where the published policies have the same; what else
 * differs is in published.c and machine.c. One thread per call; nothing is kept.
 */
#include "sim/sim.h"

#include <errno.h>

#include "base/error.h"
#include "sim/machine.h"
#include "sim/published.h"

static const char *const policy_names[STK_SIM_POLICIES] = {
    [STK_SIM_PERFECT] = "perfect",
    [STK_SIM_NAIVE] = "naive",
    [STK_SIM_STAGING] = "staging",
    [STK_SIM_DEEPIO_ORDERED] = "deepio-ordered",
    [STK_SIM_DEEPIO_OPPORTUNISTIC] = "deepio-opportunistic",
    [STK_SIM_PARALLEL_STAGING] = "parallel-staging",
    [STK_SIM_LBANN_DYNAMIC] = "lbann-dynamic",
    [STK_SIM_LBANN_PRELOADING] = "lbann-preloading",
    [STK_SIM_LOCALITY_AWARE] = "locality-aware",
    [STK_SIM_PAPER] = "paper",
    [STK_SIM_COORDINATED] = "coordinated",
    [STK_SIM_NEXT_USE] = "next-use",
    [STK_SIM_LRU] = "lru",
};

const char *
sti_sim_policy_name(uint32_t policy)
{
    return policy < STK_SIM_POLICIES ? policy_names[policy] : NULL;
}

/* Decisions and bytes; with timing, times. */
static int
run_honest(struct sti_sim_data *data, stk_sim_policy policy, stk_sim_result *result, stk_error *err)
{
    const struct sti_scenario *scenario = data->scenario;
    struct sti_sim_plan plan;
    int rc = sti_sim_plan_init(&plan, data, policy, err);

    if (!rc && scenario->timing && policy != STK_SIM_PERFECT)
        rc = sti_sim_machine_run(&plan, result);
    while (!rc && plan.n_planned < scenario->epochs)
        sti_sim_plan_next(&plan);
    if (!rc) {
        double seconds = result->seconds;
        double setup = result->setup_seconds;
        double stall = result->stall_seconds;
        double bound = result->bound_seconds;

        *result = plan.result;
        result->seconds = policy == STK_SIM_PERFECT && scenario->timing ? bound : seconds;
        result->setup_seconds = setup;
        result->stall_seconds = stall;
        result->bound_seconds = bound;
        result->bound_bytes = sti_bound_bytes(&plan.bound);
        result->distinct_bytes = plan.bound.distinct_bytes;
        if (plan.steady_samples > 0) {
            result->steady_origin_share = (double)plan.steady_origin / (double)plan.steady_samples;
            result->steady_local_share = (double)plan.steady_local / (double)plan.steady_samples;
        }
    }
    sti_sim_plan_fini(&plan);
    return rc;
}

static bool
is_published_policy(stk_sim_policy policy)
{
    return policy <= STK_SIM_PAPER;
}

int
sti_sim_run(const struct sti_scenario *scenario, stk_sim_policy policy, stk_sim_result *ret_result,
            stk_error *err)
{
    struct sti_sim_data data;
    stk_sim_result result = {0};
    bool is_published = scenario->mode == STI_SIM_PUBLISHED;
    int rc = sti_scenario_check(scenario, err);

    if (!rc && scenario->samples == 0)
        return sti_error_set(err, -EINVAL, "samples is 0: the scenario has no loader");
    if (!rc && is_published && !is_published_policy(policy))
        return sti_error_set(err, STK_E_INFEASIBLE, "the published simulator has no policy %s",
                             sti_sim_policy_name(policy));
    if (!rc)
        rc = sti_sim_data_init(&data, scenario, err);
    if (rc)
        return rc;
    if (is_published) {
        rc = sti_published_run(&data, policy, &result, err);
    } else {
        if (scenario->timing)
            rc = sti_sim_machine_bound(&data, &result.bound_seconds);
        if (!rc)
            rc = run_honest(&data, policy, &result, err);
    }
    sti_sim_data_fini(&data);
    if (rc == -ENOMEM)
        return sti_error_set(err, rc, "no memory for a simulation of this size");
    if (!rc)
        *ret_result = result;
    return rc;
}
