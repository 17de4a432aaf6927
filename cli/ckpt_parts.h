/* SPDX-License-Identifier: Apache-2.0 */
/* What one node has of a checkpoint whose parts lie on several. */
#ifndef CLI_CKPT_PARTS_H
#define CLI_CKPT_PARTS_H

#include <stdbool.h>

#include <stoker/stoker.h>

/* The end of a line of a list: which parts are here, of one that is not whole or is one of
 * several nodes' (is_node_local), whose other parts are not missed; nothing of one that is. */
void
ckpt_parts_print(stk_ckpt *ckpt, const stk_ckpt_info *info, bool is_node_local);

/* Reads every byte that is here, and says so in a line. Returns CLI_OK, or CLI_FAILED after saying
 * what is wrong. */
int
ckpt_parts_verify(const char *command, stk_ckpt *ckpt, const stk_ckpt_info *info);

#endif
