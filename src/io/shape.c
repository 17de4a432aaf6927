/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emulated storage. Each limit is a queue whose server is busy until a time; an operation
 * is done when the last of its queues has served it, and not before its latency is over.
 * A queue that was idle may start up to BURST_NS in the past, so that a wake-up that
 * comes a little late costs no bandwidth. Used by one thread at a time.
 */
#include "io/shape.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"

#define BURST_NS UINT64_C(2000000)
#define NEVER_NS 9e18 /* 285 years; what a rate close to 0 gives no longer fits in 64 bits */

enum limit { RBPS, WBPS, BPS, RIOPS, WIOPS, RLAT, WLAT, LIMITS };

static const char *const limit_names[LIMITS] = {"rbps",  "wbps", "bps", "riops",
                                                "wiops", "rlat", "wlat"};

struct sti_shape {
    double value[LIMITS];   /* per second, or ns for the latencies; 0: no limit */
    double busy_ns[LIMITS]; /* the queue is busy until then */
};

static double
suffix_factor(const char *suffix, bool is_time)
{
    static const struct {
        const char *text;
        bool is_time;
        double factor;
    } known[] = {
        {"", false, 1},  {"K", false, 1e3}, {"k", false, 1e3}, {"M", false, 1e6}, {"G", false, 1e9},
        {"ns", true, 1}, {"us", true, 1e3}, {"ms", true, 1e6}, {"s", true, 1e9},
    };

    for (size_t at = 0; at < sizeof(known) / sizeof(known[0]); at++)
        if (known[at].is_time == is_time && strcmp(known[at].text, suffix) == 0)
            return known[at].factor;
    return 0;
}

static int
parse_part(struct sti_shape *shape, char *part, stk_error *err)
{
    char *equals = strchr(part, '=');

    if (!equals)
        return sti_error_set(err, -EINVAL, "shape: '%s' is not name=value", part);
    *equals = '\0';
    for (int limit = 0; limit < LIMITS; limit++) {
        char *end;

        if (strcmp(part, limit_names[limit]) != 0)
            continue;
        errno = 0;
        double value = strtod(equals + 1, &end);
        double factor = suffix_factor(end, limit >= RLAT);
        if (end == equals + 1 || errno != 0 || !(value > 0) || !(factor > 0) ||
            !(value * factor <= 1e18))
            return sti_error_set(err, -EINVAL, "shape: %s=%s is not a positive number%s", part,
                                 equals + 1,
                                 limit >= RLAT ? " with ns, us, ms or s" : " (K, M, G allowed)");
        shape->value[limit] = value * factor;
        return 0;
    }
    return sti_error_set(
        err, -EINVAL, "shape: '%s' is not one of rbps, wbps, bps, riops, wiops, rlat, wlat", part);
}

int
sti_shape_new(struct sti_shape **ret_shape, const char *text, stk_error *err)
{
    struct sti_shape *shape = sti_mem_new(1, sizeof(*shape));
    char *copy = sti_mem_strdup(text);
    char *state = NULL;
    int rc = 0;

    if (!shape || !copy) {
        rc = sti_error_set(err, -ENOMEM, "no memory for the emulated storage");
        goto out;
    }
    for (char *part = strtok_r(copy, " ,\t", &state); part && rc == 0;
         part = strtok_r(NULL, " ,\t", &state))
        rc = parse_part(shape, part, err);
out:
    sti_mem_free(copy);
    if (rc < 0) {
        sti_mem_free(shape);
        return rc;
    }
    *ret_shape = shape;
    return 0;
}

void
sti_shape_free(struct sti_shape *shape)
{
    sti_mem_free(shape);
}

static double
queue(struct sti_shape *shape, enum limit limit, double n, double arrival_ns)
{
    if (!(shape->value[limit] > 0))
        return arrival_ns;
    double start_ns = shape->busy_ns[limit];
    if (start_ns < arrival_ns - (double)BURST_NS)
        start_ns = arrival_ns - (double)BURST_NS;
    shape->busy_ns[limit] = start_ns + n * (double)STI_NS_PER_S / shape->value[limit];
    return shape->busy_ns[limit];
}

uint64_t
sti_shape_charge(struct sti_shape *shape, bool is_write, uint64_t n_bytes, uint64_t arrival_ns)
{
    double arrival = (double)arrival_ns;
    double due = arrival + shape->value[is_write ? WLAT : RLAT];
    const double ends[] = {
        queue(shape, is_write ? WBPS : RBPS, (double)n_bytes, arrival),
        queue(shape, BPS, (double)n_bytes, arrival),
        queue(shape, is_write ? WIOPS : RIOPS, 1, arrival),
    };

    for (size_t at = 0; at < sizeof(ends) / sizeof(ends[0]); at++)
        if (ends[at] > due)
            due = ends[at];
    return due < NEVER_NS ? (uint64_t)due : (uint64_t)NEVER_NS;
}
