/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two sides of a depot share; nobody else includes this.
 *
 * What is asked, little-endian: what (u32), n_bytes (u32), step, offset (u64), writer,
 * number (u32), whether it is the only part (u32), the length of the root's path (u32),
 * the ID (STI_ID_SIZE bytes, zeros behind it), the path. The answer: the bytes, then the
 * file's size (u64). A file that is not there is told by STI_DEPOT_NO_FILE, since -ENOENT
 * is what is said for a port that nobody has attached.
 */
#ifndef STI_CKPT_DEPOT_INTERNAL_H
#define STI_CKPT_DEPOT_INTERNAL_H

#include <errno.h>

#include "base/thread.h"
#include "ckpt/depot.h"

#define STI_DEPOT_NO_FILE (-ENODATA)

struct sti_serve;

struct sti_depot {
    struct sti_depot_opts opts;
    uint32_t verb; /* atomic: set while the port can be asked already */

    struct sti_mutex lock;
    struct sti_depot_ask *asked STI_GUARDED_BY(&lock); /* by other threads, for the loop */

    /* The loop's. */
    struct sti_depot_ask *under_way;
    uint64_t *silent_ns;       /* of each rank: until when it counts as lost; 0: not */
    struct sti_serve *waiting; /* for the device's arbiter */
    uint32_t n_serving;
    bool is_leaving;
};

void
sti_depot_put(unsigned char *bytes, uint64_t value, int n);
uint64_t
sti_depot_get(const unsigned char *bytes, int n);

/* Begins what waits for a device. Returns when to look again. */
uint64_t
sti_serves_step(struct sti_depot *depot, uint64_t now_ns);

/* Answers what has not begun. */
void
sti_serves_leave(struct sti_depot *depot);

#endif
