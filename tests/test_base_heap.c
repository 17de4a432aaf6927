/* SPDX-License-Identifier: Apache-2.0 */
/* The heap: blocks never overlap, are aligned, and what was given back can be had
 * again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/heap.h"
#include "base/mem.h"

#define N_BLOCKS 400

struct held {
    unsigned char *bytes;
    uint64_t n_bytes;
    unsigned char mark;
};

static uint64_t
step(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void
check_mark(const struct held *held)
{
    for (uint64_t at = 0; at < held->n_bytes; at++)
        assert_int_equal(held->bytes[at], held->mark);
}

static void
run(struct sti_heap *heap, uint64_t max_bytes, uint64_t seed)
{
    static struct held held[N_BLOCKS];
    uint64_t state = seed;
    uint64_t n_held = 0;

    memset(held, 0, sizeof(held));
    for (uint32_t round = 0; round < 20000; round++) {
        struct held *one = &held[step(&state) % N_BLOCKS];

        if (one->bytes && step(&state) % 4 == 0) {
            one->n_bytes = (one->n_bytes + 1) / 2;
            sti_heap_shrink(heap, one->bytes, one->n_bytes);
        } else if (one->bytes) {
            check_mark(one);
            sti_heap_put(heap, one->bytes);
            one->bytes = NULL;
            n_held--;
        } else {
            uint32_t align = 8u << (step(&state) % 3 == 0 ? step(&state) % 10 : 0);

            one->n_bytes = step(&state) % max_bytes;
            one->mark = (unsigned char)step(&state);
            one->bytes = sti_heap_get(heap, one->n_bytes, align);
            if (!one->bytes)
                continue;
            assert_int_equal((uintptr_t)one->bytes % align, 0);
            memset(one->bytes, one->mark, one->n_bytes);
            n_held++;
        }
        if (round % 500 == 0)
            assert_int_equal(sti_heap_check(heap), n_held);
    }
    for (uint32_t at = 0; at < N_BLOCKS; at++)
        if (held[at].bytes) {
            check_mark(&held[at]);
            sti_heap_put(heap, held[at].bytes);
        }
    assert_int_equal(sti_heap_check(heap), 0);
    assert_int_equal(sti_heap_used_bytes(heap), 0);
}

static void
test_random(void **unused)
{
    struct sti_arena arena = {0};
    struct sti_heap *heap = NULL;

    (void)unused;
    assert_int_equal(sti_arena_open(&arena, 2 << 20, 0), 0);
    assert_int_equal(sti_heap_new(&heap, arena.base, arena.n_bytes), 0);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        run(heap, 100, seed);
        run(heap, 10000, seed);
        run(heap, 300000, seed);
    }
    /* All of it is one block again. */
    void *all = sti_heap_get(heap, arena.n_bytes - 64, 8);
    assert_non_null(all);
    assert_null(sti_heap_get(heap, 64, 8));
    sti_heap_put(heap, all);
    sti_heap_free(heap);
    sti_arena_close(&arena);
}

static void
test_packs(void **unused)
{
    static uint64_t memory[1 << 15];
    struct sti_heap *heap = NULL;
    uint64_t n = 0;

    (void)unused;
    assert_int_equal(sti_heap_new(&heap, memory, sizeof(memory)), 0);
    while (sti_heap_get(heap, 784, 8))
        n++;
    /* 8 bytes of overhead each, and nothing lost but the end. */
    assert_in_range(n, sizeof(memory) / 792 - 1, sizeof(memory) / 792);
    sti_heap_free(heap);
    assert_int_equal(sti_heap_new(&heap, memory, 40), -22);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_packs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
