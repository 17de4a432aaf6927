/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader. It resolves its options, takes a part of the engine's RAM, attaches a
 * fetcher to the loop and from then on meets it only in staging. What it keeps itself
 * (the consumer's position, how many batches are out, the last error) belongs to the
 * thread that uses it.
 *
 * Invariant: (epoch, epoch_step) is the batch that the next call of next will return.
 */
#include "loader/loader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/mem.h"
#include "engine/memory_limit.h"
#include "loader/resolve.h"
#include "loader/share.h"
#include "loader/state.h"
#include "tier/origin.h"
#include "tier/staging.h"

struct sti_loader {
    struct sti_engine *engine;
    const struct sti_dataset *dataset;
    struct sti_resolved resolved;
    struct sti_fetcher *fetcher;
    struct sti_task task;
    struct sti_share share; /* with other ranks */
    uint64_t epoch_batches; /* 0 for a list */
    uint64_t epoch;
    uint64_t epoch_step;
    uint32_t n_out;
    uint64_t ssd_bytes[STI_SSDS_MAX]; /* taken of each directory */
    stk_error last_error;             /* code 0: none */
};

static void
wake_loop(void *loop)
{
    sti_loop_wake(loop);
}

/* The arbiter of the device that the data set's first sample lies on; NULL where it
 * cannot be told, and then nothing is arbitrated. */
static struct sti_budget *
find_budget(struct sti_engine *engine, const struct sti_dataset *dataset)
{
    char path[STK_ERROR_PATH_SIZE];
    struct statx found = {0};
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .dir_fd = AT_FDCWD,
                            .path = path,
                            .statx_mask = STATX_BASIC_STATS,
                            .statx = &found};

    if (sti_dataset_path(dataset, 0, path, sizeof(path)) < 0)
        return NULL;
    sti_aio_op_execute(&op);
    if (op.result < 0)
        return NULL;
    return sti_engine_budget(engine, (uint64_t)found.stx_dev_major << 32 | found.stx_dev_minor);
}

/* Takes this loader's parts of the SSD directories. */
static int
take_ssds(struct sti_loader *loader, stk_error *err)
{
    struct sti_fetcher_opts *opts = &loader->resolved.fetcher;
    uint32_t n = sti_engine_ssds(loader->engine);
    uint64_t want_bytes = loader->resolved.ssd_bytes;

    /* Each directory may have a part of a sample left over. */
    if (loader->resolved.ssd_least_bytes == 0 && n > 1)
        want_bytes += n * sti_dataset_max_bytes(loader->dataset);
    if (opts->policy == STK_POLICY_NONE || loader->resolved.ssd_bytes == 0)
        n = 0;
    if (n == 0 && loader->resolved.ssd_least_bytes == 0)
        return 0;
    int rc = sti_engine_take_ssds(loader->engine, want_bytes, loader->resolved.ssd_least_bytes,
                                  loader->ssd_bytes, err);
    if (rc < 0)
        return rc;
    for (uint32_t at = 0; at < n; at++) {
        const struct sti_ssd_config *config = sti_engine_ssd(loader->engine, at);

        opts->ssd_parts[at] =
            (struct sti_ssd_part){.path = config->path,
                                  .share_bytes = loader->ssd_bytes[at],
                                  .capacity_bytes = sti_engine_ssd_whole_bytes(loader->engine, at)};
    }
    const struct sti_node_part node = sti_engine_node(loader->engine);
    opts->ssd_slot = node.at;
    opts->n_ssd_slots = node.n;
    opts->is_ssd_apart = node.is_apart;
    opts->n_ssd_parts = n;
    return 0;
}

static int
begin_at_state(struct sti_loader *loader, const stk_loader_opts *opts, stk_error *err);

/* Takes this loader's parts of the engine. */
static int
take_parts(struct sti_loader *loader, const struct sti_plan_opts *asked, stk_error *err)
{
    struct sti_engine *engine = loader->engine;
    struct sti_fetcher_opts *opts = &loader->resolved.fetcher;
    int rc = sti_loader_resolve(&loader->resolved, asked, err);

    if (rc == 0)
        rc = sti_memory_check(opts->staging_bytes, "staging", err);
    if (rc == 0)
        rc = sti_engine_take_ram(engine, opts->ram_bytes, loader->resolved.ram_least_bytes,
                                 &opts->ram_bytes, err);
    if (rc < 0) {
        opts->ram_bytes = 0; /* nothing is taken */
        return rc;
    }
    return take_ssds(loader, err);
}

static void
return_parts(struct sti_loader *loader)
{
    sti_engine_return_files(loader->engine, loader->resolved.fetcher.open_files);
    sti_engine_return_ssds(loader->engine, loader->ssd_bytes);
    sti_engine_return_ram(loader->engine, loader->resolved.fetcher.ram_bytes);
}

/* The epoch that a state begins in; a bad one is found when it is taken. */
static uint64_t
first_epoch(const stk_loader_opts *opts)
{
    struct sti_loader_state saved;

    if (!opts->state || sti_loader_state_decode(&saved, opts->state, opts->state_bytes, NULL) < 0)
        return 0;
    return saved.epoch;
}

/* Agrees with the other ranks' loaders. code: as sti_share_opts has it. */
static int
open_share(struct sti_loader *loader, const stk_loader_opts *opts, int code, stk_error *err)
{
    const struct sti_share_opts share = {.engine = loader->engine,
                                         .dataset = loader->dataset,
                                         .resolved = &loader->resolved,
                                         .fetcher = loader->fetcher,
                                         .first_epoch = first_epoch(opts),
                                         .code = code};

    return sti_share_open(&loader->share, &share, err);
}

/*
 * What SSD caches know the data set by. Ranks that come to a data set without an index all make
 * one, and the last one's stays: they would cache it under different names, most of which no
 * later job knows. By now all have opened it.
 */
static uint64_t
ssd_dataset_id(const struct sti_loader *loader)
{
    uint64_t dataset_id = sti_dataset_identity(loader->dataset);
    struct sti_aio *aio;

    if (!loader->share.peering || loader->resolved.fetcher.n_ssd_parts == 0 ||
        sti_engine_aio_open(loader->engine, &aio, NULL) < 0)
        return dataset_id;
    (void)sti_dataset_look(loader->dataset, aio, &dataset_id); /* else it is what it was */
    sti_aio_close(aio);
    return dataset_id;
}

static int
open_fetcher(struct sti_loader *loader, const stk_loader_opts *opts, stk_error *err)
{
    struct sti_engine *engine = loader->engine;
    struct sti_fetcher_opts *fetcher_opts = &loader->resolved.fetcher;

    fetcher_opts->queue_depth = sti_engine_queue_depth(engine);
    fetcher_opts->open_files = sti_engine_take_files(engine, sti_dataset_files(loader->dataset));
    fetcher_opts->is_buffered = sti_engine_is_buffered(engine);
    fetcher_opts->aio = sti_loop_aio(sti_engine_loop(engine));
    fetcher_opts->pool = sti_engine_pool(engine);
    fetcher_opts->wake = wake_loop;
    fetcher_opts->wake_context = sti_engine_loop(engine);
    fetcher_opts->ssd_dataset_id = ssd_dataset_id(loader);
    fetcher_opts->budget = find_budget(engine, loader->dataset);
    fetcher_opts->peering = loader->share.peering;
    int rc = sti_fetcher_new(&loader->fetcher, fetcher_opts, err);
    if (rc < 0)
        return rc;
    loader->epoch_batches = sti_fetcher_epoch_batches(loader->fetcher);
    return opts->state ? begin_at_state(loader, opts, err) : 0;
}

int
sti_loader_open(struct sti_loader **ret_loader, struct sti_engine *engine,
                const struct sti_dataset *dataset, const stk_loader_opts *opts,
                const stk_order_opts *order, stk_error *err)
{
    struct sti_loader *loader = sti_mem_new(1, sizeof(*loader));
    struct sti_plan_opts asked = {.opts = opts, .order = order, .dataset = dataset};

    if (!loader)
        return sti_error_set(err, -ENOMEM, "no memory for the loader");
    if (sti_engine_peers(engine)) {
        asked.world = sti_comm_world(sti_peers_comm(sti_engine_peers(engine)));
        asked.rank = sti_comm_rank(sti_peers_comm(sti_engine_peers(engine)));
    }
    loader->engine = engine;
    loader->dataset = dataset;
    bool is_shared = sti_loader_is_shared(&asked);
    int rc = is_shared ? sti_share_init(&loader->share, engine, err) : 0;
    if (rc == 0) {
        rc = take_parts(loader, &asked, err);
        /* The others wait, also for one that cannot. */
        int met = is_shared ? sti_share_meet(&loader->share, rc == 0 ? err : NULL) : 0;
        if (rc == 0 && met == 0)
            rc = open_fetcher(loader, opts, err);
        if (is_shared && met == 0)
            rc = open_share(loader, opts, rc, err);
        rc = rc == 0 ? met : rc;
    }
    if (rc < 0) {
        sti_share_close(&loader->share);
        sti_fetcher_free(loader->fetcher);
        return_parts(loader);
        sti_mem_free(loader);
        return rc;
    }
    loader->task = (struct sti_task){.step = sti_fetcher_step, .context = loader->fetcher};
    sti_loop_attach(sti_engine_loop(engine), &loader->task);
    *ret_loader = loader;
    return 0;
}

void
sti_loader_close(struct sti_loader *loader)
{
    if (!loader)
        return;
    if (loader->share.peering)
        sti_staging_command(sti_fetcher_staging(loader->fetcher), STI_COMMAND_LEAVE, 0, 0);
    sti_staging_command(sti_fetcher_staging(loader->fetcher), STI_COMMAND_STOP, 0, 0);
    sti_loop_detach(sti_engine_loop(loader->engine), &loader->task);
    sti_share_close(&loader->share);
    sti_fetcher_free(loader->fetcher);
    return_parts(loader);
    sti_mem_free(loader);
}

/* ---- batches ----------------------------------------------------------------------- */

static void
describe_bad(struct sti_loader *loader, const struct sti_record *record)
{
    const struct sti_bad *bad = &record->bad;
    char path[STK_ERROR_PATH_SIZE];
    struct sti_extent extent = {0};

    if (sti_dataset_path(loader->dataset, bad->sample, path, sizeof(path)) == STK_E_CORRUPT)
        path[0] = '\0';
    (void)sti_dataset_extent(loader->dataset, bad->sample, &extent); /* zeros serve as well */
    if (bad->is_decoding)
        (void)sti_error_set_sample(&loader->last_error, STK_E_SAMPLE, bad->sample, path,
                                   "sample %" PRIu64 " at offset %" PRIu64
                                   " cannot be decoded (code %d)",
                                   bad->sample, extent.offset, bad->code);
    else
        (void)sti_error_set_sample(
            &loader->last_error, STK_E_SAMPLE, bad->sample, path,
            "sample %" PRIu64 " of %" PRIu64 " bytes at offset %" PRIu64 " cannot be read: %s",
            bad->sample, extent.length, extent.offset, sti_origin_reason(bad->code));
}

static void
advance(struct sti_loader *loader, const struct sti_batch_cut *cut)
{
    loader->epoch = cut->epoch;
    loader->epoch_step = cut->epoch_step + 1;
    if (cut->is_last) {
        loader->epoch++;
        loader->epoch_step = 0;
    }
}

/* Fields of a batch: of one that is FIXED there is one. */
static uint64_t
batch_fields(const struct sti_loader *loader)
{
    return loader->resolved.fetcher.item_bytes > 0 ? 1 : sti_dataset_fields(loader->dataset);
}

/* Why a wait ended without a batch. */
static const char *
wait_text(int code)
{
    switch (code) {
    case -EINTR:
        return "the wait for a batch was interrupted";
    case -ETIMEDOUT:
        return "the batch was not there in time";
    case -EAGAIN:
        return "nothing is pushed that makes a batch; push ids or end the epoch";
    case -ENOMEM:
        return "no memory for the order of the next epoch; free some and call again, or use the "
               "keyed order, which is not held";
    default:
        return sti_error_text(code);
    }
}

int
sti_loader_next(struct sti_loader *loader, stk_batch *batch, uint64_t timeout_ns)
{
    struct sti_staging *staging = sti_fetcher_staging(loader->fetcher);
    struct sti_record *record;

    if (!batch)
        return sti_error_set(&loader->last_error, -EINVAL, "batch is required");
    if (loader->n_out >= loader->resolved.borrow_max)
        return sti_error_set(&loader->last_error, STK_E_BORROW,
                             "%" PRIu32 " batches are borrowed already; release one first",
                             loader->n_out);
    int rc = sti_staging_next(staging, timeout_ns, &record);
    if (rc < 0)
        return sti_error_set(&loader->last_error, rc, "%s", wait_text(rc));
    if (rc != STK_BATCH)
        return rc;
    advance(loader, &record->cut);
    if (record->bad.code != 0) {
        describe_bad(loader, record);
        (void)sti_staging_return(staging, record); /* it was just given */
        return STK_E_SAMPLE;
    }
    *batch = (stk_batch){
        .epoch = record->cut.epoch,
        .step = record->cut.step,
        .epoch_step = record->cut.epoch_step,
        .count = record->cut.count,
        .last_of_epoch = record->cut.is_last,
        .samples = record->samples,
        .labels = record->labels,
        .data = record->slots,
        .item_bytes = loader->resolved.fetcher.item_bytes,
        .items = record->fields[0].items,
        .n_bytes = record->fields[0].n_bytes,
        .fields = record->fields,
        .n_fields = batch_fields(loader),
        .handle = record,
    };
    loader->n_out++;
    return STK_BATCH;
}

int
sti_loader_release(struct sti_loader *loader, stk_batch *batch)
{
    int rc = sti_staging_return(sti_fetcher_staging(loader->fetcher), batch->handle);

    if (rc < 0)
        return rc;
    loader->n_out--;
    batch->handle = NULL;
    batch->samples = NULL;
    batch->labels = NULL;
    batch->data = NULL;
    batch->items = NULL;
    batch->n_bytes = NULL;
    batch->fields = NULL;
    batch->n_fields = 0;
    return 0;
}

void
sti_loader_interrupt(struct sti_loader *loader)
{
    sti_staging_interrupt(sti_fetcher_staging(loader->fetcher));
}

int
sti_loader_last_error(const struct sti_loader *loader, stk_error *err)
{
    if (loader->last_error.code == 0)
        return -ENOENT;
    *err = loader->last_error;
    return 0;
}

int
sti_loader_last_warning(struct sti_loader *loader, stk_error *err)
{
    struct sti_staging *staging = sti_fetcher_staging(loader->fetcher);

    sti_mutex_lock(&staging->lock);
    int rc = staging->warning.code == 0 ? -ENOENT : 0;
    if (rc == 0)
        *err = staging->warning;
    sti_mutex_unlock(&staging->lock);
    return rc;
}

int
sti_loader_replacements(struct sti_loader *loader, stk_replacement *out, uint32_t capacity,
                        uint64_t *ret_total)
{
    struct sti_staging *staging = sti_fetcher_staging(loader->fetcher);

    sti_mutex_lock(&staging->lock);
    uint64_t n = staging->n_replaced < STI_LEDGER_MAX ? staging->n_replaced : STI_LEDGER_MAX;
    if (n > capacity)
        n = capacity;
    if (n > 0)
        memcpy(out, staging->ledger, n * sizeof(*out));
    *ret_total = staging->n_replaced;
    sti_mutex_unlock(&staging->lock);
    return (int)n;
}

/* ---- positions --------------------------------------------------------------------- */

/* Whether there is such a batch; the end of the run counts as one. */
static bool
is_position(const struct sti_loader *loader, uint64_t epoch, uint64_t epoch_step)
{
    uint64_t epochs = loader->resolved.fetcher.epochs;

    if (epoch_step >= loader->epoch_batches || epoch > UINT32_MAX)
        return false;
    return epochs == 0 || epoch < epochs || (epoch == epochs && epoch_step == 0);
}

int
sti_loader_leave(struct sti_loader *loader)
{
    if (loader->n_out > 0)
        return -EBUSY;
    if (loader->share.peering)
        sti_staging_command(sti_fetcher_staging(loader->fetcher), STI_COMMAND_LEAVE, 0, 0);
    return 0;
}

int
sti_loader_seek(struct sti_loader *loader, uint64_t epoch, uint64_t epoch_step)
{
    const struct sti_fetcher_opts *opts = &loader->resolved.fetcher;

    if (loader->epoch_batches == 0)
        return -ENOTSUP;
    if (loader->n_out > 0)
        return -EBUSY;
    if (!is_position(loader, epoch, epoch_step))
        return -ERANGE;
    sti_staging_command(sti_fetcher_staging(loader->fetcher), STI_COMMAND_SEEK, epoch,
                        epoch_step * opts->batch_size);
    loader->epoch = epoch;
    loader->epoch_step = epoch_step;
    return 0;
}

struct push {
    struct sti_fetcher *fetcher;
    struct sti_list_part part;
    int result;
};

static void
push_on_loop(void *context)
{
    struct push *push = context;

    push->result = sti_fetcher_push(push->fetcher, &push->part);
}

int
sti_loader_push(struct sti_loader *loader, const uint64_t *ids, uint64_t n, bool is_epoch_end,
                bool is_run_end)
{
    struct push push = {
        .fetcher = loader->fetcher,
        .part = {.ids = ids, .n = n, .is_epoch_end = is_epoch_end, .is_run_end = is_run_end}};
    uint64_t count = sti_dataset_count(loader->dataset);

    if (loader->resolved.fetcher.order.kind != STK_ORDER_LIST)
        return -EINVAL;
    for (uint64_t at = 0; at < n; at++)
        if (ids[at] >= count)
            return -ERANGE;
    sti_loop_call(sti_engine_loop(loader->engine), push_on_loop, &push);
    return push.result;
}

static struct sti_loader_state
describe_position(const struct sti_loader *loader)
{
    const struct sti_fetcher_opts *opts = &loader->resolved.fetcher;

    return (struct sti_loader_state){
        .dataset_fingerprint = sti_dataset_fingerprint(loader->dataset),
        .order_fingerprint = sti_order_fingerprint(&opts->order),
        .n = sti_dataset_count(loader->dataset),
        .epoch = loader->epoch,
        .epoch_step = loader->epoch_step,
        .global_batch = (uint64_t)opts->order.world * opts->batch_size,
        .drop_last = opts->drop_last ? 1 : 0,
    };
}

int
sti_loader_save_state(const struct sti_loader *loader, void *state, size_t *ret_bytes)
{
    if (loader->epoch_batches == 0)
        return -ENOTSUP;
    const struct sti_loader_state position = describe_position(loader);
    sti_loader_state_encode(&position, state);
    *ret_bytes = STI_LOADER_STATE_BYTES;
    return 0;
}

static int
check_field(const char *name, uint64_t saved, uint64_t here, stk_error *err)
{
    if (saved == here)
        return 0;
    return sti_error_set(err, STK_E_MISMATCH,
                         "the state's %s is %" PRIu64 ", this loader's is %" PRIu64, name, saved,
                         here);
}

/* Whether a saved position is one of this loader's, and which. */
static int
take_state(const struct sti_loader *loader, const void *state, size_t n_bytes,
           struct sti_loader_state *ret_saved, stk_error *err)
{
    struct sti_loader_state saved;
    const struct sti_loader_state here = describe_position(loader);

    if (loader->epoch_batches == 0)
        return sti_error_set(err, -ENOTSUP, "a pushed list has no state");
    int rc = sti_loader_state_decode(&saved, state, n_bytes, err);
    if (rc == 0)
        rc = check_field("number of samples", saved.n, here.n, err);
    if (rc == 0)
        rc = check_field("data set fingerprint", saved.dataset_fingerprint,
                         here.dataset_fingerprint, err);
    if (rc == 0)
        rc = check_field("order fingerprint (kind, sampler, seed, flags)", saved.order_fingerprint,
                         here.order_fingerprint, err);
    if (rc == 0)
        rc = check_field("world x batch_size", saved.global_batch, here.global_batch, err);
    if (rc == 0)
        rc = check_field("drop_last", saved.drop_last, here.drop_last, err);
    if (rc < 0)
        return rc;
    /* On another world the tail of an epoch may have one batch less: then the epoch is
     * over. */
    if (saved.epoch_step >= loader->epoch_batches) {
        saved.epoch++;
        saved.epoch_step = 0;
    }
    if (!is_position(loader, saved.epoch, saved.epoch_step))
        return sti_error_set(err, -ERANGE,
                             "epoch %" PRIu64 " of the state is beyond this run's %" PRIu64,
                             saved.epoch, loader->resolved.fetcher.epochs);
    *ret_saved = saved;
    return 0;
}

int
sti_loader_restore_state(struct sti_loader *loader, const void *state, size_t n_bytes,
                         stk_error *err)
{
    struct sti_loader_state saved = {0};
    int rc = take_state(loader, state, n_bytes, &saved, err);

    if (rc < 0)
        return rc;
    rc = sti_loader_seek(loader, saved.epoch, saved.epoch_step);
    if (rc < 0)
        return sti_error_set(err, rc, "%" PRIu32 " batches are borrowed; release them first",
                             loader->n_out);
    return 0;
}

static int
begin_at_state(struct sti_loader *loader, const stk_loader_opts *opts, stk_error *err)
{
    struct sti_loader_state saved = {0};
    int rc = take_state(loader, opts->state, opts->state_bytes, &saved, err);

    if (rc < 0)
        return rc;
    sti_fetcher_begin_at(loader->fetcher, saved.epoch, saved.epoch_step * opts->batch_size);
    loader->epoch = saved.epoch;
    loader->epoch_step = saved.epoch_step;
    return 0;
}

/* ---- statistics -------------------------------------------------------------------- */

struct learned {
    const struct sti_fetcher *fetcher;
    struct sti_cost_curve ssd;
    struct sti_cost_curve origin;
};

static void
learned_on_loop(void *context)
{
    struct learned *learned = context;

    learned->ssd = sti_fetcher_cost(learned->fetcher, STK_TIER_SSD);
    learned->origin = sti_fetcher_cost(learned->fetcher, STK_TIER_ORIGIN);
}

static stk_cost
cost_of(const struct sti_cost_curve *curve)
{
    if (curve->n_points == 0)
        return (stk_cost){0};
    const struct sti_cost_point *point = &curve->points[curve->n_points - 1];
    return (stk_cost){
        .depth = point->depth, .latency_s = point->latency_s, .bytes_per_s = point->bytes_per_s};
}

void
sti_loader_costs(struct sti_loader *loader, stk_costs *costs)
{
    struct learned learned = {.fetcher = loader->fetcher};
    struct sti_cost_curve ram = sti_engine_cost(loader->engine, STK_TIER_RAM);
    struct sti_cost_curve ssd = sti_engine_cost(loader->engine, STK_TIER_SSD);

    sti_loop_call(sti_engine_loop(loader->engine), learned_on_loop, &learned);
    memset(costs->tiers, 0, sizeof(costs->tiers));
    costs->tiers[STK_TIER_RAM] = cost_of(&ram);
    costs->tiers[STK_TIER_SSD] = cost_of(learned.ssd.n_points > 0 ? &learned.ssd : &ssd);
    costs->tiers[STK_TIER_ORIGIN] = cost_of(&learned.origin);
}

static void
fill_stats(stk_loader_stats *out, const struct sti_stats *in)
{
    out->epoch = in->epoch;
    out->batches = in->batches;
    out->samples = in->samples;
    out->bytes = in->bytes;
    out->wait_ns = in->waits.sum_ns;
    out->elapsed_ns = in->end_ns - in->start_ns;
    out->wait_p50_ns = sti_histogram_quantile(&in->waits, 0.5);
    out->wait_p99_ns = sti_histogram_quantile(&in->waits, 0.99);
    out->wait_max_ns = in->waits.max_ns;
    memcpy(out->tier_samples, in->tier_samples, sizeof(out->tier_samples));
    memcpy(out->tier_bytes, in->tier_bytes, sizeof(out->tier_bytes));
    out->origin_bytes = in->origin_bytes;
    out->bound_bytes = in->bound_bytes;
}

int
sti_loader_stats(struct sti_loader *loader, uint64_t epoch, stk_loader_stats *stats)
{
    struct sti_staging *staging = sti_fetcher_staging(loader->fetcher);
    const struct sti_stats *from;
    int rc = 0;

    sti_mutex_lock(&staging->lock);
    from = epoch == UINT64_MAX ? &staging->run : &staging->epochs[epoch % STI_STATS_EPOCHS];
    if (from->epoch != epoch)
        rc = -ENOENT;
    else
        fill_stats(stats, from);
    stats->capacity_bytes = sti_fetcher_capacity_bytes(loader->fetcher);
    stats->resident_bytes = staging->usage.resident_bytes;
    stats->replaced = staging->n_replaced;
    stats->allocations = staging->usage.n_outside;
    if (epoch == UINT64_MAX)
        stats->origin_bytes += staging->usage.beside_bytes;
    stats->peer_served = staging->usage.served_samples;
    stats->peer_served_bytes = staging->usage.served_bytes;
    stats->peer_failed = staging->usage.n_peer_failed;
    stats->peer_corrupt = staging->usage.n_peer_corrupt;
    stats->peer_copied = staging->usage.copied_samples;
    stats->peer_copied_bytes = staging->usage.copied_bytes;
    stats->ssd_bytes = staging->usage.ssd.used_bytes;
    stats->ssd_written_bytes = staging->usage.ssd.written_bytes;
    stats->ssd_refused = staging->usage.ssd.n_refused;
    stats->ssd_dropped = staging->usage.ssd.n_dropped;
    sti_mutex_unlock(&staging->lock);
    return rc;
}
