/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring a place: reads of some sizes and numbers at once, for a bounded time. */
#ifndef STI_ENGINE_PROBE_H
#define STI_ENGINE_PROBE_H

#include <stoker/cost.h>

#include "io/aio.h"
#include "policy/cost_curve.h"

/* See stk_probe(). opts: checked; aio: of the calling thread. */
int
sti_probe(struct sti_aio *aio, const char *path, const stk_probe_opts *opts,
          stk_probe_point *points, stk_error *err);

/*
 * A short look at a directory, blocking: n_bytes (1M .. 64M) are written and read back,
 * as many of them as go within about 200 ms. ret_point is at depth 1. Errors: what the
 * file system gives; -ENOMEM.
 */
int
sti_probe_briefly(const char *path, uint64_t n_bytes, struct sti_cost_point *ret_point);

/* The memory's rate of copying. Errors: -ENOMEM. */
int
sti_probe_memory(struct sti_cost_point *ret_point);

#endif
