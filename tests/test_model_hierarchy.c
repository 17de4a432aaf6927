/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and tiers as people write them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/hierarchy.h"

static void
sizes_have_suffixes(void **state)
{
    static const struct {
        const char *text;
        uint64_t n_bytes;
    } good[] = {
        {"0", 0},
        {"1", 1},
        {"007", 7},
        {"3K", 3 << 10},
        {"5M", 5 << 20},
        {"2G", UINT64_C(2) << 30},
        {"16777215T", UINT64_C(16777215) << 40},
        {"18446744073709551615", UINT64_MAX},
        {"18014398509481983K", (UINT64_MAX >> 10) << 10},
    };
    static const char *const bad[] = {"",
                                      "K",
                                      "1k",
                                      "1KB",
                                      "1 K",
                                      " 1",
                                      "-1",
                                      "+1",
                                      "1.5G",
                                      "0x",
                                      "1KK",
                                      "1Z",
                                      "18446744073709551616",
                                      "18014398509481984K",
                                      "16777216T",
                                      "99999999999999999999999"};
    uint64_t n_bytes;

    (void)state;
    for (size_t at = 0; at < sizeof(good) / sizeof(good[0]); at++) {
        assert_int_equal(sti_size_parse(&n_bytes, good[at].text, strlen(good[at].text)), 0);
        assert_true(n_bytes == good[at].n_bytes);
    }
    for (size_t at = 0; at < sizeof(bad) / sizeof(bad[0]); at++)
        assert_int_equal(sti_size_parse(&n_bytes, bad[at], strlen(bad[at])), -EINVAL);
    assert_int_equal(sti_size_parse(&n_bytes, "12K", 2), 0); /* n_chars decides, not the end */
    assert_int_equal(n_bytes, 12);
}

static void
tiers_are_separated_by_blanks(void **state)
{
    static const char *const none[] = {NULL, "", " ", "\t  "};
    static const char *const bad[] = {"ram",     "ram:",    "ram:0",        "RAM:1G",  "ssd:1G",
                                      "ram:1G,", "ram: 1G", "ram:1G ram:1", "ram:1G x"};
    struct sti_hierarchy hierarchy;
    stk_error err;

    (void)state;
    for (size_t at = 0; at < sizeof(none) / sizeof(none[0]); at++) {
        assert_int_equal(sti_hierarchy_parse(&hierarchy, none[at], &err), 0);
        assert_int_equal(hierarchy.ram_bytes, 0);
    }
    assert_int_equal(sti_hierarchy_parse(&hierarchy, "  ram:7M\t", &err), 0);
    assert_int_equal(hierarchy.ram_bytes, 7 << 20);
    for (size_t at = 0; at < sizeof(bad) / sizeof(bad[0]); at++) {
        err.message[0] = '\0';
        assert_int_equal(sti_hierarchy_parse(&hierarchy, bad[at], &err), -EINVAL);
        assert_non_null(strstr(err.message, "tiers"));
        assert_int_equal(hierarchy.ram_bytes, 7 << 20); /* not touched */
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_have_suffixes),
        cmocka_unit_test(tiers_are_separated_by_blanks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
