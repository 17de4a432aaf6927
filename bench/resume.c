/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What resuming in the middle of an epoch takes beyond the permutation of that epoch: a job
 * over N records is stopped and opened again from its state, up to its first batch, in turns
 * with the permutation alone.
 *
 *     resume [N [ROUNDS]]        default: 15,000,000 and 5; a sparse file in TMPDIR or /var/tmp
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stoker/stoker.h>

#include "clocks.h"

#define RECORD 16
#define BATCH 256
#define ROUNDS_MAX 33

static const stk_order_opts order_opts = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_TORCH, .seed = 7};

struct job {
    stk_engine *engine;
    stk_dataset *dataset;
    stk_loader *loader;
    stk_error err;
};

static int
open_job(struct job *job, const char *path, const void *state, size_t n_state)
{
    const stk_engine_opts engine = {STK_ENGINE_OPTS_INIT};
    const stk_dataset_opts dataset = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_RECORD,
                                      .record_bytes = RECORD};
    const stk_loader_opts loader = {
        STK_LOADER_OPTS_INIT,    .batch_size = BATCH, .epochs = 3,
        .order = &order_opts,    .state = state,      .state_bytes = n_state,
        .layout = STK_LAYOUT_RAW};
    int rc = stk_engine_open(&job->engine, &engine, &job->err);

    if (rc == 0)
        rc = stk_dataset_open(&job->dataset, job->engine, path, &dataset, &job->err);
    if (rc == 0)
        rc = stk_loader_open(&job->loader, job->engine, job->dataset, &loader, &job->err);
    return rc;
}

static int
read_batch(struct job *job, uint64_t *ret_sample)
{
    stk_batch batch;
    int rc = stk_loader_next(job->loader, &batch);

    if (rc != STK_BATCH) {
        (void)stk_loader_last_error(job->loader, &job->err);
        return -1;
    }
    *ret_sample = batch.samples[0];
    return stk_loader_release(job->loader, &batch);
}

static void
close_job(struct job *job)
{
    stk_loader_close(job->loader);
    stk_dataset_close(job->dataset);
    stk_engine_close(job->engine);
    memset(job, 0, sizeof(*job));
}

/* Stops in the middle of the second epoch. */
static int
stop_midway(const char *path, uint64_t n, void *state, size_t *n_state)
{
    struct job job = {0};
    uint64_t sample;
    int rc = open_job(&job, path, NULL, 0);

    if (rc == 0)
        rc = stk_loader_seek(job.loader, 1, n / BATCH / 2);
    if (rc == 0)
        rc = read_batch(&job, &sample);
    if (rc == 0)
        rc = stk_loader_save_state(job.loader, state, n_state);
    if (rc < 0)
        (void)fprintf(stderr, "resume: %s\n", job.err.message);
    close_job(&job);
    return rc;
}

struct stopped {
    const char *path;
    const stk_order *order;
    uint64_t n;
    uint64_t *ids; /* room for n */
    char state[STK_LOADER_STATE_SIZE];
    size_t n_state;
};

static int
round_of(struct stopped *stopped, double *ret_order_s, double *ret_resume_s)
{
    struct job job = {0};
    uint64_t sample = 0;
    double begin_s = now_seconds();
    int rc = stk_order_ids(stopped->order, 1, 0, stopped->n, stopped->ids);

    *ret_order_s = now_seconds() - begin_s;
    begin_s = now_seconds();
    if (rc == 0)
        rc = open_job(&job, stopped->path, stopped->state, stopped->n_state);
    if (rc == 0)
        rc = read_batch(&job, &sample);
    *ret_resume_s = now_seconds() - begin_s;
    if (rc < 0)
        (void)fprintf(stderr, "resume: %s\n", job.err.message);
    if (rc == 0 && sample != stopped->ids[(stopped->n / BATCH / 2 + 1) * BATCH]) {
        (void)fprintf(stderr, "resume: sample %" PRIu64 " is not the next one\n", sample);
        rc = -1;
    }
    close_job(&job);
    return rc;
}

static int
compare(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;

    return difference < 0 ? -1 : difference > 0;
}

static int
measure(const char *path, uint64_t n, uint32_t rounds)
{
    double order_s[ROUNDS_MAX], resume_s[ROUNDS_MAX], more_s[ROUNDS_MAX];
    struct stopped stopped = {.path = path, .n = n, .n_state = sizeof(stopped.state)};
    stk_order_opts opts = order_opts;
    stk_order *order = NULL;

    stopped.ids = malloc(n * sizeof(*stopped.ids));
    int rc = stopped.ids ? 0 : -1;

    opts.n = n;
    if (rc == 0)
        rc = stk_order_new(&order, &opts, NULL);
    if (rc == 0)
        rc = stop_midway(path, n, stopped.state, &stopped.n_state);
    stopped.order = order;
    for (uint32_t at = 0; rc == 0 && at < rounds; at++) {
        rc = round_of(&stopped, &order_s[at], &resume_s[at]);
        more_s[at] = resume_s[at] - order_s[at];
    }
    stk_order_free(order);
    free(stopped.ids);
    if (rc < 0)
        return rc;
    qsort(order_s, rounds, sizeof(*order_s), compare);
    qsort(resume_s, rounds, sizeof(*resume_s), compare);
    qsort(more_s, rounds, sizeof(*more_s), compare);
    (void)printf("permutation %.1f ms, resumed %.1f ms after opening, more: %.1f (%.1f .. %.1f) "
                 "ms; medians of %" PRIu32 "\n",
                 1e3 * order_s[rounds / 2], 1e3 * resume_s[rounds / 2], 1e3 * more_s[rounds / 2],
                 1e3 * more_s[0], 1e3 * more_s[rounds - 1], rounds);
    return 0;
}

int
main(int argc, char **argv)
{
    uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 15000000;
    uint32_t rounds = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 5;
    const char *folder = getenv("TMPDIR");
    char path[1024];

    if (n < 4 * BATCH || rounds < 1 || rounds > ROUNDS_MAX) {
        (void)fputs("usage: resume [N [ROUNDS]]\n", stderr);
        return 2;
    }
    (void)snprintf(path, sizeof(path), "%s/stoker-resume-XXXXXX", folder ? folder : "/var/tmp");
    int fd = mkstemp(path);
    if (fd < 0 || ftruncate(fd, (off_t)(n * RECORD)) < 0) {
        perror(path);
        return 1;
    }
    int rc = measure(path, n, rounds);
    (void)unlink(path);
    (void)close(fd);
    return rc < 0;
}
