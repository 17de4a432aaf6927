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
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "args.h"

#define NS_PER_S UINT64_C(1000000000)

struct bench {
    const char *command;
    const struct bench_save_request *request;
    struct bench_save_result *result;
    stk_engine *engine;
    stk_ckpt *ckpt;
    struct bench_state state;
    struct bench_dirs dirs;
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

/* ---- where it goes ----------------------------------------------------------------- */

/* Whether this rank removes what is in the roots, which may be its node's own. */
static bool
is_cleaner(const struct bench *bench)
{
    stk_engine_stats stats = {STK_ENGINE_STATS_INIT};

    if (bench->request->ckpt.node_local && bench->engine &&
        stk_engine_get_stats(bench->engine, &stats) == 0)
        return stats.node_rank == 0;
    return rank_of(bench) == 0;
}

static stk_ckpt_opts
ckpt_opts(const struct bench *bench)
{
    stk_ckpt_opts opts = bench->request->ckpt;

    if (bench->request->roots.count > 1)
        opts.roots = bench->dirs.list;
    opts.shared = bench->dirs.shared;
    return opts;
}

static int
open_all(struct bench *bench)
{
    stk_error err;
    int rc = stk_engine_open(&bench->engine, &bench->request->engine, &err);

    if (rc < 0)
        return fail(bench, "cannot start the engine", rc, &err);
    bench->result->io_method = stk_engine_io_method(bench->engine);
    const stk_ckpt_opts opts = ckpt_opts(bench);
    rc = stk_ckpt_open(&bench->ckpt, bench->engine, bench->dirs.roots[0], &opts, &err);
    if (rc < 0)
        return fail(bench, "cannot open the checkpoint directory", rc, &err);
    return CLI_OK;
}

/* Ranks wait for each other, as they do to open anything together. */
static int
meet(const struct bench *bench)
{
    const stk_ckpt_opts opts = ckpt_opts(bench);
    stk_ckpt *ckpt;
    stk_error err;

    if (!bench->request->engine.comm)
        return CLI_OK;
    int rc = stk_ckpt_open(&ckpt, bench->engine, bench->dirs.roots[0], &opts, &err);
    if (rc < 0)
        return fail(bench, "the ranks do not meet", rc, &err);
    stk_ckpt_close(ckpt);
    return CLI_OK;
}

/* ---- saves ------------------------------------------------------------------------ */

static int
begin_save(struct bench *bench)
{
    const stk_save save = {STK_SAVE_INIT, .step = bench->step++, .tensors = bench->state.tensors,
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

/* A wait for a level beyond the first, on a thread of its own: copies are made at once, and
 * each has an end of its own. */
struct copy_wait {
    struct bench *bench;
    stk_level level;
    uint64_t begun_ns;
    double seconds;
    int result;
    stk_error err;
};

static void *
wait_copy(void *context)
{
    struct copy_wait *wait = context;

    wait->result = stk_ckpt_wait(wait->bench->ckpt, wait->level, STK_FOREVER, &wait->err);
    wait->seconds = seconds_since(wait->begun_ns);
    return NULL;
}

/* Until all copies are durable. seconds: those of the last save's that there are. */
static int
wait_copies(struct bench *bench, uint64_t begun_ns, double *partner_seconds, double *shared_seconds)
{
    struct copy_wait partner = {bench, STK_DURABLE_PARTNER, begun_ns, 0, 0, {0}};
    struct copy_wait shared = {bench, STK_DURABLE_SHARED, begun_ns, 0, 0, {0}};
    stk_ckpt_status status = {STK_CKPT_STATUS_INIT};
    pthread_t thread = 0;

    if (bench->dirs.shared && pthread_create(&thread, NULL, wait_copy, &shared) != 0)
        return cli_error(bench->command, "no thread to wait with");
    if (bench->request->ckpt.partner)
        (void)wait_copy(&partner);
    if (bench->dirs.shared)
        (void)pthread_join(thread, NULL); /* started above */
    if (partner.result < 0)
        return fail(bench, "a copy to another node failed", partner.result, &partner.err);
    if (shared.result < 0)
        return fail(bench, "a copy to the shared directory failed", shared.result, &shared.err);
    (void)stk_ckpt_get_status(bench->ckpt, &status); /* the size is right */
    bench->result->partner_copies = status.partner;
    bench->result->shared_copies = status.shared;
    if (status.last_partner == bench->step - 1)
        *partner_seconds = partner.seconds;
    if (status.last_shared == bench->step - 1)
        *shared_seconds = shared.seconds;
    return CLI_OK;
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
    if (rc == CLI_OK)
        rc = wait_copies(bench, begun_ns, &save->partner_seconds, &save->shared_seconds);
    return rc;
}

static int
compare(const void *left, const void *right)
{
    const double *a = left;
    const double *b = right;

    return *a < *b ? -1 : *a > *b;
}

/* The median of one field of all saves that have it: not each need be copied. */
static double
median(const struct bench_save_result *result, size_t offset)
{
    static double values[BENCH_SAVES_MAX];
    size_t n = 0;

    for (size_t at = 0; at < result->n_saves; at++) {
        memcpy(&values[n], (const char *)&result->saves[at] + offset, sizeof(values[n]));
        n += values[n] > 0;
    }
    qsort(values, n, sizeof(values[0]), compare);
    if (n == 0)
        return 0;
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
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
                            median(result, offsetof(struct bench_save, cpu_seconds)),
                            median(result, offsetof(struct bench_save, partner_seconds)),
                            median(result, offsetof(struct bench_save, shared_seconds))};
    return rc;
}

/* ---- the loop --------------------------------------------------------------------- */

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
    double copied_seconds[2]; /* of no use here */
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
    rc = wait_durable(bench);
    return rc == CLI_OK ? wait_copies(bench, bench_now_ns(), &copied_seconds[0], &copied_seconds[1])
                        : rc;
}

/* ---- loading ---------------------------------------------------------------------- */

/* Loads what a rank has saved. */
static int
load_into(struct bench *bench, stk_view *view, uint32_t of, char *memory, double *ret_seconds)
{
    const uint64_t n = bench->request->tensors;
    stk_load *loads = calloc(n, sizeof(*loads));
    char(*names)[BENCH_NAME_BYTES] = calloc(n, sizeof(*names));
    char *at = memory;
    stk_error err;
    int rc;

    if (!loads || !names) {
        rc = cli_error(bench->command, "no memory to load");
        goto err_free;
    }
    for (uint64_t idx = 0; idx < n; idx++) {
        bench_state_name(&bench->state, of, idx, names[idx]);
        loads[idx] =
            (stk_load){.name = names[idx], .dst = at, .n_bytes = 4 * bench->state.shapes[idx]};
        at += loads[idx].n_bytes;
    }
    const uint64_t begun_ns = bench_now_ns();
    rc = bench->request->together ? stk_view_load_together(view, loads, (uint32_t)n, &err)
                                  : stk_view_load(view, loads, (uint32_t)n, &err);
    *ret_seconds = seconds_since(begun_ns);
    if (rc < 0)
        rc = fail(bench, "cannot load", rc, &err);
    else if (!bench_state_is_same(&bench->state, of, memory))
        rc = cli_error(bench->command, "what was loaded is not what was saved");
err_free:
    free(loads);
    free(names);
    return rc;
}

/* Ranks begin together, so each finds the devices as idle as the others do. */
static int
load_of(struct bench *bench, uint32_t of, char *memory, double *ret_seconds)
{
    stk_view *view;
    stk_error err;
    int rc = meet(bench);

    if (rc != CLI_OK)
        return rc;
    rc = stk_view_open(&view, bench->ckpt, STK_LATEST, &err);
    if (rc < 0)
        return fail(bench, "cannot open what was saved", rc, &err);
    rc = load_into(bench, view, of, memory, ret_seconds);
    stk_view_close(view);
    return rc;
}

static int
measure_load(struct bench *bench)
{
    const stk_comm_opts *comm = bench->request->engine.comm;
    const uint64_t n_bytes = bench->request->bytes + 8;
    char *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return cli_error(bench->command, "no memory to load into");
    (void)madvise(memory, n_bytes, MADV_HUGEPAGE); /* advice: fine without */
    memset(memory, 1, n_bytes);
    int rc = load_of(bench, rank_of(bench), memory, &bench->result->load_seconds);
    if (rc == CLI_OK && bench->request->load_next && comm) {
        memset(memory, 1, n_bytes);
        rc = load_of(bench, (comm->rank + (uint32_t)bench->request->load_next) % comm->world,
                     memory, &bench->result->load_next_seconds);
    }
    (void)munmap(memory, n_bytes); /* mapped above */
    return rc;
}

/* ---- the run ---------------------------------------------------------------------- */

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

int
bench_save_run(const char *command, const struct bench_save_request *request,
               struct bench_save_result *result)
{
    struct bench bench = {.command = command, .request = request, .result = result};
    int rc;

    *result = (struct bench_save_result){.io_method = ""};
    rc = bench_state_make(command, &bench.state, request);
    if (rc == CLI_OK)
        rc = bench_dirs_make(command, &bench.dirs, request);
    if (rc == CLI_OK)
        rc = open_all(&bench);
    if (rc == CLI_OK)
        rc = measure(&bench);
    if (rc == CLI_OK)
        rc = meet(&bench);
    const bool is_cleaning = is_cleaner(&bench);
    stk_ckpt_close(bench.ckpt);
    stk_engine_close(bench.engine);
    bench_dirs_remove(&bench.dirs, is_cleaning, rank_of(&bench) == 0);
    bench_state_free(&bench.state);
    return rc;
}
