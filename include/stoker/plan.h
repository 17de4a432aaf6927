/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a training run: which sample every rank reads at every position of every
 * epoch, as a function of a few numbers. Nothing here does I/O or starts a thread, so a
 * planner, a sampler of another program and a test can use it alone.
 *
 * Order kinds
 *   STK_ORDER_SEQUENTIAL  0, 1, 2, ... n - 1.
 *   STK_ORDER_TORCH       what PyTorch would give, bit for bit, on the CPU (see stk_sampler).
 *   STK_ORDER_KEYED       a bijection evaluated per element in O(1) memory, seekable both ways,
 *                         for sets too large to hold a permutation. A Feistel network with cycle
 *                         walking (Black and Rogaway, "Ciphers with Arbitrary Finite Domains",
 *                         CT-RSA 2002) over a hash keyed by seed and epoch.
 *   STK_ORDER_LIST        ids that the caller pushes to a loader (loader.h); has no ids here.
 *
 * A rank's stream of an epoch is every world-th id of the epoch's order, starting at
 * rank.
 */
#ifndef STOKER_PLAN_H
#define STOKER_PLAN_H

#include <stoker/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum stk_order_kind {
    STK_ORDER_DEFAULT = 0, /* STK_ORDER_TORCH */
    STK_ORDER_SEQUENTIAL = 1,
    STK_ORDER_TORCH = 2,
    STK_ORDER_KEYED = 3,
    STK_ORDER_LIST = 4
} stk_order_kind;

/*
 * Which of PyTorch's samplers STK_ORDER_TORCH follows.
 *   DISTRIBUTED  DistributedSampler(seed): randperm of a generator seeded seed + epoch, padded
 *                cyclically or cut to a multiple of world. With world 1 it is a plain
 *                randperm(n) per epoch.
 *   DATALOADER   DataLoader(shuffle=True) after torch.manual_seed(seed), nothing else drawing
 *                from the default generator; epoch e is the e-th iteration.
 *   GENERATOR    DataLoader(shuffle=True, generator=g), g seeded with seed; every epoch is read
 *                to its end and no worker runs ahead of it.
 *   STATEFUL     torchdata's StatefulDataLoader(shuffle=True) after torch.manual_seed(seed).
 * DATALOADER, GENERATOR and STATEFUL are samplers of one process: world must be 1.
 */
typedef enum stk_sampler {
    STK_SAMPLER_DEFAULT = 0, /* STK_SAMPLER_DISTRIBUTED */
    STK_SAMPLER_DISTRIBUTED = 1,
    STK_SAMPLER_DATALOADER = 2,
    STK_SAMPLER_GENERATOR = 3,
    STK_SAMPLER_STATEFUL = 4
} stk_sampler;

/* Workers of the loader that is followed. They change the sequence of STATEFUL, and
 * persistent ones also those of DATALOADER and GENERATOR. */
typedef enum stk_sampler_workers {
    STK_SAMPLER_WORKERS_NONE = 0,
    STK_SAMPLER_WORKERS_SOME = 1,
    STK_SAMPLER_WORKERS_PERSISTENT = 2
} stk_sampler_workers;

typedef struct stk_order_opts {
    size_t size;
    uint32_t kind;    /* stk_order_kind */
    uint32_t sampler; /* stk_sampler; TORCH only */
    uint64_t n;       /* samples of the data set, 1 .. 2^48 */
    int64_t seed;
    uint32_t world;        /* ranks, 1 .. 2^20; 0 means 1 */
    uint32_t rank;         /* 0 .. world - 1 */
    uint32_t no_shuffle;   /* 1: DistributedSampler(shuffle=False) and its like */
    uint32_t drop_uneven;  /* 1: DistributedSampler(drop_last=True); 0: pad */
    uint32_t legacy_torch; /* 1: randperm as in torch <= 2.5; with replacement randint <= 2.6 */
    uint32_t replacement;  /* 1: RandomSampler(replacement=True); not DISTRIBUTED */
    uint64_t num_samples;  /* RandomSampler(num_samples), 1 .. 2^48; 0: n; not DISTRIBUTED */
    uint32_t workers;      /* stk_sampler_workers */
    uint32_t reserved;     /* 0 */
} stk_order_opts;

#define STK_ORDER_OPTS_INIT .size = sizeof(stk_order_opts)

typedef struct stk_order stk_order;

/*
 * Makes an order. ret_order: returns owned, freed with stk_order_free().
 * Errors: -EINVAL a field is out of its range or two fields exclude each other (err says
 * which), -E2BIG opts is of a newer version, -ENOMEM. Any thread; does not block.
 */
STK_API int
stk_order_new(stk_order **ret_order, const stk_order_opts *opts, stk_error *err);

/* Frees an order; NULL is allowed. */
STK_API void
stk_order_free(stk_order *order);

/*
 * Ids that this rank reads in one epoch (padding included): the length of its stream. The
 * same in every epoch. Errors: -ENOTSUP for STK_ORDER_LIST.
 */
STK_API int
stk_order_length(const stk_order *order, uint64_t *ret_count);

/*
 * Writes the ids of the rank's stream in an epoch, from position first on.
 * ids: room for count; first + count may not exceed stk_order_length().
 * Cost: a permutation of n for TORCH (8 B x n of memory at its peak, 16 B from 2^32 on),
 * whatever the epoch (num_samples > n: one for each n of them); O(count) where nothing is
 * shuffled and for the other kinds.
 * Errors: -ERANGE, -ENOMEM, -ENOTSUP (LIST). Any thread, several at once; does not block.
 */
STK_API int
stk_order_ids(const stk_order *order, uint64_t epoch, uint64_t first, uint64_t count,
              uint64_t *ids);

/*
 * The next epoch and position at which this rank reads a sample, strictly after (epoch,
 * position), looked for up to and including last_epoch. Position -1 of an epoch is
 * written as UINT64_MAX and means "from its first position on". Returns 1 and writes both
 * results, or 0 when it is not read again. Errors as stk_order_ids(); -ERANGE for a
 * sample or position that is not there. Cost: O(1) per epoch for KEYED and SEQUENTIAL, a
 * permutation per epoch for TORCH.
 */
STK_API int
stk_order_next_use(const stk_order *order, uint64_t sample, uint64_t epoch, uint64_t position,
                   uint64_t last_epoch, uint64_t *ret_epoch, uint64_t *ret_position);

/*
 * How often this rank reads each sample in epochs first_epoch .. first_epoch + epochs -
 * 1. counts: n values, set by the call; they stay at UINT32_MAX once there. Cost: the
 * epochs' ids; O(n) where each epoch is known to read every sample equally often or all
 * epochs are the same. Errors as stk_order_ids(), -EINVAL for epochs 0.
 */
STK_API int
stk_order_frequency(const stk_order *order, uint64_t first_epoch, uint64_t epochs,
                    uint32_t *counts);

#ifdef __cplusplus
}
#endif

#endif
