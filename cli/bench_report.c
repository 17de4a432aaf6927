/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of "stoker bench load". The JSON object has the same keys for the whole run
 * and for each of its epochs; keys are only ever added.
 */
#include "bench_report.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "args.h"
#include "explain_report.h"
#include "json_text.h"

static double
per_second(uint64_t amount, double seconds)
{
    return seconds > 0 ? (double)amount / seconds : 0;
}

static double
stall_fraction(const struct bench_phase *phase)
{
    return per_second(phase->loader.wait_ns, phase->seconds) * 1e-9;
}

/* Counts beyond 2^63 - 1 do not happen: they are bytes, samples and calls of one run. */
static json_int_t
count(uint64_t value)
{
    return (json_int_t)value;
}

/* Four values, one per tier. */
static json_t *
tiers_json(const uint64_t *values)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "ram", count(values[STK_TIER_RAM]), "ssd",
                     count(values[STK_TIER_SSD]), "peer", count(values[STK_TIER_PEER]), "origin",
                     count(values[STK_TIER_ORIGIN]));
}

static json_t *
waits_json(const stk_loader_stats *stats)
{
    return json_pack("{s:f, s:f, s:f}", "p50", (double)stats->wait_p50_ns * 1e-3, "p99",
                     (double)stats->wait_p99_ns * 1e-3, "max", (double)stats->wait_max_ns * 1e-3);
}

static json_t *
engine_json(const stk_engine_stats *stats)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i}", "reads",
                     count(stats->reads), "read_bytes", count(stats->read_bytes), "submit_calls",
                     count(stats->submit_calls), "loop_wakeups", count(stats->loop_wakeups),
                     "io_errors", count(stats->io_errors), "allocations", count(stats->allocations),
                     "mapped_bytes", count(stats->mapped_bytes), "ram_bytes",
                     count(stats->ram_bytes), "ssd_bytes", count(stats->ssd_bytes), "node_rank",
                     (int)stats->node_rank, "node_ranks", (int)stats->node_ranks);
}

static json_t *
ssd_json(const stk_loader_stats *stats)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "bytes", count(stats->ssd_bytes), "written_bytes",
                     count(stats->ssd_written_bytes), "refused", count(stats->ssd_refused),
                     "dropped", count(stats->ssd_dropped));
}

static json_t *
peers_json(const stk_loader_stats *stats)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "served", count(stats->peer_served),
                     "served_bytes", count(stats->peer_served_bytes), "failed",
                     count(stats->peer_failed), "corrupt", count(stats->peer_corrupt), "copied",
                     count(stats->peer_copied), "copied_bytes", count(stats->peer_copied_bytes));
}

/* The keys that the run and an epoch share. Returns owned, or NULL. */
static json_t *
phase_json(const struct bench_phase *phase)
{
    const stk_loader_stats *stats = &phase->loader;
    json_t *whole, *rest;

    whole = json_pack(
        "{s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:o, s:o}", "batches", count(stats->batches),
        "samples", count(stats->samples), "bytes", count(stats->bytes), "seconds", phase->seconds,
        "samples_per_s", per_second(stats->samples, phase->seconds), "bytes_per_s",
        per_second(stats->bytes, phase->seconds), "stall_fraction", stall_fraction(phase),
        "step_wait_us", waits_json(stats), "sources", tiers_json(stats->tier_samples),
        "source_bytes", tiers_json(stats->tier_bytes));
    rest = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:o}", "origin_bytes",
                     count(stats->origin_bytes), "bound_bytes", count(stats->bound_bytes),
                     "capacity_bytes", count(stats->capacity_bytes), "resident_bytes",
                     count(stats->resident_bytes), "replaced", count(stats->replaced), "unpooled",
                     count(stats->allocations), "cpu_seconds", phase->cpu_seconds, "rss_bytes",
                     count(phase->rss_bytes), "engine", engine_json(&phase->engine));
    json_t *ssd = ssd_json(stats);
    if (rest && (!ssd || json_object_set(rest, "ssd", ssd))) {
        json_decref(rest);
        rest = NULL;
    }
    json_decref(ssd);
    json_t *peers = peers_json(stats);
    if (rest && (!peers || json_object_set(rest, "peers", peers))) {
        json_decref(rest);
        rest = NULL;
    }
    json_decref(peers);
    if (whole && rest && json_object_update(whole, rest) == 0) {
        json_decref(rest);
        return whole;
    }
    json_decref(rest);
    json_decref(whole);
    return NULL;
}

static json_t *
epochs_json(const struct bench_load_result *result)
{
    json_t *list = json_array();

    for (size_t k = 0; list && k < result->n_epochs; k++) {
        json_t *epoch = phase_json(&result->epochs[k]);

        if (!epoch ||
            json_object_set_new(epoch, "epoch",
                                json_integer(count(result->epochs[k].loader.epoch))) ||
            json_array_append(list, epoch)) {
            json_decref(list);
            list = NULL;
        }
        json_decref(epoch);
    }
    return list;
}

/* What identifies the run. Returns owned, or NULL. */
static json_t *
run_json(const struct bench_load_request *request, const struct bench_load_result *result)
{
    char fingerprint[17];
    json_t *run;

    (void)snprintf(fingerprint, sizeof(fingerprint), "%016" PRIx64, result->dataset.fingerprint);
    run = json_pack("{s:o, s:s, s:I, s:I, s:f, s:b, s:s, s:b}", "dataset",
                    cli_json_text(request->data.paths[0]), "fingerprint", fingerprint,
                    "dataset_samples", count(result->dataset.samples), "dataset_bytes",
                    count(result->dataset.bytes), "index_seconds", result->index_seconds,
                    "index_built", (int)result->dataset.index_built, "io_method", result->io_method,
                    "interrupted", (int)result->interrupted);
    if (run && request->crc && json_object_set_new(run, "crc32", json_integer(result->crc))) {
        json_decref(run);
        run = NULL;
    }
    if (run && (json_object_set_new(run, "rank", json_integer(request->order.rank)) ||
                json_object_set_new(run, "world", json_integer(request->order.world)))) {
        json_decref(run);
        run = NULL;
    }
    if (run && result->warning &&
        json_object_set_new(run, "warning", cli_json_text(result->warning))) {
        json_decref(run);
        run = NULL;
    }
    return run;
}

int
bench_report_json(const char *command, const struct bench_load_request *request,
                  const struct bench_load_result *result)
{
    json_t *object = phase_json(&result->total);
    json_t *run = run_json(request, result);
    json_t *epochs = epochs_json(result);
    int bad = !object || !run || !epochs;

    bad = bad || json_object_update(object, run) || json_object_set(object, "epochs", epochs);
    if (!bad && request->explain)
        bad = json_object_set_new(object, "costs", costs_json(&result->costs)) ||
              json_object_set_new(object, "explained", explained_json(&result->explained));
    if (!bad && result->explained.has_peers && result->n_epochs > 0)
        bad = json_object_set_new(object, "shares", shares_json(result));
    bad = bad || json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(epochs);
    json_decref(run);
    json_decref(object);
    if (bad)
        return cli_error(command, "the result cannot be written as JSON");
    (void)putchar('\n'); /* checked at the end */
    return cli_finish(command);
}

static void
print_phase(const char *title, const struct bench_phase *phase)
{
    const stk_loader_stats *stats = &phase->loader;
    const double samples = stats->samples ? (double)stats->samples : 1.0;

    (void)printf(
        "%-8s %9.3f %11.0f %9.1f %8.2f %9.0f %9.0f %7.2f %7.2f %7.2f %8.2f %11.2f %11.2f %8.2f\n",
        title, phase->seconds, per_second(stats->samples, phase->seconds),
        per_second(stats->bytes, phase->seconds) * 1e-6, 100 * stall_fraction(phase),
        (double)stats->wait_p50_ns * 1e-3, (double)stats->wait_p99_ns * 1e-3,
        100 * (double)stats->tier_samples[STK_TIER_RAM] / samples,
        100 * (double)stats->tier_samples[STK_TIER_SSD] / samples,
        100 * (double)stats->tier_samples[STK_TIER_PEER] / samples,
        100 * (double)stats->tier_samples[STK_TIER_ORIGIN] / samples,
        (double)stats->origin_bytes * 1e-6, (double)stats->bound_bytes * 1e-6, phase->cpu_seconds);
}

int
bench_report_text(const char *command, const struct bench_load_request *request,
                  const struct bench_load_result *result)
{
    char title[24];

    cli_put_text(stdout, request->data.paths[0]);
    (void)printf(": %" PRIu64 " samples, %.1f MB, index %s in %.3f s, I/O by %s\n",
                 result->dataset.samples, (double)result->dataset.bytes * 1e-6,
                 result->dataset.index_built ? "built" : "opened", result->index_seconds,
                 result->io_method);
    (void)puts(
        "epoch      seconds   samples/s      MB/s  stall %    p50 us    p99 us   RAM %   SSD %"
        "  peer % origin %   origin MB    bound MB    CPU s");
    for (size_t k = 0; k < result->n_epochs; k++) {
        (void)snprintf(title, sizeof(title), "%" PRIu64, result->epochs[k].loader.epoch);
        print_phase(title, &result->epochs[k]);
    }
    print_phase("all", &result->total);
    (void)printf("%.1f MB resident at most", (double)result->total.rss_bytes * 1e-6);
    if (request->crc)
        (void)printf(", CRC-32 of all bytes %08" PRIx32, result->crc);
    if (request->loader.bad_sample == STK_BAD_REPLACE)
        (void)printf(", %" PRIu64 " samples replaced", result->total.loader.replaced);
    (void)puts(result->interrupted ? ", interrupted" : "");
    if (result->explained.epochs)
        explained_print(&result->explained);
    if (result->explained.has_peers && result->n_epochs > 0)
        shares_print(result);
    return cli_finish(command);
}
