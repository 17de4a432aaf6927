/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that staged and cached samples lie in: one arena, packed. Samples of one
 * size lie in slots; of many sizes, in a heap. Addresses are offsets, so that they fit
 * into a catalogue entry. Owned by the loop's thread.
 */
#ifndef STI_TIER_STORE_H
#define STI_TIER_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/pool.h"

#define STI_STORE_NONE UINT64_MAX
#define STI_STORE_BYTES_MAX (UINT64_C(1) << 39)

struct sti_store;

/*
 * capacity_bytes  payload bytes it holds, up to STI_STORE_BYTES_MAX / 2.
 * samples_max     samples it can hold at a time at most (bounds the overhead).
 * uniform_bytes   the size that all samples have; 0 where they differ.
 * padding_bytes   what a block may be asked for beyond its payload (reads in place).
 * small_bytes     samples smaller than this lie in a part of their own as long as it has room;
 * small_room_bytes  so much of the capacity. They stay, and in the midst of them a large one would
 *                 not find a piece that is long enough. 0: none.
 * align           alignment of blocks with padding; a power of two up to 65536.
 */
struct sti_store_opts {
    uint64_t capacity_bytes;
    uint64_t samples_max;
    uint64_t uniform_bytes;
    uint64_t padding_bytes;
    uint64_t small_bytes;
    uint64_t small_room_bytes;
    uint32_t align;
    bool is_shared;        /* the arena is one that other processes can map, where that can be */
    struct sti_pool *pool; /* its background lane faults the arena in */
};

/* Errors: -ENOMEM, -E2BIG more than the largest capacity. ret_store: returns owned. */
int
sti_store_new(struct sti_store **ret_store, const struct sti_store_opts *opts);

/* The arena. Returns borrowed until the store is freed. */
const struct sti_arena *
sti_store_arena(const struct sti_store *store);

/* Waits for the background touching. NULL is allowed. */
void
sti_store_free(struct sti_store *store);

/*
 * Memory for a sample of n_bytes, with the padding where is_padded. STI_STORE_NONE when
 * the capacity is used or no piece is long enough.
 */
uint64_t
sti_store_get(struct sti_store *store, uint64_t n_bytes, bool is_padded);

/* The same from outside the arena, for the moment when a fragmented arena would stop the
 * stream; at most 1024 at a time. STI_STORE_NONE when there is no memory. */
uint64_t
sti_store_get_outside(struct sti_store *store, uint64_t n_bytes, bool is_padded);

/* Gives back the padding behind the first used_bytes of a block. */
void
sti_store_trim(struct sti_store *store, uint64_t address, uint64_t used_bytes);

/* Gives a block back. n_bytes, is_padded: as it was got. address: as it was got or, with
 * padding, plus a skew of less than the alignment (bytes before the sample that are not
 * its own). */
void
sti_store_put(struct sti_store *store, uint64_t address, uint64_t n_bytes, bool is_padded);

/* Whether a block lies in the part for small samples. */
bool
sti_store_is_small(const struct sti_store *store, uint64_t address);

/* Where a block lies, or the byte of it that an address plus a skew names. */
char *
sti_store_pointer(const struct sti_store *store, uint64_t address);

/* Blocks outside the arena that were ever got. */
uint64_t
sti_store_outside(const struct sti_store *store);

/* Payload bytes in use, and the most there may be. */
uint64_t
sti_store_used_bytes(const struct sti_store *store);
uint64_t
sti_store_capacity_bytes(const struct sti_store *store);

#endif
