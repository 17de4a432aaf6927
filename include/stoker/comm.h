/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the ranks of a job reach each other. An engine that is given stk_comm_opts joins
 * the other ranks' engines when it is opened; its loaders then serve each other's
 * samples (docs/design/peers.md), and the origin gives each byte once.
 *
 * Nothing here is read from the environment: a launcher's variables are the program's to
 * read.
 */
#ifndef STOKER_COMM_H
#define STOKER_COMM_H

#include <stoker/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where ranks meet that are threads of one process. */
typedef struct stk_comm_hub stk_comm_hub;

/* Errors: -EINVAL, -ENOMEM. ret_hub: returns owned. */
STK_API int
stk_comm_hub_new(stk_comm_hub **ret_hub, uint32_t world, stk_error *err);

/* Every engine that has used it must have been closed. NULL is allowed. */
STK_API void
stk_comm_hub_free(stk_comm_hub *hub);

/*
 * Gives every rank the same n_bytes of each rank: all has room for world of them, in
 * order of rank. Called once, on the thread that opens the engine; may block. Returns 0
 * or a negative code.
 */
typedef int (*stk_exchange_fn)(void *context, const void *mine, size_t n_bytes, void *all);

/*
 * rank, world       this rank, 0 .. world - 1, and how many there are, 1 .. 65536. Required.
 * host, port        where rank 0 waits for the others: an address, and a port that is Stoker's
 *                   own, 1 .. 65535. Not needed with exchange or hub.
 * exchange          how ranks get each other's addresses instead (MPI, a store).
 * secret            known to the ranks of the job alone, up to 256 bytes; NULL: none, and then
 *                   only ranks from the addresses of hosts are let in.
 * hosts             n_hosts addresses of the job's machines; NULL: rank 0's own.
 * method            "ucx", "local"; NULL: ucx, with a hub local.
 * hub               method local: where its ranks meet.
 * node              names this rank's machine; NULL: is found out.
 * transports        ucx: a list as UCX has it ("tcp", "shm,tcp"); NULL: what the machine has.
 * start_timeout_ms  all ranks are there within; 0: 60,000. Also for opening a loader.
 * timeout_ms        a peer that does not answer in so long is given up for a while, and the
 *                   origin serves; 0: 10,000.
 * close_timeout_ms  so long a loader that is closed serves the others' at most; 0: 60,000.
 * tiers_per_rank    0: the engine's tiers are those of this rank's machine, which all its ranks
 *                   name alike; each has an equal part of their capacities (stk_engine_stats)
 *                   and, in an SSD directory, a cache of its own, beside which it reads the
 *                   others'; 32 ranks at most. 1: they are this rank's alone, however many share
 *                   the machine.
 */
typedef struct stk_comm_opts {
    size_t size;
    uint32_t rank;
    uint32_t world;
    const char *host;
    uint32_t port;
    uint32_t n_hosts;
    const char *const *hosts;
    const char *secret;
    stk_exchange_fn exchange;
    void *exchange_context;
    const char *method;
    stk_comm_hub *hub;
    const char *node;
    const char *transports;
    uint32_t start_timeout_ms;
    uint32_t timeout_ms;
    uint32_t close_timeout_ms;
    uint32_t tiers_per_rank;
} stk_comm_opts;

#define STK_COMM_OPTS_INIT .size = sizeof(stk_comm_opts)

#ifdef __cplusplus
}
#endif

#endif
