/* SPDX-License-Identifier: Apache-2.0 */
/* Invariant: at least a third of the slots is free, so every search ends soon. */
#include "tier/crcs.h"

#include <errno.h>

#include "base/mem.h"
#include "order/mix.h"

struct sti_crc_slot {
    uint32_t key; /* the sample + 1; 0: free */
    uint32_t crc;
};

int
sti_crcs_init(struct sti_crcs *crcs, uint64_t n)
{
    uint64_t n_slots = 64;

    while (n_slots / 3 * 2 < n)
        n_slots *= 2;
    *crcs = (struct sti_crcs){.n_slots = n_slots, .n_left = n_slots / 3 * 2};
    crcs->slots = sti_mem_new(n_slots, sizeof(struct sti_crc_slot));
    return crcs->slots ? 0 : -ENOMEM;
}

void
sti_crcs_fini(struct sti_crcs *crcs)
{
    sti_mem_free(crcs->slots);
    *crcs = (struct sti_crcs){0};
}

/* The slot that a sample has, or would have. */
static struct sti_crc_slot *
slot_of(const struct sti_crcs *crcs, uint64_t sample)
{
    uint64_t at = sti_mix(sample + STI_MIX_INCREMENT) & (crcs->n_slots - 1);

    while (crcs->slots[at].key != 0 && crcs->slots[at].key != (uint32_t)sample + 1)
        at = (at + 1) & (crcs->n_slots - 1);
    return &crcs->slots[at];
}

bool
sti_crcs_find(const struct sti_crcs *crcs, uint64_t sample, uint32_t *ret_crc)
{
    const struct sti_crc_slot *slot = slot_of(crcs, sample);

    if (slot->key == 0)
        return false;
    *ret_crc = slot->crc;
    return true;
}

void
sti_crcs_note(struct sti_crcs *crcs, uint64_t sample, uint32_t crc)
{
    struct sti_crc_slot *slot = slot_of(crcs, sample);

    if (slot->key != 0 || crcs->n_left == 0)
        return;
    *slot = (struct sti_crc_slot){.key = (uint32_t)sample + 1, .crc = crc};
    crcs->n_left--;
}
