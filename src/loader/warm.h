/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ranks' SSDs have from an earlier run, told to all: a sample that one rank has
 * need not come from the origin to another.
 *
 * A rank's list is the gaps between its samples' ids, rising, each in as many bytes of 7
 * bits as it takes (LEB128). So all lists together take a byte or two for each sample of the
 * data set, by however many ranks it is held.
 */
#ifndef STI_LOADER_WARM_H
#define STI_LOADER_WARM_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/peers.h"
#include "tier/fetcher.h"

/* A longer list is not told, for all ranks' sake: it would take too many rounds. */
#define STI_WARM_MOST_BYTES (UINT64_C(4) << 20)
/* Nor is any where the rank that gathers would have to send more than that to all together. */
#define STI_WARM_SENT_MOST_BYTES (UINT64_C(64) << 30)

struct sti_warm {
    unsigned char *bytes; /* this rank's list */
    uint64_t n_bytes;
    uint16_t *rank_of; /* of each sample, or STI_ASSIGN_COLD; NULL: all are cold */
};

/* Makes this rank's list. Errors: -ENOMEM. sti_warm_fini() in any case. */
int
sti_warm_init(struct sti_warm *warm, const struct sti_fetcher *fetcher, uint64_t n_samples);

/* All zero is allowed. */
void
sti_warm_fini(struct sti_warm *warm);

/* Whether lists are told, on so many ranks of which the longest is so long. */
bool
sti_warm_is_told(uint32_t world, uint64_t most_bytes);

/*
 * Tells all ranks all lists, or none, and fills rank_of; where several have a sample, it is
 * the first of them. lengths: of each rank's list, the same on all; all call it. Blocks. Errors: as
 * sti_peers_gather(), -ENOMEM, -EBADMSG a list is not one.
 */
int
sti_warm_exchange(struct sti_warm *warm, struct sti_peers *peers, const uint64_t *lengths,
                  uint64_t n_samples, stk_error *err);

/* Adds a list to rank_of, as far as nobody has a sample yet. Returns 0 or -EBADMSG. */
int
sti_warm_decode(uint16_t *rank_of, uint64_t n_samples, uint16_t rank, const unsigned char *bytes,
                uint64_t n_bytes);

#endif
