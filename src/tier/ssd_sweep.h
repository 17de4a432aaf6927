/* SPDX-License-Identifier: Apache-2.0 */
/* Making room in a cache directory: subfolders of other data sets go, the oldest
 * first. */
#ifndef STI_TIER_SSD_SWEEP_H
#define STI_TIER_SSD_SWEEP_H

#include <stdint.h>

/* What a lock file begins with; a subfolder without it is not ours. */
#define STI_SSD_LOCK_TEXT "stoker cache\n"
#define STI_SSD_NAME_SIZE 32

/* The name of a data set's subfolder. name: STI_SSD_NAME_SIZE bytes. */
void
sti_ssd_name(char *name, uint64_t dataset_id);

/*
 * Removes caches of other data sets, least recently opened first and never one that a job
 * has locked, until the capacity of the directory and its file system have want_bytes for
 * the one of dataset_id. Returns how many bytes that one may take. Blocks.
 */
uint64_t
sti_ssd_sweep(int root_fd, uint64_t dataset_id, uint64_t capacity_bytes, uint64_t want_bytes);

#endif
