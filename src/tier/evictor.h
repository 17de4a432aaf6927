/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which cached samples go when room is needed: an index over the samples
 * that no batch uses. By next use: for each class a set of stream positions, whose
 * largest member is the next use that is farthest away, beside a set of samples whose
 * next use is unknown. By recency: a list. Owned by the loop's thread.
 */
#ifndef STI_TIER_EVICTOR_H
#define STI_TIER_EVICTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/place.h"

struct sti_evictor;

/* Samples kept by next use go class by class; in each, those whose next use is unknown go
 * first (of the first two classes between them). */
enum sti_class {
    STI_CLASS_STORED, /* the SSD has it, too */
    STI_CLASS_LIGHT,  /* saves less origin time per byte than others that have no room */
    STI_CLASS_WORTHY,
    STI_CLASSES
};

/*
 * An empty index for a policy. n: samples of the data set. span: positions that next uses
 * may lie apart, all from one base on. has_classes: whether any but WORTHY will be used.
 * For none and pin it holds nothing and costs nothing. Errors: -ENOMEM, -EINVAL.
 * ret_evictor: returns owned.
 */
int
sti_evictor_new(struct sti_evictor **ret_evictor, stk_policy policy, uint64_t n, uint64_t span,
                bool has_classes);

/* NULL is allowed. */
void
sti_evictor_free(struct sti_evictor *evictor);

/* A sample enters by the position of its next use; it leaves whatever class it was. */
void
sti_evictor_add_position(struct sti_evictor *evictor, uint64_t position, enum sti_class class);
void
sti_evictor_remove_position(struct sti_evictor *evictor, uint64_t position);

/* A sample enters as one whose next use is not known; it leaves whatever class it was. */
void
sti_evictor_add_unknown(struct sti_evictor *evictor, uint64_t sample, enum sti_class class);
void
sti_evictor_remove_unknown(struct sti_evictor *evictor, uint64_t sample);

/* A sample enters as the most recently used. */
void
sti_evictor_add_recent(struct sti_evictor *evictor, uint64_t sample);
void
sti_evictor_remove_recent(struct sti_evictor *evictor, uint64_t sample);

enum sti_victim {
    STI_VICTIM_NONE,
    STI_VICTIM_SAMPLE,   /* the value is a sample's id */
    STI_VICTIM_POSITION, /* the value is the position at which the sample would be used next */
};

/*
 * Takes the first that has to go out of the index. newest: the largest position that can
 * be in it (positions are kept modulo the span, so the order is read backwards from
 * there).
 */
enum sti_victim
sti_evictor_take(struct sti_evictor *evictor, uint64_t newest, uint64_t *ret_value);

/*
 * The first that have to go, up to `most` of those that are alike, in their order; they
 * stay in, all n_alike. Where samples go by recency, the first alone. Returns what the
 * values are.
 */
enum sti_victim
sti_evictor_look(const struct sti_evictor *evictor, uint64_t newest, uint64_t *values,
                 uint32_t most, uint32_t *ret_n, uint64_t *ret_n_alike);

/* Empties the position set; samples in it must be added again by their new positions. */
void
sti_evictor_clear_positions(struct sti_evictor *evictor);

#endif
