/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model/hierarchy.h"

static struct sti_hierarchy hierarchy;

static void
test_good(void **state)
{
    (void)state;
    assert_int_equal(sti_hierarchy_parse(&hierarchy, NULL, NULL), 0);
    assert_true(hierarchy.ram_bytes == 0 && hierarchy.n_ssds == 0);
    assert_int_equal(sti_hierarchy_parse(&hierarchy, "ram:8G", NULL), 0);
    assert_int_equal(hierarchy.ram_bytes, UINT64_C(8) << 30);
    assert_int_equal(sti_hierarchy_parse(&hierarchy, " ssd:/a:b/c:100G\tram:1K  ssd:rel:7 ", NULL),
                     0);
    assert_int_equal(hierarchy.ram_bytes, 1024);
    assert_int_equal(hierarchy.n_ssds, 2);
    assert_string_equal(hierarchy.ssds[0].path, "/a:b/c");
    assert_int_equal(hierarchy.ssds[0].n_bytes, UINT64_C(100) << 30);
    assert_string_equal(hierarchy.ssds[1].path, "rel");
    assert_int_equal(hierarchy.ssds[1].n_bytes, 7);
}

static void
test_bad(void **state)
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
        assert_int_equal(sti_hierarchy_parse(&hierarchy, texts[at], &err), -EINVAL);
        assert_non_null(strstr(err.message, "tiers"));
    }
    for (int at = 0; at <= STI_SSDS_MAX; at++)
        (void)snprintf(many + strlen(many), sizeof(many) - strlen(many), "ssd:/%d:1 ", at);
    assert_int_equal(sti_hierarchy_parse(&hierarchy, many, &err), -EINVAL);
    static char path[2 * STI_SSD_PATH_SIZE];
    memset(path, 'x', sizeof(path));
    memcpy(path, "ssd:", 4);
    memcpy(path + sizeof(path) - 3, ":1", 3);
    assert_int_equal(sti_hierarchy_parse(&hierarchy, path, &err), -EINVAL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
