/* SPDX-License-Identifier: Apache-2.0 */
/* Times of files. Pure but for the clock and the wait; any thread. */
#include "format/time.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "io/aio.h"

#define TICK_NS ((int64_t)20000000)

int64_t
sti_time_ns(const struct statx_timestamp *time)
{
    return (int64_t)((uint64_t)time->tv_sec * STI_NS_PER_S + time->tv_nsec);
}

uint64_t
sti_time_device(const struct statx *found)
{
    return makedev(found->stx_dev_major, found->stx_dev_minor);
}

bool
sti_time_is_fresh(const struct statx_timestamp *time)
{
    int64_t age_ns = (int64_t)(sti_clock_wall_ns() - (uint64_t)sti_time_ns(time));

    return age_ns >= 0 && age_ns < TICK_NS;
}

void
sti_time_let_pass(struct sti_aio *aio)
{
    uint64_t end_ns = sti_clock_ns() + (uint64_t)TICK_NS;

    for (uint64_t now_ns = sti_clock_ns(); now_ns < end_ns; now_ns = sti_clock_ns())
        (void)sti_aio_wait(aio, end_ns - now_ns); /* nothing is under way: it only takes time */
}
