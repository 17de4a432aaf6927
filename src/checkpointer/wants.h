/* SPDX-License-Identifier: Apache-2.0 */
/* What is to be read for boxes of tensors. */
#ifndef STI_CHECKPOINTER_WANTS_H
#define STI_CHECKPOINTER_WANTS_H

#include "checkpointer/checkpointer.h"

/* A list that grows; all zero is empty. */
struct sti_wants {
    struct sti_want *list;
    uint32_t n;
    uint32_t capacity;
};

/* Adds what a load needs, checked. Errors: see stk_view_load(). */
int
sti_wants_add(struct sti_wants *wants, const struct sti_view *view, const stk_load *load,
              stk_error *err);

/* The same of an item; the load's name is not looked at. */
int
sti_wants_add_item(struct sti_wants *wants, const struct sti_view *view,
                   const struct sti_view_item *item, const stk_load *load, stk_error *err);

void
sti_wants_fini(struct sti_wants *wants);

#endif
