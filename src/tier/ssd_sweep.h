/* SPDX-License-Identifier: Apache-2.0 */
/* Making room in a cache directory: subfolders of other data sets go, the oldest
 * first. */
#ifndef STI_TIER_SSD_SWEEP_H
#define STI_TIER_SSD_SWEEP_H

#include <stdint.h>

#include "tier/ssd_dir.h"

/* What a lock file begins with; a subfolder without it is not ours. */
#define STI_SSD_LOCK_TEXT "stoker cache\n"
#define STI_SSD_NAME_SIZE 32

/* The identity under which a rank of a machine caches a data set. The first one's is the data
 * set's own. */
uint64_t
sti_ssd_slot_id(uint64_t dataset_id, uint32_t slot);

/* The name of the subfolder of an identity. name: STI_SSD_NAME_SIZE bytes. */
void
sti_ssd_name(char *name, uint64_t dataset_id);

/*
 * Removes caches of other data sets, least recently opened first and never one that a job
 * has locked, until the capacity of the directory and its file system have want_bytes for
 * a rank's of this one. What other ranks have of this one stays and, unless it is apart, counts.
 * Returns how many bytes the rank's may take. Blocks.
 */
uint64_t
sti_ssd_sweep(int root_fd, const struct sti_ssd_dir_opts *opts);

#endif
