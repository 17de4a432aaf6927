/* SPDX-License-Identifier: Apache-2.0 */
/* The set against a plain array of flags. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/bitset.h"

static uint64_t
step(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static uint64_t
plain_next(const char *flags, uint64_t n, uint64_t from)
{
    for (uint64_t at = from; at < n; at++)
        if (flags[at])
            return at;
    return STI_BITSET_NONE;
}

static uint64_t
plain_previous(const char *flags, uint64_t n, uint64_t from)
{
    for (uint64_t at = from < n ? from + 1 : n; at > 0; at--)
        if (flags[at - 1])
            return at - 1;
    return STI_BITSET_NONE;
}

static void
check_size(uint64_t n, uint32_t fill_percent)
{
    static char flags[70000];
    struct sti_bitset set;
    uint64_t state = n + fill_percent;
    uint64_t n_set = 0;

    assert_int_equal(sti_bitset_init(&set, n), 0);
    memset(flags, 0, sizeof(flags));
    for (uint32_t round = 0; round < 4000; round++) {
        uint64_t member = step(&state) % n;

        if (step(&state) % 100 < fill_percent) {
            assert_int_equal(sti_bitset_add(&set, member), !flags[member]);
            n_set += !flags[member];
            flags[member] = 1;
        } else {
            assert_int_equal(sti_bitset_remove(&set, member), flags[member]);
            n_set -= (uint64_t)flags[member];
            flags[member] = 0;
        }
        uint64_t from = step(&state) % (n + 2);
        assert_int_equal(set.n_set, n_set);
        assert_int_equal(sti_bitset_next(&set, from), plain_next(flags, n, from));
        assert_int_equal(sti_bitset_previous(&set, from), plain_previous(flags, n, from));
    }
    sti_bitset_clear(&set);
    assert_int_equal(sti_bitset_next(&set, 0), STI_BITSET_NONE);
    assert_int_equal(sti_bitset_previous(&set, n), STI_BITSET_NONE);
    sti_bitset_fini(&set);
}

static void
test_equals_flags(void **unused)
{
    static const uint64_t sizes[] = {1, 2, 63, 64, 65, 127, 128, 4095, 4096, 4097, 65537};

    (void)unused;
    for (size_t at = 0; at < sizeof(sizes) / sizeof(sizes[0]); at++) {
        check_size(sizes[at], 5);
        check_size(sizes[at], 50);
        check_size(sizes[at], 95);
    }
}

static void
test_limits(void **unused)
{
    struct sti_bitset set;

    (void)unused;
    assert_int_equal(sti_bitset_init(&set, 0), 0);
    assert_int_equal(sti_bitset_next(&set, 0), STI_BITSET_NONE);
    assert_int_equal(sti_bitset_previous(&set, 0), STI_BITSET_NONE);
    sti_bitset_fini(&set);
    sti_bitset_fini(&set);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_flags),
        cmocka_unit_test(test_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
