/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads, mutexes and conditions. A mutex has a rank; a thread takes mutexes in rising
 * rank only and never two of one rank, which debug builds assert. Every thread started
 * here blocks all signals, so that a program's handlers run on its own threads.
 */
#ifndef STI_BASE_THREAD_H
#define STI_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#if defined(__clang__)
#define STI_CAPABILITY(name) __attribute__((capability(name)))
#define STI_REQUIRES(lock) __attribute__((requires_capability(lock)))
#define STI_ACQUIRE(lock) __attribute__((acquire_capability(lock)))
#define STI_RELEASE(lock) __attribute__((release_capability(lock)))
#define STI_NO_ANALYSIS __attribute__((no_thread_safety_analysis))
#else
#define STI_CAPABILITY(name)
#define STI_REQUIRES(lock)
#define STI_ACQUIRE(lock)
#define STI_RELEASE(lock)
#define STI_NO_ANALYSIS
#endif
/* Members are checked from clang 22 on; older ones take the attribute in C++ only. */
#if defined(__clang__) && __clang_major__ >= 22
#define STI_GUARDED_BY(lock) __attribute__((guarded_by(lock)))
#else
#define STI_GUARDED_BY(lock)
#endif

/* Lock order of the library: a thread that holds one may take only those below it
 * here. */
enum sti_lock_rank {
    STI_RANK_ENGINE = 1,
    STI_RANK_LOADER,
    STI_RANK_CKPT,
    STI_RANK_VOTE,
    STI_RANK_AIO,
    STI_RANK_POOL,
    STI_RANK_LEAF,
};

struct STI_CAPABILITY("mutex") sti_mutex {
    pthread_mutex_t mutex;
    uint32_t rank;
};

struct sti_cond {
    pthread_cond_t cond;
};

/* Errors: -ENOMEM, -EAGAIN. */
int
sti_mutex_init(struct sti_mutex *mutex, enum sti_lock_rank rank);
void
sti_mutex_fini(struct sti_mutex *mutex);
void
sti_mutex_lock(struct sti_mutex *mutex) STI_ACQUIRE(*mutex);
void
sti_mutex_unlock(struct sti_mutex *mutex) STI_RELEASE(*mutex);

/* A condition on the monotonic clock. Errors: -ENOMEM, -EAGAIN. */
int
sti_cond_init(struct sti_cond *cond);
void
sti_cond_fini(struct sti_cond *cond);

/* Waits; wakes may be spurious. */
void
sti_cond_wait(struct sti_cond *cond, struct sti_mutex *mutex) STI_REQUIRES(*mutex);

/* Waits until a monotonic time at most. Returns 0 or -ETIMEDOUT. */
int
sti_cond_wait_until(struct sti_cond *cond, struct sti_mutex *mutex, uint64_t deadline_ns)
    STI_REQUIRES(*mutex);
void
sti_cond_signal(struct sti_cond *cond);
void
sti_cond_broadcast(struct sti_cond *cond);

typedef void *(*sti_thread_fn)(void *context);

/*
 * Starts a thread with every signal blocked. name: at most 15 characters, shown by tools.
 * stack_bytes: 0 for the system's default. Errors: -EAGAIN, -ENOMEM.
 */
int
sti_thread_start(pthread_t *ret_thread, const char *name, size_t stack_bytes, sti_thread_fn fn,
                 void *context);
void
sti_thread_join(pthread_t thread);

/* Lets others run. */
void
sti_thread_yield(void);

/* Blocks every signal on this thread, and gives its mask back: what a library starts in
 * between, with threads of its own, has them blocked. Between the two nothing waits for a
 * signal. */
void
sti_thread_block_signals(sigset_t *ret_old);
void
sti_thread_restore_signals(const sigset_t *old);

#endif
