/* SPDX-License-Identifier: Apache-2.0 */
/* Positions: seeking anywhere at any time, saving and restoring, on another engine, in
 * another process and on another world; and what is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader_util.h"

#define N 120
#define EPOCHS 4

static struct set small; /* records */
static struct set files;

static int
make_sets(void **state)
{
    (void)watchdog(state);
    set_make(&small, SET_RECORDS, N);
    set_make(&files, SET_SIZES, N);
    return 0;
}

static int
remove_sets(void **state)
{
    (void)state;
    set_remove(&small);
    set_remove(&files);
    return 0;
}

static const stk_order_opts orders[] = {
    {STK_ORDER_OPTS_INIT, .seed = 5},
    {STK_ORDER_OPTS_INIT, .seed = 5, .world = 3, .rank = 1},
    {STK_ORDER_OPTS_INIT, .sampler = STK_SAMPLER_GENERATOR, .seed = 5},
    {STK_ORDER_OPTS_INIT, .sampler = STK_SAMPLER_DATALOADER, .num_samples = 200, .replacement = 1},
    {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_KEYED, .seed = 5},
    {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL, .world = 2, .rank = 1},
};

/* ---- seek -------------------------------------------------------------------------- */

static uint64_t
batches_of(const struct set *set, const stk_loader_opts *opts)
{
    uint64_t n;

    free(expected_ids(set, opts->order, 0, &n));
    return opts->drop_last ? n / opts->batch_size : (n + opts->batch_size - 1) / opts->batch_size;
}

/* Jumps about, reading some batches between, then reads to the end. */
static void
jump(stk_loader *loader, const struct course *whole, uint32_t jumps)
{
    struct course part = *whole;
    uint64_t batches = batches_of(whole->set, whole->opts);
    uint64_t state = jumps;
    stk_batch batch;

    for (uint32_t at = 0; at < jumps; at++) {
        part.epoch = draw(&state) % EPOCHS;
        part.epoch_step = draw(&state) % batches;
        part.most_batches = draw(&state) % 7;
        assert_int_equal(stk_loader_seek(loader, part.epoch, part.epoch_step), 0);
        if (part.most_batches > 0) /* 0: the next seek comes at once */
            (void)follow(loader, &part);
    }
    assert_int_equal(stk_loader_seek(loader, EPOCHS, 0), 0); /* to the end */
    assert_int_equal(stk_loader_next(loader, &batch), STK_END);
    assert_int_equal(stk_loader_seek(loader, 1, 1), 0); /* and back from it */
    part.epoch = 1;
    part.epoch_step = 1;
    part.most_batches = 0;
    (void)follow(loader, &part);
    assert_int_equal(stk_loader_next(loader, &batch), STK_END);
}

static void
seeking_goes_anywhere(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        for (size_t at = 0; at < sizeof(orders) / sizeof(orders[0]); at++) {
            stk_engine *engine = engine_open(*method, at % 2 ? "ram:30K" : "ram:2M");
            const struct set *set = at % 2 ? &small : &files;
            stk_dataset *dataset = dataset_open(engine, set);

            for (uint32_t policy = STK_POLICY_NONE; policy <= STK_POLICY_NEXT_USE; policy++) {
                stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 11, .epochs = EPOCHS,
                                        .policy = policy, .order = &orders[at]};
                const struct course whole = {.set = set, .opts = &opts, .end_epoch = EPOCHS};
                stk_loader *loader = loader_open(engine, dataset, &opts);

                jump(loader, &whole, 25);
                stk_loader_close(loader);
            }
            stk_dataset_close(dataset);
            stk_engine_close(engine);
        }
    }
}

static void
a_seek_out_of_range_changes_nothing(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        stk_engine *engine = engine_open(*method, NULL);
        stk_dataset *dataset = dataset_open(engine, &small);
        stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 50, .epochs = EPOCHS,
                                .drop_last = 1};
        stk_loader *loader = loader_open(engine, dataset, &opts);
        const struct course whole = {.set = &small, .opts = &opts, .end_epoch = EPOCHS};
        stk_batch batch;

        assert_int_equal(stk_loader_seek(loader, 0, 2), -ERANGE);
        assert_int_equal(stk_loader_seek(loader, EPOCHS, 1), -ERANGE);
        assert_int_equal(stk_loader_seek(loader, EPOCHS + 1, 0), -ERANGE);
        assert_int_equal(stk_loader_seek(loader, UINT64_MAX, 0), -ERANGE);
        assert_int_equal(stk_loader_next(loader, &batch), STK_BATCH);
        assert_int_equal(stk_loader_seek(loader, 0, 0), -EBUSY);
        assert_int_equal(stk_loader_release(loader, &batch), 0);
        assert_int_equal(stk_loader_seek(loader, 0, 0), 0);
        (void)follow(loader, &whole);
        stk_loader_close(loader);
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

/* Leaving an epoch in the middle and starting the next one, as a loop with break does;
 * far epochs of an endless run are as near as any. */
static void
an_epoch_can_be_broken_off(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        for (uint32_t generator = 0; generator < 2; generator++) {
            const stk_order_opts order = {STK_ORDER_OPTS_INIT,
                                          .sampler = generator ? STK_SAMPLER_GENERATOR
                                                               : STK_SAMPLER_DISTRIBUTED};
            stk_engine *engine = engine_open(*method, "ram:1M");
            stk_dataset *dataset = dataset_open(engine, &small);
            stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 10, .order = &order};
            stk_loader *loader = loader_open(engine, dataset, &opts);
            struct course course = {.set = &small, .opts = &opts, .most_batches = 3};
            static const uint64_t epochs[] = {0, 1, 2, 9, 9, 4000000000, 4000000001, 3};

            for (size_t at = 0; at < sizeof(epochs) / sizeof(epochs[0]); at++) {
                course.epoch = epochs[at];
                course.end_epoch = epochs[at] + 1;
                assert_int_equal(stk_loader_seek(loader, course.epoch, 0), 0);
                assert_int_equal(follow(loader, &course), 3);
            }
            stk_loader_close(loader);
            stk_dataset_close(dataset);
            stk_engine_close(engine);
        }
    }
}

/* What was cached before a seek is not read again. */
static void
a_seek_keeps_the_cache(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        stk_engine *engine = engine_open(*method, "ram:8M");
        stk_dataset *dataset = dataset_open(engine, &files);
        stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 10};
        stk_loader *loader = loader_open(engine, dataset, &opts);
        struct course course = {.set = &files, .opts = &opts, .end_epoch = 1};

        (void)follow(loader, &course);
        uint64_t reads = engine_stats(engine).reads;
        for (uint32_t at = 0; at < 5; at++) {
            assert_int_equal(stk_loader_seek(loader, at % 3, at), 0);
            course = (struct course){.set = &files,
                                     .opts = &opts,
                                     .epoch = at % 3,
                                     .epoch_step = at,
                                     .end_epoch = EPOCHS};
            (void)follow(loader, &course);
        }
        assert_int_equal(engine_stats(engine).reads, reads);
        stk_loader_close(loader);
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

/* ---- states ------------------------------------------------------------------------ */

static char state_bytes[STK_LOADER_STATE_SIZE];

static size_t
save_after(stk_engine *engine, stk_dataset *dataset, const stk_loader_opts *opts, uint64_t batches)
{
    stk_loader *loader = loader_open(engine, dataset, opts);
    size_t n_bytes = 0;
    stk_batch batch;

    for (uint64_t at = 0; at < batches; at++) {
        assert_int_equal(stk_loader_next(loader, &batch), STK_BATCH);
        if (at + 1 < batches) /* the last one is still out when the state is saved */
            assert_int_equal(stk_loader_release(loader, &batch), 0);
    }
    assert_int_equal(stk_loader_save_state(loader, state_bytes, &n_bytes), 0);
    assert_true(n_bytes <= STK_LOADER_STATE_SIZE);
    stk_loader_close(loader);
    return n_bytes;
}

static void
resume(stk_engine *engine, stk_dataset *dataset, const struct course *rest, size_t n_bytes)
{
    stk_loader *loader = loader_open(engine, dataset, rest->opts);
    stk_error err = {.message = ""};
    stk_batch batch;

    if (stk_loader_restore_state(loader, state_bytes, n_bytes, &err) != 0)
        fail_msg("%s", err.message);
    (void)follow(loader, rest);
    assert_int_equal(stk_loader_next(loader, &batch), STK_END);
    stk_loader_close(loader);
    /* The same by opening there. */
    stk_loader_opts opts = *rest->opts;
    opts.state = state_bytes;
    opts.state_bytes = n_bytes;
    loader = loader_open(engine, dataset, &opts);
    (void)follow(loader, rest);
    assert_int_equal(stk_loader_next(loader, &batch), STK_END);
    stk_loader_close(loader);
}

static void
a_run_stopped_anywhere_goes_on(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        for (size_t at = 0; at < sizeof(orders) / sizeof(orders[0]); at++) {
            stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 17, .epochs = 2,
                                    .drop_last = at % 2, .order = &orders[at]};
            uint64_t batches = batches_of(&small, &opts);

            for (uint64_t done = 0; done <= 2 * batches; done++) {
                stk_engine *engine = engine_open(*method, NULL);
                stk_dataset *dataset = dataset_open(engine, &small);
                size_t n_bytes = save_after(engine, dataset, &opts, done);

                stk_dataset_close(dataset);
                stk_engine_close(engine);
                engine = engine_open(*method, "ram:1M");
                dataset = dataset_open(engine, &small);
                const struct course rest = {.set = &small,
                                            .opts = &opts,
                                            .epoch = done / batches,
                                            .epoch_step = done % batches,
                                            .end_epoch = 2};
                resume(engine, dataset, &rest, n_bytes);
                stk_dataset_close(dataset);
                stk_engine_close(engine);
            }
        }
    }
}

/* Another process: this test's program once more, with the state in its argument. */
static int
resume_in_child(const char *set_path, const char *method)
{
    stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 41};
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 16, .epochs = 2, .order = &order};
    struct set set;
    char path[128];
    size_t n_bytes;

    /* The same set, made again beside the first, so that the bytes can be compared. */
    set_make(&set, SET_RECORDS, N);
    (void)snprintf(path, sizeof(path), "%s/state", set_path);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    n_bytes = fread(state_bytes, 1, sizeof(state_bytes), file);
    assert_int_equal(fclose(file), 0);
    stk_engine *engine = engine_open(method, NULL);
    stk_dataset *dataset = dataset_open(engine, &set);
    const struct course rest = {
        .set = &set, .opts = &opts, .epoch = 0, .epoch_step = 5, .end_epoch = 2};
    resume(engine, dataset, &rest, n_bytes);
    stk_dataset_close(dataset);
    stk_engine_close(engine);
    set_remove(&set);
    return 0;
}

static void
another_process_goes_on(void **state)
{
    stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 41};
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 16, .epochs = 2, .order = &order};
    char path[128];
    int status;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/state", small.path);
    for (const char *const *method = methods(); *method; method++) {
        stk_engine *engine = engine_open(*method, NULL);
        stk_dataset *dataset = dataset_open(engine, &small);
        size_t n_bytes = save_after(engine, dataset, &opts, 5);

        write_file(path, state_bytes, n_bytes);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            (void)execl("/proc/self/exe", "test", "child", small.path, *method, (char *)NULL);
            _exit(1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

/* World x batch stays: all ranks of the new world together read what all of the old one
 * would have read. */
static void
another_world_goes_on(void **state)
{
    enum { STEP = 3, OLD_WORLD = 2, OLD_BATCH = 12 };
    static const uint32_t worlds[] = {1, 2, 3, 4, 6, 8, 12, 24};
    uint64_t total = N;

    (void)state;
    for (size_t at = 0; at < sizeof(worlds) / sizeof(worlds[0]); at++) {
        stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 13, .world = OLD_WORLD, .rank = 1};
        stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = OLD_BATCH, .epochs = 1,
                                .order = &order};
        stk_engine *engine = engine_open("sync", NULL);
        stk_dataset *dataset = dataset_open(engine, &small);
        size_t n_bytes = save_after(engine, dataset, &opts, STEP);
        uint64_t *ids =
            expected_ids(&small, &(stk_order_opts){STK_ORDER_OPTS_INIT, .seed = 13}, 0, &total);
        char wanted[N] = {0}, got[N] = {0};
        stk_batch batch;

        for (uint64_t idx = (uint64_t)STEP * OLD_WORLD * OLD_BATCH; idx < N; idx++)
            wanted[ids[idx]] = 1;
        free(ids);
        for (uint32_t rank = 0; rank < worlds[at]; rank++) {
            order.world = worlds[at];
            order.rank = rank;
            opts.batch_size = OLD_WORLD * OLD_BATCH / worlds[at];
            stk_loader *loader = loader_open(engine, dataset, &opts);
            assert_int_equal(stk_loader_restore_state(loader, state_bytes, n_bytes, NULL), 0);
            while (stk_loader_next(loader, &batch) == STK_BATCH) {
                assert_true(batch.epoch_step >= STEP);
                for (uint32_t item = 0; item < batch.count; item++)
                    got[batch.samples[item]] = 1;
                assert_int_equal(stk_loader_release(loader, &batch), 0);
            }
            stk_loader_close(loader);
        }
        assert_memory_equal(wanted, got, N);
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

/* ---- what is refused --------------------------------------------------------------- */

static void
expect_refusal(stk_engine *engine, stk_dataset *dataset, const stk_loader_opts *opts,
               const void *bytes, size_t n_bytes, int code, const char *words)
{
    stk_loader *loader = loader_open(engine, dataset, opts);
    stk_error err = {.message = ""};
    stk_batch batch;
    int rc = stk_loader_restore_state(loader, bytes, n_bytes, &err);

    if (rc != code || !strstr(err.message, words))
        print_error("\"%s\" (%d), expected \"%s\" (%d)\n", err.message, rc, words, code);
    assert_int_equal(rc, code);
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.message, words));
    assert_int_equal(stk_loader_next(loader, &batch), STK_BATCH); /* it is where it was */
    assert_int_equal(batch.epoch_step, 0);
    stk_loader_close(loader);
}

static void
other_states_are_refused_by_name(void **state)
{
    stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 1};
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 8, .epochs = 3, .order = &order};
    stk_engine *engine = engine_open("sync", NULL);
    stk_dataset *dataset = dataset_open(engine, &small);
    stk_dataset *other = dataset_open(engine, &files);
    size_t n_bytes = save_after(engine, dataset, &opts, 20);

    (void)state;
    expect_refusal(engine, other, &opts, state_bytes, n_bytes, STK_E_MISMATCH,
                   "data set fingerprint");
    order.seed = 2;
    expect_refusal(engine, dataset, &opts, state_bytes, n_bytes, STK_E_MISMATCH, "order");
    order.seed = 1;
    order.kind = STK_ORDER_KEYED;
    expect_refusal(engine, dataset, &opts, state_bytes, n_bytes, STK_E_MISMATCH, "order");
    order.kind = STK_ORDER_TORCH;
    opts.batch_size = 9;
    expect_refusal(engine, dataset, &opts, state_bytes, n_bytes, STK_E_MISMATCH,
                   "world x batch_size is 8, this loader's is 9");
    opts.batch_size = 8;
    opts.drop_last = 1;
    expect_refusal(engine, dataset, &opts, state_bytes, n_bytes, STK_E_MISMATCH, "drop_last");
    opts.drop_last = 0;
    opts.epochs = 1;
    expect_refusal(engine, dataset, &opts, state_bytes, n_bytes, -ERANGE, "beyond this run's 1");
    stk_dataset_close(other);
    stk_dataset_close(dataset);
    stk_engine_close(engine);
}

static void
damaged_states_are_refused(void **state)
{
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 8, .epochs = 3};
    stk_engine *engine = engine_open("sync", NULL);
    stk_dataset *dataset = dataset_open(engine, &small);
    size_t n_bytes = save_after(engine, dataset, &opts, 20);
    stk_loader *loader = loader_open(engine, dataset, &opts);
    stk_error err;

    (void)state;
    for (size_t cut = 0; cut < n_bytes; cut++)
        assert_int_equal(stk_loader_restore_state(loader, state_bytes, cut, &err), STK_E_CORRUPT);
    for (size_t byte = 0; byte < n_bytes; byte++)
        for (int bit = 0; bit < 8; bit++) {
            state_bytes[byte] = (char)(state_bytes[byte] ^ (1 << bit));
            int rc = stk_loader_restore_state(loader, state_bytes, n_bytes, &err);
            assert_int_equal(rc, byte >= 8 && byte < 12 ? STK_E_VERSION : STK_E_CORRUPT);
            state_bytes[byte] = (char)(state_bytes[byte] ^ (1 << bit));
        }
    assert_int_equal(stk_loader_restore_state(loader, state_bytes, n_bytes, &err), 0);
    stk_loader_close(loader);
    stk_dataset_close(dataset);
    stk_engine_close(engine);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeking_goes_anywhere),
        cmocka_unit_test(a_seek_out_of_range_changes_nothing),
        cmocka_unit_test(an_epoch_can_be_broken_off),
        cmocka_unit_test(a_seek_keeps_the_cache),
        cmocka_unit_test(a_run_stopped_anywhere_goes_on),
        cmocka_unit_test(another_process_goes_on),
        cmocka_unit_test(another_world_goes_on),
        cmocka_unit_test(other_states_are_refused_by_name),
        cmocka_unit_test(damaged_states_are_refused),
    };

    if (argc == 4 && strcmp(argv[1], "child") == 0)
        return resume_in_child(argv[2], argv[3]);
    return cmocka_run_group_tests(tests, make_sets, remove_sets);
}
