/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stoker simulate: what a scenario's I/O costs under each policy. A computation that
 * holds nothing, so SIGINT may end it at any point.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stoker/simulate.h>

#include "args.h"
#include "cmd.h"
#include "scenario_file.h"
#include "simulate_report.h"

const char cmd_simulate_help[] =
    "Usage: stoker simulate SCENARIO.json [OPTION...]\n"
    "       stoker simulate --builtin NAME [OPTION...]\n"
    "       stoker simulate --list\n"
    "\n"
    "Simulates a training run's I/O, or its checkpoints, on machines that need not exist.\n"
    "\n"
    "Scenario\n"
    "  --builtin NAME        start from a built-in scenario; --list names them\n"
    "  --set KEY=VALUE       change a key; may be given 32 times\n"
    "  --sweep KEY=A,B,C     simulate once for each value\n"
    "\n"
    "Policies\n"
    "  --policy NAME         one, or several with commas; may be given several times.\n"
    "                        all (default): perfect, naive, staging, deepio-ordered,\n"
    "                        deepio-opportunistic, parallel-staging, lbann-dynamic,\n"
    "                        lbann-preloading, locality-aware, paper, coordinated, next-use,\n"
    "                        lru\n"
    "  --why SAMPLE          say where a sample is under each policy and why, and no more\n"
    "\n"
    "Output\n"
    "  --json                print one JSON object\n"
    "  --svg FILE            draw bars per policy with the bound, or a sweep's lines\n"
    "  --list                print the built-in scenarios and the keys of scenarios\n";

struct request {
    const char *builtin;
    const char *file;
    const char *sweep;
    const char *svg;
    struct cli_texts policies;
    struct cli_texts settings;
    bool json;
    bool list;
    bool asks_why;
    uint64_t why;
    bool wanted[STK_SIM_POLICIES];
    char sweep_key[64];
    char sweep_values[1024]; /* one after the other, each ended by a zero */
    size_t n_values;
};

static void
list_json(void)
{
    const char *name;

    (void)fputs("{\"scenarios\": [", stdout);
    for (uint32_t i = 0; (name = stk_scenario_builtin(i, NULL)) != NULL; i++)
        (void)printf("%s\"%s\"", i ? ", " : "", name);
    (void)fputs("], \"policies\": [", stdout);
    for (uint32_t i = 0; (name = stk_sim_policy_name(i)) != NULL; i++)
        (void)printf("%s\"%s\"", i ? ", " : "", name);
    (void)fputs("]}\n", stdout);
}

static void
list_people(void)
{
    const char *name;
    const char *summary;
    stk_scenario_key_info info;

    (void)fputs("Built-in scenarios\n", stdout);
    for (uint32_t i = 0; (name = stk_scenario_builtin(i, &summary)) != NULL; i++)
        (void)printf("  %-18s %s\n", name, summary);
    (void)fputs("\nKeys (MB = 10^6 bytes)\n", stdout);
    for (uint32_t i = 0; stk_scenario_key(i, &info) == 0; i++)
        (void)printf("  %-18s %s (%s)\n", info.key, info.help, info.range);
}

/* Marks the policies that a list of names has. Returns 0, or a usage error. */
static int
want_policies(struct request *request, const char *list)
{
    if (!*list)
        return cli_usage_error("simulate", "--policy is empty; it must be a policy's name, or all");
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ",");
        bool is_all = n == 3 && !strncmp(at, "all", n);
        bool is_known = is_all;

        for (uint32_t policy = 0; policy < STK_SIM_POLICIES; policy++) {
            const char *name = stk_sim_policy_name(policy);

            if (!is_all && (strlen(name) != n || strncmp(name, at, n) != 0))
                continue;
            request->wanted[policy] = true;
            is_known = true;
        }
        if (!is_known)
            return cli_usage_error("simulate", "--policy: there is no policy '%.*s'", (int)n, at);
        at += n + (at[n] == ',');
    }
    return CLI_OK;
}

static int
read_policies(struct request *request)
{
    int rc = CLI_OK;

    if (request->policies.count == 0)
        return want_policies(request, "all");
    for (size_t i = 0; !rc && i < request->policies.count; i++)
        rc = want_policies(request, request->policies.items[i]);
    return rc;
}

static int
read_sweep(struct request *request)
{
    const char *values = request->sweep ? strchr(request->sweep, '=') : NULL;
    size_t n_key = values ? (size_t)(values - request->sweep) : 0;

    if (!request->sweep) {
        request->n_values = 1;
        return CLI_OK;
    }
    if (!values || n_key == 0 || n_key >= sizeof(request->sweep_key) || !values[1] ||
        strlen(values) > sizeof(request->sweep_values))
        return cli_usage_error("simulate", "--sweep is '%s'; it must be KEY=VALUE,VALUE,...",
                               request->sweep);
    memcpy(request->sweep_key, request->sweep, n_key);
    memcpy(request->sweep_values, values + 1, strlen(values + 1));
    request->n_values = 1;
    for (char *at = request->sweep_values; *at; at++)
        if (*at == ',') {
            *at = '\0';
            request->n_values++;
        }
    if (request->n_values > SIM_RUNS_MAX)
        return cli_usage_error("simulate", "--sweep has more than %d values", SIM_RUNS_MAX);
    return CLI_OK;
}

static int
read_request(struct request *request, int argc, char **argv)
{
    const struct cli_option options[] = {
        {.name = "builtin", .kind = CLI_TEXT, .value = &request->builtin},
        {.name = "policy", .kind = CLI_TEXTS, .value = &request->policies},
        {.name = "set", .kind = CLI_TEXTS, .value = &request->settings},
        {.name = "sweep", .kind = CLI_TEXT, .value = &request->sweep},
        {.name = "svg", .kind = CLI_TEXT, .value = &request->svg},
        {.name = "json", .kind = CLI_FLAG, .value = &request->json},
        {.name = "why", .kind = CLI_U64, .value = &request->why, .given = &request->asks_why},
        {.name = "list", .kind = CLI_FLAG, .value = &request->list},
    };
    int rc;

    if (cli_parse(argc, argv, options, sizeof(options) / sizeof(options[0]), &request->file, 1) < 0)
        return CLI_USAGE;
    if (request->list)
        return CLI_OK;
    if (!request->file == !request->builtin)
        return cli_usage_error("simulate", "give either a SCENARIO.json or --builtin NAME");
    if (request->asks_why && (request->sweep || request->json || request->svg))
        return cli_usage_error("simulate",
                               "--why says it in words for one run: leave out --sweep, --json "
                               "and --svg");
    rc = read_policies(request);
    return rc ? rc : read_sweep(request);
}

/* The next of the sweep's values. */
static const char *
next_value(const char *value)
{
    return value + strlen(value) + 1;
}

static int
apply_settings(const struct request *request, stk_scenario *scenario)
{
    stk_error err;

    for (size_t i = 0; i < request->settings.count; i++) {
        const char *text = request->settings.items[i];
        size_t n_key = strcspn(text, "=");
        char key[64] = "";

        if (!text[n_key] || n_key == 0 || n_key >= sizeof(key))
            return cli_usage_error("simulate", "--set is '%s'; it must be KEY=VALUE", text);
        memcpy(key, text, n_key);
        if (stk_scenario_set(scenario, key, text + n_key + 1, &err))
            return cli_usage_error("simulate", "--set: %s", err.message);
    }
    return CLI_OK;
}

static int
load_scenario(const struct request *request, stk_scenario **ret_scenario)
{
    char message[1024];
    stk_error err;

    if (request->file) {
        if (cli_scenario_load(request->file, ret_scenario, message, sizeof(message)))
            return cli_error("simulate", "%s", message);
    } else if (stk_scenario_new(ret_scenario, request->builtin, &err)) {
        return cli_usage_error("simulate", "%s", err.message);
    }
    int rc = apply_settings(request, *ret_scenario);
    if (rc)
        stk_scenario_free(*ret_scenario);
    return rc;
}

static int
simulate_run(const struct request *request, const stk_scenario *scenario, struct sim_run *run)
{
    stk_error err;

    run->has_loader = stk_scenario_has_loader(scenario) != 0;
    run->has_checkpoint = stk_scenario_has_checkpoint(scenario) != 0;
    if (run->has_checkpoint && stk_simulate_checkpoint(scenario, &run->checkpoint, &err))
        return cli_error("simulate", "%s", err.message);
    for (uint32_t policy = 0; policy < STK_SIM_POLICIES; policy++) {
        struct sim_entry *entry = &run->entries[policy];

        entry->is_wanted = request->wanted[policy] && run->has_loader;
        if (!entry->is_wanted)
            continue;
        int rc = stk_simulate(scenario, (stk_sim_policy)policy, &entry->result, &err);
        if (rc && rc != STK_E_INFEASIBLE)
            return cli_error("simulate", "%s", err.message);
        if (rc) {
            entry->is_refused = true;
            memcpy(entry->refusal, err.message, sizeof(entry->refusal));
        }
    }
    return CLI_OK;
}

/* Says where one sample is. */
static int
simulate_why(const struct request *request, const stk_scenario *scenario)
{
    stk_error err;

    for (uint32_t policy = 0; policy < STK_SIM_POLICIES; policy++) {
        static char text[4096];

        if (!request->wanted[policy])
            continue;
        int rc = stk_simulate_why(scenario, (stk_sim_policy)policy, request->why, text,
                                  sizeof(text), &err);
        if (rc && rc != STK_E_INFEASIBLE)
            return cli_error("simulate", "%s", err.message);
        if (rc)
            (void)printf("policy %s: %s\n", stk_sim_policy_name(policy), err.message);
        else
            (void)fputs(text, stdout);
    }
    return cli_finish("simulate");
}

static int
simulate_all(const struct request *request, stk_scenario *scenario, struct sim_report *report)
{
    const char *value = request->sweep_values;
    stk_error err;
    int rc = CLI_OK;

    for (size_t i = 0; !rc && i < request->n_values; i++, value = next_value(value)) {
        if (request->sweep && stk_scenario_set(scenario, request->sweep_key, value, &err))
            return cli_usage_error("simulate", "--sweep: %s", err.message);
        report->runs[i].value = request->sweep ? value : NULL;
        if (stk_scenario_check(scenario, &err))
            return cli_error("simulate", "%s", err.message);
        rc = simulate_run(request, scenario, &report->runs[i]);
    }
    return rc;
}

static int
report_all(const struct request *request, const struct sim_report *report, FILE *plot)
{
    if (request->json)
        sim_report_json(report);
    else
        sim_report_print(report);
    if (plot && sim_report_svg(report, plot))
        return cli_error("simulate", "cannot write %s: %s", request->svg, strerrordesc_np(errno));
    return cli_finish("simulate");
}

/* Opens the plot before the run, which may take long, and leaves what is there until it
 * has been run. Returns NULL with errno set. */
static FILE *
open_plot(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    FILE *plot = fd >= 0 ? fdopen(fd, "w") : NULL;

    if (fd >= 0 && !plot)
        (void)close(fd); /* nothing was written */
    return plot;
}

static int
simulate_and_report(const struct request *request, stk_scenario *scenario,
                    struct sim_report *report)
{
    FILE *plot = request->svg ? open_plot(request->svg) : NULL;

    if (request->svg && !plot)
        return cli_error("simulate", "cannot write %s: %s", request->svg, strerrordesc_np(errno));
    int rc = simulate_all(request, scenario, report);
    if (!rc)
        return report_all(request, report, plot);
    if (plot)
        (void)fclose(plot); /* nothing was written */
    return rc;
}

static int
simulate(const struct request *request)
{
    struct sim_report report = {.sweep_key = request->sweep ? request->sweep_key : NULL,
                                .n_runs = request->n_values};
    stk_scenario *scenario;
    int rc = load_scenario(request, &scenario);

    if (rc)
        return rc;
    if (request->asks_why) {
        rc = simulate_why(request, scenario);
        stk_scenario_free(scenario);
        return rc;
    }
    report.runs = calloc(report.n_runs, sizeof(*report.runs));
    (void)snprintf(report.scenario, sizeof(report.scenario), "%s", stk_scenario_name(scenario));
    rc = report.runs ? simulate_and_report(request, scenario, &report)
                     : cli_error("simulate", "no memory for %zu runs", report.n_runs);
    free(report.runs);
    stk_scenario_free(scenario);
    return rc;
}

int
cmd_simulate(int argc, char **argv)
{
    static struct request request; /* large for a stack */
    int rc = read_request(&request, argc, argv);

    if (rc)
        return rc;
    if (!request.list)
        return simulate(&request);
    if (request.json)
        list_json();
    else
        list_people();
    return cli_finish("simulate");
}
