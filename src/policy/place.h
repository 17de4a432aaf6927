/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a cache keeps: pure decisions, called by the running machine and by a simulator
 * alike.
 *
 * A sample that is staged is in memory anyway. When the last batch that needs it has been
 * given back, `keep` says whether it may stay, and in which order those that stay have to
 * go when room is needed:
 *
 *   none      nothing stays.
 *   pin       stays if it fits into the capacity set apart for it; then for good.
 *   lru       stays; the least recently used goes first (Denning 1968).
 *   next-use  stays if it is used again; the one whose next use is farthest goes first (Belady,
 *             "A study of replacement algorithms for a virtual-storage computer", IBM Systems
 *             Journal 5(2), 1966), those whose next use is not known yet before all others.
 */
#ifndef STI_POLICY_PLACE_H
#define STI_POLICY_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/loader.h>

/* What is known of a sample's next use by this rank. */
enum sti_next_use {
    STI_NEXT_USE_KNOWN,   /* at a position of the horizon */
    STI_NEXT_USE_UNKNOWN, /* beyond the horizon, perhaps */
    STI_NEXT_USE_NEVER,   /* not in this run any more */
};

/* Where a kept sample stands in the order of going. */
enum sti_keep {
    STI_KEEP_NOT,       /* it goes now */
    STI_KEEP_PINNED,    /* it never goes */
    STI_KEEP_BY_RECENT, /* least recently used first */
    STI_KEEP_BY_NEXT,   /* farthest next use first */
    STI_KEEP_UNKNOWN,   /* before those with a known next use */
};

/*
 * Decides at the end of a use. pin_room_bytes: what is left of the capacity for pinned
 * samples; n_bytes: the sample's size. policy is resolved (never DEFAULT).
 */
enum sti_keep
sti_place_keep(stk_policy policy, enum sti_next_use next_use, uint64_t n_bytes,
               uint64_t pin_room_bytes);

/*
 * The same where ranks hold samples for each other (assign.h). What is this rank's to hold
 * stays for good; of the rest, by coordinated, copies stay by next use in the room that is
 * left, by paper none.
 */
enum sti_keep
sti_place_keep_shared(stk_policy policy, bool is_mine, enum sti_next_use next_use);

/*
 * The policy that a request for the default means: next-use, unless the order is computed
 * per element over more samples than positions can be indexed (2^30); then pin.
 */
stk_policy
sti_place_resolve(uint32_t policy, uint64_t n_samples);

#endif
