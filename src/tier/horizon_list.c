/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list that the caller pushes: rings over positions, wide enough for everything that
 * may wait (2^20 ids) and everything that may be staged (2^20 positions) at a time. Where
 * an epoch ends is known when its end was pushed.
 */
#include <errno.h>

#include "base/mem.h"
#include "tier/horizon_internal.h"

#define RING (2 * STI_LIST_IDS_MAX)
#define ENDS_MAX 65536u

int
sti_list_init(struct sti_horizon *horizon)
{
    struct sti_list *list = &horizon->list;

    list->ids = sti_mem_new(RING, sizeof(uint64_t));
    list->links = sti_mem_new(RING, sizeof(uint32_t));
    list->ends = sti_mem_new(ENDS_MAX, sizeof(uint64_t));
    if (list->ids && list->links && list->ends)
        return 0;
    sti_list_fini(horizon);
    return -ENOMEM;
}

void
sti_list_fini(struct sti_horizon *horizon)
{
    struct sti_list *list = &horizon->list;

    sti_mem_free(list->ids);
    sti_mem_free(list->links);
    sti_mem_free(list->ends);
    *list = (struct sti_list){0};
}

int
sti_horizon_push(struct sti_horizon *horizon, uint64_t fetch_position,
                 const struct sti_list_part *part)
{
    struct sti_list *list = &horizon->list;
    uint64_t waiting = list->end_position - fetch_position;
    bool has_end = part->is_epoch_end || part->is_run_end;

    if (horizon->kind != STI_HORIZON_LIST || list->is_ended)
        return -EINVAL;
    if (part->n > STI_LIST_IDS_MAX - waiting || (has_end && list->n_ends == ENDS_MAX))
        return -ENOSPC;
    for (uint64_t at = 0; at < part->n; at++) {
        list->ids[(list->end_position + at) % RING] = part->ids[at];
        list->links[(list->end_position + at) % RING] = STI_NO_LINK;
    }
    list->end_position += part->n;
    if (has_end) {
        list->ends[(list->first_end + list->n_ends) % ENDS_MAX] = list->end_position;
        list->n_ends++;
    }
    list->is_ended = part->is_run_end;
    return 0;
}

enum sti_cut
sti_list_cut(struct sti_horizon *horizon, uint64_t position, struct sti_batch_cut *ret_cut)
{
    struct sti_list *list = &horizon->list;
    uint32_t batch_size = horizon->opts.batch_size;

    for (;;) {
        bool has_end = list->n_ends > 0;
        uint64_t end = has_end ? list->ends[list->first_end] : list->end_position;
        uint64_t left = end - position;

        ret_cut->first_position = position;
        if (left >= batch_size || (has_end && left > 0 && !horizon->opts.drop_last)) {
            *ret_cut = (struct sti_batch_cut){
                .first_position = position,
                .epoch = list->epoch,
                .epoch_step = list->epoch_step++,
                .step = list->step++,
                .count = left < batch_size ? (uint32_t)left : batch_size,
            };
            ret_cut->is_last = has_end && ret_cut->count == left;
            return STI_CUT_BATCH;
        }
        if (!has_end)
            return list->is_ended && left == 0 ? STI_CUT_END : STI_CUT_NOT_YET;
        position = end; /* the incomplete rest is left out */
        list->first_end = (list->first_end + 1) % ENDS_MAX;
        list->n_ends--;
        list->epoch += list->n_ends > 0 || !list->is_ended ? 1 : 0;
        list->epoch_step = 0;
    }
}

uint64_t
sti_list_sample(const struct sti_horizon *horizon, uint64_t position)
{
    return horizon->list.ids[position % RING];
}

uint32_t *
sti_list_link(struct sti_horizon *horizon, uint64_t position)
{
    if (position + RING <= horizon->list.end_position)
        return NULL; /* written over already */
    return &horizon->list.links[position % RING];
}

void
sti_list_step(struct sti_horizon *horizon)
{
    if (!horizon->opts.wants_next_use)
        return;
    for (; horizon->linked_position < horizon->list.end_position; horizon->linked_position++)
        sti_horizon_link(horizon, sti_list_sample(horizon, horizon->linked_position),
                         horizon->linked_position);
}
