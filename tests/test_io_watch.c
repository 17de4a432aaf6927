/* SPDX-License-Identifier: Apache-2.0 */
/* A watched descriptor ends the owner's wait with every method, and only while it is
 * readable and watched. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/pool.h"
#include "io/aio.h"

#define SHORT_NS UINT64_C(20000000)
#define LONG_NS (100 * STI_NS_PER_S)

static struct sti_pool *pool;

static struct sti_aio *
open_aio(const char *method)
{
    const struct sti_aio_opts opts = {
        .method = method, .pool = pool, .queue_depth = 4, .max_open_files = 4};
    struct sti_aio *aio = NULL;

    return sti_aio_open(&aio, &opts, NULL) < 0 ? NULL : aio;
}

static void
ring(int fd)
{
    const uint64_t one = 1;

    assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
}

static void
quiet(int fd)
{
    uint64_t count;

    assert_int_equal(read(fd, &count, sizeof(count)), sizeof(count));
}

static void *
ring_later(void *fd)
{
    const struct timespec time = {.tv_nsec = (long)SHORT_NS};

    (void)nanosleep(&time, NULL);
    ring(*(int *)fd);
    return NULL;
}

static uint64_t
wait_took(struct sti_aio *aio, uint64_t timeout_ns)
{
    uint64_t began_ns = sti_clock_ns();

    (void)sti_aio_wait(aio, timeout_ns);
    return sti_clock_ns() - began_ns;
}

/* Whether waits last in the end: what is left of an earlier watch may end a few. */
static bool
settles(struct sti_aio *aio)
{
    for (int at = 0; at < 4; at++)
        if (wait_took(aio, SHORT_NS) >= SHORT_NS)
            return true;
    return false;
}

static void
check_method(const char *method)
{
    struct sti_aio *aio = open_aio(method);
    pthread_t thread;

    if (!aio)
        return; /* not on this machine */
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(fd >= 0);
    for (int round = 0; round < 3; round++) {
        sti_aio_watch(aio, fd);
        assert_int_equal(pthread_create(&thread, NULL, ring_later, &fd), 0);
        assert_true(wait_took(aio, LONG_NS) < LONG_NS);
        assert_int_equal(pthread_join(thread, NULL), 0);
        /* As long as nobody has read it, every wait ends. */
        assert_true(wait_took(aio, LONG_NS) < LONG_NS);
        quiet(fd);
        assert_true(settles(aio));
        /* Wakes go on as ever. */
        sti_aio_wake(aio);
        assert_true(wait_took(aio, LONG_NS) < LONG_NS);
        sti_aio_watch(aio, -1);
        ring(fd);
        assert_true(settles(aio));
        quiet(fd);
    }
    sti_aio_watch(aio, fd);
    ring(fd);
    sti_aio_close(aio);
    assert_int_equal(close(fd), 0);
}

static void
a_watched_descriptor_ends_waits(void **state)
{
    const char *wanted = getenv("STOKER_TEST_METHODS");

    (void)state;
    if (!wanted || strstr(wanted, "uring"))
        check_method("uring");
    check_method("sync");
}

static void
count_done(struct sti_aio_op *op)
{
    ++*(int *)op->context;
}

/* A descriptor that stays readable whatever is done ends every wait; reads come all the same,
 * within a time, which is long where a machine is busy. */
static void
readable_for_ever(const char *method)
{
    enum { READS = 4 };
    static char bytes[READS][4096] __attribute__((aligned(4096)));
    struct sti_aio *aio = open_aio(method);
    char path[] = "/tmp/stoker-watch-XXXXXX";
    struct sti_aio_op ops[READS];
    int n_done = 0;

    if (!aio)
        return;
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, bytes[0], sizeof(bytes[0])), sizeof(bytes[0]));
    assert_int_equal(fsync(file), 0);
    int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(fd >= 0);
    sti_aio_watch(aio, fd);
    for (int round = 1; round <= 20; round++) {
        for (int at = 0; at < READS; at++) {
            ops[at] = (struct sti_aio_op){.kind = STI_AIO_READ_FILE,
                                          .dir_fd = AT_FDCWD,
                                          .path = path,
                                          .open_flags = O_RDONLY | O_DIRECT,
                                          .bytes = bytes[at],
                                          .n_bytes = sizeof(bytes[at]),
                                          .done = count_done,
                                          .context = &n_done};
            sti_aio_submit(aio, &ops[at]);
        }
        uint64_t until_ns = sti_clock_ns() + LONG_NS / 5;

        while (n_done < READS * round && sti_clock_ns() < until_ns)
            (void)sti_aio_wait(aio, LONG_NS);
        assert_int_equal(n_done, READS * round);
    }
    sti_aio_watch(aio, -1);
    sti_aio_close(aio);
    assert_int_equal(close(fd), 0);
    assert_int_equal(close(file), 0);
    (void)unlink(path);
}

static void
what_stays_readable_starves_nothing(void **state)
{
    const char *wanted = getenv("STOKER_TEST_METHODS");

    (void)state;
    if (!wanted || strstr(wanted, "uring"))
        readable_for_ever("uring");
    readable_for_ever("sync");
}

static int
open_pool(void **state)
{
    (void)state;
    return sti_pool_open(&pool, 1, 1);
}

static int
close_pool(void **state)
{
    (void)state;
    sti_pool_close(pool);
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_watched_descriptor_ends_waits),
        cmocka_unit_test(what_stays_readable_starves_nothing),
    };

    return cmocka_run_group_tests(tests, open_pool, close_pool);
}
