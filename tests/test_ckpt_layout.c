/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts: order, alignment and header; that a header read back is the layout; names on
 * disk. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "ckpt/layout.h"
#include "ckpt/names.h"

#define N_MAX 200

static uint32_t
fill(struct sti_layout_input *inputs, char (*names)[32], uint64_t (*shapes)[2])
{
    uint32_t n = 0;

    for (uint32_t round = 0; round < 7; round++) {
        for (uint32_t at = 0; sti_dtype_at(at); at++, n++) {
            (void)snprintf(names[n], 32, "%u \xe2\x82\xac \"\\\t %u", round, at);
            shapes[n][0] = 8 * ((round * 5 + at) % 4);
            shapes[n][1] = 1 + at % 3;
            inputs[n] = (struct sti_layout_input){.name = names[n],
                                                  .dtype = sti_dtype_at(at)->name,
                                                  .shape = shapes[n],
                                                  .dims = 1 + round % 2,
                                                  .owner = round == 3 ? 1 : STI_LAYOUT_SHARED};
        }
    }
    return n;
}

static void
test_order(void **unused)
{
    static struct sti_layout_input inputs[N_MAX];
    static char names[N_MAX][32];
    static uint64_t shapes[N_MAX][2];
    const struct sti_layout_pair pair = {"k\n", "\"v\""};
    struct sti_layout layout;
    struct sti_layout again;
    stk_error err;
    (void)unused;

    uint32_t n = fill(inputs, names, shapes);
    assert_int_equal(sti_layout_build(&layout, inputs, n, &pair, 1, &err), 0);
    assert_int_equal(layout.header_bytes % STI_LAYOUT_HEADER_ALIGN, 0);
    uint64_t at = layout.header_bytes;
    for (uint32_t idx = 0; idx < n; idx++) {
        const struct sti_layout_tensor *tensor = &layout.tensors[idx];

        assert_int_equal(tensor->offset, at);
        assert_int_equal(tensor->offset % (tensor->dtype->bits >= 8 ? tensor->dtype->bits / 8 : 1),
                         0);
        if (idx > 0)
            assert_true(tensor->dtype->bits <= layout.tensors[idx - 1].dtype->bits);
        at += tensor->n_bytes;
    }
    assert_int_equal(layout.stream_bytes, at);
    /* What is in the header, read as somebody else would. */
    uint64_t length = 0;
    for (uint32_t byte = 8; byte > 0; byte--)
        length = length << 8 | (unsigned char)layout.header[byte - 1];
    assert_int_equal(length + 8, layout.header_bytes);
    assert_int_equal(sti_layout_parse(&again, layout.header + 8, length, layout.stream_bytes, &err),
                     0);
    assert_int_equal(again.n_tensors, n);
    assert_int_equal(again.n_pairs, 1);
    assert_string_equal(again.pairs[0].key, pair.key);
    assert_string_equal(again.pairs[0].value, pair.value);
    for (uint32_t idx = 0; idx < n; idx++) {
        const struct sti_layout_tensor *tensor = &layout.tensors[idx];
        const struct sti_layout_tensor *found = sti_layout_find(&again, tensor->name);

        assert_non_null(found);
        assert_int_equal(found->offset, tensor->offset);
        assert_int_equal(found->n_bytes, tensor->n_bytes);
        assert_ptr_equal(found->dtype, tensor->dtype);
        assert_int_equal(found->dims, tensor->dims);
    }
    sti_layout_fini(&again);
    assert_int_equal(
        sti_layout_parse(&again, layout.header + 8, length, layout.stream_bytes + 1, &err),
        STK_E_CORRUPT);
    sti_layout_fini(&layout);
}

static void
test_utf8(void **unused)
{
    static const char *const good[] = {"",
                                       "a",
                                       "\xc2\x80",
                                       "\xe2\x82\xac",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf",
                                       "\xed\x9f\xbf"};
    static const char *const bad[] = {"\x80",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x80\x80",
                                      "\xed\xa0\x80",
                                      "\xf0\x80\x80\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xe2\x82",
                                      "a\xff"};
    (void)unused;

    for (size_t at = 0; at < sizeof(good) / sizeof(good[0]); at++)
        assert_true(sti_utf8_is_valid(good[at]));
    for (size_t at = 0; at < sizeof(bad) / sizeof(bad[0]); at++)
        assert_false(sti_utf8_is_valid(bad[at]));
}

static void
test_names(void **unused)
{
    static const char *const others[] = {"",
                                         "step-",
                                         "step-x",
                                         "step-01",
                                         "step-1x",
                                         "step-1.",
                                         "step-1.abc",
                                         "step-99999999999999999999",
                                         "step-1.0123456789abcdef",
                                         "step-1.0123456789abcdef-",
                                         "step-1.0123456789abcdef-1.",
                                         "step-1.0123456789abcdef-1.tmpx",
                                         "step-1.0123456789ABCDEF-1",
                                         "Step-1",
                                         "step-1.0123456789abcdef-11112222333344445"};
    char name[STI_NAME_SIZE];
    char id[STI_ID_SIZE];
    char parsed[STI_ID_SIZE];
    uint64_t step;
    (void)unused;

    for (uint64_t shift = 0; shift < 64; shift++) {
        sti_name_id(id, UINT64_MAX >> shift, UINT64_MAX >> (63 - shift));
        assert_true(sti_name_is_id(id));
        for (enum sti_name_kind kind = STI_NAME_STEP; kind <= STI_NAME_GONE; kind++) {
            sti_name_make(name, kind, UINT64_MAX >> shift, id);
            assert_int_equal(sti_name_parse(name, &step, parsed), kind);
            assert_int_equal(step, UINT64_MAX >> shift);
            assert_string_equal(parsed, kind == STI_NAME_STEP ? "" : id);
        }
    }
    for (size_t at = 0; at < sizeof(others) / sizeof(others[0]); at++)
        assert_int_equal(sti_name_parse(others[at], &step, parsed), STI_NAME_OTHER);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
