/* SPDX-License-Identifier: Apache-2.0 */
/* What stoker simulate found, and its forms: tables, JSON, SVG. */
#ifndef CLI_SIMULATE_REPORT_H
#define CLI_SIMULATE_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <stoker/simulate.h>

#define SIM_RUNS_MAX 64

/* A policy's result, or why there is none. */
struct sim_entry {
    bool is_wanted;
    bool is_refused;
    stk_sim_result result;
    char refusal[STK_ERROR_MESSAGE_SIZE];
};

/* One value of a sweep, or the only run. */
struct sim_run {
    const char *value; /* of the swept key; NULL without a sweep. Borrowed */
    bool has_loader;   /* else no policy was simulated */
    struct sim_entry entries[STK_SIM_POLICIES];
    bool has_checkpoint;
    stk_sim_checkpoint checkpoint;
};

struct sim_report {
    char scenario[64];
    const char *sweep_key; /* NULL: none */
    struct sim_run *runs;
    size_t n_runs;
};

void
sim_report_print(const struct sim_report *report);

void
sim_report_json(const struct sim_report *report);

/* Writes the plot in place of what the file has, and closes it. Returns 0, or -1 with
 * errno set. */
int
sim_report_svg(const struct sim_report *report, FILE *plot_file);

#endif
