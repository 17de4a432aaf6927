/* SPDX-License-Identifier: Apache-2.0 */
/* Measured checkpoints: what is asked for, what came out, and the run itself. */
#ifndef CLI_BENCH_SAVE_H
#define CLI_BENCH_SAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stoker/stoker.h>

#include "args.h"

#define BENCH_SAVES_MAX 1000

struct bench_save_request {
    struct cli_texts roots; /* --root, as given */
    stk_engine_opts engine;
    stk_ckpt_opts ckpt; /* but for roots and shared */
    const char *shared; /* --shared, as given; NULL: none */
    bool unique;        /* with ranks: each holds tensors of its own, else all hold the same */
    uint64_t bytes;     /* of all tensors */
    uint64_t tensors;
    uint64_t saves;
    bool equal;         /* tensors of one size, else mixed */
    bool load;          /* measures loading, too */
    bool together;      /* with ranks: each reads a part of it */
    uint64_t load_next; /* 0, or the so many-th rank behind this one, whose tensors it loads, too */
    bool every_iteration; /* a loop with and without a save in each iteration */
    bool spin;            /* compute burns a core instead of sleeping */
    bool quiet;
    uint64_t iterations;
    uint64_t forward_us, backward_us, optimizer_us;
    uint64_t accumulation; /* forward and backward passes of an iteration */
    const char *beside;    /* a data set that a loader reads meanwhile */
    uint64_t beside_batch;
    uint64_t beside_compute_us;
    uint64_t beside_staging_bytes;
    bool beside_buffered;
};

/* One save, or the median of all in each field. */
struct bench_save {
    double seconds; /* from the call to durable */
    double call_seconds;
    double first_tensor_seconds; /* until the first tensor of the stream may be changed */
    double captured_seconds;
    double cpu_seconds;
    double partner_seconds; /* from the call to durable on another node, 0: it is not */
    double shared_seconds;  /* in the shared directory, 0: it is not */
};

/* The loop with times that are known. */
struct bench_loop {
    double plain_seconds;  /* without saves */
    double saving_seconds; /* with one in each iteration */
    double stall_seconds;  /* of an iteration, in save and fence */
    double expected_stall_seconds;
    double overhead_fraction;
    double cpu_seconds; /* of the loop with saves */
};

struct bench_beside {
    bool is_there;
    double seconds;
    double stall_seconds;
    uint64_t samples;
    uint64_t bytes;
};

struct bench_save_result {
    const char *io_method;
    uint64_t stream_bytes;
    struct bench_save saves[BENCH_SAVES_MAX];
    size_t n_saves;
    struct bench_save median;
    double run_seconds;  /* all saves, one after the other */
    double load_seconds; /* 0: not measured */
    double load_next_seconds;
    uint64_t partner_copies; /* of all saves, those of the loop among them */
    uint64_t shared_copies;
    struct bench_loop loop;
    struct bench_beside beside;
};

/* ---- the state that is saved ------------------------------------------------------- */

#define BENCH_NAME_BYTES 32

/* Tensors in memory that were made and touched. Each rank that holds some of its own has other
 * values. */
struct bench_state {
    const struct bench_save_request *request;
    char *memory;
    uint64_t memory_bytes;
    stk_tensor *tensors;
    uint64_t *shapes;
    char (*names)[BENCH_NAME_BYTES];
};

/* Returns CLI_OK or CLI_FAILED, which was said; it is to be freed in either case. */
int
bench_state_make(const char *command, struct bench_state *state,
                 const struct bench_save_request *request);
void
bench_state_free(struct bench_state *state);

/* The name of the idx-th tensor of a rank. */
void
bench_state_name(const struct bench_state *state, uint32_t rank, uint64_t idx,
                 char name[BENCH_NAME_BYTES]);

/* Whether memory has a rank's tensors, one behind the other. */
bool
bench_state_is_same(const struct bench_state *state, uint32_t rank, const char *memory);

/* ---- where it goes ----------------------------------------------------------------- */

struct bench_dirs {
    char *roots[CLI_MAX_TEXTS]; /* ours, in each root */
    size_t n_roots;
    char *list;   /* of them, as stk_ckpt_opts.roots */
    char *shared; /* ours, in the shared directory; NULL: none */
};

/* Names them; they are made when they are used. All ranks do this before they meet. Returns CLI_OK
 * or CLI_FAILED, which was said; they are to be removed in either case. */
int
bench_dirs_make(const char *command, struct bench_dirs *dirs,
                const struct bench_save_request *request);

/* Frees the names, and removes what is there if that is so asked. */
void
bench_dirs_remove(struct bench_dirs *dirs, bool roots_too, bool shared_too);

/* ---- the run ----------------------------------------------------------------------- */

/* Runs it. Returns CLI_OK, or what the program should exit with after an error that was
 * said. */
int
bench_save_run(const char *command, const struct bench_save_request *request,
               struct bench_save_result *result);

/* Prints the result on stdout, for a program or a person. Returns CLI_OK or
 * CLI_FAILED. */
int
bench_save_report(const char *command, const struct bench_save_request *request,
                  const struct bench_save_result *result, bool json);

/* stoker bench save. */
int
cmd_bench_save(int argc, char **argv);

/* ---- a loader that reads meanwhile ------------------------------------------------- */

struct beside;

/* Opens the loader and starts its thread. Returns CLI_OK or CLI_FAILED (said). */
int
beside_start(const char *command, struct beside **ret_beside,
             const struct bench_save_request *request, stk_engine *engine);

/* Waits until the loader has a batch in staging, forgets what it has waited so far. */
void
beside_begin(struct beside *beside);

/* Stops it and says what it did since it began. NULL is allowed. Returns CLI_OK or
 * CLI_FAILED. */
int
beside_stop(struct beside *beside, struct bench_beside *result);

/* Sleeps or burns a core. */
void
bench_compute(uint64_t us, bool spin);
uint64_t
bench_now_ns(void);

#endif
