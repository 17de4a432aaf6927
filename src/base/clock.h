/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time in nanoseconds. Pure rooms never call this: time is passed to them. */
#ifndef STI_BASE_CLOCK_H
#define STI_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define STI_NS_PER_S UINT64_C(1000000000)

static inline uint64_t
sti_clock_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    return (uint64_t)now.tv_sec * STI_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Time of day, in nanoseconds since 1970: only to be compared with the times of files. */
static inline uint64_t
sti_clock_wall_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
    return (uint64_t)now.tv_sec * STI_NS_PER_S + (uint64_t)now.tv_nsec;
}

#endif
