/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank as a process that comes and goes many times: engine, data set and loader are opened,
 * an epoch is read and all is closed again, with the other ranks' processes doing the same. Says
 * how many descriptors, threads and bytes it holds more at the end than after the first tenth.
 *
 *   rank_cycles RANK WORLD HOST PORT FOLDER CYCLES
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <stoker/stoker.h>

#define PORTS 8u /* a rank's next start does not find what its last one has left of a port */

static uint32_t rank, world;
static const char *host, *folder;
static unsigned first_port;

static int64_t
entries(const char *path)
{
    DIR *listed = opendir(path);
    int64_t n = 0;

    if (!listed)
        return -1;
    while (readdir(listed))
        n++;
    (void)closedir(listed); /* it was only read */
    return n;
}

/* The kernel's own threads of a ring that was closed go a little later. */
static int64_t
settled_threads(void)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    int64_t least = entries("/proc/self/task");

    for (int at = 0; at < 50; at++) {
        int64_t n = entries("/proc/self/task");

        least = n < least ? n : least;
        (void)nanosleep(&pause, NULL); /* it may be short */
    }
    return least;
}

/* Resident bytes, and those of mappings. */
static void
memory(int64_t *ret_resident, int64_t *ret_mapped)
{
    unsigned long whole = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (!file || fscanf(file, "%lu %lu", &whole, &resident) != 2)
        whole = resident = 0;
    if (file)
        (void)fclose(file); /* it was only read */
    *ret_resident = (int64_t)resident * sysconf(_SC_PAGESIZE);
    *ret_mapped = (int64_t)whole * sysconf(_SC_PAGESIZE);
}

static int
read_epoch(stk_loader *loader, stk_error *err)
{
    stk_batch batch;
    int rc;

    while ((rc = stk_loader_next(loader, &batch)) == STK_BATCH)
        (void)stk_loader_release(loader, &batch); /* it is ours to give back */
    if (rc == STK_END)
        return stk_loader_leave(loader);
    (void)stk_loader_last_error(loader, err); /* the code says enough without */
    return rc;
}

static int
cycle(uint64_t at, stk_error *err)
{
    const stk_comm_opts comm = {STK_COMM_OPTS_INIT,
                                .rank = rank,
                                .world = world,
                                .host = host,
                                .port = first_port + (uint32_t)(at % PORTS),
                                .secret = "of the cycles",
                                .start_timeout_ms = 30000};
    const stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT, .tiers = "ram:16M", .workers = 1,
                                         .io_threads = 2, .comm = &comm};
    const stk_dataset_opts dataset_opts = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_FOLDER};
    const stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 3, .world = world, .rank = rank};
    const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .order = &order, .batch_size = 4,
                                  .epochs = 2, .layout = STK_LAYOUT_RAW};
    stk_engine *engine = NULL;
    stk_dataset *dataset = NULL;
    stk_loader *loader = NULL;
    int rc = stk_engine_open(&engine, &engine_opts, err);

    if (rc == 0)
        rc = stk_dataset_open(&dataset, engine, folder, &dataset_opts, err);
    if (rc == 0)
        rc = stk_loader_open(&loader, engine, dataset, &opts, err);
    if (rc == 0)
        rc = read_epoch(loader, err);
    stk_loader_close(loader);
    stk_dataset_close(dataset);
    stk_engine_close(engine);
    return rc;
}

static uint64_t
number(const char *text)
{
    return strtoull(text, NULL, 10);
}

int
main(int argc, char **argv)
{
    int64_t files = 0, threads = 0, heap = 0, resident = 0, mapped = 0, resident_now, mapped_now;
    stk_error err = {0};

    if (argc != 7)
        return 2;
    rank = (uint32_t)number(argv[1]);
    world = (uint32_t)number(argv[2]);
    host = argv[3];
    first_port = (unsigned)number(argv[4]);
    folder = argv[5];
    const uint64_t n = number(argv[6]);
    for (uint64_t at = 0; at < n; at++) {
        int rc = cycle(at, &err);

        if (rc < 0) {
            printf("cycle %" PRIu64 ": %d %s\n", at, rc, err.message);
            return 1;
        }
        if (at == n / 10) {
            struct mallinfo2 info = mallinfo2();

            files = entries("/proc/self/fd");
            threads = settled_threads();
            heap = (int64_t)(info.uordblks + info.hblkhd);
            memory(&resident, &mapped);
        }
    }
    struct mallinfo2 info = mallinfo2();
    memory(&resident_now, &mapped_now);
    printf("{\"cycles\": %" PRIu64 ", \"files\": %" PRId64 ", \"threads\": %" PRId64
           ", \"heap\": %" PRId64 ", \"resident\": %" PRId64 ", \"mapped\": %" PRId64 "}\n",
           n, entries("/proc/self/fd") - files, settled_threads() - threads,
           (int64_t)(info.uordblks + info.hblkhd) - heap, resident_now - resident,
           mapped_now - mapped);
    return 0;
}
