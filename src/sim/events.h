/* SPDX-License-Identifier: Apache-2.0 */
/* What is due when: a heap by time, and by sequence of entry where times are equal, so
 * that a run is the same to the bit wherever it is done. */
#ifndef STI_SIM_EVENTS_H
#define STI_SIM_EVENTS_H

#include <stdint.h>

struct sti_event {
    double at_s;
    uint64_t sequence;
    uint32_t what;
};

struct sti_events {
    struct sti_event *heap;
    uint64_t n;
    uint64_t n_max;
    uint64_t sequence;
};

/* Room for n_max events at a time. Errors: -ENOMEM. */
int
sti_events_init(struct sti_events *events, uint64_t n_max);
void
sti_events_fini(struct sti_events *events);

/* Adds one; there is room. */
void
sti_events_add(struct sti_events *events, double at_s, uint32_t what);

/* The first to come, NULL without any. */
static inline const struct sti_event *
sti_events_first(const struct sti_events *events)
{
    return events->n ? events->heap : (const struct sti_event *)0;
}

/* Takes the first; there is one. */
struct sti_event
sti_events_take(struct sti_events *events);

#endif
