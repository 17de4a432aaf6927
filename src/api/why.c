/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a sample of a real data set will be where it is: the loader's options, as the
 * loader resolves them, and the data set's sizes become a scenario, and the simulator
 * says the rest. Values only; the calling thread's.
 */
#include <stoker/cost.h>

#include <errno.h>
#include <inttypes.h>

#include "api/explain_opts.h"
#include "api/handles.h"
#include "base/error.h"
#include "base/mem.h"
#include "loader/resolve.h"
#include "model/hierarchy.h"
#include "sim/sim.h"

#define SAMPLES_MAX (UINT64_C(1) << 26)
#define EPOCHS_UNKNOWN 8 /* that are looked at where a run has no end */

/* Of which sample, and where the answer goes. */
struct asked {
    stk_sim_policy policy;
    uint64_t sample;
    struct sti_sim_text room;
};

static uint64_t
smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The orders that a scenario has too, all samples once in each epoch. */
static int
check_order(const struct sti_order *order, uint64_t n, stk_error *err)
{
    bool is_torch = order->kind == STK_ORDER_TORCH && (order->sampler == STK_SAMPLER_DISTRIBUTED ||
                                                       order->sampler == STK_SAMPLER_DEFAULT);

    if (n > SAMPLES_MAX)
        return sti_error_set(err, -ENOTSUP, "more than %" PRIu64 " samples", SAMPLES_MAX);
    if ((!is_torch && order->kind != STK_ORDER_KEYED) || !order->shuffle || order->replacement ||
        order->draws || order->num_samples != n)
        return sti_error_set(err, -ENOTSUP,
                             "only orders torch (sampler distributed) and keyed, shuffled, without "
                             "replacement or weights");
    return 0;
}

static uint64_t
capacity_of_ssds(const struct sti_hierarchy *tiers)
{
    uint64_t n_bytes = 0;

    for (uint32_t at = 0; at < tiers->n_ssds; at++)
        n_bytes += tiers->ssds[at].n_bytes;
    return n_bytes;
}

/* What a rank has and how the run goes, as a scenario: what only times depend on keeps
 * its default. */
static void
fill_scenario(struct sti_scenario *scenario, const struct sti_resolved *resolved,
              const struct sti_hierarchy *tiers)
{
    const struct sti_fetcher_opts *fetcher = &resolved->fetcher;
    uint64_t ram_bytes = smaller(fetcher->ram_bytes, tiers->ram_bytes);
    uint64_t ssd_bytes = smaller(resolved->ssd_bytes, capacity_of_ssds(tiers));

    sti_scenario_init(scenario);
    scenario->ranks = fetcher->order.world;
    scenario->batch = fetcher->batch_size;
    scenario->epochs =
        fetcher->epochs && fetcher->epochs != UINT64_MAX ? fetcher->epochs : EPOCHS_UNKNOWN;
    scenario->drop_last = fetcher->drop_last || fetcher->order.drop_uneven;
    scenario->seed = (uint32_t)fetcher->order.seed; /* as torch's generator takes it */
    scenario->keyed = fetcher->order.kind == STK_ORDER_KEYED;
    scenario->tiers[STI_SIM_STAGING_TIER].capacity_mb.value[0] =
        (double)fetcher->staging_bytes / STI_SIM_BYTES_PER_MB;
    scenario->tiers[STI_SIM_RAM_TIER].capacity_mb.value[0] =
        (double)ram_bytes / STI_SIM_BYTES_PER_MB;
    scenario->tiers[STI_SIM_SSD_TIER].capacity_mb.value[0] =
        (double)ssd_bytes / STI_SIM_BYTES_PER_MB;
}

/* Takes the sizes: returns owned in scenario->sizes. */
static int
take_sizes(struct sti_scenario *scenario, const struct sti_dataset *dataset, stk_error *err)
{
    uint64_t n = sti_dataset_count(dataset);
    uint32_t *sizes = sti_mem_new(n, sizeof(*sizes));
    double sum = 0;

    if (!sizes)
        return sti_error_set(err, -ENOMEM, "no memory for %" PRIu64 " sizes", n);
    for (uint64_t sample = 0; sample < n; sample++) {
        uint64_t n_bytes = sti_dataset_length(dataset, sample);

        sizes[sample] = (uint32_t)smaller(n_bytes, UINT32_MAX);
        sum += (double)sizes[sample];
    }
    scenario->samples = n;
    scenario->sample_mb = sum / (double)n / STI_SIM_BYTES_PER_MB;
    scenario->sizes = sizes;
    return 0;
}

static int
explain_why(const struct sti_dataset *dataset, const stk_explain_opts *opts,
            const struct asked *asked, stk_error *err)
{
    struct sti_plan_opts plan = {
        .opts = opts->loader, .order = opts->loader->order, .dataset = dataset};
    struct sti_resolved *resolved = sti_mem_new(1, sizeof(*resolved));
    struct sti_hierarchy *tiers = sti_mem_new(1, sizeof(*tiers));
    struct sti_scenario *scenario = sti_mem_new(1, sizeof(*scenario));
    int rc = -ENOMEM;

    if (!resolved || !tiers || !scenario) {
        rc = sti_error_set(err, rc, "no memory for a scenario");
        goto out;
    }
    rc = sti_loader_resolve(resolved, &plan, err);
    if (rc == 0)
        rc = check_order(&resolved->fetcher.order, sti_dataset_count(dataset), err);
    if (rc == 0)
        rc = sti_hierarchy_parse(tiers, opts->tiers, err);
    if (rc == 0 && opts->node_ranks > 1)
        rc = sti_hierarchy_divide(tiers, opts->node_ranks, err);
    if (rc < 0)
        goto out;
    fill_scenario(scenario, resolved, tiers);
    rc = take_sizes(scenario, dataset, err);
    if (rc == 0)
        rc = sti_sim_why(scenario, asked->policy, asked->sample, asked->room, err);

out:
    if (scenario)
        sti_mem_free((void *)(uintptr_t)scenario->sizes); /* taken above */
    sti_mem_free(scenario);
    sti_mem_free(tiers);
    sti_mem_free(resolved);
    return rc;
}

int
stk_explain_why(const stk_dataset *dataset, const stk_explain_opts *opts, stk_sim_policy policy,
                uint64_t sample, char *text, size_t n_text, stk_error *err)
{
    const struct asked asked = {policy, sample, (struct sti_sim_text){text, n_text}};
    struct sti_explain_opts taken;

    if (!dataset || !opts || !text || n_text == 0 || !sti_sim_policy_name((uint32_t)policy))
        return sti_error_set(err, -EINVAL, "dataset, opts, a policy and text are required");
    text[0] = '\0'; /* also after an error */
    int rc = sti_explain_opts_take(&taken, opts, err);
    if (rc < 0)
        return rc;
    return explain_why(dataset->dataset, &taken.own, &asked, err);
}
