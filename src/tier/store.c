/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sample store. Invariant: payload in use never exceeds the capacity; the arena is
 * larger than the capacity by what rounding and padding can cost the samples it holds.
 *
 * With one size, free slots form a list through their own memory, and slots never used
 * yet are taken in address order. The arena is faulted in a little ahead of the highest
 * address used so far (touch.c). Addresses with the top bit set name a small table of
 * blocks outside the arena, the low bits a byte of it.
 * Blocks with padding are aligned, so the start of one follows from the address of any
 * byte of its first `align`.
 */
#include "tier/store.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/heap.h"
#include "base/mem.h"
#include "tier/touch.h"

#define OUTSIDE_BIT STI_STORE_BYTES_MAX
#define OUTSIDE_MAX 1024
#define OUTSIDE_SHIFT 17 /* above any skew: alignments are 65536 at most */
#define SMALL_EXTRA_BYTES (UINT64_C(64) << 10)
#define GAP_BYTES_MAX (UINT64_C(24) << 20)

struct sti_store {
    struct sti_arena arena;
    uint64_t capacity_bytes;
    uint64_t used_bytes;
    uint32_t align;
    uint64_t padding_bytes;

    /* One size. */
    uint64_t slot_bytes; /* 0: a heap */
    uint64_t n_slots;
    uint64_t n_fresh;   /* slots from here on were never used */
    uint64_t free_slot; /* head of the list, STI_STORE_NONE without one */

    struct sti_heap *heap;

    /* The part for small samples, at the arena's start; without one small_end is 0. */
    struct sti_heap *small_heap;
    uint64_t small_end;
    uint64_t small_bytes;
    uint64_t small_room_bytes;
    uint64_t small_used_bytes;

    char *outside[OUTSIDE_MAX];
    uint32_t n_outside;
    uint64_t n_outside_ever;

    struct sti_toucher toucher;
};

static uint64_t
round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Memory that cannot be shared is as good for this rank. */
static int
open_arena(struct sti_store *store, const struct sti_store_opts *opts, uint64_t n_bytes)
{
    if (opts->is_shared && sti_arena_open_shared(&store->arena, n_bytes) == 0)
        return 0;
    return sti_arena_open(&store->arena, n_bytes, 0);
}

static int
open_slots(struct sti_store *store, const struct sti_store_opts *opts)
{
    uint64_t unit = opts->padding_bytes > 0 ? opts->align : 8;

    store->slot_bytes = round_up(opts->uniform_bytes + opts->padding_bytes, unit);
    if (store->slot_bytes < sizeof(uint64_t))
        store->slot_bytes = sizeof(uint64_t);
    store->n_slots = opts->uniform_bytes ? opts->capacity_bytes / opts->uniform_bytes : 1;
    if (store->n_slots > opts->samples_max)
        store->n_slots = opts->samples_max;
    store->free_slot = STI_STORE_NONE;
    return open_arena(store, opts, store->n_slots * store->slot_bytes);
}

static int
open_heap(struct sti_store *store, const struct sti_store_opts *opts)
{
    /* A block's header and rounding, the padding left of trimmed blocks, room to place
     * the largest among the others, and the gaps that sizes which differ leave. */
    uint64_t gap_bytes = opts->capacity_bytes / 16;
    uint64_t overhead_bytes = opts->samples_max * 16 + (UINT64_C(4) << 20) +
                              (gap_bytes < GAP_BYTES_MAX ? gap_bytes : GAP_BYTES_MAX);
    uint64_t padding_bytes = opts->samples_max * opts->padding_bytes / 2;

    if (padding_bytes > opts->capacity_bytes / 64)
        padding_bytes = opts->capacity_bytes / 64;
    if (opts->small_bytes > 0) {
        store->small_bytes = opts->small_bytes;
        store->small_room_bytes = opts->small_room_bytes;
        store->small_end = round_up(opts->small_room_bytes + opts->samples_max * 16 +
                                        padding_bytes + 2 * opts->padding_bytes + SMALL_EXTRA_BYTES,
                                    opts->align < 8 ? 8 : opts->align);
    }
    /* What the small ones' rounding takes is not the others'. */
    uint64_t n_bytes = opts->capacity_bytes + overhead_bytes + padding_bytes + store->small_end -
                       store->small_room_bytes;
    int rc = open_arena(store, opts, n_bytes);
    if (rc == 0 && store->small_end > 0)
        rc = sti_heap_new(&store->small_heap, store->arena.base, store->small_end);
    if (rc < 0)
        return rc;
    return sti_heap_new(&store->heap, store->arena.base + store->small_end,
                        store->arena.n_bytes - store->small_end);
}

int
sti_store_new(struct sti_store **ret_store, const struct sti_store_opts *opts)
{
    struct sti_store *store = sti_mem_new(1, sizeof(*store));
    int rc;

    if (!store)
        return -ENOMEM;
    if (opts->capacity_bytes > STI_STORE_BYTES_MAX / 2) {
        sti_mem_free(store);
        return -E2BIG;
    }
    store->capacity_bytes = opts->capacity_bytes;
    store->align = opts->align;
    store->padding_bytes = opts->padding_bytes;
    rc = opts->uniform_bytes > 0 ? open_slots(store, opts) : open_heap(store, opts);
    if (rc < 0) {
        sti_store_free(store);
        return rc;
    }
    sti_toucher_start(&store->toucher, &store->arena, opts->pool);
    *ret_store = store;
    return 0;
}

void
sti_store_free(struct sti_store *store)
{
    if (!store)
        return;
    sti_toucher_stop(&store->toucher);
    for (uint32_t at = 0; at < OUTSIDE_MAX; at++)
        sti_mem_free(store->outside[at]);
    sti_heap_free(store->small_heap);
    sti_heap_free(store->heap);
    sti_arena_close(&store->arena);
    sti_mem_free(store);
}

const struct sti_arena *
sti_store_arena(const struct sti_store *store)
{
    return &store->arena;
}

static uint64_t
get_slot(struct sti_store *store)
{
    if (store->free_slot != STI_STORE_NONE) {
        uint64_t address = store->free_slot;

        memcpy(&store->free_slot, store->arena.base + address, sizeof(store->free_slot));
        return address;
    }
    if (store->n_fresh == store->n_slots)
        return STI_STORE_NONE;
    return store->n_fresh++ * store->slot_bytes;
}

bool
sti_store_is_small(const struct sti_store *store, uint64_t address)
{
    return address < store->small_end; /* those outside of the arena are far above */
}

static struct sti_heap *
heap_of(const struct sti_store *store, uint64_t address)
{
    return sti_store_is_small(store, address) ? store->small_heap : store->heap;
}

/* A block of a heap: a small one of its own part, if it has room. */
static uint64_t
get_block(struct sti_store *store, uint64_t n_bytes, bool is_padded)
{
    uint64_t block_bytes = n_bytes + (is_padded ? store->padding_bytes : 0);
    uint32_t align = is_padded ? store->align : 8;
    char *block = NULL;

    if (n_bytes < store->small_bytes &&
        store->small_used_bytes + n_bytes <= store->small_room_bytes)
        block = sti_heap_get(store->small_heap, block_bytes, align);
    if (block)
        store->small_used_bytes += n_bytes;
    else
        block = sti_heap_get(store->heap, block_bytes, align);
    return block ? (uint64_t)(block - store->arena.base) : STI_STORE_NONE;
}

uint64_t
sti_store_get(struct sti_store *store, uint64_t n_bytes, bool is_padded)
{
    uint64_t address;

    if (store->used_bytes + n_bytes > store->capacity_bytes)
        return STI_STORE_NONE;
    if (store->slot_bytes > 0)
        address = get_slot(store);
    else
        address = get_block(store, n_bytes, is_padded);
    if (address != STI_STORE_NONE) {
        store->used_bytes += n_bytes;
        sti_toucher_ahead(&store->toucher, address + n_bytes);
    }
    return address;
}

uint64_t
sti_store_get_outside(struct sti_store *store, uint64_t n_bytes, bool is_padded)
{
    uint64_t block_bytes = round_up(n_bytes + (is_padded ? store->padding_bytes : 0), store->align);

    if (store->n_outside == OUTSIDE_MAX)
        return STI_STORE_NONE;
    for (uint32_t at = 0; at < OUTSIDE_MAX; at++) {
        if (store->outside[at])
            continue;
        store->outside[at] = sti_mem_new_aligned(block_bytes, store->align);
        if (!store->outside[at])
            return STI_STORE_NONE;
        store->n_outside++;
        store->n_outside_ever++;
        store->used_bytes += n_bytes;
        return OUTSIDE_BIT | (uint64_t)at << OUTSIDE_SHIFT;
    }
    return STI_STORE_NONE;
}

void
sti_store_trim(struct sti_store *store, uint64_t address, uint64_t used_bytes)
{
    if (store->heap && !(address & OUTSIDE_BIT))
        sti_heap_shrink(heap_of(store, address), store->arena.base + address, used_bytes);
}

static uint32_t
outside_at(uint64_t address)
{
    return (uint32_t)((address & ~OUTSIDE_BIT) >> OUTSIDE_SHIFT);
}

void
sti_store_put(struct sti_store *store, uint64_t address, uint64_t n_bytes, bool is_padded)
{
    assert(store->used_bytes >= n_bytes);
    store->used_bytes -= n_bytes;
    if (is_padded && !(address & OUTSIDE_BIT))
        address -= address % store->align;
    if (address & OUTSIDE_BIT) {
        uint32_t at = outside_at(address);

        sti_mem_free(store->outside[at]);
        store->outside[at] = NULL;
        store->n_outside--;
    } else if (store->slot_bytes > 0) {
        memcpy(store->arena.base + address, &store->free_slot, sizeof(store->free_slot));
        store->free_slot = address;
    } else {
        if (sti_store_is_small(store, address))
            store->small_used_bytes -= n_bytes;
        sti_heap_put(heap_of(store, address), store->arena.base + address);
    }
}

char *
sti_store_pointer(const struct sti_store *store, uint64_t address)
{
    if (address & OUTSIDE_BIT)
        return store->outside[outside_at(address)] +
               (address & ((UINT64_C(1) << OUTSIDE_SHIFT) - 1));
    return store->arena.base + address;
}

uint64_t
sti_store_outside(const struct sti_store *store)
{
    return store->n_outside_ever;
}

uint64_t
sti_store_used_bytes(const struct sti_store *store)
{
    return store->used_bytes;
}

uint64_t
sti_store_capacity_bytes(const struct sti_store *store)
{
    return store->capacity_bytes;
}
