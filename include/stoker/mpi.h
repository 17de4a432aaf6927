/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For programs that use MPI already: the ranks of a communicator become those of an
 * engine. Needs the program's own <mpi.h>, of MPI 3 or newer; the library itself knows no
 * MPI, and <stoker/stoker.h> does not ask for it.
 *
 *     MPI_Comm ranks = MPI_COMM_WORLD;
 *     stk_comm_opts comm;
 *
 *     stk_mpi_comm_opts(&comm, &ranks);
 *     stk_engine_open(&engine, &(stk_engine_opts){STK_ENGINE_OPTS_INIT, .comm = &comm}, &err);
 *
 * All ranks of the communicator open their engines, after MPI_Init(), on a thread that may
 * call MPI. MPI carries the ranks' addresses then and is not called again.
 */
#ifndef STOKER_MPI_H
#define STOKER_MPI_H

#include <errno.h>
#include <limits.h>
#include <string.h>

#include <mpi.h>

#include <stoker/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An stk_exchange_fn; context: an MPI_Comm *. Errors: -EOVERFLOW n_bytes is more than MPI counts,
 * -EIO MPI says so, where its error handler returns. */
static inline int
stk_mpi_exchange(void *context, const void *mine, size_t n_bytes, void *all)
{
    MPI_Comm *comm = (MPI_Comm *)context;

    if (n_bytes > INT_MAX)
        return -EOVERFLOW;
    int rc = MPI_Allgather(mine, (int)n_bytes, MPI_BYTE, all, (int)n_bytes, MPI_BYTE, *comm);
    return rc == MPI_SUCCESS ? 0 : -EIO;
}

/*
 * Fills options with the defaults and the ranks of a communicator, which is borrowed until
 * the engine is open. Errors: -EIO of MPI, where its error handler returns.
 */
static inline int
stk_mpi_comm_opts(stk_comm_opts *ret_opts, MPI_Comm *comm)
{
    int rank, world;

    if (MPI_Comm_rank(*comm, &rank) != MPI_SUCCESS || MPI_Comm_size(*comm, &world) != MPI_SUCCESS)
        return -EIO;
    memset(ret_opts, 0, sizeof(*ret_opts));
    ret_opts->size = sizeof(*ret_opts);
    ret_opts->rank = (uint32_t)rank;
    ret_opts->world = (uint32_t)world;
    ret_opts->exchange = stk_mpi_exchange;
    ret_opts->exchange_context = comm;
    return 0;
}

#ifdef __cplusplus
}
#endif

#endif
