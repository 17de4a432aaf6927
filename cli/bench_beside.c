/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loader that reads while checkpoints are written: a training job's other half, on a
 * thread of its own. What counts is how long it waits for batches.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "bench_save.h"

struct beside {
    const char *command;
    const struct bench_save_request *request;
    stk_dataset *dataset;
    stk_loader *loader;
    pthread_t thread;
    atomic_uint_fast64_t batches;
    atomic_int is_stopping;
    int result; /* of next, where it failed */
    uint64_t begun_ns;
    stk_loader_stats before;
};

static void *
read_on(void *context)
{
    struct beside *beside = context;
    stk_batch batch = {0};

    while (!atomic_load(&beside->is_stopping)) {
        int rc = stk_loader_next(beside->loader, &batch);

        if (rc != STK_BATCH) {
            beside->result = rc;
            break;
        }
        bench_compute(beside->request->beside_compute_us, false);
        (void)stk_loader_release(beside->loader, &batch); /* borrowed just above */
        atomic_fetch_add(&beside->batches, 1);
    }
    return NULL;
}

static void
close_all(struct beside *beside)
{
    stk_loader_close(beside->loader);
    stk_dataset_close(beside->dataset);
    free(beside);
}

int
beside_start(const char *command, struct beside **ret_beside,
             const struct bench_save_request *request, stk_engine *engine)
{
    struct beside *beside = calloc(1, sizeof(*beside));
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = (uint32_t)request->beside_batch,
                            .policy = STK_POLICY_NONE,
                            .staging_bytes = request->beside_staging_bytes,
                            .layout = STK_LAYOUT_RAW};
    stk_error err;

    if (!beside)
        return cli_error(command, "no memory");
    beside->command = command;
    beside->request = request;
    int rc = stk_dataset_open(&beside->dataset, engine, request->beside, NULL, &err);
    if (rc == 0)
        rc = stk_loader_open(&beside->loader, engine, beside->dataset, &opts, &err);
    if (rc == 0 && pthread_create(&beside->thread, NULL, read_on, beside) != 0) {
        rc = -1;
        err.message[0] = err.path[0] = '\0';
    }
    if (rc < 0) {
        rc = cli_error(command, "--beside %s: %s", request->beside, err.message);
        close_all(beside);
        return rc;
    }
    *ret_beside = beside;
    return CLI_OK;
}

void
beside_begin(struct beside *beside)
{
    uint64_t seen = atomic_load(&beside->batches);

    /* Some batches, so that staging is as full as it gets. */
    while (atomic_load(&beside->batches) < seen + 8 && beside->result == 0)
        bench_compute(1000, false);
    bench_compute(1000000, false);
    beside->before = (stk_loader_stats){STK_LOADER_STATS_INIT};
    (void)stk_loader_get_stats(beside->loader, UINT64_MAX, &beside->before); /* size is right */
    beside->begun_ns = bench_now_ns();
}

int
beside_stop(struct beside *beside, struct bench_beside *result)
{
    stk_loader_stats after = {STK_LOADER_STATS_INIT};
    int rc = CLI_OK;

    if (!beside)
        return CLI_OK;
    (void)stk_loader_get_stats(beside->loader, UINT64_MAX, &after); /* the size is right */
    *result = (struct bench_beside){.is_there = true,
                                    .seconds = (double)(bench_now_ns() - beside->begun_ns) * 1e-9,
                                    .stall_seconds =
                                        (double)(after.wait_ns - beside->before.wait_ns) * 1e-9,
                                    .samples = after.samples - beside->before.samples,
                                    .bytes = after.bytes - beside->before.bytes};
    atomic_store(&beside->is_stopping, 1);
    (void)pthread_join(beside->thread, NULL); /* started above */
    if (beside->result != 0)
        rc = cli_error(beside->command, "--beside: the loader ended: %s",
                       stk_strerror(beside->result));
    close_all(beside);
    return rc;
}
