/* SPDX-License-Identifier: Apache-2.0 */
/* Threads: every signal blocked, mutexes in rising rank, conditions on the monotonic
 * clock. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/thread.h"

#define MS UINT64_C(1000000)

struct seen {
    sigset_t mask;
    sem_t go;
};

static void *
look_at_mask(void *context)
{
    struct seen *seen = context;

    (void)pthread_sigmask(SIG_SETMASK, NULL, &seen->mask); /* only reads */
    while (sem_wait(&seen->go) != 0)
        continue; /* interrupted by a debugger */
    return NULL;
}

/* All but those that nobody can block, and the two that the C library keeps to itself. */
static void
test_every_signal_is_blocked(void **state)
{
    struct seen seen;
    sigset_t before, after;
    pthread_t thread;
    char name[16];
    (void)state;

    assert_int_equal(sem_init(&seen.go, 0, 0), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
    assert_int_equal(sti_thread_start(&thread, "stk-test", 64 << 10, look_at_mask, &seen), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    assert_int_equal(pthread_getname_np(thread, name, sizeof(name)), 0);
    assert_string_equal(name, "stk-test");
    assert_int_equal(sem_post(&seen.go), 0);
    sti_thread_join(thread);
    for (int signal = 1; signal <= SIGRTMAX; signal++) {
        if (signal == SIGKILL || signal == SIGSTOP || (signal > 31 && signal < SIGRTMIN))
            continue;
        assert_int_equal(sigismember(&seen.mask, signal), 1);
        assert_int_equal(sigismember(&after, signal), sigismember(&before, signal));
    }
}

/* In a child of its own: takes two mutexes, first then second. Returns how the child
 * ended. */
static int
take_two(enum sti_lock_rank first, enum sti_lock_rank second)
{
    struct sti_mutex one, two;
    int status;

    assert_int_equal(sti_mutex_init(&one, first), 0);
    assert_int_equal(sti_mutex_init(&two, second), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* no core of what is meant */
        (void)signal(SIGABRT, SIG_DFL);
        (void)close(STDERR_FILENO);
        sti_mutex_lock(&one);
        sti_mutex_lock(&two);
        sti_mutex_unlock(&one); /* any order */
        sti_mutex_unlock(&two);
        sti_mutex_lock(&one); /* nothing is held any more */
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    sti_mutex_fini(&one);
    sti_mutex_fini(&two);
    return status;
}

static void
test_rising_ranks_are_fine(void **state)
{
    (void)state;
    assert_int_equal(take_two(STI_RANK_ENGINE, STI_RANK_LEAF), 0);
    assert_int_equal(take_two(STI_RANK_AIO, STI_RANK_POOL), 0);
}

static void
test_falling_and_equal_ranks_abort(void **state)
{
    static const enum sti_lock_rank pairs[][2] = {{STI_RANK_POOL, STI_RANK_ENGINE},
                                                  {STI_RANK_LEAF, STI_RANK_POOL},
                                                  {STI_RANK_LEAF, STI_RANK_LEAF}};
    (void)state;

#ifdef NDEBUG
    (void)pairs; /* release builds do not look: both simply work */
    assert_int_equal(take_two(STI_RANK_LEAF, STI_RANK_POOL), 0);
#else
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        int status = take_two(pairs[i][0], pairs[i][1]);

        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGABRT);
    }
#endif
}

struct shared {
    struct sti_mutex lock;
    struct sti_cond cond;
    uint64_t count;
    uint32_t n_waiting;
    uint32_t n_woken;
    bool is_open;
};

static void
shared_init(struct shared *shared)
{
    memset(shared, 0, sizeof(*shared));
    assert_int_equal(sti_mutex_init(&shared->lock, STI_RANK_LEAF), 0);
    assert_int_equal(sti_cond_init(&shared->cond), 0);
}

static void
shared_fini(struct shared *shared)
{
    sti_cond_fini(&shared->cond);
    sti_mutex_fini(&shared->lock);
}

static void *
count_up(void *context)
{
    struct shared *shared = context;

    for (int i = 0; i < 20000; i++) {
        sti_mutex_lock(&shared->lock);
        shared->count++;
        sti_mutex_unlock(&shared->lock);
    }
    return NULL;
}

static void
test_a_mutex_excludes(void **state)
{
    struct shared shared;
    pthread_t threads[4];
    (void)state;

    shared_init(&shared);
    for (int i = 0; i < 4; i++)
        assert_int_equal(sti_thread_start(&threads[i], "count", 0, count_up, &shared), 0);
    for (int i = 0; i < 4; i++)
        sti_thread_join(threads[i]);
    assert_int_equal(shared.count, 80000);
    shared_fini(&shared);
}

/* Nobody signals: not before its time, and the lock is held again. */
static void
test_a_wait_ends_at_its_deadline(void **state)
{
    struct shared shared;
    (void)state;

    shared_init(&shared);
    sti_mutex_lock(&shared.lock);
    uint64_t deadline_ns = sti_clock_ns() + 30 * MS;
    int rc;
    while ((rc = sti_cond_wait_until(&shared.cond, &shared.lock, deadline_ns)) == 0)
        continue; /* spurious */
    assert_int_equal(rc, -ETIMEDOUT);
    assert_true(sti_clock_ns() >= deadline_ns);
    assert_int_equal(sti_cond_wait_until(&shared.cond, &shared.lock, 0), -ETIMEDOUT);
    sti_mutex_unlock(&shared.lock);
    shared_fini(&shared);
}

static void *
wait_for_opening(void *context)
{
    struct shared *shared = context;
    uint64_t far_ns = sti_clock_ns() + 60 * STI_NS_PER_S;

    sti_mutex_lock(&shared->lock);
    shared->n_waiting++;
    while (!shared->is_open)
        if (shared->n_waiting % 2)
            sti_cond_wait(&shared->cond, &shared->lock);
        else if (sti_cond_wait_until(&shared->cond, &shared->lock, far_ns) != 0)
            break;
    shared->n_woken += shared->is_open;
    sti_mutex_unlock(&shared->lock);
    return NULL;
}

static void
test_a_broadcast_wakes_all(void **state)
{
    struct shared shared;
    pthread_t threads[4];
    (void)state;

    shared_init(&shared);
    for (int i = 0; i < 4; i++)
        assert_int_equal(sti_thread_start(&threads[i], "wait", 0, wait_for_opening, &shared), 0);
    for (uint32_t n_waiting = 0; n_waiting < 4;) {
        sti_mutex_lock(&shared.lock);
        n_waiting = shared.n_waiting;
        shared.is_open = n_waiting == 4;
        if (shared.is_open)
            sti_cond_broadcast(&shared.cond);
        sti_mutex_unlock(&shared.lock);
    }
    for (int i = 0; i < 4; i++)
        sti_thread_join(threads[i]);
    assert_int_equal(shared.n_woken, 4);
    shared_fini(&shared);
}

static void
test_the_clock_rises(void **state)
{
    uint64_t last_ns = sti_clock_ns();
    (void)state;

    for (int i = 0; i < 1000; i++) {
        uint64_t now_ns = sti_clock_ns();

        assert_true(now_ns >= last_ns);
        last_ns = now_ns;
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_signal_is_blocked),
        cmocka_unit_test(test_rising_ranks_are_fine),
        cmocka_unit_test(test_falling_and_equal_ranks_abort),
        cmocka_unit_test(test_a_mutex_excludes),
        cmocka_unit_test(test_a_wait_ends_at_its_deadline),
        cmocka_unit_test(test_a_broadcast_wakes_all),
        cmocka_unit_test(test_the_clock_rises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
