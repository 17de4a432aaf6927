/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool: urgency of lanes, order within one, every job exactly once however many
 * threads submit, and a close that runs what is queued and what that submits.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/pool.h"

#define N_PER_LANE 5

/* For jobs: cmocka's assertions work on the test's own thread only. */
static void
must(bool is_good)
{
    if (!is_good)
        abort();
}

/* A job that holds its thread until it is let go. */
struct gate {
    struct sti_job job;
    sem_t entered;
    sem_t go;
};

static void
gate_run(struct sti_job *job)
{
    struct gate *gate = (struct gate *)job; /* its first member */

    must(sem_post(&gate->entered) == 0);
    while (sem_wait(&gate->go) != 0)
        must(errno == EINTR);
}

static void
gate_hold(struct gate *gate, struct sti_pool *pool, enum sti_lane lane)
{
    gate->job = (struct sti_job){.fn = gate_run};
    assert_int_equal(sem_init(&gate->entered, 0, 0), 0);
    assert_int_equal(sem_init(&gate->go, 0, 0), 0);
    sti_pool_submit(pool, lane, &gate->job, 1);
    while (sem_wait(&gate->entered) != 0)
        assert_int_equal(errno, EINTR);
}

/* A job that writes down when it ran. */
struct noted {
    struct sti_job job;
    uint32_t at;
};

static atomic_uint n_noted;

static void
noted_run(struct sti_job *job)
{
    ((struct noted *)job)->at = atomic_fetch_add(&n_noted, 1);
}

/* With one thread: by urgency whatever the order of submission, and in order within a
 * lane. */
static void
test_lanes_by_urgency(void **state)
{
    static const enum sti_lane submitted[STI_LANES] = {STI_LANE_BACKGROUND, STI_LANE_IO,
                                                       STI_LANE_NORMAL, STI_LANE_URGENT};
    static const uint32_t rank[STI_LANES] = {
        [STI_LANE_URGENT] = 0, [STI_LANE_IO] = 1, [STI_LANE_NORMAL] = 2, [STI_LANE_BACKGROUND] = 3};
    struct noted jobs[STI_LANES][N_PER_LANE];
    struct sti_pool *pool;
    struct gate gate;
    (void)state;

    atomic_store(&n_noted, 0);
    assert_int_equal(sti_pool_open(&pool, 1, 0), 0);
    assert_int_equal(sti_pool_cpu_threads(pool), 1);
    gate_hold(&gate, pool, STI_LANE_NORMAL);
    for (uint32_t i = 0; i < STI_LANES; i++) {
        struct noted *lane = jobs[submitted[i]];

        for (uint32_t at = 0; at < N_PER_LANE; at++)
            lane[at].job =
                (struct sti_job){.fn = noted_run, .next = &lane[(at + 1) % N_PER_LANE].job};
        /* Two alone, the rest as one chain whose last points back at the first. */
        sti_pool_submit(pool, submitted[i], &lane[0].job, 1);
        sti_pool_submit(pool, submitted[i], &lane[1].job, 1);
        sti_pool_submit(pool, submitted[i], &lane[2].job, N_PER_LANE - 2);
        sti_pool_submit(pool, submitted[i], NULL, 0);
    }
    assert_int_equal(sem_post(&gate.go), 0);
    sti_pool_close(pool);
    assert_int_equal(atomic_load(&n_noted), STI_LANES * N_PER_LANE);
    for (uint32_t lane = 0; lane < STI_LANES; lane++)
        for (uint32_t at = 0; at < N_PER_LANE; at++)
            assert_int_equal(jobs[lane][at].at, rank[lane] * N_PER_LANE + at);
}

/* Blocked threads of one kind do not hold up the other. */
static void
test_kinds_of_threads_are_apart(void **state)
{
    struct gate cpu, cpu_next, io;
    struct sti_pool *pool;
    (void)state;

    assert_int_equal(sti_pool_open(&pool, 1, 1), 0);
    gate_hold(&cpu, pool, STI_LANE_BACKGROUND);
    gate_hold(&io, pool, STI_LANE_IO); /* would hang here */
    assert_int_equal(sem_post(&cpu.go), 0);
    gate_hold(&cpu_next, pool, STI_LANE_URGENT); /* or here */
    assert_int_equal(sem_post(&cpu_next.go), 0);
    assert_int_equal(sem_post(&io.go), 0);
    sti_pool_close(pool);
}

struct meeting {
    struct sti_job job;
    pthread_barrier_t *barrier;
};

static void
meeting_run(struct sti_job *job)
{
    int rc = pthread_barrier_wait(((struct meeting *)job)->barrier);

    must(rc == 0 || rc == PTHREAD_BARRIER_SERIAL_THREAD);
}

/* One submission of n jobs wakes n threads: these end only when all of them run at
 * once. */
static void
test_a_chain_wakes_enough_threads(void **state)
{
    enum { N_THREADS = 4, N_ROUNDS = 200 };
    pthread_barrier_t barrier;
    struct sti_pool *pool;
    (void)state;

    assert_int_equal(sti_pool_open(&pool, N_THREADS, 0), 0);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, N_THREADS + 1), 0);
    for (int round = 0; round < N_ROUNDS; round++) {
        struct meeting jobs[N_THREADS];

        for (int at = 0; at < N_THREADS; at++)
            jobs[at] = (struct meeting){
                .job = {.fn = meeting_run, .next = at + 1 < N_THREADS ? &jobs[at + 1].job : NULL},
                .barrier = &barrier};
        sti_pool_submit(pool, STI_LANE_URGENT, &jobs[0].job, N_THREADS);
        (void)pthread_barrier_wait(&barrier); /* serial or not: all have begun */
    }
    sti_pool_close(pool);
    assert_int_equal(pthread_barrier_destroy(&barrier), 0);
}

#define N_SUBMITTERS 4
#define N_COUNTED 6000

struct counted {
    struct sti_job job;
    atomic_uint n_runs;
};

struct submitter {
    struct sti_pool *pool;
    struct counted *jobs;
};

static void
counted_run(struct sti_job *job)
{
    (void)atomic_fetch_add(&((struct counted *)job)->n_runs, 1);
}

static void *
submit_all(void *context)
{
    struct submitter *submitter = context;
    uint32_t chain = 1;

    for (uint32_t at = 0; at < N_COUNTED; at += chain) {
        chain = 1 + at % 7;
        if (chain > N_COUNTED - at)
            chain = N_COUNTED - at;
        for (uint32_t i = at; i < at + chain; i++)
            submitter->jobs[i].job =
                (struct sti_job){.fn = counted_run, .next = &submitter->jobs[i + 1].job};
        sti_pool_submit(submitter->pool, (enum sti_lane)(at % STI_LANES), &submitter->jobs[at].job,
                        chain);
    }
    return NULL;
}

static void
test_many_submitters_and_a_close(void **state)
{
    static struct counted jobs[N_SUBMITTERS][N_COUNTED + 1];
    struct submitter submitters[N_SUBMITTERS];
    pthread_t threads[N_SUBMITTERS];
    struct sti_pool *pool;
    (void)state;

    assert_int_equal(sti_pool_open(&pool, 3, 2), 0);
    for (int i = 0; i < N_SUBMITTERS; i++) {
        submitters[i] = (struct submitter){pool, jobs[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, submit_all, &submitters[i]), 0);
    }
    for (int i = 0; i < N_SUBMITTERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    sti_pool_close(pool); /* most of it is still queued */
    for (int i = 0; i < N_SUBMITTERS; i++)
        for (int at = 0; at < N_COUNTED; at++)
            assert_int_equal(atomic_load(&jobs[i][at].n_runs), 1);
}

struct again {
    struct sti_job job;
    struct sti_pool *pool;
    uint32_t left;
};

static void
again_run(struct sti_job *job)
{
    struct again *again = (struct again *)job;

    if (again->left == 0)
        return;
    again->left--;
    sti_pool_submit(again->pool, (enum sti_lane)(again->left % STI_LANES), job, 1);
}

/* A job that goes from lane to lane, so from I/O to CPU threads and back, while the pool
 * closes. */
static void
test_a_closing_pool_runs_what_jobs_submit(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 200; round++) {
        struct again jobs[3];
        struct sti_pool *pool;

        assert_int_equal(sti_pool_open(&pool, 1 + round % 3, round % 2), 0);
        for (uint32_t i = 0; i < 3; i++) {
            jobs[i] = (struct again){.job = {.fn = again_run}, .pool = pool, .left = 20 + i};
            sti_pool_submit(pool, STI_LANE_IO, &jobs[i].job, 1);
        }
        sti_pool_close(pool);
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(jobs[i].left, 0);
    }
}

static void
freed_run(struct sti_job *job)
{
    (void)atomic_fetch_add(&n_noted, 1);
    free(job);
}

static void
test_a_job_may_free_itself(void **state)
{
    struct sti_pool *pool;
    (void)state;

    atomic_store(&n_noted, 0);
    assert_int_equal(sti_pool_open(&pool, 2, 1), 0);
    for (uint32_t i = 0; i < 1000; i++) {
        struct sti_job *job = malloc(sizeof(*job));

        assert_non_null(job);
        job->fn = freed_run;
        sti_pool_submit(pool, (enum sti_lane)(i % STI_LANES), job, 1);
    }
    sti_pool_close(pool);
    assert_int_equal(atomic_load(&n_noted), 1000);
}

static void
test_no_memory(void **state)
{
    struct sti_pool *pool = NULL;
    (void)state;

    sti_mem_fail_at(1, 0);
    assert_int_equal(sti_pool_open(&pool, 1, 1), -ENOMEM);
    assert_null(pool);
    sti_pool_close(NULL);
}

/* Submitting takes no memory. */
static void
test_submitting_allocates_nothing(void **state)
{
    static struct counted jobs[100];
    struct sti_pool *pool;
    (void)state;

    assert_int_equal(sti_pool_open(&pool, 1, 0), 0);
    uint64_t before = sti_mem_count();
    for (int i = 0; i < 100; i++) {
        jobs[i].job.fn = counted_run;
        sti_pool_submit(pool, STI_LANE_NORMAL, &jobs[i].job, 1);
    }
    assert_true(sti_mem_count() == before);
    sti_pool_close(pool);
}

/* Who waits for a job of the last lane has it done before those that came earlier. */
static void
test_hurried(void **state)
{
    struct noted jobs[4];
    struct sti_pool *pool;
    struct gate gate;

    (void)state;
    assert_int_equal(sti_pool_open(&pool, 1, 0), 0);
    gate_hold(&gate, pool, STI_LANE_URGENT);
    atomic_store(&n_noted, 0);
    for (int at = 0; at < 4; at++) {
        jobs[at] = (struct noted){.job = {.fn = noted_run}};
        sti_pool_submit(pool, at == 0 ? STI_LANE_NORMAL : STI_LANE_BACKGROUND, &jobs[at].job, 1);
    }
    sti_pool_hurry(pool, &jobs[3].job);
    sti_pool_hurry(pool, &gate.job); /* it runs: nothing to do */
    assert_int_equal(sem_post(&gate.go), 0);
    sti_pool_close(pool);
    assert_int_equal(jobs[3].at, 0);
    assert_int_equal(jobs[0].at, 1);
    assert_int_equal(jobs[1].at, 2);
    assert_int_equal(jobs[2].at, 3);
}

/* A job that queues itself again until it is told not to. */
struct repeated {
    struct sti_job job;
    struct sti_pool *pool;
    atomic_bool is_ending;
    atomic_uint n_runs;
};

static void
repeated_run(struct sti_job *job)
{
    struct repeated *self = (struct repeated *)job;

    atomic_fetch_add(&self->n_runs, 1);
    if (!atomic_load(&self->is_ending))
        sti_pool_submit(self->pool, STI_LANE_BACKGROUND, job, 1);
}

/* A withdrawn job does not run, one that has begun has ended, one that repeats itself has
 * stopped, and one that nobody submitted is no trouble. */
static void
test_withdrawn(void **state)
{
    struct noted queued = {.job = {.fn = noted_run}}, never = {.job = {.fn = noted_run}};
    struct repeated *repeated = calloc(1, sizeof(*repeated));
    struct sti_pool *pool;
    struct gate gate;

    (void)state;
    assert_non_null(repeated);
    assert_int_equal(sti_pool_open(&pool, 1, 0), 0);
    gate_hold(&gate, pool, STI_LANE_URGENT);
    atomic_store(&n_noted, 0);
    sti_pool_submit(pool, STI_LANE_BACKGROUND, &queued.job, 1);
    sti_pool_withdraw(pool, &queued.job);
    sti_pool_withdraw(pool, &never.job);
    assert_int_equal(sem_post(&gate.go), 0);
    sti_pool_withdraw(pool, &gate.job); /* it is the test's memory again */
    memset(&gate, 0, sizeof(gate));
    *repeated = (struct repeated){.job = {.fn = repeated_run}, .pool = pool};
    sti_pool_submit(pool, STI_LANE_BACKGROUND, &repeated->job, 1);
    while (atomic_load(&repeated->n_runs) < 100)
        ;
    atomic_store(&repeated->is_ending, true);
    sti_pool_withdraw(pool, &repeated->job);
    free(repeated); /* what used it would be AddressSanitizer's to find */
    sti_pool_close(pool);
    assert_int_equal(atomic_load(&n_noted), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lanes_by_urgency),
        cmocka_unit_test(test_kinds_of_threads_are_apart),
        cmocka_unit_test(test_a_chain_wakes_enough_threads),
        cmocka_unit_test(test_many_submitters_and_a_close),
        cmocka_unit_test(test_a_closing_pool_runs_what_jobs_submit),
        cmocka_unit_test(test_a_job_may_free_itself),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_submitting_allocates_nothing),
        cmocka_unit_test(test_hurried),
        cmocka_unit_test(test_withdrawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
