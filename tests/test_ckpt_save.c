/* SPDX-License-Identifier: Apache-2.0 */
/* What is saved is what is loaded: any tensors, roots, slots, methods; and the promises
 * of save, fence and wait. */
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

struct fixture {
    char path[256];
    char dir[300];
    char roots[1400];
    stk_engine *engine;
    stk_ckpt *ckpt;
};

static void
open_fixture(struct fixture *f, const char *method, uint32_t n_roots, const stk_ckpt_opts *more)
{
    stk_ckpt_opts opts = more ? *more : (stk_ckpt_opts){STK_CKPT_OPTS_INIT};
    stk_error err;
    size_t used = 0;

    scratch_make(f->path);
    (void)snprintf(f->dir, sizeof(f->dir), "%s/run", f->path);
    f->roots[0] = '\0';
    for (uint32_t at = 0; at < n_roots; at++)
        used +=
            (size_t)snprintf(f->roots + used, sizeof(f->roots) - used, " %s/root%u", f->path, at);
    opts.roots = f->roots;
    assert_int_equal(stk_engine_open(&f->engine,
                                     &(stk_engine_opts){STK_ENGINE_OPTS_INIT, .io_method = method},
                                     &err),
                     0);
    int rc = stk_ckpt_open(&f->ckpt, f->engine, f->dir, &opts, &err);
    if (rc < 0)
        print_error("open: %s %s\n", err.path, err.message);
    assert_int_equal(rc, 0);
}

static void
close_fixture(struct fixture *f)
{
    stk_ckpt_close(f->ckpt);
    stk_engine_close(f->engine);
    scratch_remove(f->path);
}

static void
save_state(stk_ckpt *ckpt, const struct state *state, uint64_t step)
{
    stk_error err;
    int rc = stk_ckpt_save(
        ckpt,
        &(stk_save){STK_SAVE_INIT, .step = step, .tensors = state->tensors, .n_tensors = state->n},
        &err);

    if (rc < 0)
        print_error("save: %s %s\n", err.path, err.message);
    assert_int_equal(rc, 0);
}

static void
wait_durable(stk_ckpt *ckpt)
{
    stk_error err;
    int rc = stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err);

    if (rc < 0)
        print_error("wait: %s %s\n", err.path, err.message);
    assert_int_equal(rc, 0);
}

static void
check_step(stk_ckpt *ckpt, uint64_t step, const struct state *state)
{
    stk_view *view;
    stk_error err;
    int rc = stk_view_open(&view, ckpt, step, &err);

    if (rc < 0)
        print_error("view: %s %s\n", err.path, err.message);
    assert_int_equal(rc, 0);
    assert_true(state_is(view, state));
    assert_int_equal(stk_view_verify(view, NULL, NULL, &err), 0);
    stk_view_close(view);
}

/* Every combination of method, roots, flags and slot sizes gives back what was saved. */
static void
test_round_trip(void **unused)
{
    static const struct {
        uint64_t slot_bytes;
        uint32_t chunk_bytes;
        uint32_t slots;
        uint64_t state_bytes;
    } shapes[] = {
        {65536, 4096, 2, 900000},
        {65536, 65536, 3, 3000},
        {1 << 20, 1 << 18, 4, 9000000},
        {0, 0, 0, 20000000},
    };
    (void)unused;

    for (const char *const *method = test_methods(); *method; method++) {
        for (uint32_t at = 0; at < sizeof(shapes) / sizeof(shapes[0]); at++) {
            for (uint32_t n_roots = 0; n_roots <= 3; n_roots++) {
                struct fixture f;
                struct state state;
                stk_ckpt_opts opts = {STK_CKPT_OPTS_INIT, .slot_bytes = shapes[at].slot_bytes,
                                      .chunk_bytes = shapes[at].chunk_bytes,
                                      .slots = shapes[at].slots, .buffered = n_roots == 2};

                open_fixture(&f, *method, n_roots, &opts);
                state_make(&state, 60, shapes[at].state_bytes, at + n_roots,
                           n_roots % 2 ? STK_TENSOR_STABLE : 0);
                save_state(f.ckpt, &state, 7 + at);
                wait_durable(f.ckpt);
                check_step(f.ckpt, 7 + at, &state);
                check_step(f.ckpt, STK_LATEST, &state);
                state_free(&state);
                close_fixture(&f);
            }
        }
    }
}

/* Whatever is not stable may be changed as soon as save returns; what is stable after
 * fence. */
static void
test_changes_after_fence(void **unused)
{
    (void)unused;
    for (const char *const *method = test_methods(); *method; method++) {
        struct fixture f;
        struct state state;
        struct state as_saved;
        stk_ckpt_opts opts = {STK_CKPT_OPTS_INIT, .slot_bytes = 65536, .slots = 4,
                              .keep = STK_NONE};

        open_fixture(&f, *method, 2, &opts);
        for (uint64_t step = 1; step <= 12; step++) {
            uint32_t flags = step % 2 ? STK_TENSOR_STABLE : 0;

            state_make(&state, 40, 3000000, step, flags);
            state_make(&as_saved, 40, 3000000, step, flags);
            save_state(f.ckpt, &state, step);
            if (flags)
                assert_int_equal(stk_ckpt_fence(f.ckpt, NULL), 0);
            state_step(&state, step);
            wait_durable(f.ckpt);
            check_step(f.ckpt, step, &as_saved);
            state_free(&state);
            state_free(&as_saved);
        }
        close_fixture(&f);
    }
}

/* A plan made for one save must never be that of another: the same names with other
 * values, other shapes, other tensors. */
static void
test_nothing_is_kept(void **unused)
{
    struct fixture f;
    struct state states[4];
    (void)unused;

    open_fixture(&f, "auto", 1, &(stk_ckpt_opts){STK_CKPT_OPTS_INIT, .keep = STK_NONE});
    for (uint32_t at = 0; at < 4; at++) {
        state_make(&states[at], 30 + 5 * (at / 2), 500000, at % 2, STK_TENSOR_STABLE);
        if (at == 3)
            state_step(&states[at], 99);
        save_state(f.ckpt, &states[at], at);
    }
    wait_durable(f.ckpt);
    for (uint32_t at = 0; at < 4; at++) {
        check_step(f.ckpt, at, &states[at]);
        state_free(&states[at]);
    }
    close_fixture(&f);
}

static void
expect_refused(stk_ckpt *ckpt, const stk_tensor *tensors, uint32_t n, const char *said)
{
    stk_error err = {0};
    int rc = stk_ckpt_save(
        ckpt, &(stk_save){STK_SAVE_INIT, .step = 1, .tensors = tensors, .n_tensors = n}, &err);

    assert_int_equal(rc, -EINVAL);
    assert_non_null(strstr(err.message, said));
}

static void
test_refused(void **unused)
{
    struct fixture f;
    const uint64_t three = 3;
    const float data[4] = {0};
    const stk_tensor good = {.name = "a", .dtype = "F32", .shape = &three, .dims = 1, .data = data};
    stk_tensor tensors[2] = {good, good};
    (void)unused;

    open_fixture(&f, "auto", 0, NULL);
    expect_refused(f.ckpt, tensors, 2, "two tensors are named 'a'");
    tensors[0].dtype = "F31";
    expect_refused(f.ckpt, tensors, 1, "'F31' is none of safetensors");
    tensors[0] = good;
    tensors[0].dtype = "F4";
    expect_refused(f.ckpt, tensors, 1, "do not fill");
    tensors[0] = good;
    tensors[0].name = "\xff";
    expect_refused(f.ckpt, tensors, 1, "not UTF-8");
    tensors[0].name = "__metadata__";
    expect_refused(f.ckpt, tensors, 1, "__metadata__");
    tensors[0].name = "stoker.blob.x";
    expect_refused(f.ckpt, tensors, 1, "kept for blobs");
    tensors[0] = good;
    tensors[0].n_bytes = 13;
    expect_refused(f.ckpt, tensors, 1, "make 12");
    tensors[0] = good;
    tensors[0].data = NULL;
    expect_refused(f.ckpt, tensors, 1, "no data");
    /* Nothing of it was begun, and the next save works. */
    stk_ckpt_status status = {STK_CKPT_STATUS_INIT};
    assert_int_equal(stk_ckpt_get_status(f.ckpt, &status), 0);
    assert_int_equal(status.saves, 0);
    assert_int_equal(
        stk_ckpt_save(f.ckpt, &(stk_save){STK_SAVE_INIT, .tensors = &good, .n_tensors = 1}, NULL),
        0);
    wait_durable(f.ckpt);
    close_fixture(&f);
}

/* The second save of a step fails, says so once, and the first stays. */
static void
test_step_twice(void **unused)
{
    struct fixture f;
    struct state first;
    struct state second;
    stk_error err;
    (void)unused;

    open_fixture(&f, "auto", 2, NULL);
    state_make(&first, 20, 100000, 1, 0);
    state_make(&second, 20, 100000, 2, 0);
    save_state(f.ckpt, &first, 5);
    wait_durable(f.ckpt);
    save_state(f.ckpt, &second, 5);
    assert_int_equal(stk_ckpt_wait(f.ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err), -EEXIST);
    assert_non_null(strstr(err.message, "step 5"));
    assert_non_null(strstr(err.message, "commit"));
    assert_int_equal(stk_ckpt_wait(f.ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err), 0);
    check_step(f.ckpt, STK_LATEST, &first);
    save_state(f.ckpt, &second, 6);
    wait_durable(f.ckpt);
    check_step(f.ckpt, STK_LATEST, &second);
    state_free(&first);
    state_free(&second);
    close_fixture(&f);
}

static void
test_blobs_and_metadata(void **unused)
{
    struct fixture f;
    char generator[5000];
    char got[5000];
    const stk_blob blobs[] = {{"rng", generator, sizeof(generator)}, {"empty", NULL, 0}};
    const stk_pair pairs[] = {{"framework", "none\n\"quoted\""}, {"\xc3\xa4", ""}};
    stk_view *view;
    stk_view_info info = {STK_VIEW_INFO_INIT};
    stk_pair pair;
    uint64_t n_bytes;
    stk_error err;
    (void)unused;

    memset(generator, 0x5a, sizeof(generator));
    open_fixture(&f, "auto", 0, NULL);
    assert_int_equal(stk_ckpt_save(f.ckpt,
                                   &(stk_save){STK_SAVE_INIT, .step = 3, .blobs = blobs,
                                               .n_blobs = 2, .metadata = pairs, .n_metadata = 2},
                                   NULL),
                     0);
    memset(generator, 0, sizeof(generator)); /* copied already */
    wait_durable(f.ckpt);
    assert_int_equal(stk_view_open(&view, f.ckpt, STK_LATEST, &err), 0);
    assert_int_equal(stk_view_get_info(view, &info), 0);
    assert_int_equal(info.tensors, 0);
    assert_int_equal(info.blobs, 2);
    assert_int_equal(info.metadata, 2);
    assert_int_equal(stk_view_load_blob(view, "rng", got, sizeof(got), &n_bytes, &err), 0);
    assert_int_equal(n_bytes, sizeof(got));
    for (size_t at = 0; at < sizeof(got); at++)
        assert_int_equal(got[at], 0x5a);
    assert_int_equal(stk_view_load_blob(view, "empty", NULL, 0, &n_bytes, &err), 0);
    assert_int_equal(n_bytes, 0);
    assert_int_equal(stk_view_load_blob(view, "rng", got, 10, &n_bytes, &err), -ENOSPC);
    assert_int_equal(stk_view_load_blob(view, "none", got, 10, &n_bytes, &err), -ENOENT);
    assert_int_equal(stk_view_metadata_at(view, 0, &pair), 0);
    assert_string_equal(pair.value, pairs[0].value);
    assert_int_equal(stk_view_metadata_at(view, 1, &pair), 0);
    assert_string_equal(pair.key, pairs[1].key);
    assert_int_equal(stk_view_metadata_at(view, 2, &pair), -ERANGE);
    stk_view_close(view);
    close_fixture(&f);
}

/* Boxes of a tensor, compared with an element-wise copy. */
static void
test_boxes(void **unused)
{
    static uint16_t values[40][30][20];
    const uint64_t shape[3] = {40, 30, 20};
    const stk_tensor tensor = {
        .name = "t", .dtype = "U16", .shape = shape, .dims = 3, .data = values};
    struct fixture f;
    stk_view *view;
    stk_error err;
    (void)unused;

    for (uint32_t at = 0; at < 40 * 30 * 20; at++)
        (&values[0][0][0])[at] = (uint16_t)at;
    open_fixture(&f, "auto", 3,
                 &(stk_ckpt_opts){STK_CKPT_OPTS_INIT, .slot_bytes = 65536, .chunk_bytes = 4096});
    assert_int_equal(
        stk_ckpt_save(f.ckpt, &(stk_save){STK_SAVE_INIT, .tensors = &tensor, .n_tensors = 1}, NULL),
        0);
    wait_durable(f.ckpt);
    assert_int_equal(stk_view_open(&view, f.ckpt, STK_LATEST, &err), 0);
    for (uint32_t seed = 0; seed < 200; seed++) {
        static uint16_t box[40 * 30 * 20];
        uint64_t start[3];
        uint64_t count[3];
        uint64_t n = 1;
        uint32_t random = seed * 2654435761u;

        for (uint32_t dim = 0; dim < 3; dim++) {
            random = random * 1664525u + 1013904223u;
            start[dim] = random % 3 == 0 ? 0 : (random >> 8) % (shape[dim] + 1);
            count[dim] =
                random % 3 == 0 ? shape[dim] : (random >> 16) % (shape[dim] - start[dim] + 1);
            n *= count[dim];
        }
        stk_load load = {.name = "t", .dst = box, .n_bytes = 2 * n, .start = start, .count = count};
        assert_int_equal(stk_view_load(view, &load, 1, &err), 0);
        const uint16_t *got = box;
        for (uint64_t i = 0; i < count[0]; i++)
            for (uint64_t j = 0; j < count[1]; j++)
                for (uint64_t k = 0; k < count[2]; k++)
                    assert_int_equal(*got++, values[start[0] + i][start[1] + j][start[2] + k]);
        start[2] = 20;
        count[2] = 1;
        assert_int_equal(stk_view_load(view, &load, 1, &err), -ERANGE);
    }
    stk_view_close(view);
    close_fixture(&f);
}

/* Thousands of saves: no descriptor, no memory, no file more than at the beginning. */
static void
test_no_growth(void **unused)
{
    struct fixture f;
    struct state state;
    uint32_t n_saves = getenv("STOKER_TEST_SAVES")
                           ? (uint32_t)strtoul(getenv("STOKER_TEST_SAVES"), NULL, 10)
                           : 300;
    stk_ckpt_info infos[8];
    uint32_t total;
    (void)unused;

    open_fixture(&f, "auto", 2, &(stk_ckpt_opts){STK_CKPT_OPTS_INIT, .slot_bytes = 65536});
    stk_ckpt_close(f.ckpt);
    uint32_t n_descriptors = open_descriptors();
    assert_int_equal(
        stk_ckpt_open(&f.ckpt, f.engine, f.dir,
                      &(stk_ckpt_opts){STK_CKPT_OPTS_INIT, .roots = f.roots, .slot_bytes = 65536},
                      NULL),
        0);
    state_make(&state, 10, 20000, 1, STK_TENSOR_STABLE);
    for (uint64_t step = 0; step < n_saves; step++) {
        save_state(f.ckpt, &state, step);
        assert_int_equal(stk_ckpt_fence(f.ckpt, NULL), 0);
    }
    wait_durable(f.ckpt);
    stk_ckpt_status status = {STK_CKPT_STATUS_INIT};
    assert_int_equal(stk_ckpt_get_status(f.ckpt, &status), 0);
    assert_int_equal(status.durable, n_saves);
    assert_int_equal(status.last_durable, n_saves - 1);
    stk_ckpt_close(f.ckpt); /* the last removal is over */
    assert_int_equal(open_descriptors(), n_descriptors);
    assert_int_equal(stk_ckpt_open(&f.ckpt, f.engine, f.dir,
                                   &(stk_ckpt_opts){STK_CKPT_OPTS_INIT, .read_only = 1}, NULL),
                     0);
    assert_int_equal(stk_ckpt_list(f.ckpt, infos, 8, &total, NULL), 2);
    assert_int_equal(total, 2);
    assert_int_equal(infos[0].step, n_saves - 1);
    assert_int_equal(infos[0].state, 0);
    assert_int_equal(infos[1].state, 0);
    state_free(&state);
    close_fixture(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),      cmocka_unit_test(test_changes_after_fence),
        cmocka_unit_test(test_nothing_is_kept), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_step_twice),      cmocka_unit_test(test_blobs_and_metadata),
        cmocka_unit_test(test_boxes),           cmocka_unit_test(test_no_growth),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
