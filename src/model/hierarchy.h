/* SPDX-License-Identifier: Apache-2.0 */
/* The storage tiers of a node as a value: what holds samples, and how much of them. */
#ifndef STI_MODEL_HIERARCHY_H
#define STI_MODEL_HIERARCHY_H

#include <stdint.h>

#include <stoker/types.h>

struct sti_hierarchy {
    uint64_t ram_bytes; /* 0: no RAM tier */
};

/*
 * Parses "ram:32G": tiers separated by blanks, each a name and a capacity (suffixes K, M, G, T,
 * powers of 1024). NULL and "" give no tier. Errors: -EINVAL; err names the part.
 */
int
sti_hierarchy_parse(struct sti_hierarchy *ret_hierarchy, const char *text, stk_error *err);

/* Parses a size: digits with an optional suffix K, M, G or T (powers of 1024). 0 or -EINVAL. */
int
sti_size_parse(uint64_t *ret_bytes, const char *text, uint64_t n_chars);

#endif
