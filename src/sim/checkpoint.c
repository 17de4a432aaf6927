/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints in closed form, and failures drawn one by one to check the form. Weights
 * change in the optimizer only, so a save may be written while the next step goes forward
 * and backward; what takes longer stalls (Wang et al., "FastPersist", 2024). How often to
 * save: Young, "A first order approximation to the optimum checkpoint interval", CACM
 * 17(9), 1974. Pure; any thread.
 */
#include <errno.h>
#include <math.h>

#include "base/error.h"
#include "sim/data.h"
#include "sim/sim.h"

#define FAILURE_STREAM UINT64_C(0xfa11)
#define FAILURES_MAX 1000000

struct run {
    double interval_s; /* between two saves, stall included */
    double save_s;     /* from a save's begin until it is durable */
    double mtbf_s;
    double restart_s;
    uint64_t seed;
};

/* The share of time that is lost to saves, to work that failures undo, and to
 * restarts. */
static double
lost_share(const struct sti_sim_checkpoint_spec *spec, double stall_s, double steps)
{
    double work_s = steps * spec->step_seconds;
    double interval_s = work_s + stall_s;
    double lost = stall_s / interval_s;

    if (spec->mtbf_hours > 0)
        lost += (interval_s / 2 + spec->restart_seconds) / (spec->mtbf_hours * 3600);
    return fmin(lost, 1);
}

static double
next_failure_s(const struct run *run, uint64_t number)
{
    double u = ((double)(sti_sim_random(run->seed ^ FAILURE_STREAM, number) >> 11) + 0.5) * 0x1p-53;

    return -run->mtbf_s * log(u);
}

/* Goes through a run of n intervals with failures. Returns how long it takes; a run that
 * cannot come to its end is cut after FAILURES_MAX, *ret_done: intervals it has then. */
static double
run_with_failures(const struct run *run, uint64_t n, uint64_t *ret_done, uint64_t *ret_failures)
{
    uint64_t done = 0;    /* intervals */
    uint64_t durable = 0; /* of them, those that a restart finds */
    double now_s = 0;
    double durable_s = 0; /* when the last save is durable */
    double failure_s = next_failure_s(run, 0);

    *ret_failures = 0;
    while (done < n && *ret_failures < FAILURES_MAX) {
        if (now_s + run->interval_s <= failure_s) {
            now_s += run->interval_s;
            durable = durable_s <= now_s ? done : durable;
            done++;
            durable_s = now_s + run->save_s;
            continue;
        }
        durable = durable_s <= failure_s ? done : durable;
        done = durable;
        now_s = failure_s + run->restart_s;
        durable_s = now_s;
        ++*ret_failures;
        failure_s = now_s + next_failure_s(run, *ret_failures);
    }
    *ret_done = done;
    return now_s;
}

static void
simulate_failures(const struct sti_scenario *scenario, stk_sim_checkpoint *result)
{
    const struct sti_sim_checkpoint_spec *spec = &scenario->checkpoint;
    double work_s = (double)spec->every_steps * spec->step_seconds;
    struct run run = {
        .interval_s = work_s + result->stall_seconds,
        .save_s = result->seconds - result->stall_seconds,
        .mtbf_s = spec->mtbf_hours * 3600,
        .restart_s = spec->restart_seconds,
        .seed = scenario->seed,
    };
    uint64_t n = spec->steps / spec->every_steps;
    uint64_t done;
    double seconds;

    if (n == 0)
        n = 1;
    seconds = run_with_failures(&run, n, &done, &result->simulated_failures);
    result->simulated_lost_share = fmax(0, 1 - (double)done * work_s / seconds);
}

int
sti_sim_checkpoint(const struct sti_scenario *scenario, stk_sim_checkpoint *ret_result,
                   stk_error *err)
{
    const struct sti_sim_checkpoint_spec *spec = &scenario->checkpoint;
    stk_sim_checkpoint result = {0};

    if (spec->mb <= 0)
        return sti_error_set(err, -EINVAL, "ckpt_mb is 0: the scenario has no checkpoints");
    if (sti_scenario_check(scenario, err))
        return -EINVAL;
    result.bytes = spec->mb * STI_SIM_BYTES_PER_MB;
    result.single_seconds = spec->mb / spec->single_mb_s;
    result.device_factor = spec->device_mb_s / spec->single_mb_s;
    result.devices_factor = (double)spec->devices * spec->efficiency;
    result.nodes_factor = (double)spec->nodes;
    result.creation_factor = result.device_factor * result.devices_factor * result.nodes_factor;
    result.seconds = result.single_seconds / result.creation_factor;
    result.overlap_seconds = spec->overlap_seconds;
    result.stall_seconds = fmax(0, result.seconds - spec->overlap_seconds);
    result.overhead = result.stall_seconds / ((double)spec->every_steps * spec->step_seconds);
    result.required_mb_s = spec->overlap_seconds > 0 ? spec->mb / spec->overlap_seconds : HUGE_VAL;
    result.configured_lost_share =
        lost_share(spec, result.stall_seconds, (double)spec->every_steps);
    if (spec->mtbf_hours > 0) {
        double best_s = sqrt(2 * result.stall_seconds * spec->mtbf_hours * 3600);

        result.optimum_steps = fmax(1, round(best_s / spec->step_seconds));
        result.optimum_lost_share = lost_share(spec, result.stall_seconds, result.optimum_steps);
        simulate_failures(scenario, &result);
    }
    *ret_result = result;
    return 0;
}
