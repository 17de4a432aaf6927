/* SPDX-License-Identifier: Apache-2.0 */
/* The two clocks of a contender: the wall's, and this process's processor time. */
#ifndef BENCH_CLOCKS_H
#define BENCH_CLOCKS_H

#include <sys/resource.h>
#include <time.h>

static inline double
now_seconds(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline double
cpu_seconds(void)
{
    struct rusage use;

    (void)getrusage(RUSAGE_SELF, &use); /* cannot fail for this process */
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

#endif
