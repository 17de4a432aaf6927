/* SPDX-License-Identifier: Apache-2.0 */
#include "told.h"

int
told_ask(struct told *told, stk_loader *loader, const stk_dataset *data,
         const stk_explain_opts *opts, const stk_loader_stats *first, uint32_t n_epochs,
         stk_error *err)
{
    stk_costs costs = {STK_COSTS_INIT};
    stk_explain_opts ask = *opts;

    (void)stk_loader_get_costs(loader, &costs); /* the size is right */
    ask.costs = &costs;
    ask.is_warm = first->tier_samples[STK_TIER_SSD] > 0 && first->origin_bytes == 0;
    return stk_explain(data, &ask, told->epochs, n_epochs, &told->run, err);
}
