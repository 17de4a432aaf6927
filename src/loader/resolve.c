/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resolving a loader's options. Pure: everything it depends on is an argument, so what a
 * set of options means can be told without an engine.
 */
#include "loader/resolve.h"

#include <errno.h>
#include <inttypes.h>

#include "base/error.h"
#include "format/view.h"
#include "policy/holders.h"
#include "policy/place.h"
#include "tier/catalog.h"
#include "tier/origin.h"
#include "tier/staging.h"
#include "tier/store.h"

#define BATCH_SIZE_MAX (UINT32_C(1) << 18)
#define POSITIONS_MAX ((UINT64_C(1) << 20) - 1)
#define STAGING_DEFAULT_BYTES (UINT64_C(256) << 20)
#define SLOTS_DEFAULT_BYTES (UINT64_C(8) << 20) /* where an epoch has less */
#define RECORDS_DEFAULT_MAX 4096u
#define UNDECODED_MAX_BYTES (UINT64_C(32) << 20)

struct range {
    const char *name;
    uint64_t value;
    uint64_t least;
    uint64_t most;
};

/* Checks values that may also be 0 for the default. */
static int
check_ranges(const struct range *ranges, size_t n, stk_error *err)
{
    for (size_t at = 0; at < n; at++) {
        const struct range *range = &ranges[at];

        if (range->value != 0 && (range->value < range->least || range->value > range->most))
            return sti_error_set(err, -EINVAL, "%s %" PRIu64 " is not in %" PRIu64 " .. %" PRIu64,
                                 range->name, range->value, range->least, range->most);
    }
    return 0;
}

static int
check(const stk_loader_opts *opts, stk_error *err)
{
    const struct range ranges[] = {
        {"batch_size", opts->batch_size, 1, BATCH_SIZE_MAX},
        {"drop_last", opts->drop_last, 0, 1},
        {"horizon_epochs", opts->horizon_epochs, 1, 64},
        {"policy", opts->policy, STK_POLICY_NONE, STK_POLICY_PAPER},
        {"layout", opts->layout, STK_LAYOUT_RAW, STK_LAYOUT_FIXED},
        {"bad_sample", opts->bad_sample, STK_BAD_FAIL, STK_BAD_REPLACE},
        {"staging_batches", opts->staging_batches, 2, 65536},
        {"borrow_max", opts->borrow_max, 1, 64},
        {"retries", opts->retries == STK_NONE ? 0 : opts->retries, 1, 16},
        {"reserved", opts->reserved, 0, 0},
        {"item_bytes", opts->item_bytes, 1, UINT64_C(1) << 32},
    };

    if (opts->batch_size == 0)
        return sti_error_set(err, -EINVAL, "batch_size 0 is not in 1 .. %" PRIu32, BATCH_SIZE_MAX);
    return check_ranges(ranges, sizeof(ranges) / sizeof(ranges[0]), err);
}

static int
resolve_order(struct sti_fetcher_opts *fetcher, const struct sti_plan_opts *asked, stk_error *err)
{
    stk_order_opts order = {STK_ORDER_OPTS_INIT};
    uint64_t n = sti_dataset_count(asked->dataset);

    if (asked->order)
        order = *asked->order;
    const struct sti_draws *draws = sti_dataset_draws(asked->dataset);
    if (draws && order.kind == STK_ORDER_DEFAULT)
        order.kind = STK_ORDER_KEYED;
    if (draws && order.kind != STK_ORDER_KEYED && order.kind != STK_ORDER_LIST)
        return sti_error_set(err, -EINVAL,
                             "order: a mix draws its own; leave kind 0 or keyed, or push a list");
    if (order.n != 0 && order.n != n)
        return sti_error_set(
            err, -EINVAL,
            "order: n %" PRIu64 " is neither 0 nor the data set's %" PRIu64 " samples", order.n, n);
    order.n = n;
    int rc = sti_order_init(&fetcher->order, &order, err);
    if (rc == 0 && draws && order.kind == STK_ORDER_KEYED)
        sti_order_set_draws(&fetcher->order, draws);
    return rc;
}

/* FIXED where every sample has a slot of one size, or where decoding makes it so. */
static int
resolve_layout(struct sti_fetcher_opts *fetcher, const struct sti_plan_opts *asked, stk_error *err)
{
    const stk_loader_opts *opts = asked->opts;
    uint32_t n_fields = sti_dataset_fields(asked->dataset);
    /* Several fields in a slot would need a rule how; a decode function is one. */
    uint64_t uniform_bytes = n_fields == 1 ? sti_dataset_uniform_bytes(asked->dataset) : 0;
    bool is_fixed = opts->layout == STK_LAYOUT_FIXED ||
                    (opts->layout == STK_LAYOUT_DEFAULT && (opts->decode || uniform_bytes > 0));

    fetcher->decode = opts->decode;
    fetcher->decode_context = opts->decode_context;
    if (!is_fixed) {
        if (opts->decode)
            return sti_error_set(err, -EINVAL, "decode needs the fixed layout");
        fetcher->item_bytes = 0;
        return 0;
    }
    fetcher->item_bytes = opts->item_bytes;
    if (opts->decode && opts->item_bytes == 0)
        return sti_error_set(err, -EINVAL, "item_bytes is required with decode");
    if (opts->decode)
        return 0;
    if (n_fields > 1)
        return sti_error_set(err, -EINVAL,
                             "layout fixed without decode needs one field, not %" PRIu32
                             "; choose one with the data set's option fields, or use raw",
                             n_fields);
    if (uniform_bytes == 0)
        return sti_error_set(err, -EINVAL,
                             "layout fixed without decode needs samples of one size; use raw");
    if (opts->item_bytes != 0 && opts->item_bytes != uniform_bytes)
        return sti_error_set(err, -EINVAL,
                             "item_bytes %" PRIu64 " is not the samples' size, %" PRIu64,
                             opts->item_bytes, uniform_bytes);
    fetcher->item_bytes = uniform_bytes;
    return 0;
}

/* Batches of the whole run, where that is known. */
static uint64_t
run_batches(const struct sti_fetcher_opts *fetcher)
{
    uint64_t n = sti_order_length(&fetcher->order);

    if (fetcher->order.kind == STK_ORDER_LIST || fetcher->epochs == 0)
        return UINT64_MAX;
    uint64_t batches = n / fetcher->batch_size + 1;
    return batches > UINT64_MAX / fetcher->epochs ? UINT64_MAX : batches * fetcher->epochs;
}

/* What is staged by default. Slots are memory from the start, unlike samples, which are
 * there but once however often they are staged: so they are made for an epoch at most. */
static uint64_t
default_staging(const struct sti_fetcher_opts *fetcher, const struct sti_dataset *dataset,
                uint64_t least_bytes)
{
    uint64_t n = fetcher->order.kind == STK_ORDER_LIST ? sti_dataset_count(dataset)
                                                       : sti_order_length(&fetcher->order);
    uint64_t n_bytes = STAGING_DEFAULT_BYTES;

    if (fetcher->item_bytes > 0 && n < n_bytes / fetcher->item_bytes)
        n_bytes = n * fetcher->item_bytes;
    if (n_bytes < SLOTS_DEFAULT_BYTES)
        n_bytes = SLOTS_DEFAULT_BYTES;
    return n_bytes > least_bytes ? n_bytes : least_bytes;
}

/* How many batches staging_bytes holds, between the least and what positions can be
 * counted for. */
static uint32_t
count_records(const struct sti_fetcher_opts *fetcher, const struct sti_plan_opts *asked,
              uint32_t least)
{
    uint64_t average_bytes =
        sti_dataset_bytes(asked->dataset) / sti_dataset_count(asked->dataset) + 1;
    uint64_t item_bytes = fetcher->item_bytes > 0 ? fetcher->item_bytes : average_bytes;
    uint64_t batch_bytes =
        fetcher->batch_size * item_bytes + sti_record_overhead_bytes(fetcher->batch_size) / 4;
    uint64_t most = POSITIONS_MAX / fetcher->batch_size;
    uint64_t n = fetcher->staging_bytes / batch_bytes;

    if (fetcher->item_bytes > 0) /* slots are memory: never more than was given */
        n = fetcher->staging_bytes / (fetcher->batch_size * item_bytes);
    if (most > RECORDS_DEFAULT_MAX)
        most = RECORDS_DEFAULT_MAX;
    if (asked->opts->staging_batches != 0) {
        if (n > asked->opts->staging_batches)
            n = asked->opts->staging_batches;
        most = POSITIONS_MAX / fetcher->batch_size;
    }
    n = n > most ? most : n;
    n = n > run_batches(fetcher) ? run_batches(fetcher) : n;
    return n < least ? least : (uint32_t)n;
}

/* Batches that must have a place at the same time: those that the consumer may hold, and
 * two. A smaller staging would have it wait for what it holds itself. */
static int
check_borrowed(const stk_loader_opts *opts, uint32_t least, stk_error *err)
{
    if (opts->staging_batches != 0 && opts->staging_batches < least)
        return sti_error_set(err, -EINVAL,
                             "staging_batches %" PRIu32 " is less than borrow_max, %" PRIu32,
                             opts->staging_batches, least);
    if ((uint64_t)least * opts->batch_size > POSITIONS_MAX)
        return sti_error_set(err, -EINVAL,
                             "borrow_max %" PRIu32 " batches of %" PRIu32
                             " samples are more than %" PRIu64 " samples",
                             least, opts->batch_size, POSITIONS_MAX);
    return 0;
}

/* FIXED: what is held between arrival and decoding. It takes its measure from what was asked
 * for, not from what the slots need: a decoder may make little of much, and reads in flight and
 * all the workers need samples at hand. */
static uint64_t
undecoded(const struct sti_fetcher_opts *fetcher, const stk_loader_opts *opts,
          uint64_t largest_raw_bytes, uint64_t max_bytes)
{
    uint64_t n_bytes = opts->staging_bytes != 0 && opts->staging_bytes / 2 < UNDECODED_MAX_BYTES
                           ? opts->staging_bytes / 2
                           : UNDECODED_MAX_BYTES;

    if (n_bytes > fetcher->n_records * largest_raw_bytes)
        n_bytes = fetcher->n_records * largest_raw_bytes;
    return n_bytes > 2 * max_bytes ? n_bytes : 2 * max_bytes;
}

static int
resolve_staging(struct sti_fetcher_opts *fetcher, const struct sti_plan_opts *asked, stk_error *err)
{
    const struct sti_dataset *dataset = asked->dataset;
    const stk_loader_opts *opts = asked->opts;
    uint64_t largest_bytes = sti_dataset_largest(dataset, fetcher->batch_size);
    uint64_t max_bytes = sti_dataset_max_bytes(dataset);
    uint32_t least = opts->borrow_max > 2 ? opts->borrow_max : 2;
    int rc = check_borrowed(opts, least, err);

    if (rc < 0)
        return rc;
    if (max_bytes > STI_ORIGIN_SAMPLE_MAX)
        return sti_error_set(err, STK_E_INFEASIBLE,
                             "a sample of %" PRIu64 " bytes is larger than the %" PRIu64
                             " that a sample may have",
                             max_bytes, STI_ORIGIN_SAMPLE_MAX);
    /* With replacement a batch may hold the largest sample again and again; where an
     * epoch is more than one permutation, again where two of them meet. */
    if (fetcher->order.replacement || fetcher->order.kind == STK_ORDER_LIST ||
        fetcher->order.num_samples > sti_dataset_count(dataset) ||
        fetcher->batch_size > sti_dataset_count(dataset) ||
        largest_bytes > fetcher->batch_size * max_bytes) /* the index rounds up */
        largest_bytes = fetcher->batch_size * max_bytes;
    uint64_t largest_raw_bytes = largest_bytes;
    if (fetcher->item_bytes > 0)
        largest_bytes = fetcher->batch_size * fetcher->item_bytes;
    fetcher->staging_bytes = opts->staging_bytes;
    if (fetcher->staging_bytes == 0)
        fetcher->staging_bytes =
            default_staging(fetcher, dataset, (least + UINT64_C(2)) * largest_bytes);
    if (fetcher->staging_bytes < least * largest_bytes)
        return sti_error_set(
            err, STK_E_INFEASIBLE,
            "staging_bytes %" PRIu64 " is below %s of the largest batches, %" PRIu64 " bytes",
            fetcher->staging_bytes, least > 2 ? "borrow_max" : "two", least * largest_bytes);
    fetcher->staging_least_bytes = least * largest_bytes;
    fetcher->n_records = count_records(fetcher, asked, least);
    /* What so many of the largest batches cannot fill would only be called capacity. */
    uint64_t useful_bytes = (uint64_t)fetcher->n_records * largest_bytes;
    if (fetcher->staging_bytes > useful_bytes)
        fetcher->staging_bytes = useful_bytes;
    if (fetcher->item_bytes > 0)
        fetcher->undecoded_bytes = undecoded(fetcher, opts, largest_raw_bytes, max_bytes);
    return 0;
}

/* Epochs known ahead: where each rank reads everything in each epoch, the next use is in
 * the next one; else it may be several epochs away. */
static uint32_t
held_epochs(const struct sti_fetcher_opts *fetcher, const stk_loader_opts *opts)
{
    uint64_t held = opts->horizon_epochs ? opts->horizon_epochs : 8;

    if (fetcher->order.world == 1 && !fetcher->order.replacement)
        held = 2;
    if (opts->epochs > 0 && opts->horizon_epochs == 0) {
        /* The whole run is known: as much of it as costs no more memory than the whole
         * set. */
        uint64_t most = 2 * (uint64_t)fetcher->order.world;

        if (fetcher->order.world > 1)
            held = opts->epochs < most ? opts->epochs : most;
    }
    return (uint32_t)(held < 2 ? 2 : held > 64 ? 64 : held);
}

/* The store names places of so many bytes; a default is cut down to it. */
static int
resolve_ram(struct sti_resolved *resolved, const struct sti_plan_opts *asked, stk_error *err)
{
    struct sti_fetcher_opts *fetcher = &resolved->fetcher;
    uint64_t ram_bytes = fetcher->policy == STK_POLICY_NONE ? 0 : asked->opts->ram_bytes;
    uint64_t most = STI_STORE_BYTES_MAX / 2;

    if (fetcher->staging_bytes > most || ram_bytes > most - fetcher->staging_bytes)
        return sti_error_set(err, STK_E_INFEASIBLE,
                             "ram_bytes %" PRIu64 " and staging of %" PRIu64
                             " are more than one loader can have, %" PRIu64 " bytes",
                             ram_bytes, fetcher->staging_bytes, most);
    resolved->ram_least_bytes = ram_bytes;
    fetcher->ram_bytes = ram_bytes;
    if (ram_bytes == 0 && fetcher->policy != STK_POLICY_NONE) {
        fetcher->ram_bytes = sti_dataset_bytes(asked->dataset);
        if (fetcher->ram_bytes > most - fetcher->staging_bytes)
            fetcher->ram_bytes = most - fetcher->staging_bytes;
    }
    return 0;
}

/* The SSD tier has a table by sample. */
static int
resolve_ssd(struct sti_resolved *resolved, const struct sti_plan_opts *asked, stk_error *err)
{
    uint64_t ssd_bytes = asked->opts->ssd_bytes;

    if (resolved->fetcher.policy == STK_POLICY_NONE)
        return 0;
    if (sti_dataset_count(asked->dataset) > STI_CATALOG_TABLE_MAX) {
        if (ssd_bytes == 0)
            return 0;
        return sti_error_set(err, STK_E_INFEASIBLE,
                             "ssd_bytes: an SSD tier needs at most %" PRIu64 " samples",
                             STI_CATALOG_TABLE_MAX);
    }
    resolved->ssd_bytes = ssd_bytes ? ssd_bytes : sti_dataset_bytes(asked->dataset);
    resolved->ssd_least_bytes = ssd_bytes;
    return 0;
}

static bool
asks_for_peers(uint32_t policy)
{
    return policy == STK_POLICY_COORDINATED || policy == STK_POLICY_PAPER;
}

bool
sti_loader_is_shared(const struct sti_plan_opts *asked)
{
    const stk_order_opts *order = asked->order;
    uint32_t policy = asked->opts->policy;

    if (asked->world <= 1 || sti_dataset_count(asked->dataset) > STI_CATALOG_TABLE_MAX)
        return false;
    return asks_for_peers(policy) || (policy == STK_POLICY_DEFAULT && order && order->world > 1 &&
                                      order->kind != STK_ORDER_LIST);
}

/* What a loader that all ranks open has to be. */
static int
resolve_shared(struct sti_fetcher_opts *fetcher, const struct sti_plan_opts *asked, stk_error *err)
{
    const struct sti_order *order = &fetcher->order;
    uint32_t policy = asked->opts->policy;

    if (!sti_loader_is_shared(asked)) {
        if (asks_for_peers(policy) && asked->world == 0)
            return sti_error_set(err, -EINVAL,
                                 "policy coordinated and paper need an engine that was opened "
                                 "with comm");
        return 0;
    }
    if (order->kind == STK_ORDER_LIST)
        return sti_error_set(err, -EINVAL,
                             "policy coordinated and paper need an order that all ranks know, "
                             "not a list");
    if (order->world != asked->world || order->rank != asked->rank)
        return sti_error_set(err, -EINVAL,
                             "order: rank %" PRIu32 " of %" PRIu32 " is not this engine's, %" PRIu32
                             " of %" PRIu32,
                             order->rank, order->world, asked->rank, asked->world);
    if (order->world >= UINT16_MAX)
        return sti_error_set(err, STK_E_INFEASIBLE,
                             "%" PRIu32 " ranks are more than can hold samples for each other, %d",
                             order->world, UINT16_MAX - 1);
    fetcher->shared_policy = policy == STK_POLICY_PAPER ? STK_POLICY_PAPER : STK_POLICY_COORDINATED;
    if (policy == STK_POLICY_PAPER && order->n > STI_HOLDERS_COUNTS_MAX / order->world)
        return sti_error_set(err, STK_E_INFEASIBLE,
                             "policy paper counts who reads what: %" PRIu64 " samples on %" PRIu32
                             " ranks are too many",
                             order->n, order->world);
    return 0;
}

int
sti_loader_resolve(struct sti_resolved *ret_resolved, const struct sti_plan_opts *asked,
                   stk_error *err)
{
    struct sti_resolved resolved = {0};
    struct sti_fetcher_opts *fetcher = &resolved.fetcher;
    const stk_loader_opts *opts = asked->opts;
    int rc = check(opts, err);

    if (rc < 0)
        return rc;
    fetcher->dataset = asked->dataset;
    fetcher->epochs = opts->epochs;
    fetcher->batch_size = opts->batch_size;
    fetcher->drop_last = opts->drop_last == 1;
    fetcher->must_replace = opts->bad_sample == STK_BAD_REPLACE;
    fetcher->retries = opts->retries == STK_NONE ? 0 : opts->retries == 0 ? 1 : opts->retries;
    resolved.borrow_max = opts->borrow_max ? opts->borrow_max : 2;
    rc = resolve_order(fetcher, asked, err);
    if (rc == 0)
        rc = resolve_layout(fetcher, asked, err);
    if (rc == 0)
        rc = resolve_staging(fetcher, asked, err);
    if (rc < 0)
        return rc;
    uint64_t n = sti_dataset_count(asked->dataset);
    fetcher->policy =
        sti_place_resolve(asks_for_peers(opts->policy) ? STK_POLICY_DEFAULT : opts->policy, n);
    if (n > STI_CATALOG_TABLE_MAX &&
        (fetcher->policy == STK_POLICY_LRU || fetcher->policy == STK_POLICY_NEXT_USE))
        return sti_error_set(err, STK_E_INFEASIBLE,
                             "policy lru and next-use need at most %" PRIu64
                             " samples; use pin or none",
                             STI_CATALOG_TABLE_MAX);
    fetcher->held_epochs = held_epochs(fetcher, opts);
    rc = resolve_shared(fetcher, asked, err);
    if (rc == 0)
        rc = resolve_ram(&resolved, asked, err);
    if (rc == 0)
        rc = resolve_ssd(&resolved, asked, err);
    if (rc < 0)
        return rc;
    *ret_resolved = resolved;
    return 0;
}
