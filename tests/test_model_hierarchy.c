/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and tiers as people write them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
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

static struct sti_hierarchy parsed;

static void
tiers_have_names(void **state)
{
    (void)state;
    assert_int_equal(sti_hierarchy_parse(&parsed, NULL, NULL), 0);
    assert_true(parsed.ram_bytes == 0 && parsed.n_ssds == 0);
    assert_int_equal(sti_hierarchy_parse(&parsed, "ram:8G", NULL), 0);
    assert_int_equal(parsed.ram_bytes, UINT64_C(8) << 30);
    assert_int_equal(sti_hierarchy_parse(&parsed, " ssd:/a:b/c:100G\tram:1K  ssd:rel:7 ", NULL), 0);
    assert_int_equal(parsed.ram_bytes, 1024);
    assert_int_equal(parsed.n_ssds, 2);
    assert_string_equal(parsed.ssds[0].path, "/a:b/c");
    assert_int_equal(parsed.ssds[0].n_bytes, UINT64_C(100) << 30);
    assert_string_equal(parsed.ssds[1].path, "rel");
    assert_int_equal(parsed.ssds[1].n_bytes, 7);
}

static void
what_is_no_tier_is_refused(void **state)
{
    static const char *const texts[] = {
        "ram",
        "ram:",
        "ram:0",
        "ram:1 ram:2",
        "ram:1X",
        "ssd",
        "ssd:",
        "ssd:/a",
        "ssd:/a:",
        "ssd:/a:0",
        "ssd:/a:1Q",
        "ssd::1",
        "ssd:/a:1 x",
        "disk:/a:1",
        "ram:-1",
        "ram:1.5G",
        "ssd:/a:1 ssd:/a:2",
    };
    stk_error err;
    char many[512] = "";

    (void)state;
    for (size_t at = 0; at < sizeof(texts) / sizeof(texts[0]); at++) {
        err.message[0] = '\0';
        assert_int_equal(sti_hierarchy_parse(&parsed, texts[at], &err), -EINVAL);
        assert_non_null(strstr(err.message, "tiers"));
    }
    for (int at = 0; at <= STI_SSDS_MAX; at++)
        (void)snprintf(many + strlen(many), sizeof(many) - strlen(many), "ssd:/%d:1 ", at);
    assert_int_equal(sti_hierarchy_parse(&parsed, many, &err), -EINVAL);
    static char path[2 * STI_SSD_PATH_SIZE];
    memset(path, 'x', sizeof(path));
    memcpy(path, "ssd:", 4);
    memcpy(path + sizeof(path) - 3, ":1", 3);
    assert_int_equal(sti_hierarchy_parse(&parsed, path, &err), -EINVAL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_have_suffixes),
        cmocka_unit_test(tiers_are_separated_by_blanks),
        cmocka_unit_test(tiers_have_names),
        cmocka_unit_test(what_is_no_tier_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
