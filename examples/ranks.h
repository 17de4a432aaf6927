/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks that train together, each on its part of every batch: those of MPI
 * (ranks_mpi.c), or one process alone (ranks_alone.c).
 */
#ifndef EXAMPLES_RANKS_H
#define EXAMPLES_RANKS_H

#include <stoker/comm.h>

#include <stddef.h>
#include <stdint.h>

struct ranks {
    uint32_t rank;
    uint32_t world;
    stk_comm_opts comm; /* for the engine */
    float *all;         /* room for the gradients of all */
    size_t n_all;
};

/* Before anything else. Returns 0 or a negative code. */
int
ranks_begin(struct ranks *ranks, int *argc, char ***argv);

/*
 * The mean of all ranks' values in place of one's own, added up in order of rank on each of
 * them, so that all have the same bits. n: the same in every call. Returns 0 or a negative
 * code.
 */
int
ranks_mean(struct ranks *ranks, float *values, size_t n);

/* When the engine is closed. failed: the others cannot go on either. */
void
ranks_end(struct ranks *ranks, int failed);

#endif
