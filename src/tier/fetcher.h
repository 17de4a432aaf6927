/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fetcher: walks the stream as far ahead as staging and horizon allow, has every
 * sample in memory before its batch is asked for, and decides what stays when it was
 * used. One for each loader; a task of the loop.
 */
#ifndef STI_TIER_FETCHER_H
#define STI_TIER_FETCHER_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/loader.h>

#include "base/pool.h"
#include "format/dataset.h"
#include "io/aio.h"
#include "order/order.h"
#include "policy/cost_curve.h"
#include "tier/ssd.h"

struct sti_fetcher;
struct sti_list_part;
struct sti_peering;
struct sti_staging;

/*
 * Everything resolved and checked by the loader room; borrowed things live until the
 * fetcher is freed.
 */
struct sti_budget;

struct sti_fetcher_opts {
    const struct sti_dataset *dataset;
    struct sti_order order;
    uint64_t epochs;
    uint64_t ram_bytes;
    struct sti_ssd_part ssd_parts[STI_SSDS_MAX]; /* in the order of the engine's */
    uint64_t ssd_dataset_id;
    uint64_t staging_bytes;
    uint64_t staging_least_bytes; /* two of the largest batches, or borrow_max */
    uint64_t undecoded_bytes;     /* FIXED: of samples between arrival and decoding, at most */
    uint64_t item_bytes;          /* FIXED; 0: RAW */
    stk_decode_fn decode;         /* NULL: copy */
    void *decode_context;
    struct sti_aio *aio; /* the loop's */
    struct sti_pool *pool;
    void (*wake)(void *wake_context); /* wakes the loop; callable as long as the pool lives */
    void *wake_context;
    struct sti_budget *budget;   /* of the data set's device; the loop's; NULL: none */
    struct sti_peering *peering; /* borrowed; with its plan made, or NULL: this rank alone */
    uint32_t held_epochs;
    uint32_t batch_size;
    uint32_t retries;
    uint32_t n_ssd_parts;
    uint32_t ssd_slot; /* as sti_ssd_opts has them */
    uint32_t n_ssd_slots;
    uint32_t n_records; /* batches staged or borrowed at a time */
    uint32_t queue_depth;
    uint32_t open_files; /* that may be held open */
    stk_policy policy;
    stk_policy shared_policy; /* with a peering: COORDINATED or PAPER; else DEFAULT */
    bool drop_last;
    bool must_replace; /* STK_BAD_REPLACE */
    bool is_ssd_apart;
    bool is_buffered;
};

/* Errors: -ENOMEM, STK_E_INFEASIBLE, what opening the data set gives. Blocks. */
int
sti_fetcher_new(struct sti_fetcher **ret_fetcher, const struct sti_fetcher_opts *opts,
                stk_error *err);

/* Begins at an index of an epoch instead of the start; before the fetcher is attached. */
void
sti_fetcher_begin_at(struct sti_fetcher *fetcher, uint64_t epoch, uint64_t idx);

/* Frees a fetcher that was stopped by STI_COMMAND_STOP and detached. NULL is allowed. */
void
sti_fetcher_free(struct sti_fetcher *fetcher);

/* The loop's step (struct sti_task); context is the fetcher. */
uint64_t
sti_fetcher_step(void *context);

struct sti_staging *
sti_fetcher_staging(struct sti_fetcher *fetcher);

/* The capacity that the bound is made with: bytes that can hold samples between
 * epochs. */
uint64_t
sti_fetcher_capacity_bytes(const struct sti_fetcher *fetcher);

/* What the SSDs can hold of the data set in all, and what of that is free. Before the fetcher
 * is attached. */
uint64_t
sti_fetcher_ssd_bytes(const struct sti_fetcher *fetcher);
uint64_t
sti_fetcher_ssd_free_bytes(const struct sti_fetcher *fetcher);

/* Whether this rank's own parts of them have a sample. */
bool
sti_fetcher_is_on_ssd(const struct sti_fetcher *fetcher, uint64_t sample);

/* The peering's plan is made: before the fetcher is attached. */
void
sti_fetcher_begin_plan(struct sti_fetcher *fetcher);

/* What was learned of the origin and the SSDs, on the loop's thread; without points where
 * too little was read. */
struct sti_cost_curve
sti_fetcher_cost(const struct sti_fetcher *fetcher, stk_tier tier);

/* Batches of an epoch; 0 for a list. */
uint64_t
sti_fetcher_epoch_batches(const struct sti_fetcher *fetcher);

/* LIST, on the loop's thread: see sti_horizon_push(). */
int
sti_fetcher_push(struct sti_fetcher *fetcher, const struct sti_list_part *part);

#endif
