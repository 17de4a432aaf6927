/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of train_fashion. */
#ifndef EXAMPLES_TRAIN_OPTIONS_H
#define EXAMPLES_TRAIN_OPTIONS_H

#include <stdint.h>

#define TRAIN_EPOCHS_MAX 60 /* the library keeps the statistics of 64 epochs */

/* Strings are borrowed from the command line; NULL and 0 are the library's defaults. */
struct train_options {
    const char *data;
    const char *tiers;
    const char *shape;
    const char *ssd_shape;
    const char *io_method;
    const char *json;
    const char *checkpoints;
    uint32_t policy;
    uint32_t epochs;
    uint32_t batch;
    uint32_t staging_batches;
    uint32_t seed;
};

/* Reads the command line. Returns 0, or -EINVAL when it has said what is wrong. */
int
train_options_parse(struct train_options *o, int argc, char **argv);

#endif
