/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory. Invariant: every block handed out was counted, and every block that the failure
 * hook refuses was never taken. Any thread may enter; the counters are atomics without an
 * order of their own, since nothing is published through them.
 */
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#define HUGE_BYTES ((uint64_t)2 << 20)
#define LARGE_BYTES (8 * HUGE_BYTES)
#define MIN_PAGE_BYTES ((uint64_t)4 << 10) /* of any processor; steps of it reach every page */

static atomic_uint_fast64_t n_allocations;
static atomic_uint_fast64_t fail_countdown;
static atomic_int fail_sticky;

static bool
must_fail(void)
{
    uint64_t left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);

    (void)atomic_fetch_add_explicit(&n_allocations, 1, memory_order_relaxed);
    /* 0 is off; a sticky hook stays at 1. Exactly one of several threads gets the
     * n-th. */
    while (left > 1 || (left == 1 && !atomic_load_explicit(&fail_sticky, memory_order_relaxed)))
        if (atomic_compare_exchange_weak_explicit(&fail_countdown, &left, left - 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            break;
    return left == 1;
}

/* A large table is read all over: in huge pages it is there after fewer faults, and found by
 * fewer walks of the page tables. */
static void
advise_huge(void *block, size_t n_bytes)
{
    uintptr_t first = ((uintptr_t)block + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1);
    uintptr_t end = ((uintptr_t)block + n_bytes) & ~(uintptr_t)(HUGE_BYTES - 1);

    if (n_bytes >= LARGE_BYTES && first < end)
        (void)madvise((void *)first, end - first, MADV_HUGEPAGE); /* only a wish */
}

void *
sti_mem_new(size_t n, size_t bytes)
{
    if (must_fail())
        return NULL;
    void *block = calloc(n ? n : 1, bytes ? bytes : 1);
    if (block)
        advise_huge(block, n * bytes);
    return block;
}

void *
sti_mem_new_aligned(size_t bytes, size_t align)
{
    void *block = NULL;

    if (must_fail() || posix_memalign(&block, align, bytes ? bytes : 1) != 0)
        return NULL;
    return block;
}

void *
sti_mem_resize(void *block, size_t n, size_t bytes)
{
    if (must_fail())
        return NULL;
    return reallocarray(block, n ? n : 1, bytes ? bytes : 1);
}

char *
sti_mem_strdup(const char *text)
{
    size_t n_bytes = strlen(text) + 1;
    char *copy = sti_mem_new(n_bytes, 1);
    if (copy)
        memcpy(copy, text, n_bytes);
    return copy;
}

void
sti_mem_free(void *block)
{
    free(block);
}

uint64_t
sti_mem_count(void)
{
    return atomic_load_explicit(&n_allocations, memory_order_relaxed);
}

void
sti_mem_fail_at(uint64_t n, int sticky)
{
    atomic_store_explicit(&fail_sticky, sticky, memory_order_relaxed);
    atomic_store_explicit(&fail_countdown, n, memory_order_relaxed);
}

/* The length of an arena for n_bytes; 0: there is none of that length. */
static uint64_t
arena_bytes(uint64_t n_bytes)
{
    if (n_bytes > INT64_MAX - 2 * HUGE_BYTES)
        return 0;
    return n_bytes > 0 ? (n_bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES : HUGE_BYTES;
}

/* Maps n_bytes of a file (flags: MAP_SHARED), or of nothing, in an aligned place. */
static int
map_aligned(struct sti_arena *arena, uint64_t n_bytes, int flags, int fd)
{
    /* One huge page more than needed, so that an aligned part of the right length is
     * inside. */
    uint64_t mapped = n_bytes + HUGE_BYTES;
    char *map = mmap(NULL, mapped, fd < 0 ? PROT_READ | PROT_WRITE : PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return -ENOMEM;
    uint64_t skip = (HUGE_BYTES - (uintptr_t)map % HUGE_BYTES) % HUGE_BYTES;
    /* Should the kernel not want to cut here, some address space stays taken, no
     * memory. */
    if (skip)
        (void)munmap(map, skip);
    (void)munmap(map + skip + n_bytes, mapped - skip - n_bytes);
    arena->base = map + skip;
    arena->n_bytes = n_bytes;
    if (fd >= 0 && mmap(arena->base, n_bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) ==
                       MAP_FAILED) {
        (void)munmap(arena->base, n_bytes); /* what was to hold it */
        return -ENOMEM;
    }
    (void)madvise(arena->base, n_bytes, MADV_HUGEPAGE); /* advice: fine without */
    (void)madvise(arena->base, n_bytes, MADV_DONTDUMP); /* advice: fine without */
    return 0;
}

int
sti_arena_open(struct sti_arena *arena, uint64_t n_bytes, int touch)
{
    n_bytes = arena_bytes(n_bytes);
    if (n_bytes == 0 || must_fail())
        return -ENOMEM;
    arena->is_shared = false;
    int rc = map_aligned(arena, n_bytes, MAP_PRIVATE, -1);

    if (rc == 0 && touch)
        sti_arena_touch(arena, 0, n_bytes);
    return rc;
}

/* A file in memory that can be sealed and not run. */
static int
new_file(void)
{
    int fd = memfd_create(STI_ARENA_NAME, MFD_CLOEXEC | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL) /* kernels before 6.3 */
        fd = memfd_create(STI_ARENA_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

/* Whether a file may be that long: beyond the limit the kernel would send a signal. */
static bool
may_be_as_long(uint64_t n_bytes)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           (limit.rlim_cur == RLIM_INFINITY || n_bytes <= limit.rlim_cur);
}

int
sti_arena_open_shared(struct sti_arena *arena, uint64_t n_bytes)
{
    n_bytes = arena_bytes(n_bytes);
    if (n_bytes == 0 || must_fail())
        return -ENOMEM;
    if (!may_be_as_long(n_bytes + STI_ARENA_EXTRA_BYTES))
        return -ENOSYS;
    int fd = new_file();
    if (fd < 0)
        return -ENOSYS;
    int rc = -ENOSYS;
    if (ftruncate(fd, (off_t)(n_bytes + STI_ARENA_EXTRA_BYTES)) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        rc = map_aligned(arena, n_bytes, MAP_SHARED, fd);
    if (rc < 0) {
        (void)close(fd); /* nothing is in it */
        return rc;
    }
    arena->fd = fd;
    arena->is_shared = true;
    return 0;
}

void
sti_arena_close(struct sti_arena *arena)
{
    if (arena->base)
        (void)munmap(arena->base, arena->n_bytes); /* ours and aligned: nothing to be done */
    if (arena->base && arena->is_shared) {
        /* Others may map it still, and the memory is needed. If the kernel does not want to, it
         * is free when they are done. */
        (void)fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                        (off_t)(arena->n_bytes + STI_ARENA_EXTRA_BYTES));
        (void)close(arena->fd); /* a file in memory: nothing to lose */
    }
    arena->base = NULL;
    arena->n_bytes = 0;
    arena->is_shared = false;
}

void
sti_arena_touch(const struct sti_arena *arena, uint64_t from, uint64_t to)
{
    from = from / MIN_PAGE_BYTES * MIN_PAGE_BYTES;
    if (to > from && madvise(arena->base + from, to - from, MADV_POPULATE_WRITE) == 0)
        return;
    /* Kernels before 5.14. A page never written reads as 0, and writing 0 over 0 faults
     * it in; a byte that another thread writes at the same time is never lost. (An atomic
     * add of nothing would do, but clang makes a load or nothing at all of it.) */
    for (uint64_t at = from; at < to; at += MIN_PAGE_BYTES) {
        char zero = 0;

        (void)__atomic_compare_exchange_n(arena->base + at, &zero, 0, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED); /* not 0: it is there already */
    }
}
