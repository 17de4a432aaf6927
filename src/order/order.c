/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From options to ids. Here the options are checked and each kind is sent to the file
 * that knows it: keyed.c, sampler.c, permutation.c; stream.c takes the rank's part.
 *
 * Invariant: what sti_order_init() accepts, every other function here can do; none checks
 * again. Values only; any thread.
 */
#include "order/order.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

#include "base/error.h"
#include "order/keyed.h"
#include "order/mix.h"
#include "order/permutation.h"
#include "order/sampler.h"
#include "order/stream.h"

static int
check_range(stk_error *err, const char *name, uint64_t value, uint64_t low, uint64_t high)
{
    if (value >= low && value <= high)
        return 0;
    return sti_error_set(err, -EINVAL,
                         "order option %s is %" PRIu64 "; it must be %" PRIu64 " to %" PRIu64, name,
                         value, low, high);
}

static int
check_flag(stk_error *err, const char *name, uint64_t value)
{
    return check_range(err, name, value, 0, 1);
}

/* Every field for itself. */
static int
check_fields(const stk_order_opts *opts, stk_error *err)
{
    int rc = check_range(err, "kind", opts->kind, 0, STK_ORDER_LIST);

    if (!rc)
        rc = check_range(err, "sampler", opts->sampler, 0, STK_SAMPLER_STATEFUL);
    if (!rc)
        rc = check_range(err, "n", opts->n, 1, STI_ORDER_MAX_N);
    if (!rc)
        rc = check_range(err, "world", opts->world, 0, STI_ORDER_MAX_WORLD);
    if (!rc)
        rc = check_range(err, "rank", opts->rank, 0, opts->world ? opts->world - 1 : 0);
    if (!rc)
        rc = check_flag(err, "no_shuffle", opts->no_shuffle);
    if (!rc)
        rc = check_flag(err, "drop_uneven", opts->drop_uneven);
    if (!rc)
        rc = check_flag(err, "legacy_torch", opts->legacy_torch);
    if (!rc)
        rc = check_flag(err, "replacement", opts->replacement);
    if (!rc)
        rc = check_range(err, "num_samples", opts->num_samples, 0, STI_ORDER_MAX_N);
    if (!rc)
        rc = check_range(err, "workers", opts->workers, 0, STK_SAMPLER_WORKERS_PERSISTENT);
    if (!rc)
        rc = check_range(err, "reserved", opts->reserved, 0, 0);
    return rc;
}

/* Fields that exclude each other, once every default is resolved. */
static int
check_together(const struct sti_order *order, const stk_order_opts *opts, stk_error *err)
{
    bool torch = order->kind == STK_ORDER_TORCH;
    bool random_sampler = torch && order->sampler != STK_SAMPLER_DISTRIBUTED;

    if (!torch && (opts->sampler || opts->legacy_torch || opts->workers))
        return sti_error_set(err, -EINVAL,
                             "order options sampler, legacy_torch and workers are for kind "
                             "torch alone; leave them 0 or choose that kind");
    if (!random_sampler && (opts->replacement || opts->num_samples))
        return sti_error_set(err, -EINVAL,
                             "order options replacement and num_samples need kind torch and one "
                             "of the samplers dataloader, generator, stateful");
    if (random_sampler && order->world != 1)
        return sti_error_set(err, -EINVAL,
                             "order option world is %" PRIu32 "; samplers dataloader, generator "
                             "and stateful are of one process: it must be 1",
                             order->world);
    if (opts->no_shuffle && (opts->replacement || opts->num_samples))
        return sti_error_set(err, -EINVAL,
                             "order option no_shuffle excludes replacement and num_samples");
    if (opts->no_shuffle && order->kind == STK_ORDER_KEYED)
        return sti_error_set(err, -EINVAL,
                             "order option no_shuffle excludes kind keyed; choose kind "
                             "sequential");
    return 0;
}

int
sti_order_init(struct sti_order *order, const stk_order_opts *opts, stk_error *err)
{
    int rc = check_fields(opts, err);

    if (rc)
        return rc;
    struct sti_order made = {
        .n = opts->n,
        .seed = opts->seed,
        .num_samples = opts->num_samples ? opts->num_samples : opts->n,
        .kind = opts->kind ? opts->kind : STK_ORDER_TORCH,
        .sampler = opts->sampler,
        .workers = opts->workers,
        .world = opts->world ? opts->world : 1,
        .rank = opts->rank,
        .replacement = opts->replacement,
        .drop_uneven = opts->drop_uneven,
        .legacy_torch = opts->legacy_torch,
    };
    if (made.kind == STK_ORDER_TORCH && !made.sampler)
        made.sampler = STK_SAMPLER_DISTRIBUTED;
    made.shuffle =
        made.kind == STK_ORDER_KEYED || (made.kind == STK_ORDER_TORCH && !opts->no_shuffle);
    rc = check_together(&made, opts, err);
    if (rc)
        return rc;
    if (made.kind != STK_ORDER_LIST)
        made.length = sti_stream_length(made.num_samples, made.world, made.drop_uneven);
    *order = made;
    return 0;
}

void
sti_order_set_draws(struct sti_order *order, const struct sti_draws *draws)
{
    assert(order->kind == STK_ORDER_KEYED && draws->first_id[draws->n_parts] == order->n);
    order->draws = draws;
    order->num_samples = sti_draws_count(draws);
    order->replacement = true;
    order->length = sti_stream_length(order->num_samples, order->world, order->drop_uneven);
}

uint64_t
sti_order_length(const struct sti_order *order)
{
    return order->length;
}

uint32_t
sti_order_id_bytes(const struct sti_order *order)
{
    return order->n <= UINT32_MAX ? sizeof(uint32_t) : sizeof(uint64_t);
}

uint64_t
sti_order_scratch_bytes(const struct sti_order *order)
{
    if (order->kind != STK_ORDER_TORCH || !order->shuffle)
        return 0;
    if (order->sampler != STK_SAMPLER_DISTRIBUTED)
        return sti_sampler_scratch_bytes(order);
    return order->world == 1 ? 0 : order->n * sti_order_id_bytes(order);
}

bool
sti_order_seekable(const struct sti_order *order)
{
    return !order->draws && (order->kind == STK_ORDER_KEYED || sti_order_constant(order));
}

bool
sti_order_constant(const struct sti_order *order)
{
    return order->kind != STK_ORDER_LIST && !order->shuffle;
}

uint64_t
sti_order_at(const struct sti_order *order, uint64_t epoch, uint64_t position)
{
    struct sti_keyed keyed;
    uint64_t element = sti_stream_element(order, position);

    assert(sti_order_seekable(order) && position < order->length);
    if (!order->shuffle)
        return element;
    sti_keyed_init(&keyed, order->n, (uint64_t)order->seed, epoch);
    return sti_keyed_at(&keyed, element);
}

bool
sti_order_find(const struct sti_order *order, uint64_t epoch, uint64_t sample,
               uint64_t *ret_position)
{
    struct sti_keyed keyed;

    assert(sti_order_seekable(order) && sample < order->n);
    if (!order->shuffle)
        return sti_stream_find(order, sample, ret_position);
    sti_keyed_init(&keyed, order->n, (uint64_t)order->seed, epoch);
    return sti_stream_find(order, sti_keyed_find(&keyed, sample), ret_position);
}

static void
put_id(const struct sti_order *order, void *ids, uint64_t idx, uint64_t id)
{
    if (order->n <= UINT32_MAX)
        ((uint32_t *)ids)[idx] = (uint32_t)id;
    else
        ((uint64_t *)ids)[idx] = id;
}

/* Kinds that are evaluated per element. */
static void
write_elements(const struct sti_order *order, uint64_t epoch, void *ids)
{
    struct sti_keyed keyed;

    sti_keyed_init(&keyed, order->n, (uint64_t)order->seed, epoch);
    for (uint64_t i = 0; i < order->length; i++) {
        uint64_t element = sti_stream_element(order, i);

        put_id(order, ids, i, order->shuffle ? sti_keyed_at(&keyed, element) : element);
    }
}

/* DistributedSampler: a fresh generator for each epoch. */
static void
write_distributed(const struct sti_order *order, uint64_t epoch, void *ids, void *scratch)
{
    struct sti_permutation permutation = sti_permutation_of(order->n, order->legacy_torch);
    struct sti_mt19937 engine;
    void *all = order->world == 1 ? ids : scratch;

    sti_mt19937_seed(&engine, (uint64_t)order->seed + epoch);
    sti_permutation_write(&engine, &permutation, all);
    if (order->world != 1)
        sti_stream_pick(order, all, ids);
}

/* A mix: padding goes round, as in every stream. */
static void
write_draws(const struct sti_order *order, uint64_t epoch, void *ids)
{
    struct sti_draws_range range = {.first = order->rank,
                                    .step = order->world,
                                    .n = order->length,
                                    .is_narrow = sti_order_id_bytes(order) == sizeof(uint32_t)};

    sti_draws_write(order->draws, (uint64_t)order->seed, epoch, &range, ids);
}

void
sti_order_epoch(const struct sti_order *order, uint64_t epoch, struct sti_order_cursor *cursor,
                void *ids, void *scratch)
{
    assert(order->kind != STK_ORDER_LIST);
    if (order->draws)
        write_draws(order, epoch, ids);
    else if (sti_order_seekable(order))
        write_elements(order, epoch, ids);
    else if (order->sampler == STK_SAMPLER_DISTRIBUTED)
        write_distributed(order, epoch, ids, scratch);
    else
        sti_sampler_write(order, epoch, cursor, ids, scratch);
}

/* Whether legacy_torch makes a difference. */
static bool
legacy_matters(const struct sti_order *order)
{
    if (!order->shuffle || !order->legacy_torch)
        return false;
    if (order->replacement)
        return sti_randint_draws(order->n, true) != sti_randint_draws(order->n, false);
    return sti_permutation_of(order->n, false).wide_draws;
}

uint64_t
sti_order_fingerprint(const struct sti_order *order)
{
    bool stateful = order->sampler == STK_SAMPLER_STATEFUL;
    bool persistent = order->workers == STK_SAMPLER_WORKERS_PERSISTENT;
    uint32_t workers = stateful ? order->workers : persistent;

    if (!order->shuffle || order->sampler == STK_SAMPLER_DISTRIBUTED)
        workers = 0;
    const uint64_t words[] = {
        order->kind,
        order->sampler,
        order->n,
        order->shuffle ? (uint64_t)order->seed : 0,
        order->num_samples,
        order->shuffle | (uint64_t)order->replacement << 1 | (uint64_t)order->drop_uneven << 2 |
            (uint64_t)legacy_matters(order) << 3 | (uint64_t)workers << 4,
    };
    uint64_t hash = 0;

    for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        hash = sti_mix(hash + STI_MIX_INCREMENT) ^ words[i];
    for (uint32_t p = 0; order->draws && p < order->draws->n_parts; p++) {
        hash = sti_mix(hash + STI_MIX_INCREMENT) ^ order->draws->first_id[p + 1];
        hash = sti_mix(hash + STI_MIX_INCREMENT) ^ order->draws->first_draw[p + 1];
    }
    return sti_mix(hash + STI_MIX_INCREMENT);
}
