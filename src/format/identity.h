/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STI_FORMAT_IDENTITY_H
#define STI_FORMAT_IDENTITY_H

#include "format/dataset_internal.h"
#include "io/aio.h"

/*
 * Finds out a data set's identity, once its index is adopted and its directory open.
 * Errors: of statx, STK_E_CORRUPT the index changed while it was read. Blocks.
 */
int
sti_dataset_identify(struct sti_dataset *dataset, struct sti_aio *aio);

#endif
