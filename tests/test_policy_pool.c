/* SPDX-License-Identifier: Apache-2.0 */
/* The changing cache against plain models of what it must do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "order/mix.h"
#include "policy/pool.h"

#define SAMPLES 40
#define LENGTH 4000
#define NEVER UINT32_MAX

static uint32_t stream[LENGTH];
static uint32_t next_use[LENGTH];

static void
make_stream(uint64_t seed)
{
    uint32_t last[SAMPLES];

    memset(last, 0xff, sizeof(last));
    for (uint32_t at = 0; at < LENGTH; at++)
        stream[at] = (uint32_t)(sti_mix(seed + (at + UINT64_C(1)) * STI_MIX_INCREMENT) % SAMPLES);
    for (uint32_t at = LENGTH; at-- > 0;) {
        next_use[at] = last[stream[at]];
        last[stream[at]] = at;
    }
}

static struct sti_pool_opts
opts_of(uint64_t *room, bool oldest_first)
{
    static uint64_t no_ssd[8];

    return (struct sti_pool_opts){
        .n_samples = SAMPLES,
        .n_keys = LENGTH,
        .sample_of_key = stream,
        .same_bytes = 10,
        .max_bytes = 10,
        .oldest_first = oldest_first,
        .n_ranks = 1,
        .ram_bytes = room,
        .ssd_bytes = no_ssd,
    };
}

/* Hits of a pool of n places. */
static uint32_t
pool_hits(uint32_t n_places, bool lru)
{
    uint64_t room = n_places * 10 + 9;
    struct sti_pool_opts opts = opts_of(&room, lru);
    struct sti_pool pool;
    uint32_t n_hits = 0;

    assert_int_equal(sti_pool_init(&pool, &opts), 0);
    for (uint32_t at = 0; at < LENGTH; at++) {
        enum sti_keep keep = lru                     ? STI_KEEP_BY_RECENT
                             : next_use[at] == NEVER ? STI_KEEP_NOT
                                                     : STI_KEEP_BY_NEXT;

        n_hits += sti_pool_holder(&pool, stream[at]) != STI_POOL_NOBODY;
        (void)sti_pool_settle(&pool, stream[at], keep, lru ? at : next_use[at], 0);
        assert_true(pool.ordered.n_set <= n_places);
    }
    sti_pool_fini(&pool);
    return n_hits;
}

/* The same by searching through all that is held. */
static uint32_t
plain_hits(uint32_t n_places, bool lru)
{
    uint32_t held[SAMPLES];
    uint32_t key[SAMPLES];
    uint32_t n_held = 0;
    uint32_t n_hits = 0;

    for (uint32_t at = 0; at < LENGTH; at++) {
        uint32_t slot;

        for (slot = 0; slot < n_held && held[slot] != stream[at]; slot++)
            ;
        n_hits += slot < n_held;
        if (slot == n_held)
            held[n_held++] = stream[at];
        key[slot] = lru ? at : next_use[at];
        if (!lru && next_use[at] == NEVER) {
            held[slot] = held[--n_held];
            key[slot] = key[n_held];
        }
        if (n_held <= n_places)
            continue;
        uint32_t victim = 0;
        for (slot = 1; slot < n_held; slot++)
            if (lru ? key[slot] < key[victim] : key[slot] > key[victim])
                victim = slot;
        held[victim] = held[--n_held];
        key[victim] = key[n_held];
    }
    return n_hits;
}

static void
test_against_plain(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 8; seed++) {
        make_stream(seed);
        for (uint32_t n = 1; n < SAMPLES; n += 6) {
            assert_int_equal(pool_hits(n, true), plain_hits(n, true));
            assert_int_equal(pool_hits(n, false), plain_hits(n, false));
            assert_true(pool_hits(n, false) >= pool_hits(n, true));
        }
    }
}

/* Unequal samples, ranks with RAM and SSD: rooms add up after every step. */
static void
test_rooms(void **state)
{
    static const uint64_t ram[3] = {100, 40, 0};
    static const uint64_t ssd[3] = {0, 70, 90};
    uint32_t bytes[SAMPLES];
    struct sti_pool pool;

    (void)state;
    make_stream(77);
    for (uint32_t sample = 0; sample < SAMPLES; sample++)
        bytes[sample] = 1 + sample % 17;
    struct sti_pool_opts opts = opts_of(NULL, false);
    opts.bytes = bytes;
    opts.max_bytes = 17;
    opts.n_ranks = 3;
    opts.ram_bytes = ram;
    opts.ssd_bytes = ssd;
    assert_int_equal(sti_pool_init(&pool, &opts), 0);
    for (uint32_t at = 0; at < LENGTH; at++) {
        uint64_t left[3][2];
        enum sti_keep keep = at % 5 == 0             ? STI_KEEP_UNKNOWN
                             : next_use[at] == NEVER ? STI_KEEP_NOT
                                                     : STI_KEEP_BY_NEXT;

        (void)sti_pool_settle(&pool, stream[at], keep, next_use[at], at % 3);
        if (at % 10 == 0 && next_use[at] != NEVER)
            sti_pool_know(&pool, stream[at], next_use[at]);
        for (uint32_t rank = 0; rank < 3; rank++) {
            left[rank][0] = ram[rank];
            left[rank][1] = ssd[rank];
        }
        for (uint32_t sample = 0; sample < SAMPLES; sample++)
            if (sti_pool_holder(&pool, sample) != STI_POOL_NOBODY)
                left[sti_pool_holder(&pool, sample)][pool.on_ssd[sample]] -= bytes[sample];
        for (uint32_t rank = 0; rank < 3; rank++) {
            assert_int_equal(pool.ram_bytes[rank], left[rank][0]);
            assert_int_equal(pool.ssd_bytes[rank], left[rank][1]);
            assert_true(pool.ram_bytes[rank] <= ram[rank] && pool.ssd_bytes[rank] <= ssd[rank]);
        }
    }
    sti_pool_fini(&pool);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_plain),
        cmocka_unit_test(test_rooms),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
