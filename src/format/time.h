/* SPDX-License-Identifier: Apache-2.0 */
/* Times of files, as the kernel tells them. */
#ifndef STI_FORMAT_TIME_H
#define STI_FORMAT_TIME_H

#include <stdbool.h>
#include <stdint.h>

struct sti_aio;
struct statx;
struct statx_timestamp;

/* Nanoseconds since 1970, modulo 2^64: good for telling whether two times are the
 * same. */
int64_t
sti_time_ns(const struct statx_timestamp *time);

/* The device number of a statx result as one number. */
uint64_t
sti_time_device(const struct statx *found);

/*
 * Whether a time is so recent that a change made now could still get the same one: file
 * systems stamp with the tick of the kernel's clock, 1 to 10 ms.
 */
bool
sti_time_is_fresh(const struct statx_timestamp *time);

/* Waits until a time that was fresh no longer is, serving the aio. Owner only; blocks for
 * 20 ms. */
void
sti_time_let_pass(struct sti_aio *aio);

#endif
