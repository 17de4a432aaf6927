/* SPDX-License-Identifier: Apache-2.0 */
/* The upper tail of a binomial distribution, in logarithms so that no term leaves the
 * range of a double. Pure; any thread. */
#include "sim/hot.h"

#include <math.h>

/* lgamma() writes a global. */
static double
log_gamma(double x)
{
    int sign;

    return lgamma_r(x, &sign);
}

double
sti_sim_hot_samples(double samples, double ranks, uint64_t epochs, double excess,
                    uint64_t *ret_uses)
{
    double n = (double)epochs;
    uint64_t uses = (uint64_t)floor((1 + excess) * n / ranks * (1 + 1e-12)) + 1;
    double log_yes = -log(ranks);
    double log_no = ranks > 1 ? log1p(-1 / ranks) : 0;
    double sum = 0;

    if (ret_uses)
        *ret_uses = uses;
    if (ranks <= 1)
        return uses <= epochs ? samples : 0;
    for (uint64_t at = uses; at <= epochs; at++) {
        double k = (double)at;

        sum += exp(log_gamma(n + 1) - log_gamma(k + 1) - log_gamma(n - k + 1) + k * log_yes +
                   (n - k) * log_no);
    }
    return samples * sum;
}
