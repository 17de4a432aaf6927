/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over sizes. The largest 2^18 are kept in a heap whose root is the least of them
 * and which starts as zeros, so a size costs one comparison unless it is among the
 * largest. Invariant: the heap holds the largest n_heap of all that was added. One
 * thread.
 */
#include "format/sizes.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"

int
sti_sizes_begin(struct sti_sizes *sizes, uint64_t samples)
{
    uint64_t room = UINT64_C(1) << (STI_INDEX_LARGEST - 1);

    *sizes = (struct sti_sizes){.least_bytes = UINT64_MAX};
    sizes->n_heap = samples < room ? samples : room;
    sizes->heap = sti_mem_new(sizes->n_heap, sizeof(*sizes->heap));
    return sizes->heap ? 0 : -ENOMEM;
}

/* Puts a value in the place of the root. */
static void
replace_root(uint64_t *heap, uint64_t n, uint64_t value)
{
    uint64_t at = 0;

    for (;;) {
        uint64_t child = 2 * at + 1;

        if (child >= n)
            break;
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= value)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = value;
}

int
sti_sizes_add(struct sti_sizes *sizes, uint64_t n_bytes, uint64_t count)
{
    uint64_t sum;

    if (__builtin_mul_overflow(n_bytes, count, &sum) || sum > INT64_MAX - sizes->n_bytes)
        return -E2BIG;
    sizes->samples += count;
    sizes->n_bytes += sum;
    sizes->max_bytes = n_bytes > sizes->max_bytes ? n_bytes : sizes->max_bytes;
    sizes->least_bytes = n_bytes < sizes->least_bytes ? n_bytes : sizes->least_bytes;
    for (uint64_t at = 0; at < count && n_bytes > sizes->heap[0]; at++)
        replace_root(sizes->heap, sizes->n_heap, n_bytes);
    return 0;
}

static int
compare_descending(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return (left < right) - (left > right);
}

void
sti_sizes_end(struct sti_sizes *sizes)
{
    uint64_t sum = 0;

    qsort(sizes->heap, sizes->n_heap, sizeof(*sizes->heap), compare_descending);
    for (uint64_t i = 0, step = 0; step < STI_INDEX_LARGEST; step++) {
        for (; i < sizes->n_heap && i < UINT64_C(1) << step; i++)
            sum += sizes->heap[i];
        sizes->largest[step] = sum;
    }
    sizes->uniform_bytes = sizes->least_bytes == sizes->max_bytes ? sizes->max_bytes : 0;
    sti_mem_free(sizes->heap);
    sizes->heap = NULL;
}
