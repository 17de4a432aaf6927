/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the order that is held: which sample is read at each position, from the
 * oldest one still in use to the end of what is known, and where each sample is read
 * next.
 *
 * Positions count samples of this rank's stream without a gap across epochs; a jump
 * (seek) starts a new run of positions behind all old ones, so a position never has two
 * meanings. Three kinds: epochs held as tables, made on the pool ahead of their use;
 * orders computed per element; a list that the caller pushes. Owned by the loop's thread.
 */
#ifndef STI_TIER_HORIZON_H
#define STI_TIER_HORIZON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "order/order.h"
#include "policy/place.h"
#include "tier/catalog.h"

struct sti_horizon;

/* Ids that a list can hold at a time. */
#define STI_LIST_IDS_MAX (UINT64_C(1) << 20)

/*
 * order             by value.
 * batch_size        1 .. 2^18; drop_last: the incomplete batch of an epoch is left out.
 * epochs            of the run; 0: no end.
 * held_epochs       epochs known ahead at a time, the current one included; 2 .. 64.
 * window_positions  positions that may be staged or borrowed at a time.
 * wants_next_use    whether sti_horizon_next_use() will be called.
 * catalog           borrowed: entries hold the last known position.
 * wake              called on any thread when an epoch is ready; its context must live as long as
 *                   the pool does.
 * on_next_use       called on the loop's thread when the next use of a sample that was passed
 *                   already becomes known.
 */
struct sti_horizon_opts {
    struct sti_order order;
    uint32_t batch_size;
    bool drop_last;
    uint64_t epochs;
    uint32_t held_epochs;
    uint64_t window_positions;
    bool wants_next_use;
    struct sti_pool *pool;
    struct sti_catalog *catalog;
    void (*wake)(void *wake_context);
    void *wake_context;
    void (*on_next_use)(void *context, uint64_t sample, uint64_t position);
    void *context;
};

/* Errors: -ENOMEM, STK_E_INFEASIBLE (no epoch has a batch; too many samples for a
 * table). */
int
sti_horizon_new(struct sti_horizon **ret_horizon, const struct sti_horizon_opts *opts,
                stk_error *err);

/* Waits for what is being made on the pool. NULL is allowed. */
void
sti_horizon_free(struct sti_horizon *horizon);

/*
 * Starts a run of positions at an index of an epoch; returns its first position, which is
 * behind every earlier one.
 */
uint64_t
sti_horizon_start(struct sti_horizon *horizon, uint64_t epoch, uint64_t idx);

/*
 * Goes on with what is held: fetch_position is the next to be read, returned_position the
 * first that the consumer has not been given. Returns whether there is more to do at
 * once.
 */
bool
sti_horizon_step(struct sti_horizon *horizon, uint64_t fetch_position, uint64_t returned_position);

/* Whether memory for an epoch was missing at the last step, so that another one should
 * follow after a while: nothing else would cause it. */
bool
sti_horizon_is_short_of_memory(const struct sti_horizon *horizon);

/* What the positions from a batch's first one on are. */
enum sti_cut {
    STI_CUT_BATCH,   /* a batch */
    STI_CUT_NOT_YET, /* not known yet: an epoch in the making, or nothing pushed */
    STI_CUT_END,     /* the run is over */
};

struct sti_batch_cut {
    uint64_t first_position; /* may lie behind the one asked for: the rest was dropped. Set
                                whatever the result is */
    uint64_t epoch;
    uint64_t epoch_step;
    uint64_t step;
    uint32_t count;
    bool is_last;
};

/* What a caller pushes to a list at a time. */
struct sti_list_part {
    const uint64_t *ids;
    uint64_t n;
    bool is_epoch_end;
    bool is_run_end;
};

/* Cuts the batch that begins at a position. */
enum sti_cut
sti_horizon_cut(struct sti_horizon *horizon, uint64_t position, struct sti_batch_cut *ret_cut);

/* The sample at a position of a batch that was cut. */
uint64_t
sti_horizon_sample(struct sti_horizon *horizon, uint64_t position);

/* The same for a position somewhat ahead, as far as it is held; UINT64_MAX otherwise. */
uint64_t
sti_horizon_peek(struct sti_horizon *horizon, uint64_t position);

/* Where the sample of a position is read next. */
enum sti_next_use
sti_horizon_next_use(struct sti_horizon *horizon, uint64_t position, uint64_t *ret_position);

/* The first use of a sample at or after the start of the current run of positions.
 * Computed orders only; unknown otherwise. */
enum sti_next_use
sti_horizon_first_use(struct sti_horizon *horizon, uint64_t sample, uint64_t *ret_position);

/* The largest position that any next use of what was read before a position can have, and
 * how far positions can lie apart. */
uint64_t
sti_horizon_newest(const struct sti_horizon *horizon, uint64_t position);
uint64_t
sti_horizon_span(const struct sti_horizon *horizon);

/* The first position behind the epoch of a position; not for lists. */
uint64_t
sti_horizon_epoch_end(const struct sti_horizon *horizon, uint64_t position);

/* The end (not included) of those whose samples can be asked for, from a position that is
 * not passed on. */
uint64_t
sti_horizon_known_end(const struct sti_horizon *horizon, uint64_t position);

/*
 * Whether next uses are still being found out that will be known after a finite number of
 * steps and jobs of the pool, whoever else does what: up to the end of the epoch behind
 * that of a position, or (is_all) of all that are held. position: a step was told it, or
 * will be before anybody waits. No while memory for an epoch is missing, since that may
 * last.
 */
bool
sti_horizon_is_catching_up(const struct sti_horizon *horizon, uint64_t position, bool is_all);

/* Somebody waits for an epoch that is being made: it is the pool's next but for what is
 * urgent already. */
void
sti_horizon_hurry(struct sti_horizon *horizon);

/* Batches of an epoch (0 for a list), and the epochs of the run. */
uint64_t
sti_horizon_batches(const struct sti_horizon *horizon);

/* Samples of an epoch that are handed out (0 for a list). */
uint64_t
sti_horizon_epoch_length(const struct sti_horizon *horizon);

/* LIST: appends ids, which are of the data set; fetch_position as for sti_horizon_step().
 * Errors: -ENOSPC, -EINVAL an ended run; none is taken then. */
int
sti_horizon_push(struct sti_horizon *horizon, uint64_t fetch_position,
                 const struct sti_list_part *part);

#endif
