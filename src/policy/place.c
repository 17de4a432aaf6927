/* SPDX-License-Identifier: Apache-2.0 */
/* Placement decisions. Pure: everything they depend on is an argument. */
#include "policy/place.h"

#define INDEXED_SAMPLES_MAX (UINT64_C(1) << 30)

static enum sti_keep
keep_by_next(enum sti_next_use next_use)
{
    switch (next_use) {
    case STI_NEXT_USE_KNOWN:
        return STI_KEEP_BY_NEXT;
    case STI_NEXT_USE_UNKNOWN:
        return STI_KEEP_UNKNOWN;
    case STI_NEXT_USE_NEVER:
        break;
    }
    return STI_KEEP_NOT;
}

enum sti_keep
sti_place_keep(stk_policy policy, enum sti_next_use next_use, uint64_t n_bytes,
               uint64_t pin_room_bytes)
{
    switch (policy) {
    case STK_POLICY_PIN:
        return n_bytes <= pin_room_bytes ? STI_KEEP_PINNED : STI_KEEP_NOT;
    case STK_POLICY_LRU:
        return STI_KEEP_BY_RECENT;
    case STK_POLICY_DEFAULT:
    case STK_POLICY_NEXT_USE:
    case STK_POLICY_COORDINATED:
        return keep_by_next(next_use);
    case STK_POLICY_NONE:
    case STK_POLICY_PAPER:
        break;
    }
    return STI_KEEP_NOT;
}

enum sti_keep
sti_place_keep_shared(stk_policy policy, bool is_mine, enum sti_next_use next_use)
{
    return is_mine ? STI_KEEP_PINNED : sti_place_keep(policy, next_use, 0, 0);
}

stk_policy
sti_place_resolve(uint32_t policy, uint64_t n_samples)
{
    if (policy != STK_POLICY_DEFAULT)
        return (stk_policy)policy;
    return n_samples > INDEXED_SAMPLES_MAX ? STK_POLICY_PIN : STK_POLICY_NEXT_USE;
}
