/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much a loader holds of what: decided when it is opened, from its options and the
 * sizes of its samples alone, so that a run can be told beforehand. Pure, in the sense
 * that everything it depends on is an argument.
 */
#ifndef STI_TIER_SIZES_H
#define STI_TIER_SIZES_H

#include "policy/density.h"
#include "policy/lookahead.h"
#include "tier/fetcher.h"

struct sti_sizes {
    uint64_t store_bytes;       /* payload that memory holds, staged and cached */
    uint64_t held_bytes;        /* of it, for batches at most */
    uint64_t transit_bytes;     /* beside it, for samples of batches that the SSDs have, too */
    uint64_t small_bytes;       /* smaller samples stay in memory for good; 0: none do */
    uint64_t small_room_bytes;  /* what all of them together have at most */
    uint64_t worthy_bytes;      /* larger samples are worth less room; UINT64_MAX: none are */
    struct sti_ssd_range range; /* sizes that belong on the SSDs */
    struct sti_lookahead lookahead;
    uint64_t average_bytes; /* of a sample */
};

/*
 * The sizes for a loader whose options are resolved and whose SSD directories hold
 * ssd_bytes. Reads the lengths of all samples a few times where they differ and not
 * everything has room.
 */
struct sti_sizes
sti_sizes_choose(const struct sti_fetcher_opts *opts, uint64_t ssd_bytes);

/* How much may be staged at an index of an epoch of length samples. */
uint64_t
sti_sizes_staged(const struct sti_sizes *sizes, uint64_t idx, uint64_t length);

#endif
