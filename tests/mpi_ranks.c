/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that MPI has started, as a program would use stoker/mpi.h:  mpirun -n 4 mpi_ranks
 *
 * All bytes of all samples are right, the origin gives each byte once, and a second engine
 * over part of the ranks works beside the first.
 */
#include <stoker/mpi.h>
#include <stoker/stoker.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RECORDS 2000u
#define RECORD_BYTES 1000u
#define EPOCHS 3u
#define BATCH 20u

#define CHECK(expression)                                                                      \
    do {                                                                                       \
        if (!(expression)) {                                                                   \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, my_rank, #expression); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                      \
        }                                                                                      \
    } while (0)

static int my_rank;
static char path[128];

static unsigned char
byte_at(uint64_t record, uint32_t at)
{
    return (unsigned char)(record * 7 + at + (record >> 8));
}

static void
write_records(void)
{
    int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;

    CHECK(file);
    for (uint64_t record = 0; record < RECORDS; record++)
        for (uint32_t at = 0; at < RECORD_BYTES; at++)
            CHECK(putc(byte_at(record, at), file) != EOF);
    CHECK(fclose(file) == 0);
}

static void
check_batch(const stk_batch *batch)
{
    for (uint32_t k = 0; k < batch->count; k++) {
        const unsigned char *bytes = batch->items[k];

        CHECK(batch->n_bytes[k] == RECORD_BYTES);
        for (uint32_t at = 0; at < RECORD_BYTES; at++)
            CHECK(bytes[at] == byte_at(batch->samples[k], at));
    }
}

/* Reads all epochs with the ranks of a communicator; their memory holds the data set. */
static void
run(MPI_Comm ranks)
{
    stk_comm_opts comm;
    stk_engine *engine;
    stk_dataset *data;
    stk_loader *loader;
    stk_loader_stats stats = {STK_LOADER_STATS_INIT};
    stk_batch batch;
    stk_error err;
    uint64_t mine[2], all[2];
    int rc, world;

    CHECK(stk_mpi_comm_opts(&comm, &ranks) == 0);
    CHECK(MPI_Comm_size(ranks, &world) == MPI_SUCCESS && comm.world == (uint32_t)world);
    rc = stk_engine_open(
        &engine, &(stk_engine_opts){STK_ENGINE_OPTS_INIT, .tiers = "ram:4M", .comm = &comm}, &err);
    if (rc < 0)
        fprintf(stderr, "%s\n", err.message);
    CHECK(rc == 0);
    CHECK(stk_dataset_open(&data, engine, path,
                           &(stk_dataset_opts){STK_DATASET_OPTS_INIT, .format = STK_FORMAT_RECORD,
                                               .record_bytes = RECORD_BYTES},
                           &err) == 0);
    stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 3, .world = comm.world, .rank = comm.rank};
    CHECK(stk_loader_open(&loader, engine, data,
                          &(stk_loader_opts){STK_LOADER_OPTS_INIT, .batch_size = BATCH,
                                             .epochs = EPOCHS, .layout = STK_LAYOUT_RAW,
                                             .order = &order},
                          &err) == 0);
    while ((rc = stk_loader_next(loader, &batch)) == STK_BATCH) {
        check_batch(&batch);
        CHECK(stk_loader_release(loader, &batch) == 0);
    }
    CHECK(rc == STK_END);
    CHECK(stk_loader_leave(loader) == 0);
    CHECK(stk_loader_get_stats(loader, UINT64_MAX, &stats) == 0);
    mine[0] = stats.origin_bytes;
    mine[1] = stats.tier_samples[STK_TIER_PEER];
    CHECK(MPI_Allreduce(mine, all, 2, MPI_UINT64_T, MPI_SUM, ranks) == MPI_SUCCESS);
    CHECK(all[0] == (uint64_t)RECORDS * RECORD_BYTES);
    CHECK(all[1] > 0);
    stk_loader_close(loader);
    stk_dataset_close(data);
    stk_engine_close(engine);
}

int
main(int argc, char **argv)
{
    MPI_Comm everybody = MPI_COMM_WORLD, half;
    char small = 0;

    CHECK(MPI_Init(&argc, &argv) == MPI_SUCCESS);
    CHECK(MPI_Comm_rank(everybody, &my_rank) == MPI_SUCCESS);
    CHECK(stk_mpi_exchange(&everybody, &small, (size_t)INT_MAX + 1, &small) == -EOVERFLOW);
    (void)snprintf(path, sizeof(path), "/tmp/stoker-mpi-XXXXXX");
    if (my_rank == 0)
        write_records();
    CHECK(MPI_Bcast(path, (int)sizeof(path), MPI_CHAR, 0, everybody) == MPI_SUCCESS);
    run(everybody);
    CHECK(MPI_Comm_split(everybody, my_rank / 2, my_rank, &half) == MPI_SUCCESS);
    run(half);
    CHECK(MPI_Comm_free(&half) == MPI_SUCCESS);
    CHECK(MPI_Barrier(everybody) == MPI_SUCCESS);
    if (my_rank == 0)
        CHECK(unlink(path) == 0);
    CHECK(MPI_Finalize() == MPI_SUCCESS);
    return 0;
}
