/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stk_loader_next_timeout(): from storage of 80 ms a read, looks and short waits find
 * nothing and take nothing, and the time they waited is the batch's in the statistics.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <stoker/stoker.h>

#include "base/clock.h"

#define N_RECORDS 8
#define RECORD_BYTES 512
#define BATCH 4
#define MS UINT64_C(1000000)
#define READ_NS (80 * MS)

struct fixture {
    char path[64];
    stk_engine *engine;
    stk_dataset *data;
    stk_loader *loader;
};

static int
set_up(void **state)
{
    static struct fixture fixture;
    stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT, .io_method = "sync", .shape = "rlat=80ms"};
    stk_dataset_opts data_opts = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_RECORD,
                                  .record_bytes = RECORD_BYTES};
    stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL};
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = BATCH, .epochs = 1,
                            .order = &order};
    static const char bytes[N_RECORDS * RECORD_BYTES];

    (void)snprintf(fixture.path, sizeof(fixture.path), "/tmp/stoker-timeout-%d.bin", (int)getpid());
    int fd = open(fixture.path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
    assert_int_equal(close(fd), 0);
    assert_int_equal(stk_engine_open(&fixture.engine, &engine_opts, NULL), 0);
    assert_int_equal(
        stk_dataset_open(&fixture.data, fixture.engine, fixture.path, &data_opts, NULL), 0);
    assert_int_equal(stk_loader_open(&fixture.loader, fixture.engine, fixture.data, &opts, NULL),
                     0);
    *state = &fixture;
    return 0;
}

static int
tear_down(void **state)
{
    struct fixture *fixture = *state;
    char index[80];

    stk_loader_close(fixture->loader);
    stk_dataset_close(fixture->data);
    stk_engine_close(fixture->engine);
    (void)unlink(fixture->path);
    (void)snprintf(index, sizeof(index), "%s.stoker-index", fixture->path);
    (void)unlink(index); /* where one was written */
    return 0;
}

static void
check_last_error(const struct fixture *fixture, int code)
{
    stk_error err;

    assert_int_equal(stk_loader_last_error(fixture->loader, &err), 0);
    assert_int_equal(err.code, code);
    assert_true(err.message[0] != '\0');
}

static void
waits_for_the_same_batch(void **state)
{
    struct fixture *fixture = *state;
    stk_loader_stats stats = {STK_LOADER_STATS_INIT};
    stk_batch batch;
    uint64_t start_ns = sti_clock_ns();
    int n_late = 0;
    int rc;

    assert_int_equal(stk_loader_next_timeout(fixture->loader, &batch, 0), -ETIMEDOUT);
    check_last_error(fixture, -ETIMEDOUT);
    while ((rc = stk_loader_next_timeout(fixture->loader, &batch, 5 * MS)) == -ETIMEDOUT)
        n_late++;
    uint64_t waited_ns = sti_clock_ns() - start_ns;
    assert_int_equal(rc, STK_BATCH);
    assert_true(n_late >= 1);
    assert_true(waited_ns >= (uint64_t)n_late * 5 * MS);
    assert_int_equal(batch.samples[0], 0);
    assert_int_equal(batch.step, 0);
    assert_int_equal(stk_loader_release(fixture->loader, &batch), 0);

    assert_int_equal(stk_loader_get_stats(fixture->loader, UINT64_MAX, &stats), 0);
    assert_int_equal(stats.batches, 1);
    assert_true(stats.wait_ns >= (uint64_t)n_late * 5 * MS);
    assert_true(stats.wait_ns <= waited_ns);

    assert_int_equal(stk_loader_next_timeout(fixture->loader, &batch, UINT64_MAX), STK_BATCH);
    assert_int_equal(batch.samples[0], BATCH);
    assert_int_equal(stk_loader_release(fixture->loader, &batch), 0);
    assert_int_equal(stk_loader_next_timeout(fixture->loader, &batch, 0), STK_END);
}

/* An interruption comes before a batch and before the timeout, and costs neither. */
static void
interrupt_ends_a_timed_wait(void **state)
{
    struct fixture *fixture = *state;
    stk_batch batch;

    stk_loader_interrupt(fixture->loader);
    assert_int_equal(stk_loader_next_timeout(fixture->loader, &batch, READ_NS), -EINTR);
    check_last_error(fixture, -EINTR);
    assert_int_equal(stk_loader_next_timeout(fixture->loader, &batch, UINT64_MAX), STK_BATCH);
    assert_int_equal(batch.samples[0], 0);
    assert_int_equal(stk_loader_release(fixture->loader, &batch), 0);
}

static void
refuses_nothing_to_work_with(void **state)
{
    struct fixture *fixture = *state;
    stk_batch batch;

    assert_int_equal(stk_loader_next_timeout(NULL, &batch, 0), -EINVAL);
    assert_int_equal(stk_loader_next_timeout(fixture->loader, NULL, 0), -EINVAL);
    check_last_error(fixture, -EINVAL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(waits_for_the_same_batch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(interrupt_ends_a_timed_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses_nothing_to_work_with, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("api_next_timeout", tests, NULL, NULL);
}
