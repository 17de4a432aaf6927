/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Not a test: how long planning takes, and planning anew at the end of an epoch, without
 * simulating times. Usage: plan_speed SAMPLES RANKS EPOCHS [DROP_LAST [CAPACITY]].
 * bench/plan_speed.sh runs it with the sizes that are promised.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sim/plan.h"

/* Processor time of this one thread: what a shared machine takes away is not planning's. */
static double
seconds_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int
main(int argc, char **argv)
{
    static const char *const keys[] = {"samples", "ranks", "epochs", "drop_last", "capacity"};
    struct sti_scenario scenario;
    struct sti_sim_data data;
    struct sti_sim_plan plan;
    stk_error err;

    sti_scenario_init(&scenario);
    scenario.timing = 0;
    scenario.capacity = 1.1;
    for (int i = 1; i < argc && i <= 5; i++)
        if (sti_scenario_set(&scenario, keys[i - 1], argv[i], &err)) {
            (void)fprintf(stderr, "plan_speed: %s\n", err.message);
            return 2;
        }
    double begin = seconds_now();
    int rc = sti_sim_data_init(&data, &scenario, &err);
    if (!rc)
        rc = sti_sim_plan_init(&plan, &data, STK_SIM_COORDINATED, &err);
    if (rc) {
        (void)fprintf(stderr, "plan_speed: %s\n", err.message);
        return 1;
    }
    (void)printf("%" PRIu64 " samples, %" PRIu64 " ranks, %" PRIu64 " epochs: %.2f s, %s\n",
                 scenario.samples, scenario.ranks, scenario.epochs, seconds_now() - begin,
                 plan.planner == STI_SIM_PLAN_STATIC ? "counted"
                 : plan.by_next_use                  ? "by next use"
                                                     : "by worth");
    for (uint64_t epoch = 0; epoch < 2 && epoch < scenario.epochs; epoch++) {
        begin = seconds_now();
        sti_sim_plan_next(&plan);
        (void)printf("  epoch %" PRIu64 ": %.2f s\n", epoch, seconds_now() - begin);
    }
    sti_sim_plan_fini(&plan);
    sti_sim_data_fini(&data);
    return 0;
}
