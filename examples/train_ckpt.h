/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checkpoints of train_fashion: weights, momentum and the loader's position, saved
 * after every step and found again by the next run.
 */
#ifndef EXAMPLES_TRAIN_CKPT_H
#define EXAMPLES_TRAIN_CKPT_H

#include <stdint.h>

#include <stoker/stoker.h>

#include "mlp.h"

struct train_ckpt {
    stk_ckpt *ckpt; /* NULL: nothing is saved */
    stk_tensor tensors[MLP_ARRAYS];
    uint64_t shapes[MLP_ARRAYS][2];
    uint64_t step;       /* steps trained; of the newest checkpoint after open */
    uint64_t first_step; /* 0, or where an earlier run was resumed */
    uint64_t state_bytes;
    unsigned char state[STK_LOADER_STATE_SIZE]; /* the loader's, of that checkpoint */
    uint64_t durable;                           /* checkpoints of this run */
    uint64_t bytes;                             /* of one of them */
    double durable_seconds;                     /* from the save to durable, all of them together */
    double wait_seconds;                        /* that training spent in the calls below */
};

/*
 * Opens a directory of checkpoints and, if it has one, loads the newest into net. Returns
 * 0 or what failed, which has then been said.
 */
int
train_ckpt_open(struct train_ckpt *saved, stk_engine *engine, const char *directory,
                struct mlp *net);

/* Before the weights are changed: waits until the last save has taken them. */
int
train_ckpt_fence(struct train_ckpt *saved);

/* After they were changed: begins to save them, and where loader stands. */
int
train_ckpt_save(struct train_ckpt *saved, stk_loader *loader);

/* Waits until the last save is durable and prints what the checkpoints cost. seconds: the
 * whole training. */
int
train_ckpt_finish(struct train_ckpt *saved, double seconds);

/* All zero is allowed. */
void
train_ckpt_close(struct train_ckpt *saved);

#endif
