/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scenario: the machines, the data set and the job that are simulated, as a value. Set
 * key by key from text, each key with its range; built-in ones are lists of the same
 * keys.
 */
#ifndef STI_SIM_SCENARIO_H
#define STI_SIM_SCENARIO_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/simulate.h>

#include "policy/cost.h"

#define STI_SIM_BYTES_PER_MB 1e6

enum sti_sim_mode {
    STI_SIM_HONEST,    /* a share of a resource is a share */
    STI_SIM_PUBLISHED, /* with the habits of the published simulator */
};

/* The tiers of a rank. */
enum sti_sim_tier_idx { STI_SIM_STAGING_TIER, STI_SIM_RAM_TIER, STI_SIM_SSD_TIER, STI_SIM_TIERS };

#define STI_SIM_STEPS_MAX 16

/* A value that may differ from node to node: value[i] from node from[i] on, up to the
 * next. */
struct sti_by_node {
    uint32_t n_steps;
    uint32_t from[STI_SIM_STEPS_MAX];
    double value[STI_SIM_STEPS_MAX];
};

static inline double
sti_by_node_at(const struct sti_by_node *by_node, uint64_t node)
{
    uint32_t at = by_node->n_steps - 1;

    while (by_node->from[at] > node)
        at--;
    return by_node->value[at];
}

struct sti_sim_tier {
    struct sti_by_node capacity_mb; /* of a node, shared out to its ranks; staging: of a rank */
    uint64_t threads;               /* that read at a time, of a rank */
    struct sti_by_node mb_s;        /* of all of a node together */
    struct sti_by_node write_mb_s;  /* 0: as mb_s */
    double latency_ms;              /* of a read */
};

struct sti_sim_checkpoint_spec {
    double mb;              /* of a checkpoint; 0: none */
    double single_mb_s;     /* of the one writer that it is compared with */
    double device_mb_s;     /* of one device, written well */
    uint64_t devices;       /* per node */
    uint64_t nodes;         /* that take part */
    double efficiency;      /* of many devices and nodes against their sum */
    uint64_t every_steps;   /* between saves */
    uint64_t to_origin;     /* 1: beside a loader, saves go where its data comes from */
    double step_seconds;    /* of one step, optimizer included */
    double overlap_seconds; /* of it, in which weights do not change */
    double mtbf_hours;      /* between failures of the job; 0: none */
    double restart_seconds; /* after a failure */
    uint64_t steps;         /* of the simulated run */
};

struct sti_scenario {
    char name[64];
    uint64_t mode;
    uint64_t samples; /* 0: no loader */
    double sample_mb;
    double sample_sigma_mb;
    const uint32_t *sizes; /* of each sample, in place of drawn ones: borrowed; NULL: none */
    uint64_t ranks;
    uint64_t node_ranks; /* of a node; the last one has what is left */
    uint64_t batch;      /* samples of a rank in a step */
    uint64_t epochs;
    uint64_t horizon_epochs; /* known ahead; 0: all */
    uint64_t drop_last;
    uint64_t no_relief;
    uint64_t seed;
    uint64_t keyed;                  /* order: 0 torch, 1 keyed */
    uint64_t ties;                   /* enum sti_assign_ties */
    struct sti_by_node compute_mb_s; /* of one rank */
    struct sti_by_node decode_mb_s;  /* of one thread */
    uint64_t decode_threads;         /* of a rank; 0: each fetching thread decodes */
    struct sti_by_node net_mb_s;     /* into one node, and out of it */
    double net_latency_ms;
    struct sti_by_node origin_link_mb_s; /* from the origin into one node */
    double origin_latency_ms;
    struct sti_curve origin;
    struct sti_sim_tier tiers[STI_SIM_TIERS];
    double capacity; /* of all nodes' RAM as a multiple of the data set; 0: by ram_mb */
    uint64_t timing; /* 0: only what is read from where */
    struct sti_sim_checkpoint_spec checkpoint;
};

struct stk_scenario {
    struct sti_scenario values;
};

/* The defaults. */
void
sti_scenario_init(struct sti_scenario *scenario);

/* Errors as stk_scenario_set(). */
int
sti_scenario_set(struct sti_scenario *scenario, const char *name, const char *value,
                 stk_error *err);

/* Keys that contradict each other. Errors: -EINVAL. */
int
sti_scenario_check(const struct sti_scenario *scenario, stk_error *err);

int
sti_scenario_key(uint32_t idx, stk_scenario_key_info *ret_info);

/* Steps of an epoch. */
uint64_t
sti_scenario_steps(const struct sti_scenario *scenario);

/* Nodes, and the one that a rank is on. */
uint64_t
sti_scenario_nodes(const struct sti_scenario *scenario);

static inline uint64_t
sti_scenario_node_of(const struct sti_scenario *scenario, uint64_t rank)
{
    return rank / scenario->node_ranks;
}

/* Starts from a built-in one. Errors: -ENOENT. */
int
sti_scenario_from_builtin(struct sti_scenario *scenario, const char *name, stk_error *err);

const char *
sti_scenario_builtin(uint32_t idx, const char **ret_summary);

#endif
