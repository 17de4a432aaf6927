/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation fails once, at every call: an error or a recovery, never a crash, a
 * leak or a hang. Leaks are AddressSanitizer's to find; descriptors and threads are
 * counted here. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "loader_util.h"

#define N 50

static struct set files;

static int
make_set(void **state)
{
    (void)watchdog(state);
    set_make(&files, SET_SIZES, N);
    return 0;
}

static int
remove_set(void **state)
{
    (void)state;
    set_remove(&files);
    return 0;
}

static uint32_t
entries_of(const char *path)
{
    DIR *directory = opendir(path);
    uint32_t n = 0;

    assert_non_null(directory);
    while (readdir(directory))
        n++;
    assert_int_equal(closedir(directory), 0);
    return n;
}

static void
check_nothing_left(uint32_t descriptors, uint32_t threads)
{
    assert_int_equal(entries_of("/proc/self/fd"), descriptors);
    for (int look = 0; entries_of("/proc/self/task") != threads; look++)
        assert_true(look < 1000); /* a joined thread may be on its way out of the list */
}

#define ENGINE_OPTS(method_)                                                                       \
    {                                                                                              \
        STK_ENGINE_OPTS_INIT, .io_method = (method_), .tiers = "ram:100K", .cache_dir = "/tmp",    \
                              .shape = "rlat=1us", .workers = 2, .queue_depth = 8, .io_threads = 2 \
    }

static void
an_engine_without_memory_does_not_open(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        const stk_engine_opts opts = ENGINE_OPTS(*method);
        uint32_t descriptors = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
        int rc = -ENOMEM;

        for (uint64_t at = 1; rc != 0; at++) {
            stk_engine *engine = NULL;
            stk_error err = {.message = ""};

            sti_mem_fail_at(at, 0);
            rc = stk_engine_open(&engine, &opts, &err);
            sti_mem_fail_at(0, 0);
            if (rc == 0) {
                stk_engine_close(engine);
            } else {
                assert_int_equal(rc, -ENOMEM);
                assert_int_equal(err.code, -ENOMEM);
                assert_true(err.message[0] != '\0');
            }
            check_nothing_left(descriptors, threads);
        }
    }
}

static void
a_data_set_without_memory_does_not_open(void **state)
{
    (void)state;
    for (uint32_t rebuild = 0; rebuild < 2; rebuild++) {
        stk_engine *engine = engine_open("sync", NULL);
        stk_dataset_opts opts = files.opts;
        uint32_t descriptors = entries_of("/proc/self/fd");
        int rc = -ENOMEM;

        opts.rebuild = rebuild;
        stk_dataset_close(dataset_open(engine, &files)); /* the index is there */
        for (uint64_t at = 1; rc != 0; at++) {
            stk_dataset *dataset = NULL;
            stk_error err = {.message = ""};

            sti_mem_fail_at(at, 0);
            rc = stk_dataset_open(&dataset, engine, files.data_path, &opts, &err);
            sti_mem_fail_at(0, 0);
            if (rc == 0) {
                stk_dataset_close(dataset);
            } else {
                assert_int_equal(rc, -ENOMEM);
                assert_true(err.message[0] != '\0');
            }
            assert_int_equal(entries_of("/proc/self/fd"), descriptors);
        }
        stk_engine_close(engine);
    }
}

static int
copy_some(void *context, const stk_decode_args *args)
{
    (void)context;
    memset(args->slot, 0, args->item_bytes);
    memcpy(args->slot, args->bytes,
           args->n_bytes < args->item_bytes ? args->n_bytes : args->item_bytes);
    return 0;
}

static const stk_order_opts orders[] = {
    {STK_ORDER_OPTS_INIT, .seed = 1},
    {STK_ORDER_OPTS_INIT, .sampler = STK_SAMPLER_GENERATOR, .seed = 1},
    {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_KEYED},
};

/* Opens and reads with the n-th allocation failing, whenever that is: at open it is an
 * error; later the run goes on, or the call that needed it says so. */
static bool
run_failing(stk_engine *engine, stk_dataset *dataset, const stk_loader_opts *opts, uint64_t at)
{
    stk_loader *loader = NULL;
    stk_error err = {.message = ""};
    stk_batch batch;
    uint64_t n_read = 0;

    sti_mem_fail_at(at, 0);
    int rc = stk_loader_open(&loader, engine, dataset, opts, &err);
    if (rc != 0) {
        sti_mem_fail_at(0, 0);
        assert_int_equal(rc, -ENOMEM);
        assert_int_equal(err.code, -ENOMEM);
        assert_true(err.message[0] != '\0');
        return false;
    }
    while ((rc = stk_loader_next(loader, &batch)) == STK_BATCH) {
        n_read += batch.count;
        assert_int_equal(stk_loader_release(loader, &batch), 0);
    }
    assert_int_equal(rc, STK_END);
    assert_int_equal(n_read, 4 * N);
    stk_loader_close(loader);
    sti_mem_fail_at(0, 0);
    return true;
}

static void
a_loader_without_memory_says_so_or_goes_on(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (uint32_t round = 0; round < 9; round++) {
            const stk_engine_opts engine_opts = ENGINE_OPTS(*method);
            stk_engine *engine = engine_open_by(&engine_opts);
            stk_dataset *dataset = dataset_open(engine, &files);
            stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 9, .epochs = 4,
                                    .policy = 1 + round % 4, .order = &orders[round % 3]};
            uint32_t descriptors = entries_of("/proc/self/fd");
            uint32_t n_good = 0;

            if (round >= 6) {
                opts.decode = copy_some;
                opts.item_bytes = 100;
            }
            for (uint64_t at = 1; n_good < 8; at++) {
                if (run_failing(engine, dataset, &opts, at))
                    n_good++;
                assert_int_equal(entries_of("/proc/self/fd"), descriptors);
            }
            stk_dataset_close(dataset);
            stk_engine_close(engine);
        }
}

/* Every allocation fails from the n-th on: next says so and does not wait for ever. With
 * memory again the run goes on where it stood. Returns whether next said so; ret_rc: what
 * opening gave. */
static bool
run_starving(stk_engine *engine, stk_dataset *dataset, const stk_loader_opts *opts, uint64_t at,
             int *ret_rc)
{
    const struct course whole = {.set = &files, .opts = opts, .end_epoch = 4};
    stk_loader *loader = NULL;
    struct course rest = whole;
    stk_batch batch;
    stk_error err;

    sti_mem_fail_at(at, 1);
    *ret_rc = stk_loader_open(&loader, engine, dataset, opts, NULL);
    if (*ret_rc != 0) {
        sti_mem_fail_at(0, 0);
        assert_int_equal(*ret_rc, -ENOMEM);
        return false;
    }
    int rc;
    while ((rc = stk_loader_next(loader, &batch)) == STK_BATCH) {
        rest.epoch = batch.epoch + batch.last_of_epoch;
        rest.epoch_step = batch.last_of_epoch ? 0 : batch.epoch_step + 1;
        assert_int_equal(stk_loader_release(loader, &batch), 0);
    }
    if (rc == -ENOMEM) {
        assert_int_equal(stk_loader_next(loader, &batch), -ENOMEM); /* still */
        assert_int_equal(stk_loader_last_error(loader, &err), 0);
        assert_int_equal(err.code, -ENOMEM);
        assert_non_null(strstr(err.message, "no memory for the order"));
        sti_mem_fail_at(0, 0);
        do
            rc = stk_loader_next(loader, &batch);
        while (rc == -ENOMEM); /* until the loop has tried again */
        assert_int_equal(rc, STK_BATCH);
        assert_int_equal(batch.epoch, rest.epoch);
        assert_int_equal(batch.epoch_step, rest.epoch_step);
        check_bytes(&files, &batch);
        assert_int_equal(stk_loader_release(loader, &batch), 0);
        assert_int_equal(stk_loader_seek(loader, rest.epoch, rest.epoch_step), 0);
        (void)follow(loader, &rest);
        assert_int_equal(stk_loader_next(loader, &batch), STK_END);
        stk_loader_close(loader);
        return true;
    }
    sti_mem_fail_at(0, 0);
    assert_int_equal(rc, STK_END);
    stk_loader_close(loader);
    return false;
}

static void
memory_that_stays_away_is_said(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        const stk_engine_opts engine_opts = ENGINE_OPTS(*method);
        stk_engine *engine = engine_open_by(&engine_opts);
        stk_dataset *dataset = dataset_open(engine, &files);
        const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 9, .epochs = 4,
                                      .order = &orders[0]};
        uint32_t n_starved = 0;
        int rc = -ENOMEM;

        for (uint64_t at = 1; n_starved < 3; at++) {
            bool is_starved = run_starving(engine, dataset, &opts, at, &rc);

            n_starved += is_starved;
            if (rc == 0 && !is_starved) /* there was memory for all tables */
                break;
        }
        assert_true(n_starved > 0);
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_engine_without_memory_does_not_open),
        cmocka_unit_test(a_data_set_without_memory_does_not_open),
        cmocka_unit_test(a_loader_without_memory_says_so_or_goes_on),
        cmocka_unit_test(memory_that_stays_away_is_said),
    };

    return cmocka_run_group_tests(tests, make_set, remove_set);
}
