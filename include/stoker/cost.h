/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What reading costs, and what a run will come to: measuring a place, what a loader has
 * learned of its tiers, and a run told beforehand.
 */
#ifndef STOKER_COST_H
#define STOKER_COST_H

#include <stoker/loader.h>
#include <stoker/simulate.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A place as seen with a number of reads at once. All 0: nothing is known. */
typedef struct stk_cost {
    double depth;       /* reads at once */
    double latency_s;   /* of one small or short read */
    double bytes_per_s; /* of all of them together */
} stk_cost;

/*
 * Measuring a place.
 *
 * file_bytes  length of the file that is made in a directory, 1M .. 64G; 0: 64M. A file is read
 *             as it is.
 * point_ms    time for each point, 10 .. 60000; 0: 200.
 */
typedef struct stk_probe_opts {
    size_t size;
    uint64_t file_bytes;
    uint32_t point_ms;
    uint32_t reserved; /* 0 */
} stk_probe_opts;

#define STK_PROBE_OPTS_INIT .size = sizeof(stk_probe_opts)

/* Random reads of one size, so many at once. */
typedef struct stk_probe_point {
    uint64_t block_bytes;
    uint64_t depth;
    double latency_s; /* mean of a read */
    double bytes_per_s;
    double reads_per_s;
} stk_probe_point;

#define STK_PROBE_POINTS 12

/*
 * Measures a file or directory with the engine's I/O method, direct where that works. In
 * a directory a file without a name is used, which is gone when this returns, however it
 * does. points: room for STK_PROBE_POINTS. Returns how many were measured. Errors, with
 * the path: -ENOENT, -EACCES, -EROFS, -ENOSPC, -EIO, -EINVAL (an option; a file below
 * 1M). Blocks for about 12 x point_ms. Any thread.
 */
STK_API int
stk_probe(stk_engine *engine, const char *path, const stk_probe_opts *opts, stk_probe_point *points,
          stk_error *err);

/* What is known of a loader's tiers, by stk_tier. */
typedef struct stk_costs {
    size_t size;
    stk_cost tiers[STK_TIERS];
} stk_costs;

#define STK_COSTS_INIT .size = sizeof(stk_costs)

/*
 * RAM and SSDs as probed when the engine was opened, SSDs (all together) and origin as
 * learned from the loader's own reads since. costs->size is set by the caller. Errors:
 * -EINVAL. Any thread.
 */
STK_API int
stk_loader_get_costs(stk_loader *loader, stk_costs *costs);

/*
 * A run to be told beforehand.
 *
 * loader       the loader's options. Borrowed, as what they point to.
 * tiers        as for stk_engine_open(); nothing is opened.
 * node_ranks   so many ranks of a machine share the tiers, each with a part of them; 0 or 1: they
 *              are one rank's. As stk_engine_stats has it.
 * costs        of the tiers as far as known; NULL: nothing is, and no times are told.
 * queue_depth  reads at once; 0: STK_QUEUE_DEPTH.
 * compute_s    between two batches.
 * is_warm      1: the SSDs hold from the start what they can.
 * has_peers    1: the ranks of the order's world serve each other, as an engine with comm has
 *              it, each with such tiers and options.
 */
typedef struct stk_explain_opts {
    size_t size;
    const stk_loader_opts *loader;
    const char *tiers;
    const stk_costs *costs;
    double compute_s;
    uint32_t queue_depth;
    uint32_t is_warm;
    uint32_t has_peers;
    uint32_t node_ranks;
} stk_explain_opts;

#define STK_EXPLAIN_OPTS_INIT .size = sizeof(stk_explain_opts)

/* An epoch, or all of them. */
typedef struct stk_explained {
    uint64_t epoch; /* UINT64_MAX: all */
    uint64_t batches;
    uint64_t samples;
    uint64_t bytes;
    uint64_t tier_samples[STK_TIERS];
    uint64_t tier_bytes[STK_TIERS];
    uint64_t bound_bytes;
    uint64_t ssd_written_bytes;
    double required_bytes_per_s; /* not to keep the consumer waiting; 0 without compute_s */
    double seconds;              /* 0 without costs */
    double stall_fraction;       /* of seconds, waiting */
    uint32_t limit;              /* the stk_tier that takes longest, STK_TIERS: computing does */
    uint32_t reserved;
} stk_explained;

/*
 * Tells what a run will read from where and how long it will wait, by the same decisions
 * that the loader makes, batch by batch. Epochs behind the first ones are as the last of
 * those. epochs: room for n_epochs, filled with the first of the run; may be NULL with 0.
 * Errors: as stk_loader_open(); -ENOTSUP STK_ORDER_LIST, or more than 2^26 samples;
 * -ENOMEM. Blocks for computing alone, about 200 ns for each sample and epoch. Any
 * thread.
 */
STK_API int
stk_explain(const stk_dataset *dataset, const stk_explain_opts *opts, stk_explained *epochs,
            uint32_t n_epochs, stk_explained *ret_run, stk_error *err);

/*
 * Says in words where a sample of a data set will be in a run under a policy, for all of
 * the order's ranks, each with such tiers: who reads it when and from where, who keeps
 * it and why. Of opts the loader and tiers count. The policies of ranks that reach each
 * other (paper, coordinated) can be asked about too, before there are such ranks. A run
 * without an end is told for 8 epochs. text: as of stk_simulate_why(). Errors: as
 * stk_loader_open(); -ENOTSUP other orders than TORCH (DISTRIBUTED) and KEYED, shuffled,
 * or more than 2^26 samples; -ERANGE no such sample; STK_E_INFEASIBLE, -ENOMEM. Blocks
 * for computing alone. Any thread.
 */
STK_API int
stk_explain_why(const stk_dataset *dataset, const stk_explain_opts *opts, stk_sim_policy policy,
                uint64_t sample, char *text, size_t n_text, stk_error *err);

#ifdef __cplusplus
}
#endif

#endif
