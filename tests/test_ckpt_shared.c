/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies to a shared directory: what is durable here comes to be durable there, by the bytes, and
 * is found when nothing is left here; a copy that fails is told and changes nothing here.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
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

struct place {
    char top[256];
    char dir[300];
    char shared[300];
    char roots[700];
    stk_ckpt_opts opts;
    stk_engine *engine;
    stk_ckpt *ckpt;
};

static void
open_ckpt(struct place *place)
{
    stk_error err;

    if (stk_ckpt_open(&place->ckpt, place->engine, place->dir, &place->opts, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
}

static void
place_make(struct place *place, const char *method)
{
    *place = (struct place){.opts = {STK_CKPT_OPTS_INIT, .slot_bytes = 65536, .slots = 4}};
    scratch_make(place->top);
    (void)snprintf(place->dir, sizeof(place->dir), "%s/here", place->top);
    (void)snprintf(place->shared, sizeof(place->shared), "%s/there", place->top);
    (void)snprintf(place->roots, sizeof(place->roots), "%s/a %s/b", place->top, place->top);
    place->opts.shared = place->shared;
    assert_int_equal(stk_engine_open(&place->engine,
                                     &(stk_engine_opts){STK_ENGINE_OPTS_INIT, .io_method = method},
                                     NULL),
                     0);
}

static void
place_remove(struct place *place)
{
    stk_ckpt_close(place->ckpt);
    stk_engine_close(place->engine);
    scratch_remove(place->top);
}

static int
save(struct place *place, const struct state *state, uint64_t step, uint32_t flags)
{
    stk_error err;
    int rc = stk_ckpt_save(place->ckpt,
                           &(stk_save){STK_SAVE_INIT, .step = step, .tensors = state->tensors,
                                       .n_tensors = state->n, .flags = flags},
                           &err);

    if (rc < 0)
        print_error("step %u: %s\n", (unsigned)step, err.message);
    return rc < 0 ? rc : stk_ckpt_fence(place->ckpt, &err);
}

/* Whether a directory by itself has a step, and how many in all. */
static void
expect_in(const struct place *place, const char *dir, const struct state *state, uint64_t step,
          uint32_t n_steps)
{
    stk_view *view;
    stk_ckpt *ckpt;
    stk_error err;
    uint32_t n;

    assert_int_equal(stk_ckpt_open(&ckpt, place->engine, dir,
                                   &(stk_ckpt_opts){STK_CKPT_OPTS_INIT, .read_only = 1}, &err),
                     0);
    if (stk_view_open(&view, ckpt, step, &err) != 0)
        fail_msg("%s: step %u: %s", dir, (unsigned)step, err.message);
    assert_true(state_is(view, state));
    assert_int_equal(stk_view_verify(view, NULL, NULL, &err), 0);
    stk_view_close(view);
    assert_true(stk_ckpt_list(ckpt, NULL, 0, &n, &err) >= 0);
    assert_int_equal(n, n_steps);
    stk_ckpt_close(ckpt);
}

static stk_ckpt_status
status_of(const struct place *place)
{
    stk_ckpt_status status = {STK_CKPT_STATUS_INIT};

    assert_int_equal(stk_ckpt_get_status(place->ckpt, &status), 0);
    return status;
}

static void
for_each_method(void (*test)(struct place *place))
{
    for (const char *const *method = test_methods(); *method; method++)
        for (int with_roots = 0; with_roots < 2; with_roots++) {
            struct place place;

            place_make(&place, *method);
            if (with_roots)
                place.opts.roots = place.roots;
            test(&place);
            place_remove(&place);
        }
}

/* ---- what is copied ---------------------------------------------------------------- */

static void
copy_each(struct place *place)
{
    struct state state;
    stk_error err;

    open_ckpt(place);
    state_make(&state, 20, 900000, 3, STK_TENSOR_STABLE);
    for (uint64_t step = 1; step <= 4; step++) {
        state_step(&state, step);
        assert_int_equal(save(place, &state, step, 0), 0);
        if (stk_ckpt_wait(place->ckpt, STK_DURABLE_SHARED, STK_FOREVER, &err) < 0)
            fail_msg("%s", err.message);
    }
    assert_int_equal(status_of(place).shared, 4);
    assert_int_equal(status_of(place).last_shared, 4);
    expect_in(place, place->dir, &state, 4, 2);
    expect_in(place, place->shared, &state, 4, 2);
    /* Nothing is left here: it goes on from there. */
    stk_ckpt_close(place->ckpt);
    scratch_remove(place->dir);
    open_ckpt(place);
    uint64_t newest;
    assert_int_equal(stk_ckpt_latest(place->ckpt, &newest, &err), 0);
    assert_int_equal(newest, 4);
    stk_view *view;
    assert_int_equal(stk_view_open(&view, place->ckpt, STK_LATEST, &err), 0);
    assert_true(state_is(view, &state));
    stk_view_close(view);
    assert_int_equal(save(place, &state, 5, 0), 0);
    assert_int_equal(stk_ckpt_wait(place->ckpt, STK_DURABLE_SHARED, STK_FOREVER, &err), 0);
    stk_ckpt_close(place->ckpt); /* old ones are removed */
    open_ckpt(place);
    stk_ckpt_info infos[8];
    uint32_t n;
    assert_int_equal(stk_ckpt_list(place->ckpt, infos, 8, &n, &err), 2);
    assert_int_equal(infos[0].step, 5);
    assert_int_equal(infos[1].step, 4); /* of there */
    assert_int_equal(infos[1].state, 0);
    assert_int_equal(stk_view_open(&view, place->ckpt, 4, &err), 0);
    stk_view_close(view);
    assert_int_equal(stk_view_open(&view, place->ckpt, 3, &err), -ENOENT);
    state_free(&state);
}

static void
test_what_is_durable_is_copied(void **unused)
{
    (void)unused;
    for_each_method(copy_each);
}

/* ---- what is damaged --------------------------------------------------------------- */

/* Flips a bit of a byte of each file that a pattern fits. */
static void
damage(const char *pattern, long at)
{
    glob_t found;

    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    for (size_t idx = 0; idx < found.gl_pathc; idx++) {
        FILE *file = fopen(found.gl_pathv[idx], "r+e");

        assert_non_null(file);
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        int byte = fgetc(file);
        assert_true(byte != EOF);
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
        assert_int_equal(fclose(file), 0);
    }
    globfree(&found);
}

static void
damage_own(struct place *place)
{
    stk_view_info info = {STK_VIEW_INFO_INIT};
    struct state state;
    char pattern[400];
    stk_view *view;
    stk_error err;

    open_ckpt(place);
    state_make(&state, 20, 900000, 3, STK_TENSOR_STABLE);
    state_step(&state, 1);
    assert_int_equal(save(place, &state, 1, 0), 0);
    assert_int_equal(stk_ckpt_wait(place->ckpt, STK_DURABLE_SHARED, STK_FOREVER, &err), 0);
    if (place->opts.roots)
        (void)snprintf(pattern, sizeof(pattern), "%s/[ab]/step-*.*/*", place->top);
    else
        (void)snprintf(pattern, sizeof(pattern), "%s/step-*.*/*", place->dir);
    damage(pattern, 200000);
    assert_int_equal(stk_view_open(&view, place->ckpt, 1, &err), 0);
    assert_int_equal(stk_view_verify(view, NULL, NULL, &err), STK_E_CORRUPT);
    if (!state_is(view, &state))
        fail_msg("it is not mended");
    assert_int_equal(stk_view_get_info(view, &info), 0);
    assert_true(info.mended_bytes > 0);
    stk_view_close(view);
    /* There, too, at the same place: nobody has it. */
    (void)snprintf(pattern, sizeof(pattern), "%s/step-*.*/*", place->shared);
    damage(pattern, 200000);
    assert_int_equal(stk_view_open(&view, place->ckpt, 1, &err), 0);
    char *bytes = malloc(info.bytes);
    assert_non_null(bytes);
    assert_int_equal(stk_view_read(view, 0, bytes, info.bytes, &err), STK_E_CORRUPT);
    if (!strstr(err.message, "elsewhere"))
        fail_msg("%s", err.message);
    free(bytes);
    stk_view_close(view);
    state_free(&state);
}

static void
test_what_is_damaged_comes_from_there(void **unused)
{
    (void)unused;
    for_each_method(damage_own);
}

/* The one file that a pattern fits. */
static void
find_one(const char *pattern, char path[600])
{
    glob_t found;

    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    (void)snprintf(path, 600, "%s", found.gl_pathv[0]);
    globfree(&found);
}

/* Each directory lacks, or has damaged, what the other one has, part by part and chunk by chunk:
 * removed before it is opened, cut while it is open. */
static void
damage_both(struct place *place)
{
    struct state state;
    char pattern[400];
    char path[600];
    stk_view *view;
    stk_error err;

    if (!place->opts.roots)
        return;
    open_ckpt(place);
    state_make(&state, 20, 900000, 3, STK_TENSOR_STABLE);
    state_step(&state, 1);
    assert_int_equal(save(place, &state, 1, 0), 0);
    assert_int_equal(stk_ckpt_wait(place->ckpt, STK_DURABLE_SHARED, STK_FOREVER, &err), 0);
    (void)snprintf(pattern, sizeof(pattern), "%s/step-*.*/part-0-1.bin", place->shared);
    damage(pattern, 70000);
    assert_int_equal(stk_view_open(&view, place->ckpt, 1, &err), 0);
    (void)snprintf(pattern, sizeof(pattern), "%s/b/step-*.*/*", place->top);
    find_one(pattern, path);
    assert_int_equal(truncate(path, 180000), 0);
    assert_true(state_is(view, &state));
    stk_view_close(view);
    assert_int_equal(unlink(path), 0); /* now it is the shared one that is opened */
    (void)snprintf(pattern, sizeof(pattern), "%s/step-*.*/part-0-1.bin", place->shared);
    damage(pattern, 70000); /* which is right again */
    (void)snprintf(pattern, sizeof(pattern), "%s/step-*.*/part-0-0.bin", place->shared);
    damage(pattern, 140000);
    assert_int_equal(stk_view_open(&view, place->ckpt, 1, &err), 0);
    assert_true(state_is(view, &state));
    stk_view_close(view);
    find_one(pattern, path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(stk_view_open(&view, place->ckpt, 1, &err), STK_E_CORRUPT);
    state_free(&state);
}

static void
test_each_has_what_the_other_lacks(void **unused)
{
    (void)unused;
    for_each_method(damage_both);
}

/* ---- which are copied -------------------------------------------------------------- */

static void
copy_some(struct place *place)
{
    struct state state;
    stk_error err;

    place->opts.shared_every = 3;
    place->opts.shared_keep = STK_NONE;
    open_ckpt(place);
    state_make(&state, 5, 30000, 4, STK_TENSOR_STABLE);
    for (uint64_t step = 1; step <= 10; step++) {
        state_step(&state, step);
        assert_int_equal(save(place, &state, step, step == 10 ? STK_SAVE_SHARED : 0), 0);
        assert_int_equal(stk_ckpt_wait(place->ckpt, STK_DURABLE_SHARED, STK_FOREVER, &err), 0);
        /* 3, 6, 9, and 10 because it was asked for. */
        assert_int_equal(status_of(place).shared, step / 3 + (step == 10));
    }
    expect_in(place, place->shared, &state, 10, 4);
    stk_ckpt_close(place->ckpt);
    place->opts.shared_every = STK_NONE;
    open_ckpt(place);
    for (uint64_t step = 11; step <= 16; step++) /* faster than copies: nothing is lost */
        assert_int_equal(save(place, &state, step, step % 2 ? STK_SAVE_SHARED : 0), 0);
    assert_int_equal(stk_ckpt_wait(place->ckpt, STK_DURABLE_SHARED, STK_FOREVER, &err), 0);
    assert_int_equal(status_of(place).shared, 3);
    assert_int_equal(status_of(place).last_shared, 15);
    expect_in(place, place->shared, &state, 15, 7);
    state_free(&state);
}

static void
test_which_are_copied(void **unused)
{
    (void)unused;
    for_each_method(copy_some);
}

/* ---- copies that fail -------------------------------------------------------------- */

/* The step is there already. */
static void
fail_copy(struct place *place)
{
    char path[400];
    struct state state;
    stk_error err;

    open_ckpt(place);
    state_make(&state, 5, 200000, 5, STK_TENSOR_STABLE);
    (void)snprintf(path, sizeof(path), "%s/step-2", place->shared);
    assert_int_equal(mkdir(path, 0777), 0);
    (void)snprintf(path, sizeof(path), "%s/step-2/x", place->shared);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    for (uint64_t step = 1; step <= 3; step++) {
        state_step(&state, step);
        assert_int_equal(save(place, &state, step, 0), 0);
        int rc = stk_ckpt_wait(place->ckpt, STK_DURABLE_SHARED, STK_FOREVER, &err);
        assert_int_equal(rc, step == 2 ? -EEXIST : 0);
        if (step == 2)
            assert_non_null(strstr(err.message, "shared copy of step 2"));
    }
    assert_int_equal(status_of(place).shared_failed, 1);
    expect_in(place, place->dir, &state, 3, 2);
    expect_in(place, place->shared, &state, 3, 3); /* 1, 3 and what was put there */
    state_free(&state);
}

static void
test_a_copy_that_fails(void **unused)
{
    (void)unused;
    for_each_method(fail_copy);
}

static void
test_what_is_refused(void **unused)
{
    struct place place;
    struct state state;
    stk_error err;
    (void)unused;

    place_make(&place, test_methods()[0]);
    state_make(&state, 2, 1000, 5, 0);
    place.opts.shared = "/no/such/place";
    assert_int_equal(stk_ckpt_open(&place.ckpt, place.engine, place.dir, &place.opts, &err),
                     -ENOENT);
    place.opts.shared = NULL;
    open_ckpt(&place);
    assert_int_equal(stk_ckpt_wait(place.ckpt, STK_DURABLE_SHARED, STK_FOREVER, &err), -ENOTSUP);
    assert_int_equal(stk_ckpt_wait(place.ckpt, STK_DURABLE_PARTNER, STK_FOREVER, &err), -ENOTSUP);
    assert_int_equal(save(&place, &state, 1, STK_SAVE_SHARED), -EINVAL);
    assert_int_equal(save(&place, &state, 1, 2), -EINVAL);
    state_free(&state);
    place_remove(&place);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_durable_is_copied),
        cmocka_unit_test(test_what_is_damaged_comes_from_there),
        cmocka_unit_test(test_each_has_what_the_other_lacks),
        cmocka_unit_test(test_which_are_copied),
        cmocka_unit_test(test_a_copy_that_fails),
        cmocka_unit_test(test_what_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
