/* SPDX-License-Identifier: Apache-2.0 */
/* Dividing bytes among several devices. Pure. */
#ifndef STI_POLICY_SHARES_H
#define STI_POLICY_SHARES_H

#include <stdint.h>

/*
 * A device that takes part. weight: its measured speed, in any unit; 0: unknown, taken as
 * the mean of those that are known. room_bytes: what it can hold at most. share_bytes:
 * the result.
 */
struct sti_share {
    double weight;
    uint64_t room_bytes;
    uint64_t share_bytes;
};

/*
 * Divides n_bytes among n devices (1 .. 64) by their weights, so that all are read
 * equally long; what one has no room for goes to the others. Where there is not enough
 * room in all, each is filled. Deterministic; the shares add up to the smaller of n_bytes
 * and all room.
 */
void
sti_shares_divide(struct sti_share *shares, uint32_t n, uint64_t n_bytes);

/* The device that is filled least, measured by its share, and still has room for n_bytes
 * more; UINT32_MAX without one. used_bytes: of each device. */
uint32_t
sti_shares_next(const struct sti_share *shares, const uint64_t *used_bytes, uint32_t n,
                uint64_t n_bytes);

#endif
