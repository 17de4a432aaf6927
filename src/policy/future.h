/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The next use of each sample in the epochs that are known ahead, for all ranks together
 * and where an epoch does not read everything (dropped tails). Then what is worth
 * carrying over the end of an epoch may not be read before the one after next, and a
 * cache has to compare uses across several epochs. The next use becomes a key for
 * pool.h, farthest first: Belady's rule on what all ranks can hold.
 *
 * Keys go round: the window holds n_window epochs from the one that is being read on, and
 * an epoch that comes into sight takes the place of the one that has been read. Pure; 8
 * bytes per sample and epoch of the window. One thread.
 */
#ifndef STI_POLICY_FUTURE_H
#define STI_POLICY_FUTURE_H

#include <stdbool.h>
#include <stdint.h>

struct sti_future {
    uint64_t n_samples;
    uint64_t n_window;
    uint64_t n_ordered; /* epochs whose order was given; the window ends there */
    uint32_t *ids;      /* [slot * n_samples + place]: the order of the slot's epoch; by key */
    uint32_t *place_of; /* [slot * n_samples + sample]; UINT32_MAX: not read in that epoch */
};

/*
 * Whether the order of going has to be that of the next use. What an epoch drops leaves
 * its room when it has been read for the last time, and what takes the room is a miss
 * that comes behind. While usable misses are a multiple of what is dropped any order of
 * going finds enough of them; else misses have to come at the end of an epoch, which the
 * order of next uses brings about. data_bytes: of all samples; read_bytes: of them, read
 * in an epoch.
 */
bool
sti_future_decides(uint64_t data_bytes, uint64_t read_bytes, uint64_t capacity_bytes);

/* Epochs of a window that takes max_bytes at most, but never less than two as far as
 * n_known are known, the one being read included. */
uint64_t
sti_future_window(uint64_t n_samples, uint64_t n_known, uint64_t max_bytes);

/* A window without epochs. n_samples * n_window below 2^32. Errors: -ENOMEM.
 * sti_future_fini() in any case. */
int
sti_future_init(struct sti_future *future, uint64_t n_samples, uint64_t n_window);

/* All zero is allowed. */
void
sti_future_fini(struct sti_future *future);

/* The order of an epoch in the window; for the next one that comes into sight
 * (n_ordered), n_samples places to write it to. Borrowed until the epoch is left. */
static inline uint32_t *
sti_future_ids(const struct sti_future *future, uint64_t epoch)
{
    return future->ids + epoch % future->n_window * future->n_samples;
}

/* The order of epoch n_ordered has been written to sti_future_ids(), and its first n_read
 * are read. */
void
sti_future_order(struct sti_future *future, uint64_t n_read);

/* The first key of an epoch: for sti_pool_turn(). */
static inline uint64_t
sti_future_first_key(const struct sti_future *future, uint64_t epoch)
{
    return epoch % future->n_window * future->n_samples;
}

/* The key of a sample's next use after an epoch of the window. False where the window has
 * none. */
bool
sti_future_next(const struct sti_future *future, uint64_t epoch, uint32_t sample,
                uint32_t *ret_key);

#endif
