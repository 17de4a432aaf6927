/* SPDX-License-Identifier: Apache-2.0 */
/* The lower bound on origin bytes, as a running sum. Pure. */
#include "policy/bound.h"

void
sti_bound_init(struct sti_bound *bound, uint64_t capacity_bytes)
{
    *bound = (struct sti_bound){.capacity_bytes = capacity_bytes};
}

uint64_t
sti_bound_of_epoch(const struct sti_bound *bound)
{
    uint64_t missing_bytes =
        bound->epoch_bytes > bound->capacity_bytes ? bound->epoch_bytes - bound->capacity_bytes : 0;

    if (bound->epochs <= 1)
        return bound->epoch_bytes;
    return missing_bytes > bound->new_bytes ? missing_bytes : bound->new_bytes;
}

void
sti_bound_epoch(struct sti_bound *bound)
{
    bound->closed_bytes += sti_bound_of_epoch(bound);
    bound->epoch_bytes = 0;
    bound->new_bytes = 0;
    bound->epochs++;
}

void
sti_bound_sample(struct sti_bound *bound, uint64_t n_bytes, bool is_new_in_epoch,
                 bool is_new_in_run)
{
    if (is_new_in_epoch)
        bound->epoch_bytes += n_bytes;
    if (is_new_in_run) {
        bound->new_bytes += n_bytes;
        bound->distinct_bytes += n_bytes;
    }
}

uint64_t
sti_bound_bytes(const struct sti_bound *bound)
{
    return bound->closed_bytes + sti_bound_of_epoch(bound);
}
