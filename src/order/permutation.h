/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.randperm(n) and torch.randint(n) on the CPU, bit for bit, into memory of the
 * caller.
 */
#ifndef STI_ORDER_PERMUTATION_H
#define STI_ORDER_PERMUTATION_H

#include <stdbool.h>
#include <stdint.h>

#include "order/mt19937.h"

/* From this n on, torch >= 2.6 draws 64 bits per element and shuffles inside out
 * (randperm), so that the bias of the modulo stays below 5 %. */
#define STI_PERMUTATION_WIDE_N (UINT32_MAX / 20)
/* The same limit for randint, and where torch <= 2.6 has it. */
#define STI_RANDINT_WIDE_N (UINT64_C(1) << 28)
#define STI_RANDINT_WIDE_N_LEGACY (UINT64_C(1) << 32)

/* How a permutation is drawn and held. */
struct sti_permutation {
    uint64_t n;      /* 1 .. 2^48 */
    bool wide_draws; /* inside out on 64-bit draws */
    bool wide_ids;   /* ids are uint64_t, else uint32_t */
};

/* torch.randperm(n) of torch >= 2.6, or with legacy of torch <= 2.5; uint64_t from n =
 * 2^32 on. */
struct sti_permutation
sti_permutation_of(uint64_t n, bool legacy);

/* Writes the permutation that the engine's next outputs give. ids: room for n. */
void
sti_permutation_write(struct sti_mt19937 *engine, const struct sti_permutation *permutation,
                      void *ids);

/* Outputs that sti_permutation_write() takes. */
uint64_t
sti_permutation_draws(const struct sti_permutation *permutation);

/* Outputs that torch.randint() takes for a number below n: 1 or 2. legacy: torch <=
 * 2.6. */
uint32_t
sti_randint_draws(uint64_t n, bool legacy);

/* Writes count numbers below n, drawn with replacement from draws outputs each; uint64_t
 * from n = 2^32 on, else uint32_t. */
void
sti_randint_write(struct sti_mt19937 *engine, uint64_t n, uint32_t draws, uint64_t count,
                  void *ids);

#endif
