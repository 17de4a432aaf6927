/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a run to be told, and the options of its loader and its order within. */
#ifndef STI_API_EXPLAIN_OPTS_H
#define STI_API_EXPLAIN_OPTS_H

#include <stoker/cost.h>
#include <stoker/loader.h>
#include <stoker/plan.h>

/* own points to loader, and that to order, once taken: it is not copied. */
struct sti_explain_opts {
    stk_explain_opts own;
    stk_loader_opts loader;
    stk_order_opts order;
};

/*
 * Takes a caller's options into own, which stays where it is, and checks those that are
 * not the loader's. Errors: as sti_opts_take(), -EINVAL no loader or a value out of range.
 */
int
sti_explain_opts_take(struct sti_explain_opts *own, const stk_explain_opts *opts, stk_error *err);

#endif
