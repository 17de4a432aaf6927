/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at single parts: whether one is here, and good. */
#ifndef STI_CKPT_PARTS_H
#define STI_CKPT_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/types.h>

#include "ckpt/scan.h"

/*
 * Looks at a part where this machine sees it; other nodes are not asked. is_read: reads it, and
 * checks its chunks. ret_is_coming: of one that is not here, whether a copy of it was begun.
 * Returns 0, -ENOENT it is not here, STK_E_CORRUPT its size or a chunk, what opening and reading
 * give, -ENOMEM; err names the file, but for -ENOENT. Blocks.
 */
int
sti_part_look(const struct sti_scan *scan, const struct sti_manifest *manifest, uint32_t part,
              bool is_read, bool *ret_is_coming, stk_error *err);

#endif
