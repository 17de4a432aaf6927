/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The samplers of one process. Each has one generator for life, seeded once; epoch e
 * begins first + e * stride outputs into its sequence. Neither shuffle ever rejects a
 * draw, so both numbers are constants of the order and any epoch can be jumped to.
 *
 *   DATALOADER  the default generator gives a worker seed (2 outputs; persistent workers: once)
 *               and then the seed (2) of a fresh generator, from which the epoch is drawn.
 *   GENERATOR   the caller's generator gives the worker seed and then the epoch itself.
 *               RandomSampler draws one permutation more than it needs when num_samples is a
 *               multiple of n: it shortens that one to nothing.
 *   STATEFUL    a generator that the sampler seeds from the default one when it is made.
 *               Permutations, or chunks of 32 with replacement, are drawn when they are needed;
 *               each sampler iterator draws its first one at birth, and loaders with workers
 *               make iterators that they never use: one in front of each epoch, or with
 *               persistent workers one in front of all.
 *
 * Invariant: a valid cursor stands at the first output of its epoch. Values only; any
 * thread.
 */
#include "order/sampler.h"

#include <string.h>

#include "order/permutation.h"

#define SEED_DRAWS 2       /* outputs of a seed: one 64-bit draw */
#define CHUNK UINT64_C(32) /* numbers that StatefulDataLoader draws at a time */
#define SEED_MASK (~UINT64_C(0) >> 1)

/* Where the epochs are, in outputs of the sampler's generator. */
struct plan {
    sti_u128 first;
    sti_u128 stride;
};

/* The caller's scratch. */
struct scratch {
    uint64_t jump[STI_MT19937_JUMP_BYTES / sizeof(uint64_t)];
    struct sti_order_cursor cursor; /* where the caller has none */
    struct sti_mt19937 fresh;       /* DATALOADER's generator of an epoch */
    uint64_t all[];                 /* a permutation of which a part is used */
};

static uint64_t
draws_per_permutation(const struct sti_order *order)
{
    struct sti_permutation permutation = sti_permutation_of(order->n, order->legacy_torch);

    return sti_permutation_draws(&permutation);
}

/* Permutations that num_samples ids take, the last one perhaps in part. */
static uint64_t
permutations_needed(const struct sti_order *order)
{
    return (order->num_samples - 1) / order->n + 1;
}

/* Outputs that write_random() takes. */
static sti_u128
draws_needed(const struct sti_order *order)
{
    if (order->replacement)
        return (sti_u128)order->num_samples * sti_randint_draws(order->n, order->legacy_torch);
    return (sti_u128)permutations_needed(order) * draws_per_permutation(order);
}

static struct plan
plan_generator(const struct sti_order *order)
{
    struct plan plan = {SEED_DRAWS, draws_needed(order)};

    if (!order->replacement && order->num_samples % order->n == 0)
        plan.stride += draws_per_permutation(order);
    if (order->workers != STK_SAMPLER_WORKERS_PERSISTENT)
        plan.stride += SEED_DRAWS;
    return plan;
}

static struct plan
plan_stateful(const struct sti_order *order)
{
    struct plan plan = {0, draws_needed(order)};
    uint64_t birth = draws_per_permutation(order);

    if (order->replacement) {
        uint64_t chunks = (order->num_samples - 1) / CHUNK + 1;

        birth = CHUNK * sti_randint_draws(order->n, order->legacy_torch);
        plan.stride = (sti_u128)chunks * birth;
    }
    if (order->workers != STK_SAMPLER_WORKERS_NONE)
        plan.first = birth;
    if (order->workers == STK_SAMPLER_WORKERS_SOME)
        plan.stride += birth;
    return plan;
}

static struct plan
plan_epochs(const struct sti_order *order)
{
    if (order->sampler == STK_SAMPLER_GENERATOR)
        return plan_generator(order);
    if (order->sampler == STK_SAMPLER_STATEFUL)
        return plan_stateful(order);
    if (order->workers == STK_SAMPLER_WORKERS_PERSISTENT)
        return (struct plan){SEED_DRAWS, SEED_DRAWS};
    return (struct plan){SEED_DRAWS, 2 * SEED_DRAWS};
}

/* The seed that PyTorch draws as a non-negative 64-bit number. */
static uint64_t
draw_seed(struct sti_mt19937 *engine)
{
    return sti_mt19937_u64(engine) & SEED_MASK;
}

/* Brings the cursor to an epoch: onwards from where it is, or from the seed. */
static void
seek(const struct sti_order *order, const struct plan *plan, uint64_t epoch,
     struct sti_order_cursor *cursor, void *scratch)
{
    if (!cursor->valid || cursor->epoch > epoch) {
        sti_mt19937_seed(&cursor->engine, (uint64_t)order->seed);
        if (order->sampler == STK_SAMPLER_STATEFUL)
            sti_mt19937_seed(&cursor->engine, draw_seed(&cursor->engine));
        sti_mt19937_jump(&cursor->engine, plan->first + plan->stride * epoch, scratch);
    } else {
        sti_mt19937_jump(&cursor->engine, plan->stride * (epoch - cursor->epoch), scratch);
    }
    cursor->epoch = epoch;
    cursor->valid = true;
}

/* RandomSampler: num_samples ids from the engine's next outputs. all: room for a
 * permutation, where the last one is not used whole. */
static void
write_random(const struct sti_order *order, struct sti_mt19937 *engine, char *ids, void *all)
{
    struct sti_permutation permutation = sti_permutation_of(order->n, order->legacy_torch);
    uint64_t id_bytes = sti_order_id_bytes(order);
    uint64_t rest = order->num_samples;

    if (order->replacement) {
        uint32_t draws = sti_randint_draws(order->n, order->legacy_torch);

        sti_randint_write(engine, order->n, draws, order->num_samples, ids);
        return;
    }
    for (; rest >= order->n; rest -= order->n) {
        sti_permutation_write(engine, &permutation, ids);
        ids += order->n * id_bytes;
    }
    if (rest) {
        sti_permutation_write(engine, &permutation, all);
        memcpy(ids, all, rest * id_bytes);
    }
}

void
sti_sampler_write(const struct sti_order *order, uint64_t epoch, struct sti_order_cursor *cursor,
                  void *ids, void *scratch)
{
    struct plan plan = plan_epochs(order);
    struct scratch *own = scratch;
    sti_u128 used = draws_needed(order);
    bool once = !cursor;

    if (once) {
        cursor = &own->cursor;
        cursor->valid = false;
    }
    seek(order, &plan, epoch, cursor, own->jump);
    if (order->sampler == STK_SAMPLER_DATALOADER) {
        sti_mt19937_seed(&own->fresh, draw_seed(&cursor->engine));
        write_random(order, &own->fresh, ids, own->all);
        used = SEED_DRAWS;
    } else {
        write_random(order, &cursor->engine, ids, own->all);
    }
    if (once)
        return;
    sti_mt19937_jump(&cursor->engine, plan.stride - used, own->jump);
    cursor->epoch++;
    cursor->valid = cursor->epoch != 0; /* no epoch follows the last */
}

uint64_t
sti_sampler_scratch_bytes(const struct sti_order *order)
{
    bool whole = order->replacement || order->num_samples % order->n == 0;

    return sizeof(struct scratch) + (whole ? 0 : order->n * sti_order_id_bytes(order));
}
