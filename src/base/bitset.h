/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of small integers that finds its nearest member above or below a value in a few
 * steps: a tree of 64-bit words in which a bit of a level says that a word below is not
 * empty (a van Emde Boas layout with fan-out 64). 1.02 bits per possible member.
 */
#ifndef STI_BASE_BITSET_H
#define STI_BASE_BITSET_H

#include <stdbool.h>
#include <stdint.h>

#define STI_BITSET_NONE UINT64_MAX
#define STI_BITSET_LEVELS 7

struct sti_bitset {
    uint64_t n;      /* members are 0 .. n - 1 */
    uint64_t n_set;  /* how many are in */
    uint32_t levels; /* levels[0] has a bit per member */
    uint64_t *words[STI_BITSET_LEVELS];
};

/* Makes an empty set for members 0 .. n - 1, n up to 2^42. Errors: -ENOMEM, -EINVAL. */
int
sti_bitset_init(struct sti_bitset *set, uint64_t n);

/* All zero is allowed. */
void
sti_bitset_fini(struct sti_bitset *set);

/* Empties the set. */
void
sti_bitset_clear(struct sti_bitset *set);

bool
sti_bitset_has(const struct sti_bitset *set, uint64_t member);

/* Returns whether it was not in before. */
bool
sti_bitset_add(struct sti_bitset *set, uint64_t member);

/* Returns whether it was in before. */
bool
sti_bitset_remove(struct sti_bitset *set, uint64_t member);

/* The smallest member >= from, STI_BITSET_NONE without one. */
uint64_t
sti_bitset_next(const struct sti_bitset *set, uint64_t from);

/* The largest member <= from, STI_BITSET_NONE without one. */
uint64_t
sti_bitset_previous(const struct sti_bitset *set, uint64_t from);

#endif
