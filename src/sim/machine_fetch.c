/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of a sample: from the place that has it, over the network if that is elsewhere,
 * through decoding, into staging. Every queue is first come, first served, at the rate
 * that it has for all together: a reader that comes waits for those before it. What
 * decides is policy's and was decided in the plan; only a policy that fills beside the
 * run asks again here, because what it finds depends on how far it has come.
 *
 * Invariant: a rank's threads that are not free are each in exactly one event. One
 * thread.
 */
#include <assert.h>
#include <math.h>

#include "sim/machine_internal.h"

/* A save is written in pieces of this size, larger ones where there would be too many. */
#define SAVE_PIECE_BYTES 8e6
#define SAVE_PIECES_MAX 1024

static double
transfer_s(double n_bytes, double mb_s)
{
    return n_bytes / (mb_s * STI_SIM_BYTES_PER_MB);
}

/* A queue serves n_bytes that come at a time. Returns when that is done. */
static double
serve(double *free_s, double come_s, double n_bytes, double mb_s)
{
    *free_s = fmax(*free_s, come_s) + transfer_s(n_bytes, mb_s);
    return *free_s;
}

static double
serve_tier(const struct sti_machine *machine, struct sti_sim_node *node, bool is_ssd, double come_s,
           double n_bytes)
{
    const struct sti_sim_tier *tier =
        &machine->scenario->tiers[is_ssd ? STI_SIM_SSD_TIER : STI_SIM_RAM_TIER];

    return serve(is_ssd ? &node->ssd_free_s : &node->ram_free_s, come_s + tier->latency_ms / 1e3,
                 n_bytes, is_ssd ? node->ssd_mb_s : node->ram_mb_s);
}

static double
serve_origin(struct sti_machine *machine, uint32_t rank, double n_bytes)
{
    const struct sti_scenario *scenario = machine->scenario;

    if (machine->ranks[rank].n_at_origin++ == 0)
        machine->n_origin_clients++;
    double mb_s = sti_curve_at(&scenario->origin, machine->n_origin_clients);
    return serve(&machine->origin_free_s, machine->now_s + scenario->origin_latency_ms / 1e3,
                 n_bytes, mb_s);
}

/* When a sample that comes at a time is decoded: by the thread that fetched it, or by the
 * first of the rank's decoding threads that is free. */
static double
decoded_s(const struct sti_machine *machine, const struct sti_fetch *fetch, double come_s,
          double n_bytes)
{
    struct sti_sim_rank *rank = &machine->ranks[fetch->rank];
    double *first = &rank->decoder_free_s[0];

    if (fetch->is_fill)
        return come_s;
    if (machine->scenario->decode_threads == 0)
        return come_s + transfer_s(n_bytes, rank->node->decode_mb_s);
    for (uint64_t at = 1; at < machine->scenario->decode_threads; at++)
        if (rank->decoder_free_s[at] < *first)
            first = &rank->decoder_free_s[at];
    return serve(first, come_s, n_bytes, rank->node->decode_mb_s);
}

/* The first leg: at the place that has the sample. Returns when it is over; what is on
 * the own node goes through decoding in it and has no second one. */
static double
begin_read(struct sti_machine *machine, struct sti_fetch *fetch)
{
    const struct sti_scenario *scenario = machine->scenario;
    double n_bytes = sti_sim_bytes(machine->plan->data, fetch->sample);
    struct sti_sim_node *node = machine->ranks[fetch->rank].node;
    struct sti_sim_node *peer = &machine->nodes[fetch->peer];
    double request_s = machine->now_s + (peer == node ? 0 : scenario->net_latency_ms / 1e3);
    double done_s = 0;

    fetch->stage = STI_STAGE_READ;
    switch ((enum sti_source)fetch->source) {
    case STI_SOURCE_RAM:
    case STI_SOURCE_SSD:
        fetch->stage = STI_STAGE_MOVE;
        done_s =
            serve_tier(machine, node, fetch->source == STI_SOURCE_SSD, machine->now_s, n_bytes);
        return decoded_s(machine, fetch, done_s, n_bytes);
    case STI_SOURCE_PEER_RAM:
    case STI_SOURCE_PEER_SSD:
        return serve_tier(machine, peer, fetch->source == STI_SOURCE_PEER_SSD, request_s, n_bytes);
    case STI_SOURCE_ORIGIN:
    case STI_SOURCES:
        break;
    }
    return serve_origin(machine, fetch->rank, n_bytes);
}

/* The second leg: over the network, and through decoding. */
static double
begin_move(struct sti_machine *machine, struct sti_fetch *fetch)
{
    struct sti_sim_rank *rank = &machine->ranks[fetch->rank];
    struct sti_sim_node *node = rank->node;
    struct sti_sim_node *peer = &machine->nodes[fetch->peer];
    double n_bytes = sti_sim_bytes(machine->plan->data, fetch->sample);
    double done_s;

    fetch->stage = STI_STAGE_MOVE;
    if (fetch->source == STI_SOURCE_ORIGIN) {
        if (--rank->n_at_origin == 0)
            machine->n_origin_clients--;
        done_s = serve(&node->in_free_s, machine->now_s, n_bytes, node->origin_link_mb_s);
    } else if (peer == node) { /* another rank's, in the same node */
        done_s = machine->now_s;
    } else {
        double come_s = fmax(machine->now_s, peer->out_free_s);

        done_s = serve(&node->in_free_s, come_s, n_bytes, fmin(node->net_mb_s, peer->net_mb_s));
        peer->out_free_s = done_s;
    }
    return decoded_s(machine, fetch, done_s, n_bytes);
}

static struct sti_fetch *
take_fetch(struct sti_machine *machine, uint32_t rank)
{
    struct sti_fetch *fetch;

    assert(machine->n_free_fetches > 0);
    fetch = &machine->fetches[machine->free_fetches[--machine->n_free_fetches]];
    *fetch = (struct sti_fetch){.rank = rank};
    return fetch;
}

static void
schedule(struct sti_machine *machine, const struct sti_fetch *fetch, double at_s)
{
    sti_events_add(&machine->events, at_s, (uint32_t)(fetch - machine->fetches));
}

/* Moves a rank's cursor behind empty steps and whole epochs. False at the end of the run,
 * or where the plan does not reach: more than one epoch behind the one that is
 * trained. */
static bool
settle_cursor(struct sti_machine *machine, struct sti_sim_rank *rank, uint32_t number)
{
    struct sti_sim_plan *plan = machine->plan;

    while (rank->epoch < machine->scenario->epochs &&
           rank->item >= sti_sim_batch(plan->data, rank->step, number)) {
        rank->item = 0;
        if (++rank->step == plan->data->steps) {
            rank->step = 0;
            rank->epoch++;
        }
    }
    if (rank->epoch >= machine->scenario->epochs ||
        rank->epoch > machine->current / plan->data->steps + 1)
        return false;
    while (plan->n_planned <= rank->epoch)
        sti_sim_plan_next(plan);
    return true;
}

/* Whether a rank may fetch its next sample now. */
static bool
may_fetch(struct sti_machine *machine, struct sti_sim_rank *rank, uint32_t number)
{
    const struct sti_scenario *scenario = machine->scenario;

    if (rank->free_threads == 0 || !settle_cursor(machine, rank, number))
        return false;
    /* What the step waits for is fetched though staging be full: of unequal samples two
     * batches may be more than two mean ones, for which there is room. */
    if (rank->epoch * machine->plan->data->steps + rank->step == machine->current)
        return true;
    if (machine->plan->policy == STK_SIM_NAIVE)
        return false;
    return rank->staged_bytes <= 0 ||
           rank->staged_bytes + machine->plan->data->max_bytes <=
               scenario->tiers[STI_SIM_STAGING_TIER].capacity_mb.value[0] * STI_SIM_BYTES_PER_MB;
}

static void
fetch_next(struct sti_machine *machine, struct sti_sim_rank *rank, uint32_t number)
{
    struct sti_sim_plan *plan = machine->plan;
    struct sti_sim_epoch *epoch = sti_sim_plan_at(plan, rank->epoch);
    uint64_t at = sti_sim_element(plan->data, rank->step, number, rank->item);
    struct sti_fetch *fetch = take_fetch(machine, number);

    fetch->sample = epoch->ids[at];
    fetch->source = epoch->source[at];
    fetch->peer = epoch->peer[at];
    if (plan->fills_beside) {
        fetch->source = (uint8_t)sti_sim_plan_source(plan, &machine->there, fetch->sample, number,
                                                     &fetch->peer);
        sti_sim_plan_count(plan, fetch->sample, (enum sti_source)fetch->source, rank->epoch > 0);
    }
    fetch->peer = fetch->peer * plan->holder_ranks / (uint32_t)machine->scenario->node_ranks;
    uint64_t step = rank->epoch * plan->data->steps + rank->step;
    fetch->step_slot = (uint32_t)(step % machine->n_slots);
    rank->staged_bytes += sti_sim_bytes(plan->data, fetch->sample);
    rank->free_threads--;
    rank->item++;
    schedule(machine, fetch, begin_read(machine, fetch));
}

static void
fill_next(struct sti_machine *machine, struct sti_sim_rank *rank, uint32_t number)
{
    uint32_t sample = rank->fill[rank->next_fill++];

    if (sti_assignment_has(&machine->there, sample, number))
        return; /* a step needed it before */
    struct sti_fetch *fetch = take_fetch(machine, number);
    fetch->sample = sample;
    fetch->source = STI_SOURCE_ORIGIN;
    fetch->is_fill = true;
    rank->free_fillers--;
    machine->plan->result.origin_bytes += sti_sim_bytes(machine->plan->data, sample);
    schedule(machine, fetch, begin_read(machine, fetch));
}

void
sti_machine_pump(struct sti_machine *machine, uint32_t number)
{
    struct sti_sim_rank *rank = &machine->ranks[number];

    while (may_fetch(machine, rank, number))
        fetch_next(machine, rank, number);
    while (rank->free_fillers > 0 && rank->next_fill < rank->n_fill)
        fill_next(machine, rank, number);
}

/* What came belongs here: from now on others may have it. */
static void
note_there(struct sti_machine *machine, const struct sti_fetch *fetch)
{
    const struct sti_assignment *plan = &machine->plan->assignment;
    uint64_t word = (uint64_t)fetch->sample * plan->n_words + fetch->rank / 64;
    uint64_t bit = UINT64_C(1) << fetch->rank % 64;

    machine->there.held[word] |= plan->held[word] & bit;
    machine->there.on_ssd[word] |= plan->on_ssd[word] & bit;
}

static void
arrive(struct sti_machine *machine, const struct sti_fetch *fetch)
{
    struct sti_sim_plan *plan = machine->plan;
    struct sti_sim_rank *rank = &machine->ranks[fetch->rank];

    if (plan->fills_beside && fetch->source == STI_SOURCE_ORIGIN)
        note_there(machine, fetch);
    if (fetch->is_fill) {
        rank->free_fillers++;
        return;
    }
    uint64_t slot = fetch->rank * machine->n_slots + fetch->step_slot;
    rank->free_threads++;
    machine->arrived[slot]++;
    machine->batch_bytes[slot] += sti_sim_bytes(plan->data, fetch->sample);
    if (machine->current % machine->n_slots != fetch->step_slot || rank->is_ready ||
        machine->arrived[slot] <
            sti_sim_batch(plan->data, machine->current % plan->data->steps, fetch->rank))
        return;
    rank->is_ready = true;
    rank->ready_s = machine->now_s;
    machine->n_ready++;
}

/* The next piece of a checkpoint goes into the SSD's or the origin's queue; reads that
 * come go in between. */
static bool
save_piece(struct sti_machine *machine, const struct sti_fetch *fetch)
{
    struct sti_sim_rank *rank = &machine->ranks[fetch->rank];
    double n_bytes = fmin(rank->save_bytes, rank->piece_bytes);

    if (n_bytes <= 0)
        return false;
    rank->save_bytes -= n_bytes;
    if (machine->scenario->checkpoint.to_origin) {
        double mb_s = sti_curve_at(&machine->scenario->origin, (double)machine->n_saving);

        schedule(machine, fetch, serve(&machine->origin_free_s, machine->now_s, n_bytes, mb_s));
        return true;
    }
    schedule(machine, fetch,
             serve(&rank->node->ssd_free_s, machine->now_s, n_bytes, rank->node->ssd_write_mb_s));
    return true;
}

void
sti_machine_save(struct sti_machine *machine, uint32_t rank, double n_bytes)
{
    struct sti_fetch *fetch = take_fetch(machine, rank);

    fetch->stage = STI_STAGE_SAVE;
    machine->ranks[rank].save_bytes = n_bytes;
    machine->ranks[rank].piece_bytes = fmax(SAVE_PIECE_BYTES, n_bytes / SAVE_PIECES_MAX);
    machine->n_saving++;
    schedule(machine, fetch, machine->now_s);
}

void
sti_machine_event(struct sti_machine *machine, const struct sti_event *event)
{
    struct sti_fetch *fetch = &machine->fetches[event->what];

    machine->now_s = event->at_s;
    switch ((enum sti_stage)fetch->stage) {
    case STI_STAGE_READ:
        schedule(machine, fetch, begin_move(machine, fetch));
        return;
    case STI_STAGE_MOVE:
        arrive(machine, fetch);
        break;
    case STI_STAGE_SAVE:
        if (save_piece(machine, fetch))
            return;
        machine->n_saving--;
        break;
    }
    machine->free_fetches[machine->n_free_fetches++] = event->what;
    if (fetch->stage == STI_STAGE_MOVE)
        sti_machine_pump(machine, fetch->rank);
}
