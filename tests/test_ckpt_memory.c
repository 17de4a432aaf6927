/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpointer takes: 1 KB per tensor beside its slots, nothing more however many
 * saves there were, and no descriptor. STOKER_TEST_LONG makes 10,000 of them. */
#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ckpt_util.h"

/* Removal of an old checkpoint may still be under way when a save is durable. A leak of 8
 * bytes a save is more than this after 10,000 of them. */
#define SLACK_BYTES (UINT64_C(64) << 10)

static uint64_t
allocated_bytes(void)
{
    struct mallinfo2 now = mallinfo2(); /* all zero under a sanitizer, which looks itself */

    return now.uordblks + now.hblkhd;
}

struct fixture {
    char path[256];
    char dir[300];
    stk_engine *engine;
    stk_ckpt *ckpt;
};

static void
open_fixture(struct fixture *f, const char *method)
{
    stk_error err;

    scratch_make(f->path);
    (void)snprintf(f->dir, sizeof(f->dir), "%s/run", f->path);
    assert_int_equal(stk_engine_open(&f->engine,
                                     &(stk_engine_opts){STK_ENGINE_OPTS_INIT, .io_method = method},
                                     &err),
                     0);
    assert_int_equal(stk_ckpt_open(&f->ckpt, f->engine, f->dir,
                                   &(stk_ckpt_opts){STK_CKPT_OPTS_INIT, .slot_bytes = 1 << 18,
                                                    .chunk_bytes = 1 << 16},
                                   &err),
                     0);
}

static void
close_fixture(struct fixture *f)
{
    stk_ckpt_close(f->ckpt);
    stk_engine_close(f->engine);
    scratch_remove(f->path);
}

static void
save(struct fixture *f, uint64_t step, const stk_tensor *tensors, uint32_t n)
{
    stk_error err;
    int rc = stk_ckpt_save(
        f->ckpt, &(stk_save){STK_SAVE_INIT, .step = step, .tensors = tensors, .n_tensors = n},
        &err);

    if (rc < 0)
        print_error("save %llu: %s\n", (unsigned long long)step, err.message);
    assert_int_equal(rc, 0);
}

static void
test_many_saves(void **state)
{
    const uint64_t n_saves = getenv("STOKER_TEST_LONG") /* NOLINT(concurrency-mt-unsafe) */
                                 ? 10000
                                 : 100;
    static struct state tensors;

    (void)state;
    for (const char *const *method = test_methods(); *method; method++) {
        struct fixture f;
        uint64_t before_bytes = 0;
        uint32_t before_descriptors = 0;

        open_fixture(&f, *method);
        state_make(&tensors, 20, 100000, 1, STK_TENSOR_STABLE);
        for (uint64_t step = 0; step < n_saves; step++) {
            save(&f, step, tensors.tensors, tensors.n);
            assert_int_equal(stk_ckpt_wait(f.ckpt, STK_DURABLE_LOCAL, STK_FOREVER, NULL), 0);
            if (step != n_saves / 10)
                continue;
            before_bytes = allocated_bytes();
            before_descriptors = open_descriptors();
        }
        uint64_t after_bytes = allocated_bytes();
        uint32_t after_descriptors = open_descriptors();
        print_message("%s: %llu saves, %llu bytes allocated, then %llu\n", *method,
                      (unsigned long long)n_saves, (unsigned long long)before_bytes,
                      (unsigned long long)after_bytes);
        assert_true(after_bytes <= before_bytes + SLACK_BYTES);
        /* A file or two of the save or of the removal that is on its way. */
        assert_in_range(after_descriptors, 0, before_descriptors + 2);
        state_free(&tensors);
        close_fixture(&f);
    }
}

#define MANY_TENSORS 20000u

static void
test_many_tensors(void **state)
{
    static const uint64_t shape[2] = {4, 4};
    static char values[64];
    static char names[MANY_TENSORS][48];
    stk_tensor *tensors = calloc(MANY_TENSORS, sizeof(*tensors));
    struct fixture f;
    int rc;

    (void)state;
    assert_non_null(tensors);
    for (uint32_t at = 0; at < MANY_TENSORS; at++) {
        (void)snprintf(names[at], sizeof(names[at]), "model.layers.%u.attention.weight", at);
        tensors[at] = (stk_tensor){.name = names[at],
                                   .dtype = "F32",
                                   .shape = shape,
                                   .dims = 2,
                                   .data = values,
                                   .flags = STK_TENSOR_STABLE};
    }
    open_fixture(&f, test_methods()[0]);
    uint64_t before_bytes = allocated_bytes();
    uint64_t most_bytes = before_bytes;
    save(&f, 1, tensors, MANY_TENSORS);
    do {
        uint64_t now_bytes = allocated_bytes();

        most_bytes = now_bytes > most_bytes ? now_bytes : most_bytes;
        rc = stk_ckpt_wait(f.ckpt, STK_DURABLE_LOCAL, 200000, NULL);
    } while (rc == -ETIMEDOUT);
    assert_int_equal(rc, 0);
    print_message("%llu bytes per tensor\n",
                  (unsigned long long)((most_bytes - before_bytes) / MANY_TENSORS));
    assert_true(most_bytes - before_bytes <= UINT64_C(1024) * MANY_TENSORS + SLACK_BYTES);
    close_fixture(&f);
    free(tensors);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_saves),
        cmocka_unit_test(test_many_tensors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
