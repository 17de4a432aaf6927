/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at single parts: whether one is here, and in its size. */
#ifndef STI_CKPT_PARTS_H
#define STI_CKPT_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/types.h>

#include "ckpt/scan.h"

/*
 * Looks at a part where this machine sees it; other nodes are not asked. ret_is_coming: of one
 * that is not here, whether a copy of it was begun. Returns 0, -ENOENT it is not here, -EINVAL or
 * -EISDIR it is no file, STK_E_CORRUPT its size, what looking gives; err names the file, but for
 * -ENOENT. Blocks.
 */
int
sti_part_look(const struct sti_scan *scan, const struct sti_manifest *manifest, uint32_t part,
              bool *ret_is_coming, stk_error *err);

#endif
