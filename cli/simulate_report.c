/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulations for people and programs. Numbers in JSON have all the digits that they
 * have; in tables as many as one reads. One thread.
 */
#include "simulate_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "svg.h"

static const char *const source_names[STK_SIM_SOURCES] = {
    [STK_SIM_FROM_ORIGIN] = "origin",
    [STK_SIM_FROM_RAM] = "ram",
    [STK_SIM_FROM_SSD] = "ssd",
    [STK_SIM_FROM_PEER] = "peer",
};

static double
gigabytes(uint64_t n_bytes)
{
    return (double)n_bytes / 1e9;
}

/* What the origin gives besides what is read at once: tiers that are filled ahead of use. */
static uint64_t
fill_bytes(const stk_sim_result *result)
{
    uint64_t read_bytes = result->source_bytes[STK_SIM_FROM_ORIGIN];

    return result->origin_bytes > read_bytes ? result->origin_bytes - read_bytes : 0;
}

static void
print_entry(const char *name, const struct sim_entry *entry)
{
    const stk_sim_result *r = &entry->result;
    uint64_t n_reads = 0;

    if (entry->is_refused) {
        (void)printf("%-21s %s\n", name, entry->refusal);
        return;
    }
    for (int source = 0; source < STK_SIM_SOURCES; source++)
        n_reads += r->source_samples[source];
    (void)printf("%-21s %11.2f %11.2f %12.3f %12.3f %12.3f", name, r->seconds, r->stall_seconds,
                 gigabytes(r->origin_bytes), gigabytes(fill_bytes(r)), gigabytes(r->bound_bytes));
    for (int source = 0; source < STK_SIM_SOURCES; source++)
        (void)printf(" %6.1f%%",
                     n_reads ? 100 * (double)r->source_samples[source] / (double)n_reads : 0.0);
    (void)printf(" %6.1f%%\n", 100 * r->steady_origin_share);
}

static double
bound_seconds(const struct sim_run *run)
{
    for (int policy = 0; policy < STK_SIM_POLICIES; policy++)
        if (run->entries[policy].is_wanted && !run->entries[policy].is_refused)
            return run->entries[policy].result.bound_seconds;
    return 0;
}

static void
print_policies(const struct sim_run *run)
{
    (void)printf("bound: %.2f s\n\n", bound_seconds(run));
    (void)printf("%-21s %11s %11s %12s %12s %12s %s\n", "", "", "", "", "", "",
                 "  share of samples read, served by");
    (void)printf("%-21s %11s %11s %12s %12s %12s %7s %7s %7s %7s %7s\n", "policy", "seconds",
                 "stall s", "origin GB", "(fills GB)", "least GB", "origin", "ram", "ssd", "peer",
                 "steady");
    for (uint32_t policy = 0; policy < STK_SIM_POLICIES; policy++)
        if (run->entries[policy].is_wanted)
            print_entry(stk_sim_policy_name(policy), &run->entries[policy]);
}

static void
print_checkpoint(const stk_sim_checkpoint *c)
{
    (void)printf("checkpoint              %.2f GB\n", c->bytes / 1e9);
    (void)printf("one writer              %.2f s\n", c->single_seconds);
    (void)printf("creation                %.1f x = %.2f (one device) x %.2f (devices of a node) x "
                 "%.0f (nodes)\n",
                 c->creation_factor, c->device_factor, c->devices_factor, c->nodes_factor);
    (void)printf("a save                  %.3f s, of which %.3f s may be hidden, stall %.3f s "
                 "(%.2f %% of training)\n",
                 c->seconds, c->overlap_seconds, c->stall_seconds, 100 * c->overhead);
    (void)printf("for no stall            %.1f GB/s of all writers\n", c->required_mb_s / 1e3);
    if (c->optimum_steps > 0)
        (void)printf("with failures           best every %.0f steps (%.2f %% of time lost); as "
                     "configured %.2f %%, simulated %.2f %% with %" PRIu64 " failures\n",
                     c->optimum_steps, 100 * c->optimum_lost_share, 100 * c->configured_lost_share,
                     100 * c->simulated_lost_share, c->simulated_failures);
}

void
sim_report_print(const struct sim_report *report)
{
    (void)printf("scenario: %s\n", report->scenario);
    for (size_t i = 0; i < report->n_runs; i++) {
        const struct sim_run *run = &report->runs[i];

        if (report->sweep_key)
            (void)printf("\n%s = %s\n", report->sweep_key, run->value);
        if (run->has_loader)
            print_policies(run);
        if (run->has_checkpoint)
            print_checkpoint(&run->checkpoint);
    }
}

/* A string of JSON. */
static void
json_string(const char *text)
{
    (void)putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            (void)printf("\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            (void)printf("\\u%04x", (unsigned)*text);
        else
            (void)putchar(*text);
    }
    (void)putchar('"');
}

static void
json_entry(const char *name, const struct sim_entry *entry)
{
    const stk_sim_result *r = &entry->result;

    (void)printf("{\"name\": \"%s\", ", name);
    if (entry->is_refused) {
        (void)fputs("\"refused\": ", stdout);
        json_string(entry->refusal);
        (void)putchar('}');
        return;
    }
    (void)printf("\"seconds\": %.9g, \"setup_seconds\": %.9g, \"stall_seconds\": %.9g, "
                 "\"origin_bytes\": %" PRIu64 ", \"fill_bytes\": %" PRIu64
                 ", \"bound_bytes\": %" PRIu64
                 ", \"steady_origin_share\": %.9g, \"steady_local_share\": %.9g, \"sources\": {",
                 r->seconds, r->setup_seconds, r->stall_seconds, r->origin_bytes, fill_bytes(r),
                 r->bound_bytes, r->steady_origin_share, r->steady_local_share);
    for (int source = 0; source < STK_SIM_SOURCES; source++)
        (void)printf("%s\"%s\": {\"samples\": %" PRIu64 ", \"bytes\": %" PRIu64 "}",
                     source ? ", " : "", source_names[source], r->source_samples[source],
                     r->source_bytes[source]);
    (void)fputs("}}", stdout);
}

static void
json_policies(const struct sim_run *run)
{
    const char *separator = "";

    (void)printf(", \"bound_seconds\": %.9g, \"policies\": [", bound_seconds(run));
    for (uint32_t policy = 0; policy < STK_SIM_POLICIES; policy++) {
        if (!run->entries[policy].is_wanted)
            continue;
        (void)fputs(separator, stdout);
        separator = ", ";
        json_entry(stk_sim_policy_name(policy), &run->entries[policy]);
    }
    (void)putchar(']');
}

/* A number, or null for one that is none. */
static void
json_number(const char *name, double value)
{
    if (isfinite(value))
        (void)printf("\"%s\": %.9g, ", name, value);
    else
        (void)printf("\"%s\": null, ", name);
}

static void
json_checkpoint(const stk_sim_checkpoint *c)
{
    (void)fputs(", \"checkpoint\": {", stdout);
    json_number("bytes", c->bytes);
    json_number("single_seconds", c->single_seconds);
    json_number("creation_factor", c->creation_factor);
    json_number("device_factor", c->device_factor);
    json_number("devices_factor", c->devices_factor);
    json_number("nodes_factor", c->nodes_factor);
    json_number("seconds", c->seconds);
    json_number("overlap_seconds", c->overlap_seconds);
    json_number("stall_seconds", c->stall_seconds);
    json_number("overhead", c->overhead);
    json_number("required_mb_s", c->required_mb_s);
    json_number("optimum_steps", c->optimum_steps);
    json_number("optimum_lost_share", c->optimum_lost_share);
    json_number("configured_lost_share", c->configured_lost_share);
    json_number("simulated_lost_share", c->simulated_lost_share);
    (void)printf("\"simulated_failures\": %" PRIu64 "}", c->simulated_failures);
}

static void
json_run(const struct sim_run *run)
{
    if (run->has_loader)
        json_policies(run);
    if (run->has_checkpoint)
        json_checkpoint(&run->checkpoint);
}

void
sim_report_json(const struct sim_report *report)
{
    (void)fputs("{\"scenario\": ", stdout);
    json_string(report->scenario);
    if (!report->sweep_key) {
        json_run(&report->runs[0]);
        (void)fputs("}\n", stdout);
        return;
    }
    (void)printf(", \"sweep\": \"%s\", \"runs\": [", report->sweep_key);
    for (size_t i = 0; i < report->n_runs; i++) {
        (void)fputs(i ? ", {\"value\": " : "{\"value\": ", stdout);
        json_string(report->runs[i].value);
        json_run(&report->runs[i]);
        (void)putchar('}');
    }
    (void)fputs("]}\n", stdout);
}

/* What is drawn of a policy: seconds, or without a clock the share that the origin
 * serves. */
static double
drawn(const struct sim_run *run, uint32_t policy, bool has_times)
{
    const struct sim_entry *entry = &run->entries[policy];

    if (!entry->is_wanted || entry->is_refused)
        return -1;
    return has_times ? entry->result.seconds : 100 * entry->result.steady_origin_share;
}

static int
draw_bars(const struct sim_report *report, FILE *plot_file, bool has_times)
{
    const struct sim_run *run = &report->runs[0];
    const char *names[STK_SIM_POLICIES];
    double values[STK_SIM_POLICIES];
    struct cli_svg_series series = {"", values};
    struct cli_svg_plot plot = {
        .title = report->scenario,
        .y_label = has_times ? "seconds" : "% of reads after the first epoch from the origin",
        .x_names = names,
        .series = &series,
        .n_series = 1,
    };

    for (uint32_t policy = 0; policy < STK_SIM_POLICIES; policy++) {
        if (!run->entries[policy].is_wanted)
            continue;
        names[plot.n_points] = stk_sim_policy_name(policy);
        values[plot.n_points++] = drawn(run, policy, has_times);
    }
    return cli_svg_bars(plot_file, &plot, has_times ? bound_seconds(run) : -1);
}

static int
draw_lines(const struct sim_report *report, FILE *plot_file, bool has_times)
{
    static double values[STK_SIM_POLICIES][SIM_RUNS_MAX];
    const char *names[SIM_RUNS_MAX];
    struct cli_svg_series series[STK_SIM_POLICIES];
    struct cli_svg_plot plot = {
        .title = report->scenario,
        .x_label = report->sweep_key,
        .y_label = has_times ? "seconds" : "% of reads after the first epoch from the origin",
        .x_names = names,
        .n_points = report->n_runs,
        .series = series,
    };

    for (size_t i = 0; i < report->n_runs; i++)
        names[i] = report->runs[i].value;
    for (uint32_t policy = 0; policy < STK_SIM_POLICIES; policy++) {
        bool is_wanted = false;

        for (size_t i = 0; i < report->n_runs; i++) {
            is_wanted = is_wanted || report->runs[i].entries[policy].is_wanted;
            values[policy][i] = drawn(&report->runs[i], policy, has_times);
        }
        if (!is_wanted)
            continue;
        series[plot.n_series++] =
            (struct cli_svg_series){stk_sim_policy_name(policy), values[policy]};
    }
    return cli_svg_lines(plot_file, &plot);
}

/* Checkpoints: the share of training that a save stalls, by what was swept. */
static int
draw_checkpoints(const struct sim_report *report, FILE *plot_file)
{
    double values[SIM_RUNS_MAX];
    const char *names[SIM_RUNS_MAX];
    struct cli_svg_series series = {"stall", values};
    struct cli_svg_plot plot = {
        .title = report->scenario,
        .x_label = report->sweep_key ? report->sweep_key : "",
        .y_label = "stall, % of training",
        .x_names = names,
        .n_points = report->n_runs,
        .series = &series,
        .n_series = 1,
    };

    for (size_t i = 0; i < report->n_runs; i++) {
        values[i] = 100 * report->runs[i].checkpoint.overhead;
        names[i] = report->runs[i].value ? report->runs[i].value : report->scenario;
    }
    return report->sweep_key ? cli_svg_lines(plot_file, &plot) : cli_svg_bars(plot_file, &plot, -1);
}

int
sim_report_svg(const struct sim_report *report, FILE *plot_file)
{
    size_t at = 0;

    while (at < report->n_runs && !report->runs[at].has_loader)
        at++;
    if (at == report->n_runs)
        return draw_checkpoints(report, plot_file);
    bool has_times = bound_seconds(&report->runs[at]) > 0;

    return report->sweep_key ? draw_lines(report, plot_file, has_times)
                             : draw_bars(report, plot_file, has_times);
}
