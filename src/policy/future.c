/* SPDX-License-Identifier: Apache-2.0 */
/* Uses ahead. Invariant: a slot's two tables are each other's inverse over what its epoch
 * reads. */
#include "policy/future.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/mem.h"

#define USABLE_PER_DROPPED 4
#define NOT_READ UINT32_MAX

bool
sti_future_decides(uint64_t data_bytes, uint64_t read_bytes, uint64_t capacity_bytes)
{
    double dropped_part = 1 - (double)read_bytes / (double)data_bytes;
    double missed_bytes = (double)read_bytes - (double)capacity_bytes;

    if (read_bytes >= data_bytes)
        return false;
    return missed_bytes * (1 - dropped_part) <
           USABLE_PER_DROPPED * (double)capacity_bytes * dropped_part;
}

uint64_t
sti_future_window(uint64_t n_samples, uint64_t n_known, uint64_t max_bytes)
{
    uint64_t n_window = max_bytes / (2 * sizeof(uint32_t)) / n_samples;

    if (n_window < 2)
        n_window = 2;
    return n_window < n_known ? n_window : n_known;
}

int
sti_future_init(struct sti_future *future, uint64_t n_samples, uint64_t n_window)
{
    assert(n_window > 0 && n_samples < UINT32_MAX / n_window);
    *future = (struct sti_future){.n_samples = n_samples, .n_window = n_window};
    future->ids = sti_mem_new(n_samples * n_window, sizeof(*future->ids));
    future->place_of = sti_mem_new(n_samples * n_window, sizeof(*future->place_of));
    return future->ids && future->place_of ? 0 : -ENOMEM;
}

void
sti_future_fini(struct sti_future *future)
{
    sti_mem_free(future->ids);
    sti_mem_free(future->place_of);
    *future = (struct sti_future){0};
}

void
sti_future_order(struct sti_future *future, uint64_t n_read)
{
    uint64_t first = sti_future_first_key(future, future->n_ordered);
    const uint32_t *ids = future->ids + first;
    uint32_t *place_of = future->place_of + first;

    memset(place_of, 0xff, future->n_samples * sizeof(*place_of));
    for (uint64_t at = 0; at < n_read; at++)
        place_of[ids[at]] = (uint32_t)at;
    future->n_ordered++;
}

bool
sti_future_next(const struct sti_future *future, uint64_t epoch, uint32_t sample, uint32_t *ret_key)
{
    for (uint64_t later = epoch + 1; later < future->n_ordered; later++) {
        uint64_t first = sti_future_first_key(future, later);
        uint32_t place = future->place_of[first + sample];

        if (place == NOT_READ)
            continue;
        *ret_key = (uint32_t)(first + place);
        return true;
    }
    return false;
}
