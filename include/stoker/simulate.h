/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What will I/O cost a job? A simulation of a training run on machines that need not
 * exist: a scenario says what the data set, the ranks and their storage are; a policy
 * says what is kept where; the result says how long the run takes, what it waits for and
 * what it reads from the origin. Decisions are those of the running library: the same
 * code makes them.
 *
 * A scenario is a set of keys with values, all of which have a default; a built-in one
 * starts from other values. Keys are listed by stk_scenario_key() and in
 * docs/format/scenario.md. Sizes are in MB and rates in MB/s, 1 MB = 10^6 bytes.
 *
 * Nothing here does I/O, starts a thread or reads a clock: a result is a function of the
 * scenario alone, the same to the bit wherever it is computed. Any thread; several at
 * once on different scenarios.
 */
#ifndef STOKER_SIMULATE_H
#define STOKER_SIMULATE_H

#include <stoker/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stk_scenario stk_scenario;

/*
 * What is kept where. The first nine are the ones of the simulator that came with NoPFS
 * (Dryden et al., SC'21); PAPER is that work's own policy; the last four are this
 * library's.
 */
typedef enum stk_sim_policy {
    STK_SIM_PERFECT = 0,              /* every sample is there: the bound on time */
    STK_SIM_NAIVE = 1,                /* from the origin, when asked for */
    STK_SIM_STAGING = 2,              /* from the origin, ahead of use: stk_policy NONE */
    STK_SIM_DEEPIO_ORDERED = 3,       /* RAM filled at first, by id; the rest from the origin */
    STK_SIM_DEEPIO_OPPORTUNISTIC = 4, /* the same, but what is near is read in place of the rest */
    STK_SIM_PARALLEL_STAGING = 5,     /* own part on the SSD at first, own part only read */
    STK_SIM_LBANN_DYNAMIC = 6,        /* RAM, filled in the first epoch by who reads */
    STK_SIM_LBANN_PRELOADING = 7,     /* RAM, filled at first, by id */
    STK_SIM_LOCALITY_AWARE = 8,       /* SSD filled at first; a batch is dealt out by locality */
    STK_SIM_PAPER = 9,                /* each rank holds what it reads most */
    STK_SIM_COORDINATED = 10,         /* the ranks hold as much as they can together */
    STK_SIM_NEXT_USE = 11,            /* each rank alone holds what it reads soonest */
    STK_SIM_LRU = 12,                 /* each rank alone holds what it read last */
    STK_SIM_POLICIES = 13
} stk_sim_policy;

/* Where samples came from. */
typedef enum stk_sim_source {
    STK_SIM_FROM_ORIGIN = 0,
    STK_SIM_FROM_RAM = 1,
    STK_SIM_FROM_SSD = 2,
    STK_SIM_FROM_PEER = 3,
    STK_SIM_SOURCES = 4
} stk_sim_source;

/* A key of scenarios, for people. All borrowed, constant. */
typedef struct stk_scenario_key_info {
    const char *key;
    const char *range; /* "1 .. 1048576", or the words that are allowed */
    const char *help;
} stk_scenario_key_info;

typedef struct stk_sim_result {
    double seconds;          /* of the run */
    double setup_seconds;    /* of them, before the first batch: what is filled first */
    double stall_seconds;    /* waited for samples, mean over the ranks */
    double bound_seconds;    /* of the run if every sample were there */
    uint64_t origin_bytes;   /* read from the origin by all ranks */
    uint64_t bound_bytes;    /* the least that could be, by all policies with this capacity */
    uint64_t distinct_bytes; /* of the run */
    uint64_t source_samples[STK_SIM_SOURCES];
    uint64_t source_bytes[STK_SIM_SOURCES];
    double steady_origin_share; /* of the reads after the first epoch; 0 with one epoch */
    double steady_local_share;  /* the rank's own tiers */
} stk_sim_result;

/* Checkpoints, per save where nothing else is said. */
typedef struct stk_sim_checkpoint {
    double bytes;                 /* of a checkpoint */
    double single_seconds;        /* one writer of the slowest kind: torch.save */
    double device_factor;         /* one device written well, against that writer */
    double devices_factor;        /* all devices of a node against one */
    double nodes_factor;          /* all nodes that take part against one */
    double creation_factor;       /* the three together */
    double seconds;               /* of a save with everything */
    double overlap_seconds;       /* time per interval in which it may be hidden */
    double stall_seconds;         /* what it adds to an interval between saves */
    double overhead;              /* stall as a share of the interval */
    double required_mb_s;         /* of all writers together, for no stall */
    double optimum_steps;         /* between saves, for the failure rate; 0: no failures */
    double optimum_lost_share;    /* of the run's time, at the optimum */
    double configured_lost_share; /* at every_steps */
    double simulated_lost_share;  /* the same, from simulated failures; 0: no failures */
    uint64_t simulated_failures;
} stk_sim_checkpoint;

/*
 * Makes a scenario. builtin: a name from stk_scenario_builtin(), or NULL for the
 * defaults. ret_scenario: returns owned, freed with stk_scenario_free(). Errors: -ENOENT
 * no such name, -ENOMEM, -EINVAL.
 */
STK_API int
stk_scenario_new(stk_scenario **ret_scenario, const char *builtin, stk_error *err);

/* NULL is allowed. */
STK_API void
stk_scenario_free(stk_scenario *scenario);

/*
 * Sets a key. value: a number; a word; or for a curve "CLIENTS:MB/S CLIENTS:MB/S ...",
 * read as straight lines between the points. Errors: -ENOENT no such key, -EINVAL the
 * value is not one or out of its range; err names both and the range.
 */
STK_API int
stk_scenario_set(stk_scenario *scenario, const char *key, const char *value, stk_error *err);

/* The name of a scenario. Returns borrowed until it is set or freed. */
STK_API const char *
stk_scenario_name(const stk_scenario *scenario);

/* Whether keys contradict each other. Errors: -EINVAL; err says which. Every simulation
 * asks this by itself. Returns 0 when they do not. */
STK_API int
stk_scenario_check(const stk_scenario *scenario, stk_error *err);

/* The idx-th key: 0 and writes *ret_info, or -ENOENT behind the last. */
STK_API int
stk_scenario_key(uint32_t idx, stk_scenario_key_info *ret_info);

/* The idx-th built-in scenario's name, or NULL behind the last; *ret_summary (may be
 * NULL): one line about it. Constant strings. */
STK_API const char *
stk_scenario_builtin(uint32_t idx, const char **ret_summary);

/* The name of a policy ("locality-aware"), or NULL for a number that is none.
 * Constant. */
STK_API const char *
stk_sim_policy_name(uint32_t policy);

/* Whether a scenario has a loader (policies can be simulated), or checkpoints. */
STK_API int
stk_scenario_has_loader(const stk_scenario *scenario);
STK_API int
stk_scenario_has_checkpoint(const stk_scenario *scenario);

/*
 * Simulates a run under a policy. Errors: STK_E_INFEASIBLE the policy cannot run this
 * scenario (err says why: it does not fit), -EINVAL, -ENOMEM. Takes about 1 us per read
 * of a sample and 30 B per sample, more where a policy or mode needs it.
 */
STK_API int
stk_simulate(const stk_scenario *scenario, stk_sim_policy policy, stk_sim_result *ret_result,
             stk_error *err);

/*
 * Says in words where a sample is under a policy (as the honest mode decides) and why:
 * who reads it when from where, who holds it. text: room for n_text characters with the
 * final zero; what is more is cut; lines end with a newline. Errors as stk_simulate(),
 * -ERANGE no such sample.
 */
STK_API int
stk_simulate_why(const stk_scenario *scenario, stk_sim_policy policy, uint64_t sample, char *text,
                 size_t n_text, stk_error *err);

/* Of n samples, how many one of `ranks` is expected to read more than (1 + excess) *
 * epochs / ranks times in a run of `epochs`, by the binomial law. ranks >= 1. */
STK_API double
stk_sim_hot_samples(uint64_t n, uint32_t ranks, uint64_t epochs, double excess);

/* Models the scenario's checkpoints. Errors: -EINVAL there are none. */
STK_API int
stk_simulate_checkpoint(const stk_scenario *scenario, stk_sim_checkpoint *ret_result,
                        stk_error *err);

#ifdef __cplusplus
}
#endif

#endif
