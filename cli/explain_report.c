/* SPDX-License-Identifier: Apache-2.0 */
/* The report of "stoker explain" and of "bench load --explain": a row for each epoch, or
 * an object with the same keys for the whole run and each epoch; keys are only ever
 * added. */
#include "explain_report.h"

#include <inttypes.h>
#include <stdio.h>

#include "args.h"
#include "json_text.h"

static const char *const tier_names[] = {"ram", "ssd", "peer", "origin", "compute"};

static json_int_t
count(uint64_t value)
{
    return (json_int_t)value; /* bytes and samples of one run */
}

static json_t *
tiers_json(const uint64_t *values)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "ram", count(values[STK_TIER_RAM]), "ssd",
                     count(values[STK_TIER_SSD]), "peer", count(values[STK_TIER_PEER]), "origin",
                     count(values[STK_TIER_ORIGIN]));
}

static json_t *
phase_json(const stk_explained *phase)
{
    return json_pack(
        "{s:I, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:f, s:f, s:f, s:s}", "batches",
        count(phase->batches), "samples", count(phase->samples), "bytes", count(phase->bytes),
        "sources", tiers_json(phase->tier_samples), "source_bytes", tiers_json(phase->tier_bytes),
        "origin_bytes", count(phase->tier_bytes[STK_TIER_ORIGIN]), "bound_bytes",
        count(phase->bound_bytes), "ssd_written_bytes", count(phase->ssd_written_bytes),
        "required_bytes_per_s", phase->required_bytes_per_s, "seconds", phase->seconds,
        "stall_fraction", phase->stall_fraction, "limit", tier_names[phase->limit]);
}

json_t *
explained_json(const struct explained *explained)
{
    json_t *run = phase_json(&explained->run);
    json_t *list = json_array();
    int bad = !run || !list;

    for (uint32_t k = 0; !bad && k < explained->n_epochs; k++)
        if (explained->epochs[k].batches > 0)
            bad = json_array_append_new(list, phase_json(&explained->epochs[k]));
    bad = bad || json_object_set(run, "epochs", list);
    json_decref(list);
    if (bad) {
        json_decref(run);
        return NULL;
    }
    return run;
}

static json_t *
cost_json(const stk_cost *cost)
{
    if (!(cost->bytes_per_s > 0))
        return json_null();
    return json_pack("{s:f, s:f, s:f}", "depth", cost->depth, "latency_s", cost->latency_s,
                     "bytes_per_s", cost->bytes_per_s);
}

json_t *
costs_json(const stk_costs *costs)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "ram", cost_json(&costs->tiers[STK_TIER_RAM]), "ssd",
                     cost_json(&costs->tiers[STK_TIER_SSD]), "peer",
                     cost_json(&costs->tiers[STK_TIER_PEER]), "origin",
                     cost_json(&costs->tiers[STK_TIER_ORIGIN]));
}

static void
print_phase(const char *title, const stk_explained *phase)
{
    (void)printf("%-8s %11.2f %11.2f %11.2f %11.2f %10.3f %9.3f %8.2f  %s\n", title,
                 (double)phase->tier_bytes[STK_TIER_RAM] * 1e-6,
                 (double)phase->tier_bytes[STK_TIER_SSD] * 1e-6,
                 (double)phase->tier_bytes[STK_TIER_ORIGIN] * 1e-6,
                 (double)phase->bound_bytes * 1e-6, phase->required_bytes_per_s * 1e-9,
                 phase->seconds, 100 * phase->stall_fraction, tier_names[phase->limit]);
}

void
explained_print(const struct explained *explained)
{
    char title[24];

    (void)puts("told          RAM MB      SSD MB   origin MB    bound MB  need GB/s   seconds"
               "  stall %  limit");
    for (uint32_t k = 0; k < explained->n_epochs; k++) {
        if (explained->epochs[k].batches == 0)
            continue;
        (void)snprintf(title, sizeof(title), "%" PRIu64, explained->epochs[k].epoch);
        print_phase(title, &explained->epochs[k]);
    }
    print_phase("all", &explained->run);
}

/* Shares of the tiers behind the first epoch; zeros where there is nothing behind it. */
struct shares {
    double of[STK_TIERS];
};

static struct shares
shares_of(const uint64_t *run_samples, const uint64_t *first_samples)
{
    struct shares shares = {{0}};
    double n = 0;

    for (int tier = 0; tier < STK_TIERS; tier++)
        n += (double)(run_samples[tier] - first_samples[tier]);
    for (int tier = 0; n > 0 && tier < STK_TIERS; tier++)
        shares.of[tier] = (double)(run_samples[tier] - first_samples[tier]) / n;
    return shares;
}

static const char *const share_names[] = {"run", "told", "paper"};
#define N_SHARES (sizeof(share_names) / sizeof(share_names[0]))

static void
find_shares(const struct bench_load_result *result, struct shares *shares)
{
    static const uint64_t none[STK_TIERS] = {0};
    const struct explained *explained = &result->explained;

    shares[0] = shares_of(result->total.loader.tier_samples, result->epochs[0].loader.tier_samples);
    shares[1] = shares_of(explained->run.tier_samples, explained->epochs[0].tier_samples);
    shares[2] = shares_of(explained->paper_samples, none);
}

json_t *
shares_json(const struct bench_load_result *result)
{
    struct shares shares[N_SHARES];
    json_t *object = json_object();

    find_shares(result, shares);
    for (size_t at = 0; object && at < N_SHARES; at++) {
        const double *of = shares[at].of;

        if (json_object_set_new(object, share_names[at],
                                json_pack("{s:f, s:f, s:f}", "local",
                                          of[STK_TIER_RAM] + of[STK_TIER_SSD], "peer",
                                          of[STK_TIER_PEER], "origin", of[STK_TIER_ORIGIN]))) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

void
shares_print(const struct bench_load_result *result)
{
    struct shares shares[N_SHARES];

    find_shares(result, shares);
    (void)puts("from the second epoch on    local %  peer %  origin %");
    for (size_t at = 0; at < N_SHARES; at++)
        (void)printf("  %-24s  %7.1f %7.1f %9.1f\n", share_names[at],
                     100 * (shares[at].of[STK_TIER_RAM] + shares[at].of[STK_TIER_SSD]),
                     100 * shares[at].of[STK_TIER_PEER], 100 * shares[at].of[STK_TIER_ORIGIN]);
}

int
explain_report_text(const char *command, const struct bench_load_request *request,
                    const struct bench_load_result *result)
{
    const stk_cost *origin = &result->costs.tiers[STK_TIER_ORIGIN];
    const stk_cost *ssd = &result->costs.tiers[STK_TIER_SSD];

    (void)printf("%s: %" PRIu64 " samples, %.1f MB\n", request->data.paths[0],
                 result->dataset.samples, (double)result->dataset.bytes * 1e-6);
    if (origin->bytes_per_s > 0)
        (void)printf("origin: %.1f MB/s, %.0f us\n", origin->bytes_per_s * 1e-6,
                     origin->latency_s * 1e6);
    else
        (void)puts("origin: nothing is known of its speed (--origin-rate), so it takes no time");
    if (ssd->bytes_per_s > 0)
        (void)printf("ssd:    %.1f MB/s, %.0f us\n", ssd->bytes_per_s * 1e-6, ssd->latency_s * 1e6);
    explained_print(&result->explained);
    return cli_finish(command);
}

int
explain_report_json(const char *command, const struct bench_load_request *request,
                    const struct bench_load_result *result)
{
    json_t *object = explained_json(&result->explained);
    int bad = !object;

    bad = bad || json_object_set_new(object, "dataset", cli_json_text(request->data.paths[0]));
    bad = bad || json_object_set_new(object, "costs", costs_json(&result->costs));
    bad = bad || json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(object);
    if (bad)
        return cli_error(command, "the result cannot be written as JSON");
    (void)putchar('\n'); /* checked at the end */
    return cli_finish(command);
}
