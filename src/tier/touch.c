/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faulting memory in ahead of its use. Invariant: at most one job is queued or runs, and only
 * it moves touched_bytes, up to the goal that its owner has set.
 *
 * A read into memory that is not there yet would hold up the loop, and where a hypervisor has
 * taken free memory back, having it again costs more than reading into it: so that it is done
 * beside reading, by another thread, and not for what is never used.
 */
#include "tier/touch.h"

#include <stddef.h>

#define STEP_BYTES (UINT64_C(4) << 20)
#define AHEAD_LEAST_BYTES (UINT64_C(16) << 20)
#define AHEAD_MOST_BYTES (UINT64_C(32) << 20)

static void
touch(struct sti_job *job)
{
    struct sti_toucher *toucher =
        (struct sti_toucher *)(void *)((char *)job - offsetof(struct sti_toucher, job));
    uint64_t from = __atomic_load_n(&toucher->touched_bytes, __ATOMIC_RELAXED);
    uint64_t to = from + STEP_BYTES;
    uint64_t goal = __atomic_load_n(&toucher->goal_bytes, __ATOMIC_RELAXED);

    if (to > goal)
        to = goal;
    if (from < to && !__atomic_load_n(&toucher->is_stopping, __ATOMIC_ACQUIRE)) {
        sti_arena_touch(toucher->arena, from, to);
        __atomic_store_n(&toucher->touched_bytes, to, __ATOMIC_RELAXED);
        sti_pool_submit(toucher->pool, STI_LANE_BACKGROUND, job, 1);
        return;
    }
    __atomic_store_n(&toucher->is_touching, 0, __ATOMIC_RELEASE);
}

void
sti_toucher_start(struct sti_toucher *toucher, const struct sti_arena *arena, struct sti_pool *pool)
{
    *toucher = (struct sti_toucher){.arena = arena, .pool = pool, .job.fn = touch};
    sti_toucher_ahead(toucher, 0);
}

void
sti_toucher_stop(struct sti_toucher *toucher)
{
    if (!toucher->pool)
        return;
    __atomic_store_n(&toucher->is_stopping, 1, __ATOMIC_RELEASE); /* pairs with touch() */
    sti_pool_withdraw(toucher->pool, &toucher->job);              /* ends within a step */
}

/* The further the more that is used: what is not going to be used costs as much as what is.
 * A job that is just about to end may miss the new goal; the next call asks again. */
void
sti_toucher_ahead(struct sti_toucher *toucher, uint64_t end)
{
    uint64_t goal = __atomic_load_n(&toucher->goal_bytes, __ATOMIC_RELAXED);
    uint64_t ahead = end / 4;

    if (ahead < AHEAD_LEAST_BYTES)
        ahead = AHEAD_LEAST_BYTES;
    if (ahead > AHEAD_MOST_BYTES)
        ahead = AHEAD_MOST_BYTES;
    if (end + ahead / 2 <= goal)
        return;
    end += ahead;
    if (end > toucher->arena->n_bytes)
        end = toucher->arena->n_bytes;
    if (end <= goal)
        return;
    __atomic_store_n(&toucher->goal_bytes, end, __ATOMIC_RELAXED);
    if (__atomic_exchange_n(&toucher->is_touching, 1, __ATOMIC_ACQUIRE) == 0)
        sti_pool_submit(toucher->pool, STI_LANE_BACKGROUND, &toucher->job, 1);
}
