/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of ranks share: a job whose ranks are threads of this process, each with
 * an engine, a data set and a loader of its own. */
#ifndef TESTS_RANKS_UTIL_H
#define TESTS_RANKS_UTIL_H

#include "loader_util.h"

#define RANKS_MAX 8u

struct job;

struct rank {
    struct job *job;
    uint32_t rank;
    stk_engine *engine;
    stk_dataset *dataset;
    stk_loader *loader;
    stk_order_opts order;
    stk_loader_opts opts;
    int opened; /* what opening the loader gave */
    stk_error err;
    uint64_t batches;
    stk_loader_stats stats;        /* of the run, behind its last batch */
    stk_loader_stats epochs[8];    /* the first ones */
    stk_engine_stats engine_stats; /* at the end */
    int warned;                    /* of stk_loader_last_warning() */
};

/* What is asked of a job; zero where it has no say. */
struct job {
    const struct set *set; /* NULL: no loader, work is all that a rank does */
    const char *method;    /* of io */
    const char *comm;      /* "local" (NULL) or "ucx" */
    const char *tiers;
    const char *caches; /* a folder: rank R has an ssd tier R in it of ssd_bytes, too */
    uint64_t ssd_bytes;
    const char *ssd_shapes[RANKS_MAX];
    uint32_t world;
    stk_loader_opts opts; /* of each rank, but for its order */
    stk_order_opts order;
    uint32_t timeout_ms;
    uint32_t close_timeout_ms;
    uint32_t tiers_per_rank;
    uint32_t per_node; /* ranks that say that they are on one machine; 0: all */
    /* Changes a rank's options before its loader is opened. */
    void (*change)(struct rank *rank);
    /* Instead of following the whole course. */
    void (*work)(struct rank *rank);

    struct rank ranks[RANKS_MAX];
    void *context; /* the test's */
    void *meeting;
};

/* The methods by which ranks of one process can talk here: STOKER_TEST_METHODS (all that there
 * are) has a say. Ends with NULL. */
const char *const *
comms(void);

/* Runs all ranks to the end and closes them. */
void
job_run(struct job *job);

/* Waits until all ranks of a job are there; from a rank's work. */
void
job_meet(struct job *job);

/* Follows a rank's course from an epoch to the one before another. */
void
rank_follow(struct rank *rank, uint64_t epoch, uint64_t end_epoch);

/* Sums over the ranks. */
uint64_t
job_origin_bytes(const struct job *job);
uint64_t
job_tier_samples(const struct job *job, stk_tier tier);

#endif
