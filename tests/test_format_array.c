/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of .npy and IDX files: what numpy writes is read, everything else refused in
 * words. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "format/array.h"

/* Makes a head; returns its length. */
static size_t
make_npy(unsigned char *head, unsigned version, const char *text)
{
    size_t n = strlen(text);

    memcpy(head, "\x93NUMPY", 6);
    head[6] = (unsigned char)version;
    head[7] = 0;
    head[8] = (unsigned char)n;
    head[9] = (unsigned char)(n >> 8);
    head[10] = 0;
    head[11] = 0;
    memcpy(head + (version == 1 ? 10 : 12), text, n);
    return (version == 1 ? 10 : 12) + n;
}

static void
check_good(unsigned version, const char *text, struct sti_array *array)
{
    unsigned char head[1024];
    stk_error err = {.message = ""};
    size_t n = make_npy(head, version, text);
    int rc = sti_array_parse_npy(array, head, n, "x.npy", &err);

    if (rc < 0)
        print_error("%s: %s\n", text, err.message);
    assert_int_equal(rc, 0);
    assert_int_equal(array->data_offset, n);
}

static void
check_bad(const char *text, const char *words)
{
    unsigned char head[1024];
    struct sti_array array;
    stk_error err = {.message = ""};
    size_t n = make_npy(head, 1, text);

    assert_int_equal(sti_array_parse_npy(&array, head, n, "x.npy", &err), -EINVAL);
    if (!strstr(err.message, words))
        print_error("%s: \"%s\" does not say \"%s\"\n", text, err.message, words);
    assert_non_null(strstr(err.message, words));
    assert_string_equal(err.path, "x.npy");
}

static void
test_npy_good(void **state)
{
    struct sti_array array;

    (void)state;
    for (unsigned version = 1; version <= 3; version++) {
        check_good(version,
                   "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4, 5), }      \n",
                   &array);
        assert_int_equal(array.dims, 3);
        assert_int_equal(array.shape[2], 5);
        assert_int_equal(array.n_elements, 60);
        assert_int_equal(array.n_bytes, 240);
        assert_string_equal(array.dtype, "<f4");
        assert_false(array.big_endian);
    }
    check_good(1, "{\"shape\":(7L,),\"fortran_order\":False,\"descr\":\">i2\"}", &array);
    assert_int_equal(array.dims, 1);
    assert_int_equal(array.n_bytes, 14);
    assert_true(array.big_endian);
    check_good(1, "{'descr': '<U3', 'fortran_order': False, 'shape': (2, 0), }", &array);
    assert_int_equal(array.element_bytes, 12);
    assert_int_equal(array.n_elements, 0);
    check_good(1, "{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (2,), }", &array);
    assert_string_equal(array.dtype, "<M8[ns]");
    check_good(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", &array);
}

#define DESCR "{'descr': '<f4', 'fortran_order': "
#define SHAPE DESCR "False, 'shape': "

static void
test_npy_bad(void **state)
{
    (void)state;
    check_bad(DESCR "True, 'shape': (3,), }", "ascontiguousarray");
    check_bad("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", "objects");
    check_bad("{'descr': [('a', '<f4'), ('b', '<i8')], 'fortran_order': False, 'shape': (3,), }",
              "plain");
    check_bad("{'descr': '<x4', 'fortran_order': False, 'shape': (3,), }", "plain");
    check_bad("{'descr': '<f0', 'fortran_order': False, 'shape': (3,), }", "plain");
    check_bad("{'descr': '<f4x', 'fortran_order': False, 'shape': (3,), }", "plain");
    check_bad(SHAPE "(), }", "single value");
    check_bad(SHAPE "(3,)", "damaged");
    check_bad(SHAPE "(3", "damaged");
    check_bad(SHAPE "(-3,), }", "damaged");
    check_bad(SHAPE "(3 4), }", "damaged");
    check_bad(SHAPE "(99999999999999999999,), }", "damaged");
    check_bad(SHAPE "(4611686018427387904, 4), }", "too much");
    check_bad(SHAPE "(3,), 'shape': (3,), }", "damaged");
    check_bad(SHAPE "(3,), 'more': 1, }", "damaged");
    check_bad("{'descr': '<f4', 'shape': (3,), }", "damaged");
    check_bad("", "damaged");
    check_bad(SHAPE "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1), }",
              "dimensions");
}

/* Any cut and any change of a byte is survived; the sanitizers watch. */
static void
test_npy_damage(void **state)
{
    unsigned char head[1024];
    struct sti_array array;

    (void)state;
    for (unsigned version = 0; version <= 4; version++) {
        size_t n = make_npy(head, version, SHAPE "(3, 4), }   \n");

        for (size_t cut = 0; cut <= n; cut++) {
            unsigned char *copy = malloc(cut + 1);

            assert_non_null(copy);
            memcpy(copy, head, cut);
            int rc = sti_array_parse_npy(&array, copy, cut, "x", NULL);
            assert_int_equal(rc, cut == n && version >= 1 && version <= 3 ? 0 : -EINVAL);
            free(copy);
        }
        for (size_t at = 0; at < n; at++)
            for (unsigned value = 0; value < 256; value++) {
                unsigned char kept = head[at];

                head[at] = (unsigned char)value;
                if (sti_array_parse_npy(&array, head, n, "x", NULL) == 0)
                    assert_true(array.data_offset <= n && array.dims >= 1);
                head[at] = kept;
            }
    }
}

static void
test_idx(void **state)
{
    unsigned char head[16] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 0, 28};
    struct sti_array array;
    stk_error err;

    (void)state;
    assert_int_equal(sti_array_recognise(head, 16), STI_ARRAY_IDX);
    assert_int_equal(sti_array_parse_idx(&array, head, 16, "x", NULL), 0);
    assert_int_equal(array.dims, 3);
    assert_int_equal(array.shape[1], 256);
    assert_int_equal(array.n_bytes, 2 * 256 * 28);
    assert_int_equal(array.data_offset, 16);
    assert_string_equal(array.dtype, "|u1");
    head[2] = 0x0e;
    assert_int_equal(sti_array_parse_idx(&array, head, 16, "x", NULL), 0);
    assert_int_equal(array.element_bytes, 8);
    for (size_t cut = 0; cut < 16; cut++)
        assert_int_equal(sti_array_parse_idx(&array, head, cut, "x", &err), -EINVAL);
    memset(head + 4, 0xff, 12);
    assert_int_equal(sti_array_parse_idx(&array, head, 16, "x", &err), -EINVAL);
    head[2] = 0x0a;
    assert_int_equal(sti_array_recognise(head, 16), STI_ARRAY_NONE);
}

static void
test_integers(void **state)
{
    static const unsigned char bytes[8] = {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    struct sti_array array = {.kind = 'i', .element_bytes = 2};
    int64_t value;

    (void)state;
    assert_int_equal(sti_array_get_integer(&array, bytes, &value), 0);
    assert_int_equal(value, -2);
    array.element_bytes = 8;
    assert_int_equal(sti_array_get_integer(&array, bytes, &value), 0);
    assert_int_equal(value, -2);
    array.big_endian = true;
    assert_int_equal(sti_array_get_integer(&array, bytes, &value), 0);
    assert_true(value == (int64_t)UINT64_C(0xfeffffffffffffff));
    array.kind = 'u';
    assert_int_equal(sti_array_get_integer(&array, bytes, &value), -ERANGE);
    array.element_bytes = 4;
    assert_int_equal(sti_array_get_integer(&array, bytes, &value), 0);
    assert_int_equal(value, 0xfeffffff);
    array.kind = 'f';
    assert_int_equal(sti_array_get_integer(&array, bytes, &value), -EINVAL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npy_good),   cmocka_unit_test(test_npy_bad),
        cmocka_unit_test(test_npy_damage), cmocka_unit_test(test_idx),
        cmocka_unit_test(test_integers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
