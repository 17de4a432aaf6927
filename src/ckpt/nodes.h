/* SPDX-License-Identifier: Apache-2.0 */
/* What other nodes have of checkpoints, when each has a directory and roots of its
 * own. All of this is asked of their keepers, and blocks, on the thread whose aio the
 * scan has. */
#ifndef STI_CKPT_NODES_H
#define STI_CKPT_NODES_H

#include "ckpt/scan.h"
#include "ckpt/depot.h"

/* keepers: ranks of n other nodes, those asked first in front. Borrowed. */
struct sti_nodes {
    struct sti_depot *depot;
    const uint32_t *keepers;
    uint32_t n;
};

/* The steps of a node's directory. ret_steps: returns owned. Errors: -ENOMEM, what the
 * keeper says or was lost by. */
int
sti_nodes_steps(const struct sti_scan *scan, uint32_t node, uint64_t **ret_steps, uint32_t *ret_n);

/* The bytes of a node's manifest of a step. ret_bytes: returns owned. Errors: -ENOENT,
 * ... */
int
sti_nodes_manifest(const struct sti_scan *scan, uint32_t node, uint64_t step, char **ret_bytes,
                   uint64_t *ret_n_bytes);

/* Finds a node that has a part in its full size. node: which one to ask first (0 at
 * first), then which one it is. Errors: STK_E_CORRUPT none has it (err names the
 * part); what a node was lost by that may have it (err->rank). */
int
sti_nodes_find_part(const struct sti_scan *scan, const struct sti_manifest *manifest, uint32_t part,
                    uint32_t *node, stk_error *err);

/* Says of an ask which part it is about. Borrows from the manifest. */
void
sti_nodes_name_part(struct sti_depot_ask *ask, const struct sti_manifest *manifest, uint32_t part);

#endif
