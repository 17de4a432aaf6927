/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Relief of ranks that are slow to serve. What a rank holds by the plan is asked of it by all
 * others; one whose SSD, processor or way out is slow keeps them all waiting, though others
 * have room to spare. From what each has served in an epoch and how long that took follows
 * how much of it others should hold as well and serve instead, so that all would be done at
 * the same time.
 *
 * It changes nothing of who holds what: who is relieved goes on holding, and serves what the
 * other does not have yet. So nothing comes from the origin for it, and ranks that know
 * different decisions are served all the same. Pure; one thread.
 */
#ifndef STI_POLICY_RELIEF_H
#define STI_POLICY_RELIEF_H

#include <stdbool.h>
#include <stdint.h>

#define STI_RELIEF_NOBODY UINT16_MAX

struct sti_relief_rank {
    uint64_t held_bytes;   /* by the plan */
    uint64_t spare_bytes;  /* room that neither that nor what is staged needs */
    uint64_t served_bytes; /* in the epoch that was measured */
    uint64_t busy_ns;      /* in which at least one answer was on its way */
    uint64_t wall_ns;      /* that the epoch lasted */
    uint64_t give_bytes;   /* decided: of what it holds, that another is to serve */
    uint64_t take_bytes;   /* decided: of what others hold, that it is to serve */
};

/*
 * Decides for all ranks; false, and nothing is given, where no rank is busy for half of its
 * epoch, or the busiest would have more than half left to do (of many that are alike one is
 * relieved that is a little less than half as fast), or epochs are shorter than 0.5 s: chance
 * does that much. A second decision from what was measured under the first is the same again,
 * as far as what was measured is: it starts from what each holds and from what each byte has
 * taken it.
 */
bool
sti_relief_decide(struct sti_relief_rank *ranks, uint32_t n_ranks);

/* Borrowed. */
struct sti_relief_input {
    const uint16_t *first; /* of each sample its holder, or UINT16_MAX */
    const uint32_t *bytes; /* of each; NULL: all same_bytes */
    uint32_t same_bytes;
    uint32_t n_ranks; /* 1 or more */
    uint64_t n_samples;
};

/*
 * From a decision to samples, the same on every rank. give_bytes, take_bytes: of each rank,
 * used up. Fills relief: of each sample who serves it, too, or STI_RELIEF_NOBODY.
 */
void
sti_relief_assign(const struct sti_relief_input *input, uint64_t *give_bytes, uint64_t *take_bytes,
                  uint16_t *relief);

#endif
