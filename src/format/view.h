/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views: data sets made of others. A view maps each of its samples to one of a child, so
 * to a loader it is a data set like any other. Children are borrowed: they are closed
 * after the view.
 */
#ifndef STI_FORMAT_VIEW_H
#define STI_FORMAT_VIEW_H

#include <stdint.h>

#include "format/dataset.h"

/* Children of a view at most. */
#define STI_VIEW_CHILDREN_MAX 65536u

/*
 * Some samples of a data set. ids: n of them, 1 .. 2^48, copied; NULL: those from first
 * on. Errors: -ERANGE no such sample, -EINVAL n is 0, or the child is a mix, -ENOMEM.
 */
int
sti_view_subset(struct sti_dataset **ret_dataset, struct sti_dataset *child, const uint64_t *ids,
                uint64_t first, uint64_t n, stk_error *err);

/*
 * Several data sets, one behind the other. They must have the same fields, or one each.
 * Errors: -EINVAL (n is 0 or more than STI_VIEW_CHILDREN_MAX, fields differ, a child is a
 * mix), -E2BIG more than 2^48 samples, -ENOMEM.
 */
int
sti_view_concat(struct sti_dataset **ret_dataset, struct sti_dataset *const *children, uint32_t n,
                stk_error *err);

/*
 * A concatenation that is drawn from by weights: an epoch has samples draws (0: as many
 * as the children have samples). Errors: as concat; -EINVAL a weight.
 */
int
sti_view_mix(struct sti_dataset **ret_dataset, struct sti_dataset *const *children,
             const double *weights, uint32_t n, uint64_t samples, stk_error *err);

/* The draws of a mix, NULL for other data sets. Borrowed until the data set is closed. */
struct sti_draws;
const struct sti_draws *
sti_dataset_draws(const struct sti_dataset *dataset);

#endif
