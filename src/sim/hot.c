/* SPDX-License-Identifier: Apache-2.0 */
/* The upper tail of a binomial distribution, in logarithms so that no term leaves the range of a
 * double. Pure; any thread. */
#include "sim/hot.h"

#include <math.h>

double
sti_sim_hot_samples(double samples, double ranks, uint64_t epochs, double excess,
                    uint64_t *ret_uses)
{
    double n = (double)epochs;
    double uses = floor((1 + excess) * n / ranks * (1 + 1e-12)) + 1;
    double log_yes = -log(ranks);
    double log_no = ranks > 1 ? log1p(-1 / ranks) : 0;
    double sum = 0;

    if (ret_uses)
        *ret_uses = (uint64_t)uses;
    if (ranks <= 1)
        return uses <= n ? samples : 0;
    for (double k = uses; k <= n; k++)
        sum +=
            exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log_yes + (n - k) * log_no);
    return samples * sum;
}
