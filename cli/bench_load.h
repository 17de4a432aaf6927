/* SPDX-License-Identifier: Apache-2.0 */
/* One measured run of a loader: what is asked for, what came out, and the run itself. */
#ifndef CLI_BENCH_LOAD_H
#define CLI_BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stoker/cost.h>
#include <stoker/stoker.h>

#include "dataset.h"

struct bench_load_request {
    stk_engine_opts engine;
    struct cli_dataset_request data;
    stk_loader_opts loader; /* its order is the next field */
    stk_order_opts order;
    uint64_t steps;      /* batches at most; 0: to the end of the run */
    uint64_t compute_us; /* between two batches, as an accelerator would take */
    bool spin;           /* compute_us burns a core instead of sleeping */
    bool touch;          /* reads every byte of every batch */
    bool crc;            /* makes a CRC-32 of all bytes in the order in which they come */
    bool quiet;          /* no progress on stderr */
    bool explain;        /* tells the run beforehand, too, with what was learned in it */
    bool warm;           /* stoker explain: the SSDs are full from the start */
    bool peers;          /* stoker explain: the ranks serve each other */
    bool asks_why;       /* stoker explain: of one sample only */
    uint32_t node_ranks; /* stoker explain: that share the tiers */
    uint64_t why;
    stk_costs costs; /* as given; what is 0 is taken from the run or from a probe */
};

/* An epoch or the whole run. */
struct bench_phase {
    double seconds; /* of the clock on the wall, waiting and computing */
    double cpu_seconds;
    uint64_t rss_bytes; /* largest resident memory of the process so far */
    stk_loader_stats loader;
    stk_engine_stats engine; /* what was added in the phase */
};

/* A run told beforehand; epochs owned, NULL where nothing was asked for. */
struct explained {
    stk_explained run;
    stk_explained *epochs;
    uint32_t n_epochs;
    bool has_peers;
    /* With peers: by the published policy, from the second epoch on. */
    uint64_t paper_samples[STK_TIERS];
};

struct bench_load_result {
    stk_dataset_info dataset;
    double index_seconds; /* that opening the data set took */
    const char *io_method;
    uint32_t crc; /* as zlib's crc32() of all bytes */
    bool interrupted;
    char *warning; /* the last one, which was said; owned, NULL: none */
    struct bench_phase total;
    struct bench_phase *epochs; /* owned; freed with bench_load_free() */
    size_t n_epochs;
    stk_costs costs; /* as learned */
    struct explained explained;
};

/*
 * Runs it: opens engine, data set and loader, takes all batches, closes. Progress goes to
 * stderr. SIGINT ends it early; nothing is closed then, so that the end does not wait for
 * storage, and the process is to be left by _exit(). Returns CLI_OK (also when
 * interrupted), or what the program should exit with after an error that has been said.
 */
int
bench_load_run(const char *command, const struct bench_load_request *request,
               struct bench_load_result *result);

/*
 * Tells a run beforehand. costs: NULL, or as far as they are known. Returns CLI_OK, or
 * what the program should exit with after an error that has been said; explained->epochs:
 * freed by the caller.
 */
int
bench_explain(const char *command, const struct bench_load_request *request,
              const stk_dataset *dataset, const stk_costs *costs, struct explained *explained);

/* Frees what a result owns. */
void
bench_load_free(struct bench_load_result *result);

#endif
