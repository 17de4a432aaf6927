/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.randperm(n) and torch.randint(n) on the CPU, bit for bit, into memory of the caller.
 */
#ifndef STI_ORDER_PERMUTATION_H
#define STI_ORDER_PERMUTATION_H

#include <stdbool.h>
#include <stdint.h>

#include "order/mt19937.h"

/* From this n on, torch >= 2.6 draws 64 bits per element and shuffles inside out (randperm), so
 * that the bias of the modulo stays below 5 %. */
#define STI_PERMUTATION_WIDE_N (UINT32_MAX / 20)
/* The same limit for randint, and where torch <= 2.5 has it. */
#define STI_RANDINT_WIDE_N (UINT64_C(1) << 28)
#define STI_RANDINT_WIDE_N_LEGACY (UINT64_C(1) << 32)

/*
 * Writes the permutation that the engine's next outputs give.
 * ids: n of uint32_t where n < 2^32, else of uint64_t. n >= 1. legacy: as torch <= 2.5.
 */
void
sti_permutation_write(struct sti_mt19937 *engine, uint64_t n, bool legacy, void *ids);

/* Outputs that sti_permutation_write() takes. */
uint64_t
sti_permutation_draws(uint64_t n, bool legacy);

/* Writes count numbers below n, drawn with replacement; ids as above. */
void
sti_randint_write(struct sti_mt19937 *engine, uint64_t n, bool legacy, uint64_t count, void *ids);

/* Outputs that one number below n takes: 1 or 2. */
uint32_t
sti_randint_draws(uint64_t n, bool legacy);

#endif
