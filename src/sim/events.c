/* SPDX-License-Identifier: Apache-2.0 */
/* A binary heap. Invariant: no event is due before its parent. One thread. */
#include "sim/events.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>

#include "base/mem.h"

int
sti_events_init(struct sti_events *events, uint64_t n_max)
{
    *events = (struct sti_events){.n_max = n_max};
    events->heap = sti_mem_new(n_max, sizeof(*events->heap));
    return events->heap ? 0 : -ENOMEM;
}

void
sti_events_fini(struct sti_events *events)
{
    sti_mem_free(events->heap);
}

static bool
is_before(const struct sti_event *a, const struct sti_event *b)
{
    if (a->at_s < b->at_s || a->at_s > b->at_s)
        return a->at_s < b->at_s;
    return a->sequence < b->sequence;
}

void
sti_events_add(struct sti_events *events, double at_s, uint32_t what)
{
    struct sti_event event = {at_s, events->sequence++, what};
    uint64_t at = events->n++;

    assert(at < events->n_max);
    while (at > 0 && is_before(&event, &events->heap[(at - 1) / 2])) {
        events->heap[at] = events->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    events->heap[at] = event;
}

struct sti_event
sti_events_take(struct sti_events *events)
{
    struct sti_event first = events->heap[0];
    struct sti_event last = events->heap[--events->n];
    uint64_t at = 0;

    for (;;) {
        uint64_t child = 2 * at + 1;

        if (child >= events->n)
            break;
        if (child + 1 < events->n && is_before(&events->heap[child + 1], &events->heap[child]))
            child++;
        if (!is_before(&events->heap[child], &last))
            break;
        events->heap[at] = events->heap[child];
        at = child;
    }
    events->heap[at] = last;
    return first;
}
