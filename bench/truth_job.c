/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training job for truth.py: takes batches, sleeps as an accelerator computes, decodes
 * by a callback that takes a while, writes a checkpoint every so many steps and waits for
 * it before the next step ends. Prints seconds and origin bytes as JSON.
 *
 *     truth_job DATA KEY=VALUE...
 *
 * calls=N times the callback instead. Others: batch, epochs, depth, workers, staging,
 * compute_us, decode_us, ckpt_bytes, every; ckpt=DIRECTORY.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <stoker/checkpoint.h>
#include <stoker/loader.h>

#define RECORD (64 << 10)
#define STAGED 64 /* bytes of a decoded sample */

struct job {
    const char *ckpt_directory;
    uint64_t calls, batch, epochs, depth, workers, staging, compute_us, decode_us, ckpt_bytes,
        every;
    stk_engine *engine;
    stk_dataset *dataset;
    stk_loader *loader;
    stk_ckpt *ckpt;
    void *tensor;
    uint64_t step;
    stk_error err;
};

static double
seconds_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void
sleep_us(uint64_t us)
{
    const struct timespec time = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};

    (void)nanosleep(&time, NULL); /* a shortened sleep is a shorter step */
}

static int
decode(void *context, const stk_decode_args *args)
{
    const struct job *job = context;

    sleep_us(job->decode_us);
    memcpy(args->slot, args->bytes, args->n_bytes < STAGED ? args->n_bytes : STAGED);
    return 0;
}

static int
take_argument(struct job *job, const char *text)
{
    const struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {
        {"calls", &job->calls},           {"batch", &job->batch},
        {"epochs", &job->epochs},         {"depth", &job->depth},
        {"workers", &job->workers},       {"staging", &job->staging},
        {"compute_us", &job->compute_us}, {"decode_us", &job->decode_us},
        {"every", &job->every},           {"ckpt_bytes", &job->ckpt_bytes},
    };
    size_t n_name = strcspn(text, "=");

    if (!strncmp(text, "ckpt=", 5)) {
        job->ckpt_directory = text + 5;
        return 0;
    }
    for (size_t at = 0; text[n_name] && at < sizeof(numbers) / sizeof(numbers[0]); at++)
        if (strlen(numbers[at].name) == n_name && !strncmp(numbers[at].name, text, n_name)) {
            *numbers[at].value = strtoull(text + n_name + 1, NULL, 10);
            return 0;
        }
    return -1;
}

static int
open_job(struct job *job, const char *data)
{
    const stk_engine_opts engine = {STK_ENGINE_OPTS_INIT, .queue_depth = (uint32_t)job->depth,
                                    .workers = (uint32_t)job->workers};
    const stk_dataset_opts dataset = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_RECORD,
                                      .record_bytes = RECORD};
    const stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_TORCH, .seed = 7};
    const stk_loader_opts loader = {STK_LOADER_OPTS_INIT,
                                    .batch_size = (uint32_t)job->batch,
                                    .epochs = job->epochs,
                                    .order = &order,
                                    .drop_last = 1,
                                    .policy = STK_POLICY_NONE,
                                    .staging_bytes = job->staging,
                                    .layout = job->decode_us ? STK_LAYOUT_FIXED : STK_LAYOUT_RAW,
                                    .decode = job->decode_us ? decode : NULL,
                                    .decode_context = job,
                                    .item_bytes = job->decode_us ? STAGED : 0};
    int rc = stk_engine_open(&job->engine, &engine, &job->err);

    if (rc == 0)
        rc = stk_dataset_open(&job->dataset, job->engine, data, &dataset, &job->err);
    if (rc == 0)
        rc = stk_loader_open(&job->loader, job->engine, job->dataset, &loader, &job->err);
    if (rc == 0 && job->ckpt_directory) {
        job->tensor = calloc(1, job->ckpt_bytes);
        rc = job->tensor
                 ? stk_ckpt_open(&job->ckpt, job->engine, job->ckpt_directory, NULL, &job->err)
                 : -1;
    }
    return rc;
}

static int
save(struct job *job)
{
    const stk_tensor tensor = {.name = "weights",
                               .dtype = "U8",
                               .shape = &job->ckpt_bytes,
                               .data = job->tensor,
                               .dims = 1,
                               .flags = STK_TENSOR_STABLE};
    const stk_save save = {STK_SAVE_INIT, .step = job->step, .tensors = &tensor, .n_tensors = 1};

    return stk_ckpt_save(job->ckpt, &save, &job->err);
}

/* Times the callback by itself. */
static int
time_decoding(const struct job *job)
{
    static uint8_t record[RECORD];
    uint8_t slot[STAGED];
    const stk_decode_args args = {.bytes = record, .n_bytes = RECORD, .slot = slot};
    double begin_s = seconds_now();

    for (uint64_t call = 0; call < job->calls; call++)
        (void)decode((void *)(uintptr_t)job, &args); /* always 0 */
    (void)printf("{\"decode_seconds\": %.9f}\n", (seconds_now() - begin_s) / (double)job->calls);
    return 0;
}

static int
run(struct job *job)
{
    stk_batch batch = {0};
    int rc;

    while ((rc = stk_loader_next(job->loader, &batch)) == STK_BATCH) {
        sleep_us(job->compute_us);
        if (job->ckpt)
            rc = stk_ckpt_wait(job->ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &job->err);
        (void)stk_loader_release(job->loader, &batch); /* taken just above */
        if (rc >= 0 && job->ckpt && ++job->step % job->every == 0)
            rc = save(job);
        if (rc < 0)
            return rc;
    }
    return rc;
}

int
main(int argc, char **argv)
{
    struct job job = {.batch = 32,
                      .epochs = 1,
                      .depth = 8,
                      .workers = 2,
                      .every = 1,
                      .staging = UINT64_C(8) << 20};
    stk_loader_stats stats = {STK_LOADER_STATS_INIT};
    int rc = argc >= 2 ? 0 : -1;

    for (int at = 2; rc == 0 && at < argc; at++)
        rc = take_argument(&job, argv[at]);
    if (rc < 0) {
        (void)fputs("usage: truth_job DATA KEY=VALUE...\n", stderr);
        return 2;
    }
    if (job.calls > 0)
        return time_decoding(&job);
    rc = open_job(&job, argv[1]);
    double begin_s = seconds_now();
    if (rc == 0)
        rc = run(&job);
    double seconds = seconds_now() - begin_s;
    if (rc < 0)
        (void)fprintf(stderr, "truth_job: %s\n", job.err.message);
    else if (stk_loader_get_stats(job.loader, UINT64_MAX, &stats) == 0)
        (void)printf("{\"seconds\": %.6f, \"origin_bytes\": %" PRIu64 "}\n", seconds,
                     stats.origin_bytes);
    stk_ckpt_close(job.ckpt);
    stk_loader_close(job.loader);
    stk_dataset_close(job.dataset);
    stk_engine_close(job.engine);
    free(job.tensor);
    return rc < 0;
}
