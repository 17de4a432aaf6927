/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds what during a run, as a running rank asks for it: the static placement of
 * assign.h, or without a table of counts the first reader, beside what only this rank has
 * to know: what it holds itself, in the order in which anybody first reads it. Every rank
 * computes the same from the same inputs. Where samples have one size, every rank has memory
 * for what it reads first and the order can be asked where it has a sample (keyed), there is
 * no table by sample at all. Pure; one thread until it is made, then constant.
 */
#ifndef STI_POLICY_HOLDERS_H
#define STI_POLICY_HOLDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bitset.h"
#include "order/order.h"
#include "policy/assign.h"

#define STI_HOLDERS_NOBODY UINT32_MAX
/* A table of counts is used where it has no more bytes than that. */
#define STI_HOLDERS_COUNTS_MAX (UINT64_C(1) << 30)

/*
 * order         of any rank; the same on all but for the rank.
 * first_epoch   where the run begins.
 * epochs        from there whose order is looked at, 1 or more.
 * used_length   of a rank's epoch, the samples that are handed out.
 * bytes         of each sample, NULL: all same_bytes.
 * room_bytes    of each rank of the order's world, in memory.
 * ssd_bytes     the same, free on its SSDs; NULL: none.
 * warm          per sample: the rank whose SSDs have it already, beside ssd_bytes, or
 *               STI_ASSIGN_COLD; NULL: nobody's have any.
 * total_bytes   beside it, what all can hold in all, staging included: for the bound.
 * is_paper      each rank chooses for itself (assign.h); else coordinated.
 */
struct sti_holders_opts {
    struct sti_order order;
    uint64_t first_epoch;
    uint64_t epochs;
    uint64_t used_length;
    const uint32_t *bytes;
    uint32_t same_bytes;
    const uint64_t *room_bytes;
    const uint64_t *ssd_bytes;
    const uint16_t *warm;
    uint64_t total_bytes;
    bool is_paper;
};

struct sti_holders {
    uint32_t rank;
    uint32_t world;
    uint64_t n_samples;
    bool is_computed; /* the first reader holds, and who that is follows from the order */
    struct sti_order whole;
    uint16_t *first; /* per sample: its holder, or UINT16_MAX; NULL: see assignment */
    struct sti_assignment assignment; /* paper: who holds what */
    uint32_t *mine;                   /* what this rank holds, soonest first */
    uint64_t n_mine;
    uint64_t mine_bytes;      /* of it, what has its room in memory */
    uint64_t mine_ssd_bytes;  /* and what has it on the SSDs */
    struct sti_bitset on_ssd; /* which that is; of no members: none */
    uint64_t total_bytes;
    uint64_t first_epoch;
    uint64_t *bound_bytes; /* of each epoch looked at: what all ranks must read in it at least */
    uint64_t n_bounds;
};

/* Errors: -ENOMEM. sti_holders_fini() in any case. */
int
sti_holders_init(struct sti_holders *holders, const struct sti_holders_opts *opts);

/* All zero is allowed. */
void
sti_holders_fini(struct sti_holders *holders);

/* is_computed: who holds a sample. */
uint32_t
sti_holders_computed(const struct sti_holders *holders, uint64_t sample);

/* Whether this rank holds a sample. */
static inline bool
sti_holders_is_mine(const struct sti_holders *holders, uint64_t sample)
{
    if (holders->is_computed)
        return sti_holders_computed(holders, sample) == holders->rank;
    return holders->first ? holders->first[sample] == holders->rank
                          : sti_assignment_has(&holders->assignment, sample, holders->rank);
}

/* Whether this rank holds it in memory for good; else, if it is its own, on an SSD. */
static inline bool
sti_holders_is_in_ram(const struct sti_holders *holders, uint64_t sample)
{
    return sti_holders_is_mine(holders, sample) &&
           !(holders->on_ssd.n > 0 && sti_bitset_has(&holders->on_ssd, sample));
}

/* Another rank that holds a sample, the next one round from `after`, which is this rank for
 * the first of them; STI_HOLDERS_NOBODY when there is none between it and this rank. */
uint32_t
sti_holders_next(const struct sti_holders *holders, uint64_t sample, uint32_t after);

/* The bound of an epoch, and of all up to it. The last epoch that was looked at stands for
 * those behind it. */
uint64_t
sti_holders_bound(const struct sti_holders *holders, uint64_t epoch);
uint64_t
sti_holders_bound_until(const struct sti_holders *holders, uint64_t epoch);

#endif
