/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch directories, states of random tensors, and what a checkpoint of one must be. */
#ifndef TESTS_CKPT_UTIL_H
#define TESTS_CKPT_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stoker/stoker.h>

#define MAX_STATE 64

/* A state that can be saved. */
struct state {
    uint32_t n;
    stk_tensor tensors[MAX_STATE];
    uint64_t shapes[MAX_STATE][3];
    char names[MAX_STATE][64];
    char *data[MAX_STATE];
};

/* A new directory under STOKER_TEST_DIR or /tmp. */
void
scratch_make(char path[256]);

/* Removes a directory and all below it. */
void
scratch_remove(const char *path);

/* Random tensors: all dtypes in turn, empty ones and 0-d ones among them, about
 * n_bytes. */
void
state_make(struct state *state, uint32_t n, uint64_t n_bytes, uint64_t seed, uint32_t flags);
void
state_free(struct state *state);

/* Changes every byte, as an optimizer would. */
void
state_step(struct state *state, uint64_t seed);

/* Whether the checkpoint of a view is this state, byte for byte. */
bool
state_is(stk_view *view, const struct state *state);

/* The methods to be tested, NULL-terminated, by STOKER_TEST_METHODS ("uring sync" where
 * there is a ring, else "sync"). */
const char *const *
test_methods(void);

/* Descriptors that the process has open. */
uint32_t
open_descriptors(void);

#endif
