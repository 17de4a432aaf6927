/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a fit: greedy, since the best sum is not worth more than a few
 * microseconds. */
#include "policy/fit.h"

#include <assert.h>
#include <stdbool.h>

#define NOBODY UINT32_MAX

/* The largest of those not chosen that has at most (is_below), or the smallest that has at
 * least, so many bytes. chosen: a bit each. */
static uint32_t
nearest(const uint64_t *sizes, uint32_t n, uint64_t chosen, uint64_t n_bytes, bool is_below)
{
    uint32_t found = NOBODY;

    for (uint32_t at = 0; at < n; at++) {
        if (chosen >> at & 1 || sizes[at] == 0 ||
            (is_below ? sizes[at] > n_bytes : sizes[at] < n_bytes))
            continue;
        if (found == NOBODY || (is_below ? sizes[at] > sizes[found] : sizes[at] < sizes[found]))
            found = at;
    }
    return found;
}

uint32_t
sti_fit_choose(const uint64_t *sizes, uint32_t n, uint64_t need_bytes)
{
    uint32_t alone = nearest(sizes, n, 0, need_bytes, false);
    uint32_t first = nearest(sizes, n, 0, need_bytes, true);
    uint64_t chosen = 0, rest_bytes = need_bytes;

    assert(n >= 1 && n <= STI_FIT_MOST && need_bytes > 0);
    if (first == NOBODY)
        return alone == NOBODY ? 0 : alone; /* all empty: any */
    for (uint32_t at = first; at != NOBODY && rest_bytes > 0;
         at = nearest(sizes, n, chosen, rest_bytes, true)) {
        chosen |= UINT64_C(1) << at;
        rest_bytes -= sizes[at];
    }
    if (rest_bytes == 0)
        return first;
    uint32_t last = nearest(sizes, n, chosen, rest_bytes, false);
    if (last == NOBODY) /* all of them are not enough */
        return first;
    return alone != NOBODY && sizes[alone] - need_bytes <= sizes[last] - rest_bytes ? alone : first;
}
