/* SPDX-License-Identifier: Apache-2.0 */
/* The arbiter of one device. Pure; one thread. Invariant: a class is refused only while a
 * class above it is short, and then at least one operation of it starts in each patience
 * time. */
#include "budget/budget.h"

#include <assert.h>

void
sti_budget_init(struct sti_budget *budget, bool is_off)
{
    *budget = (struct sti_budget){.is_off = is_off};
}

void
sti_budget_set_short(struct sti_budget *budget, enum sti_budget_class class_, bool is_short)
{
    assert(is_short || budget->n_short[class_] > 0);
    budget->n_short[class_] += is_short ? 1 : UINT32_MAX; /* that is, one less */
}

static bool
is_outranked(const struct sti_budget *budget, enum sti_budget_class class_)
{
    for (uint32_t above = 0; above < (uint32_t)class_; above++)
        if (budget->n_short[above] > 0)
            return true;
    return false;
}

uint64_t
sti_budget_ask(struct sti_budget *budget, enum sti_budget_class class_, uint64_t now_ns)
{
    if (!budget->is_off && is_outranked(budget, class_)) {
        uint64_t waited_ns = now_ns - budget->granted_ns[class_];

        if (budget->n_under_way[class_] > 0 || waited_ns < STI_BUDGET_PATIENCE_NS) {
            budget->n_refused[class_]++;
            return waited_ns < STI_BUDGET_PATIENCE_NS ? STI_BUDGET_PATIENCE_NS - waited_ns
                                                      : STI_BUDGET_PATIENCE_NS;
        }
    }
    budget->granted_ns[class_] = now_ns;
    budget->n_under_way[class_]++;
    return 0;
}

void
sti_budget_done(struct sti_budget *budget, enum sti_budget_class class_)
{
    assert(budget->n_under_way[class_] > 0);
    budget->n_under_way[class_]--;
}
