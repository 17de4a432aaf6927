/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream of a rank. Padding goes round: the order is repeated from its head until
 * every rank has as many elements. So position p of rank r is element (p * world + r) mod
 * n.
 *
 * Invariant: the ranks' streams together have every element once, except the fewer than
 * world that padding has repeated or cutting has left out; no rank has an element twice
 * (padding adds fewer than world elements, and exactly n of them only where a rank has a
 * single one). Values only; any thread.
 */
#include "order/stream.h"

uint64_t
sti_stream_length(uint64_t n, uint32_t world, bool drop_uneven)
{
    return drop_uneven ? n / world : (n - 1) / world + 1;
}

uint64_t
sti_stream_element(const struct sti_order *order, uint64_t position)
{
    uint64_t at = position * order->world + order->rank;

    return at < order->n ? at : at % order->n;
}

bool
sti_stream_find(const struct sti_order *order, uint64_t element, uint64_t *ret_position)
{
    uint64_t at = element;

    if (order->world > order->n) { /* one element per rank, or none */
        *ret_position = 0;
        return order->length && order->rank % order->n == element;
    }
    if (at % order->world != order->rank)
        at += order->n; /* its copy in the padding, if any */
    if (at % order->world != order->rank || at / order->world >= order->length)
        return false;
    *ret_position = at / order->world;
    return true;
}

void
sti_stream_pick(const struct sti_order *order, const void *all, void *ids)
{
    if (sti_order_id_bytes(order) == sizeof(uint32_t)) {
        const uint32_t *from = all;
        uint32_t *to = ids;

        for (uint64_t i = 0; i < order->length; i++)
            to[i] = from[sti_stream_element(order, i)];
    } else {
        const uint64_t *from = all;
        uint64_t *to = ids;

        for (uint64_t i = 0; i < order->length; i++)
            to[i] = from[sti_stream_element(order, i)];
    }
}
