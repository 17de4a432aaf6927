/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores past the caches, a whole line of dst at a time so that none is ever half
 * written. The processor's own prefetcher stops at every page and while a checksum is
 * made; ours reads on. Pure; any thread.
 */
#include "base/stream.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

#define LINE_BYTES 64u
#define AHEAD_BYTES 8192u

static void
copy_both(char *dst, char *near, const char *src, size_t n_bytes)
{
    memcpy(near, src, n_bytes);
    memcpy(dst, near, n_bytes);
}

static void
copy_line(char *dst, char *near, const char *src)
{
    __m128i quarters[4];

    memcpy(quarters, src, LINE_BYTES);
    memcpy(near, quarters, LINE_BYTES);
    for (unsigned at = 0; at < 4; at++)
        _mm_stream_si128((__m128i *)(void *)dst + at, quarters[at]);
}

void
sti_stream_copy(void *dst, void *near, const void *src, size_t n_bytes)
{
    char *to = dst;
    char *kept = near;
    const char *from = src;
    size_t at = (LINE_BYTES - (uintptr_t)to % LINE_BYTES) % LINE_BYTES;

    at = at < n_bytes ? at : n_bytes;
    copy_both(to, kept, from, at);
    for (; n_bytes - at >= LINE_BYTES; at += LINE_BYTES) {
        /* May be behind the end: no prefetch faults. As a number, since no pointer may
         * point there. */
        __builtin_prefetch((const void *)((uintptr_t)(from + at) + AHEAD_BYTES));
        copy_line(to + at, kept + at, from + at);
    }
    copy_both(to + at, kept + at, from + at, n_bytes - at);
}

void
sti_stream_finish(void)
{
    _mm_sfence();
}

#else

void
sti_stream_copy(void *dst, void *near, const void *src, size_t n_bytes)
{
    memcpy(near, src, n_bytes);
    memcpy(dst, near, n_bytes);
}

void
sti_stream_finish(void)
{
}

#endif
