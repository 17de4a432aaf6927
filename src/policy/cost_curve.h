/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What reading from a place costs: a latency and a bandwidth for each measured number of
 * reads at once, straight lines between them. Learned from reads as they happen: the
 * bandwidth by what a time brought, the latency by the shortest reads. Pure values; times
 * are passed in.
 */
#ifndef STI_POLICY_COST_CURVE_H
#define STI_POLICY_COST_CURVE_H

#include <stdint.h>

#define STI_COST_POINTS_MAX 12

struct sti_cost_point {
    double depth;       /* reads at once; rises from point to point */
    double latency_s;   /* of one read of a block */
    double bytes_per_s; /* of all of them together */
};

struct sti_cost_curve {
    uint32_t n_points; /* 0: nothing is known */
    struct sti_cost_point points[STI_COST_POINTS_MAX];
};

/* Adds a point, or makes the one at this depth anew; the order is kept. What has no room,
 * or is no number above 0, is left out. */
void
sti_cost_curve_add(struct sti_cost_curve *curve, const struct sti_cost_point *point);

/* The curve at a depth: level before the first and behind the last point, since what was
 * not measured is not promised. All zero without points. */
struct sti_cost_point
sti_cost_curve_at(const struct sti_cost_curve *curve, double depth);

/*
 * The seconds that n_samples reads of n_bytes together take with depth at once: each
 * costs a latency, depth of them side by side, and all share the bandwidth; whichever is
 * longer. 0 without points.
 */
double
sti_cost_curve_seconds(const struct sti_cost_curve *curve, double n_samples, double n_bytes,
                       double depth);

/* ---- learning from reads ---- */

/* What was seen of a device while its reads went on. */
struct sti_cost_learner {
    uint64_t n_reads;
    uint64_t n_bytes;
    uint64_t busy_ns;     /* time with at least one read under way */
    uint64_t depth_ns;    /* sum over time of the reads under way */
    uint64_t least_ns;    /* the shortest read */
    uint64_t since_ns;    /* when the number under way last changed */
    uint32_t n_under_way; /* now */
};

/* A read begins or ends. began_ns: when the one that ends began; n_bytes: what it
 * brought. */
void
sti_cost_learner_begin(struct sti_cost_learner *learner, uint64_t now_ns);
void
sti_cost_learner_end(struct sti_cost_learner *learner, uint64_t now_ns, uint64_t began_ns,
                     uint64_t n_bytes);

/* What was learned, as one point at the mean depth. Returns 0, or -EAGAIN with too few
 * reads. */
int
sti_cost_learner_point(const struct sti_cost_learner *learner, struct sti_cost_point *ret_point);

#endif
