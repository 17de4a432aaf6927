/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measured run. Time and processor time count from just before the loader is opened,
 * since it reads from then on; opening the data set is reported apart. An epoch lasts
 * from the end of the one before it to the moment its last batch has been given back, so
 * the epochs add up to the whole. One thread; the signal handler only sets a flag and
 * interrupts the loader.
 */
#include "bench_load.h"

#include <errno.h>
#include <inttypes.h>
#include <isa-l/crc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "args.h"

#define NS_PER_S UINT64_C(1000000000)
#define EXPLAINED_EPOCHS 64
#define TTY_PROGRESS_NS (NS_PER_S / 4)
#define LINE_PROGRESS_NS (NS_PER_S * 10)
#define SLICE_NS (NS_PER_S / 50) /* of playing the accelerator */

/* What the handler sees. The loader is set before the handler and cleared after it is
 * gone. */
static stk_loader *_Atomic interruptible;
static volatile sig_atomic_t interrupted;

/* Where touched bytes end, so that the reading is not optimised away. */
static volatile uint64_t sink;

/* A point of the run from which a phase is measured. */
struct mark {
    uint64_t ns;
    double cpu_seconds;
    stk_engine_stats engine;
};

struct bench {
    const char *command;
    const struct bench_load_request *request;
    struct bench_load_result *result;
    stk_engine *engine;
    struct cli_dataset data;
    stk_loader *loader;
    struct mark began, epoch_began;
    uint64_t samples, bytes, steps; /* so far */
    uint64_t progress_ns;           /* when to say it next */
    bool tty;
};

static uint64_t
now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void
on_sigint(int number)
{
    (void)number;
    interrupted = 1;
    stk_loader_interrupt(interruptible);
}

/* From here on SIGINT ends the run in order, a second one ends the process at once. */
static int
catch_sigint(struct bench *bench)
{
    struct sigaction action = {.sa_handler = on_sigint, .sa_flags = (int)SA_RESETHAND};

    interruptible = bench->loader;
    if (sigaction(SIGINT, &action, NULL) < 0)
        return cli_error(bench->command, "cannot handle SIGINT: %s", strerrordesc_np(errno));
    return CLI_OK;
}

static void
release_sigint(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};

    (void)sigaction(SIGINT, &action, NULL); /* arguments are good */
    interruptible = NULL;
}

static int
fail(const struct bench *bench, const char *what, int rc, const stk_error *err)
{
    return cli_refused(bench->command, what, rc, err);
}

/* Says once what went worse than asked for while the run goes on: not a matter of
 * --quiet, since what is measured is then not what was to be measured. */
static void
say_warning(const struct bench *bench)
{
    struct bench_load_result *result = bench->result;
    stk_error err;
    char *text;

    if (stk_loader_last_warning(bench->loader, &err) < 0 ||
        asprintf(&text, "%s%s%s", err.path, err.path[0] ? ": " : "", err.message) < 0)
        return;
    if (result->warning && strcmp(text, result->warning) == 0) {
        free(text);
        return;
    }
    free(result->warning);
    result->warning = text;
    (void)cli_error(bench->command, "warning: %s", text);
}

static void
mark_now(const struct bench *bench, struct mark *mark)
{
    struct rusage use;

    (void)getrusage(RUSAGE_SELF, &use); /* cannot fail for this process */
    mark->cpu_seconds = (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                        (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
    mark->engine = (stk_engine_stats){STK_ENGINE_STATS_INIT};
    (void)stk_engine_get_stats(bench->engine, &mark->engine); /* the size is right */
    mark->ns = now_ns();
}

static uint64_t
peak_rss_bytes(void)
{
    struct rusage use;

    (void)getrusage(RUSAGE_SELF, &use); /* cannot fail for this process */
    return (uint64_t)use.ru_maxrss * 1024;
}

/* Fills a phase that began at a mark and ends now. epoch: as for
 * stk_loader_get_stats(). */
static int
end_phase(const struct bench *bench, const struct mark *began, const struct mark *ended,
          uint64_t epoch, struct bench_phase *phase)
{
    int rc;

    phase->seconds = (double)(ended->ns - began->ns) * 1e-9;
    phase->cpu_seconds = ended->cpu_seconds - began->cpu_seconds;
    phase->rss_bytes = peak_rss_bytes();
    phase->engine = ended->engine;
    phase->engine.reads -= began->engine.reads;
    phase->engine.read_bytes -= began->engine.read_bytes;
    phase->engine.submit_calls -= began->engine.submit_calls;
    phase->engine.loop_wakeups -= began->engine.loop_wakeups;
    phase->engine.io_errors -= began->engine.io_errors;
    phase->engine.allocations -= began->engine.allocations;
    phase->engine.mapped_bytes -= began->engine.mapped_bytes;
    phase->loader = (stk_loader_stats){STK_LOADER_STATS_INIT};
    rc = stk_loader_get_stats(bench->loader, epoch, &phase->loader);
    if (rc < 0)
        return cli_error(bench->command, "no statistics of epoch %" PRIu64 ": %s", epoch,
                         stk_strerror(rc));
    return CLI_OK;
}

static void
say_epoch(struct bench *bench, const struct bench_phase *phase)
{
    if (bench->request->quiet)
        return;
    (void)fprintf(stderr, "%sepoch %" PRIu64 ": %.2f s, %.0f samples/s, %.1f MB/s, stall %.2f %%\n",
                  bench->tty ? "\r\033[K" : "", phase->loader.epoch, phase->seconds,
                  (double)phase->loader.samples / phase->seconds,
                  (double)phase->loader.bytes * 1e-6 / phase->seconds,
                  (double)phase->loader.wait_ns * 1e-7 / phase->seconds);
}

static void
say_progress(struct bench *bench, const stk_batch *batch)
{
    const uint64_t now = now_ns();
    const double seconds = (double)(now - bench->began.ns) * 1e-9;

    if (bench->request->quiet || now < bench->progress_ns)
        return;
    bench->progress_ns = now + (bench->tty ? TTY_PROGRESS_NS : LINE_PROGRESS_NS);
    (void)fprintf(stderr,
                  "%sepoch %" PRIu64 ", step %" PRIu64 ": %.0f samples/s, %.1f MB/s so far%s",
                  bench->tty ? "\r\033[K" : "", batch->epoch, batch->epoch_step,
                  (double)bench->samples / seconds, (double)bench->bytes * 1e-6 / seconds,
                  bench->tty ? "" : "\n");
    (void)fflush(stderr); /* nothing can be done about it */
}

/* Ends the epoch under way and begins the next one. */
static int
end_epoch(struct bench *bench, uint64_t epoch)
{
    struct bench_load_result *result = bench->result;
    struct bench_phase *epochs;
    struct mark now;
    int rc;

    mark_now(bench, &now);
    epochs = realloc(result->epochs, (result->n_epochs + 1) * sizeof(*epochs));
    if (!epochs)
        return cli_error(bench->command, "no memory for the results");
    result->epochs = epochs;
    rc = end_phase(bench, &bench->epoch_began, &now, epoch, &epochs[result->n_epochs]);
    if (rc != CLI_OK)
        return rc;
    say_epoch(bench, &epochs[result->n_epochs++]);
    bench->epoch_began = now;
    return CLI_OK;
}

/* Adds up all bytes, eight at a time. */
static uint64_t
touch(const void *bytes, uint64_t n_bytes)
{
    const unsigned char *at = bytes;
    uint64_t sum = 0, word;

    for (; n_bytes >= sizeof(word); n_bytes -= sizeof(word), at += sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        sum += word;
    }
    while (n_bytes--)
        sum += *at++;
    return sum;
}

/* A field that a sample lacks is NULL and has no bytes. */
static void
use_field(struct bench *bench, const stk_field *field, uint32_t k)
{
    bench->bytes += field->n_bytes[k];
    if (bench->request->touch)
        sink += touch(field->items[k], field->n_bytes[k]);
    if (bench->request->crc && field->n_bytes[k] > 0)
        bench->result->crc =
            crc32_gzip_refl(bench->result->crc, field->items[k], field->n_bytes[k]);
}

static void
use_batch(struct bench *bench, const stk_batch *batch)
{
    bench->samples += batch->count;
    for (uint32_t k = 0; k < batch->count; k++)
        for (uint64_t at = 0; at < batch->n_fields; at++)
            use_field(bench, &batch->fields[at], k);
}

/* Plays the accelerator for a batch that came at began_ns. SIGINT ends it early: it
 * sleeps in slices, since a signal between the look at the flag and the sleep would else
 * be seen only at the end. */
static void
compute(const struct bench_load_request *request, uint64_t began_ns)
{
    const uint64_t due_ns = began_ns + request->compute_us * 1000;

    for (uint64_t at_ns = now_ns(); !interrupted && at_ns < due_ns; at_ns = now_ns()) {
        const uint64_t slice_ns = due_ns - at_ns < SLICE_NS ? due_ns - at_ns : SLICE_NS;
        const struct timespec slice = {.tv_nsec = (long)slice_ns};
        if (!request->spin)
            (void)nanosleep(&slice, NULL); /* the clock is asked again */
    }
}

static int
next_failed(const struct bench *bench, int rc)
{
    stk_error err;

    if (stk_loader_last_error(bench->loader, &err) == 0)
        return fail(bench, "no next batch", rc, &err);
    return cli_error(bench->command, "no next batch: %s", stk_strerror(rc));
}

/* Takes batches to the end of the run, to the last step asked for, or to SIGINT. */
static int
take_batches(struct bench *bench)
{
    const uint64_t steps = bench->request->steps ? bench->request->steps : UINT64_MAX;
    uint64_t epoch = 0;
    bool open_epoch = false;
    stk_batch batch;
    int rc = CLI_OK;

    while (rc == CLI_OK && !interrupted && bench->steps < steps) {
        int got = stk_loader_next(bench->loader, &batch);

        if (got == STK_END || got == -EINTR)
            break;
        if (got != STK_BATCH)
            return next_failed(bench, got);
        const uint64_t began_ns = now_ns();
        use_batch(bench, &batch);
        compute(bench->request, began_ns);
        say_progress(bench, &batch);
        bench->steps++;
        epoch = batch.epoch;
        open_epoch = !batch.last_of_epoch;
        (void)stk_loader_release(bench->loader, &batch); /* it is borrowed, as of just above */
        if (!open_epoch)
            rc = end_epoch(bench, epoch);
    }
    if (rc == CLI_OK && open_epoch)
        rc = end_epoch(bench, epoch);
    return rc;
}

static int
open_all(struct bench *bench)
{
    const struct bench_load_request *request = bench->request;
    struct bench_load_result *result = bench->result;
    stk_loader_opts opts = request->loader;
    uint64_t began_ns;
    stk_error err;
    int rc;

    rc = stk_engine_open(&bench->engine, &request->engine, &err);
    if (rc < 0)
        return fail(bench, "cannot start the engine", rc, &err);
    began_ns = now_ns();
    rc = cli_dataset_open(&bench->data, bench->engine, &request->data, &err);
    if (rc < 0)
        return fail(bench, "cannot open the data set", rc, &err);
    result->index_seconds = (double)(now_ns() - began_ns) * 1e-9;
    result->dataset = (stk_dataset_info){STK_DATASET_INFO_INIT};
    (void)stk_dataset_get_info(bench->data.dataset, &result->dataset); /* the size is right */
    result->io_method = stk_engine_io_method(bench->engine);
    mark_now(bench, &bench->began);
    bench->epoch_began = bench->began;
    bench->progress_ns = bench->began.ns + (bench->tty ? TTY_PROGRESS_NS : LINE_PROGRESS_NS);
    opts.order = &request->order;
    rc = stk_loader_open(&bench->loader, bench->engine, bench->data.dataset, &opts, &err);
    if (rc < 0)
        return fail(bench, "cannot open the loader", rc, &err);
    return CLI_OK;
}

/* What the published policy would have read from where, behind the first epoch. */
static int
explain_paper(const stk_dataset *dataset, const stk_explain_opts *asked, uint64_t *samples,
              stk_error *err)
{
    stk_loader_opts loader = *asked->loader;
    stk_explain_opts opts = *asked;
    stk_explained first, run;

    loader.policy = STK_POLICY_PAPER;
    opts.loader = &loader;
    const int rc = stk_explain(dataset, &opts, &first, 1, &run, err);
    for (int tier = 0; rc == 0 && tier < STK_TIERS; tier++)
        samples[tier] = run.tier_samples[tier] - first.tier_samples[tier];
    return rc;
}

int
bench_explain(const char *command, const struct bench_load_request *request,
              const stk_dataset *dataset, const stk_costs *costs, struct explained *explained)
{
    stk_loader_opts loader = request->loader;
    stk_explain_opts opts = {STK_EXPLAIN_OPTS_INIT,
                             .loader = &loader,
                             .tiers = request->engine.tiers,
                             .costs = costs,
                             .queue_depth = request->engine.queue_depth,
                             .compute_s = (double)request->compute_us * 1e-6,
                             .is_warm = request->warm,
                             .has_peers = (request->peers || request->engine.comm) &&
                                          request->order.world > 1,
                             .node_ranks = request->node_ranks};
    stk_error err;

    loader.order = &request->order;
    *explained = (struct explained){
        .n_epochs = loader.epochs > 0 && loader.epochs < EXPLAINED_EPOCHS ? (uint32_t)loader.epochs
                                                                          : EXPLAINED_EPOCHS};
    explained->epochs = calloc(explained->n_epochs, sizeof(stk_explained));
    if (!explained->epochs)
        return cli_error(command, "no memory for the results");
    int rc =
        stk_explain(dataset, &opts, explained->epochs, explained->n_epochs, &explained->run, &err);
    explained->has_peers = opts.has_peers == 1;
    if (rc == 0 && explained->has_peers)
        rc = explain_paper(dataset, &opts, explained->paper_samples, &err);
    if (rc < 0) {
        free(explained->epochs);
        explained->epochs = NULL;
        return cli_refused(command, "the run cannot be told", rc, &err);
    }
    return CLI_OK;
}

/* Tells the run that has just been made, by what it has learned unless it was given. */
static int
explain_run(const struct bench *bench)
{
    struct bench_load_result *result = bench->result;
    struct bench_load_request request = *bench->request;
    const stk_loader_stats *stats = result->n_epochs ? &result->epochs[0].loader : NULL;

    result->costs = (stk_costs){STK_COSTS_INIT};
    (void)stk_loader_get_costs(bench->loader, &result->costs); /* the size is right */
    if (!request.explain || !stats)
        return CLI_OK;
    for (int tier = 0; tier < STK_TIERS; tier++)
        if (request.costs.tiers[tier].bytes_per_s > 0)
            result->costs.tiers[tier] = request.costs.tiers[tier];
    if (request.engine.comm && request.engine.comm->tiers_per_rank == 0) {
        stk_engine_stats engine = {STK_ENGINE_STATS_INIT};

        (void)stk_engine_get_stats(bench->engine, &engine); /* the size is right */
        request.node_ranks = engine.node_ranks;
    }
    request.warm = result->total.loader.ssd_written_bytes == 0 && stats->ssd_bytes > 0;
    return bench_explain(bench->command, &request, bench->data.dataset, &result->costs,
                         &result->explained);
}

int
bench_load_run(const char *command, const struct bench_load_request *request,
               struct bench_load_result *result)
{
    struct bench bench = {.command = command, .request = request, .result = result};
    struct mark ended;
    int rc;

    *result = (struct bench_load_result){.io_method = ""};
    bench.tty = isatty(STDERR_FILENO);
    rc = open_all(&bench);
    if (rc == CLI_OK)
        rc = catch_sigint(&bench);
    if (rc == CLI_OK) {
        say_warning(&bench);
        rc = take_batches(&bench);
        mark_now(&bench, &ended);
        /* What is read for others after the own last batch is counted, too. */
        if (rc == CLI_OK && !interrupted)
            (void)stk_loader_leave(bench.loader); /* no batch is out */
        if (rc == CLI_OK)
            rc = end_phase(&bench, &bench.began, &ended, UINT64_MAX, &result->total);
        if (rc == CLI_OK && !interrupted)
            rc = explain_run(&bench);
        say_warning(&bench);
        release_sigint();
    }
    result->interrupted = interrupted;
    if (interrupted)
        return rc; /* closing waits for reads in flight, and storage may hang */
    stk_loader_close(bench.loader);
    cli_dataset_close(&bench.data);
    stk_engine_close(bench.engine);
    return rc;
}

void
bench_load_free(struct bench_load_result *result)
{
    free(result->explained.epochs);
    free(result->epochs);
    free(result->warning);
    result->warning = NULL;
    result->epochs = NULL;
    result->n_epochs = 0;
}
