/* SPDX-License-Identifier: Apache-2.0 */
/* How often samples are read. */
#ifndef STI_ORDER_FREQUENCY_H
#define STI_ORDER_FREQUENCY_H

#include <stdint.h>

#include "order/next_use.h"

/*
 * Counts how often this rank reads each sample in epochs first .. first + epochs - 1
 * (epochs >= 1, no overflow). counts: n values, set by the call; they stay at UINT32_MAX
 * once there. Cost: epochs times the length of the stream (and the making of an epoch
 * where the order is not seekable); O(n) where every epoch is the same or reads each
 * sample once. Not for LIST.
 */
void
sti_frequency_count(const struct sti_order *order, uint64_t first, uint64_t epochs,
                    struct sti_order_memory *memory, uint32_t *counts);

#endif
