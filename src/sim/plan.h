/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who reads what from where: the decisions of a policy along a run, epoch by epoch, in
 * the order of (step, item, rank) in which all ranks together go through it. No times:
 * what a rank holds follows from the order alone, as it does in the running library, so
 * the machine (machine.h) only has to charge for it. All decisions are policy/'s.
 */
#ifndef STI_SIM_PLAN_H
#define STI_SIM_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/assign.h"
#include "policy/bound.h"
#include "policy/choose.h"
#include "policy/future.h"
#include "policy/pool.h"
#include "policy/replica.h"
#include "sim/data.h"

/* Epochs that are held at a time: the one that is trained, and two ahead. */
#define STI_SIM_EPOCHS_HELD 3

/* An epoch as it is read: one entry per element of its order; element % ranks is the
 * rank. */
struct sti_sim_epoch {
    uint32_t *ids;
    uint8_t *source; /* enum sti_source */
    uint16_t *peer;  /* of the peer sources: a holder */
};

/* Samples of consecutive ids. */
struct sti_sim_range {
    uint64_t first;
    uint64_t count;
};

/* What a read of a sample of mean size takes, of a holder. */
struct sti_sim_seconds {
    double ram;
    double ssd;
    double net; /* from another node */
};

/* How a policy decides. */
enum sti_sim_planner {
    STI_SIM_PLAN_NOTHING, /* all from the origin */
    STI_SIM_PLAN_STATIC,  /* an assignment that does not change */
    STI_SIM_PLAN_SHARED,  /* one pool of all holders */
    STI_SIM_PLAN_OWN,     /* a pool of each rank */
};

struct sti_sim_plan {
    struct sti_sim_data *data;
    const struct sti_scenario *scenario;
    stk_sim_policy policy;
    enum sti_sim_planner planner;
    uint64_t n_elements; /* of an epoch that are read */
    uint64_t n_planned;  /* epochs */
    uint64_t n_ordered;  /* epochs whose ids are there */
    struct sti_sim_epoch epochs[STI_SIM_EPOCHS_HELD];
    uint32_t holder_ranks; /* ranks that hold together: a node's, or one */
    uint32_t n_holders;
    uint16_t *holder_of; /* of each rank */
    uint64_t *ram_bytes; /* of each holder */
    uint64_t *ssd_bytes;
    struct sti_sim_seconds *seconds; /* of each holder */

    struct sti_assignment assignment; /* STATIC */
    uint16_t *relief;                 /* who serves a sample for its holder, too; or NULL */
    struct sti_assignment relieving;  /* and in which tier */
    bool has_replicas;                /* coordinated, with room to spare */
    struct sti_replicas replicas;
    uint32_t *ahead_ids;       /* the order of the epoch that comes into sight */
    bool is_preloaded;         /* what it says is there before the first step */
    bool fills_beside;         /* what it says comes while the run goes on: paper */
    uint64_t *preload_bytes;   /* of each rank */
    struct sti_sim_range *own; /* what each rank holds, where that is a range */
    uint32_t *dealt;           /* a step being dealt out again, and a place per rank */

    struct sti_pool *pools; /* SHARED: one; OWN: one per rank */
    uint32_t n_pools;
    bool by_next_use;         /* SHARED: ordered by next use, not by worth */
    struct sti_future future; /* the next uses */
    uint32_t *order_of;       /* SHARED, by worth: sample's place in that order */
    uint32_t *sample_at;      /* by key, place + (epoch that it is held for % 2) * samples */
    uint64_t *in_next;        /* a bit per sample that is read in the next epoch; NULL: all */
    uint16_t *wish;           /* SHARED: the holder that should have it; NULL: its first reader's */
    uint32_t **streams;       /* OWN: what each rank reads, all epochs */
    uint32_t **next_use;      /* OWN, next-use: position at which it reads it next */

    struct sti_bound bound;
    uint64_t *read_before; /* a bit per sample: in the run, as far as it is planned */
    uint64_t *came;        /* a bit per sample: the origin has been asked for it */
    stk_sim_result result; /* what needs no clock */
    uint64_t steady_samples;
    uint64_t steady_origin;
    uint64_t steady_local;
};

/* Prepares a policy for a run. Errors: STK_E_INFEASIBLE (err says what does not fit),
 * -ENOMEM. sti_sim_plan_fini() in any case. */
int
sti_sim_plan_init(struct sti_sim_plan *plan, struct sti_sim_data *data, stk_sim_policy policy,
                  stk_error *err);
void
sti_sim_plan_fini(struct sti_sim_plan *plan);

/* Plans the next epoch (n_planned), which takes the place of the one three before. */
void
sti_sim_plan_next(struct sti_sim_plan *plan);

static inline struct sti_sim_epoch *
sti_sim_plan_at(struct sti_sim_plan *plan, uint64_t epoch)
{
    return &plan->epochs[epoch % STI_SIM_EPOCHS_HELD];
}

/* The order of an epoch, if it is one of the run. */
void
sti_sim_plan_order(struct sti_sim_plan *plan, uint64_t epoch);

/* Where a holder's rank gets a sample now, by what an assignment says is there; *ret_peer:
 * of the peer sources. */
enum sti_source
sti_sim_plan_source(const struct sti_sim_plan *plan, const struct sti_assignment *there,
                    uint32_t sample, uint32_t holder, uint32_t *ret_peer);

/* Counts a read. is_steady: after the first epoch. */
void
sti_sim_plan_count(struct sti_sim_plan *plan, uint32_t sample, enum sti_source source,
                   bool is_steady);

#endif
