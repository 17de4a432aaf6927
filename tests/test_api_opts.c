/* SPDX-License-Identifier: Apache-2.0 */
/* Option structs of other versions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "api/opts.h"

struct v1 {
    size_t size;
    uint64_t a;
};
struct v2 {
    size_t size;
    uint64_t a;
    uint64_t b;
};
struct v3 {
    size_t size;
    uint64_t a;
    uint64_t b;
    uint64_t c;
};

static const struct sti_opts_type type = {"test_opts", sizeof(struct v2), sizeof(struct v1)};

static void
test_versions(void **state)
{
    const struct v1 older = {sizeof(older), 1};
    const struct v2 same = {sizeof(same), 1, 2};
    const struct v3 newer = {sizeof(newer), 1, 2, 0};
    struct v2 taken;

    (void)state;
    memset(&taken, 0xff, sizeof(taken));
    assert_int_equal(sti_opts_take(&taken, &type, &older, NULL), 0);
    assert_true(taken.size == sizeof(taken) && taken.a == 1 && taken.b == 0);
    assert_int_equal(sti_opts_take(&taken, &type, &same, NULL), 0);
    assert_true(taken.size == sizeof(taken) && taken.a == 1 && taken.b == 2);
    assert_int_equal(sti_opts_take(&taken, &type, &newer, NULL), 0);
    assert_true(taken.size == sizeof(taken) && taken.a == 1 && taken.b == 2);
    assert_int_equal(sti_opts_take(&taken, &type, NULL, NULL), 0);
    assert_true(taken.size == sizeof(taken) && taken.a == 0 && taken.b == 0);
}

static void
test_refusals(void **state)
{
    const struct v3 newer = {sizeof(newer), 1, 2, UINT64_C(1) << 56};
    struct v2 same = {sizeof(struct v1) - 1, 1, 2};
    struct v2 taken;
    stk_error err;

    (void)state;
    assert_int_equal(sti_opts_take(&taken, &type, &newer, &err), -E2BIG);
    assert_int_equal(err.code, -E2BIG);
    assert_non_null(strstr(err.message, "byte 31"));
    assert_int_equal(sti_opts_take(&taken, &type, &same, &err), -EINVAL);
    assert_non_null(strstr(err.message, "test_opts.size is 15"));
    same.size = 0;
    assert_int_equal(sti_opts_take(&taken, &type, &same, &err), -EINVAL);
    same.size = (64 << 10) + 1; /* not read that far */
    assert_int_equal(sti_opts_take(&taken, &type, &same, &err), -EINVAL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
