/* SPDX-License-Identifier: Apache-2.0 */
/* What a launcher tells its processes about each other, from the environment. */
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include <stdbool.h>

#include <stoker/comm.h>

#define RANKS_HOST_SIZE 256

struct cli_ranks {
    bool is_one_of_many; /* else this process is alone, and comm is not to be used */
    stk_comm_opts comm;
    char host[RANKS_HOST_SIZE]; /* what comm.host may point to */
};

/* In this order: RANK and WORLD_SIZE (torchrun), Open MPI's variables, those of a step of
 * Slurm. Rank 0's address is STOKER_ADDR, or what the launcher says; the port STOKER_PORT.
 * STOKER_SECRET is the job's secret. ret_ranks: not to be copied. Returns CLI_OK, or what to
 * exit with after an error that has been said. */
int
cli_ranks_find(const char *command, struct cli_ranks *ret_ranks);

#endif
