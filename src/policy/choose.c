/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a source. Pure; any thread. */
#include "policy/choose.h"

enum sti_source
sti_choose_source(const struct sti_source_seconds *seconds, uint32_t available)
{
    enum sti_source best = STI_SOURCE_ORIGIN;

    for (uint32_t source = 0; source < STI_SOURCE_ORIGIN; source++)
        if (available & STI_SOURCE_BIT(source) &&
            (best == STI_SOURCE_ORIGIN || seconds->of[source] < seconds->of[best]))
            best = (enum sti_source)source;
    return best;
}

uint32_t
sti_owner_first_reader(uint64_t position, uint32_t n_ranks)
{
    return (uint32_t)(position % n_ranks);
}
