/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of shards in braces: what they expand to, and what is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "format/shards.h"

/* Expands and compares with names separated by blanks. */
static void
check(const char *pattern, const char *names)
{
    struct sti_shards shards = {0};
    char joined[4096] = "";
    size_t n = 0;

    assert_int_equal(sti_shards_expand(&shards, pattern, NULL), 0);
    for (uint32_t at = 0; at < shards.n; at++)
        n += (size_t)snprintf(joined + n, sizeof(joined) - n, "%s%s", at ? " " : "",
                              shards.names[at]);
    assert_string_equal(joined, names);
    sti_shards_fini(&shards);
}

static void
refuse(const char *pattern, int code, const char *words)
{
    struct sti_shards shards = {0};
    stk_error err = {.message = ""};

    assert_int_equal(sti_shards_expand(&shards, pattern, &err), code);
    assert_non_null(strstr(err.message, words));
    sti_shards_fini(&shards);
}

static void
test_expand(void **state)
{
    (void)state;
    check("a.tar", "a.tar");
    check("{a,b,c}.tar", "a.tar b.tar c.tar");
    check("t-{08..11}.tar", "t-08.tar t-09.tar t-10.tar t-11.tar");
    check("t-{8..11}", "t-8 t-9 t-10 t-11");
    check("t-{003..1}", "t-003 t-002 t-001");
    check("{1..1}x", "1x");
    check("{0..2}{a,b}", "0a 0b 1a 1b 2a 2b");
    check("{a,b{1..3},c}/x", "a/x b1/x b2/x b3/x c/x");
    check("{,a}x", "x ax");
    check("x{}y", "xy");
    check("{1..}", "1..");
    check("{a..c}", "a..c"); /* letters are no range */
    check("{..a,b}", "..a b");
}

static void
test_refused(void **state)
{
    char deep[200] = "", wide[5000];

    (void)state;
    refuse("{a", -EINVAL, "without its }");
    refuse("a}", -EINVAL, "without its {");
    refuse("{{a}", -EINVAL, "without its }");
    refuse("{a,}", -EINVAL, "empty");
    refuse("{..,a}/b", -EINVAL, "leads out");
    refuse("a/{b,..}", -EINVAL, "leads out");
    refuse("{a/,b}", -EINVAL, "empty");
    refuse("{0..2000000}", -E2BIG, "more than");
    refuse("{0..999}{0..999}{0..999}", -E2BIG, "more than");
    for (int i = 0; i < 20; i++)
        memcpy(deep + 3 * i, "{a}", 4);
    refuse(deep, -EINVAL, "16 braces");
    memset(wide, 'x', sizeof(wide));
    wide[0] = '{';
    wide[sizeof(wide) - 2] = '}';
    wide[sizeof(wide) - 1] = '\0';
    refuse(wide, -EINVAL, "too long");
}

static void
test_part(void **state)
{
    (void)state;
    assert_false(sti_shards_is_pattern("/a/b.tar"));
    assert_true(sti_shards_is_pattern("/a/*.tar"));
    assert_string_equal(sti_shards_pattern_part("/a/b-{1..2}.tar"), "b-{1..2}.tar");
    assert_string_equal(sti_shards_pattern_part("/a/{b,c}/d.tar"), "{b,c}/d.tar");
    assert_string_equal(sti_shards_pattern_part("*.tar"), "*.tar");
    assert_string_equal(sti_shards_pattern_part("/*.tar"), "*.tar");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expand),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_part),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
