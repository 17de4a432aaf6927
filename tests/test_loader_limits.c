/* SPDX-License-Identifier: Apache-2.0 */
/* Options at their limits and beyond, and what does not fit: each is one clear error. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/handles.h"
#include "loader/resolve.h"
#include "loader_util.h"

#define N 40

static struct set records;
static struct set files;

static int
make_sets(void **state)
{
    (void)watchdog(state);
    set_make(&records, SET_RECORDS, N);
    set_make(&files, SET_FILES, N);
    return 0;
}

static int
remove_sets(void **state)
{
    (void)state;
    set_remove(&records);
    set_remove(&files);
    return 0;
}

/* ---- engine ------------------------------------------------------------------------ */

static void
engine_refused(const stk_engine_opts *opts, int code, const char *words)
{
    stk_engine *engine = NULL;
    stk_error err = {.message = ""};
    int rc = stk_engine_open(&engine, opts, &err);

    if (rc != code || !strstr(err.message, words))
        print_error("\"%s\" (%d), expected \"%s\" (%d)\n", err.message, rc, words, code);
    assert_int_equal(rc, code);
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.message, words));
    assert_null(engine);
}

#define ENGINE(...) (&(stk_engine_opts){STK_ENGINE_OPTS_INIT, __VA_ARGS__})

static void
engine_options_have_ranges(void **state)
{
    (void)state;
    engine_refused(ENGINE(.workers = 257), -EINVAL, "workers 257 is not in 1 .. 256");
    engine_refused(ENGINE(.queue_depth = 1025), -EINVAL, "queue_depth 1025 is not in 1 .. 1024");
    engine_refused(ENGINE(.io_threads = 257), -EINVAL, "io_threads 257 is not in 1 .. 256");
    engine_refused(ENGINE(.max_open_files = 3), -EINVAL, "max_open_files 3 is not in 4 .. 65536");
    engine_refused(ENGINE(.max_open_files = 65537), -EINVAL, "max_open_files");
    engine_refused(ENGINE(.buffered = 2), -EINVAL, "buffered 2");
    engine_refused(ENGINE(.unarbitrated = 2), -EINVAL, "unarbitrated 2");
    engine_refused(ENGINE(.io_method = "carrier"), -EINVAL, "io_method 'carrier'");
    engine_refused(ENGINE(.shape = "rbps=fast"), -EINVAL, "rbps");
    engine_refused(ENGINE(.tiers = "ram"), -EINVAL, "'ram' is not ram:SIZE");
    engine_refused(ENGINE(.tiers = "ram:"), -EINVAL, "needs a size");
    engine_refused(ENGINE(.tiers = "ram:0"), -EINVAL, "needs a size");
    engine_refused(ENGINE(.tiers = "ram:1G ram:2G"), -EINVAL, "named twice");
    engine_refused(ENGINE(.tiers = "disk:1G"), -EINVAL, "'disk:1G' is not ram:SIZE");
    engine_refused(ENGINE(.tiers = "ram:1000T"), STK_E_INFEASIBLE, "machine or the control group");
    assert_int_equal(stk_engine_open(NULL, NULL, NULL), -EINVAL);
}

static void
the_largest_engine_opens(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        stk_engine *engine =
            engine_open_by(ENGINE(.io_method = *method, .tiers = " ram:1K\t ", .workers = 64,
                                  .queue_depth = 1024, .io_threads = 64));

        assert_string_equal(stk_engine_io_method(engine), *method);
        stk_dataset *dataset = dataset_open(engine, &files);
        const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 5, .epochs = 1};
        stk_loader *loader = loader_open(engine, dataset, &opts);
        const struct course whole = {.set = &files, .opts = &opts, .end_epoch = 1};
        (void)follow(loader, &whole);
        stk_loader_close(loader);
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

/* ---- versions ---------------------------------------------------------------------- */

struct newer_engine_opts {
    stk_engine_opts opts;
    uint64_t unknown;
};

struct newer_loader_opts {
    stk_loader_opts opts;
    uint64_t unknown;
};

static void
unknown_options_are_refused_unless_zero(void **state)
{
    struct newer_engine_opts engine_opts = {.opts = {.size = sizeof(engine_opts)}, .unknown = 1};
    struct newer_loader_opts loader_opts = {.opts = {.size = sizeof(loader_opts), .batch_size = 4},
                                            .unknown = 1};
    stk_loader *loader;

    (void)state;
    engine_refused(&engine_opts.opts, -E2BIG, "use a newer library");
    engine_opts.unknown = 0;
    stk_engine *engine = engine_open_by(&engine_opts.opts);
    stk_dataset *dataset = dataset_open(engine, &records);
    loader_refused(engine, dataset, &loader_opts.opts, -E2BIG, "use a newer library");
    loader_opts.unknown = 0;
    loader = loader_open(engine, dataset, &loader_opts.opts);
    stk_loader_close(loader);
    loader_opts.opts.size = 0;
    loader_refused(engine, dataset, &loader_opts.opts, -EINVAL, "STK_..._INIT");
    stk_order_opts order = {.size = 3};
    const stk_loader_opts with_order = {STK_LOADER_OPTS_INIT, .batch_size = 4, .order = &order};
    loader_refused(engine, dataset, &with_order, -EINVAL, "stk_order_opts.size is 3");
    assert_int_equal(stk_loader_open(&loader, engine, dataset, NULL, NULL), -EINVAL);
    assert_int_equal(stk_loader_open(NULL, engine, dataset, &with_order, NULL), -EINVAL);
    stk_dataset_close(dataset);
    stk_engine_close(engine);
}

static void
results_have_a_size_too(void **state)
{
    stk_engine *engine = engine_open("sync", NULL);
    stk_dataset *dataset = dataset_open(engine, &records);
    const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 4};
    stk_loader *loader = loader_open(engine, dataset, &opts);
    stk_engine_stats engine_stats_out = {.size = 0};
    stk_loader_stats loader_stats_out = {.size = 1};
    stk_dataset_info info = {.size = 8};
    uint64_t total;

    (void)state;
    assert_int_equal(stk_engine_get_stats(engine, &engine_stats_out), -EINVAL);
    assert_int_equal(stk_engine_get_stats(NULL, NULL), -EINVAL);
    engine_stats_out.size = sizeof(engine_stats_out) + 8;
    assert_int_equal(stk_engine_get_stats(engine, &engine_stats_out), -EINVAL);
    /* That of 0.1.0: nothing is written behind it. */
    engine_stats_out.size = offsetof(stk_engine_stats, mapped_bytes);
    engine_stats_out.mapped_bytes = 77;
    assert_int_equal(stk_engine_get_stats(engine, &engine_stats_out), 0);
    assert_int_equal(engine_stats_out.size, offsetof(stk_engine_stats, mapped_bytes));
    assert_int_equal(engine_stats_out.mapped_bytes, 77);
    assert_int_equal(stk_loader_get_stats(loader, UINT64_MAX, &loader_stats_out), -EINVAL);
    assert_int_equal(stk_dataset_get_info(dataset, &info), -EINVAL);
    loader_stats_out.size = sizeof(loader_stats_out);
    assert_int_equal(stk_loader_get_stats(loader, 5, &loader_stats_out), -ENOENT);
    assert_int_equal(stk_loader_next(loader, NULL), -EINVAL);
    assert_int_equal(stk_loader_next(NULL, NULL), -EINVAL);
    assert_int_equal(stk_loader_seek(NULL, 0, 0), -EINVAL);
    assert_int_equal(stk_loader_save_state(loader, NULL, NULL), -EINVAL);
    assert_int_equal(stk_loader_restore_state(loader, NULL, 0, NULL), -EINVAL);
    assert_int_equal(stk_loader_last_error(loader, NULL), -EINVAL);
    assert_int_equal(stk_loader_replacements(loader, NULL, 1, &total), -EINVAL);
    assert_null(stk_engine_io_method(NULL));
    assert_null(stk_dataset_class_name(NULL, 0));
    assert_null(stk_dataset_field_name(NULL, 0));
    assert_null(stk_dataset_sample_name(NULL, 0));
    assert_int_equal(stk_loader_replacements(loader, NULL, 0, NULL), -EINVAL);
    stk_loader_close(loader);
    stk_dataset_close(dataset);
    stk_engine_close(engine);
}

/* ---- loader ------------------------------------------------------------------------ */

static int
no_decode(void *context, const stk_decode_args *args)
{
    (void)context;
    memset(args->slot, 0, args->item_bytes);
    return 0;
}

#define LOADER(...) (&(stk_loader_opts){STK_LOADER_OPTS_INIT, __VA_ARGS__})
#define ORDER(...)                       \
    .order = &(stk_order_opts)           \
    {                                    \
        STK_ORDER_OPTS_INIT, __VA_ARGS__ \
    }

static void
loader_options_have_ranges(void **state)
{
    stk_engine *engine = engine_open("sync", "ram:1M");
    stk_dataset *set = dataset_open(engine, &records);

    (void)state;
    loader_refused(engine, set, LOADER(.epochs = 1), -EINVAL, "batch_size 0 is not in");
    loader_refused(engine, set, LOADER(.batch_size = (1 << 18) + 1), -EINVAL,
                   "batch_size 262145 is not in 1 .. 262144");
    loader_refused(engine, set, LOADER(.batch_size = 1, .drop_last = 2), -EINVAL, "drop_last");
    loader_refused(engine, set, LOADER(.batch_size = 1, .horizon_epochs = 65), -EINVAL,
                   "horizon_epochs 65 is not in 1 .. 64");
    loader_refused(engine, set, LOADER(.batch_size = 1, .policy = 7), -EINVAL, "policy 7");
    loader_refused(engine, set, LOADER(.batch_size = 1, .policy = STK_POLICY_COORDINATED), -EINVAL,
                   "an engine that was opened with comm");
    loader_refused(engine, set, LOADER(.batch_size = 1, .layout = 3), -EINVAL, "layout 3");
    loader_refused(engine, set, LOADER(.batch_size = 1, .bad_sample = 3), -EINVAL, "bad_sample 3");
    loader_refused(engine, set, LOADER(.batch_size = 1, .staging_batches = 1), -EINVAL,
                   "staging_batches 1 is not in 2 .. 65536");
    loader_refused(engine, set, LOADER(.batch_size = 1, .staging_batches = 65537), -EINVAL,
                   "staging_batches 65537");
    loader_refused(engine, set, LOADER(.batch_size = 1, .staging_batches = 3, .borrow_max = 4),
                   -EINVAL, "staging_batches 3 is less than borrow_max, 4");
    loader_refused(engine, set, LOADER(.batch_size = 1, .borrow_max = 65), -EINVAL,
                   "borrow_max 65 is not in 1 .. 64");
    loader_refused(engine, set, LOADER(.batch_size = 1 << 18, .borrow_max = 4), -EINVAL,
                   "are more than 1048575 samples");
    loader_refused(engine, set, LOADER(.batch_size = 1, .retries = 17), -EINVAL, "retries 17");
    loader_refused(engine, set, LOADER(.batch_size = 1, .reserved = 1), -EINVAL, "reserved");
    loader_refused(
        engine, set,
        LOADER(.batch_size = 1, .decode = no_decode, .item_bytes = (UINT64_C(1) << 32) + 1),
        -EINVAL, "item_bytes 4294967297");
    stk_dataset_close(set);
    stk_engine_close(engine);
}

static void
options_that_do_not_go_together_are_named(void **state)
{
    stk_engine *engine = engine_open("sync", "ram:1M");
    stk_dataset *set = dataset_open(engine, &records);
    stk_dataset *sizes;
    struct set other;

    (void)state;
    set_make(&other, SET_SIZES, 20);
    sizes = dataset_open(engine, &other);
    loader_refused(engine, set, LOADER(.batch_size = 1, .item_bytes = 99), -EINVAL,
                   "item_bytes 99 is not the samples' size, 100");
    loader_refused(engine, set, LOADER(.batch_size = 1, .decode = no_decode), -EINVAL,
                   "item_bytes is required with decode");
    loader_refused(
        engine, set,
        LOADER(.batch_size = 1, .decode = no_decode, .item_bytes = 1, .layout = STK_LAYOUT_RAW),
        -EINVAL, "decode needs the fixed layout");
    loader_refused(engine, sizes, LOADER(.batch_size = 1, .layout = STK_LAYOUT_FIXED), -EINVAL,
                   "needs samples of one size");
    loader_refused(engine, set, LOADER(.batch_size = 4, ORDER(.world = 3, .rank = 3)), -EINVAL,
                   "rank");
    loader_refused(engine, set, LOADER(.batch_size = 4, ORDER(.world = (1 << 20) + 1)), -EINVAL,
                   "world");
    loader_refused(engine, set, LOADER(.batch_size = 4, ORDER(.kind = 5)), -EINVAL, "kind");
    loader_refused(engine, set, LOADER(.batch_size = 4, ORDER(.reserved = 1)), -EINVAL, "reserved");
    loader_refused(engine, set, LOADER(.batch_size = 4, ORDER(.n = N + 1)), -EINVAL,
                   "n 41 is neither 0 nor the data set's 40");
    loader_refused(engine, set, LOADER(.batch_size = N + 1, .drop_last = 1), STK_E_INFEASIBLE,
                   "has no batch of 41");
    loader_refused(engine, set, LOADER(.batch_size = 1, ORDER(.world = N + 1, .drop_uneven = 1)),
                   STK_E_INFEASIBLE, "0 samples on this rank");
    for (uint32_t replacement = 0; replacement < 2; replacement++)
        loader_refused(engine, set,
                       LOADER(.batch_size = 8,
                              ORDER(.sampler = STK_SAMPLER_GENERATOR, .replacement = replacement,
                                    .num_samples = (UINT64_C(1) << 30) + 1)),
                       STK_E_INFEASIBLE,
                       "1073741825 samples on this rank is more than the 1073741824");
    stk_dataset_close(sizes);
    stk_dataset_close(set);
    stk_engine_close(engine);
    set_remove(&other);
}

static void
what_does_not_fit_is_infeasible(void **state)
{
    stk_engine *engine = engine_open("sync", "ram:1M");
    stk_dataset *set = dataset_open(engine, &records);
    stk_loader *loader;

    (void)state;
    loader_refused(engine, set, LOADER(.batch_size = 10, .staging_bytes = 1999), STK_E_INFEASIBLE,
                   "staging_bytes 1999 is below two of the largest batches, 2000");
    loader_refused(engine, set, LOADER(.batch_size = 10, .staging_bytes = 2999, .borrow_max = 3),
                   STK_E_INFEASIBLE, "below borrow_max of the largest batches, 3000");
    loader_refused(engine, set, LOADER(.batch_size = 10, .ram_bytes = (1 << 20) + 1),
                   STK_E_INFEASIBLE, "ram_bytes 1048577 is more than the 1048576");
    loader_refused(engine, set, LOADER(.batch_size = 10, .ram_bytes = UINT64_C(1) << 38),
                   STK_E_INFEASIBLE, "more than one loader can have");
    loader_refused(engine, set, LOADER(.batch_size = 10, .ram_bytes = UINT64_MAX), STK_E_INFEASIBLE,
                   "more than one loader can have");
    loader_refused(engine, set,
                   LOADER(.batch_size = 4096, .decode = no_decode, .item_bytes = UINT64_C(1) << 32),
                   STK_E_INFEASIBLE, "staging of");
    loader = loader_open(engine, set, LOADER(.batch_size = 10, .staging_bytes = UINT64_MAX));
    stk_loader_close(loader);
    loader = loader_open(engine, set,
                         LOADER(.batch_size = 1 << 18, .borrow_max = 3, .staging_batches = 3));
    stk_batch batch;
    assert_int_equal(stk_loader_next(loader, &batch), STK_BATCH);
    assert_int_equal(batch.count, N);
    stk_loader_close(loader);
    stk_dataset_close(set);
    stk_engine_close(engine);
}

/* ---- data sets --------------------------------------------------------------------- */

static void
dataset_refused(stk_engine *engine, const char *path, const stk_dataset_opts *opts, int code)
{
    stk_dataset *dataset = NULL;
    stk_error err = {.message = ""};
    int rc = stk_dataset_open(&dataset, engine, path, opts, &err);

    if (rc != code)
        print_error("%s: \"%s\" (%d), expected %d\n", path, err.message, rc, code);
    assert_int_equal(rc, code);
    assert_int_equal(err.code, code);
    assert_true(err.message[0] != '\0');
    assert_null(dataset);
}

static void
data_sets_that_are_none_are_refused(void **state)
{
    stk_engine *engine = engine_open("sync", NULL);
    char path[200];
    const stk_dataset_opts folder = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_FOLDER};

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/nothing-here", records.path);
    dataset_refused(engine, path, NULL, -ENOENT);
    assert_int_equal(mkdir(path, 0777), 0);
    dataset_refused(engine, path, NULL, -EINVAL);
    dataset_refused(engine, path, &folder, -EINVAL);
    (void)snprintf(path, sizeof(path), "%s/empty", records.path);
    write_file(path, "", 0);
    dataset_refused(engine, path, &records.opts, -EINVAL);
    write_file(path, "0123456789", 10); /* less than the header */
    dataset_refused(engine, path, &records.opts, -EINVAL);
    write_file(path, records.contents, 13 + 150); /* a record and a half */
    dataset_refused(engine, path, &records.opts, -EINVAL);
    dataset_refused(engine, "", NULL, -EINVAL);
    stk_engine_close(engine);
}

/* ---- few descriptors --------------------------------------------------------------- */

#define MANY 2000

static int
read_with_few_files(const char *data_path, const char *method)
{
    const struct rlimit limit = {.rlim_cur = 256, .rlim_max = 256};
    const stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT, .io_method = method};
    const stk_dataset_opts set_opts = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_FOLDER};
    const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 50, .epochs = 2};
    stk_engine *engine;
    stk_dataset *dataset;
    stk_loader *loader;
    stk_batch batch;
    stk_error err;
    uint64_t n_read = 0;

    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 2;
    if (stk_engine_open(&engine, ENGINE(.max_open_files = 129), &err) != -EINVAL ||
        !strstr(err.message, "RLIMIT_NOFILE"))
        return 3;
    if (stk_engine_open(&engine, &engine_opts, &err) != 0)
        return 4;
    if (stk_dataset_open(&dataset, engine, data_path, &set_opts, &err) != 0)
        return 5;
    if (stk_loader_open(&loader, engine, dataset, &opts, &err) != 0)
        return 6;
    while (stk_loader_next(loader, &batch) == STK_BATCH) {
        n_read += batch.count;
        if (stk_loader_release(loader, &batch) != 0)
            return 7;
    }
    stk_loader_close(loader);
    stk_dataset_close(dataset);
    stk_engine_close(engine);
    return n_read == 2 * MANY ? 0 : 8;
}

static void
few_descriptors_are_enough(void **state)
{
    struct set many;
    int status;

    (void)state;
    set_make(&many, SET_FILES, MANY);
    for (const char *const *method = methods(); *method; method++) {
        pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0) {
            (void)execl("/proc/self/exe", "test", "child", many.data_path, *method, (char *)NULL);
            _exit(1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    set_remove(&many);
}

/* Slots are memory: no more of them than an epoch, or the run, can use. */
static void
slots_are_as_many_as_are_needed(void **state)
{
    struct set one;

    (void)state;
    set_make(&one, SET_ROWS, 1);
    stk_engine *engine = engine_open("sync", NULL);
    stk_dataset *dataset = dataset_open(engine, &one);
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 1};
    const struct sti_plan_opts asked = {.opts = &opts, .dataset = dataset->dataset};
    struct sti_resolved resolved;

    for (uint64_t epochs = 0; epochs <= 5; epochs += 5) {
        opts.epochs = epochs;
        assert_int_equal(sti_loader_resolve(&resolved, &asked, NULL), 0);
        assert_int_equal(resolved.fetcher.item_bytes, one.bytes);
        assert_true(resolved.fetcher.n_records * one.bytes <= UINT64_C(8) << 20);
        assert_true(resolved.fetcher.n_records >= 2);
    }
    assert_true(resolved.fetcher.n_records <= 10); /* 5 batches in all */
    stk_dataset_close(dataset);
    stk_engine_close(engine);
    set_remove(&one);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engine_options_have_ranges),
        cmocka_unit_test(the_largest_engine_opens),
        cmocka_unit_test(unknown_options_are_refused_unless_zero),
        cmocka_unit_test(results_have_a_size_too),
        cmocka_unit_test(loader_options_have_ranges),
        cmocka_unit_test(options_that_do_not_go_together_are_named),
        cmocka_unit_test(what_does_not_fit_is_infeasible),
        cmocka_unit_test(data_sets_that_are_none_are_refused),
        cmocka_unit_test(few_descriptors_are_enough),
        cmocka_unit_test(slots_are_as_many_as_are_needed),
    };

    if (argc == 4 && strcmp(argv[1], "child") == 0)
        return read_with_few_files(argv[2], argv[3]);
    return cmocka_run_group_tests(tests, make_sets, remove_sets);
}
