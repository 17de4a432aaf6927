/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory this process may have. */
#ifndef STI_ENGINE_MEMORY_LIMIT_H
#define STI_ENGINE_MEMORY_LIMIT_H

#include <stdint.h>

#include <stoker/types.h>

/* The smaller of the machine's memory and the limit of this process's control group
 * (version 1 or 2, all levels above included). Blocks for a few reads of /proc and
 * /sys. */
uint64_t
sti_memory_limit_bytes(void);

/* Refuses what would be touched and end the process: STK_E_INFEASIBLE, and err says how much
 * there may be. what: the option, "tiers: ram". Blocks likewise. */
int
sti_memory_check(uint64_t n_bytes, const char *what, stk_error *err);

#endif
