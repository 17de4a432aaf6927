/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a read. Pure; any thread. */
#include "policy/cost.h"

#include <assert.h>

struct sti_curve
sti_curve_flat(double rate)
{
    return (struct sti_curve){.n_points = 1, .x = {1}, .y = {rate}};
}

double
sti_curve_at(const struct sti_curve *curve, double x)
{
    uint32_t last = curve->n_points - 1;

    assert(curve->n_points >= 1);
    if (x <= curve->x[0])
        return curve->y[0];
    if (x >= curve->x[last])
        return curve->y[last];
    uint32_t at = 1;
    while (curve->x[at] < x)
        at++;
    double part = (x - curve->x[at - 1]) / (curve->x[at] - curve->x[at - 1]);
    return curve->y[at - 1] + part * (curve->y[at] - curve->y[at - 1]);
}

double
sti_cost_seconds(const struct sti_cost *cost, double n_bytes, double clients)
{
    return cost->latency_s + n_bytes * clients / sti_curve_at(&cost->curve, clients);
}

double
sti_cost_saved_per_byte(const struct sti_cost *origin, double n_bytes, double clients)
{
    /* An empty sample takes no room; it is worth more than any other. */
    double n = n_bytes < 1 ? 1 : n_bytes;

    return sti_cost_seconds(origin, n, clients) / n;
}
