/* SPDX-License-Identifier: Apache-2.0 */
/* A run told beforehand; see stk_explain(). */
#ifndef STI_LOADER_EXPLAIN_H
#define STI_LOADER_EXPLAIN_H

#include <stoker/cost.h>

#include "format/dataset.h"

/* opts: of full size, its loader and order as well. Errors: see stk_explain(). */
int
sti_explain(const struct sti_dataset *dataset, const stk_explain_opts *opts, stk_explained *epochs,
            uint32_t n_epochs, stk_explained *ret_run, stk_error *err);

#endif
