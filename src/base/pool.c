/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool. One mutex covers all lanes; jobs are short lists in their submitters' memory,
 * so submitting allocates nothing. Invariant: a queued job is in exactly one lane, and a
 * sleeping thread of a group means that the group's lanes were empty when it looked under
 * the lock.
 *
 * A job may submit others, to any lane, also while the pool closes: so no thread leaves
 * before the last job of all lanes has ended, even if its own lanes are empty.
 *
 * Threads that enter: any (submit), the pool's own (serve). Lock order: the pool's mutex
 * is taken last (STI_RANK_POOL) and never held while a job runs.
 */
#include "base/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>

#include "base/mem.h"
#include "base/thread.h"

#define MAX_THREADS 256 /* of each kind */

/* I/O threads only make system calls. CPU threads run callbacks of the program, which may
 * expect as much as a thread usually has. */
#define IO_STACK_BYTES ((size_t)256 << 10)
#define CPU_STACK_BYTES ((size_t)0)

struct lane {
    struct sti_job *first;
    struct sti_job **last;
};

/* A thread, and the job that it runs (the pool's lock covers it), NULL without one. The
 * pointer is only compared: the job may have freed itself. */
struct worker {
    struct sti_pool *pool;
    pthread_t thread;
    const struct sti_job *job;
};

/* A group of threads that serve the same lanes. */
struct group {
    struct sti_cond work; /* signalled when a lane of the group got a job, or at the end */
    uint32_t n_idle;      /* threads that wait for work and were not signalled yet */
    uint32_t lanes;       /* bit set of enum sti_lane */
};

struct sti_pool {
    struct sti_mutex lock;
    struct lane lanes[STI_LANES] STI_GUARDED_BY(&lock);
    struct group cpu STI_GUARDED_BY(&lock);
    struct group io STI_GUARDED_BY(&lock);
    uint64_t n_unfinished STI_GUARDED_BY(&lock);  /* jobs queued or running */
    uint32_t n_withdrawing STI_GUARDED_BY(&lock); /* callers that wait for a job to end */
    struct sti_cond ended; /* broadcast at the end of a job while somebody waits */
    bool is_closing STI_GUARDED_BY(&lock);
    uint32_t n_cpu;
    uint32_t n_io;
    uint32_t n_started;
    struct worker workers[];
};

/* Takes the next job that threads of a group may run off its lane; NULL: there is
 * none. */
static struct sti_job *
take_locked(struct sti_pool *pool, const struct group *group) STI_REQUIRES(&pool->lock)
{
    /* Most urgent first; the I/O lane comes after the urgent one where CPU threads serve
     * it. */
    static const enum sti_lane by_urgency[STI_LANES] = {STI_LANE_URGENT, STI_LANE_IO,
                                                        STI_LANE_NORMAL, STI_LANE_BACKGROUND};

    for (uint32_t at = 0; at < STI_LANES; at++) {
        struct lane *lane = &pool->lanes[by_urgency[at]];
        struct sti_job *job = lane->first;

        if (!job || !(group->lanes & (UINT32_C(1) << by_urgency[at])))
            continue;
        lane->first = job->next;
        if (!lane->first)
            lane->last = &lane->first;
        return job;
    }
    return NULL;
}

/* Runs a job without the lock and counts it as ended. */
static void
run_locked(struct sti_pool *pool, struct worker *self, struct sti_job *job)
    STI_REQUIRES(&pool->lock)
{
    self->job = job;
    sti_mutex_unlock(&pool->lock);
    job->fn(job);
    sti_mutex_lock(&pool->lock);
    self->job = NULL;
    if (pool->n_withdrawing > 0)
        sti_cond_broadcast(&pool->ended);
    pool->n_unfinished--;
    if (pool->is_closing && pool->n_unfinished == 0) {
        sti_cond_broadcast(&pool->cpu.work);
        sti_cond_broadcast(&pool->io.work);
    }
}

static void
serve(struct worker *self, struct group *group)
{
    struct sti_pool *pool = self->pool;

    sti_mutex_lock(&pool->lock);
    for (;;) {
        struct sti_job *job = take_locked(pool, group);

        if (job) {
            run_locked(pool, self, job);
            continue;
        }
        if (pool->is_closing && pool->n_unfinished == 0)
            break;
        group->n_idle++;
        sti_cond_wait(&group->work, &pool->lock);
        /* A signal took one off n_idle; a spurious wake may leave it one too high, which
         * costs a signal to nobody and never a job that is not served. */
    }
    sti_mutex_unlock(&pool->lock);
}

static void *
cpu_main(void *context)
{
    struct worker *self = context;

    serve(self, &self->pool->cpu);
    return NULL;
}

static void *
io_main(void *context)
{
    struct worker *self = context;

    serve(self, &self->pool->io);
    return NULL;
}

static int
start_threads(struct sti_pool *pool)
{
    for (uint32_t idx = 0; idx < pool->n_cpu + pool->n_io; idx++) {
        bool is_cpu = idx < pool->n_cpu;
        struct worker *worker = &pool->workers[idx];

        worker->pool = pool;
        int rc = sti_thread_start(&worker->thread, is_cpu ? "stk-cpu" : "stk-io",
                                  is_cpu ? CPU_STACK_BYTES : IO_STACK_BYTES,
                                  is_cpu ? cpu_main : io_main, worker);
        if (rc < 0)
            return rc;
        pool->n_started++;
    }
    return 0;
}

/* Nobody else knows the pool yet, so its lock is not there either. */
static void
set_up_lanes(struct sti_pool *pool) STI_NO_ANALYSIS
{
    uint32_t io_lane = UINT32_C(1) << STI_LANE_IO;
    uint32_t all_lanes = (UINT32_C(1) << STI_LANES) - 1;

    for (uint32_t lane = 0; lane < STI_LANES; lane++)
        pool->lanes[lane].last = &pool->lanes[lane].first;
    pool->io.lanes = io_lane;
    pool->cpu.lanes = pool->n_io > 0 ? all_lanes & ~io_lane : all_lanes;
}

int
sti_pool_open(struct sti_pool **ret_pool, uint32_t cpu_threads, uint32_t io_threads)
{
    assert(cpu_threads >= 1 && cpu_threads <= MAX_THREADS && io_threads <= MAX_THREADS);
    struct sti_pool *pool =
        sti_mem_new(1, sizeof(*pool) + (cpu_threads + io_threads) * sizeof(pool->workers[0]));
    int rc;

    if (!pool)
        return -ENOMEM;
    pool->n_cpu = cpu_threads;
    pool->n_io = io_threads;
    set_up_lanes(pool);
    rc = sti_mutex_init(&pool->lock, STI_RANK_POOL);
    if (rc < 0)
        goto err_free;
    rc = sti_cond_init(&pool->cpu.work);
    if (rc < 0)
        goto err_lock;
    rc = sti_cond_init(&pool->io.work);
    if (rc < 0)
        goto err_cpu_cond;
    rc = sti_cond_init(&pool->ended);
    if (rc < 0)
        goto err_io_cond;
    rc = start_threads(pool);
    if (rc < 0) {
        sti_pool_close(pool);
        return rc;
    }
    *ret_pool = pool;
    return 0;

err_io_cond:
    sti_cond_fini(&pool->io.work);
err_cpu_cond:
    sti_cond_fini(&pool->cpu.work);
err_lock:
    sti_mutex_fini(&pool->lock);
err_free:
    sti_mem_free(pool);
    return rc;
}

void
sti_pool_close(struct sti_pool *pool)
{
    if (!pool)
        return;
    sti_mutex_lock(&pool->lock);
    pool->is_closing = true;
    sti_cond_broadcast(&pool->cpu.work);
    sti_cond_broadcast(&pool->io.work);
    sti_mutex_unlock(&pool->lock);
    for (uint32_t idx = 0; idx < pool->n_started; idx++)
        sti_thread_join(pool->workers[idx].thread);
    sti_cond_fini(&pool->ended);
    sti_cond_fini(&pool->io.work);
    sti_cond_fini(&pool->cpu.work);
    sti_mutex_fini(&pool->lock);
    sti_mem_free(pool);
}

void
sti_pool_submit(struct sti_pool *pool, enum sti_lane lane_idx, struct sti_job *first, uint32_t n)
{
    struct sti_job *last = first;

    if (n == 0)
        return;
    for (uint32_t at = 1; at < n; at++)
        last = last->next;
    last->next = NULL;
    sti_mutex_lock(&pool->lock);
    struct lane *lane = &pool->lanes[lane_idx];
    struct group *group =
        pool->io.lanes & (UINT32_C(1) << lane_idx) && pool->n_io > 0 ? &pool->io : &pool->cpu;

    *lane->last = first;
    lane->last = &last->next;
    pool->n_unfinished += n;
    uint32_t n_wake = group->n_idle < n ? group->n_idle : n;
    group->n_idle -= n_wake;
    for (uint32_t at = 0; at < n_wake; at++)
        sti_cond_signal(&group->work);
    sti_mutex_unlock(&pool->lock);
}

/* Takes a job off the lane it waits in; false if it waits in none. */
static bool
unqueue_locked(struct sti_pool *pool, struct sti_job *job) STI_REQUIRES(&pool->lock)
{
    for (uint32_t at = 0; at < STI_LANES; at++) {
        struct lane *lane = &pool->lanes[at];
        struct sti_job **link = &lane->first;

        while (*link && *link != job)
            link = &(*link)->next;
        if (!*link)
            continue;
        *link = job->next;
        if (!*link)
            lane->last = link;
        return true;
    }
    return false;
}

void
sti_pool_hurry(struct sti_pool *pool, struct sti_job *job)
{
    sti_mutex_lock(&pool->lock);
    if (unqueue_locked(pool, job)) {
        struct lane *lane = &pool->lanes[STI_LANE_URGENT];

        job->next = NULL;
        *lane->last = job;
        lane->last = &job->next;
    }
    sti_mutex_unlock(&pool->lock);
}

static bool
is_running_locked(const struct sti_pool *pool, const struct sti_job *job) STI_REQUIRES(&pool->lock)
{
    for (uint32_t idx = 0; idx < pool->n_cpu + pool->n_io; idx++)
        if (pool->workers[idx].job == job)
            return true;
    return false;
}

void
sti_pool_withdraw(struct sti_pool *pool, struct sti_job *job)
{
    sti_mutex_lock(&pool->lock);
    /* One that runs may have queued itself again by the time it ends. */
    for (;;) {
        if (unqueue_locked(pool, job))
            pool->n_unfinished--;
        if (!is_running_locked(pool, job))
            break;
        pool->n_withdrawing++;
        sti_cond_wait(&pool->ended, &pool->lock);
        pool->n_withdrawing--;
    }
    sti_mutex_unlock(&pool->lock);
}

uint32_t
sti_pool_cpu_threads(const struct sti_pool *pool)
{
    return pool->n_cpu;
}
