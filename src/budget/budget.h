/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may use a device now: the one arbiter between reading samples and writing
 * checkpoints. A pure state machine, times passed in, so that a simulation decides as the
 * program does. It belongs to one thread.
 *
 * Classes are in order. A class that is short of something it will soon need has the
 * device for itself: those below it start nothing while it is, but for one operation now
 * and then, so that none waits for ever. While nobody is short everybody starts what he
 * likes: the device is never idle for the arbiter's sake.
 */
#ifndef STI_BUDGET_BUDGET_H
#define STI_BUDGET_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

enum sti_budget_class {
    STI_BUDGET_SAMPLE,     /* samples needed within the staging horizon */
    STI_BUDGET_FENCE,      /* checkpoint bytes that a fence waits for */
    STI_BUDGET_CHECKPOINT, /* other checkpoint bytes */
    STI_BUDGET_FILL,       /* cache fill */
    STI_BUDGET_DRAIN,      /* background drain to a shared root */
    STI_BUDGET_CLASSES
};

struct sti_budget {
    bool is_off;                          /* grants everything */
    uint32_t n_short[STI_BUDGET_CLASSES]; /* users of a class that are short */
    uint32_t n_under_way[STI_BUDGET_CLASSES];
    uint64_t granted_ns[STI_BUDGET_CLASSES]; /* the last time that something was */
    uint64_t n_refused[STI_BUDGET_CLASSES];
};

/* The longest time in which a class gets nothing while another is short. */
#define STI_BUDGET_PATIENCE_NS UINT64_C(200000000)

void
sti_budget_init(struct sti_budget *budget, bool is_off);

/* A user of a class says that it has become short, or that it no longer is. */
void
sti_budget_set_short(struct sti_budget *budget, enum sti_budget_class class_, bool is_short);

/*
 * Asks to start one operation. Returns 0: it may, and is under way until
 * sti_budget_done(); or in how many nanoseconds to ask again at the latest (sooner if
 * something completes).
 */
uint64_t
sti_budget_ask(struct sti_budget *budget, enum sti_budget_class class_, uint64_t now_ns);

/* An operation that was granted has ended. */
void
sti_budget_done(struct sti_budget *budget, enum sti_budget_class class_);

#endif
