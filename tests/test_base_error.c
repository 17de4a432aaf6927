/* SPDX-License-Identifier: Apache-2.0 */
/* Error values: every code has a text, messages are cut and never overrun, NULL is
 * allowed. */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"

static void
test_every_own_code_has_its_text(void **state)
{
    static const int codes[] = {STK_E_CORRUPT, STK_E_VERSION, STK_E_STALE,     STK_E_MISMATCH,
                                STK_E_SAMPLE,  STK_E_BORROW,  STK_E_INFEASIBLE};
    (void)state;

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        assert_string_not_equal(sti_error_text(codes[i]), "unknown error");
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(sti_error_text(codes[i]), sti_error_text(codes[j]));
    }
}

static void
test_errno_of_both_signs(void **state)
{
    (void)state;
    assert_string_equal(sti_error_text(0), "success");
    assert_string_equal(sti_error_text(-ENOENT), sti_error_text(ENOENT));
    assert_string_equal(sti_error_text(-ENOENT), "No such file or directory");
}

static void
test_unknown_codes(void **state)
{
    static const int codes[] = {INT_MIN, INT_MAX, -9999, -10000, -20000, 4000, -4095, 10001};
    (void)state;

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        assert_string_equal(sti_error_text(codes[i]), "unknown error");
}

static void
test_set_fills_every_field(void **state)
{
    stk_error err;
    (void)state;

    memset(&err, 0xee, sizeof(err));
    assert_int_equal(sti_error_set(&err, -EINVAL, "%s is %d", "batch_size", 7), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
    assert_int_equal(err.rank, -1);
    assert_true(err.sample == STK_NO_SAMPLE);
    assert_string_equal(err.message, "batch_size is 7");
    assert_string_equal(err.path, "");
}

static void
test_set_path_and_sample(void **state)
{
    stk_error err;
    (void)state;

    assert_int_equal(sti_error_set_path(&err, -EIO, "/data/a", "cannot read"), -EIO);
    assert_string_equal(err.path, "/data/a");
    assert_true(err.sample == STK_NO_SAMPLE);
    assert_int_equal(sti_error_set_sample(&err, STK_E_SAMPLE, 42, "/data/b", "bad"), STK_E_SAMPLE);
    assert_true(err.sample == 42);
    assert_string_equal(err.path, "/data/b");
    assert_int_equal(sti_error_set_sample(&err, STK_E_SAMPLE, 43, NULL, "bad"), STK_E_SAMPLE);
    assert_string_equal(err.path, "");
}

/* What is too long is cut, terminated, and does not run into the next field. */
static void
test_long_texts_are_cut(void **state)
{
    char text[2000];
    struct {
        stk_error err;
        char guard[16];
    } room;
    (void)state;

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    memset(&room, 0x5a, sizeof(room));
    assert_int_equal(sti_error_set_path(&room.err, -EIO, text, "%s", text), -EIO);
    assert_int_equal(strlen(room.err.message), STK_ERROR_MESSAGE_SIZE - 1);
    assert_int_equal(strlen(room.err.path), STK_ERROR_PATH_SIZE - 1);
    for (size_t i = 0; i < sizeof(room.guard); i++)
        assert_int_equal(room.guard[i], 0x5a);
}

static void
test_nobody_asks(void **state)
{
    (void)state;
    assert_int_equal(sti_error_set(NULL, -EIO, "x"), -EIO);
    assert_int_equal(sti_error_set_path(NULL, -EIO, NULL, "x"), -EIO);
    assert_int_equal(sti_error_set_sample(NULL, -EIO, 1, NULL, "x"), -EIO);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_own_code_has_its_text),
        cmocka_unit_test(test_errno_of_both_signs),
        cmocka_unit_test(test_unknown_codes),
        cmocka_unit_test(test_set_fills_every_field),
        cmocka_unit_test(test_set_path_and_sample),
        cmocka_unit_test(test_long_texts_are_cut),
        cmocka_unit_test(test_nobody_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
