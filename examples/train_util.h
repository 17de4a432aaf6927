/* SPDX-License-Identifier: Apache-2.0 */
/* What every part of train_fashion needs: the time, and a way to say what failed. */
#ifndef EXAMPLES_TRAIN_UTIL_H
#define EXAMPLES_TRAIN_UTIL_H

#include <stdio.h>
#include <time.h>

#include <stoker/stoker.h>

static inline double
now_seconds(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Says what failed and why; returns rc. */
static inline int
complain(const char *what, int rc, const stk_error *err)
{
    fprintf(stderr, "train_fashion: %s: %s (%s)%s%s\n", what, err->message, stk_strerror(rc),
            err->path[0] ? ": " : "", err->path);
    return rc;
}

#endif
