/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes and order. Every number is a function of (seed, what it is for, counter), so
 * nothing depends on who asks in which sequence. Pure; one thread per struct.
 */
#include "sim/data.h"

#include <errno.h>
#include <math.h>

#include "base/error.h"
#include "base/mem.h"
#include "order/mix.h"

#define DRAWS_MAX 64

uint64_t
sti_sim_random(uint64_t seed, uint64_t counter)
{
    return sti_mix(sti_mix(seed + STI_MIX_INCREMENT) + (counter + 1) * STI_MIX_INCREMENT);
}

/* Uniform in (0, 1). */
static double
uniform(uint64_t seed, uint64_t counter)
{
    return ((double)(sti_sim_random(seed, counter) >> 11) + 0.5) * 0x1p-53;
}

/* Standard normal, by the polar form's angle (Box and Muller, "A note on the generation
 * of random normal deviates", Annals of Mathematical Statistics 29(2), 1958). */
static double
normal(uint64_t seed, uint64_t counter)
{
    return sqrt(-2 * log(uniform(seed, 2 * counter))) *
           cos(6.283185307179586 * uniform(seed, 2 * counter + 1));
}

static uint32_t
draw_bytes(const struct sti_scenario *scenario, uint64_t sample)
{
    double mb = scenario->sample_mb;

    for (uint64_t draw = 0; draw < DRAWS_MAX; draw++) {
        double drawn = scenario->sample_mb + scenario->sample_sigma_mb *
                                                 normal(scenario->seed, sample * DRAWS_MAX + draw);
        if (drawn < 0)
            continue;
        mb = drawn;
        break;
    }
    double n_bytes = round(mb * STI_SIM_BYTES_PER_MB);
    return n_bytes < 1 ? 1 : n_bytes > (double)UINT32_MAX ? UINT32_MAX : (uint32_t)n_bytes;
}

static int
make_sizes(struct sti_sim_data *data)
{
    const struct sti_scenario *scenario = data->scenario;

    if (scenario->sample_sigma_mb <= 0 && !scenario->sizes) {
        data->same_bytes = draw_bytes(scenario, 0);
        data->max_bytes = data->same_bytes;
        data->total_bytes = data->same_bytes * scenario->samples;
        return 0;
    }
    data->bytes = sti_mem_new(scenario->samples, sizeof(*data->bytes));
    if (!data->bytes)
        return -ENOMEM;
    for (uint64_t sample = 0; sample < scenario->samples; sample++) {
        data->bytes[sample] =
            scenario->sizes ? scenario->sizes[sample] : draw_bytes(scenario, sample);
        data->total_bytes += data->bytes[sample];
        if (data->bytes[sample] > data->max_bytes)
            data->max_bytes = data->bytes[sample];
    }
    return 0;
}

int
sti_sim_data_init(struct sti_sim_data *data, const struct sti_scenario *scenario, stk_error *err)
{
    *data = (struct sti_sim_data){.scenario = scenario, .steps = sti_scenario_steps(scenario)};
    stk_order_opts opts = {
        STK_ORDER_OPTS_INIT,
        .kind = scenario->keyed ? STK_ORDER_KEYED : STK_ORDER_TORCH,
        .n = scenario->samples,
        .seed = (int64_t)scenario->seed,
    };
    int rc = sti_order_init(&data->order, &opts, err);
    if (rc)
        return rc;
    data->scratch = sti_mem_new(sti_order_scratch_bytes(&data->order) + 1, 1);
    rc = data->scratch ? make_sizes(data) : -ENOMEM;
    if (rc) {
        sti_sim_data_fini(data);
        return sti_error_set(err, rc, "no memory for %llu samples",
                             (unsigned long long)scenario->samples);
    }
    return 0;
}

void
sti_sim_data_fini(struct sti_sim_data *data)
{
    sti_mem_free(data->bytes);
    sti_mem_free(data->scratch);
    *data = (struct sti_sim_data){0};
}

void
sti_sim_data_epoch(struct sti_sim_data *data, uint64_t epoch, uint32_t *ids)
{
    sti_order_epoch(&data->order, epoch, &data->cursor, ids, data->scratch);
}

uint32_t
sti_sim_batch(const struct sti_sim_data *data, uint64_t step, uint64_t rank)
{
    const struct sti_scenario *scenario = data->scenario;
    uint64_t first = step * scenario->batch * scenario->ranks;
    uint64_t left = scenario->samples - first; /* of all ranks, in this step and behind it */

    if (left >= scenario->batch * scenario->ranks)
        return (uint32_t)scenario->batch;
    return (uint32_t)(left / scenario->ranks + (rank < left % scenario->ranks));
}
