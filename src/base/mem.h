/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one door to memory. Every allocation of the library goes through it, so that a test
 * can fail the n-th one and statistics can show that the steady state makes none.
 */
#ifndef STI_BASE_MEM_H
#define STI_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed memory for n objects of a size; NULL when there is none or n * bytes
 * overflows. */
void *
sti_mem_new(size_t n, size_t bytes);

/* Memory aligned to a power of two of at least 8; not zeroed. Freed with
 * sti_mem_free(). */
void *
sti_mem_new_aligned(size_t bytes, size_t align);

/* Changes the length of a block from sti_mem_new(); what is new is not zeroed. */
void *
sti_mem_resize(void *block, size_t n, size_t bytes);

/* A copy of a string; NULL when there is no memory. Returns owned. */
char *
sti_mem_strdup(const char *text);

/* Frees a block; NULL is allowed. */
void
sti_mem_free(void *block);

/* Allocations made so far in this process. */
uint64_t
sti_mem_count(void);

/* Test hook: fails the n-th allocation from now on (1 is the next) and each one after it
 * when sticky is set; 0 switches it off. */
void
sti_mem_fail_at(uint64_t n, int sticky);

/* Of a shared arena's file: its name, and its bytes behind the arena. */
#define STI_ARENA_NAME "stoker"
#define STI_ARENA_EXTRA_BYTES (UINT64_C(4) << 10)

/*
 * An arena: a large mapping, 2 MiB aligned, with huge pages advised (measured: up to 3 x
 * on direct reads). Arenas are what ring and comm may register.
 */
struct sti_arena {
    char *base;
    uint64_t n_bytes; /* a multiple of 2 MiB */
    int fd;           /* where is_shared: the file that it is a mapping of */
    bool is_shared;
};

/* Maps an arena of at least n_bytes. touch: fault every page in now. Errors: -ENOMEM. */
int
sti_arena_open(struct sti_arena *arena, uint64_t n_bytes, int touch);

/*
 * Maps an arena that other processes can map, too: a file in memory with no name, which
 * cannot become shorter, with a page of its own behind the arena's bytes. It is shared memory
 * to the kernel: huge pages are there where that gives them to it (shmem_enabled). Errors:
 * -ENOMEM, -ENOSYS not on this machine or under these limits.
 */
int
sti_arena_open_shared(struct sti_arena *arena, uint64_t n_bytes);

/* Unmaps and gives the memory back, whoever else maps it; an arena never opened (all zero) is
 * allowed. */
void
sti_arena_close(struct sti_arena *arena);

/* Faults in the pages of [from, to) of an arena, for a background thread. */
void
sti_arena_touch(const struct sti_arena *arena, uint64_t from, uint64_t to);

#endif
