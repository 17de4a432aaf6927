/* SPDX-License-Identifier: Apache-2.0 */
/* From what a person asked for to what the fetcher is given: defaults, ranges, and
 * whether it can work at all. */
#ifndef STI_LOADER_RESOLVE_H
#define STI_LOADER_RESOLVE_H

#include <stoker/loader.h>

#include "format/dataset.h"
#include "tier/fetcher.h"

struct sti_plan_opts {
    const stk_loader_opts *opts;
    const stk_order_opts *order;
    const struct sti_dataset *dataset;
    uint32_t world; /* of the engine's peers; 0: it has none */
    uint32_t rank;
};

/* The loader's options as resolved. ram_bytes is what the data set can use; the engine
 * may have less. */
struct sti_resolved {
    struct sti_fetcher_opts fetcher;
    uint32_t borrow_max;
    uint64_t ram_least_bytes; /* of which the engine must have at least so much */
    uint64_t ssd_bytes;       /* what the data set can use of the SSD directories together */
    uint64_t ssd_least_bytes;
};

/*
 * Whether a loader is to be opened by all ranks together: it asks for it, or leaves the
 * policy open and reads one rank's part of an order.
 */
bool
sti_loader_is_shared(const struct sti_plan_opts *asked);

/*
 * Fills ret_resolved but for what belongs to the engine. Errors: -EINVAL (err names the
 * option and its range), STK_E_INFEASIBLE. Pure.
 */
int
sti_loader_resolve(struct sti_resolved *ret_resolved, const struct sti_plan_opts *asked,
                   stk_error *err);

#endif
