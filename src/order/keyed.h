/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A permutation of 0 .. n - 1 that is evaluated per element, both ways, without memory: a
 * Feistel network with cycle walking (Black and Rogaway, "Ciphers with Arbitrary Finite
 * Domains", CT-RSA 2002), keyed by seed and epoch. For shuffling, not for secrecy.
 */
#ifndef STI_ORDER_KEYED_H
#define STI_ORDER_KEYED_H

#include <stdint.h>

#define STI_KEYED_ROUNDS 12

/* A permutation. A plain value; constant once made. */
struct sti_keyed {
    uint64_t n;
    uint32_t left_bits; /* of the network's two halves; together they span n, at most twice n */
    uint32_t right_bits;
    uint64_t keys[STI_KEYED_ROUNDS];
};

/* n: 1 .. 2^48. Takes some tens of nanoseconds: cheap enough to be made anew for one
 * element. */
void
sti_keyed_init(struct sti_keyed *keyed, uint64_t n, uint64_t seed, uint64_t epoch);

/* The element at a position, both below n. Less than two passes of the network on
 * average. */
uint64_t
sti_keyed_at(const struct sti_keyed *keyed, uint64_t position);

/* The position of an element: the inverse of sti_keyed_at(). */
uint64_t
sti_keyed_find(const struct sti_keyed *keyed, uint64_t element);

#endif
