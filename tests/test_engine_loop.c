/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: steps run when they must and not otherwise, calls run on its thread, and a
 * task that was detached never runs again. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "engine/loop.h"
#include "engine/memory_limit.h"

static struct sti_pool *pool;

static struct sti_loop *
open_loop(void)
{
    const struct sti_aio_opts opts = {
        .method = "sync", .pool = pool, .queue_depth = 4, .max_open_files = 4};
    struct sti_loop *loop;

    assert_int_equal(sti_loop_open(&loop, &opts, NULL), 0);
    return loop;
}

struct counter {
    uint32_t n; /* atomic */
    uint32_t again;
    uint64_t delay_ns;
    pthread_t thread;
};

static uint64_t
step(void *context)
{
    struct counter *counter = context;

    counter->thread = pthread_self();
    (void)__atomic_add_fetch(&counter->n, 1, __ATOMIC_ACQ_REL);
    if (counter->again > 0) {
        counter->again--;
        return counter->delay_ns;
    }
    return UINT64_MAX;
}

static uint32_t
steps_of(struct counter *counter)
{
    return __atomic_load_n(&counter->n, __ATOMIC_ACQUIRE);
}

static void
pause_ms(long ms)
{
    const struct timespec time = {.tv_nsec = ms * 1000000};

    (void)nanosleep(&time, NULL);
}

static void
wait_for(struct counter *counter, uint32_t n)
{
    while (steps_of(counter) < n)
        pause_ms(1);
}

static void
steps_run_as_they_ask(void **state)
{
    struct sti_loop *loop = open_loop();
    struct counter now = {.again = 100}, later = {.again = 3, .delay_ns = 2000000};
    struct sti_task first = {.step = step, .context = &now};
    struct sti_task second = {.step = step, .context = &later};

    (void)state;
    sti_loop_attach(loop, &first);
    wait_for(&now, 101);
    sti_loop_attach(loop, &second);
    wait_for(&later, 4);
    pause_ms(20);
    uint32_t before = steps_of(&now);
    pause_ms(50);
    assert_int_equal(steps_of(&now), before); /* nobody asks: nothing runs */
    sti_loop_wake(loop);
    wait_for(&now, before + 1);
    sti_loop_detach(loop, &first);
    before = steps_of(&now);
    uint32_t others = steps_of(&later);
    sti_loop_wake(loop);
    wait_for(&later, others + 1);
    assert_int_equal(steps_of(&now), before);
    sti_loop_detach(loop, &second);
    sti_loop_detach(loop, &second); /* not attached: nothing happens */
    sti_loop_close(loop);
    sti_loop_close(NULL);
}

static void
note_thread(void *context)
{
    *(pthread_t *)context = pthread_self();
}

static void *
call_often(void *context)
{
    pthread_t thread;

    for (int at = 0; at < 300; at++)
        sti_loop_call(context, note_thread, &thread);
    return NULL;
}

static void
calls_run_on_the_loop(void **state)
{
    struct sti_loop *loop = open_loop();
    struct counter counter = {.again = 0};
    struct sti_task task = {.step = step, .context = &counter};
    pthread_t callers[4], thread;

    (void)state;
    sti_loop_attach(loop, &task);
    wait_for(&counter, 1);
    sti_loop_call(loop, note_thread, &thread);
    assert_false(pthread_equal(thread, pthread_self()));
    for (int at = 0; at < 4; at++)
        assert_int_equal(pthread_create(&callers[at], NULL, call_often, loop), 0);
    for (int at = 0; at < 4; at++)
        assert_int_equal(pthread_join(callers[at], NULL), 0);
    sti_loop_detach(loop, &task);
    assert_true(pthread_equal(thread, counter.thread));
    sti_loop_close(loop);
}

static void
a_loop_without_a_method_does_not_open(void **state)
{
    const struct sti_aio_opts opts = {
        .method = "none", .pool = pool, .queue_depth = 4, .max_open_files = 4};
    struct sti_loop *loop = NULL;
    stk_error err;

    (void)state;
    assert_int_equal(sti_loop_open(&loop, &opts, &err), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
    assert_null(loop);
}

static void
the_memory_limit_is_some(void **state)
{
    (void)state;
    assert_true(sti_memory_limit_bytes() >= UINT64_C(1) << 20);
    assert_true(sti_memory_limit_bytes() < UINT64_C(1) << 60);
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
        cmocka_unit_test(steps_run_as_they_ask),
        cmocka_unit_test(calls_run_on_the_loop),
        cmocka_unit_test(a_loop_without_a_method_does_not_open),
        cmocka_unit_test(the_memory_limit_is_some),
    };

    return cmocka_run_group_tests(tests, open_pool, close_pool);
}
