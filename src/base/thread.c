/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads. The rank check keeps the ranks that a thread holds as bits of one word: the
 * lowest rank that may still be taken is above the highest bit set. What pthread reports
 * here are bugs (deadlock, not owned), so they are asserted, not returned.
 */
#include "base/thread.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#include "base/clock.h"

#ifndef NDEBUG
static _Thread_local uint32_t held_ranks;
#endif

static void
rank_take(const struct sti_mutex *mutex)
{
#ifndef NDEBUG
    assert((held_ranks >> mutex->rank) == 0 && "mutexes are taken in rising rank");
    held_ranks |= UINT32_C(1) << mutex->rank;
#else
    (void)mutex;
#endif
}

static void
rank_drop(const struct sti_mutex *mutex)
{
#ifndef NDEBUG
    assert(held_ranks & (UINT32_C(1) << mutex->rank));
    held_ranks &= ~(UINT32_C(1) << mutex->rank);
#else
    (void)mutex;
#endif
}

int
sti_mutex_init(struct sti_mutex *mutex, enum sti_lock_rank rank)
{
    mutex->rank = (uint32_t)rank;
    return -pthread_mutex_init(&mutex->mutex, NULL);
}

void
sti_mutex_fini(struct sti_mutex *mutex)
{
    int rc = pthread_mutex_destroy(&mutex->mutex);

    assert(rc == 0);
    (void)rc;
}

void
sti_mutex_lock(struct sti_mutex *mutex) STI_NO_ANALYSIS
{
    rank_take(mutex);
    int rc = pthread_mutex_lock(&mutex->mutex);
    assert(rc == 0);
    (void)rc;
}

void
sti_mutex_unlock(struct sti_mutex *mutex) STI_NO_ANALYSIS
{
    /* Before the unlock: behind it another thread may end the mutex's life. */
    rank_drop(mutex);
    int rc = pthread_mutex_unlock(&mutex->mutex);

    assert(rc == 0);
    (void)rc;
}

int
sti_cond_init(struct sti_cond *cond)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);

    if (rc != 0)
        return -rc;
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* cannot fail for this clock */
    rc = pthread_cond_init(&cond->cond, &attr);
    (void)pthread_condattr_destroy(&attr); /* never fails on Linux */
    return -rc;
}

void
sti_cond_fini(struct sti_cond *cond)
{
    (void)pthread_cond_destroy(&cond->cond); /* never fails on Linux */
}

void
sti_cond_wait(struct sti_cond *cond, struct sti_mutex *mutex)
{
    int rc = pthread_cond_wait(&cond->cond, &mutex->mutex);

    assert(rc == 0);
    (void)rc;
}

int
sti_cond_wait_until(struct sti_cond *cond, struct sti_mutex *mutex, uint64_t deadline_ns)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / STI_NS_PER_S),
                             .tv_nsec = (long)(deadline_ns % STI_NS_PER_S)};
    int rc = pthread_cond_timedwait(&cond->cond, &mutex->mutex, &until);

    assert(rc == 0 || rc == ETIMEDOUT);
    return -rc;
}

void
sti_cond_signal(struct sti_cond *cond)
{
    (void)pthread_cond_signal(&cond->cond); /* never fails on Linux */
}

void
sti_cond_broadcast(struct sti_cond *cond)
{
    (void)pthread_cond_broadcast(&cond->cond); /* never fails on Linux */
}

int
sti_thread_start(pthread_t *ret_thread, const char *name, size_t stack_bytes, sti_thread_fn fn,
                 void *context)
{
    pthread_attr_t attr;
    sigset_t all, old;
    int rc = pthread_attr_init(&attr);

    if (rc != 0)
        return -rc;
    if (stack_bytes > 0)
        (void)pthread_attr_setstacksize(&attr, stack_bytes); /* too small: default is used */
    (void)sigfillset(&all);                                  /* cannot fail */
    /* A thread inherits its creator's mask: full while it is made. */
    rc = pthread_sigmask(SIG_SETMASK, &all, &old);
    if (rc == 0) {
        rc = pthread_create(ret_thread, &attr, fn, context);
        (void)pthread_sigmask(SIG_SETMASK, &old, NULL); /* the mask was read a moment ago */
    }
    (void)pthread_attr_destroy(&attr); /* never fails on Linux */
    if (rc == 0)
        (void)pthread_setname_np(*ret_thread, name); /* for tools only */
    return -rc;
}

void
sti_thread_join(pthread_t thread)
{
    int rc = pthread_join(thread, NULL);

    assert(rc == 0);
    (void)rc;
}

void
sti_thread_yield(void)
{
    (void)sched_yield(); /* never fails on Linux */
}

void
sti_thread_block_signals(sigset_t *ret_old)
{
    sigset_t all;

    (void)sigfillset(&all);                            /* cannot fail */
    (void)pthread_sigmask(SIG_SETMASK, &all, ret_old); /* nor can this, with a known how */
}

void
sti_thread_restore_signals(const sigset_t *old)
{
    (void)pthread_sigmask(SIG_SETMASK, old, NULL); /* the mask was read a moment ago */
}
