/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts a fetcher together out of its parts and takes it apart; what it is asked for of
 * its set-up. The loop's, like all of it.
 */
#include <errno.h>
#include <inttypes.h>

#include "base/error.h"
#include "base/mem.h"
#include "tier/fetcher_internal.h"

static uint64_t
smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t
larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint32_t
sti_fetcher_align(const struct sti_fetcher *fetcher)
{
    uint32_t align = sti_origin_align(&fetcher->origin);

    return fetcher->opts.n_ssd_parts > 0 && align < STI_SSD_ALIGN_MAX ? STI_SSD_ALIGN_MAX : align;
}

uint64_t
sti_fetcher_padding_bytes(const struct sti_fetcher *fetcher)
{
    uint64_t padding_bytes = sti_origin_padding_bytes(&fetcher->origin);

    return fetcher->opts.n_ssd_parts > 0 ? larger(padding_bytes, STI_SSD_PADDING_BYTES)
                                         : padding_bytes;
}

static int
open_store(struct sti_fetcher *fetcher)
{
    const struct sti_dataset *dataset = fetcher->opts.dataset;
    uint64_t n = sti_dataset_count(dataset);
    uint64_t capacity_bytes = fetcher->sizes.store_bytes + fetcher->sizes.transit_bytes;
    uint64_t average_bytes = sti_dataset_bytes(dataset) / n;
    uint64_t samples_max = capacity_bytes / (average_bytes / 4 + 1) + 64;
    bool is_padded = sti_dataset_max_bytes(dataset) >= STI_IN_PLACE_BYTES;
    struct sti_store_opts opts = {
        .capacity_bytes = capacity_bytes,
        .samples_max = smaller(samples_max, n),
        .uniform_bytes = sti_dataset_uniform_bytes(dataset),
        .padding_bytes = is_padded ? sti_fetcher_padding_bytes(fetcher) : 0,
        .small_bytes = fetcher->sizes.small_bytes,
        .small_room_bytes = fetcher->sizes.small_room_bytes,
        .align = sti_fetcher_align(fetcher),
        .is_shared = fetcher->peering && sti_comm_lends(fetcher->peering->opts.comm),
        .pool = fetcher->opts.pool,
    };
    int rc = sti_store_new(&fetcher->store, &opts);
    if (rc < 0)
        return rc;
    return sti_catalog_new(&fetcher->catalog, n, opts.samples_max + fetcher->opts.queue_depth);
}

static int
open_horizon(struct sti_fetcher *fetcher, stk_error *err)
{
    struct sti_horizon_opts opts = {
        .order = fetcher->opts.order,
        .batch_size = fetcher->opts.batch_size,
        .drop_last = fetcher->opts.drop_last,
        .epochs = fetcher->opts.epochs,
        .held_epochs = fetcher->opts.held_epochs,
        .window_positions = (uint64_t)fetcher->opts.n_records * fetcher->opts.batch_size,
        .wants_next_use = fetcher->opts.policy == STK_POLICY_NEXT_USE,
        .pool = fetcher->opts.pool,
        .catalog = fetcher->catalog,
        .wake = fetcher->opts.wake,
        .wake_context = fetcher->opts.wake_context,
        .on_next_use = sti_fetcher_on_next_use,
        .context = fetcher,
    };
    int rc = sti_horizon_new(&fetcher->horizon, &opts, err);
    if (rc < 0)
        return rc;
    fetcher->position = sti_horizon_start(fetcher->horizon, 0, 0);
    return 0;
}

static int
open_rest(struct sti_fetcher *fetcher)
{
    uint64_t n = sti_dataset_count(fetcher->opts.dataset);
    int rc = 0;

    if (n <= STI_CATALOG_TABLE_MAX) {
        rc = sti_bitset_init(&fetcher->seen_in_epoch, n);
        if (rc == 0)
            rc = sti_bitset_init(&fetcher->seen_in_run, n);
    }
    if (rc == 0 && fetcher->sizes.transit_bytes > 0)
        rc = sti_bitset_init(&fetcher->passing, n);
    if (rc == 0)
        rc = sti_evictor_new(
            &fetcher->evictor, fetcher->opts.policy, n, sti_horizon_span(fetcher->horizon),
            fetcher->ssd || fetcher->peering || fetcher->sizes.worthy_bytes != UINT64_MAX);
    return rc;
}

/* Frees the fetcher where it fails. */
static int
open_parts(struct sti_fetcher *fetcher, stk_error *err)
{
    const char *const no_name = "";
    bool has_names = fetcher->opts.item_bytes == 0 || !fetcher->opts.decode;
    struct sti_staging_opts staging_opts = {.n_records = fetcher->opts.n_records,
                                            .batch_size = fetcher->opts.batch_size,
                                            .slot_bytes = fetcher->opts.item_bytes,
                                            .n_fields = has_names ? fetcher->n_fields : 1,
                                            .field_names =
                                                has_names ? fetcher->field_names : &no_name,
                                            .pool = fetcher->opts.pool,
                                            .wake = fetcher->opts.wake,
                                            .context = fetcher->opts.wake_context};
    int rc = sti_staging_init(&fetcher->staging, &staging_opts);

    if (rc < 0) {
        sti_mem_free(fetcher);
        return sti_error_set(err, rc, "no memory for staging of %" PRIu32 " batches",
                             staging_opts.n_records);
    }
    rc = sti_fetcher_decode_init(fetcher);
    if (rc < 0) {
        sti_staging_fini(&fetcher->staging);
        sti_mem_free(fetcher);
        return sti_error_set(err, rc, "no memory for decoding");
    }
    struct sti_origin_opts origin_opts = {.dataset = fetcher->opts.dataset,
                                          .aio = fetcher->opts.aio,
                                          .open_files = fetcher->opts.open_files,
                                          .is_buffered = fetcher->opts.is_buffered};
    rc = sti_origin_open(&fetcher->origin, &origin_opts, err);
    if (rc < 0)
        goto err_staging;
    rc = sti_fetcher_open_ssd(fetcher);
    if (rc == 0)
        rc = open_store(fetcher);
    if (rc < 0)
        goto err_memory;
    rc = open_horizon(fetcher, err);
    if (rc < 0)
        goto err_staging;
    rc = open_rest(fetcher);
    if (rc == 0)
        rc = sti_fetcher_reads_init(fetcher);
    if (rc == 0)
        return 0;

err_memory:
    (void)sti_error_set(err, rc, "no memory for the loader's store and catalogue");
err_staging:
    sti_fetcher_free(fetcher);
    return rc;
}

int
sti_fetcher_new(struct sti_fetcher **ret_fetcher, const struct sti_fetcher_opts *opts,
                stk_error *err)
{
    struct sti_fetcher *fetcher = sti_mem_new(1, sizeof(*fetcher));

    if (!fetcher)
        return sti_error_set(err, -ENOMEM, "no memory for the loader");
    fetcher->opts = *opts;
    fetcher->peering = opts->peering;
    fetcher->bound_epoch = UINT64_MAX;
    fetcher->n_fields = sti_dataset_fields(opts->dataset);
    for (uint32_t at = 0; at < fetcher->n_fields; at++)
        fetcher->field_names[at] = sti_dataset_field_name(opts->dataset, at);
    int rc = open_parts(fetcher, err);
    if (rc < 0)
        return rc;
    sti_bound_init(&fetcher->bound, sti_fetcher_capacity_bytes(fetcher));
    *ret_fetcher = fetcher;
    return 0;
}

void
sti_fetcher_begin_at(struct sti_fetcher *fetcher, uint64_t epoch, uint64_t idx)
{
    fetcher->position = sti_horizon_start(fetcher->horizon, epoch, idx);
    fetcher->returned_position = fetcher->position;
}

void
sti_fetcher_free(struct sti_fetcher *fetcher)
{
    if (!fetcher)
        return;
    sti_fetcher_reads_fini(fetcher);
    sti_evictor_free(fetcher->evictor);
    sti_bitset_fini(&fetcher->seen_in_epoch);
    sti_bitset_fini(&fetcher->seen_in_run);
    sti_bitset_fini(&fetcher->passing);
    sti_horizon_free(fetcher->horizon);
    sti_catalog_free(fetcher->catalog);
    sti_store_free(fetcher->store);
    sti_ssd_close(fetcher->ssd);
    sti_origin_close(&fetcher->origin);
    sti_fetcher_decode_fini(fetcher);
    sti_staging_fini(&fetcher->staging);
    sti_mem_free(fetcher);
}

struct sti_staging *
sti_fetcher_staging(struct sti_fetcher *fetcher)
{
    return &fetcher->staging;
}

uint64_t
sti_fetcher_capacity_bytes(const struct sti_fetcher *fetcher)
{
    uint64_t capacity_bytes = fetcher->sizes.store_bytes;

    if (fetcher->peering) /* with peers, that of all */
        return fetcher->peering->holders.total_bytes;
    return fetcher->ssd ? capacity_bytes + sti_ssd_capacity_bytes(fetcher->ssd) : capacity_bytes;
}

uint64_t
sti_fetcher_ssd_bytes(const struct sti_fetcher *fetcher)
{
    /* A sample that no segment holds would be given room for nothing. */
    if (!fetcher->ssd || sti_dataset_max_bytes(fetcher->opts.dataset) > STI_SSD_SAMPLE_MAX)
        return 0;
    return sti_ssd_capacity_bytes(fetcher->ssd);
}

uint64_t
sti_fetcher_ssd_free_bytes(const struct sti_fetcher *fetcher)
{
    const struct sti_dataset *dataset = fetcher->opts.dataset;
    uint64_t n_bytes = sti_fetcher_ssd_bytes(fetcher);
    uint64_t taken_bytes = n_bytes > 0 ? sti_ssd_counts(fetcher->ssd).used_bytes : 0;

    /* Each directory may have a part of a sample left over; where all are alike that is
     * not counted as capacity. */
    if (sti_dataset_uniform_bytes(dataset) == 0 && fetcher->opts.n_ssd_parts > 1)
        taken_bytes += (fetcher->opts.n_ssd_parts - 1) * sti_dataset_max_bytes(dataset);
    return n_bytes > taken_bytes ? n_bytes - taken_bytes : 0;
}

bool
sti_fetcher_is_on_ssd(const struct sti_fetcher *fetcher, uint64_t sample)
{
    return sti_ssd_has_own(fetcher->ssd, sample);
}

struct sti_cost_curve
sti_fetcher_cost(const struct sti_fetcher *fetcher, stk_tier tier)
{
    struct sti_cost_curve curve = {0};
    struct sti_cost_point point;
    const struct sti_cost_learner *learner =
        tier == STK_TIER_SSD ? &fetcher->ssd_cost : &fetcher->origin_cost;

    if (sti_cost_learner_point(learner, &point) == 0)
        sti_cost_curve_add(&curve, &point);
    return curve;
}

uint64_t
sti_fetcher_epoch_batches(const struct sti_fetcher *fetcher)
{
    return sti_horizon_batches(fetcher->horizon);
}
