/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: zeroed, counted, failing where it is told to; arenas aligned, long enough,
 * faulted in. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"

#define MIB ((uint64_t)1 << 20)

/* ThreadSanitizer keeps shadows of memory that is gone: less cannot be asserted then. */
#ifdef __SANITIZE_THREAD__
#define IS_EXACT false
#else
#define IS_EXACT true
#endif

static void
test_new_is_zeroed_and_counted(void **state)
{
    uint64_t before = sti_mem_count();
    unsigned char *block = sti_mem_new(1000, 3);
    (void)state;

    assert_non_null(block);
    for (int i = 0; i < 3000; i++)
        assert_int_equal(block[i], 0);
    assert_true(sti_mem_count() == before + 1);
    sti_mem_free(block);
    assert_true(sti_mem_count() == before + 1);
}

static void
test_nothing_is_something(void **state)
{
    void *block = sti_mem_new(0, 0);
    (void)state;

    assert_non_null(block);
    block = sti_mem_resize(block, 0, 8);
    assert_non_null(block);
    sti_mem_free(block);
    sti_mem_free(NULL);
}

static void
test_overflow_is_no_memory(void **state)
{
    char *block = sti_mem_new(4, 1);
    (void)state;

    assert_non_null(block);
    block[3] = 7;
    assert_null(sti_mem_new(SIZE_MAX / 2, 3));
    assert_null(sti_mem_resize(block, SIZE_MAX / 2, 3));
    assert_int_equal(block[3], 7); /* a resize that fails leaves the block */
    sti_mem_free(block);
}

static void
test_resize_and_strdup_keep_the_bytes(void **state)
{
    char *text = sti_mem_strdup("stoker");
    (void)state;

    assert_non_null(text);
    text = sti_mem_resize(text, 100000, 1);
    assert_non_null(text);
    assert_string_equal(text, "stoker");
    sti_mem_free(text);
}

static void
test_exactly_the_nth_fails(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 6; n++) {
        sti_mem_fail_at(n, 0);
        for (uint64_t at = 1; at < 10; at++) {
            void *block = sti_mem_new(1, 1);

            assert_true((block == NULL) == (at == n));
            sti_mem_free(block);
        }
    }
    sti_mem_fail_at(0, 0);
}

static void
test_sticky_fails_all_after(void **state)
{
    struct sti_arena arena;
    char *block;
    (void)state;

    sti_mem_fail_at(2, 1);
    block = sti_mem_new(1, 1);
    assert_non_null(block);
    assert_null(sti_mem_resize(block, 2, 1));
    assert_null(sti_mem_strdup("x"));
    assert_int_equal(sti_arena_open(&arena, 1, 0), -ENOMEM);
    sti_mem_fail_at(0, 0);
    block = sti_mem_resize(block, 2, 1);
    assert_non_null(block);
    sti_mem_free(block);
}

static void *
count_failures(void *context)
{
    uintptr_t n_failed = 0;

    (void)context;
    for (int i = 0; i < 2000; i++) {
        void *block = sti_mem_new(1, 1);

        n_failed += block == NULL;
        sti_mem_free(block);
    }
    return (void *)n_failed;
}

/* However threads race for it, one call fails. */
static void
test_one_thread_gets_the_failure(void **state)
{
    pthread_t threads[4];
    uintptr_t n_failed = 0;
    (void)state;

    sti_mem_fail_at(3000, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_failures, NULL), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;

        assert_int_equal(pthread_join(threads[i], &failed), 0);
        n_failed += (uintptr_t)failed;
    }
    sti_mem_fail_at(0, 0);
    assert_int_equal(n_failed, 1);
}

static void
test_arenas_are_aligned_and_long_enough(void **state)
{
    static const uint64_t sizes[] = {0, 1, 4096, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 7 * MIB};
    (void)state;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct sti_arena arenas[3];

        for (int at = 0; at < 3; at++) {
            struct sti_arena *arena = &arenas[at];

            assert_int_equal(sti_arena_open(arena, sizes[i], 0), 0);
            assert_int_equal((uintptr_t)arena->base % (2 * MIB), 0);
            assert_int_equal(arena->n_bytes % (2 * MIB), 0);
            assert_true(arena->n_bytes >= sizes[i] && arena->n_bytes > 0);
            assert_true(arena->n_bytes < sizes[i] + 2 * MIB || sizes[i] == 0);
            arena->base[0] = 1;
            arena->base[arena->n_bytes - 1] = 1;
        }
        for (int at = 0; at < 3; at++)
            sti_arena_close(&arenas[at]);
        assert_null(arenas[0].base);
        sti_arena_close(&arenas[0]); /* twice is allowed */
    }
}

static void
test_arena_too_large_is_refused(void **state)
{
    struct sti_arena arena = {0};
    (void)state;

    assert_int_equal(sti_arena_open(&arena, UINT64_MAX, 0), -ENOMEM);
    assert_int_equal(sti_arena_open(&arena, UINT64_MAX - 4 * MIB, 0), -ENOMEM);
    assert_int_equal(sti_arena_open(&arena, UINT64_C(1) << 60, 0), -ENOMEM);
    assert_null(arena.base);
}

/* Resident bytes of this process, from the kernel's own count. */
static uint64_t
resident_bytes(void)
{
    unsigned long whole = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &whole, &resident), 2);
    (void)fclose(file); /* it was only read */
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void
test_touch_brings_memory_and_keeps_bytes(void **state)
{
    struct sti_arena arena;
    uint64_t before = resident_bytes();
    (void)state;

    assert_int_equal(sti_arena_open(&arena, 64 * MIB, 0), 0);
    assert_true(!IS_EXACT || resident_bytes() < before + 16 * MIB);
    arena.base[5 * MIB] = 77;
    sti_arena_touch(&arena, 1, arena.n_bytes);
    assert_true(resident_bytes() >= before + 60 * MIB);
    assert_int_equal(arena.base[5 * MIB], 77);
    sti_arena_close(&arena);
    assert_true(!IS_EXACT || resident_bytes() < before + 16 * MIB);

    assert_int_equal(sti_arena_open(&arena, 64 * MIB, 1), 0);
    assert_true(resident_bytes() >= before + 60 * MIB);
    sti_arena_close(&arena);
}

/* What others map cannot become shorter, is theirs to read only as long as it is here, and asks
 * for no more than the process may have. */
static void
test_shared_arena(void **state)
{
    struct sti_arena arena = {0};
    struct rlimit old, small = {.rlim_cur = 3 * MIB, .rlim_max = RLIM_INFINITY};
    (void)state;

    assert_int_equal(sti_arena_open_shared(&arena, 3 * MIB), 0);
    assert_true(arena.is_shared);
    assert_int_equal(arena.n_bytes, 4 * MIB);
    assert_int_equal((uintptr_t)arena.base % (2 * MIB), 0);
    arena.base[4 * MIB - 1] = 5;
    assert_int_equal(ftruncate(arena.fd, (off_t)MIB), -1);
    assert_int_equal(errno, EPERM);
    char *view = mmap(NULL, arena.n_bytes, PROT_READ, MAP_SHARED, arena.fd, 0);
    assert_ptr_not_equal(view, MAP_FAILED);
    assert_int_equal(view[4 * MIB - 1], 5);
    sti_arena_touch(&arena, 0, arena.n_bytes);
    assert_int_equal(view[4 * MIB - 1], 5);
    sti_arena_close(&arena);
    assert_int_equal(((volatile char *)view)[4 * MIB - 1], 0);
    (void)munmap(view, 4 * MIB);
    sti_arena_close(&arena); /* twice is allowed */

    assert_int_equal(sti_arena_open_shared(&arena, UINT64_MAX), -ENOMEM);
    sti_mem_fail_at(1, 0);
    assert_int_equal(sti_arena_open_shared(&arena, 1), -ENOMEM);
    sti_mem_fail_at(0, 0);
    /* Beyond this limit the kernel would send a signal. */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(sti_arena_open_shared(&arena, 3 * MIB), -ENOSYS);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_null(arena.base);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_is_zeroed_and_counted),
        cmocka_unit_test(test_nothing_is_something),
        cmocka_unit_test(test_overflow_is_no_memory),
        cmocka_unit_test(test_resize_and_strdup_keep_the_bytes),
        cmocka_unit_test(test_exactly_the_nth_fails),
        cmocka_unit_test(test_sticky_fails_all_after),
        cmocka_unit_test(test_one_thread_gets_the_failure),
        cmocka_unit_test(test_arenas_are_aligned_and_long_enough),
        cmocka_unit_test(test_arena_too_large_is_refused),
        cmocka_unit_test(test_touch_brings_memory_and_keeps_bytes),
        cmocka_unit_test(test_shared_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
