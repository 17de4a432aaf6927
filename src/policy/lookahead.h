/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far ahead to stage where memory and SSDs do not hold everything. Next-use placement
 * fills the memory with what comes soonest in the next epoch, so an epoch begins with
 * hits of what the SSD does not have and ends with misses. A staged sample that the SSD
 * has, too, takes memory from one that is kept, and costs origin bytes unless that memory
 * is not needed or it lies beside it. With f the part of the data set that is on the SSD,
 * T the memory set apart for such samples, p and r the bytes of the epoch that the walk
 * has passed and left, and M the bytes that cannot be held at all, L staged bytes cost
 * nothing if
 *
 *     f L <= T + (1 - f) max(0, p - L)   early: what has been used since the epoch began
 *                                        makes their room
 *     f L <= T + (1 - f) r               late: what is still to come fills it again for the
 *                                        next epoch
 *     f L <= T + M                       between: no more than M has to go anyway
 *
 * A quarter of T is left to chance: f L is a mean.
 *
 * Pure.
 */
#ifndef STI_POLICY_LOOKAHEAD_H
#define STI_POLICY_LOOKAHEAD_H

#include <stdint.h>

struct sti_lookahead {
    uint64_t limit_bytes;   /* staged at most, anywhere */
    uint64_t transit_bytes; /* T */
    uint64_t least_bytes;   /* and as much is always allowed, at the price of its SSD part */
    uint64_t memory_bytes;
    uint64_t ssd_bytes; /* 0: no limit but the first */
    uint64_t data_bytes;
};

/* The bytes that may be staged with passed_bytes of the epoch walked and left_bytes to
 * come. */
uint64_t
sti_lookahead_bytes(const struct sti_lookahead *lookahead, uint64_t passed_bytes,
                    uint64_t left_bytes);

#endif
