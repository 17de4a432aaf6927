/* SPDX-License-Identifier: Apache-2.0 */
/* Data sets of extents that the program lists. */
#ifndef STI_FORMAT_EXTENTS_H
#define STI_FORMAT_EXTENTS_H

#include <stdint.h>

#include "format/dataset.h"

/*
 * Makes a data set of extents, copied. aio: as in sti_dataset_open(). ret_dataset:
 * returns owned. Errors: as stk_dataset_extents(). Blocks.
 */
int
sti_extents_open(struct sti_dataset **ret_dataset, struct sti_aio *aio, const stk_extent *extents,
                 uint64_t n, stk_error *err);

#endif
