/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What reading costs: latency, and bandwidth as a function of how many read at once,
 * given by measured points and read as straight lines between them. Pure values.
 */
#ifndef STI_POLICY_COST_H
#define STI_POLICY_COST_H

#include <stdint.h>

#define STI_CURVE_POINTS_MAX 16

/* Aggregate rate by number of clients; x rises strictly, 1 .. STI_CURVE_POINTS_MAX
 * points. */
struct sti_curve {
    uint32_t n_points;
    double x[STI_CURVE_POINTS_MAX]; /* clients, > 0 */
    double y[STI_CURVE_POINTS_MAX]; /* bytes (or MB) per second of all of them together, > 0 */
};

/* A curve of one point: the same rate for any number of clients. */
struct sti_curve
sti_curve_flat(double rate);

/* The curve at x. Before the first and behind the last point it is level: what was not
 * measured is not promised. */
double
sti_curve_at(const struct sti_curve *curve, double x);

/* A place to read from. */
struct sti_cost {
    double latency_s;       /* of one read, >= 0 */
    struct sti_curve curve; /* bytes per second by clients */
};

/* The seconds that one of `clients` equal readers needs for n_bytes. */
double
sti_cost_seconds(const struct sti_cost *cost, double n_bytes, double clients);

/* Origin time that holding a sample saves at each use, per byte of room it takes. What is
 * held when not everything fits is what has most of it: where latency counts, small
 * samples first. */
double
sti_cost_saved_per_byte(const struct sti_cost *origin, double n_bytes, double clients);

#endif
