/* SPDX-License-Identifier: Apache-2.0 */
/* The store: blocks never overlap, the capacity is never exceeded, all of it can be
 * used. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tier/store.h"

#define BLOCKS 400

static uint64_t
draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

struct block {
    bool is_padded;
    uint64_t address;
    uint64_t n_bytes;
    unsigned char fill;
};

static void
fill(struct sti_store *store, const struct block *block)
{
    memset(sti_store_pointer(store, block->address), block->fill, block->n_bytes);
}

static void
check(const struct sti_store *store, const struct block *block)
{
    const unsigned char *bytes = (const unsigned char *)sti_store_pointer(store, block->address);

    for (uint64_t at = 0; at < block->n_bytes; at++)
        assert_int_equal(bytes[at], block->fill);
}

static struct sti_store *
open_store(const struct sti_store_opts *opts)
{
    struct sti_store *store;

    assert_int_equal(sti_store_new(&store, opts), 0);
    assert_int_equal(sti_store_capacity_bytes(store), opts->capacity_bytes);
    assert_int_equal(sti_store_used_bytes(store), 0);
    return store;
}

/* Gets and puts at random; large blocks are padded and trimmed, as reads in place do
 * it. */
static void
churn(const struct sti_store_opts *opts, uint64_t most_bytes)
{
    static struct block blocks[BLOCKS];
    struct sti_store *store = open_store(opts);
    uint64_t n = 0, used_bytes = 0, seed = most_bytes;

    for (int round = 0; round < 6000; round++) {
        struct block block = {.fill = (unsigned char)draw(&seed)};
        bool is_padded = opts->padding_bytes > 0 && draw(&seed) % 2;

        block.n_bytes = opts->uniform_bytes ? opts->uniform_bytes : draw(&seed) % most_bytes;
        block.address =
            n < BLOCKS ? sti_store_get(store, block.n_bytes, is_padded) : STI_STORE_NONE;
        if (block.address != STI_STORE_NONE) {
            if (is_padded)
                assert_int_equal((uintptr_t)sti_store_pointer(store, block.address) % opts->align,
                                 0);
            if (is_padded) { /* the sample begins somewhere in the first block of the file */
                uint64_t skew = draw(&seed) % opts->align;

                sti_store_trim(store, block.address, skew + block.n_bytes);
                block.address += skew;
            }
            block.is_padded = is_padded;
            fill(store, &block);
            used_bytes += block.n_bytes;
            blocks[n++] = block;
        } else if (n > 0) {
            uint64_t at = draw(&seed) % n;

            check(store, &blocks[at]);
            sti_store_put(store, blocks[at].address, blocks[at].n_bytes, blocks[at].is_padded);
            used_bytes -= blocks[at].n_bytes;
            blocks[at] = blocks[--n];
        }
        assert_int_equal(sti_store_used_bytes(store), used_bytes);
        assert_true(used_bytes <= opts->capacity_bytes);
    }
    while (n-- > 0) {
        check(store, &blocks[n]);
        sti_store_put(store, blocks[n].address, blocks[n].n_bytes, blocks[n].is_padded);
    }
    assert_int_equal(sti_store_used_bytes(store), 0);
    sti_store_free(store);
}

static struct sti_pool *pool;

static void
blocks_do_not_overlap(void **state)
{
    (void)state;
    churn(&(struct sti_store_opts){.capacity_bytes = 1 << 20,
                                   .samples_max = BLOCKS,
                                   .padding_bytes = 8192,
                                   .align = 4096,
                                   .pool = pool},
          40000);
    churn(&(struct sti_store_opts){.capacity_bytes = 1 << 20,
                                   .samples_max = BLOCKS,
                                   .padding_bytes = 8192,
                                   .small_bytes = 20000,
                                   .small_room_bytes = 200000,
                                   .align = 4096,
                                   .pool = pool},
          40000);
    churn(
        &(struct sti_store_opts){
            .capacity_bytes = 5000, .samples_max = BLOCKS, .align = 8, .pool = pool},
        90);
    churn(&(struct sti_store_opts){.capacity_bytes = 100 * 333,
                                   .samples_max = 100,
                                   .uniform_bytes = 333,
                                   .align = 512,
                                   .pool = pool},
          333);
    churn(&(struct sti_store_opts){.capacity_bytes = 3 * 40001,
                                   .samples_max = 100,
                                   .uniform_bytes = 40001,
                                   .padding_bytes = 1024,
                                   .align = 512,
                                   .pool = pool},
          40001);
    churn(
        &(struct sti_store_opts){
            .capacity_bytes = 50, .samples_max = 100, .uniform_bytes = 1, .align = 8, .pool = pool},
        1);
}

/* Samples of one size use the capacity to the last; then there is none left. */
static void
the_capacity_can_be_used(void **state)
{
    struct sti_store *store = open_store(&(struct sti_store_opts){.capacity_bytes = 77 * 100,
                                                                  .samples_max = 1000,
                                                                  .uniform_bytes = 77,
                                                                  .align = 8,
                                                                  .pool = pool});
    uint64_t first = STI_STORE_NONE;

    (void)state;
    for (int at = 0; at < 100; at++) {
        uint64_t address = sti_store_get(store, 77, false);

        assert_true(address != STI_STORE_NONE);
        first = at == 0 ? address : first;
    }
    assert_true(sti_store_get(store, 77, false) == STI_STORE_NONE);
    sti_store_put(store, first, 77, false);
    assert_true(sti_store_get(store, 77, false) == first);
    sti_store_free(store);
}

/* Samples of many sizes use all of it, too, however often they have replaced each other
 * at random: the gaps they leave are not the capacity's. */
static void
gaps_do_not_count(void **state)
{
    enum { HELD_MOST = 40000, REPLACED = 150000 };
    static struct block held[HELD_MOST];
    const uint64_t capacity_bytes = UINT64_C(256) << 20;
    struct sti_store *store = open_store(&(struct sti_store_opts){
        .capacity_bytes = capacity_bytes, .samples_max = HELD_MOST, .align = 8, .pool = pool});
    uint64_t seed = 11;
    uint32_t n = 0;

    (void)state;
    for (uint32_t at = 0; at < REPLACED; at++) {
        const uint64_t n_bytes = 5000 + draw(&seed) % 10000;

        while (sti_store_used_bytes(store) + n_bytes > capacity_bytes || n == HELD_MOST) {
            struct block *block = &held[draw(&seed) % n];

            sti_store_put(store, block->address, block->n_bytes, false);
            *block = held[--n];
        }
        held[n] =
            (struct block){.n_bytes = n_bytes, .address = sti_store_get(store, n_bytes, false)};
        assert_true(held[n].address != STI_STORE_NONE);
        n++;
    }
    sti_store_free(store);
}

static void
blocks_outside_are_few_and_counted(void **state)
{
    struct sti_store *store = open_store(&(struct sti_store_opts){.capacity_bytes = 1000,
                                                                  .samples_max = 10,
                                                                  .padding_bytes = 1024,
                                                                  .align = 512,
                                                                  .pool = pool});
    uint64_t addresses[1024];

    (void)state;
    for (uint64_t at = 0; at < 1024; at++) {
        addresses[at] = sti_store_get_outside(store, 700, true);
        assert_true(addresses[at] != STI_STORE_NONE && addresses[at] <= (UINT64_C(1) << 40) - 1);
        assert_int_equal((uintptr_t)sti_store_pointer(store, addresses[at]) % 512, 0);
        memset(sti_store_pointer(store, addresses[at]), 1, 700 + 1024);
        sti_store_trim(store, addresses[at], 700);
        assert_ptr_equal(sti_store_pointer(store, addresses[at] + 511),
                         sti_store_pointer(store, addresses[at]) + 511);
    }
    assert_true(sti_store_get_outside(store, 1, false) == STI_STORE_NONE);
    for (uint64_t at = 0; at < 1000; at++)
        sti_store_put(store, addresses[at] + at % 512, 700, true);
    assert_int_equal(sti_store_outside(store), 1024);
    assert_int_equal(sti_store_used_bytes(store), 24 * 700);
    sti_store_free(store); /* and the rest of them with it */
}

static void
more_than_can_be_named_is_refused(void **state)
{
    struct sti_store *store = NULL;

    (void)state;
    assert_int_equal(sti_store_new(&store, &(struct sti_store_opts){.capacity_bytes =
                                                                        STI_STORE_BYTES_MAX / 2 + 1,
                                                                    .samples_max = 1,
                                                                    .align = 8,
                                                                    .pool = pool}),
                     -E2BIG);
    assert_null(store);
    sti_store_free(NULL);
}

static int
open_pool(void **state)
{
    (void)state;
    return sti_pool_open(&pool, 1, 0);
}

static int
close_pool(void **state)
{
    (void)state;
    sti_pool_close(pool);
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_do_not_overlap),
        cmocka_unit_test(the_capacity_can_be_used),
        cmocka_unit_test(gaps_do_not_count),
        cmocka_unit_test(blocks_outside_are_few_and_counted),
        cmocka_unit_test(more_than_can_be_named_is_refused),
    };

    return cmocka_run_group_tests(tests, open_pool, close_pool);
}
