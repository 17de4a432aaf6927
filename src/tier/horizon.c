/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The horizon, as far as its kinds are alike: positions and epochs, the cut into batches,
 * and the linking of each use of a sample to the one before it.
 *
 * A catalogue entry remembers the last position at which its sample is known to be read.
 * When linking comes to the sample again, at a later position, it writes the distance at
 * the earlier one; if that was passed already, whoever keeps the sample is told instead.
 * Positions of an earlier run (before a seek) are recognised by lying below the base, so
 * nothing has to be cleared.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "tier/horizon_internal.h"

void
sti_horizon_locate(const struct sti_horizon *horizon, uint64_t position, uint64_t *ret_epoch,
                   uint64_t *ret_idx)
{
    uint64_t offset = position - horizon->base_position + horizon->base_idx;

    *ret_epoch = horizon->base_epoch + offset / horizon->length;
    *ret_idx = offset % horizon->length;
}

uint64_t
sti_horizon_position(const struct sti_horizon *horizon, uint64_t epoch, uint64_t idx)
{
    return horizon->base_position + (epoch - horizon->base_epoch) * horizon->length + idx -
           horizon->base_idx;
}

static uint32_t *
link_at(struct sti_horizon *horizon, uint64_t position)
{
    switch (horizon->kind) {
    case STI_HORIZON_TABLE:
        return sti_table_link(horizon, position);
    case STI_HORIZON_LIST:
        return sti_list_link(horizon, position);
    case STI_HORIZON_COMPUTED:
        break;
    }
    return NULL;
}

void
sti_horizon_link(struct sti_horizon *horizon, uint64_t sample, uint64_t position)
{
    struct sti_entry *entry = sti_catalog_find(horizon->opts.catalog, sample);
    uint32_t distance = (uint32_t)position - (entry->last - 1);
    bool is_known = entry->last != 0 && distance <= position - horizon->base_position;
    uint64_t before = position - distance;

    entry->last = (uint32_t)position + 1;
    if (is_known) {
        uint32_t *link = link_at(horizon, before);

        if (link)
            *link = distance;
    }
    if (is_known ? before < horizon->fetch_position : horizon->has_strangers)
        horizon->opts.on_next_use(horizon->opts.context, sample, position);
}

static int
check(const struct sti_horizon *horizon, stk_error *err)
{
    const struct sti_order *order = &horizon->opts.order;

    if (horizon->kind == STI_HORIZON_LIST)
        return 0;
    if (horizon->length == 0)
        return sti_error_set(err, STK_E_INFEASIBLE,
                             "an epoch of %" PRIu64 " samples on this rank has no batch of %" PRIu32
                             " with drop_last",
                             sti_order_length(order), horizon->opts.batch_size);
    if (horizon->kind != STI_HORIZON_TABLE)
        return 0;
    if (order->n > STI_CATALOG_TABLE_MAX)
        return sti_error_set(err, STK_E_INFEASIBLE,
                             "order: %" PRIu64 " samples are more than the %" PRIu64
                             " that a permutation is held for; use the keyed order",
                             order->n, STI_CATALOG_TABLE_MAX);
    if (sti_order_length(order) > STI_CATALOG_TABLE_MAX)
        return sti_error_set(err, STK_E_INFEASIBLE,
                             "order: an epoch of %" PRIu64 " samples on this rank is more than the "
                             "%" PRIu64 " that a table is held for; use shorter epochs, and more",
                             sti_order_length(order), STI_CATALOG_TABLE_MAX);
    return 0;
}

int
sti_horizon_new(struct sti_horizon **ret_horizon, const struct sti_horizon_opts *opts,
                stk_error *err)
{
    struct sti_horizon *horizon = sti_mem_new(1, sizeof(*horizon));
    int rc;

    if (!horizon)
        return sti_error_set(err, -ENOMEM, "no memory for the order");
    horizon->opts = *opts;
    uint64_t length = sti_order_length(&opts->order);
    if (opts->order.kind == STK_ORDER_LIST)
        horizon->kind = STI_HORIZON_LIST;
    else
        horizon->kind = sti_order_seekable(&opts->order) ? STI_HORIZON_COMPUTED : STI_HORIZON_TABLE;
    horizon->length = opts->drop_last ? length - length % opts->batch_size : length;
    horizon->batches = (horizon->length + opts->batch_size - 1) / opts->batch_size;
    rc = check(horizon, err);
    if (rc < 0)
        goto err_free;
    if (horizon->kind == STI_HORIZON_TABLE)
        rc = sti_table_init(horizon);
    else if (horizon->kind == STI_HORIZON_LIST)
        rc = sti_list_init(horizon);
    if (rc < 0) {
        (void)sti_error_set(err, rc, "no memory for the order");
        goto err_free;
    }
    *ret_horizon = horizon;
    return 0;

err_free:
    sti_mem_free(horizon);
    return rc;
}

void
sti_horizon_free(struct sti_horizon *horizon)
{
    if (!horizon)
        return;
    sti_table_fini(horizon);
    sti_list_fini(horizon);
    sti_mem_free(horizon);
}

uint64_t
sti_horizon_start(struct sti_horizon *horizon, uint64_t epoch, uint64_t idx)
{
    uint64_t base = horizon->fetch_position;

    if (horizon->linked_position > base)
        base = horizon->linked_position;
    horizon->has_strangers = base > 0;
    horizon->base_position = base;
    horizon->base_epoch = epoch;
    horizon->base_idx = idx;
    horizon->fetch_position = base;
    horizon->linked_position = base;
    horizon->current = NULL;
    for (uint32_t at = 0; at < horizon->n_slots; at++)
        sti_table_clear_links(horizon, &horizon->slots[at]);
    return base;
}

bool
sti_horizon_step(struct sti_horizon *horizon, uint64_t fetch_position, uint64_t returned_position)
{
    horizon->fetch_position = fetch_position;
    switch (horizon->kind) {
    case STI_HORIZON_TABLE:
        return sti_table_step(horizon, returned_position);
    case STI_HORIZON_LIST:
        sti_list_step(horizon);
        break;
    case STI_HORIZON_COMPUTED:
        break;
    }
    return false;
}

bool
sti_horizon_is_short_of_memory(const struct sti_horizon *horizon)
{
    return horizon->is_short_of_memory;
}

enum sti_cut
sti_horizon_cut(struct sti_horizon *horizon, uint64_t position, struct sti_batch_cut *ret_cut)
{
    uint64_t epoch, idx;
    uint32_t batch_size = horizon->opts.batch_size;

    if (horizon->kind == STI_HORIZON_LIST)
        return sti_list_cut(horizon, position, ret_cut);
    ret_cut->first_position = position;
    sti_horizon_locate(horizon, position, &epoch, &idx);
    if (horizon->opts.epochs > 0 && epoch >= horizon->opts.epochs)
        return STI_CUT_END;
    if (horizon->kind == STI_HORIZON_TABLE && !sti_table_has(horizon, position))
        return STI_CUT_NOT_YET;
    uint64_t left = horizon->length - idx;
    ret_cut->epoch = epoch;
    ret_cut->epoch_step = idx / batch_size;
    ret_cut->step = epoch * horizon->batches + ret_cut->epoch_step;
    ret_cut->count = left < batch_size ? (uint32_t)left : batch_size;
    ret_cut->is_last = ret_cut->count == left;
    return STI_CUT_BATCH;
}

static uint64_t
computed_sample(const struct sti_horizon *horizon, uint64_t position)
{
    uint64_t epoch, idx;

    sti_horizon_locate(horizon, position, &epoch, &idx);
    return sti_order_at(&horizon->opts.order, epoch, idx);
}

uint64_t
sti_horizon_sample(struct sti_horizon *horizon, uint64_t position)
{
    switch (horizon->kind) {
    case STI_HORIZON_TABLE:
        return sti_table_sample(horizon, position);
    case STI_HORIZON_LIST:
        return sti_list_sample(horizon, position);
    case STI_HORIZON_COMPUTED:
        break;
    }
    return computed_sample(horizon, position);
}

uint64_t
sti_horizon_peek(struct sti_horizon *horizon, uint64_t position)
{
    switch (horizon->kind) {
    case STI_HORIZON_TABLE:
        if (horizon->current && position >= horizon->current_first &&
            position < horizon->current_end)
            return sti_table_sample(horizon, position);
        return UINT64_MAX;
    case STI_HORIZON_LIST:
        return position < horizon->list.end_position ? sti_list_sample(horizon, position)
                                                     : UINT64_MAX;
    case STI_HORIZON_COMPUTED:
        break; /* computing it twice costs more than the cache miss */
    }
    return UINT64_MAX;
}

/* Looks a sample up in the epochs from first_epoch on; least: positions before it are
 * passed. */
static enum sti_next_use
find_computed(const struct sti_horizon *horizon, uint64_t sample, uint64_t first_epoch,
              uint64_t least, uint64_t *ret_position)
{
    uint64_t end_epoch = first_epoch + horizon->opts.held_epochs;
    bool is_to_the_end = horizon->opts.epochs > 0 && horizon->opts.epochs <= end_epoch;

    if (is_to_the_end)
        end_epoch = horizon->opts.epochs;
    for (uint64_t epoch = first_epoch; epoch < end_epoch; epoch++) {
        uint64_t idx;

        if (!sti_order_find(&horizon->opts.order, epoch, sample, &idx) || idx >= horizon->length)
            continue;
        uint64_t position = sti_horizon_position(horizon, epoch, idx);
        if (position < least || (epoch == horizon->base_epoch && idx < horizon->base_idx))
            continue;
        *ret_position = position;
        return STI_NEXT_USE_KNOWN;
    }
    return is_to_the_end ? STI_NEXT_USE_NEVER : STI_NEXT_USE_UNKNOWN;
}

/* Whether everything up to the end of the run is linked. */
static bool
is_all_linked(const struct sti_horizon *horizon)
{
    if (horizon->kind == STI_HORIZON_LIST)
        return horizon->list.is_ended && horizon->linked_position == horizon->list.end_position;
    return horizon->opts.epochs > 0 &&
           horizon->linked_position == sti_horizon_position(horizon, horizon->opts.epochs, 0);
}

enum sti_next_use
sti_horizon_next_use(struct sti_horizon *horizon, uint64_t position, uint64_t *ret_position)
{
    if (position < horizon->base_position)
        return STI_NEXT_USE_UNKNOWN;
    if (horizon->kind == STI_HORIZON_COMPUTED) {
        uint64_t epoch, idx;

        sti_horizon_locate(horizon, position, &epoch, &idx);
        return find_computed(horizon, sti_order_at(&horizon->opts.order, epoch, idx), epoch + 1,
                             position + 1, ret_position);
    }
    const uint32_t *link = link_at(horizon, position);
    if (!link)
        return STI_NEXT_USE_UNKNOWN;
    if (*link != STI_NO_LINK) {
        *ret_position = position + *link;
        return STI_NEXT_USE_KNOWN;
    }
    return is_all_linked(horizon) ? STI_NEXT_USE_NEVER : STI_NEXT_USE_UNKNOWN;
}

enum sti_next_use
sti_horizon_first_use(struct sti_horizon *horizon, uint64_t sample, uint64_t *ret_position)
{
    if (horizon->kind != STI_HORIZON_COMPUTED)
        return STI_NEXT_USE_UNKNOWN;
    return find_computed(horizon, sample, horizon->base_epoch, horizon->base_position,
                         ret_position);
}

uint64_t
sti_horizon_newest(const struct sti_horizon *horizon, uint64_t position)
{
    if (horizon->kind != STI_HORIZON_COMPUTED)
        return horizon->linked_position;
    /* A walk may go through several epochs between two steps. */
    uint64_t epoch, idx;
    sti_horizon_locate(horizon, position, &epoch, &idx);
    return sti_horizon_position(horizon, epoch + horizon->opts.held_epochs + 1, 0);
}

uint64_t
sti_horizon_span(const struct sti_horizon *horizon)
{
    if (horizon->kind == STI_HORIZON_LIST)
        return 4 * STI_LIST_IDS_MAX;
    return (horizon->opts.held_epochs + UINT64_C(3)) * horizon->length +
           horizon->opts.window_positions;
}

uint64_t
sti_horizon_epoch_end(const struct sti_horizon *horizon, uint64_t position)
{
    uint64_t epoch, idx;

    sti_horizon_locate(horizon, position, &epoch, &idx);
    return sti_horizon_position(horizon, epoch + 1, 0);
}

uint64_t
sti_horizon_known_end(const struct sti_horizon *horizon, uint64_t position)
{
    uint64_t epoch, idx;

    if (horizon->kind != STI_HORIZON_COMPUTED)
        return horizon->linked_position;
    sti_horizon_locate(horizon, position, &epoch, &idx);
    uint64_t end_epoch = epoch + horizon->opts.held_epochs;
    if (horizon->opts.epochs > 0 && end_epoch > horizon->opts.epochs)
        end_epoch = horizon->opts.epochs;
    return sti_horizon_position(horizon, end_epoch, 0);
}

bool
sti_horizon_is_catching_up(const struct sti_horizon *horizon, uint64_t position, bool is_all)
{
    if (horizon->kind != STI_HORIZON_TABLE || !horizon->opts.wants_next_use ||
        horizon->is_short_of_memory)
        return false;
    uint64_t epoch, idx;
    sti_horizon_locate(horizon, position, &epoch, &idx);
    uint64_t end_epoch = epoch + (is_all ? horizon->opts.held_epochs : 2);
    if (horizon->opts.epochs > 0 && end_epoch > horizon->opts.epochs)
        end_epoch = horizon->opts.epochs;
    return horizon->linked_position < sti_horizon_position(horizon, end_epoch, 0);
}

void
sti_horizon_hurry(struct sti_horizon *horizon)
{
    if (horizon->kind == STI_HORIZON_TABLE)
        sti_table_hurry(horizon);
}

uint64_t
sti_horizon_batches(const struct sti_horizon *horizon)
{
    return horizon->batches;
}

uint64_t
sti_horizon_epoch_length(const struct sti_horizon *horizon)
{
    return horizon->length;
}
