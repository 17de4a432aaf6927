/* SPDX-License-Identifier: Apache-2.0 */
/* One simulation: data, decisions, machine. */
#ifndef STI_SIM_SIM_H
#define STI_SIM_SIM_H

#include <stddef.h>

#include "sim/scenario.h"

/* As stk_sim_policy_name(). */
const char *
sti_sim_policy_name(uint32_t policy);

/* Errors as stk_simulate(). */
int
sti_sim_run(const struct sti_scenario *scenario, stk_sim_policy policy, stk_sim_result *ret_result,
            stk_error *err);

/* Room for a text of at most n_chars - 1 characters; n_chars >= 1. */
struct sti_sim_text {
    char *text;
    size_t n_chars;
};

/* Errors as stk_simulate_why(). */
int
sti_sim_why(const struct sti_scenario *scenario, stk_sim_policy policy, uint64_t sample,
            struct sti_sim_text room, stk_error *err);

/* Errors as stk_simulate_checkpoint(). */
int
sti_sim_checkpoint(const struct sti_scenario *scenario, stk_sim_checkpoint *ret_result,
                   stk_error *err);

#endif
