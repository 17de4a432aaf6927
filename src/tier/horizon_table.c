/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epochs held as tables. A slot holds one epoch: its ids, made by a job on the pool, and
 * its links, written by the loop. The job is the only one to touch a slot while it is
 * MAKING; it sets the state last (release), the loop reads it first (acquire). The epoch
 * being read, those the horizon reaches into and those still staged are held; the slot of
 * the oldest is used again when the consumer has been given all of it.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "tier/horizon_internal.h"

/* Positions linked per step: a few milliseconds where all of the catalogue is cold. */
#define LINK_STEP 4096u

static int
state_of(const struct sti_epoch_slot *slot)
{
    return __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE); /* pairs with make() */
}

int
sti_table_init(struct sti_horizon *horizon)
{
    uint64_t staged = (horizon->opts.window_positions + horizon->length - 1) / horizon->length;

    horizon->n_slots = horizon->opts.held_epochs + (uint32_t)(staged < 1 ? 1 : staged);
    horizon->slots = sti_mem_new(horizon->n_slots, sizeof(struct sti_epoch_slot));
    return horizon->slots ? 0 : -ENOMEM;
}

void
sti_table_fini(struct sti_horizon *horizon)
{
    for (uint32_t at = 0; at < horizon->n_slots; at++) {
        struct sti_epoch_slot *slot = &horizon->slots[at];

        sti_pool_withdraw(horizon->opts.pool, &slot->job); /* pure computation: it ends */
        sti_mem_free(slot->ids);
        sti_mem_free(slot->links);
        sti_mem_free(slot->scratch);
    }
    sti_mem_free(horizon->slots);
}

static void
make(struct sti_job *job)
{
    struct sti_epoch_slot *slot =
        (struct sti_epoch_slot *)(void *)((char *)job - offsetof(struct sti_epoch_slot, job));
    struct sti_horizon *horizon = slot->horizon;
    const struct sti_order *order = &horizon->opts.order;

    sti_order_epoch(order, slot->epoch, &slot->cursor, slot->ids, slot->scratch);
    __atomic_store_n(&slot->state, STI_SLOT_READY, __ATOMIC_RELEASE); /* pairs with state_of() */
    horizon->opts.wake(horizon->opts.wake_context);
}

static struct sti_epoch_slot *
slot_of(struct sti_horizon *horizon, uint64_t epoch)
{
    for (uint32_t at = 0; at < horizon->n_slots; at++)
        if (state_of(&horizon->slots[at]) != STI_SLOT_EMPTY && horizon->slots[at].epoch == epoch)
            return &horizon->slots[at];
    return NULL;
}

/*
 * A slot that holds nothing between the first epoch still needed and the last one wanted;
 * for want of one, that of the farthest epoch behind the one to be made. Epochs are
 * linked in their order, so nothing of that one is linked yet.
 */
static struct sti_epoch_slot *
unused_slot(struct sti_horizon *horizon, uint64_t epoch, uint64_t first_epoch, uint64_t end_epoch)
{
    struct sti_epoch_slot *farthest = NULL;

    for (uint32_t at = 0; at < horizon->n_slots; at++) {
        struct sti_epoch_slot *slot = &horizon->slots[at];
        int state = state_of(slot);

        if (state == STI_SLOT_EMPTY)
            return slot;
        if (state == STI_SLOT_READY && (slot->epoch < first_epoch || slot->epoch >= end_epoch))
            return slot;
        if (state == STI_SLOT_READY && slot->epoch > epoch &&
            (!farthest || slot->epoch > farthest->epoch))
            farthest = slot;
    }
    return farthest;
}

/* Epochs are made one after the other, so what a slot is made with is handed on to the
 * next. */
static int
prepare_scratch(struct sti_horizon *horizon, struct sti_epoch_slot *slot)
{
    uint64_t n_bytes = sti_order_scratch_bytes(&horizon->opts.order);

    for (uint32_t at = 0; !slot->scratch && at < horizon->n_slots; at++) {
        struct sti_epoch_slot *other = &horizon->slots[at];

        if (other->scratch && state_of(other) != STI_SLOT_MAKING) {
            slot->scratch = other->scratch;
            other->scratch = NULL;
        }
    }
    if (!slot->scratch && n_bytes > 0)
        slot->scratch = sti_mem_new(1, n_bytes);
    return slot->scratch || n_bytes == 0 ? 0 : -ENOMEM;
}

void
sti_table_clear_links(const struct sti_horizon *horizon, struct sti_epoch_slot *slot)
{
    if (slot->has_links)
        memset(slot->links, 0, horizon->length * sizeof(uint32_t));
    slot->has_links = false;
}

/* Memory stays with the slots, so that only the first round of epochs allocates. */
static int
prepare_slot(struct sti_horizon *horizon, struct sti_epoch_slot *slot)
{
    const struct sti_order *order = &horizon->opts.order;

    if (!slot->ids) {
        slot->ids = sti_mem_new(sti_order_length(order), sti_order_id_bytes(order));
        if (!slot->ids)
            return -ENOMEM;
    }
    if (prepare_scratch(horizon, slot) < 0)
        return -ENOMEM;
    if (!horizon->opts.wants_next_use)
        return 0;
    if (!slot->links) {
        slot->links = sti_mem_new(horizon->length, sizeof(uint32_t));
        return slot->links ? 0 : -ENOMEM;
    }
    sti_table_clear_links(horizon, slot);
    return 0;
}

static void
start_making(struct sti_horizon *horizon, struct sti_epoch_slot *slot, uint64_t epoch,
             bool is_urgent)
{
    const struct sti_epoch_slot *before = epoch > 0 ? slot_of(horizon, epoch - 1) : NULL;

    if (prepare_slot(horizon, slot) < 0) {
        horizon->is_short_of_memory = true; /* tried again; the consumer waits for a while */
        return;
    }
    /* A generator that lives on is handed from epoch to epoch; without it the epoch is
     * jumped to. */
    slot->cursor.valid = false;
    if (before && state_of(before) == STI_SLOT_READY)
        slot->cursor = before->cursor;
    slot->horizon = horizon;
    slot->epoch = epoch;
    slot->job.fn = make;
    slot->is_hurried = is_urgent;
    if (horizon->current == slot)
        horizon->current = NULL;
    __atomic_store_n(&slot->state, STI_SLOT_MAKING, __ATOMIC_RELEASE);
    sti_pool_submit(horizon->opts.pool, is_urgent ? STI_LANE_URGENT : STI_LANE_BACKGROUND,
                    &slot->job, 1);
}

/* Starts the first missing epoch: of those that are held, and of the one behind them if a
 * slot is free, so that it is there when the walk enters the next epoch. */
static void
make_missing(struct sti_horizon *horizon, uint64_t first_epoch, uint64_t fetch_epoch)
{
    uint64_t end_epoch = fetch_epoch + horizon->opts.held_epochs + 1;

    if (horizon->opts.epochs > 0 && end_epoch > horizon->opts.epochs)
        end_epoch = horizon->opts.epochs;
    horizon->is_short_of_memory = false;
    for (uint64_t epoch = fetch_epoch; epoch < end_epoch; epoch++) {
        struct sti_epoch_slot *slot = slot_of(horizon, epoch);
        int state = slot ? state_of(slot) : STI_SLOT_EMPTY; /* once: a job may be changing it */

        if (state == STI_SLOT_READY)
            continue;
        if (state == STI_SLOT_MAKING)
            return; /* one after the other: the next one continues its generator */
        struct sti_epoch_slot *unused = unused_slot(horizon, epoch, first_epoch, end_epoch);
        if (unused)
            start_making(horizon, unused, epoch, epoch == fetch_epoch);
        return;
    }
}

void
sti_table_hurry(struct sti_horizon *horizon)
{
    for (uint32_t at = 0; at < horizon->n_slots; at++) {
        struct sti_epoch_slot *slot = &horizon->slots[at];

        if (state_of(slot) != STI_SLOT_MAKING || slot->is_hurried)
            continue;
        slot->is_hurried = true;
        sti_pool_hurry(horizon->opts.pool, &slot->job);
    }
}

/* Makes the slot of a position current; false when it is not held. */
static bool
turn_to(struct sti_horizon *horizon, uint64_t position)
{
    uint64_t epoch, idx;

    if (horizon->current && position >= horizon->current_first && position < horizon->current_end)
        return true;
    sti_horizon_locate(horizon, position, &epoch, &idx);
    struct sti_epoch_slot *slot = slot_of(horizon, epoch);
    if (!slot || state_of(slot) != STI_SLOT_READY)
        return false;
    horizon->current = slot;
    horizon->current_first = epoch == horizon->base_epoch ? horizon->base_position : position - idx;
    horizon->current_end = position - idx + horizon->length;
    return true;
}

/* Index in its epoch of a position of the current slot. */
static uint64_t
idx_of(const struct sti_horizon *horizon, uint64_t position)
{
    return horizon->length - (horizon->current_end - position);
}

bool
sti_table_has(struct sti_horizon *horizon, uint64_t position)
{
    return turn_to(horizon, position);
}

uint64_t
sti_table_sample(struct sti_horizon *horizon, uint64_t position)
{
    if (!turn_to(horizon, position))
        return UINT64_MAX;
    return sti_order_id(&horizon->opts.order, horizon->current->ids, idx_of(horizon, position));
}

uint32_t *
sti_table_link(struct sti_horizon *horizon, uint64_t position)
{
    uint64_t epoch, idx;

    sti_horizon_locate(horizon, position, &epoch, &idx);
    struct sti_epoch_slot *slot = slot_of(horizon, epoch);
    if (!slot || state_of(slot) != STI_SLOT_READY || !slot->links)
        return NULL;
    slot->has_links = true;
    return &slot->links[idx];
}

/* Links a stretch of positions; returns whether more could be linked at once. */
static bool
link_some(struct sti_horizon *horizon)
{
    uint64_t epoch, idx;

    if (!horizon->opts.wants_next_use)
        return false;
    sti_horizon_locate(horizon, horizon->linked_position, &epoch, &idx);
    if (horizon->opts.epochs > 0 && epoch >= horizon->opts.epochs)
        return false;
    const struct sti_epoch_slot *slot = slot_of(horizon, epoch);
    if (!slot || state_of(slot) != STI_SLOT_READY)
        return false;
    const struct sti_order *order = &horizon->opts.order;
    uint64_t n = horizon->length - idx;
    n = n < LINK_STEP ? n : LINK_STEP;
    for (uint64_t at = 0; at < n; at++) {
        if (at + 16 < n)
            sti_catalog_prefetch(horizon->opts.catalog,
                                 sti_order_id(order, slot->ids, idx + at + 16));
        sti_horizon_link(horizon, sti_order_id(order, slot->ids, idx + at),
                         horizon->linked_position + at);
    }
    horizon->linked_position += n;
    return true;
}

bool
sti_table_step(struct sti_horizon *horizon, uint64_t returned_position)
{
    uint64_t fetch_epoch, first_epoch, idx;

    if (returned_position < horizon->base_position)
        returned_position = horizon->base_position;
    sti_horizon_locate(horizon, horizon->fetch_position, &fetch_epoch, &idx);
    sti_horizon_locate(horizon, returned_position, &first_epoch, &idx);
    if (horizon->opts.wants_next_use && horizon->linked_position < returned_position)
        sti_horizon_locate(horizon, horizon->linked_position, &first_epoch, &idx);
    make_missing(horizon, first_epoch, fetch_epoch);
    return link_some(horizon);
}
