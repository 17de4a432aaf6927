/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The changing cache. Invariant: a held sample is in exactly the index that `kept` names,
 * and a rank's room plus what it holds is its capacity. One thread.
 */
#include "policy/pool.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/mem.h"

static uint32_t
bytes_of(const struct sti_pool *pool, uint32_t sample)
{
    return pool->opts.bytes ? pool->opts.bytes[sample] : pool->opts.same_bytes;
}

static bool
has_room(const struct sti_pool *pool, uint32_t rank, uint32_t n_bytes)
{
    return pool->ram_bytes[rank] >= n_bytes || pool->ssd_bytes[rank] >= n_bytes;
}

/* A rank's room has changed. */
static void
note_room(struct sti_pool *pool, uint32_t rank)
{
    if (has_room(pool, rank, pool->opts.max_bytes))
        (void)sti_bitset_add(&pool->roomy, rank);
    else
        (void)sti_bitset_remove(&pool->roomy, rank);
}

int
sti_pool_init(struct sti_pool *pool, const struct sti_pool_opts *opts)
{
    *pool = (struct sti_pool){.opts = *opts};
    pool->opts.ram_bytes = pool->opts.ssd_bytes = NULL; /* copied below */
    pool->ram_bytes = sti_mem_new(opts->n_ranks, sizeof(*pool->ram_bytes));
    pool->ssd_bytes = sti_mem_new(opts->n_ranks, sizeof(*pool->ssd_bytes));
    pool->holder = sti_mem_new(opts->n_samples, sizeof(*pool->holder));
    pool->key = sti_mem_new(opts->n_samples, sizeof(*pool->key));
    pool->kept = sti_mem_new(opts->n_samples, 1);
    pool->on_ssd = sti_mem_new(opts->n_samples, 1);
    bool has_all = pool->ram_bytes && pool->ssd_bytes && pool->holder && pool->key && pool->kept &&
                   pool->on_ssd;
    int rc = has_all ? 0 : -ENOMEM;
    if (!rc)
        rc = sti_bitset_init(&pool->ordered, opts->n_keys);
    if (!rc)
        rc = sti_bitset_init(&pool->unknown, opts->n_samples);
    if (!rc)
        rc = sti_bitset_init(&pool->roomy, opts->n_ranks);
    if (rc)
        return rc;
    memset(pool->holder, 0xff, opts->n_samples * sizeof(*pool->holder));
    for (uint32_t rank = 0; rank < opts->n_ranks; rank++) {
        pool->ram_bytes[rank] = opts->ram_bytes[rank];
        pool->ssd_bytes[rank] = opts->ssd_bytes[rank];
        note_room(pool, rank);
    }
    return 0;
}

void
sti_pool_fini(struct sti_pool *pool)
{
    sti_mem_free(pool->ram_bytes);
    sti_mem_free(pool->ssd_bytes);
    sti_mem_free(pool->on_ssd);
    sti_mem_free(pool->holder);
    sti_mem_free(pool->key);
    sti_mem_free(pool->kept);
    sti_bitset_fini(&pool->ordered);
    sti_bitset_fini(&pool->unknown);
    sti_bitset_fini(&pool->roomy);
    *pool = (struct sti_pool){0};
}

/* Takes a held sample out of its index; its room stays taken. */
static void
unindex(struct sti_pool *pool, uint32_t sample)
{
    bool was_in = true;

    switch ((enum sti_keep)pool->kept[sample]) {
    case STI_KEEP_BY_RECENT:
    case STI_KEEP_BY_NEXT:
        was_in = sti_bitset_remove(&pool->ordered, pool->key[sample]);
        break;
    case STI_KEEP_UNKNOWN:
        was_in = sti_bitset_remove(&pool->unknown, sample);
        break;
    case STI_KEEP_NOT:
    case STI_KEEP_PINNED:
        break;
    }
    assert(was_in);
    (void)was_in;
}

static void
index_sample(struct sti_pool *pool, uint32_t sample, enum sti_keep keep, uint32_t key)
{
    pool->kept[sample] = (uint8_t)keep;
    pool->key[sample] = key;
    if (keep == STI_KEEP_UNKNOWN)
        (void)sti_bitset_add(&pool->unknown, sample);
    else if (keep == STI_KEEP_BY_NEXT || keep == STI_KEEP_BY_RECENT)
        (void)sti_bitset_add(&pool->ordered, key);
}

/* Gives the room of a sample back that is in no index any more. Returns the rank. */
static uint32_t
drop(struct sti_pool *pool, uint32_t sample)
{
    uint32_t rank = pool->holder[sample];

    pool->holder[sample] = STI_POOL_NOBODY;
    pool->kept[sample] = STI_KEEP_NOT;
    *(pool->on_ssd[sample] ? &pool->ssd_bytes[rank] : &pool->ram_bytes[rank]) +=
        bytes_of(pool, sample);
    note_room(pool, rank);
    return rank;
}

static void
take_room(struct sti_pool *pool, uint32_t sample, uint32_t rank, uint32_t n_bytes)
{
    pool->on_ssd[sample] = pool->ram_bytes[rank] < n_bytes;
    *(pool->on_ssd[sample] ? &pool->ssd_bytes[rank] : &pool->ram_bytes[rank]) -= n_bytes;
    pool->holder[sample] = rank;
    note_room(pool, rank);
}

/* A rank that has room now: the wished one, else the next one round that has room for
 * any. */
static uint32_t
find_room(const struct sti_pool *pool, uint32_t n_bytes, uint32_t wish)
{
    uint64_t rank;

    if (has_room(pool, wish, n_bytes))
        return wish;
    if (pool->roomy.n_set == 0)
        return STI_POOL_NOBODY;
    rank = sti_bitset_next(&pool->roomy, wish);
    if (rank == STI_BITSET_NONE)
        rank = sti_bitset_next(&pool->roomy, 0);
    return (uint32_t)rank;
}

/* How far a key is behind the soonest. */
static uint64_t
round_from(const struct sti_pool *pool, uint64_t key)
{
    return key >= pool->first_key ? key - pool->first_key
                                  : key + pool->opts.n_keys - pool->first_key;
}

/* The first that has to go, if it has to go before a sample of a kind and key. */
static bool
find_victim(const struct sti_pool *pool, enum sti_keep keep, uint32_t key, uint32_t *ret_sample)
{
    uint64_t at;

    if (keep == STI_KEEP_UNKNOWN)
        return false;
    if (pool->unknown.n_set > 0) {
        *ret_sample = (uint32_t)sti_bitset_previous(&pool->unknown, pool->opts.n_samples - 1);
        return true;
    }
    if (pool->ordered.n_set == 0)
        return false;
    if (pool->opts.oldest_first) {
        at = sti_bitset_next(&pool->ordered, 0);
        *ret_sample = pool->opts.sample_of_key[at];
        return at < key;
    }
    at = pool->first_key ? sti_bitset_previous(&pool->ordered, pool->first_key - 1)
                         : STI_BITSET_NONE;
    if (at == STI_BITSET_NONE)
        at = sti_bitset_previous(&pool->ordered, pool->opts.n_keys - 1);
    *ret_sample = pool->opts.sample_of_key[at];
    return round_from(pool, at) > round_from(pool, key);
}

void
sti_pool_know(struct sti_pool *pool, uint32_t sample, uint32_t key)
{
    if (pool->kept[sample] != STI_KEEP_UNKNOWN)
        return;
    unindex(pool, sample);
    index_sample(pool, sample, STI_KEEP_BY_NEXT, key);
}

uint32_t
sti_pool_settle(struct sti_pool *pool, uint32_t sample, enum sti_keep keep, uint32_t key,
                uint32_t wish)
{
    uint32_t n_bytes = bytes_of(pool, sample);
    uint32_t rank = pool->holder[sample];
    uint32_t victim;

    if (rank != STI_POOL_NOBODY) {
        unindex(pool, sample);
        if (keep == STI_KEEP_NOT) {
            (void)drop(pool, sample);
            return STI_POOL_NOBODY;
        }
        index_sample(pool, sample, keep, key);
        return rank;
    }
    if (keep == STI_KEEP_NOT)
        return STI_POOL_NOBODY;
    rank = find_room(pool, n_bytes, wish);
    while (rank == STI_POOL_NOBODY) {
        if (!find_victim(pool, keep, key, &victim))
            return STI_POOL_NOBODY;
        unindex(pool, victim);
        uint32_t at = drop(pool, victim);
        if (has_room(pool, at, n_bytes))
            rank = at;
    }
    take_room(pool, sample, rank, n_bytes);
    index_sample(pool, sample, keep, key);
    return rank;
}
