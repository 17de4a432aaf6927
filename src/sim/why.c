/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a sample is where it is: the run is planned, and what concerns one sample is
 * written down in words. One thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "base/mem.h"
#include "sim/plan.h"
#include "sim/sim.h"

#define EPOCHS_SHOWN 12

/* Text that grows up to its room; what is more is cut. */
struct text {
    char *at;
    size_t n_left;
};

static void
say(struct text *text, const char *format, ...) STI_PRINTF(2, 3);

static void
say(struct text *text, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int n = vsnprintf(text->at, text->n_left, format, args);
    va_end(args);
    size_t n_written = n < 0 ? 0 : (size_t)n < text->n_left ? (size_t)n : text->n_left - 1;
    text->at += n_written;
    text->n_left -= n_written;
}

static const char *
source_text(enum sti_source source)
{
    static const char *const texts[STI_SOURCES] = {
        [STI_SOURCE_RAM] = "its own RAM",     [STI_SOURCE_SSD] = "its own SSD",
        [STI_SOURCE_PEER_RAM] = "the RAM of", [STI_SOURCE_PEER_SSD] = "the SSD of",
        [STI_SOURCE_ORIGIN] = "the origin",
    };

    return texts[source];
}

/* The uses of a sample, epoch by epoch; counted by rank. */
static void
say_uses(struct text *text, struct sti_sim_plan *plan, uint32_t sample, uint32_t *uses)
{
    for (uint64_t epoch = 0; epoch < plan->scenario->epochs; epoch++) {
        struct sti_sim_epoch *planned;
        uint64_t at = 0;

        sti_sim_plan_next(plan);
        planned = sti_sim_plan_at(plan, epoch);
        while (at < plan->n_elements && planned->ids[at] != sample)
            at++;
        if (at < plan->n_elements)
            uses[plan->holder_of[at % plan->scenario->ranks]]++;
        if (epoch >= EPOCHS_SHOWN)
            continue;
        if (at == plan->n_elements) {
            say(text, "  epoch %" PRIu64 ": not read (the incomplete last step is left out)\n",
                epoch);
            continue;
        }
        enum sti_source source = (enum sti_source)planned->source[at];
        bool is_own = source == STI_SOURCE_RAM || source == STI_SOURCE_SSD;
        /* What a rank is to be filled with comes by its first read at the latest. */
        bool fills = plan->fills_beside && epoch == 0 && is_own;
        say(text, "  epoch %" PRIu64 ": rank %" PRIu64 " reads it in step %" PRIu64 ", from %s%s",
            epoch, at % plan->scenario->ranks, at / plan->scenario->ranks / plan->scenario->batch,
            fills ? "the origin, into " : "", source_text(source));
        if (source == STI_SOURCE_PEER_RAM || source == STI_SOURCE_PEER_SSD)
            say(text, " %s %u", plan->holder_ranks > 1 ? "node" : "rank", planned->peer[at]);
        say(text, "\n");
    }
    if (plan->scenario->epochs > EPOCHS_SHOWN)
        say(text, "  ... and so on to epoch %" PRIu64 "\n", plan->scenario->epochs - 1);
}

static void
say_holders(struct text *text, const struct sti_sim_plan *plan, uint32_t sample,
            const uint32_t *uses)
{
    uint32_t most = 0;
    bool is_held = false;
    const char *who = plan->holder_ranks > 1 ? "node" : "rank";

    for (uint32_t rank = 0; rank < plan->n_holders; rank++)
        most = uses[rank] > most ? uses[rank] : most;
    for (uint32_t rank = 0; rank < plan->n_holders; rank++) {
        if (!sti_assignment_has(&plan->assignment, sample, rank))
            continue;
        is_held = true;
        say(text, "  %s %u holds it on its %s: it reads it %u times, the most of any is %u\n", who,
            rank, sti_assignment_on_ssd(&plan->assignment, sample, rank) ? "SSD" : "RAM",
            uses[rank], most);
    }
    if (!is_held)
        say(text, "  nobody holds it: %s; the most that one reads it is %u times\n",
            plan->policy == STK_SIM_PAPER
                ? "every rank has other samples that it reads more often, or as often"
                : "there is no room for it",
            most);
}

static void
say_worth(struct text *text, const struct sti_sim_plan *plan, uint32_t sample)
{
    uint64_t room = plan->bound.capacity_bytes;
    uint64_t n_fit = 0;

    if (plan->by_next_use) {
        say(text, "  what is read again latest goes first, by all epochs that are known\n");
        return;
    }

    while (n_fit < plan->scenario->samples) {
        uint32_t n_bytes = sti_sim_bytes(plan->data, plan->sample_at[n_fit]);

        if (n_bytes > room)
            break;
        room -= n_bytes;
        n_fit++;
    }
    say(text,
        "  not everything fits: by origin time saved per byte of room it is number %" PRIu64
        " of %" PRIu64 ", and the first %" PRIu64 " fit\n",
        (uint64_t)plan->order_of[sample] + 1, plan->scenario->samples, n_fit);
}

static int
explain(struct text *text, struct sti_sim_plan *plan, uint32_t sample)
{
    uint32_t *uses = sti_mem_new(plan->scenario->ranks, sizeof(*uses));

    if (!uses)
        return -ENOMEM;
    say(text, "sample %u, %u bytes, policy %s\n", sample, sti_sim_bytes(plan->data, sample),
        sti_sim_policy_name(plan->policy));
    say_uses(text, plan, sample, uses);
    switch (plan->planner) {
    case STI_SIM_PLAN_NOTHING:
        say(text, "  the policy holds nothing\n");
        break;
    case STI_SIM_PLAN_STATIC:
        say_holders(text, plan, sample, uses);
        break;
    case STI_SIM_PLAN_SHARED:
        say_worth(text, plan, sample);
        break;
    case STI_SIM_PLAN_OWN:
        say(text, "  each rank keeps, of what it has read, what it %s\n",
            plan->policy == STK_SIM_LRU ? "read last" : "reads again soonest");
        break;
    }
    sti_mem_free(uses);
    return 0;
}

int
sti_sim_why(const struct sti_scenario *scenario, stk_sim_policy policy, uint64_t sample,
            struct sti_sim_text room, stk_error *err)
{
    struct text text = {room.text, room.n_chars};
    struct sti_sim_plan plan;
    struct sti_sim_data data;
    int rc = sti_scenario_check(scenario, err);

    if (!rc && sample >= scenario->samples)
        return sti_error_set(err, -ERANGE, "sample is %" PRIu64 "; the scenario has %" PRIu64,
                             sample, scenario->samples);
    if (!rc)
        rc = sti_sim_data_init(&data, scenario, err);
    if (rc)
        return rc;
    rc = sti_sim_plan_init(&plan, &data, policy, err);
    if (!rc && explain(&text, &plan, (uint32_t)sample))
        rc = sti_error_set(err, -ENOMEM, "no memory for a simulation of this size");
    sti_sim_plan_fini(&plan);
    sti_sim_data_fini(&data);
    return rc;
}
