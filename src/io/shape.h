/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emulated slow storage: a rate, an I/O rate and a latency, as three queues of one
 * device. Pure arithmetic over times passed in. A read or write is one I/O; an open is
 * none.
 */
#ifndef STI_IO_SHAPE_H
#define STI_IO_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/types.h>

struct sti_shape;

/*
 * Parses "rbps=40M wbps=40M bps=80M riops=4000 wiops=4000 rlat=500us wlat=1ms", parts
 * separated by blanks or commas: bytes per second of reads, writes, both together
 * (suffixes K M G, powers of 1000), operations per second, latency of one operation (ns,
 * us, ms, s). ret_shape: returns owned. Errors: -EINVAL (err names the part), -ENOMEM.
 */
int
sti_shape_new(struct sti_shape **ret_shape, const char *text, stk_error *err);

/* NULL is allowed. */
void
sti_shape_free(struct sti_shape *shape);

/* Charges an operation that arrived at arrival_ns; returns when the device would have
 * done it. */
uint64_t
sti_shape_charge(struct sti_shape *shape, bool is_write, uint64_t n_bytes, uint64_t arrival_ns);

#endif
