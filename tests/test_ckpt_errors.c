/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fails in the background is told by the next call, whichever it is, once, with the
 * step and the part; what cannot be done is refused by its name.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ckpt_util.h"

#define N_BYTES 70000

static unsigned char data[N_BYTES];
static const uint64_t shape = N_BYTES;
static const stk_tensor tensor = {.name = "t",
                                  .dtype = "U8",
                                  .shape = &shape,
                                  .dims = 1,
                                  .data = data,
                                  .flags = STK_TENSOR_STABLE};

struct store {
    char path[256];
    char roots[700];
    stk_engine *engine;
    stk_ckpt *ckpt;
};

static void
open_store(struct store *store, const char *method)
{
    scratch_make(store->path);
    (void)snprintf(store->roots, sizeof(store->roots), "%s/root0 %s/root1", store->path,
                   store->path);
    assert_int_equal(stk_engine_open(&store->engine,
                                     &(stk_engine_opts){STK_ENGINE_OPTS_INIT, .io_method = method},
                                     NULL),
                     0);
    assert_int_equal(stk_ckpt_open(&store->ckpt, store->engine, store->path,
                                   &(stk_ckpt_opts){STK_CKPT_OPTS_INIT, .roots = store->roots,
                                                    .slot_bytes = 65536, .chunk_bytes = 4096},
                                   NULL),
                     0);
}

static void
close_store(struct store *store)
{
    stk_ckpt_close(store->ckpt);
    stk_engine_close(store->engine);
    scratch_remove(store->path);
}

static int
save(struct store *store, uint64_t step, stk_error *err)
{
    return stk_ckpt_save(
        store->ckpt, &(stk_save){STK_SAVE_INIT, .step = step, .tensors = &tensor, .n_tensors = 1},
        err);
}

static void
wait_idle(struct store *store)
{
    stk_ckpt_status status = {STK_CKPT_STATUS_INIT};

    do {
        (void)usleep(1000);
        assert_int_equal(stk_ckpt_get_status(store->ckpt, &status), 0);
    } while (status.unfinished > 0);
}

/* The four calls that may be the next one. */
static int
call(struct store *store, uint32_t which, stk_error *err)
{
    switch (which) {
    case 0:
        return save(store, 100, err);
    case 1:
        return stk_ckpt_fence(store->ckpt, err);
    case 2:
        return stk_ckpt_fence_tensor(store->ckpt, 0, err);
    default:
        return stk_ckpt_wait(store->ckpt, STK_CAPTURED, 0, err);
    }
}

/* A stripe root is removed while a run goes on: every save fails and says which root, the
 * old checkpoint is passed over or found as its parts are there or not, and nobody
 * waits for ever. */
static void
test_removed_root(void **unused)
{
    (void)unused;
    for (const char *const *method = test_methods(); *method; method++) {
        struct store store;
        stk_error err;
        uint64_t step;
        char root[300];

        open_store(&store, *method);
        assert_int_equal(save(&store, 1, NULL), 0);
        assert_int_equal(stk_ckpt_wait(store.ckpt, STK_DURABLE_LOCAL, STK_FOREVER, NULL), 0);
        (void)snprintf(root, sizeof(root), "%s/root1", store.path);
        scratch_remove(root);
        for (uint32_t which = 0; which < 4; which++) {
            char said[32];

            (void)snprintf(said, sizeof(said), "step %u failed", which + 2);
            assert_int_equal(save(&store, which + 2, NULL), 0);
            wait_idle(&store);
            assert_int_equal(call(&store, which, &err), -ENOENT);
            assert_non_null(strstr(err.message, said));
            assert_non_null(strstr(err.message, "part 1 in root "));
            assert_non_null(strstr(err.message, root));
            assert_int_equal(stk_ckpt_fence(store.ckpt, &err), 0); /* told once */
        }
        assert_int_equal(stk_ckpt_latest(store.ckpt, &step, &err), STK_E_CORRUPT);
        assert_non_null(strstr(err.message, root));
        stk_ckpt_status status = {STK_CKPT_STATUS_INIT};
        assert_int_equal(stk_ckpt_get_status(store.ckpt, &status), 0);
        assert_int_equal(status.failed, 4);
        assert_int_equal(status.last_durable, 1);
        close_store(&store);
    }
}

/* Everything that a failed save made is gone, but for a root that went. */
static void
test_failure_leaves_nothing(void **unused)
{
    struct store store;
    char path[600];
    stk_error err;
    (void)unused;

    open_store(&store, "auto");
    (void)snprintf(path, sizeof(path), "%s/step-3", store.path);
    assert_int_equal(mkdir(path, 0777), 0);
    (void)snprintf(path, sizeof(path), "%s/step-3/file", store.path);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(save(&store, 3, NULL), 0);
    assert_int_equal(stk_ckpt_wait(store.ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err), -EEXIST);
    assert_non_null(strstr(err.message, "step 3 failed: commit"));
    for (uint32_t root = 0; root < 2; root++) {
        (void)snprintf(path, sizeof(path), "%s/root%u", store.path, root);
        assert_int_equal(rmdir(path), 0); /* it is empty */
        assert_int_equal(mkdir(path, 0777), 0);
    }
    close_store(&store);
}

static void
test_levels(void **unused)
{
    struct store store;
    stk_error err;
    (void)unused;

    open_store(&store, "auto");
    assert_int_equal(stk_ckpt_wait(store.ckpt, STK_CAPTURED, 0, NULL), 0);
    assert_int_equal(stk_ckpt_wait(store.ckpt, STK_DURABLE_LOCAL, 0, NULL), 0);
    assert_int_equal(stk_ckpt_wait(store.ckpt, STK_DURABLE_PARTNER, 0, &err), -ENOTSUP);
    assert_int_equal(stk_ckpt_wait(store.ckpt, STK_DURABLE_SHARED, 0, &err), -ENOTSUP);
    assert_int_equal(stk_ckpt_wait(store.ckpt, (stk_level)7, 0, &err), -ENOTSUP);
    close_store(&store);
}

/* Loads say what does not fit, and leave what is around the caller's memory alone. */
static void
test_loads(void **unused)
{
    struct store store;
    static unsigned char memory[N_BYTES + 200];
    const uint64_t start = 4000;
    const uint64_t count = 200;
    stk_view *view;
    stk_error err;
    (void)unused;

    for (size_t at = 0; at < N_BYTES; at++)
        data[at] = (unsigned char)(at * 31 + at / 256);
    open_store(&store, "auto");
    assert_int_equal(save(&store, 1, NULL), 0);
    assert_int_equal(stk_ckpt_wait(store.ckpt, STK_DURABLE_LOCAL, STK_FOREVER, NULL), 0);
    assert_int_equal(stk_view_open(&view, store.ckpt, 2, &err), -ENOENT);
    assert_int_equal(stk_view_open(&view, store.ckpt, 1, NULL), 0);
    memset(memory, 0xee, sizeof(memory));
    stk_load load = {.name = "t", .dst = memory + 100, .n_bytes = N_BYTES};
    assert_int_equal(stk_view_load(view, &load, 1, NULL), 0);
    assert_memory_equal(memory + 100, data, N_BYTES);
    load = (stk_load){
        .name = "t", .dst = memory + 100, .n_bytes = count, .start = &start, .count = &count};
    memset(memory, 0xee, sizeof(memory));
    assert_int_equal(stk_view_load(view, &load, 1, NULL), 0);
    assert_memory_equal(memory + 100, data + start, count);
    for (size_t at = 0; at < 100; at++)
        assert_true(memory[at] == 0xee && memory[100 + count + at] == 0xee);
    load.n_bytes = count + 1;
    assert_int_equal(stk_view_load(view, &load, 1, &err), -EINVAL);
    assert_non_null(strstr(err.message, "needs 200 bytes"));
    load.name = "other";
    assert_int_equal(stk_view_load(view, &load, 1, &err), -ENOENT);
    assert_non_null(strstr(err.message, "'other'"));
    load = (stk_load){.name = "t", .dst = NULL, .n_bytes = N_BYTES};
    assert_int_equal(stk_view_load(view, &load, 1, &err), -EINVAL);
    load = (stk_load){.name = "t", .dst = memory, .n_bytes = count, .start = &start};
    assert_int_equal(stk_view_load(view, &load, 1, &err), -EINVAL);
    stk_view_close(view);
    close_store(&store);
}

/* Of a directory that is opened to be read nothing can be saved or removed. */
static void
test_read_only(void **unused)
{
    struct store store;
    stk_ckpt *reader;
    stk_error err;
    (void)unused;

    open_store(&store, "auto");
    assert_int_equal(stk_ckpt_open(&reader, store.engine, store.path,
                                   &(stk_ckpt_opts){STK_CKPT_OPTS_INIT, .read_only = 1}, NULL),
                     0);
    assert_int_equal(
        stk_ckpt_save(reader, &(stk_save){STK_SAVE_INIT, .tensors = &tensor, .n_tensors = 1}, &err),
        -EROFS);
    assert_int_equal(stk_ckpt_prune(reader, 1, 0, NULL, &err), -EROFS);
    assert_int_equal(stk_ckpt_fence(reader, &err), 0);
    stk_ckpt_close(reader);
    close_store(&store);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_removed_root), cmocka_unit_test(test_failure_leaves_nothing),
        cmocka_unit_test(test_levels),       cmocka_unit_test(test_loads),
        cmocka_unit_test(test_read_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
