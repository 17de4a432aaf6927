/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run: steps, each begun by all ranks together when the one before is over, as
 * data-parallel training is. A rank computes when its batch is there; the slowest ends
 * the step; then the batch's memory is free and fetching goes on. A checkpoint that is
 * under way must be written before a step's optimizer, that is, before the step's end.
 *
 * Invariant: a rank's staged bytes are those of samples on the way, waiting or in the
 * current step, and exceed staging by what the current step needs at most. One thread.
 */
#include "sim/machine.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

#include "base/mem.h"
#include "sim/machine_internal.h"

static uint64_t
run_steps(const struct sti_machine *machine)
{
    return machine->plan->data->steps * machine->scenario->epochs;
}

/* What policies fill first is read by all ranks at once. */
static double
preload_s(const struct sti_machine *machine)
{
    const struct sti_scenario *scenario = machine->scenario;
    bool to_ssd = machine->plan->policy == STK_SIM_PARALLEL_STAGING ||
                  machine->plan->policy == STK_SIM_LOCALITY_AWARE;
    double n_ranks = (double)scenario->ranks;
    double origin_mb_s = sti_curve_at(&scenario->origin, n_ranks) / n_ranks;
    double n_beside = fmin((double)scenario->node_ranks, n_ranks);
    double longest_s = 0;

    if (!machine->plan->is_preloaded)
        return 0;
    for (uint64_t rank = 0; rank < scenario->ranks; rank++) {
        const struct sti_sim_node *node = machine->ranks[rank].node;
        double mb_s = fmin(origin_mb_s, node->origin_link_mb_s / n_beside);

        if (to_ssd)
            mb_s = fmin(mb_s, node->ssd_write_mb_s / n_beside);
        longest_s = fmax(longest_s,
                         (double)machine->plan->preload_bytes[rank] / STI_SIM_BYTES_PER_MB / mb_s);
    }
    return longest_s;
}

/* Whether a step's samples are all there when it begins. */
static void
look_if_ready(struct sti_machine *machine, uint32_t number)
{
    struct sti_sim_rank *rank = &machine->ranks[number];
    uint64_t slot = number * machine->n_slots + machine->current % machine->n_slots;

    rank->is_ready =
        machine->arrived[slot] >=
        sti_sim_batch(machine->plan->data, machine->current % machine->plan->data->steps, number);
    rank->ready_s = machine->now_s;
    machine->n_ready += rank->is_ready;
}

static void
begin_step(struct sti_machine *machine)
{
    machine->n_ready = 0;
    for (uint32_t rank = 0; rank < machine->scenario->ranks; rank++)
        look_if_ready(machine, rank);
    for (uint32_t rank = 0; rank < machine->scenario->ranks; rank++)
        sti_machine_pump(machine, rank);
}

static void
do_events_until(struct sti_machine *machine, double until_s)
{
    const struct sti_event *first = sti_events_first(&machine->events);

    while (first && first->at_s <= until_s) {
        struct sti_event event = sti_events_take(&machine->events);

        sti_machine_event(machine, &event);
        first = sti_events_first(&machine->events);
    }
}

static void
do_event(struct sti_machine *machine)
{
    struct sti_event event;

    assert(machine->events.n > 0);
    event = sti_events_take(&machine->events);
    sti_machine_event(machine, &event);
}

/* When the step that began at begin_s ends, the samples being there; adds up the
 * stalls. */
static double
step_end(struct sti_machine *machine, double begin_s)
{
    const struct sti_scenario *scenario = machine->scenario;
    double end_s = begin_s;

    for (uint32_t number = 0; number < scenario->ranks; number++) {
        const struct sti_sim_rank *rank = &machine->ranks[number];
        uint64_t slot = number * machine->n_slots + machine->current % machine->n_slots;
        double compute_s =
            (double)machine->batch_bytes[slot] / STI_SIM_BYTES_PER_MB / rank->node->compute_mb_s;

        machine->result.stall_seconds += (rank->ready_s - begin_s) / (double)scenario->ranks;
        end_s = fmax(end_s, rank->ready_s + compute_s);
    }
    return end_s;
}

static void
free_batches(struct sti_machine *machine)
{
    for (uint32_t rank = 0; rank < machine->scenario->ranks; rank++) {
        uint64_t slot = rank * machine->n_slots + machine->current % machine->n_slots;

        machine->ranks[rank].staged_bytes -= (double)machine->batch_bytes[slot];
        machine->arrived[slot] = 0;
        machine->batch_bytes[slot] = 0;
    }
}

static void
begin_checkpoint(struct sti_machine *machine)
{
    const struct sti_sim_checkpoint_spec *spec = &machine->scenario->checkpoint;

    if (spec->mb <= 0 || (machine->current + 1) % spec->every_steps != 0)
        return;
    for (uint32_t rank = 0; rank < machine->scenario->ranks; rank++)
        sti_machine_save(machine, rank,
                         spec->mb * STI_SIM_BYTES_PER_MB / (double)machine->scenario->ranks);
}

static void
run_step(struct sti_machine *machine)
{
    double begin_s = machine->now_s;
    double end_s;

    begin_step(machine);
    while (machine->n_ready < machine->scenario->ranks)
        do_event(machine);
    end_s = step_end(machine, begin_s);
    do_events_until(machine, end_s);
    while (machine->n_saving > 0) { /* the optimizer waits for the last checkpoint */
        do_event(machine);
        end_s = fmax(end_s, machine->now_s);
    }
    machine->now_s = end_s;
    free_batches(machine);
    begin_checkpoint(machine);
}

/* Lists what each rank is filled with, in order of its first use. */
static int
list_fills(struct sti_machine *machine)
{
    struct sti_sim_plan *plan = machine->plan;
    const struct sti_scenario *scenario = machine->scenario;
    const struct sti_assignment *held = &plan->assignment;
    struct sti_assignment *listed = &machine->there;
    uint32_t *ids = sti_mem_new(scenario->samples, sizeof(*ids));

    for (uint64_t rank = 0; ids && rank < scenario->ranks; rank++) {
        uint64_t n = 0;

        for (uint64_t sample = 0; sample < scenario->samples; sample++)
            n += sti_assignment_has(held, sample, (uint32_t)rank);
        machine->ranks[rank].fill = sti_mem_new(n + 1, sizeof(*ids));
        if (!machine->ranks[rank].fill) {
            sti_mem_free(ids);
            return -ENOMEM;
        }
    }
    for (uint64_t epoch = 0; ids && epoch < scenario->epochs; epoch++) {
        sti_sim_data_epoch(plan->data, epoch, ids);
        for (uint64_t at = 0; at < plan->n_elements; at++) {
            uint32_t number = sti_owner_first_reader(at, (uint32_t)scenario->ranks);
            struct sti_sim_rank *rank = &machine->ranks[number];
            uint64_t word = (uint64_t)ids[at] * held->n_words + number / 64;

            if (!sti_assignment_has(held, ids[at], number) ||
                sti_assignment_has(listed, ids[at], number))
                continue;
            listed->held[word] |= UINT64_C(1) << number % 64;
            rank->fill[rank->n_fill++] = ids[at];
        }
    }
    for (uint64_t word = 0; word < scenario->samples * listed->n_words; word++)
        listed->held[word] = 0;
    int rc = ids ? 0 : -ENOMEM;
    sti_mem_free(ids);
    return rc;
}

static int
init_fills(struct sti_machine *machine)
{
    const struct sti_scenario *scenario = machine->scenario;
    struct sti_assign_input input = {
        .n_samples = scenario->samples,
        .n_ranks = (uint32_t)scenario->ranks,
        .ram_bytes = machine->plan->ram_bytes,
        .ssd_bytes = machine->plan->ssd_bytes,
    };
    int rc = sti_assignment_init(&machine->there, &input);

    for (uint64_t rank = 0; rank < scenario->ranks; rank++)
        machine->ranks[rank].free_fillers = (uint32_t)(scenario->tiers[STI_SIM_RAM_TIER].threads +
                                                       scenario->tiers[STI_SIM_SSD_TIER].threads);
    return rc ? rc : list_fills(machine);
}

static void
init_nodes(struct sti_machine *machine)
{
    const struct sti_scenario *scenario = machine->scenario;
    const struct sti_sim_tier *ssd = &scenario->tiers[STI_SIM_SSD_TIER];

    for (uint64_t number = 0; number < sti_scenario_nodes(scenario); number++) {
        struct sti_sim_node *node = &machine->nodes[number];
        double write_mb_s = sti_by_node_at(&ssd->write_mb_s, number);

        node->ram_mb_s = sti_by_node_at(&scenario->tiers[STI_SIM_RAM_TIER].mb_s, number);
        node->ssd_mb_s = sti_by_node_at(&ssd->mb_s, number);
        node->ssd_write_mb_s = write_mb_s > 0 ? write_mb_s : node->ssd_mb_s;
        node->net_mb_s = sti_by_node_at(&scenario->net_mb_s, number);
        node->origin_link_mb_s = sti_by_node_at(&scenario->origin_link_mb_s, number);
        node->decode_mb_s = sti_by_node_at(&scenario->decode_mb_s, number);
        node->compute_mb_s = sti_by_node_at(&scenario->compute_mb_s, number);
    }
    for (uint64_t rank = 0; rank < scenario->ranks; rank++)
        machine->ranks[rank].node = &machine->nodes[sti_scenario_node_of(scenario, rank)];
}

static int
machine_init(struct sti_machine *machine, struct sti_sim_plan *plan)
{
    const struct sti_scenario *scenario = plan->scenario;
    uint64_t per_rank = scenario->tiers[STI_SIM_STAGING_TIER].threads + 1 +
                        scenario->tiers[STI_SIM_RAM_TIER].threads +
                        scenario->tiers[STI_SIM_SSD_TIER].threads;
    uint64_t n_fetches = per_rank * scenario->ranks;

    *machine = (struct sti_machine){.plan = plan, .scenario = scenario};
    machine->n_slots = 2 * plan->data->steps + 1;
    machine->nodes = sti_mem_new(sti_scenario_nodes(scenario), sizeof(*machine->nodes));
    machine->ranks = sti_mem_new(scenario->ranks, sizeof(*machine->ranks));
    machine->fetches = sti_mem_new(n_fetches, sizeof(*machine->fetches));
    machine->free_fetches = sti_mem_new(n_fetches, sizeof(*machine->free_fetches));
    machine->arrived = sti_mem_new(machine->n_slots * scenario->ranks, sizeof(uint32_t));
    machine->batch_bytes = sti_mem_new(machine->n_slots * scenario->ranks, sizeof(uint64_t));
    if (sti_events_init(&machine->events, n_fetches) || !machine->ranks || !machine->nodes ||
        !machine->fetches || !machine->free_fetches || !machine->arrived || !machine->batch_bytes)
        return -ENOMEM;
    for (uint64_t at = 0; at < n_fetches; at++)
        machine->free_fetches[machine->n_free_fetches++] = (uint32_t)(n_fetches - 1 - at);
    init_nodes(machine);
    for (uint64_t rank = 0; rank < scenario->ranks; rank++)
        machine->ranks[rank].free_threads =
            plan->policy == STK_SIM_NAIVE ? 1
                                          : (uint32_t)scenario->tiers[STI_SIM_STAGING_TIER].threads;
    return plan->fills_beside ? init_fills(machine) : 0;
}

static void
machine_fini(struct sti_machine *machine)
{
    for (uint64_t rank = 0; machine->ranks && rank < machine->scenario->ranks; rank++)
        sti_mem_free(machine->ranks[rank].fill);
    sti_assignment_fini(&machine->there);
    sti_events_fini(&machine->events);
    sti_mem_free(machine->ranks);
    sti_mem_free(machine->nodes);
    sti_mem_free(machine->fetches);
    sti_mem_free(machine->free_fetches);
    sti_mem_free(machine->arrived);
    sti_mem_free(machine->batch_bytes);
}

int
sti_sim_machine_run(struct sti_sim_plan *plan, stk_sim_result *ret_result)
{
    struct sti_machine machine;
    int rc = machine_init(&machine, plan);

    if (!rc) {
        machine.now_s = preload_s(&machine);
        machine.result.setup_seconds = machine.now_s;
        for (; machine.current < run_steps(&machine); machine.current++)
            run_step(&machine);
        ret_result->seconds = machine.now_s;
        ret_result->setup_seconds = machine.result.setup_seconds;
        ret_result->stall_seconds = machine.result.stall_seconds;
    }
    machine_fini(&machine);
    return rc;
}

int
sti_sim_machine_bound(struct sti_sim_data *data, double *ret_seconds)
{
    const struct sti_scenario *scenario = data->scenario;
    uint32_t *ids = sti_mem_new(scenario->samples, sizeof(*ids));
    double seconds = 0;

    if (!ids)
        return -ENOMEM;
    for (uint64_t epoch = 0; epoch < scenario->epochs; epoch++) {
        sti_sim_data_epoch(data, epoch, ids);
        for (uint64_t step = 0; step < data->steps; step++) {
            double longest_s = 0;

            for (uint64_t rank = 0; rank < scenario->ranks; rank++) {
                uint64_t sum = 0;

                for (uint64_t item = 0; item < sti_sim_batch(data, step, rank); item++)
                    sum += sti_sim_bytes(data, ids[sti_sim_element(data, step, rank, item)]);
                double mb_s =
                    sti_by_node_at(&scenario->compute_mb_s, sti_scenario_node_of(scenario, rank));
                longest_s = fmax(longest_s, (double)sum / STI_SIM_BYTES_PER_MB / mb_s);
            }
            seconds += longest_s;
        }
    }
    sti_mem_free(ids);
    *ret_seconds = seconds;
    return 0;
}
