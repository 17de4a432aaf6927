/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator. A block is a header word (its size, a multiple of 8, with two flags in
 * the low bits) and its payload. A free block also holds its two list links at the start
 * of its payload and its size again in its last word, where the next block finds it to
 * merge. Free blocks hang in lists by size class: the power of two, split linearly in 32.
 *
 * Invariants: no two neighbours are both free; a bit of a map is set exactly when its
 * list is not empty; the word after the last block is a sentinel header of size 0, in
 * use.
 */
#include "base/heap.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"

#define SPLIT_LOG2 5
#define SPLIT (1u << SPLIT_LOG2)
#define CLASSES 44 /* sizes up to 2^47 */
#define MIN_BLOCK_BYTES UINT64_C(32)
#define HEADER_BYTES UINT64_C(8)

#define IS_FREE UINT64_C(1)
#define PREVIOUS_IS_FREE UINT64_C(2)
#define FLAGS UINT64_C(7)

struct block {
    uint64_t header;
    struct block *next; /* free only */
    struct block *previous;
};

struct sti_heap {
    char *base;
    uint64_t n_bytes;
    uint64_t used_bytes;
    uint64_t class_map;
    uint32_t split_map[CLASSES];
    struct block *lists[CLASSES][SPLIT];
};

static uint64_t
size_of(const struct block *block)
{
    return block->header & ~FLAGS;
}

static struct block *
at_bytes(const struct block *block, uint64_t n_bytes)
{
    return (struct block *)(void *)((char *)(uintptr_t)block + n_bytes);
}

static struct block *
block_after(const struct block *block)
{
    return at_bytes(block, size_of(block));
}

static struct block *
block_of(void *payload)
{
    return (struct block *)(void *)((char *)payload - HEADER_BYTES);
}

static char *
payload_of(struct block *block)
{
    return (char *)block + HEADER_BYTES;
}

/* The list in which a block of this size hangs. */
static void
class_of(uint64_t n_bytes, uint32_t *ret_class, uint32_t *ret_split)
{
    uint32_t log2 = 63 - (uint32_t)__builtin_clzll(n_bytes);

    *ret_class = log2 - 4;
    *ret_split = (uint32_t)((n_bytes >> (log2 - SPLIT_LOG2)) - SPLIT);
    if (log2 < SPLIT_LOG2) /* cannot be: blocks have 32 bytes at least */
        *ret_split = 0;
}

static void
list_add(struct sti_heap *heap, struct block *block)
{
    uint32_t class, split;
    uint64_t n_bytes = size_of(block);

    class_of(n_bytes, &class, &split);
    block->previous = NULL;
    block->next = heap->lists[class][split];
    if (block->next)
        block->next->previous = block;
    heap->lists[class][split] = block;
    heap->split_map[class] |= UINT32_C(1) << split;
    heap->class_map |= UINT64_C(1) << class;
}

static void
list_remove(struct sti_heap *heap, struct block *block)
{
    uint32_t class, split;

    class_of(size_of(block), &class, &split);
    if (block->next)
        block->next->previous = block->previous;
    if (block->previous) {
        block->previous->next = block->next;
        return;
    }
    heap->lists[class][split] = block->next;
    if (block->next)
        return;
    heap->split_map[class] &= ~(UINT32_C(1) << split);
    if (heap->split_map[class] == 0)
        heap->class_map &= ~(UINT64_C(1) << class);
}

static void
mark_free(struct sti_heap *heap, struct block *block, uint64_t n_bytes)
{
    block->header = n_bytes | IS_FREE | (block->header & PREVIOUS_IS_FREE);
    struct block *after = block_after(block);
    after->header |= PREVIOUS_IS_FREE;
    *(uint64_t *)(void *)((char *)after - sizeof(uint64_t)) = n_bytes;
    list_add(heap, block);
}

static void
mark_used(struct block *block, uint64_t n_bytes)
{
    block->header = n_bytes | (block->header & PREVIOUS_IS_FREE);
    block_after(block)->header &= ~PREVIOUS_IS_FREE;
}

int
sti_heap_new(struct sti_heap **ret_heap, void *base, uint64_t n_bytes)
{
    n_bytes &= ~FLAGS;
    if (n_bytes < 2 * MIN_BLOCK_BYTES || (uintptr_t)base % 8 != 0 || n_bytes >> 47 != 0)
        return -EINVAL;
    struct sti_heap *heap = sti_mem_new(1, sizeof(*heap));
    if (!heap)
        return -ENOMEM;
    heap->base = base;
    heap->n_bytes = n_bytes;
    struct block *first = base;
    struct block *sentinel = at_bytes(first, n_bytes - HEADER_BYTES);
    first->header = 0;
    sentinel->header = 0;
    mark_free(heap, first, n_bytes - HEADER_BYTES);
    *ret_heap = heap;
    return 0;
}

void
sti_heap_free(struct sti_heap *heap)
{
    sti_mem_free(heap);
}

/* The head of a list in which every block is large enough, or NULL. */
static struct block *
find(const struct sti_heap *heap, uint64_t n_bytes)
{
    uint32_t log2 = 63 - (uint32_t)__builtin_clzll(n_bytes);
    uint32_t class, split;

    /* Round up to the next list, so that its head fits without a search. */
    class_of(n_bytes + (UINT64_C(1) << (log2 - SPLIT_LOG2)) - 1, &class, &split);
    if (class >= CLASSES)
        return NULL;
    uint32_t splits = heap->split_map[class] & (~UINT32_C(0) << split);
    if (splits == 0) {
        uint64_t classes = class + 1 < 64 ? heap->class_map & (~UINT64_C(0) << (class + 1)) : 0;

        if (classes == 0)
            return NULL;
        class = (uint32_t)__builtin_ctzll(classes);
        splits = heap->split_map[class];
    }
    return heap->lists[class][__builtin_ctz(splits)];
}

/* What the rounding up of find() passes over: the list of the size itself may have a
 * fit. */
static struct block *
find_exact(const struct sti_heap *heap, uint64_t n_bytes)
{
    uint32_t class, split;
    uint32_t tries = 16;

    class_of(n_bytes, &class, &split);
    if (class >= CLASSES)
        return NULL;
    for (struct block *block = heap->lists[class][split]; block && tries > 0; tries--) {
        if (size_of(block) >= n_bytes)
            return block;
        block = block->next;
    }
    return NULL;
}

/* Cuts a used block to n_bytes if what is left over can be a block. */
static void
cut(struct sti_heap *heap, struct block *block, uint64_t n_bytes)
{
    uint64_t whole_bytes = size_of(block);

    if (whole_bytes - n_bytes < MIN_BLOCK_BYTES)
        return;
    struct block *rest = at_bytes(block, n_bytes);
    struct block *after = block_after(block);
    uint64_t rest_bytes = whole_bytes - n_bytes;
    block->header = n_bytes | (block->header & PREVIOUS_IS_FREE);
    rest->header = 0;
    if (after->header & IS_FREE) {
        list_remove(heap, after);
        rest_bytes += size_of(after);
    }
    mark_free(heap, rest, rest_bytes);
    heap->used_bytes -= whole_bytes - n_bytes;
}

static uint64_t
block_bytes_for(uint64_t n_bytes)
{
    uint64_t block_bytes = (n_bytes + HEADER_BYTES + 7) & ~FLAGS;

    return block_bytes < MIN_BLOCK_BYTES ? MIN_BLOCK_BYTES : block_bytes;
}

void *
sti_heap_get(struct sti_heap *heap, uint64_t n_bytes, uint32_t align)
{
    if (n_bytes >= heap->n_bytes)
        return NULL;
    uint64_t need_bytes = block_bytes_for(n_bytes);
    uint64_t find_bytes = align > 8 ? need_bytes + align + MIN_BLOCK_BYTES : need_bytes;
    struct block *block = find(heap, find_bytes);
    if (!block)
        block = find_exact(heap, find_bytes);
    if (!block)
        return NULL;
    list_remove(heap, block);
    mark_used(block, size_of(block));
    heap->used_bytes += size_of(block);
    if (align > 8 && (uintptr_t)payload_of(block) % align != 0) {
        /* Give the front back as a block of its own, so it must be large enough for
         * one. */
        uint64_t front = align - (uintptr_t)payload_of(block) % align;

        while (front < MIN_BLOCK_BYTES)
            front += align;
        struct block *moved = at_bytes(block, front);
        moved->header = size_of(block) - front;
        heap->used_bytes -= front;
        mark_free(heap, block, front);
        block = moved;
    }
    cut(heap, block, need_bytes);
    return payload_of(block);
}

void
sti_heap_shrink(struct sti_heap *heap, void *payload, uint64_t n_bytes)
{
    cut(heap, block_of(payload), block_bytes_for(n_bytes));
}

void
sti_heap_put(struct sti_heap *heap, void *payload)
{
    struct block *block = block_of(payload);
    uint64_t n_bytes = size_of(block);

    assert(!(block->header & IS_FREE));
    heap->used_bytes -= n_bytes;
    struct block *after = block_after(block);
    if (after->header & IS_FREE) {
        list_remove(heap, after);
        n_bytes += size_of(after);
    }
    if (block->header & PREVIOUS_IS_FREE) {
        uint64_t before_bytes = *(uint64_t *)(void *)((char *)block - sizeof(uint64_t));

        block = (struct block *)(void *)((char *)block - before_bytes);
        list_remove(heap, block);
        n_bytes += before_bytes;
    }
    mark_free(heap, block, n_bytes);
}

uint64_t
sti_heap_used_bytes(const struct sti_heap *heap)
{
    return heap->used_bytes;
}

uint64_t
sti_heap_check(const struct sti_heap *heap)
{
    const struct block *block = (const struct block *)(const void *)heap->base;
    const char *end = heap->base + heap->n_bytes - HEADER_BYTES;
    uint64_t n_used = 0;
    uint64_t used_bytes = 0;
    bool was_free = false;

    while ((const char *)block < end) {
        bool is_free = block->header & IS_FREE;

        assert(size_of(block) >= MIN_BLOCK_BYTES);
        assert(!(was_free && is_free));
        assert(was_free == !!(block->header & PREVIOUS_IS_FREE));
        n_used += is_free ? 0 : 1;
        used_bytes += is_free ? 0 : size_of(block);
        was_free = is_free;
        block = block_after(block);
    }
    assert((const char *)block == end);
    assert(used_bytes == heap->used_bytes);
    (void)used_bytes; /* both are for the assertions only */
    (void)was_free;
    return n_used;
}
