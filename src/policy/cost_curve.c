/* SPDX-License-Identifier: Apache-2.0 */
/* Curves of cost. Invariant: depths rise strictly, every value is above 0. */
#include "policy/cost_curve.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define READS_MIN 16u
#define NS_PER_S 1e9

void
sti_cost_curve_add(struct sti_cost_curve *curve, const struct sti_cost_point *point)
{
    uint32_t at = 0;

    if (!(point->depth > 0 && point->latency_s > 0 && point->bytes_per_s > 0))
        return;
    while (at < curve->n_points && curve->points[at].depth < point->depth)
        at++;
    bool is_there = at < curve->n_points && !(curve->points[at].depth > point->depth);
    if (!is_there) {
        if (curve->n_points == STI_COST_POINTS_MAX)
            return;
        memmove(&curve->points[at + 1], &curve->points[at],
                (curve->n_points - at) * sizeof(curve->points[0]));
        curve->n_points++;
    }
    curve->points[at] = *point;
}

struct sti_cost_point
sti_cost_curve_at(const struct sti_cost_curve *curve, double depth)
{
    struct sti_cost_point at = {.depth = depth};
    uint32_t behind = 0;

    if (curve->n_points == 0)
        return at;
    while (behind < curve->n_points && curve->points[behind].depth < depth)
        behind++;
    if (behind == 0 || behind == curve->n_points) {
        at = curve->points[behind == 0 ? 0 : behind - 1];
        at.depth = depth;
        return at;
    }
    const struct sti_cost_point *low = &curve->points[behind - 1];
    const struct sti_cost_point *high = &curve->points[behind];
    double part = (depth - low->depth) / (high->depth - low->depth);
    at.latency_s = low->latency_s + part * (high->latency_s - low->latency_s);
    at.bytes_per_s = low->bytes_per_s + part * (high->bytes_per_s - low->bytes_per_s);
    return at;
}

double
sti_cost_curve_seconds(const struct sti_cost_curve *curve, double n_samples, double n_bytes,
                       double depth)
{
    struct sti_cost_point at = sti_cost_curve_at(curve, depth);

    if (curve->n_points == 0)
        return 0;
    double by_latency_s = n_samples * at.latency_s / (depth < 1 ? 1 : depth);
    double by_bandwidth_s = n_bytes / at.bytes_per_s;
    return by_latency_s > by_bandwidth_s ? by_latency_s : by_bandwidth_s;
}

static void
pass_time(struct sti_cost_learner *learner, uint64_t now_ns)
{
    uint64_t passed_ns = now_ns > learner->since_ns ? now_ns - learner->since_ns : 0;

    if (learner->n_under_way > 0) {
        learner->busy_ns += passed_ns;
        learner->depth_ns += passed_ns * learner->n_under_way;
    }
    learner->since_ns = now_ns;
}

void
sti_cost_learner_begin(struct sti_cost_learner *learner, uint64_t now_ns)
{
    pass_time(learner, now_ns);
    learner->n_under_way++;
}

void
sti_cost_learner_end(struct sti_cost_learner *learner, uint64_t now_ns, uint64_t began_ns,
                     uint64_t n_bytes)
{
    uint64_t took_ns = now_ns > began_ns ? now_ns - began_ns : 1;

    pass_time(learner, now_ns);
    learner->n_under_way--;
    if (n_bytes == 0)
        return; /* it failed: nothing was learned */
    learner->n_reads++;
    learner->n_bytes += n_bytes;
    if (learner->least_ns == 0 || took_ns < learner->least_ns)
        learner->least_ns = took_ns;
}

int
sti_cost_learner_point(const struct sti_cost_learner *learner, struct sti_cost_point *ret_point)
{
    if (learner->n_reads < READS_MIN || learner->busy_ns == 0)
        return -EAGAIN;
    ret_point->depth = (double)learner->depth_ns / (double)learner->busy_ns;
    ret_point->latency_s = (double)learner->least_ns / NS_PER_S;
    ret_point->bytes_per_s = (double)learner->n_bytes / ((double)learner->busy_ns / NS_PER_S);
    return 0;
}
