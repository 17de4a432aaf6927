/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of one rank: a small value, made once from checked options, from which the
 * ids of any epoch follow. Pure arithmetic: no function here allocates, blocks or fails
 * but for sti_order_init(); every one may be called by any thread, several at once on one
 * order.
 *
 *     sti_order_init(&order, &opts, err);                  opts.n filled in
 *     bytes   = sti_order_length(&order) * sti_order_id_bytes(&order);
 *     scratch = sti_order_scratch_bytes(&order);           both from the caller, kept for reuse
 *     cursor  = (struct sti_order_cursor){0};
 *     for (epoch = 0; ...; epoch++)
 *         sti_order_epoch(&order, epoch, &cursor, ids, scratch);
 *
 * Every epoch can be had directly: nothing that an earlier epoch left behind is needed,
 * so a saved position is (fingerprint, epoch, step) and no more. The samplers that draw
 * from one generator for life jump to where the epoch begins (mt19937.h), 12 ms at most;
 * with a cursor that is handed from one epoch to the next, rolling forward costs the
 * permutation alone.
 */
#ifndef STI_ORDER_ORDER_H
#define STI_ORDER_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/plan.h>

#include "order/draws.h"
#include "order/mt19937.h"

#define STI_ORDER_MAX_N (UINT64_C(1) << 48)
#define STI_ORDER_MAX_WORLD (UINT32_C(1) << 20)

/* Options with every default resolved. Set by sti_order_init(), then constant; may be
 * copied and read freely. */
struct sti_order {
    uint64_t n; /* samples of the data set, 1 .. STI_ORDER_MAX_N */
    int64_t seed;
    uint64_t num_samples; /* ids of an epoch of all ranks, before padding or cutting */
    uint64_t length;      /* ids of an epoch of this rank; 0 for LIST */
    uint32_t kind;        /* stk_order_kind, never DEFAULT */
    uint32_t sampler;     /* stk_sampler; DEFAULT unless kind is TORCH */
    uint32_t workers;     /* stk_sampler_workers */
    uint32_t world;       /* 1 .. STI_ORDER_MAX_WORLD */
    uint32_t rank;        /* 0 .. world - 1 */
    bool shuffle;         /* false for SEQUENTIAL */
    bool replacement;
    bool drop_uneven;
    bool legacy_torch;
    const struct sti_draws *draws; /* of a weighted mix, or NULL; borrowed */
};

/*
 * Where the generator of a sampler stands at the start of an epoch. Only a shortcut: it
 * makes the next epoch cheaper and never changes it. All zero at first; belongs to one
 * order and to one thread at a time.
 */
struct sti_order_cursor {
    struct sti_mt19937 engine;
    uint64_t epoch;
    bool valid;
};

/*
 * Checks options and makes an order of them. opts: a complete struct of this version (the
 * caller has done the size check and, for a loader, filled in n). LIST is accepted; it
 * has a length of 0 and no ids here. Errors: -EINVAL a field is out of range or two
 * fields exclude each other; err names the field, its value and the range.
 */
int
sti_order_init(struct sti_order *order, const stk_order_opts *opts, stk_error *err);

/*
 * Makes the epochs of a KEYED order those of a mix, whose ids are the order's n. draws:
 * borrowed as long as the order is used. Not seekable then; a sample may come several
 * times an epoch.
 */
void
sti_order_set_draws(struct sti_order *order, const struct sti_draws *draws);

/*
 * Ids that this rank reads in an epoch, the same in every epoch. 0 for LIST, and where
 * drop_uneven leaves nothing (n < world).
 */
uint64_t
sti_order_length(const struct sti_order *order);

/* Bytes of an id as sti_order_epoch() writes it: 4 where n < 2^32 (uint32_t), else 8
 * (uint64_t). */
uint32_t
sti_order_id_bytes(const struct sti_order *order);

/*
 * Bytes of scratch that sti_order_epoch() works in: at most a permutation of n (n ids)
 * and 104 KiB; no permutation where the stream itself is one (world 1, num_samples n), or
 * where the order is evaluated per element.
 */
uint64_t
sti_order_scratch_bytes(const struct sti_order *order);

/*
 * Writes this rank's stream of an epoch, padding included. cursor: NULL, or one that
 * earlier calls with the same order have used; left at epoch + 1. ids: room for
 * sti_order_length() ids of sti_order_id_bytes(). scratch: sti_order_scratch_bytes(),
 * 8-byte aligned, contents undefined. Not for LIST.
 */
void
sti_order_epoch(const struct sti_order *order, uint64_t epoch, struct sti_order_cursor *cursor,
                void *ids, void *scratch);

/* The id at an index of what sti_order_epoch() wrote. */
static inline uint64_t
sti_order_id(const struct sti_order *order, const void *ids, uint64_t idx)
{
    return order->n <= UINT32_MAX ? ((const uint32_t *)ids)[idx] : ((const uint64_t *)ids)[idx];
}

/* Whether sti_order_at() and sti_order_find() may be used: SEQUENTIAL, KEYED and every
 * order without a shuffle. */
bool
sti_order_seekable(const struct sti_order *order);

/* The id at a position (< sti_order_length()) of this rank's stream, in O(1). Seekable
 * only. */
uint64_t
sti_order_at(const struct sti_order *order, uint64_t epoch, uint64_t position);

/*
 * The position at which this rank reads a sample (< n) in an epoch, in O(1). Returns
 * whether it does; a rank reads a sample at most once per epoch. Seekable only.
 */
bool
sti_order_find(const struct sti_order *order, uint64_t epoch, uint64_t sample,
               uint64_t *ret_position);

/* Whether every epoch has the same stream: nothing is shuffled. */
bool
sti_order_constant(const struct sti_order *order);

/*
 * Identifies the order whatever the world and the rank: a hash of kind, sampler, n, seed,
 * num_samples and flags, as far as each has an effect. The same on every machine and in
 * every version. For saved states.
 */
uint64_t
sti_order_fingerprint(const struct sti_order *order);

#endif
