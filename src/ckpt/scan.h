/* SPDX-License-Identifier: Apache-2.0 */
/* What checkpoints lie in a directory. The directory is the truth; nothing else is looked
 * at. */
#ifndef STI_CKPT_SCAN_H
#define STI_CKPT_SCAN_H

#include <stdint.h>

#include <stoker/types.h>

#include "ckpt/manifest.h"
#include "ckpt/steps.h"
#include "io/aio.h"

struct sti_nodes;

/* A checkpoint directory, open. path: for messages and for roots named ".". nodes: NULL, or
 * others that have a directory and roots of their own, where what is not here is looked for. */
struct sti_scan {
    struct sti_aio *aio; /* the calling thread's */
    int dir_fd;
    const char *path;
    const struct sti_nodes *nodes;
};

/*
 * Adds all step-N, and sorts what is there then, newest first, each once. Errors: -ENOMEM, those of
 * listing; steps are what they were or more. Blocks.
 */
int
sti_scan_steps(const struct sti_scan *scan, struct sti_steps *steps, stk_error *err);

/*
 * Reads the manifest of a step. Errors: -ENOENT no such checkpoint, STK_E_CORRUPT,
 * STK_E_VERSION, STK_E_MISMATCH it is of another step, -EIO, -ENOMEM. Blocks.
 */
int
sti_scan_manifest(const struct sti_scan *scan, uint64_t step, struct sti_manifest *manifest,
                  stk_error *err);

/*
 * Finds the manifest of a step whose parts are all there, here or on other nodes; here first.
 * Errors: as sti_scan_manifest() and sti_scan_check_parts(), of the first that there is. Blocks.
 */
int
sti_scan_whole(const struct sti_scan *scan, uint64_t step, struct sti_manifest *manifest,
               stk_error *err);

/* Where a part lies. path: room for path_size. Returns the descriptor that it is relative
 * to. Errors: -ENAMETOOLONG. */
int
sti_scan_part_path(const struct sti_scan *scan, const struct sti_manifest *manifest, uint32_t part,
                   char *path, size_t path_size);

/* Whether every part is there in its full size. Errors: STK_E_CORRUPT (err names the
 * first that is not, and its root), and what looking gives. Blocks. */
int
sti_scan_check_parts(const struct sti_scan *scan, const struct sti_manifest *manifest,
                     stk_error *err);

/*
 * The newest checkpoint whose manifest is good and whose parts are there. ret_skipped:
 * how many newer ones are not; err then says what is wrong with the newest, also on
 * success. Errors: -ENOENT there is none, STK_E_CORRUPT there are some and none is good.
 */
int
sti_scan_latest(const struct sti_scan *scan, struct sti_manifest *manifest, uint32_t *ret_skipped,
                stk_error *err);

/*
 * Removes what dead writers left in the directory and in roots: parts that belong to no
 * checkpoint, unfinished manifests. Nobody may be saving here meanwhile. ret_n:
 * directories removed. Errors: what removing gives. Blocks.
 */
int
sti_scan_remove_orphans(const struct sti_scan *scan, const char *const *roots, uint32_t n_roots,
                        uint32_t *ret_n, stk_error *err);

#endif
