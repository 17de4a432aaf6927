/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The next use of a sample, epoch by epoch. An order that is the same in every epoch is
 * looked at twice at most: the rest of the first epoch and the next one whole; a sample
 * that is in neither is in none, however far the last epoch is.
 *
 * Invariant: what is returned lies strictly after the place that was given. Values only.
 */
#include "order/next_use.h"

/* The first position >= from at which an epoch has the sample. */
static bool
find_in_epoch(const struct sti_order *order, uint64_t sample, struct sti_use from,
              struct sti_order_memory *memory, uint64_t *ret_position)
{
    uint64_t position;

    if (sti_order_seekable(order)) {
        if (!sti_order_find(order, from.epoch, sample, &position) || position < from.position)
            return false;
        *ret_position = position;
        return true;
    }
    sti_order_epoch(order, from.epoch, &memory->cursor, memory->ids, memory->scratch);
    for (position = from.position; position < order->length; position++)
        if (sti_order_id(order, memory->ids, position) == sample) {
            *ret_position = position;
            return true;
        }
    return false;
}

bool
sti_next_use_find(const struct sti_order *order, uint64_t sample, struct sti_use after,
                  uint64_t last_epoch, struct sti_order_memory *memory, struct sti_use *ret_use)
{
    struct sti_use from = {after.epoch, after.position + 1}; /* UINT64_MAX wraps to the first */
    uint64_t position;

    if (!order->length || after.epoch > last_epoch)
        return false;
    if (sti_order_constant(order) && last_epoch > after.epoch)
        last_epoch = after.epoch + 1;
    while (!find_in_epoch(order, sample, from, memory, &position)) {
        if (from.epoch == last_epoch)
            return false;
        from = (struct sti_use){from.epoch + 1, 0};
    }
    *ret_use = (struct sti_use){from.epoch, position};
    return true;
}
