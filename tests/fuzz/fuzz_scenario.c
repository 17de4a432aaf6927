/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenario files. Beside not crashing: what is refused is explained with the file's name,
 * what is accepted contradicts nothing, and one that is small enough is simulated: never
 * fewer bytes from the origin than the bound, every read counted once.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "scenario_file.h"
#include "sim/sim.h"
#include "fuzz.h"

#define MAX_TEXT_BYTES 2048

/* Whether a simulation takes a moment only, in time and memory. */
static bool
is_small(const struct sti_scenario *s)
{
    uint64_t threads = s->tiers[0].threads + s->tiers[1].threads + s->tiers[2].threads;

    return s->samples > 0 && s->samples <= 500 && s->epochs <= 4 && s->ranks <= 20 &&
           s->batch <= 100 && threads <= 100 &&
           (s->checkpoint.mb <= 100 || s->checkpoint.every_steps > 2);
}

static void
try_simulation(const struct sti_scenario *scenario)
{
    uint64_t per_step = scenario->ranks * scenario->batch;
    uint64_t n_reads =
        scenario->epochs *
        (scenario->drop_last ? scenario->samples / per_step * per_step : scenario->samples);

    for (int policy = 0; policy < STK_SIM_POLICIES; policy++) {
        bool is_own =
            policy == STK_SIM_COORDINATED || policy == STK_SIM_PAPER || policy == STK_SIM_NEXT_USE;
        stk_sim_result result;
        uint64_t sum = 0;

        if (sti_sim_run(scenario, (stk_sim_policy)policy, &result, NULL))
            continue;
        for (int source = 0; source < STK_SIM_SOURCES; source++)
            sum += result.source_samples[source];
        must(result.seconds >= 0);
        if (scenario->mode == STI_SIM_HONEST && policy != STK_SIM_PERFECT)
            must(sum == n_reads);
        if (scenario->mode == STI_SIM_HONEST && is_own)
            must(result.origin_bytes >= result.bound_bytes);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    char text[MAX_TEXT_BYTES];
    char message[512] = "";
    stk_scenario *scenario = NULL;
    stk_sim_checkpoint checkpoint;

    if (n_bytes >= sizeof(text))
        return 0;
    memcpy(text, bytes, n_bytes);
    text[n_bytes] = '\0';
    if (cli_scenario_parse("file", text, &scenario, message, sizeof(message))) {
        must(scenario == NULL && !strncmp(message, "file:", 5) && message[5] != '\0');
        return 0;
    }
    must(stk_scenario_check(scenario, NULL) == 0);
    if (is_small(&scenario->values))
        try_simulation(&scenario->values);
    if (stk_scenario_has_checkpoint(scenario) && scenario->values.checkpoint.mtbf_hours <= 0)
        (void)stk_simulate_checkpoint(scenario, &checkpoint, NULL); /* refused or not: no crash */
    stk_scenario_free(scenario);
    return 0;
}
