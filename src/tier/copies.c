/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies ahead of their use. What a rank will read from the second epoch on and peers hold
 * comes while there is spare room, the soonest use first, until that room has been full
 * once (policy/replica). From then on what is read and will be read again sooner than
 * what would have to go stays, as anything does; so a copy costs the network no more
 * than the read that it takes the place of, and makes that read local.
 *
 * Invariant: nothing goes for a copy ahead of its use, and it takes no room of what this
 * rank holds for all, nor of what is staged. It is asked for behind what batches need:
 * with a half of the fetches, and a half of those to one peer, at most.
 */
#include "policy/replica.h"
#include "tier/fetcher_internal.h"

#define LOOKED_AT_MAX 4096u /* positions of a step */

static uint64_t
less(uint64_t bytes, uint64_t by_bytes)
{
    return bytes > by_bytes ? bytes - by_bytes : 0;
}

/* What nothing else will need: beside what is there, what this rank is to hold and has not
 * begun to read, and what may still be staged. */
static uint64_t
spare_bytes(const struct sti_fetcher *fetcher)
{
    const struct sti_peering *peering = fetcher->peering;
    uint64_t used_bytes = sti_store_used_bytes(fetcher->store) - fetcher->passing_bytes;
    uint64_t held_bytes = fetcher->opts.item_bytes > 0 ? fetcher->raw_bytes : fetcher->staged_bytes;
    uint64_t due_bytes = less(peering->holders.mine_bytes, peering->begun_bytes) +
                         less(fetcher->sizes.held_bytes, held_bytes);

    return less(fetcher->sizes.store_bytes, used_bytes + due_bytes);
}

/* Looks at the next position; false where it has to wait, or there is no more room. */
static bool
look_at(struct sti_fetcher *fetcher)
{
    struct sti_peering *peering = fetcher->peering;
    uint64_t position = peering->copies_position;
    uint64_t sample = sti_horizon_sample(fetcher->horizon, position);
    const struct sti_entry *entry = sti_catalog_find(fetcher->catalog, sample);
    bool is_held = sti_fetcher_is_mine(fetcher, sample) || sti_ssd_has(fetcher->ssd, sample) ||
                   (entry && entry->state != STI_SAMPLE_ABSENT);
    uint32_t holder =
        is_held ? STI_HOLDERS_NOBODY : sti_peering_holder(peering, sample, peering->rank);

    if (holder != STI_HOLDERS_NOBODY) {
        uint64_t n_bytes = sti_dataset_length(fetcher->opts.dataset, sample);

        if (!sti_replica_comes_ahead(is_held, spare_bytes(fetcher), n_bytes)) {
            peering->is_filled = true;
            return false;
        }
        if (!sti_peering_is_idle(peering, holder) ||
            !sti_fetcher_read_peer(fetcher, STI_NO_WAITER, sample, holder, position))
            return false;
    }
    peering->copies_position++;
    return true;
}

bool
sti_fetcher_take_copies(struct sti_fetcher *fetcher)
{
    struct sti_peering *peering = fetcher->peering;

    /* What goes at once need not come. */
    if (!peering || peering->is_filled || fetcher->opts.policy != STK_POLICY_NEXT_USE ||
        sti_place_keep_shared(fetcher->opts.shared_policy, false, STI_NEXT_USE_KNOWN) ==
            STI_KEEP_NOT)
        return false;
    uint64_t end_position = sti_horizon_known_end(fetcher->horizon, fetcher->position);
    if (peering->copies_position == 0)
        peering->copies_position = sti_horizon_epoch_end(fetcher->horizon, fetcher->position);
    if (peering->copies_position < fetcher->position)
        peering->copies_position = fetcher->position;
    for (uint32_t n = 0; n < LOOKED_AT_MAX; n++)
        if (peering->copies_position >= end_position || !look_at(fetcher))
            return false;
    return true;
}
