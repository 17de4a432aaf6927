/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An allocator inside one given piece of memory, for blocks of any size, with good fit in
 * constant time: two-level segregated fit (Masmano, Ripoll, Crespo, Real, "TLSF: A New
 * Dynamic Memory Allocator for Real-Time Systems", ECRTS 2004). 8 bytes of overhead per
 * block; blocks are 8-byte aligned, or aligned to a power of two on demand; a block can
 * be shortened in place.
 */
#ifndef STI_BASE_HEAP_H
#define STI_BASE_HEAP_H

#include <stdint.h>

struct sti_heap;

/* A heap over base (8-byte aligned, at least 64 bytes, borrowed until freed), all of it
 * free. The bookkeeping is allocated apart. Errors: -EINVAL, -ENOMEM. ret_heap: returns
 * owned. */
int
sti_heap_new(struct sti_heap **ret_heap, void *base, uint64_t n_bytes);

/* NULL is allowed; the memory below stays its owner's. */
void
sti_heap_free(struct sti_heap *heap);

/* A block of n_bytes aligned to align (a power of two, 8 .. 65536); NULL when none is
 * large enough. */
void *
sti_heap_get(struct sti_heap *heap, uint64_t n_bytes, uint32_t align);

/* Shortens a block; what is cut off is free again. */
void
sti_heap_shrink(struct sti_heap *heap, void *payload, uint64_t n_bytes);

/* Gives a block back. */
void
sti_heap_put(struct sti_heap *heap, void *payload);

/* Bytes in use, with each block's overhead and rounding. */
uint64_t
sti_heap_used_bytes(const struct sti_heap *heap);

/* Walks all blocks and asserts the invariants; returns how many are in use. For tests. */
uint64_t
sti_heap_check(const struct sti_heap *heap);

#endif
