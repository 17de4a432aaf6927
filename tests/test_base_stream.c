/* SPDX-License-Identifier: Apache-2.0 */
/* A streaming copy is two copies: every length and alignment around a cache line, nothing
 * beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/stream.h"

#define ROOM 640u
#define UNTOUCHED 0x5a

static void
check_copy(const uint8_t *src, size_t to, size_t from, size_t n)
{
    uint8_t dst[ROOM] __attribute__((aligned(64)));
    uint8_t near[ROOM];

    memset(dst, UNTOUCHED, sizeof(dst));
    memset(near, UNTOUCHED, sizeof(near));
    sti_stream_copy(dst + to, near, src + from, n);
    sti_stream_finish();
    assert_memory_equal(near, src + from, n);
    assert_int_equal(near[n], UNTOUCHED);
    assert_memory_equal(dst + to, src + from, n);
    for (size_t at = 0; at < sizeof(dst); at++)
        if (at < to || at >= to + n)
            assert_int_equal(dst[at], UNTOUCHED);
}

static void
test_copies_and_no_more(void **state)
{
    uint8_t src[ROOM];

    (void)state;
    for (size_t at = 0; at < sizeof(src); at++)
        src[at] = (uint8_t)(at * 7 + at / 256);
    for (size_t to = 0; to < 65; to++)
        for (size_t from = 0; from < 17; from++)
            for (size_t n = 0; n < 200; n += n < 70 ? 1 : 13)
                check_copy(src, to, from, n);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copies_and_no_more)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
