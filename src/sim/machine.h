/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine of the honest mode: discrete events on a virtual clock. Ranks fetch ahead
 * with a bounded number of threads into a bounded staging; the file system, every tier
 * and every link is a queue that serves one byte after the other at its rate, so a share
 * of it is a share.
 */
#ifndef STI_SIM_MACHINE_H
#define STI_SIM_MACHINE_H

#include "sim/plan.h"

/* Runs a plan from its first epoch to its end and writes the times to ret_result, and
 * what the machine itself decided (a policy that fills beside the run). Errors:
 * -ENOMEM. */
int
sti_sim_machine_run(struct sti_sim_plan *plan, stk_sim_result *ret_result);

/* The time of the run if every sample were there; no machine is needed for that. */
int
sti_sim_machine_bound(struct sti_sim_data *data, double *ret_seconds);

#endif
