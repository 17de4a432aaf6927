/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's part of an epoch's order: every world-th element, padded or cut to equal
 * lengths. */
#ifndef STI_ORDER_STREAM_H
#define STI_ORDER_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "order/order.h"

/* Elements that each of world ranks gets of n: n / world, rounded up, or down with
 * drop_uneven. */
uint64_t
sti_stream_length(uint64_t n, uint32_t world, bool drop_uneven);

/* Which element (< n) of the epoch's order a position of the rank's stream is. */
uint64_t
sti_stream_element(const struct sti_order *order, uint64_t position);

/* Where the rank's stream has an element of the epoch's order. Returns whether it
 * does. */
bool
sti_stream_find(const struct sti_order *order, uint64_t element, uint64_t *ret_position);

/* Copies the rank's elements of a whole order (n ids) to ids (length ids). */
void
sti_stream_pick(const struct sti_order *order, const void *all, void *ids);

#endif
