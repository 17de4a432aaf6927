/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bounded pool of threads on which everything that blocks or computes runs, so that
 * the loop never does. Jobs wait in lanes; a free thread takes the job at the head of the
 * most urgent lane that it serves. I/O threads serve the I/O lane alone, CPU threads all
 * others: a slow disk cannot hold up decoding.
 */
#ifndef STI_BASE_POOL_H
#define STI_BASE_POOL_H

#include <stdint.h>

enum sti_lane {
    STI_LANE_IO,         /* blocking system calls of samples and checkpoints */
    STI_LANE_URGENT,     /* what the consumer waits for: decode, copies into a batch */
    STI_LANE_NORMAL,     /* copies into a cache, copy + CRC of a checkpoint */
    STI_LANE_BACKGROUND, /* orders of coming epochs, touching memory, drain */
    STI_LANES
};

/* A job, in memory of its submitter, who must keep it until fn has begun. Owned by the
 * pool from submit until then; fn may submit it again or free it. */
struct sti_job {
    void (*fn)(struct sti_job *job);
    struct sti_job *next; /* the pool's; a chain for sti_pool_submit() */
};

struct sti_pool;

/*
 * Starts a pool. cpu_threads 1 .. 256; io_threads 0 .. 256 (0: jobs of the I/O lane are
 * served by the CPU threads, after the urgent lane). Errors: -ENOMEM, -EAGAIN.
 */
int
sti_pool_open(struct sti_pool **ret_pool, uint32_t cpu_threads, uint32_t io_threads);

/* Runs what is queued and what those jobs submit, then stops the threads. Nobody else may
 * submit any more. NULL is allowed. */
void
sti_pool_close(struct sti_pool *pool);

/* Queues a chain of n jobs linked by next (the last one's is ignored), in order; one lock
 * and at most n wakes for all. Any thread, also a job. Never fails: the memory is the
 * caller's. */
void
sti_pool_submit(struct sti_pool *pool, enum sti_lane lane, struct sti_job *first, uint32_t n);

/* Somebody waits for a job of the CPU threads: if it is still queued it goes to the end of
 * the urgent lane. Looks through what is queued. Any thread. */
void
sti_pool_hurry(struct sti_pool *pool, struct sti_job *job);

/* Takes a job out of its lane or, if it has begun, waits until its fn has returned;
 * then its memory is the submitter's. Also for one that was never submitted. Any thread
 * but the pool's. */
void
sti_pool_withdraw(struct sti_pool *pool, struct sti_job *job);

uint32_t
sti_pool_cpu_threads(const struct sti_pool *pool);

#endif
