/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measured checkpoints. The tensors are made and touched before anything is timed; a
 * save's time runs from the call to durable, so every sync is in it. In the loop the
 * compute is of known length, so what it takes longer with saves is their cost. What was
 * written is removed at the end. One thread, and one for the loader that may read
 * meanwhile.
 */
#include "bench_save.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "args.h"

#define NS_PER_S UINT64_C(1000000000)
#define DIR_NAME "stoker-bench-save"
#define ALIGN_BYTES 64u
#define PATH_BYTES 1100 /* a root is at most 1000 */

struct bench {
    const char *command;
    const struct bench_save_request *request;
    struct bench_save_result *result;
    stk_engine *engine;
    stk_ckpt *ckpt;
    char *memory; /* of all tensors */
    uint64_t memory_bytes;
    stk_tensor *tensors;
    uint64_t *shapes;
    char (*names)[32];
    char *dirs[CLI_MAX_TEXTS]; /* ours, in each root */
    char *roots;
    uint64_t step;
};

uint64_t
bench_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

void
bench_compute(uint64_t us, bool spin)
{
    const uint64_t due_ns = bench_now_ns() + us * 1000;
    const struct timespec due = {.tv_sec = (time_t)(due_ns / NS_PER_S),
                                 .tv_nsec = (long)(due_ns % NS_PER_S)};

    if (!us)
        return;
    if (!spin)
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL))
            ;
    else
        while (bench_now_ns() < due_ns)
            ;
}

static double
cpu_now(void)
{
    struct rusage use;

    (void)getrusage(RUSAGE_SELF, &use); /* cannot fail for this process */
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

static double
seconds_since(uint64_t begun_ns)
{
    return (double)(bench_now_ns() - begun_ns) * 1e-9;
}

static int
fail(const struct bench *bench, const char *what, int rc, const stk_error *err)
{
    return cli_refused(bench->command, what, rc, err);
}

/* ---- other ranks ------------------------------------------------------------------- */

static uint32_t
rank_of(const struct bench *bench)
{
    return bench->request->engine.comm ? bench->request->engine.comm->rank : 0;
}

/* ---- the state --------------------------------------------------------------------- */

/* The weight of a tensor: mixed sizes are as in a network, a few large ones and many
 * small. */
static uint64_t
weight(const struct bench_save_request *request, uint64_t idx)
{
    static const uint64_t mixed[] = {4096, 1, 1024, 3, 1024, 64, 4096, 1, 2048, 17, 512, 5};

    return request->equal ? 1 : mixed[idx % (sizeof(mixed) / sizeof(mixed[0]))];
}

static int
make_memory(struct bench *bench)
{
    const struct bench_save_request *request = bench->request;

    bench->memory_bytes = request->bytes + request->tensors * (ALIGN_BYTES + 8);
    bench->memory =
        mmap(NULL, bench->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bench->tensors = calloc(request->tensors, sizeof(*bench->tensors));
    bench->shapes = calloc(request->tensors, sizeof(*bench->shapes));
    bench->names = calloc(request->tensors, sizeof(*bench->names));
    if (bench->memory == MAP_FAILED || !bench->tensors || !bench->shapes || !bench->names) {
        bench->memory = bench->memory == MAP_FAILED ? NULL : bench->memory;
        return cli_error(bench->command, "no memory for %" PRIu64 " bytes of tensors",
                         request->bytes);
    }
    (void)madvise(bench->memory, bench->memory_bytes, MADV_HUGEPAGE); /* advice: fine without */
    for (uint64_t at = 0; at < bench->memory_bytes; at += 8) {
        uint64_t word = at * UINT64_C(0x9e3779b97f4a7c15);

        memcpy(bench->memory + at, &word,
               bench->memory_bytes - at < 8 ? bench->memory_bytes - at : 8);
    }
    return CLI_OK;
}

static int
make_state(struct bench *bench)
{
    const struct bench_save_request *request = bench->request;
    uint64_t sum = 0;
    uint64_t left = request->bytes / 4;
    char *at;
    int rc = make_memory(bench);

    if (rc != CLI_OK)
        return rc;
    at = bench->memory;
    for (uint64_t idx = 0; idx < request->tensors; idx++)
        sum += weight(request, idx);
    for (uint64_t idx = 0; idx < request->tensors; idx++) {
        const double part = (double)weight(request, idx) / (double)sum;
        uint64_t n = (uint64_t)(part * (double)request->bytes / 4);

        n = idx + 1 == request->tensors || n > left ? left : n;
        left -= n;
        bench->shapes[idx] = n;
        if (request->unique)
            (void)snprintf(bench->names[idx], sizeof(bench->names[idx]), "%" PRIu32 ".%" PRIu64,
                           rank_of(bench), idx); /* fits */
        else
            (void)snprintf(bench->names[idx], sizeof(bench->names[idx]), "tensor.%" PRIu64, idx);
        bench->tensors[idx] =
            (stk_tensor){.name = bench->names[idx],
                         .dtype = "F32",
                         .shape = &bench->shapes[idx],
                         .dims = 1,
                         .data = at,
                         .flags = STK_TENSOR_STABLE | (request->unique ? STK_TENSOR_UNIQUE : 0)};
        at += (4 * n + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    }
    return CLI_OK;
}

static void
free_state(struct bench *bench)
{
    if (bench->memory)
        (void)munmap(bench->memory, bench->memory_bytes); /* mapped above */
    free(bench->tensors);
    free(bench->shapes);
    free(bench->names);
}

/* ---- where it goes ----------------------------------------------------------------- */

static int
remove_one(const char *path, const struct stat *found, int type, struct FTW *walk)
{
    (void)found;
    (void)type;
    (void)walk;
    return remove(path);
}

/* Of ranks the first cleans up, once the others are done. */
static void
remove_dirs(struct bench *bench)
{
    for (size_t at = 0; at < bench->request->roots.count; at++) {
        if (bench->dirs[at] && rank_of(bench) == 0)
            /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
            (void)nftw(bench->dirs[at], remove_one, 16, FTW_DEPTH | FTW_PHYS);
        free(bench->dirs[at]);
        bench->dirs[at] = NULL;
    }
    free(bench->roots);
}

/* A directory of ours in each root; the manifests go to the first. */
static int
make_dirs(struct bench *bench)
{
    const struct cli_texts *roots = &bench->request->roots;
    char path[PATH_BYTES];
    size_t used = 0;

    bench->roots = calloc(roots->count, PATH_BYTES);
    if (!bench->roots)
        return cli_error(bench->command, "no memory");
    for (size_t at = 0; at < roots->count; at++) {
        char *real = realpath(roots->items[at], NULL);
        int n = real ? snprintf(path, sizeof(path), "%s/" DIR_NAME ".%zu", real, at) : -1;

        if (!real || n < 0 || n >= (int)sizeof(path)) {
            free(real);
            return cli_error(bench->command, "--root %s: %s", roots->items[at],
                             strerrordesc_np(errno));
        }
        free(real);
        if (rank_of(bench) == 0) /* the others have not met it yet */
            /* Of a run that was killed. NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
            (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        bench->dirs[at] = strdup(path);
        if (!bench->dirs[at])
            return cli_error(bench->command, "no memory");
        used +=
            (size_t)snprintf(bench->roots + used, roots->count * PATH_BYTES - used, " %s", path);
    }
    return CLI_OK;
}

static int
open_all(struct bench *bench)
{
    stk_ckpt_opts opts = bench->request->ckpt;
    stk_error err;
    int rc = stk_engine_open(&bench->engine, &bench->request->engine, &err);

    if (rc < 0)
        return fail(bench, "cannot start the engine", rc, &err);
    bench->result->io_method = stk_engine_io_method(bench->engine);
    if (bench->request->roots.count > 1)
        opts.roots = bench->roots;
    rc = stk_ckpt_open(&bench->ckpt, bench->engine, bench->dirs[0], &opts, &err);
    if (rc < 0)
        return fail(bench, "cannot open the checkpoint directory", rc, &err);
    return CLI_OK;
}

/* ---- saves
 *
 *
 * ---------------------------------------------------------------------------------------- */

static int
begin_save(struct bench *bench)
{
    const stk_save save = {STK_SAVE_INIT, .step = bench->step++, .tensors = bench->tensors,
                           .n_tensors = (uint32_t)bench->request->tensors};
    stk_error err;
    int rc = stk_ckpt_save(bench->ckpt, &save, &err);

    return rc < 0 ? fail(bench, "cannot save", rc, &err) : CLI_OK;
}

static int
fence(struct bench *bench)
{
    stk_error err;
    int rc = stk_ckpt_fence(bench->ckpt, &err);

    return rc < 0 ? fail(bench, "a save failed", rc, &err) : CLI_OK;
}

static int
wait_durable(struct bench *bench)
{
    stk_error err;
    int rc = stk_ckpt_wait(bench->ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err);

    return rc < 0 ? fail(bench, "a save failed", rc, &err) : CLI_OK;
}

static int
measure_save(struct bench *bench, struct bench_save *save)
{
    const uint64_t begun_ns = bench_now_ns();
    const double cpu = cpu_now();
    int rc = begin_save(bench);

    save->call_seconds = seconds_since(begun_ns);
    if (rc == CLI_OK) {
        (void)stk_ckpt_fence_tensor(bench->ckpt, 0, NULL); /* a failure is told by the next call */
        save->first_tensor_seconds = seconds_since(begun_ns);
        rc = fence(bench);
    }
    save->captured_seconds = seconds_since(begun_ns);
    if (rc == CLI_OK)
        rc = wait_durable(bench);
    save->seconds = seconds_since(begun_ns);
    save->cpu_seconds = cpu_now() - cpu;
    return rc;
}

static int
compare(const void *left, const void *right)
{
    const double *a = left;
    const double *b = right;

    return *a < *b ? -1 : *a > *b;
}

/* The median of one field of all saves. */
static double
median(const struct bench_save_result *result, size_t offset)
{
    static double values[BENCH_SAVES_MAX];

    for (size_t at = 0; at < result->n_saves; at++)
        memcpy(&values[at], (const char *)&result->saves[at] + offset, sizeof(values[at]));
    qsort(values, result->n_saves, sizeof(values[0]), compare);
    return result->n_saves % 2
               ? values[result->n_saves / 2]
               : (values[result->n_saves / 2 - 1] + values[result->n_saves / 2]) / 2;
}

static int
measure_saves(struct bench *bench)
{
    struct bench_save_result *result = bench->result;
    const uint64_t begun_ns = bench_now_ns();
    int rc = CLI_OK;

    for (uint64_t at = 0; rc == CLI_OK && at < bench->request->saves; at++) {
        rc = measure_save(bench, &result->saves[result->n_saves]);
        if (rc != CLI_OK)
            return rc;
        if (!bench->request->quiet)
            (void)fprintf(stderr, "save %" PRIu64 ": %.3f s, %.1f MB/s\n", at + 1,
                          result->saves[result->n_saves].seconds,
                          (double)bench->request->bytes * 1e-6 /
                              result->saves[result->n_saves].seconds);
        result->n_saves++;
    }
    result->run_seconds = seconds_since(begun_ns);
    result->median =
        (struct bench_save){median(result, offsetof(struct bench_save, seconds)),
                            median(result, offsetof(struct bench_save, call_seconds)),
                            median(result, offsetof(struct bench_save, first_tensor_seconds)),
                            median(result, offsetof(struct bench_save, captured_seconds)),
                            median(result, offsetof(struct bench_save, cpu_seconds))};
    return rc;
}

/* ---- the loop
 *
 *
 * ---------------------------------------------------------------------------------------- */

static int
run_loop(struct bench *bench, bool is_saving, double *ret_seconds)
{
    const struct bench_save_request *request = bench->request;
    const uint64_t begun_ns = bench_now_ns();
    int rc = CLI_OK;

    for (uint64_t at = 0; rc == CLI_OK && at < request->iterations; at++) {
        for (uint64_t pass = 0; pass < request->accumulation; pass++) {
            bench_compute(request->forward_us, request->spin);
            bench_compute(request->backward_us, request->spin);
        }
        if (is_saving)
            rc = fence(bench);
        bench_compute(request->optimizer_us, request->spin);
        if (rc == CLI_OK && is_saving)
            rc = begin_save(bench);
    }
    *ret_seconds = seconds_since(begun_ns);
    return rc;
}

/* What the model says that an iteration waits: T_C - G (T_F + T_B), if that is more than
 * none. */
static double
expected_stall(const struct bench *bench)
{
    const struct bench_save_request *request = bench->request;
    const double hidden =
        (double)request->accumulation * (double)(request->forward_us + request->backward_us) * 1e-6;

    return bench->result->median.seconds > hidden ? bench->result->median.seconds - hidden : 0;
}

static int
measure_loop(struct bench *bench)
{
    struct bench_loop *loop = &bench->result->loop;
    /* The first iteration has no save before it to wait for. */
    const uint64_t waiting = bench->request->iterations > 1 ? bench->request->iterations - 1 : 1;
    stk_ckpt_status before = {STK_CKPT_STATUS_INIT};
    stk_ckpt_status after = {STK_CKPT_STATUS_INIT};
    int rc = run_loop(bench, false, &loop->plain_seconds);

    if (rc != CLI_OK)
        return rc;
    (void)stk_ckpt_get_status(bench->ckpt, &before); /* the size is right */
    const double cpu = cpu_now();
    rc = run_loop(bench, true, &loop->saving_seconds);
    loop->cpu_seconds = cpu_now() - cpu;
    (void)stk_ckpt_get_status(bench->ckpt, &after); /* the size is right */
    if (rc != CLI_OK)
        return rc;
    loop->stall_seconds = (double)(after.save_wait_ns + after.fence_wait_ns - before.save_wait_ns -
                                   before.fence_wait_ns) *
                          1e-9 / (double)waiting;
    loop->expected_stall_seconds = expected_stall(bench);
    loop->overhead_fraction = loop->saving_seconds / loop->plain_seconds - 1;
    return wait_durable(bench);
}

/* ---- loading
 *
 *
 * -------------------------------------------------------------------------------------------- */

static int
load_into(struct bench *bench, stk_view *view, char *memory)
{
    const uint64_t n = bench->request->tensors;
    stk_load *loads = calloc(n, sizeof(*loads));
    char *at = memory;
    stk_error err;

    if (!loads)
        return cli_error(bench->command, "no memory to load");
    for (uint64_t idx = 0; idx < n; idx++) {
        loads[idx] =
            (stk_load){.name = bench->names[idx], .dst = at, .n_bytes = 4 * bench->shapes[idx]};
        at += 4 * bench->shapes[idx];
    }
    const uint64_t begun_ns = bench_now_ns();
    int rc = bench->request->together ? stk_view_load_together(view, loads, (uint32_t)n, &err)
                                      : stk_view_load(view, loads, (uint32_t)n, &err);
    bench->result->load_seconds = seconds_since(begun_ns);
    free(loads);
    return rc < 0 ? fail(bench, "cannot load", rc, &err) : CLI_OK;
}

static bool
is_same(const struct bench *bench, const char *memory)
{
    for (uint64_t idx = 0; idx < bench->request->tensors; idx++) {
        if (memcmp(memory, bench->tensors[idx].data, 4 * bench->shapes[idx]) != 0)
            return false;
        memory += 4 * bench->shapes[idx];
    }
    return true;
}

static int
measure_load(struct bench *bench)
{
    const uint64_t n_bytes = bench->request->bytes + 8;
    char *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stk_view *view;
    stk_error err;

    if (memory == MAP_FAILED)
        return cli_error(bench->command, "no memory to load into");
    (void)madvise(memory, n_bytes, MADV_HUGEPAGE); /* advice: fine without */
    memset(memory, 1, n_bytes);
    int rc = stk_view_open(&view, bench->ckpt, STK_LATEST, &err);
    if (rc < 0) {
        (void)munmap(memory, n_bytes); /* mapped above */
        return fail(bench, "cannot open what was saved", rc, &err);
    }
    rc = load_into(bench, view, memory);
    stk_view_close(view);
    if (rc == CLI_OK && !is_same(bench, memory))
        rc = cli_error(bench->command, "what was loaded is not what was saved");
    (void)munmap(memory, n_bytes); /* mapped above */
    return rc;
}

/* ---- the run
 *
 *
 * ---------------------------------------------------------------------------------------------- */

static int
measure(struct bench *bench)
{
    struct beside *beside = NULL;
    int rc = CLI_OK;

    if (bench->request->beside) {
        rc = beside_start(bench->command, &beside, bench->request, bench->engine);
        if (rc != CLI_OK)
            return rc;
        beside_begin(beside);
    }
    rc = measure_saves(bench);
    int beside_rc = beside_stop(beside, &bench->result->beside);
    if (rc == CLI_OK)
        rc = beside_rc;
    if (rc == CLI_OK && bench->request->every_iteration)
        rc = measure_loop(bench);
    if (rc == CLI_OK && bench->request->load)
        rc = measure_load(bench);
    return rc;
}

/* Ranks wait for each other, as they do to open anything together. */
static int
meet(const struct bench *bench)
{
    stk_ckpt_opts opts = bench->request->ckpt;
    stk_ckpt *ckpt;
    stk_error err;

    if (!bench->request->engine.comm)
        return CLI_OK;
    int rc = stk_ckpt_open(&ckpt, bench->engine, bench->dirs[0], &opts, &err);
    if (rc < 0)
        return fail(bench, "the ranks do not end together", rc, &err);
    stk_ckpt_close(ckpt);
    return CLI_OK;
}

int
bench_save_run(const char *command, const struct bench_save_request *request,
               struct bench_save_result *result)
{
    struct bench bench = {.command = command, .request = request, .result = result};
    int rc;

    *result = (struct bench_save_result){.io_method = ""};
    rc = make_state(&bench);
    if (rc == CLI_OK)
        rc = make_dirs(&bench);
    if (rc == CLI_OK)
        rc = open_all(&bench);
    if (rc == CLI_OK)
        rc = measure(&bench);
    if (rc == CLI_OK)
        rc = meet(&bench);
    stk_ckpt_close(bench.ckpt);
    stk_engine_close(bench.engine);
    remove_dirs(&bench);
    free_state(&bench);
    return rc;
}
