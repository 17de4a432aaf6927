/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that serve each other, as long as they live: over every method those that have
 * nothing to do sleep, and those that come and go leave nothing behind.
 */
#include <dirent.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "ranks_util.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

static struct set set;

static int
make_set(void **state)
{
    set_make(&set, SET_FILES, 83);
    return watchdog(state);
}

static int
remove_set(void **state)
{
    (void)state;
    set_remove(&set);
    return 0;
}

static struct job
job_of(const char *comm, uint32_t world)
{
    return (struct job){
        .set = &set,
        .method = "sync",
        .comm = comm,
        .tiers = "ram:16M",
        .world = world,
        .opts = {STK_LOADER_OPTS_INIT, .batch_size = 3, .epochs = 4, .layout = STK_LAYOUT_RAW,
                 .ram_bytes = set.bytes / world + set.lengths[0],
                 .staging_bytes = 12 * set.lengths[0]},
        .order = {STK_ORDER_OPTS_INIT, .seed = 3},
        .close_timeout_ms = 20000,
    };
}

/* ---- idle ---- */

static void
pause_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&time, NULL);
}

static uint64_t
cpu_us(void)
{
    struct rusage usage;

    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

#define IDLE_MS 2000
static uint64_t used_us;

/* All ranks pause in the midst of an epoch, with batches staged and one in their hands. */
static void
pause_midway(struct rank *rank)
{
    stk_batch batch;

    rank_follow(rank, 0, 2);
    assert_int_equal(stk_loader_next(rank->loader, &batch), STK_BATCH);
    job_meet(rank->job);
    pause_ms(1500); /* what was begun ends, what was due is not any more */
    job_meet(rank->job);
    uint64_t wakeups = engine_stats(rank->engine).loop_wakeups;
    if (rank->rank == 0)
        used_us = cpu_us();
    job_meet(rank->job);
    pause_ms(IDLE_MS);
    wakeups = engine_stats(rank->engine).loop_wakeups - wakeups;
    if (wakeups > 6)
        print_error("rank %u wakes up %lu times\n", rank->rank, (unsigned long)wakeups);
    assert_true(wakeups <= 6);
    job_meet(rank->job);
    if (rank->rank == 0)
        used_us = cpu_us() - used_us;
    assert_int_equal(stk_loader_release(rank->loader, &batch), 0);
    while (stk_loader_next(rank->loader, &batch) == STK_BATCH)
        assert_int_equal(stk_loader_release(rank->loader, &batch), 0);
}

static void
sleep_when_idle(const char *comm)
{
    struct job job = job_of(comm, 4);

    job.work = pause_midway;
    job_run(&job);
    assert_int_equal(job_origin_bytes(&job), set.bytes);
    /* A hundredth of a core for each engine. */
    if (!IS_SANITIZED)
        assert_true(used_us <= IDLE_MS * 1000 / 100 * job.world);
}

static void
idle_ranks_sleep(void **state)
{
    (void)state;
    for (const char *const *comm = comms(); *comm; comm++)
        sleep_when_idle(*comm);
}

/* ---- coming and going ---- */

static uint64_t
count_entries(const char *path)
{
    DIR *dir = opendir(path);
    uint64_t n = 0;

    assert_non_null(dir);
    while (readdir(dir))
        n++;
    assert_int_equal(closedir(dir), 0);
    return n;
}

struct holdings {
    uint64_t n_files;
    uint64_t n_threads;
    uint64_t heap_bytes;
};

static struct holdings
look(void)
{
    struct mallinfo2 info = mallinfo2();

    return (struct holdings){
        .n_files = count_entries("/proc/self/fd"),
        .n_threads = count_entries("/proc/self/task"),
        .heap_bytes = info.uordblks + info.hblkhd,
    };
}

#define LONG_S 3000

static uint64_t
cycles(uint64_t standard)
{
    if (!getenv("STOKER_TEST_LONG"))
        return standard;
    (void)alarm(LONG_S); /* more than the watchdog gives */
    return 10000;
}

/* After a start, which loads what is loaded once, n more hold no more than some. */
static void
come_and_go(const char *comm, uint64_t n)
{
    struct holdings before = {0}, after;

    for (uint64_t at = 0; at < n; at++) {
        struct job job = job_of(comm, 2);

        job.opts.epochs = 1;
        job_run(&job);
        assert_int_equal(job_origin_bytes(&job), set.bytes);
        if (at == n / 10)
            before = look();
    }
    after = look();
    print_message("%s, %lu cycles: %lu files, %lu threads, %ld bytes more\n", comm,
                  (unsigned long)n, (unsigned long)after.n_files, (unsigned long)after.n_threads,
                  (long)(after.heap_bytes - before.heap_bytes));
    assert_int_equal(after.n_files, before.n_files);
    assert_int_equal(after.n_threads, before.n_threads);
    /* An allocator keeps some for the threads that were. */
    if (!IS_SANITIZED)
        assert_true(after.heap_bytes <= before.heap_bytes + 16 * 1024);
}

static void
nothing_is_left_behind(void **state)
{
    (void)state;
    for (const char *const *comm = comms(); *comm; comm++)
        come_and_go(*comm, cycles(IS_SANITIZED ? 40 : 200));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_ranks_sleep),
        cmocka_unit_test(nothing_is_left_behind),
    };

    return cmocka_run_group_tests(tests, make_set, remove_set);
}
