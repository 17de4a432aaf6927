/* SPDX-License-Identifier: Apache-2.0 */
/* Who makes room where sizes differ and it hardly matters who: those that leave least
 * unused. Pure. */
#ifndef STI_POLICY_FIT_H
#define STI_POLICY_FIT_H

#include <stdint.h>

/* Candidates that can be chosen among. */
#define STI_FIT_MOST 64

/*
 * The candidate (0 .. n - 1, n 1 .. STI_FIT_MOST) to go first so that need_bytes more can be
 * taken: the smallest that is enough alone; or, where that leaves less, the first of
 * several, each the largest that the rest still needs all of and the last one just
 * enough. Asked again with what is needed then, it goes on with the others. need_bytes is
 * not 0.
 */
uint32_t
sti_fit_choose(const uint64_t *sizes, uint32_t n, uint64_t need_bytes);

#endif
