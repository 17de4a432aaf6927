/* SPDX-License-Identifier: Apache-2.0 */
/* How unevenly a rank reads: the samples that it reads much more often than others, as
 * the binomial law says. */
#ifndef STI_SIM_HOT_H
#define STI_SIM_HOT_H

#include <stdint.h>

/*
 * Of `samples`, the number that one of `ranks` is expected to read more than (1 + excess)
 * * epochs / ranks times in `epochs`: each epoch gives a sample to a rank with
 * probability 1 / ranks. *ret_uses: the least number of times that is; may be NULL.
 */
double
sti_sim_hot_samples(double samples, double ranks, uint64_t epochs, double excess,
                    uint64_t *ret_uses);

#endif
