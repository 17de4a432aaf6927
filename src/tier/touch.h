/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of an arena, faulted in a little ahead of its use by the pool's background lane.
 * Whoever fills the arena in the order of addresses says how far it is; what is never used
 * costs nothing, and nobody waits for memory before the first read has begun. What is used
 * before it was faulted in is faulted in by whoever writes to it.
 */
#ifndef STI_TIER_TOUCH_H
#define STI_TIER_TOUCH_H

#include <stdint.h>

#include "base/mem.h"
#include "base/pool.h"

struct sti_toucher {
    const struct sti_arena *arena;
    struct sti_pool *pool;
    struct sti_job job;     /* runs a step at a time, so that stopping is quick */
    uint64_t touched_bytes; /* atomic */
    uint64_t goal_bytes;    /* atomic: how far the job is to go; set by the owner */
    int is_stopping;        /* atomic: set by stop, read by the job */
    int is_touching;        /* atomic: cleared by the job when it ends for now */
};

/* Begins with what is used first. arena, pool: borrowed until stop. */
void
sti_toucher_start(struct sti_toucher *toucher, const struct sti_arena *arena,
                  struct sti_pool *pool);

/* Waits for a step that has begun. Also for one that was zeroed and never started. */
void
sti_toucher_stop(struct sti_toucher *toucher);

/* The arena is, or is about to be, used up to end, in bytes. One thread calls it. Does not
 * block. */
void
sti_toucher_ahead(struct sti_toucher *toucher, uint64_t end);

#endif
