/* SPDX-License-Identifier: Apache-2.0 */
/* What the steady state does not do, counted rather than timed: allocate, copy, call the
 * system too often, keep an idle processor busy, use more memory than promised. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader_util.h"

#define N 160

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED true
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED false
#endif

static struct set files;
static struct set records;

static int
make_sets(void **state)
{
    (void)watchdog(state);
    set_make(&files, SET_FILES, N);
    set_make(&records, SET_RECORDS, N);
    return 0;
}

static int
remove_sets(void **state)
{
    (void)state;
    set_remove(&files);
    set_remove(&records);
    return 0;
}

/* ---- nothing per sample ------------------------------------------------------------ */

/* Reads an epoch without looking at it, so that nothing but the library may allocate. */
static void
read_epoch(stk_loader *loader)
{
    stk_batch batch;
    uint32_t is_last = 0;

    while (!is_last) {
        assert_int_equal(stk_loader_next(loader, &batch), STK_BATCH);
        is_last = batch.last_of_epoch;
        assert_int_equal(stk_loader_release(loader, &batch), 0);
    }
}

/* Orders, policies, layouts; all of it cached, half of it, nothing. An epoch held as a
 * table takes a piece of scratch to make; beside that there is none. */
static void
the_steady_state_allocates_nothing(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (uint32_t round = 0; round < 24; round++) {
            const struct set *set = round % 2 ? &files : &records;
            const stk_order_opts order = {
                STK_ORDER_OPTS_INIT, .kind = round % 4 < 2 ? STK_ORDER_TORCH : STK_ORDER_KEYED};
            stk_loader_opts opts = {STK_LOADER_OPTS_INIT,        .batch_size = 8,
                                    .policy = 1 + round / 2 % 4, .layout = 1 + round % 2,
                                    .staging_bytes = 32 * 3000,  .order = &order};
            stk_engine *engine = engine_open(*method, round < 8    ? "ram:4M"
                                                      : round < 16 ? "ram:20K"
                                                                   : NULL);
            stk_dataset *dataset = dataset_open(engine, set);
            stk_loader *loader = loader_open(engine, dataset, &opts);

            for (int epoch = 0; epoch < 6; epoch++) /* all slots of the horizon are in use */
                read_epoch(loader);
            uint64_t before = engine_stats(engine).allocations;
            for (int epoch = 0; epoch < 10; epoch++)
                read_epoch(loader);
            uint64_t most = order.kind == STK_ORDER_TORCH ? 13 : 0;
            assert_in_range(engine_stats(engine).allocations - before, 0, most);
            stk_loader_close(loader);
            stk_dataset_close(dataset);
            stk_engine_close(engine);
        }
}

/* A cached raw sample lies where it lay: the same pointer in every epoch. */
static void
cached_samples_are_not_copied(void **state)
{
    static const void *places[N];

    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (uint32_t kind = 0; kind < 2; kind++) {
            const struct set *set = kind ? &files : &records;
            const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 25, .epochs = 5,
                                          .layout = STK_LAYOUT_RAW};
            stk_engine *engine = engine_open(*method, "ram:4M");
            stk_dataset *dataset = dataset_open(engine, set);
            stk_loader *loader = loader_open(engine, dataset, &opts);
            stk_batch batch;

            while (stk_loader_next(loader, &batch) == STK_BATCH) {
                for (uint32_t item = 0; item < batch.count; item++) {
                    if (batch.epoch > 0)
                        assert_ptr_equal(batch.items[item], places[batch.samples[item]]);
                    places[batch.samples[item]] = batch.items[item];
                }
                assert_int_equal(stk_loader_release(loader, &batch), 0);
            }
            stk_loader_close(loader);
            stk_dataset_close(dataset);
            stk_engine_close(engine);
        }
}

static void
a_wait_starts_reads_with_one_call(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        stk_engine *engine = engine_open(*method, NULL);
        stk_dataset *dataset = dataset_open(engine, &files);
        const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 20, .epochs = 5};
        stk_loader *loader = loader_open(engine, dataset, &opts);

        for (int epoch = 0; epoch < 5; epoch++)
            read_epoch(loader);
        stk_engine_stats stats = engine_stats(engine);
        /* A look without a wait submits too; reads are many to a call. */
        assert_true(stats.submit_calls <= stats.reads);
        if (strcmp(*method, "sync") == 0)
            assert_int_equal(stats.submit_calls, 0);
        stk_loader_close(loader);
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

/* ---- idle -------------------------------------------------------------------------- */

static uint64_t
cpu_us(void)
{
    struct rusage usage;

    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void
pause_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&time, NULL);
}

/* Loaders that have all they may have, or nothing to do: nobody wakes up. */
static void
an_idle_engine_sleeps(void **state)
{
    static const stk_order_opts list = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_LIST};

    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        stk_engine *engine = engine_open(*method, "ram:4M");
        stk_dataset *dataset = dataset_open(engine, &files);
        const stk_loader_opts opts[3] = {
            {STK_LOADER_OPTS_INIT, .batch_size = 20, .staging_batches = 4},
            {STK_LOADER_OPTS_INIT, .batch_size = 20, .order = &list},
            {STK_LOADER_OPTS_INIT, .batch_size = N, .epochs = 1},
        };
        stk_loader *loaders[3];
        stk_batch batch;

        for (int at = 0; at < 3; at++)
            loaders[at] = loader_open(engine, dataset, &opts[at]);
        assert_int_equal(stk_loader_next(loaders[0], &batch), STK_BATCH); /* and keeps it */
        assert_int_equal(stk_loader_next(loaders[1], &batch), -EAGAIN);
        read_epoch(loaders[2]);
        assert_int_equal(stk_loader_next(loaders[2], &batch), STK_END);
        pause_ms(200); /* what was begun ends: reads, memory touched, epochs made */
        uint64_t wakeups = engine_stats(engine).loop_wakeups;
        uint64_t used_us = cpu_us();
        pause_ms(500);
        assert_int_equal(engine_stats(engine).loop_wakeups, wakeups);
        if (!IS_SANITIZED) /* they have threads of their own */
            assert_true(cpu_us() - used_us <= 5000);
        for (int at = 0; at < 3; at++)
            stk_loader_close(loaders[at]);
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

/* ---- memory ------------------------------------------------------------------------ */

#define MANY UINT64_C(10000000)
#define TINY_BYTES UINT64_C(16)
#define MIB (UINT64_C(1) << 20)

static uint64_t
rss_bytes(void)
{
    char line[200];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");

    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "VmHWM: %llu", &kib) == 1)
            break;
    assert_int_equal(fclose(file), 0);
    return kib * 1024;
}

/* In a process of its own, whose memory is nothing else's. Exit status 0: as promised. */
static int
read_ten_million(const char *data_path, const char *method)
{
    enum { RAM_MIB = 16, STAGING_MIB = 8, STEPS = 1000 };
    const stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT, .io_method = method,
                                         .tiers = "ram:16M", .workers = 2};
    const stk_dataset_opts set_opts = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_RECORD,
                                       .record_bytes = TINY_BYTES};
    const stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 1};
    const stk_loader_opts opts = {
        STK_LOADER_OPTS_INIT, .batch_size = 64,           .staging_batches = 100,
        .epochs = 2,          .ram_bytes = RAM_MIB * MIB, .staging_bytes = STAGING_MIB * MIB,
        .order = &order};
    uint64_t before = rss_bytes();
    uint64_t promised = (RAM_MIB + STAGING_MIB + 64) * MIB + (24 + 24) * MANY;
    struct timespec from, to;
    stk_engine *engine;
    stk_dataset *dataset;
    stk_loader *loader;
    stk_batch batch;

    if (stk_engine_open(&engine, &engine_opts, NULL) != 0 ||
        stk_dataset_open(&dataset, engine, data_path, &set_opts, NULL) != 0)
        return 2;
    stk_dataset_close(dataset);
    (void)clock_gettime(CLOCK_MONOTONIC, &from);
    if (stk_dataset_open(&dataset, engine, data_path, &set_opts, NULL) != 0)
        return 3;
    (void)clock_gettime(CLOCK_MONOTONIC, &to);
    if (to.tv_sec - from.tv_sec > 1)
        return 4;
    if (stk_loader_open(&loader, engine, dataset, &opts, NULL) != 0)
        return 5;
    for (uint32_t step = 0; step < STEPS; step++) {
        if (stk_loader_next(loader, &batch) != STK_BATCH)
            return 6;
        for (uint32_t item = 0; item < batch.count; item++)
            if (memcmp(batch.items[item], &batch.samples[item], 8) != 0)
                return 7;
        (void)stk_loader_release(loader, &batch);
    }
    uint64_t used = rss_bytes() - before;
    (void)fprintf(stderr, "10 M samples: %llu MiB of %llu promised\n",
                  (unsigned long long)(used / MIB), (unsigned long long)(promised / MIB));
    stk_loader_close(loader);
    stk_dataset_close(dataset);
    stk_engine_close(engine);
    return used <= promised ? 0 : 8;
}

static void
memory_stays_below_what_is_promised(void **state)
{
    char path[128];
    int status;

    (void)state;
    if (IS_SANITIZED)
        return; /* their memory is not the library's */
    (void)snprintf(path, sizeof(path), "%s/many", records.path);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    for (uint64_t at = 0; at < MANY; at++) {
        const uint64_t record[2] = {at, ~at};

        assert_int_equal(fwrite(record, TINY_BYTES, 1, file), 1);
    }
    assert_int_equal(fclose(file), 0);
    for (const char *const *method = methods(); *method; method++) {
        pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0) {
            (void)execl("/proc/self/exe", "test", "child", path, *method, (char *)NULL);
            _exit(1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_steady_state_allocates_nothing),
        cmocka_unit_test(cached_samples_are_not_copied),
        cmocka_unit_test(a_wait_starts_reads_with_one_call),
        cmocka_unit_test(an_idle_engine_sleeps),
        cmocka_unit_test(memory_stays_below_what_is_promised),
    };

    if (argc == 4 && strcmp(argv[1], "child") == 0)
        return read_ten_million(argv[2], argv[3]);
    return cmocka_run_group_tests(tests, make_sets, remove_sets);
}
