/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of what may go. Positions are kept modulo the span; since all members lie
 * within one span below the newest, reading downwards from the newest's slot and round
 * the end visits them from the farthest next use to the nearest.
 */
#include "tier/evictor.h"

#include <errno.h>

#include "base/bitset.h"
#include "base/mem.h"

#define NOBODY UINT32_MAX

struct link {
    uint32_t newer;
    uint32_t older;
};

struct sti_evictor {
    uint64_t span;
    struct sti_bitset positions[STI_CLASSES];
    struct sti_bitset unknown[2]; /* WORTHY in the last */
    struct link *links;           /* by sample, lru only */
    uint32_t newest;
    uint32_t oldest;
};

int
sti_evictor_new(struct sti_evictor **ret_evictor, stk_policy policy, uint64_t n, uint64_t span,
                bool has_classes)
{
    struct sti_evictor *evictor = sti_mem_new(1, sizeof(*evictor));
    int rc = 0;

    if (!evictor)
        return -ENOMEM;
    evictor->span = span ? span : 1;
    evictor->newest = NOBODY;
    evictor->oldest = NOBODY;
    if (policy == STK_POLICY_NEXT_USE) {
        for (int at = has_classes ? 0 : STI_CLASS_WORTHY; rc == 0 && at < STI_CLASSES; at++)
            rc = sti_bitset_init(&evictor->positions[at], evictor->span);
        for (int at = has_classes ? 0 : 1; rc == 0 && at < 2; at++)
            rc = sti_bitset_init(&evictor->unknown[at], n);
    } else if (policy == STK_POLICY_LRU) {
        evictor->links = sti_mem_new(n, sizeof(struct link));
        rc = evictor->links ? 0 : -ENOMEM;
    }
    if (rc < 0) {
        sti_evictor_free(evictor);
        return rc;
    }
    *ret_evictor = evictor;
    return 0;
}

void
sti_evictor_free(struct sti_evictor *evictor)
{
    if (!evictor)
        return;
    for (int at = 0; at < STI_CLASSES; at++)
        sti_bitset_fini(&evictor->positions[at]);
    for (int at = 0; at < 2; at++)
        sti_bitset_fini(&evictor->unknown[at]);
    sti_mem_free(evictor->links);
    sti_mem_free(evictor);
}

void
sti_evictor_add_position(struct sti_evictor *evictor, uint64_t position, enum sti_class class)
{
    (void)sti_bitset_add(&evictor->positions[class], position % evictor->span); /* no two at one */
}

void
sti_evictor_remove_position(struct sti_evictor *evictor, uint64_t position)
{
    uint64_t slot = position % evictor->span;

    /* It is in one of them, most often the last. */
    for (int at = STI_CLASS_WORTHY; at >= 0; at--)
        if (evictor->positions[at].n_set > 0 && sti_bitset_remove(&evictor->positions[at], slot))
            return;
}

void
sti_evictor_add_unknown(struct sti_evictor *evictor, uint64_t sample, enum sti_class class)
{
    struct sti_bitset *unknown = &evictor->unknown[class == STI_CLASS_WORTHY ? 1 : 0];

    (void)sti_bitset_add(unknown, sample); /* it is not in */
}

void
sti_evictor_remove_unknown(struct sti_evictor *evictor, uint64_t sample)
{
    for (int at = 1; at >= 0; at--)
        if (evictor->unknown[at].n_set > 0 && sti_bitset_remove(&evictor->unknown[at], sample))
            return;
}

void
sti_evictor_add_recent(struct sti_evictor *evictor, uint64_t sample)
{
    uint32_t self = (uint32_t)sample;

    evictor->links[self] = (struct link){.newer = NOBODY, .older = evictor->newest};
    if (evictor->newest != NOBODY)
        evictor->links[evictor->newest].newer = self;
    evictor->newest = self;
    if (evictor->oldest == NOBODY)
        evictor->oldest = self;
}

void
sti_evictor_remove_recent(struct sti_evictor *evictor, uint64_t sample)
{
    const struct link *link = &evictor->links[sample];

    if (link->newer != NOBODY)
        evictor->links[link->newer].older = link->older;
    else
        evictor->newest = link->older;
    if (link->older != NOBODY)
        evictor->links[link->older].newer = link->newer;
    else
        evictor->oldest = link->newer;
}

static enum sti_victim
take_farthest(struct sti_evictor *evictor, enum sti_class class, uint64_t newest,
              uint64_t *ret_value)
{
    struct sti_bitset *positions = &evictor->positions[class];
    uint64_t newest_slot = newest % evictor->span;
    uint64_t slot = sti_bitset_previous(positions, newest_slot);
    uint64_t back;

    if (slot != STI_BITSET_NONE) {
        back = newest_slot - slot;
    } else {
        slot = sti_bitset_previous(positions, evictor->span - 1);
        if (slot == STI_BITSET_NONE)
            return STI_VICTIM_NONE;
        back = newest_slot + evictor->span - slot;
    }
    (void)sti_bitset_remove(positions, slot); /* just found */
    *ret_value = newest - back;
    return STI_VICTIM_POSITION;
}

static enum sti_victim
take_unknown(struct sti_bitset *unknown, uint64_t *ret_value)
{
    *ret_value = sti_bitset_next(unknown, 0);
    (void)sti_bitset_remove(unknown, *ret_value); /* just found */
    return STI_VICTIM_SAMPLE;
}

enum sti_victim
sti_evictor_take(struct sti_evictor *evictor, uint64_t newest, uint64_t *ret_value)
{
    if (evictor->oldest != NOBODY) {
        *ret_value = evictor->oldest;
        sti_evictor_remove_recent(evictor, *ret_value);
        return STI_VICTIM_SAMPLE;
    }
    for (int at = 0; at < STI_CLASSES; at++) {
        if (at > 0 && evictor->unknown[at - 1].n_set > 0)
            return take_unknown(&evictor->unknown[at - 1], ret_value);
        if (evictor->positions[at].n_set > 0)
            return take_farthest(evictor, (enum sti_class)at, newest, ret_value);
    }
    return STI_VICTIM_NONE;
}

static uint32_t
look_at_positions(const struct sti_evictor *evictor, const struct sti_bitset *positions,
                  uint64_t newest, uint64_t *values, uint32_t most)
{
    uint64_t newest_slot = newest % evictor->span;
    uint64_t slot = newest_slot;
    uint64_t ahead = 0; /* of slots beyond the newest's, once round the end */
    uint32_t n = 0;

    while (n < most) {
        uint64_t found = sti_bitset_previous(positions, slot);

        if (found == STI_BITSET_NONE) {
            ahead = evictor->span;
            slot = evictor->span - 1;
            continue; /* most is less than there are */
        }
        values[n++] = newest - (newest_slot + ahead - found);
        if (found == 0) {
            ahead = evictor->span;
            slot = evictor->span - 1;
        } else {
            slot = found - 1;
        }
    }
    return n;
}

static uint32_t
look_at_unknown(const struct sti_bitset *unknown, uint64_t *values, uint32_t most)
{
    uint64_t from = 0;

    for (uint32_t n = 0; n < most; n++) {
        values[n] = sti_bitset_next(unknown, from);
        from = values[n] + 1;
    }
    return most;
}

static uint32_t
how_many(uint64_t n, uint32_t most)
{
    return n < most ? (uint32_t)n : most;
}

enum sti_victim
sti_evictor_look(const struct sti_evictor *evictor, uint64_t newest, uint64_t *values,
                 uint32_t most, uint32_t *ret_n, uint64_t *ret_n_alike)
{
    if (evictor->oldest != NOBODY) {
        values[0] = evictor->oldest;
        *ret_n_alike = 1;
        *ret_n = 1;
        return STI_VICTIM_SAMPLE;
    }
    for (int at = 0; at < STI_CLASSES; at++) {
        const struct sti_bitset *positions = &evictor->positions[at];

        if (at > 0 && evictor->unknown[at - 1].n_set > 0) {
            const struct sti_bitset *unknown = &evictor->unknown[at - 1];

            *ret_n_alike = unknown->n_set;
            *ret_n = look_at_unknown(unknown, values, how_many(unknown->n_set, most));
            return STI_VICTIM_SAMPLE;
        }
        if (positions->n_set > 0) {
            *ret_n_alike = positions->n_set;
            *ret_n = look_at_positions(evictor, positions, newest, values,
                                       how_many(positions->n_set, most));
            return STI_VICTIM_POSITION;
        }
    }
    return STI_VICTIM_NONE;
}

void
sti_evictor_clear_positions(struct sti_evictor *evictor)
{
    for (int at = 0; at < STI_CLASSES; at++)
        if (evictor->positions[at].n_set > 0)
            sti_bitset_clear(&evictor->positions[at]);
}
