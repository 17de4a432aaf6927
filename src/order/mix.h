/* SPDX-License-Identifier: Apache-2.0 */
/* A hash of one word. */
#ifndef STI_ORDER_MIX_H
#define STI_ORDER_MIX_H

#include <stdint.h>

#define STI_MIX_INCREMENT UINT64_C(0x9e3779b97f4a7c15)

/* The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom
 * Number Generators", OOPSLA 2014): a bijection in which each input bit reaches each
 * output bit. 0 stays 0, so add STI_MIX_INCREMENT first where that matters. */
static inline uint64_t
sti_mix(uint64_t word)
{
    word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
    return word ^ word >> 31;
}

#endif
