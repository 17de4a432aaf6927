/* SPDX-License-Identifier: Apache-2.0 */
/* Names: Python's order of str, endings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "format/name.h"
#include "format/path.h"
#include "base/mem.h"

static int
sign(int value)
{
    return (value > 0) - (value < 0);
}

/* In rising order; made with sorted(os.fsdecode(name) for name in ...) of CPython. */
static const char *const rising[] = {
    "",
    "10",
    "2",
    "A",
    "Z",
    "a",
    "a b",
    "a-",
    "a.",
    "a/",
    "aa",
    "\x7f",
    "\xc2\x80",         /* U+0080 */
    "\xc3\xa9",         /* U+00E9 */
    "\xed\x9f\xbf",     /* U+D7FF, the last before the surrogates */
    "\x80",             /* a lone continuation: U+DC80 */
    "\xc3",             /* a lead byte alone: U+DCC3 */
    "\xc3\101",         /* U+DCC3, A */
    "\xe2\x82",         /* cut off: U+DCE2, U+DC82 */
    "\xed\xa0\x80",     /* a surrogate is no valid UTF-8: U+DCED, ... */
    "\xf5",             /* never valid: U+DCF5 */
    "\xff",             /* U+DCFF */
    "\xee\x80\x80",     /* U+E000 */
    "\xef\xbf\xbf",     /* U+FFFF */
    "\xf0\x90\x80\x80", /* U+10000 */
    "\xf4\x8f\xbf\xbf", /* U+10FFFF */
};

static void
test_order(void **state)
{
    size_t n = sizeof(rising) / sizeof(rising[0]);

    (void)state;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            assert_int_equal(sign(sti_name_compare_text(rising[i], rising[j])), (i > j) - (i < j));
}

/* Overlong forms and what lies beyond U+10FFFF are single bytes to Python. */
static void
test_invalid_sequences(void **state)
{
    (void)state;
    assert_true(sti_name_compare_text("\xc0\x80", "\xee\x80\x80") < 0);
    assert_true(sti_name_compare_text("\xe0\x80\x80", "\xee\x80\x80") < 0);
    assert_true(sti_name_compare_text("\xf0\x80\x80\x80", "\xee\x80\x80") < 0);
    assert_true(sti_name_compare_text("\xf4\x90\x80\x80", "\xee\x80\x80") < 0);
    assert_true(sti_name_compare_text("x\xc0\x80", "x\xc3\xa9") > 0);
}

static void
put_code(char **at, uint32_t code)
{
    if (code < 0x80) {
        *(*at)++ = (char)code;
    } else if (code < 0x800) {
        *(*at)++ = (char)(0xc0 | code >> 6);
        *(*at)++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *(*at)++ = (char)(0xe0 | code >> 12);
        *(*at)++ = (char)(0x80 | (code >> 6 & 0x3f));
        *(*at)++ = (char)(0x80 | (code & 0x3f));
    } else {
        *(*at)++ = (char)(0xf0 | code >> 18);
        *(*at)++ = (char)(0x80 | (code >> 12 & 0x3f));
        *(*at)++ = (char)(0x80 | (code >> 6 & 0x3f));
        *(*at)++ = (char)(0x80 | (code & 0x3f));
    }
}

/* For valid UTF-8 the order of code points is that of bytes. */
static void
test_valid_is_bytes(void **state)
{
    uint64_t seed = 7;
    char text[2][32];

    (void)state;
    for (int round = 0; round < 100000; round++) {
        for (int side = 0; side < 2; side++) {
            char *at = text[side];

            for (int i = 0; i < 4; i++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                uint32_t code = 1 + (uint32_t)(seed >> 33) % (seed >> 63 ? 0x10fffe : 0x90);

                put_code(&at, code >= 0xd800 && code < 0xe000 ? 'x' : code);
            }
            *at = '\0';
        }
        assert_int_equal(sign(sti_name_compare_text(text[0], text[1])),
                         sign(strcmp(text[0], text[1])));
    }
}

static void
test_endings(void **state)
{
    (void)state;
    assert_true(sti_name_has_ending("a.JPG", 5, STI_NAME_IMAGE_ENDINGS));
    assert_true(sti_name_has_ending(".webp", 5, STI_NAME_IMAGE_ENDINGS));
    assert_true(sti_name_has_ending("a.jpg.Tif", 9, STI_NAME_IMAGE_ENDINGS));
    assert_false(sti_name_has_ending("a.jpg.txt", 9, STI_NAME_IMAGE_ENDINGS));
    assert_false(sti_name_has_ending("jpg", 3, STI_NAME_IMAGE_ENDINGS));
    assert_false(sti_name_has_ending("", 0, STI_NAME_IMAGE_ENDINGS));
    assert_true(sti_name_has_ending("", 0, "*"));
    assert_true(sti_name_has_ending("a.bin", 5, "  .x  .bin "));
    assert_false(sti_name_has_ending("a.bin", 5, ".b"));
    assert_true(sti_name_is_index(".stoker-index"));
    assert_true(sti_name_is_index("x.npy.stoker-index"));
    assert_true(sti_name_is_index(".stoker-index.12.ab.tmp"));
    assert_false(sti_name_is_index("stoker-index"));
    assert_false(sti_name_is_index("x.stoker-index.jpg"));
    assert_false(sti_name_is_index(".stoker-index.jpg"));
    assert_false(sti_name_is_index(".stoker-index.tmp"));
    assert_false(sti_name_is_index("x.stoker-index.12.ab.tmp"));
    assert_false(sti_name_is_index(".stoker-indexes"));
}

static void
check_split(const char *path, const char *directory, const char *name)
{
    char *found_directory = sti_path_directory(path);
    char *found_name = sti_path_name(path);

    assert_string_equal(found_directory, directory);
    assert_string_equal(found_name, name);
    sti_mem_free(found_directory);
    sti_mem_free(found_name);
}

static void
test_paths(void **state)
{
    (void)state;
    check_split("a", ".", "a");
    check_split("a/b", "a", "b");
    check_split("a//b/", "a", "b");
    check_split("/a", "/", "a");
    check_split("/a/b/c", "/a/b", "c");
    check_split("../a", "..", "a");
    char *joined = sti_path_join("/", "a");
    assert_string_equal(joined, "/a");
    sti_mem_free(joined);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),          cmocka_unit_test(test_invalid_sequences),
        cmocka_unit_test(test_valid_is_bytes), cmocka_unit_test(test_endings),
        cmocka_unit_test(test_paths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
