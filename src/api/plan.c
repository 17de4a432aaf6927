/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders, exported: arguments are checked and memory is found here, the arithmetic is
 * order/'s. An order is constant once made and calls keep nothing between them, so any
 * number of threads may use one.
 */
#include <stoker/plan.h>

#include <errno.h>

#include "api/opts.h"
#include "base/error.h"
#include "base/mem.h"
#include "order/frequency.h"
#include "order/next_use.h"
#include "order/order.h"

struct stk_order {
    struct sti_order order;
};

static const struct sti_opts_type order_opts_type = {
    .name = "stk_order_opts",
    .size = sizeof(stk_order_opts),
    .first_size = sizeof(stk_order_opts),
};

int
stk_order_new(stk_order **ret_order, const stk_order_opts *opts, stk_error *err)
{
    stk_order_opts own;
    int rc;

    if (!ret_order || !opts)
        return sti_error_set(err, -EINVAL, "stk_order_new() needs ret_order and opts");
    rc = sti_opts_take(&own, &order_opts_type, opts, err);
    if (rc)
        return rc;
    stk_order *order = sti_mem_new(1, sizeof(*order));
    if (!order)
        return sti_error_set(err, -ENOMEM, "no memory for an order");
    rc = sti_order_init(&order->order, &own, err);
    if (rc) {
        sti_mem_free(order);
        return rc;
    }
    *ret_order = order;
    return 0;
}

void
stk_order_free(stk_order *order)
{
    sti_mem_free(order);
}

/* What every call on an order needs of it. */
static int
check_order(const stk_order *order)
{
    if (!order)
        return -EINVAL;
    return order->order.kind == STK_ORDER_LIST ? -ENOTSUP : 0;
}

int
stk_order_length(const stk_order *order, uint64_t *ret_count)
{
    int rc = check_order(order);

    if (rc)
        return rc;
    if (!ret_count)
        return -EINVAL;
    *ret_count = sti_order_length(&order->order);
    return 0;
}

static void
memory_free(struct sti_order_memory *memory)
{
    sti_mem_free(memory->ids);
    sti_mem_free(memory->scratch);
}

/* Finds memory for whole epochs. */
static int
memory_new(const struct sti_order *order, struct sti_order_memory *memory)
{
    /* One byte more, so that NULL means one thing even where nothing is needed. */
    memory->ids = sti_mem_new(sti_order_length(order) * sti_order_id_bytes(order) + 1, 1);
    memory->scratch = sti_mem_new(sti_order_scratch_bytes(order) + 1, 1);
    if (memory->ids && memory->scratch)
        return 0;
    memory_free(memory);
    return -ENOMEM;
}

int
stk_order_ids(const stk_order *order, uint64_t epoch, uint64_t first, uint64_t count, uint64_t *ids)
{
    int rc = check_order(order);

    if (rc)
        return rc;
    const struct sti_order *o = &order->order;
    uint64_t length = sti_order_length(o);
    if (first > length || count > length - first)
        return -ERANGE;
    if (!count)
        return 0;
    if (!ids)
        return -EINVAL;
    if (sti_order_seekable(o)) {
        for (uint64_t i = 0; i < count; i++)
            ids[i] = sti_order_at(o, epoch, first + i);
        return 0;
    }
    struct sti_order_memory memory = {0};
    rc = memory_new(o, &memory);
    if (rc)
        return rc;
    sti_order_epoch(o, epoch, NULL, memory.ids, memory.scratch);
    for (uint64_t i = 0; i < count; i++)
        ids[i] = sti_order_id(o, memory.ids, first + i);
    memory_free(&memory);
    return 0;
}

int
stk_order_next_use(const stk_order *order, uint64_t sample, uint64_t epoch, uint64_t position,
                   uint64_t last_epoch, uint64_t *ret_epoch, uint64_t *ret_position)
{
    struct sti_order_memory memory = {0};
    struct sti_use use;
    int rc = check_order(order);

    if (rc)
        return rc;
    if (!ret_epoch || !ret_position)
        return -EINVAL;
    const struct sti_order *o = &order->order;
    if (sample >= o->n || (position != UINT64_MAX && position >= sti_order_length(o)))
        return -ERANGE;
    if (!sti_order_seekable(o))
        rc = memory_new(o, &memory);
    if (rc)
        return rc;
    bool found =
        sti_next_use_find(o, sample, (struct sti_use){epoch, position}, last_epoch, &memory, &use);
    memory_free(&memory);
    if (!found)
        return 0;
    *ret_epoch = use.epoch;
    *ret_position = use.position;
    return 1;
}

int
stk_order_frequency(const stk_order *order, uint64_t first_epoch, uint64_t epochs, uint32_t *counts)
{
    struct sti_order_memory memory = {0};
    int rc = check_order(order);

    if (rc)
        return rc;
    if (!epochs || !counts)
        return -EINVAL;
    if (epochs - 1 > UINT64_MAX - first_epoch)
        return -ERANGE;
    if (!sti_order_seekable(&order->order))
        rc = memory_new(&order->order, &memory);
    if (rc)
        return rc;
    sti_frequency_count(&order->order, first_epoch, epochs, &memory, counts);
    memory_free(&memory);
    return 0;
}
