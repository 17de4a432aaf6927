/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of ranks that save together share: a state in a grid of 2 x 2, where the pairs
 * (0, 1) and (2, 3) hold a stage each, and what a checkpoint of it must be.
 */
#ifndef TESTS_RANKS_CKPT_UTIL_H
#define TESTS_RANKS_CKPT_UTIL_H

#include "ckpt_util.h"
#include "ranks_util.h"

#define WORLD 4u
#define COMMON 300000u
#define OF_PAIR 70001u
#define OWN 5000u

struct held {
    unsigned char *common; /* by all */
    unsigned char *pair;   /* by this rank and its neighbour */
    unsigned char *own;
    int32_t *rows; /* a shard: rows of one tensor, by rank */
    char names[4][32];
    uint64_t shapes[4][2];
    uint64_t global[2];
    uint64_t start[2];
    uint32_t ranks[2];
    stk_tensor tensors[4];
    stk_holding holdings[4];
    char blob[32];
    stk_blob blobs[1];
};

/* A byte of what is held under a number. */
unsigned char
byte_of(uint64_t step, uint32_t of, uint64_t at);

/* What a rank holds at a step; let go of with let_go(). */
void
hold(struct held *held, uint32_t rank, uint32_t world, uint64_t step);
void
let_go(struct held *held);

/* Borrows from held. */
stk_save
save_of(const struct held *held, uint64_t step);

/* Whether a checkpoint of world ranks is what they held, tensor by tensor and by boxes. */
void
expect_step(stk_view *view, uint64_t step, uint32_t world);

/* A directory, and how checkpointers are opened. */
struct scene {
    char dir[256];
    stk_ckpt_opts opts;
    uint32_t per_node; /* ranks; with opts.node_local each node has a directory in dir */
    int wrong;         /* the test's */
};

struct scene *
scene_of(const struct rank *rank);

/* The directory of a node. */
void
node_dir(const struct scene *scene, uint32_t node, char path[300]);

/* The writers of the parts of a step on a node, as bits; 0x80000000 where a manifest is left. */
uint32_t
writers_on(const struct scene *scene, uint32_t node, uint64_t step);

/* Saves what a rank holds at a step, and waits; the result must be as expected. */
void
save_at(struct rank *rank, stk_ckpt *ckpt, uint64_t step, int expected, stk_error *err);

/* Opens a rank's checkpointer, or fails the test. */
stk_ckpt *
open_ckpt(struct rank *rank);

/* Runs a job whose ranks do work. */
void
run(struct scene *scene, const char *comm, uint32_t world, void (*work)(struct rank *rank));

/* Calls a test for every method, with a directory of its own. */
void
for_each_comm(void (*test)(struct scene *scene, const char *comm));

/* One process without other ranks looks at a step. */
void
look(const struct scene *scene, uint64_t step, uint32_t world);

/* How many checkpoints are there. */
uint32_t
count_steps(const struct scene *scene);

#endif
