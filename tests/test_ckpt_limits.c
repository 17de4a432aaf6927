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
#include <unistd.h>

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
        {{STK_CKPT_OPTS_INIT, .node_local = 2}, "node_local"},
        {{STK_CKPT_OPTS_INIT, .node_local = 1}, NULL}, /* without other ranks */
        {{STK_CKPT_OPTS_INIT, .partner = 1}, "node_local"},
        {{STK_CKPT_OPTS_INIT, .node_local = 1, .partner = 2}, "partner"},
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
    const stk_ckpt_opts partner = {STK_CKPT_OPTS_INIT, .node_local = 1, .partner = 1};
    stk_error err;
    assert_int_equal(try_open(&partner, &err), -ENOTSUP); /* there is no other node */
    assert_non_null(strstr(err.message, "partner"));
}

/* More slots than memory are refused, and not found out by dying of them. */
static void
test_memory(void **unused)
{
    const stk_ckpt_opts opts = {STK_CKPT_OPTS_INIT, .slots = 1024, .slot_bytes = 256 * MIB};
    stk_ckpt_opts reading = opts;
    uint64_t machine_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    stk_error err;
    (void)unused;

    if (machine_bytes > 1024 * 256 * MIB)
        skip();
    assert_int_equal(try_open(&opts, &err), STK_E_INFEASIBLE);
    assert_non_null(strstr(err.message, "slots x slot_bytes of 274877906944"));
    reading.read_only = 1; /* has none */
    assert_int_equal(try_open(&reading, &err), 0);
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
    (void)snprintf(roots, sizeof(roots), "%s/r0 %s/\xff", path, path);
    assert_int_equal(try_open(&opts, &err), -EINVAL);
    assert_non_null(strstr(err.message, "UTF-8"));
    assert_non_null(strstr(err.path, "\xff"));
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

/* What is wrong is said of a tensor whatever its name is. */
static void
test_long_names(void **unused)
{
    static char name[4000];
    const unsigned char byte = 7;
    const stk_tensor good = {.name = name, .dtype = "U8", .data = &byte};
    stk_tensor tensors[] = {good, good};
    stk_ckpt *ckpt;
    stk_error err;
    (void)unused;

    memset(name, 'n', sizeof(name) - 1);
    assert_int_equal(stk_ckpt_open(&ckpt, engine, path, NULL, NULL), 0);
    assert_int_equal(save(ckpt, 1, tensors, 2, &err), -EINVAL);
    assert_non_null(strstr(err.message, "two tensors"));
    tensors[0].dtype = name;
    assert_int_equal(save(ckpt, 1, tensors, 1, &err), -EINVAL);
    assert_non_null(strstr(err.message, "is none of safetensors"));
    tensors[0] = good;
    tensors[0].n_bytes = 2;
    assert_int_equal(save(ckpt, 1, tensors, 1, &err), -EINVAL);
    assert_non_null(strstr(err.message, "dtype and shape make 1"));
    tensors[0] = good;
    tensors[0].data = NULL;
    assert_int_equal(save(ckpt, 1, tensors, 1, &err), -EINVAL);
    assert_non_null(strstr(err.message, "no data"));
    stk_ckpt_close(ckpt);
}

/* A manifest that no reader would take is not begun. */
static void
test_manifest_bytes(void **unused)
{
    const stk_ckpt_opts opts = {STK_CKPT_OPTS_INIT, .chunk_bytes = 4096};
    const uint64_t shape = UINT64_C(1) << 39;
    const unsigned char byte = 7; /* nobody looks at the others */
    const stk_tensor tensor = {.name = "t",
                               .dtype = "U8",
                               .shape = &shape,
                               .dims = 1,
                               .data = &byte,
                               .flags = STK_TENSOR_STABLE};
    stk_ckpt *ckpt;
    stk_error err;
    (void)unused;

    assert_int_equal(stk_ckpt_open(&ckpt, engine, path, &opts, NULL), 0);
    assert_int_equal(save(ckpt, 1, &tensor, 1, &err), -EINVAL);
    assert_non_null(strstr(err.message, "chunk_bytes"));
    stk_ckpt_close(ckpt);
}

#define MANY 100000u
#define MANY_BLOBS 3u

/* Each of many is found, told and loaded; the time that it takes grows with their number and not
 * with its square, which the test's time limit sees to. Unique ones make many extents. */
static void
test_many(void **unused)
{
    stk_tensor *tensors = calloc(MANY, sizeof(*tensors));
    stk_load *loads = calloc(MANY, sizeof(*loads));
    stk_pair *pairs = calloc(MANY, sizeof(*pairs));
    uint32_t *values = calloc(MANY, sizeof(*values));
    uint32_t *got = calloc(MANY, sizeof(*got));
    char(*names)[16] = calloc(MANY, sizeof(*names));
    const stk_blob blobs[MANY_BLOBS] = {{"c", "3", 1}, {"a", "1", 1}, {"b", "2", 1}};
    char roots[600];
    stk_view_tensor found;
    stk_ckpt *ckpt;
    stk_view *view;
    (void)unused;

    assert_true(tensors && loads && pairs && values && got && names);
    for (uint32_t at = 0; at < MANY; at++) {
        values[at] = at * 7;
        (void)snprintf(names[at], sizeof(names[at]), "%u", at * 31 % MANY);
        tensors[at] = (stk_tensor){.name = names[at],
                                   .dtype = "U32",
                                   .data = &values[at],
                                   .flags = STK_TENSOR_STABLE | STK_TENSOR_UNIQUE};
        loads[at] = (stk_load){.name = names[at], .dst = &got[at], .n_bytes = sizeof(got[at])};
        pairs[at] = (stk_pair){names[at], "v"};
    }
    (void)snprintf(roots, sizeof(roots), "%s/r0 %s/r1", path, path);
    assert_int_equal(stk_ckpt_open(&ckpt, engine, path,
                                   &(stk_ckpt_opts){STK_CKPT_OPTS_INIT, .roots = roots}, NULL),
                     0);
    const stk_save all = {STK_SAVE_INIT,     .step = 1,         .tensors = tensors,
                          .n_tensors = MANY, .blobs = blobs,    .n_blobs = MANY_BLOBS,
                          .metadata = pairs, .n_metadata = MANY};
    assert_int_equal(stk_ckpt_save(ckpt, &all, NULL), 0);
    assert_int_equal(stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, NULL), 0);
    assert_int_equal(stk_view_open(&view, ckpt, 1, NULL), 0);
    for (uint32_t at = 0; at < MANY; at++) {
        assert_int_equal(stk_view_tensor_at(view, at, &found), 0);
        assert_string_equal(found.name, names[at]);
        assert_int_equal(stk_view_tensor_find(view, names[at], &found), 0);
        assert_string_equal(found.name, names[at]);
    }
    assert_int_equal(stk_view_tensor_at(view, MANY, &found), -ERANGE);
    assert_int_equal(stk_view_tensor_find(view, "no", &found), -ENOENT);
    for (uint32_t at = 0; at < MANY_BLOBS; at++) {
        assert_int_equal(stk_view_blob_at(view, at, &found), 0);
        assert_string_equal(found.name, blobs[at].name);
    }
    assert_int_equal(stk_view_blob_at(view, MANY_BLOBS, &found), -ERANGE);
    assert_int_equal(stk_view_load(view, loads, MANY, NULL), 0);
    assert_memory_equal(got, values, MANY * sizeof(*got));
    stk_view_close(view);
    stk_ckpt_close(ckpt);
    free(tensors);
    free(loads);
    free(pairs);
    free(values);
    free(got);
    free(names);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_options, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_roots, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_steps_and_shapes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_dtype, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_long_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_manifest_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
