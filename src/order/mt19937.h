/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Mersenne Twister MT19937 (Matsumoto and Nishimura, "Mersenne Twister: a
 * 623-dimensionally equidistributed uniform pseudo-random number generator", ACM TOMACS
 * 8(1), 1998), seeded and drawn from as PyTorch's CPU generator does, and a jump over any
 * number of outputs.
 */
#ifndef STI_ORDER_MT19937_H
#define STI_ORDER_MT19937_H

#include <stdint.h>

#define STI_MT19937_WORDS 624

/* Bytes of working memory that a jump needs, 8-byte aligned. */
#define STI_MT19937_JUMP_BYTES (UINT64_C(96) << 10)

__extension__ typedef unsigned __int128 sti_u128;

/* A generator. A plain value: copying it forks the sequence. One thread at a time. */
struct sti_mt19937 {
    uint32_t words[STI_MT19937_WORDS]; /* the block, not yet tempered */
    uint32_t next_idx;                 /* of words; STI_MT19937_WORDS: the block is used up */
};

/* Starts the sequence of a seed. Only the seed modulo 2^32 counts, as in PyTorch. */
void
sti_mt19937_seed(struct sti_mt19937 *engine, uint64_t seed);

/* The next output. */
uint32_t
sti_mt19937_u32(struct sti_mt19937 *engine);

/* The next two outputs, the first one as the upper half. */
uint64_t
sti_mt19937_u64(struct sti_mt19937 *engine);

/*
 * Writes the next outputs, as many as the block still holds but at most max (>= 1).
 * Returns how many, 1 .. STI_MT19937_WORDS. out: room for max. For loops that want
 * outputs ahead of their use.
 */
uint32_t
sti_mt19937_block(struct sti_mt19937 *engine, uint32_t *out, uint64_t max);

/*
 * Skips outputs. Short ways are walked, long ones are leapt over in 3 to 12 ms, whatever
 * the length. scratch: STI_MT19937_JUMP_BYTES, contents undefined.
 */
void
sti_mt19937_jump(struct sti_mt19937 *engine, sti_u128 count, void *scratch);

#endif
