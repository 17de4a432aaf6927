/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bad samples. By `fail` the batch is handed out as an error, once, and the stream goes
 * on behind it; the next epoch tries again. By `replace` the next id modulo n stands in,
 * the one after that if it is bad too, and so on: a function of the sample alone, so
 * every rank and every run replaces alike and batches keep their size. The ledger has one
 * line for an item, of its own id and of the one that came in the end, written when that
 * has come.
 */
#include "tier/fetcher_internal.h"

/* Neighbours tried before a batch fails after all. */
#define SUBSTITUTES_MAX 64

static void
fail_batch(struct sti_record *record, uint32_t item, const struct sti_bad *bad)
{
    record->states[item] = STI_ITEM_FAILED;
    record->items[item] = NULL;
    record->n_pending--;
    if (record->bad.code == 0)
        record->bad = *bad;
}

static uint64_t
original_of(const struct sti_fetcher *fetcher, const struct sti_record *record, uint32_t item)
{
    return sti_horizon_sample(fetcher->horizon, record->cut.first_position + item);
}

void
sti_fetcher_note_substitute(struct sti_fetcher *fetcher, const struct sti_record *record,
                            uint32_t item)
{
    if (record->next_use[item] != STI_POSITION_OF_ANOTHER)
        return;
    const stk_replacement replacement = {.epoch = record->cut.epoch,
                                         .sample = original_of(fetcher, record, item),
                                         .replacement = record->samples[item],
                                         .reason = record->reasons[item]};

    sti_staging_note_replacement(&fetcher->staging, &replacement);
}

void
sti_fetcher_fail(struct sti_fetcher *fetcher, struct sti_record *record, uint32_t item,
                 const struct sti_bad *bad)
{
    uint64_t n = sti_dataset_count(fetcher->opts.dataset);
    uint64_t original = original_of(fetcher, record, item);
    uint64_t tried = bad->sample >= original ? bad->sample - original : bad->sample + n - original;
    uint32_t waiter;

    if (!fetcher->opts.must_replace || tried + 1 >= n || tried >= SUBSTITUTES_MAX) {
        fail_batch(record, item, bad);
        return;
    }
    waiter = sti_fetcher_new_waiter(fetcher, record, item);
    if (waiter == STI_NO_WAITER) { /* every node is in use by another bad sample */
        fail_batch(record, item, bad);
        return;
    }
    uint64_t substitute = (bad->sample + 1) % n;
    if (tried == 0)
        record->reasons[item] = bad->code;
    record->states[item] = STI_ITEM_WAITING;
    record->next_use[item] = STI_POSITION_OF_ANOTHER;
    fetcher->waiters[waiter].sample = substitute;
    fetcher->waiters[waiter].next = fetcher->redo;
    fetcher->redo = waiter;
}

bool
sti_fetcher_redo(struct sti_fetcher *fetcher)
{
    while (fetcher->redo != STI_NO_WAITER) {
        uint32_t at = fetcher->redo;
        struct sti_waiter waiter = fetcher->waiters[at];

        fetcher->redo = waiter.next;
        if (!sti_fetcher_take(fetcher, waiter.record, waiter.item, waiter.sample, true)) {
            fetcher->waiters[at].next = fetcher->redo;
            fetcher->redo = at;
            return false;
        }
        sti_fetcher_free_waiter(fetcher, at);
    }
    return true;
}
