/* SPDX-License-Identifier: Apache-2.0 */
/* At each limit it works, and one beyond it is refused by its name; every dtype, alone,
 * empty, and without dimensions. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ckpt/dtype.h"
#include "ckpt_util.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define ROOTS_MAX 63u
#define DIMS_MAX 64u

static char path[256];
static stk_engine *engine;

static int
set_up(void **unused)
{
    (void)unused;
    scratch_make(path);
    return stk_engine_open(&engine, NULL, NULL);
}

static int
tear_down(void **unused)
{
    (void)unused;
    stk_engine_close(engine);
    scratch_remove(path);
    return 0;
}

/* Opens with options and closes again; what it said. */
static int
try_open(const stk_ckpt_opts *opts, stk_error *err)
{
    stk_ckpt *ckpt = NULL;
    int rc = stk_ckpt_open(&ckpt, engine, path, opts, err);

    if (rc == 0)
        stk_ckpt_close(ckpt);
    return rc;
}

static void
test_options(void **unused)
{
    static const struct {
        stk_ckpt_opts opts;
        const char *said; /* NULL: it works */
    } cases[] = {
        {{STK_CKPT_OPTS_INIT, .slots = 1}, "slots 1"},
        {{STK_CKPT_OPTS_INIT, .slots = 2, .slot_bytes = 64 * KIB}, NULL},
        {{STK_CKPT_OPTS_INIT, .slots = 1024, .slot_bytes = 64 * KIB}, NULL},
        {{STK_CKPT_OPTS_INIT, .slots = 1025, .slot_bytes = 64 * KIB}, "slots 1025"},
        {{STK_CKPT_OPTS_INIT, .slot_bytes = 64 * KIB - 1}, "slot_bytes 65535"},
        {{STK_CKPT_OPTS_INIT, .slot_bytes = 64 * KIB + 1}, "slot_bytes 65537"},
        {{STK_CKPT_OPTS_INIT, .slots = 2, .slot_bytes = 256 * MIB}, NULL},
        {{STK_CKPT_OPTS_INIT, .slots = 2, .slot_bytes = 256 * MIB + 64 * KIB}, "slot_bytes"},
        {{STK_CKPT_OPTS_INIT, .chunk_bytes = 4096}, NULL},
        {{STK_CKPT_OPTS_INIT, .chunk_bytes = 2048}, "chunk_bytes 2048"},
        {{STK_CKPT_OPTS_INIT, .chunk_bytes = 12288}, "chunk_bytes 12288"},
        {{STK_CKPT_OPTS_INIT, .chunk_bytes = 16 << 20}, "slot_bytes 8388608"},
        {{STK_CKPT_OPTS_INIT, .slots = 2, .slot_bytes = 128 * MIB, .chunk_bytes = 64 << 20}, NULL},
        {{STK_CKPT_OPTS_INIT, .slots = 2, .slot_bytes = 128 * MIB, .chunk_bytes = 128 << 20},
         "chunk_bytes"},
        {{STK_CKPT_OPTS_INIT, .outstanding = 8}, NULL},
        {{STK_CKPT_OPTS_INIT, .outstanding = 9}, "outstanding 9"},
        {{STK_CKPT_OPTS_INIT, .buffered = 2}, "buffered"},
        {{STK_CKPT_OPTS_INIT, .read_only = 2}, "read_only"},
        {{STK_CKPT_OPTS_INIT, .roots = "relative"}, "relative"},
    };
    (void)unused;

    for (size_t at = 0; at < sizeof(cases) / sizeof(cases[0]); at++) {
        stk_error err = {0};
        int rc = try_open(&cases[at].opts, &err);

        if (rc < 0 && !cases[at].said)
            print_error("case %zu: %s\n", at, err.message);
        assert_int_equal(rc, cases[at].said ? -EINVAL : 0);
        if (cases[at].said)
            assert_non_null(strstr(err.message, cases[at].said));
    }
}

static void
test_roots(void **unused)
{
    static char roots[(ROOTS_MAX + 1) * 300];
    static char longest[1100];
    size_t used = 0;
    stk_error err;
    (void)unused;

    for (uint32_t at = 0; at < ROOTS_MAX; at++)
        used += (size_t)snprintf(roots + used, sizeof(roots) - used, " %s/r%u", path, at);
    const stk_ckpt_opts opts = {STK_CKPT_OPTS_INIT, .roots = roots, .slot_bytes = 64 * KIB};
    assert_int_equal(try_open(&opts, NULL), 0);
    (void)snprintf(roots + used, sizeof(roots) - used, " %s/r0", path);
    assert_int_equal(try_open(&opts, &err), -EINVAL);
    assert_non_null(strstr(err.message, "roots"));
    (void)snprintf(roots, sizeof(roots), "%s/r0 %s/r0", path, path);
    assert_int_equal(try_open(&opts, &err), -EINVAL);
    assert_non_null(strstr(err.message, "twice"));
    memset(longest, 'x', 1001);
    longest[0] = '/';
    const stk_ckpt_opts too_long = {STK_CKPT_OPTS_INIT, .roots = longest};
    assert_int_equal(try_open(&too_long, &err), -EINVAL);
    longest[1000] = '\0';
    assert_int_not_equal(try_open(&too_long, &err),
                         -EINVAL); /* not there, which is another thing */
}

static int
save(stk_ckpt *ckpt, uint64_t step, const stk_tensor *tensors, uint32_t n, stk_error *err)
{
    return stk_ckpt_save(
        ckpt, &(stk_save){STK_SAVE_INIT, .step = step, .tensors = tensors, .n_tensors = n}, err);
}

static void
test_steps_and_shapes(void **unused)
{
    const uint64_t last = (uint64_t)INT64_MAX;
    const unsigned char byte = 7;
    uint64_t ones[DIMS_MAX + 1];
    stk_tensor tensor = {.name = "t", .dtype = "U8", .data = &byte};
    uint64_t step;
    stk_ckpt *ckpt;
    stk_error err;
    (void)unused;

    assert_int_equal(stk_ckpt_open(&ckpt, engine, path, NULL, NULL), 0);
    assert_int_equal(save(ckpt, last + 1, &tensor, 1, &err), -EINVAL);
    assert_int_equal(save(ckpt, last, &tensor, 1, NULL), 0);
    assert_int_equal(stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, NULL), 0);
    assert_int_equal(stk_ckpt_latest(ckpt, &step, NULL), 0);
    assert_int_equal(step, last);
    for (uint32_t dim = 0; dim <= DIMS_MAX; dim++)
        ones[dim] = 1;
    tensor.shape = ones;
    tensor.dims = DIMS_MAX + 1;
    assert_int_equal(save(ckpt, 1, &tensor, 1, &err), -EINVAL);
    assert_non_null(strstr(err.message, "'t'"));
    tensor.dims = DIMS_MAX;
    assert_int_equal(save(ckpt, 1, &tensor, 1, NULL), 0);
    assert_int_equal(stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, NULL), 0);
    ones[0] = UINT64_MAX / 2;
    ones[1] = 3;
    assert_int_equal(save(ckpt, 2, &tensor, 1, &err), -EOVERFLOW);
    assert_non_null(strstr(err.message, "'t'"));
    stk_ckpt_close(ckpt);
}

/* Each dtype: eight elements, none, and, where one fills a byte, one without dimensions. */
static void
test_every_dtype(void **unused)
{
    static const unsigned char bytes[64] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const uint64_t eight[] = {2, 4};
    const uint64_t none[] = {3, 0, 2};
    stk_tensor tensors[3 * 32];
    char names[3 * 32][64];
    uint32_t n = 0;
    stk_ckpt *ckpt;
    stk_view *view;
    (void)unused;

    for (uint32_t at = 0; sti_dtype_at(at); at++) {
        const struct sti_dtype *dtype = sti_dtype_at(at);
        const stk_tensor shapes[] = {{.shape = eight, .dims = 2}, {.shape = none, .dims = 3}, {0}};

        for (uint32_t which = 0; which < (dtype->bits < 8 ? 2 : 3); which++) {
            (void)snprintf(names[n], sizeof(names[n]), "%s.%u \xf0\x9f\x92\xbe\t\"\\", dtype->name,
                           which);
            tensors[n] = shapes[which];
            tensors[n].name = names[n];
            tensors[n].dtype = dtype->name;
            tensors[n].data = bytes;
            n++;
        }
    }
    assert_int_equal(n, 3 * 22 - 3);
    assert_int_equal(stk_ckpt_open(&ckpt, engine, path, NULL, NULL), 0);
    assert_int_equal(save(ckpt, 3, tensors, n, NULL), 0);
    assert_int_equal(stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, NULL), 0);
    assert_int_equal(stk_view_open(&view, ckpt, 3, NULL), 0);
    for (uint32_t at = 0; at < n; at++) {
        unsigned char got[64];
        stk_view_tensor found;

        assert_int_equal(stk_view_tensor_find(view, names[at], &found), 0);
        assert_string_equal(found.dtype, tensors[at].dtype);
        assert_int_equal(found.dims, tensors[at].dims);
        for (uint32_t dim = 0; dim < found.dims; dim++)
            assert_int_equal(found.shape[dim], tensors[at].shape[dim]);
        stk_load load = {.name = names[at], .dst = got, .n_bytes = found.n_bytes};
        assert_int_equal(stk_view_load(view, &load, 1, NULL), 0);
        assert_memory_equal(got, bytes, found.n_bytes);
    }
    stk_view_close(view);
    stk_ckpt_close(ckpt);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_options, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_roots, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_steps_and_shapes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_dtype, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
