/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys of a scenario: one table from which values are read, checked and explained, so
 * that a file, an option and the documentation cannot differ. A value that was accepted
 * is within its range; sti_scenario_check() looks at what ranges cannot say.
 */
#include "sim/scenario.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

#define NODES_MAX 16384

enum kind { KIND_COUNT, KIND_REAL, KIND_BY_NODE, KIND_WORD, KIND_CURVE, KIND_NAME };

struct key {
    const char *name;
    enum kind kind;
    size_t offset;
    double low;
    double high;
    const char *range; /* of a word: the words, one blank between, in the order of their values */
    const char *help;
};

#define COUNT(name, field, low, high, help)                                                        \
    {                                                                                              \
        name, KIND_COUNT, offsetof(struct sti_scenario, field), low, high, #low " .. " #high, help \
    }
#define REAL(name, field, low, high, help)                                                        \
    {                                                                                             \
        name, KIND_REAL, offsetof(struct sti_scenario, field), low, high, #low " .. " #high, help \
    }
#define BY_NODE(name, field, low, high, help)                                        \
    {                                                                                \
        name, KIND_BY_NODE, offsetof(struct sti_scenario, field), low, high,         \
            #low " .. " #high ", or NODE:VALUE ... from node 0 on, 16 at most", help \
    }
#define WORD(name, field, words, help)                                           \
    {                                                                            \
        name, KIND_WORD, offsetof(struct sti_scenario, field), 0, 0, words, help \
    }

static const struct key keys[] = {
    {"name", KIND_NAME, offsetof(struct sti_scenario, name), 0, 0,
     "1 .. 63 bytes, UTF-8 without control characters", "what reports call it"},
    WORD("mode", mode, "honest published",
         "a share is a share; or the habits of the published simulator"),
    COUNT("samples", samples, 0, 2000000000, "of the data set; 0: no loader is simulated"),
    REAL("sample_mb", sample_mb, 1e-6, 4000, "mean size of a sample"),
    REAL("sample_sigma_mb", sample_sigma_mb, 0, 4000,
         "standard deviation of the sizes; below zero is drawn again"),
    COUNT("ranks", ranks, 1, 16384, "training processes"),
    COUNT("node_ranks", node_ranks, 1, 16384, "ranks of a node; they share its tiers and network"),
    COUNT("batch", batch, 1, 1000000, "samples of a rank in a step"),
    COUNT("epochs", epochs, 1, 10000, "of the run"),
    COUNT("horizon_epochs", horizon_epochs, 0, 10000, "epochs known ahead; 0: the whole run"),
    WORD("drop_last", drop_last, "no yes", "leave out the incomplete last step of an epoch"),
    WORD("relief", no_relief, "yes no",
         "policy coordinated: ranks with spare room serve for those that are slow to serve"),
    COUNT("seed", seed, 0, 4294967295, "of sizes, order and ties"),
    WORD("order", keyed, "torch keyed", "as stoker order has them"),
    WORD("ties", ties, "random id unstable",
         "policy paper, samples read equally often: at random per rank, by id, or as a library's "
         "sort leaves them"),
    BY_NODE("compute_mb_s", compute_mb_s, 1e-6, 1e9, "a rank's training, in sample bytes"),
    BY_NODE("decode_mb_s", decode_mb_s, 1e-6, 1e9, "decoding by one thread"),
    COUNT("decode_threads", decode_threads, 0, 256,
          "of a rank, that decode; 0: each fetching thread does"),
    BY_NODE("net_mb_s", net_mb_s, 1e-6, 1e9, "network, into a node and out of it"),
    REAL("net_latency_ms", net_latency_ms, 0, 1e6, "of a request to another node"),
    BY_NODE("origin_link_mb_s", origin_link_mb_s, 1e-6, 1e9,
            "network, from the origin into a node"),
    REAL("origin_latency_ms", origin_latency_ms, 0, 1e6, "of one read"),
    {"origin_mb_s", KIND_CURVE, offsetof(struct sti_scenario, origin), 0, 0,
     "CLIENTS:MB/S ..., clients rising, 1 .. 16 points",
     "rate of the origin with so many ranks reading, of all together"},
    REAL("staging_mb", tiers[0].capacity_mb.value[0], 1e-6, 1e9,
         "of a rank, for samples ahead of use"),
    COUNT("staging_threads", tiers[0].threads, 1, 4096, "samples that a rank fetches at a time"),
    REAL("staging_mb_s", tiers[0].mb_s.value[0], 1e-6, 1e9,
         "writing into it, all threads together"),
    BY_NODE("ram_mb", tiers[1].capacity_mb, 0, 1e9, "of a node, for samples that stay"),
    COUNT("ram_threads", tiers[1].threads, 1, 4096, "of a rank, that fill it at a time"),
    BY_NODE("ram_mb_s", tiers[1].mb_s, 1e-6, 1e9, "reading it, all ranks of the node together"),
    REAL("ram_latency_ms", tiers[1].latency_ms, 0, 1e6, "of a read"),
    BY_NODE("ssd_mb", tiers[2].capacity_mb, 0, 1e9, "of a node"),
    COUNT("ssd_threads", tiers[2].threads, 1, 4096, "of a rank, that fill it at a time"),
    BY_NODE("ssd_mb_s", tiers[2].mb_s, 1e-6, 1e9, "reading it, all ranks of the node together"),
    BY_NODE("ssd_write_mb_s", tiers[2].write_mb_s, 0, 1e9, "writing it; 0: as reading"),
    REAL("ssd_latency_ms", tiers[2].latency_ms, 0, 1e6, "of a read"),
    REAL("capacity", capacity, 0, 1000,
         "RAM and SSD of all nodes together as a multiple of the data set, in place of ram_mb; "
         "0: by ram_mb and ssd_mb"),
    WORD("timing", timing, "no yes", "no: only what is read from where, in no time"),
    REAL("ckpt_mb", checkpoint.mb, 0, 1e9, "of a checkpoint; 0: none is written"),
    REAL("ckpt_single_mb_s", checkpoint.single_mb_s, 1e-3, 1e9,
         "of the one writer that it is compared with"),
    REAL("ckpt_device_mb_s", checkpoint.device_mb_s, 1e-3, 1e9, "of one device, written well"),
    COUNT("ckpt_devices", checkpoint.devices, 1, 1024, "of a node that are written at once"),
    COUNT("ckpt_nodes", checkpoint.nodes, 1, 65536, "that write at once"),
    REAL("ckpt_efficiency", checkpoint.efficiency, 0.001, 1,
         "of all devices together against their sum"),
    COUNT("ckpt_every_steps", checkpoint.every_steps, 1, 1000000000, "steps between two saves"),
    WORD("ckpt_to", checkpoint.to_origin, "ssd origin",
         "beside a loader, saves share the node's SSD or the origin with its reads"),
    REAL("ckpt_step_s", checkpoint.step_seconds, 1e-6, 1e6,
         "of one step, for what is said of a save; beside a loader, steps last as long as they do"),
    REAL("ckpt_overlap_s", checkpoint.overlap_seconds, 0, 1e6,
         "of a step in which the weights do not change: forward and backward of all "
         "accumulation steps"),
    REAL("mtbf_hours", checkpoint.mtbf_hours, 0, 1e9, "between failures of the job; 0: none"),
    REAL("restart_s", checkpoint.restart_seconds, 0, 1e9, "after a failure until training goes on"),
    COUNT("run_steps", checkpoint.steps, 1, 1000000000, "of the run in which failures are drawn"),
};

#define N_KEYS (sizeof(keys) / sizeof(keys[0]))

/* The same on every node. */
#define ALIKE(number)                     \
    {                                     \
        .n_steps = 1, .value = { number } \
    }

void
sti_scenario_init(struct sti_scenario *scenario)
{
    *scenario = (struct sti_scenario){
        .name = "unnamed",
        .samples = 100000,
        .sample_mb = 0.1,
        .ranks = 4,
        .node_ranks = 1,
        .batch = 32,
        .epochs = 5,
        .compute_mb_s = ALIKE(100),
        .decode_mb_s = ALIKE(200),
        .net_mb_s = ALIKE(10000),
        .origin_link_mb_s = ALIKE(2000),
        .origin = {.n_points = 1, .x = {1}, .y = {1000}},
        .tiers = {{ALIKE(1024), 8, ALIKE(20000), ALIKE(0), 0},
                  {ALIKE(0), 2, ALIKE(20000), ALIKE(0), 0},
                  {ALIKE(0), 2, ALIKE(2000), ALIKE(0), 0}},
        .timing = 1,
        .checkpoint = {.single_mb_s = 700,
                       .device_mb_s = 2500,
                       .devices = 1,
                       .nodes = 1,
                       .efficiency = 1,
                       .every_steps = 1,
                       .step_seconds = 1,
                       .overlap_seconds = 0.9,
                       .restart_seconds = 300,
                       .steps = 100000},
    };
}

static int
refuse(const struct key *key, const char *value, stk_error *err)
{
    return sti_error_set(err, -EINVAL, "%s is '%.80s'; it must be %s%s", key->name, value,
                         key->kind == KIND_WORD ? "one of: " : "", key->range);
}

/* A number that begins a text; false where there is none. */
static bool
read_number(const char *text, double *ret_value, const char **ret_end)
{
    char *end;

    /* strtod() would take blanks, hexadecimal digits, "inf" and "nan". */
    size_t n_digits = strspn(text, "0123456789.-+");
    if (n_digits == 0 || text[n_digits] == 'x' || text[n_digits] == 'X')
        return false;
    *ret_value = strtod(text, &end);
    *ret_end = end;
    return end != text && isfinite(*ret_value);
}

static int
set_number(const struct key *key, void *field, const char *text, stk_error *err)
{
    const char *end;
    double value;

    if (!read_number(text, &value, &end) || *end || value < key->low || value > key->high)
        return refuse(key, text, err);
    if (key->kind != KIND_COUNT) {
        *(double *)field = value;
        return 0;
    }
    if (value > floor(value))
        return refuse(key, text, err);
    *(uint64_t *)field = (uint64_t)value;
    return 0;
}

/* One number for all nodes, or steps of them. */
static int
set_by_node(const struct key *key, struct sti_by_node *field, const char *text, stk_error *err)
{
    struct sti_by_node by_node = {0};
    const char *at = text;
    double from;

    if (!strchr(text, ':')) {
        by_node.n_steps = 1;
        int rc = set_number(key, &by_node.value[0], text, err);
        if (!rc)
            *field = by_node;
        return rc;
    }
    for (at += strspn(at, " "); *at; at += strspn(at, " ")) {
        uint32_t n = by_node.n_steps;

        if (n == STI_SIM_STEPS_MAX || !read_number(at, &from, &at) || *at != ':' ||
            !read_number(at + 1, &by_node.value[n], &at) || (*at && *at != ' ') || from < 0 ||
            from >= NODES_MAX || from > floor(from) || by_node.value[n] < key->low ||
            by_node.value[n] > key->high)
            return refuse(key, text, err);
        by_node.from[n] = (uint32_t)from;
        if (n ? by_node.from[n] <= by_node.from[n - 1] : by_node.from[n] != 0)
            return refuse(key, text, err);
        by_node.n_steps++;
    }
    if (by_node.n_steps == 0)
        return refuse(key, text, err);
    *field = by_node;
    return 0;
}

static int
set_word(const struct key *key, uint64_t *field, const char *text, stk_error *err)
{
    const char *at = key->range;
    size_t n_chars = strlen(text);

    for (uint64_t value = 0; *at; value++) {
        size_t n = strcspn(at, " ");

        if (n == n_chars && !strncmp(at, text, n)) {
            *field = value;
            return 0;
        }
        at += n + (at[n] == ' ');
    }
    return refuse(key, text, err);
}

static int
set_curve(const struct key *key, struct sti_curve *field, const char *text, stk_error *err)
{
    struct sti_curve curve = {0};
    const char *at = text;

    for (;;) {
        uint32_t n = curve.n_points;

        at += strspn(at, " ");
        if (!*at)
            break;
        if (n == STI_CURVE_POINTS_MAX || !read_number(at, &curve.x[n], &at) || *at != ':' ||
            !read_number(at + 1, &curve.y[n], &at) || (*at && *at != ' ') ||
            curve.x[n] < (n ? nextafter(curve.x[n - 1], HUGE_VAL) : 1e-6) || curve.x[n] > 1e9 ||
            curve.y[n] < 1e-6 || curve.y[n] > 1e12)
            return refuse(key, text, err);
        curve.n_points++;
    }
    if (curve.n_points == 0)
        return refuse(key, text, err);
    *field = curve;
    return 0;
}

static int
set_name(const struct key *key, char *field, const char *text, stk_error *err)
{
    size_t n_chars = strlen(text);

    /* Reports put it into JSON and SVG; the latter cannot have control characters at all. */
    for (size_t at = 0; at < n_chars; at++)
        if ((unsigned char)text[at] < ' ' || text[at] == '\x7f')
            return sti_error_set(err, -EINVAL, "name has a control character; leave it out");
    if (!sti_utf8_is_valid(text))
        return sti_error_set(err, -EINVAL, "name is not UTF-8; write it in UTF-8");
    if (n_chars == 0 || n_chars >= sizeof(((struct sti_scenario *)NULL)->name))
        return refuse(key, text, err);
    memcpy(field, text, n_chars + 1);
    return 0;
}

int
sti_scenario_set(struct sti_scenario *scenario, const char *name, const char *value, stk_error *err)
{
    for (size_t i = 0; i < N_KEYS; i++) {
        const struct key *key = &keys[i];
        void *field = (char *)scenario + key->offset;

        if (strcmp(key->name, name) != 0)
            continue;
        switch (key->kind) {
        case KIND_COUNT:
        case KIND_REAL:
            return set_number(key, field, value, err);
        case KIND_BY_NODE:
            return set_by_node(key, field, value, err);
        case KIND_WORD:
            return set_word(key, field, value, err);
        case KIND_CURVE:
            return set_curve(key, field, value, err);
        case KIND_NAME:
            return set_name(key, field, value, err);
        }
    }
    return sti_error_set(err, -ENOENT, "a scenario has no key '%.80s'", name);
}

int
sti_scenario_key(uint32_t idx, stk_scenario_key_info *ret_info)
{
    if (idx >= N_KEYS)
        return -ENOENT;
    *ret_info = (stk_scenario_key_info){keys[idx].name, keys[idx].range, keys[idx].help};
    return 0;
}

uint64_t
sti_scenario_nodes(const struct sti_scenario *scenario)
{
    return (scenario->ranks + scenario->node_ranks - 1) / scenario->node_ranks;
}

uint64_t
sti_scenario_steps(const struct sti_scenario *scenario)
{
    uint64_t per_step = scenario->ranks * scenario->batch;

    return scenario->drop_last ? scenario->samples / per_step
                               : (scenario->samples + per_step - 1) / per_step;
}

/* Values by node: of nodes that are there, and in the honest mode only. */
static int
check_nodes(const struct sti_scenario *scenario, stk_error *err)
{
    bool is_published = scenario->mode == STI_SIM_PUBLISHED;

    if (is_published && scenario->node_ranks > 1)
        return sti_error_set(err, -EINVAL, "node_ranks is %llu; mode published has 1 only",
                             (unsigned long long)scenario->node_ranks);
    for (size_t i = 0; i < N_KEYS; i++) {
        const struct sti_by_node *by_node = (const void *)((const char *)scenario + keys[i].offset);

        if (keys[i].kind != KIND_BY_NODE)
            continue;
        if (is_published && by_node->n_steps > 1)
            return sti_error_set(err, -EINVAL, "%s is by node; mode published has one for all",
                                 keys[i].name);
        uint32_t last = by_node->from[by_node->n_steps - 1];
        if (last >= sti_scenario_nodes(scenario))
            return sti_error_set(err, -EINVAL, "%s has a value for node %u; there are %llu nodes",
                                 keys[i].name, last,
                                 (unsigned long long)sti_scenario_nodes(scenario));
    }
    return 0;
}

/* A loader's checkpoints go to SSDs that there are. Only checkpoints need none: their
 * devices are counted by ckpt_devices. */
static int
check_ssds(const struct sti_scenario *scenario, stk_error *err)
{
    const struct sti_by_node *ssd_mb = &scenario->tiers[STI_SIM_SSD_TIER].capacity_mb;

    if (scenario->checkpoint.mb <= 0 || scenario->checkpoint.to_origin || !scenario->timing ||
        scenario->mode == STI_SIM_PUBLISHED)
        return 0;
    for (uint64_t node = 0; node < sti_scenario_nodes(scenario); node++)
        if (sti_by_node_at(ssd_mb, node) <= 0)
            return sti_error_set(err, -EINVAL,
                                 "ckpt_mb is %g and goes to SSDs, but ssd_mb is 0 on node %llu: "
                                 "set ssd_mb, or ckpt_to to origin",
                                 scenario->checkpoint.mb, (unsigned long long)node);
    return 0;
}

int
sti_scenario_check(const struct sti_scenario *scenario, stk_error *err)
{
    const struct sti_sim_checkpoint_spec *checkpoint = &scenario->checkpoint;

    if (scenario->samples == 0 && checkpoint->mb <= 0)
        return sti_error_set(err, -EINVAL, "samples and ckpt_mb are both 0: nothing is simulated");
    if (checkpoint->mb > 0 && checkpoint->overlap_seconds > checkpoint->step_seconds)
        return sti_error_set(err, -EINVAL,
                             "ckpt_overlap_s is %g; it must be at most ckpt_step_s, %g",
                             checkpoint->overlap_seconds, checkpoint->step_seconds);
    if (scenario->samples == 0)
        return 0;
    if (sti_scenario_steps(scenario) == 0)
        return sti_error_set(err, -EINVAL,
                             "samples is %llu, fewer than one step of %llu ranks x %llu has, and "
                             "drop_last leaves nothing",
                             (unsigned long long)scenario->samples,
                             (unsigned long long)scenario->ranks,
                             (unsigned long long)scenario->batch);
    if (scenario->samples < scenario->ranks)
        return sti_error_set(err, -EINVAL, "samples is %llu; it must be at least ranks, %llu",
                             (unsigned long long)scenario->samples,
                             (unsigned long long)scenario->ranks);
    double batch_mb = scenario->sample_mb * (double)scenario->batch;
    double staging_mb = scenario->tiers[STI_SIM_STAGING_TIER].capacity_mb.value[0];
    if (2 * batch_mb > staging_mb)
        return sti_error_set(err, -EINVAL,
                             "staging_mb is %g; it must hold two batches, %g MB with these samples",
                             staging_mb, 2 * batch_mb);
    if (scenario->mode == STI_SIM_PUBLISHED && scenario->keyed)
        return sti_error_set(err, -EINVAL, "order is keyed; mode published has torch only");
    int rc = check_nodes(scenario, err);
    return rc ? rc : check_ssds(scenario, err);
}
