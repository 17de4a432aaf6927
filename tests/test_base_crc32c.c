/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C: the vectors of RFC 3720 B.4, and agreement with the definition, bit by bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc32c.h"

/* The polynomial 0x1edc6f41, reflected, one bit at a time. */
static uint32_t
crc_by_definition(uint32_t crc, const uint8_t *bytes, size_t n_bytes)
{
    crc = ~crc;
    for (size_t i = 0; i < n_bytes; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78U : crc >> 1;
    }
    return ~crc;
}

static void
test_vectors(void **state)
{
    uint8_t bytes[32];
    (void)state;

    assert_int_equal(sti_crc32c(0, "123456789", 9), 0xe3069283U);
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(sti_crc32c(0, bytes, sizeof(bytes)), 0x8a9136aaU);
    memset(bytes, 0xff, sizeof(bytes));
    assert_int_equal(sti_crc32c(0, bytes, sizeof(bytes)), 0x62a8ab43U);
    for (uint8_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = i;
    assert_int_equal(sti_crc32c(0, bytes, sizeof(bytes)), 0x46dd794eU);
    for (uint8_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(31 - i);
    assert_int_equal(sti_crc32c(0, bytes, sizeof(bytes)), 0x113fdb5cU);
}

static void
test_nothing_changes_nothing(void **state)
{
    (void)state;
    assert_int_equal(sti_crc32c(0, "", 0), 0);
    assert_int_equal(sti_crc32c(0xe3069283U, NULL, 0), 0xe3069283U);
}

/* Every length and alignment up to some cache lines, and every place to cut it in two. */
static void
test_equals_definition_and_continues(void **state)
{
    uint8_t bytes[300];
    uint32_t random = 1;
    (void)state;

    for (size_t i = 0; i < sizeof(bytes); i++) {
        random = random * 1664525 + 1013904223;
        bytes[i] = (uint8_t)(random >> 24);
    }
    for (size_t from = 0; from < 16; from++)
        for (size_t length = 0; length < sizeof(bytes) - from; length++)
            assert_int_equal(sti_crc32c(0, bytes + from, length),
                             crc_by_definition(0, bytes + from, length));
    for (size_t cut = 0; cut <= sizeof(bytes); cut++) {
        uint32_t crc = sti_crc32c(0, bytes, cut);

        assert_int_equal(sti_crc32c(crc, bytes + cut, sizeof(bytes) - cut),
                         crc_by_definition(0, bytes, sizeof(bytes)));
    }
}

static void
test_copy_gives_the_crc(void **state)
{
    static char from[200000], to[200000];

    (void)state;
    for (uint64_t at = 0; at < sizeof(from); at++)
        from[at] = (char)(at * 31 + at / 977);
    for (uint64_t n = 0; n <= sizeof(from); n += 1 + n / 3) {
        memset(to, 0, sizeof(to));
        assert_int_equal(sti_crc32c_copy(to, from, n), sti_crc32c(0, from, n));
        assert_memory_equal(to, from, n);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_nothing_changes_nothing),
        cmocka_unit_test(test_equals_definition_and_continues),
        cmocka_unit_test(test_copy_gives_the_crc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
