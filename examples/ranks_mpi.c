/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks.h"

#include <stoker/mpi.h>

#include <stdlib.h>

static MPI_Comm everybody;

int
ranks_begin(struct ranks *ranks, int *argc, char ***argv)
{
    *ranks = (struct ranks){.world = 1};
    if (MPI_Init(argc, argv) != MPI_SUCCESS)
        return -EIO;
    everybody = MPI_COMM_WORLD;
    const int rc = stk_mpi_comm_opts(&ranks->comm, &everybody);
    if (rc < 0)
        return rc;
    ranks->rank = ranks->comm.rank;
    ranks->world = ranks->comm.world;
    return 0;
}

int
ranks_mean(struct ranks *ranks, float *values, size_t n)
{
    if (ranks->n_all < n * ranks->world) {
        float *all = realloc(ranks->all, n * ranks->world * sizeof(*all));

        if (!all)
            return -ENOMEM;
        ranks->all = all;
        ranks->n_all = n * ranks->world;
    }
    if (n > INT_MAX || MPI_Allgather(values, (int)n, MPI_FLOAT, ranks->all, (int)n, MPI_FLOAT,
                                     everybody) != MPI_SUCCESS)
        return -EIO;
    for (size_t k = 0; k < n; k++) {
        float sum = 0;

        for (uint32_t rank = 0; rank < ranks->world; rank++)
            sum += ranks->all[rank * n + k];
        values[k] = sum / (float)ranks->world;
    }
    return 0;
}

void
ranks_end(struct ranks *ranks, int failed)
{
    free(ranks->all);
    if (failed)
        (void)MPI_Abort(everybody, 1); /* does not return */
    (void)MPI_Finalize();              /* nothing is left to be lost */
}
