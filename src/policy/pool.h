/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache that changes as it is used, of one rank or of all ranks together: who holds a
 * sample, and which one goes when room is needed. What may stay is decided by place.h;
 * the order of going is a key that the caller gives each kept sample:
 *
 *   farthest first   the key is the position of the next use (Belady), or the place in the order
 *                    of what is worth holding; the largest key goes first, counted round
 *                    from first_key.
 *   oldest first     the key is the position of the last use (LRU); the smallest goes first.
 *
 * Samples whose next use is not known, or is beyond the next epoch, go before all others.
 * A sample that would have to go at once is not taken. Pure; 10 bytes per sample and two
 * bits per key. One thread.
 */
#ifndef STI_POLICY_POOL_H
#define STI_POLICY_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bitset.h"
#include "policy/place.h"

#define STI_POOL_NOBODY UINT32_MAX

struct sti_pool_opts {
    uint64_t n_samples;
    uint64_t n_keys;               /* keys are 0 .. n_keys - 1 */
    const uint32_t *sample_of_key; /* borrowed for the pool's life */
    const uint32_t *bytes;         /* of each sample, borrowed; NULL: all same_bytes */
    uint32_t same_bytes;
    uint32_t max_bytes; /* of any sample */
    bool oldest_first;
    uint32_t n_ranks;
    const uint64_t *ram_bytes; /* of each rank; copied */
    const uint64_t *ssd_bytes;
};

struct sti_pool {
    struct sti_pool_opts opts;
    uint64_t *ram_bytes; /* what is left of each rank's room */
    uint64_t *ssd_bytes;
    uint32_t *holder;          /* per sample: rank; STI_POOL_NOBODY */
    uint32_t *key;             /* per sample, while `kept` is ordered */
    uint8_t *kept;             /* per sample: enum sti_keep */
    uint8_t *on_ssd;           /* per held sample */
    struct sti_bitset ordered; /* keys of what is held */
    struct sti_bitset unknown; /* samples that go first */
    struct sti_bitset roomy;   /* ranks with room for any sample */
    uint64_t first_key;        /* the soonest: keys go round. Farthest first only */
};

/* Errors: -ENOMEM, -EINVAL. sti_pool_fini() in any case. */
int
sti_pool_init(struct sti_pool *pool, const struct sti_pool_opts *opts);
void
sti_pool_fini(struct sti_pool *pool);

/* From now on keys are counted from here on, round to the one before it. */
static inline void
sti_pool_turn(struct sti_pool *pool, uint64_t first_key)
{
    pool->first_key = first_key;
}

/* Who holds a sample: a rank or STI_POOL_NOBODY. */
static inline uint32_t
sti_pool_holder(const struct sti_pool *pool, uint32_t sample)
{
    return pool->holder[sample];
}

/* The next use of a held sample has become known; nothing where it is not held, or was
 * known. Farthest first only. */
void
sti_pool_know(struct sti_pool *pool, uint32_t sample, uint32_t key);

/*
 * A use of a sample ends. keep: what place.h says; key: for the ordered kinds. wish: the
 * rank that should hold it. A held sample stays where it is. Returns the holder,
 * STI_POOL_NOBODY if it was not kept.
 */
uint32_t
sti_pool_settle(struct sti_pool *pool, uint32_t sample, enum sti_keep keep, uint32_t key,
                uint32_t wish);

#endif
