/* SPDX-License-Identifier: Apache-2.0 */
/* The storage tiers of a node as a value: what holds samples, and how much of them. */
#ifndef STI_MODEL_HIERARCHY_H
#define STI_MODEL_HIERARCHY_H

#include <stdint.h>

#include <stoker/types.h>

#define STI_SSDS_MAX 8
#define STI_SSD_SLOTS_MAX 32u /* ranks of a machine that have a cache in a directory */
#define STI_SSD_PATH_SIZE 256

/* A directory that samples are cached in. */
struct sti_ssd_config {
    char path[STI_SSD_PATH_SIZE];
    uint64_t n_bytes; /* capacity; at least 1 */
};

struct sti_hierarchy {
    uint64_t ram_bytes; /* 0: no RAM tier */
    uint32_t n_ssds;
    struct sti_ssd_config ssds[STI_SSDS_MAX];
};

/*
 * Parses "ram:32G ssd:/local/cache:200G": tiers separated by blanks, each a name, for ssd
 * the path of a directory, and a capacity (suffixes K, M, G, T, powers of 1024). ram
 * comes once at most, ssd up to STI_SSDS_MAX times, each path once. NULL and "" give no
 * tier. Errors: -EINVAL; err names the part.
 */
int
sti_hierarchy_parse(struct sti_hierarchy *ret_hierarchy, const char *text, stk_error *err);

/*
 * Makes of a machine's tiers the part that each of n of its ranks has, 1 at least; SSDs in whole
 * bytes, rounded up. Errors: -E2BIG n is more than STI_SSD_SLOTS_MAX, and there is an SSD; err
 * names it.
 */
int
sti_hierarchy_divide(struct sti_hierarchy *hierarchy, uint32_t n, stk_error *err);

/* Parses a size: digits with an optional suffix K, M, G or T (powers of 1024). 0 or
 * -EINVAL. */
int
sti_size_parse(uint64_t *ret_bytes, const char *text, uint64_t n_chars);

#endif
