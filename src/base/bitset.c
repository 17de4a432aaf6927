/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set. Invariant: bit b of level l + 1 is set exactly when word b of level l is not
 * zero. A search climbs until a level has a bit in the wanted direction, then follows the
 * nearest set bits down. No threads of its own.
 */
#include "base/bitset.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"

static uint64_t
words_for(uint64_t n)
{
    return (n + 63) / 64;
}

int
sti_bitset_init(struct sti_bitset *set, uint64_t n)
{
    uint64_t left = n ? n : 1;

    memset(set, 0, sizeof(*set));
    set->n = n;
    do {
        if (set->levels == STI_BITSET_LEVELS) {
            sti_bitset_fini(set);
            return -EINVAL;
        }
        left = words_for(left);
        set->words[set->levels] = sti_mem_new(left, sizeof(uint64_t));
        if (!set->words[set->levels]) {
            sti_bitset_fini(set);
            return -ENOMEM;
        }
        set->levels++;
    } while (left > 1);
    return 0;
}

void
sti_bitset_fini(struct sti_bitset *set)
{
    for (uint32_t level = 0; level < STI_BITSET_LEVELS; level++)
        sti_mem_free(set->words[level]);
    memset(set, 0, sizeof(*set));
}

void
sti_bitset_clear(struct sti_bitset *set)
{
    uint64_t left = set->n ? set->n : 1;

    for (uint32_t level = 0; level < set->levels; level++) {
        left = words_for(left);
        memset(set->words[level], 0, left * sizeof(uint64_t));
    }
    set->n_set = 0;
}

bool
sti_bitset_has(const struct sti_bitset *set, uint64_t member)
{
    return (set->words[0][member / 64] >> (member % 64)) & 1;
}

bool
sti_bitset_add(struct sti_bitset *set, uint64_t member)
{
    if (sti_bitset_has(set, member))
        return false;
    for (uint32_t level = 0; level < set->levels; level++) {
        uint64_t *word = &set->words[level][member / 64];
        bool was_empty = *word == 0;

        *word |= UINT64_C(1) << (member % 64);
        if (!was_empty)
            break;
        member /= 64;
    }
    set->n_set++;
    return true;
}

bool
sti_bitset_remove(struct sti_bitset *set, uint64_t member)
{
    if (!sti_bitset_has(set, member))
        return false;
    for (uint32_t level = 0; level < set->levels; level++) {
        uint64_t *word = &set->words[level][member / 64];

        *word &= ~(UINT64_C(1) << (member % 64));
        if (*word != 0)
            break;
        member /= 64;
    }
    set->n_set--;
    return true;
}

static uint64_t
lowest_below(const struct sti_bitset *set, uint32_t level, uint64_t member)
{
    while (level > 0) {
        level--;
        member = member * 64 + (uint64_t)__builtin_ctzll(set->words[level][member]);
    }
    return member;
}

static uint64_t
highest_below(const struct sti_bitset *set, uint32_t level, uint64_t member)
{
    while (level > 0) {
        level--;
        member = member * 64 + 63 - (uint64_t)__builtin_clzll(set->words[level][member]);
    }
    return member;
}

uint64_t
sti_bitset_next(const struct sti_bitset *set, uint64_t from)
{
    uint64_t n = set->n;

    for (uint32_t level = 0; level < set->levels && from < n; level++) {
        uint64_t word = set->words[level][from / 64] >> (from % 64);

        if (word != 0)
            return lowest_below(set, level, from + (uint64_t)__builtin_ctzll(word));
        from = from / 64 + 1;
        n = words_for(n);
    }
    return STI_BITSET_NONE;
}

uint64_t
sti_bitset_previous(const struct sti_bitset *set, uint64_t from)
{
    if (set->n == 0)
        return STI_BITSET_NONE;
    if (from >= set->n)
        from = set->n - 1;
    for (uint32_t level = 0; level < set->levels; level++) {
        uint64_t word = set->words[level][from / 64] << (63 - from % 64);

        if (word != 0)
            return highest_below(set, level, from - (uint64_t)__builtin_clzll(word));
        if (from / 64 == 0)
            break;
        from = from / 64 - 1;
    }
    return STI_BITSET_NONE;
}
