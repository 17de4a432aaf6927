/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read counts. Where the answer does not need the epochs one by one it is given without
 * them: a rank that is alone reads every sample once per epoch, and an order without a
 * shuffle repeats itself. Values only; any thread.
 */
#include "order/frequency.h"

#include <string.h>

static uint32_t
saturate(uint64_t count)
{
    return count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
}

static void
count_epoch(const struct sti_order *order, uint64_t epoch, uint32_t times,
            struct sti_order_memory *memory, uint32_t *counts)
{
    bool seekable = sti_order_seekable(order);

    if (!seekable)
        sti_order_epoch(order, epoch, &memory->cursor, memory->ids, memory->scratch);
    for (uint64_t i = 0; i < order->length; i++) {
        uint64_t sample =
            seekable ? sti_order_at(order, epoch, i) : sti_order_id(order, memory->ids, i);

        counts[sample] = saturate((uint64_t)counts[sample] + times);
    }
}

void
sti_frequency_count(const struct sti_order *order, uint64_t first, uint64_t epochs,
                    struct sti_order_memory *memory, uint32_t *counts)
{
    if (order->world == 1 && !order->replacement && order->num_samples % order->n == 0) {
        uint64_t per_epoch = saturate(order->num_samples / order->n);
        uint32_t count = saturate(per_epoch * saturate(epochs));

        for (uint64_t sample = 0; sample < order->n; sample++)
            counts[sample] = count;
        return;
    }
    memset(counts, 0, order->n * sizeof(*counts));
    if (sti_order_constant(order)) {
        count_epoch(order, first, saturate(epochs), memory, counts);
        return;
    }
    for (uint64_t i = 0; i < epochs; i++)
        count_epoch(order, first + i, 1, memory, counts);
}
