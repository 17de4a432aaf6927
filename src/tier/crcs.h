/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRCs by sample, as samples were sent first: a hash table with open addressing, of a size
 * that is known beforehand, since a rank sends only what it holds. Nothing is ever taken out.
 * One thread.
 */
#ifndef STI_TIER_CRCS_H
#define STI_TIER_CRCS_H

#include <stdbool.h>
#include <stdint.h>

struct sti_crcs {
    struct sti_crc_slot *slots;
    uint64_t n_slots; /* a power of two */
    uint64_t n_left;  /* slots that may be filled still */
};

/* For n samples, with ids below 2^32 - 1; what is noted of more is not kept. Errors: -ENOMEM. */
int
sti_crcs_init(struct sti_crcs *crcs, uint64_t n);

/* All zero is allowed. */
void
sti_crcs_fini(struct sti_crcs *crcs);

/* False if nothing was noted of the sample. */
bool
sti_crcs_find(const struct sti_crcs *crcs, uint64_t sample, uint32_t *ret_crc);

/* Notes a sample's CRC, once for each. */
void
sti_crcs_note(struct sti_crcs *crcs, uint64_t sample, uint32_t crc);

#endif
