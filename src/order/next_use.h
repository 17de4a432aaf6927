/* SPDX-License-Identifier: Apache-2.0 */
/* When a sample is read again. */
#ifndef STI_ORDER_NEXT_USE_H
#define STI_ORDER_NEXT_USE_H

#include <stdbool.h>
#include <stdint.h>

#include "order/order.h"

/* A place in the stream of a rank. */
struct sti_use {
    uint64_t epoch;
    uint64_t position; /* UINT64_MAX: before the epoch's first */
};

/* Memory in which whole epochs are written, for orders that cannot be evaluated per
 * element; unused, and may be NULL, where the order is seekable. Sizes as for
 * sti_order_epoch(). */
struct sti_order_memory {
    void *ids;
    void *scratch;
    struct sti_order_cursor cursor;
};

/*
 * Finds the first use of a sample (< n) by this rank strictly after a place, up to and
 * including last_epoch. Returns whether there is one. Cost: per epoch O(1) where the
 * order is seekable, else the making of the epoch. Not for LIST.
 */
bool
sti_next_use_find(const struct sti_order *order, uint64_t sample, struct sti_use after,
                  uint64_t last_epoch, struct sti_order_memory *memory, struct sti_use *ret_use);

#endif
