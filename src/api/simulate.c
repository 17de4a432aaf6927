/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulations, exported: arguments are checked here, the rest is sim/'s. A scenario is a
 * value behind a handle; a simulation keeps nothing, so any number of threads may run
 * them.
 */
#include <stoker/simulate.h>

#include <errno.h>

#include "base/error.h"
#include "base/mem.h"
#include "sim/hot.h"
#include "sim/sim.h"

int
stk_scenario_new(stk_scenario **ret_scenario, const char *builtin, stk_error *err)
{
    stk_scenario *scenario;
    int rc = 0;

    if (!ret_scenario)
        return sti_error_set(err, -EINVAL, "stk_scenario_new() needs ret_scenario");
    scenario = sti_mem_new(1, sizeof(*scenario));
    if (!scenario)
        return sti_error_set(err, -ENOMEM, "no memory for a scenario");
    sti_scenario_init(&scenario->values);
    if (builtin)
        rc = sti_scenario_from_builtin(&scenario->values, builtin, err);
    if (rc) {
        sti_mem_free(scenario);
        return rc;
    }
    *ret_scenario = scenario;
    return 0;
}

void
stk_scenario_free(stk_scenario *scenario)
{
    sti_mem_free(scenario);
}

int
stk_scenario_set(stk_scenario *scenario, const char *key, const char *value, stk_error *err)
{
    if (!scenario || !key || !value)
        return sti_error_set(err, -EINVAL, "stk_scenario_set() needs scenario, key and value");
    return sti_scenario_set(&scenario->values, key, value, err);
}

const char *
stk_scenario_name(const stk_scenario *scenario)
{
    return scenario->values.name;
}

int
stk_scenario_check(const stk_scenario *scenario, stk_error *err)
{
    if (!scenario)
        return sti_error_set(err, -EINVAL, "stk_scenario_check() needs scenario");
    return sti_scenario_check(&scenario->values, err);
}

int
stk_scenario_key(uint32_t idx, stk_scenario_key_info *ret_info)
{
    return ret_info ? sti_scenario_key(idx, ret_info) : -EINVAL;
}

const char *
stk_scenario_builtin(uint32_t idx, const char **ret_summary)
{
    return sti_scenario_builtin(idx, ret_summary);
}

const char *
stk_sim_policy_name(uint32_t policy)
{
    return sti_sim_policy_name(policy);
}

int
stk_scenario_has_loader(const stk_scenario *scenario)
{
    return scenario && scenario->values.samples > 0;
}

int
stk_scenario_has_checkpoint(const stk_scenario *scenario)
{
    return scenario && scenario->values.checkpoint.mb > 0;
}

int
stk_simulate(const stk_scenario *scenario, stk_sim_policy policy, stk_sim_result *ret_result,
             stk_error *err)
{
    if (!scenario || !ret_result || !sti_sim_policy_name((uint32_t)policy))
        return sti_error_set(err, -EINVAL,
                             "stk_simulate() needs scenario, a policy and ret_result");
    return sti_sim_run(&scenario->values, policy, ret_result, err);
}

int
stk_simulate_checkpoint(const stk_scenario *scenario, stk_sim_checkpoint *ret_result,
                        stk_error *err)
{
    if (!scenario || !ret_result)
        return sti_error_set(err, -EINVAL,
                             "stk_simulate_checkpoint() needs scenario and ret_result");
    return sti_sim_checkpoint(&scenario->values, ret_result, err);
}

int
stk_simulate_why(const stk_scenario *scenario, stk_sim_policy policy, uint64_t sample, char *text,
                 size_t n_text, stk_error *err)
{
    if (!scenario || !text || n_text == 0 || !sti_sim_policy_name((uint32_t)policy))
        return sti_error_set(err, -EINVAL, "stk_simulate_why() needs scenario, a policy and text");
    if (!stk_scenario_has_loader(scenario))
        return sti_error_set(err, -EINVAL, "samples is 0: the scenario has no loader");
    return sti_sim_why(&scenario->values, policy, sample, (struct sti_sim_text){text, n_text}, err);
}

double
stk_sim_hot_samples(uint64_t n, uint32_t ranks, uint64_t epochs, double excess)
{
    return sti_sim_hot_samples((double)n, ranks ? ranks : 1, epochs, excess, NULL);
}
