/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The epochs of PyTorch's samplers: where in which generator's sequence an epoch is
 * drawn, and what RandomSampler makes of the draws.
 */
#ifndef STI_ORDER_SAMPLER_H
#define STI_ORDER_SAMPLER_H

#include <stdint.h>

#include "order/order.h"

/*
 * Writes an epoch of a shuffling TORCH order whose sampler is not DISTRIBUTED:
 * num_samples ids. cursor as for sti_order_epoch(). scratch: sti_sampler_scratch_bytes().
 */
void
sti_sampler_write(const struct sti_order *order, uint64_t epoch, struct sti_order_cursor *cursor,
                  void *ids, void *scratch);

/* Bytes of scratch for sti_sampler_write(). */
uint64_t
sti_sampler_scratch_bytes(const struct sti_order *order);

#endif
