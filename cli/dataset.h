/* SPDX-License-Identifier: Apache-2.0 */
/* The data set of a command line: one, or a view of what several words and options
 * name. */
#ifndef CLI_DATASET_H
#define CLI_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stoker/engine.h>

#define CLI_MAX_DATASETS 16

struct cli_dataset_request {
    const char *paths[CLI_MAX_DATASETS]; /* the first of n_paths also names the whole */
    size_t n_paths;
    const char *subset;  /* "FIRST:END" of what the paths are together, or NULL */
    const char *weights; /* "W,W,...", one for each path: a mix; or NULL */
    stk_dataset_opts opts;
};

/* Open data sets: the one to read, and what it is made of. All zero: none. */
struct cli_dataset {
    stk_dataset *dataset;
    stk_dataset *joined;
    stk_dataset *parts[CLI_MAX_DATASETS];
    size_t n_parts;
};

/* Opens what is asked for; to be given to cli_dataset_close() in any case. Returns a code
 * of the library; err says what is wrong. */
int
cli_dataset_open(struct cli_dataset *open, stk_engine *engine,
                 const struct cli_dataset_request *request, stk_error *err);

void
cli_dataset_close(struct cli_dataset *open);

#endif
