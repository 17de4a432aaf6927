/* SPDX-License-Identifier: Apache-2.0 */
/* One simulation: data, decisions, machine. */
#ifndef STI_SIM_SIM_H
#define STI_SIM_SIM_H

#include "sim/scenario.h"

/* As stk_sim_policy_name(). */
const char *
sti_sim_policy_name(uint32_t policy);

/* Errors as stk_simulate(). */
int
sti_sim_run(const struct sti_scenario *scenario, stk_sim_policy policy, stk_sim_result *ret_result,
            stk_error *err);

/* Errors as stk_simulate_checkpoint(). */
int
sti_sim_checkpoint(const struct sti_scenario *scenario, stk_sim_checkpoint *ret_result,
                   stk_error *err);

#endif
