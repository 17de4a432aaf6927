/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples that come from the SSD tier, and what the tier is for. A read is one operation
 * that covers the sample's header and its bytes; a large one lands in its place in the
 * store, a small one in the bounce buffer, as from the origin. What does not verify or
 * cannot be read comes from the origin instead, in the same read. Checking a large sample
 * is the pool's.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "tier/fetcher_internal.h"
#include "tier/ssd_format.h"

/* Less than this is checked by the loop: a hand-over would cost more. */
#define CHECK_AT_ONCE_BYTES (UINT64_C(16) << 10)

/* ---- reading ----------------------------------------------------------------------- */

static void
check(struct sti_aio_op *op)
{
    struct sti_read *read = op->context;
    const struct sti_piece *piece = &read->pieces[0];

    read->verdict =
        sti_ssd_check(read->fetcher->ssd, &read->place, piece->sample, piece->length, op);
}

static void
on_done(struct sti_aio_op *op)
{
    struct sti_read *read = op->context;
    struct sti_fetcher *fetcher = read->fetcher;
    const struct sti_piece *piece = &read->pieces[0];

    sti_cost_learner_end(&fetcher->ssd_cost, sti_clock_ns(), read->began_ns,
                         op->result > 0 ? (uint64_t)op->result : 0);
    if (!op->work)
        check(op);
    if (read->verdict == 0) {
        sti_fetcher_conclude_read(fetcher, read, 0);
        return;
    }
    sti_ssd_lose(fetcher->ssd, &read->place, piece->sample, read->verdict);
    sti_fetcher_account_again(fetcher, piece->sample, STK_TIER_SSD, STK_TIER_ORIGIN);
    sti_fetcher_read_again(fetcher, read);
}

static void
submit(struct sti_fetcher *fetcher, struct sti_read *read)
{
    struct sti_piece *piece = &read->pieces[0];
    char *bytes =
        read->is_in_place ? sti_store_pointer(fetcher->store, piece->address) : read->bounce;

    memset(&read->op, 0, sizeof(read->op));
    read->range.skew = sti_ssd_prepare(fetcher->ssd, &read->place, piece->length, bytes, &read->op);
    read->range.offset = read->op.offset;
    read->range.n_bytes = read->op.n_bytes;
    read->op.done = on_done;
    read->op.context = read;
    if (piece->length > CHECK_AT_ONCE_BYTES) {
        read->op.work = check;
        read->op.work_lane = STI_LANE_URGENT;
    }
    read->began_ns = sti_clock_ns();
    sti_cost_learner_begin(&fetcher->ssd_cost, read->began_ns);
    sti_aio_submit(fetcher->opts.aio, &read->op);
}

/* A sample whose segment is not written yet: a copy, and it is there. */
static bool
copy(struct sti_fetcher *fetcher, uint32_t waiter, uint64_t sample, const char *bytes)
{
    uint64_t n_bytes = sti_dataset_length(fetcher->opts.dataset, sample);
    uint64_t address = sti_fetcher_make_room(fetcher, sample);

    if (address == STI_STORE_NONE)
        return false;
    struct sti_entry *entry = sti_fetcher_begin_entry(fetcher, sample, address, waiter);
    assert(entry && "an SSD tier has a table, not a hash");
    memcpy(sti_store_pointer(fetcher->store, address), bytes, n_bytes);
    if (sti_fetcher_is_in_place(fetcher, sample))
        sti_store_trim(fetcher->store, address, n_bytes);
    sti_fetcher_give(fetcher, sample, entry, STI_POSITION_UNKNOWN);
    return true;
}

bool
sti_fetcher_read_ssd(struct sti_fetcher *fetcher, uint32_t waiter, uint64_t sample,
                     const struct sti_ssd_place *place)
{
    struct sti_extent extent = {.offset = place->offset + STI_SSD_HEADER_BYTES,
                                .length = sti_dataset_length(fetcher->opts.dataset, sample)};

    if (place->bytes)
        return copy(fetcher, waiter, sample, place->bytes);
    struct sti_read *read = sti_fetcher_new_read(fetcher, extent.length);
    if (!read)
        return false;
    read->is_ssd = true;
    read->place = *place;
    if (!sti_fetcher_add_piece(fetcher, read, sample, &extent, waiter)) {
        sti_fetcher_give_back_read(fetcher, read);
        return false;
    }
    submit(fetcher, read);
    return true;
}

void
sti_fetcher_read_ssd_again(struct sti_fetcher *fetcher, struct sti_read *read,
                           const struct sti_ssd_place *place)
{
    const struct sti_piece *piece = &read->pieces[0];

    read->place = *place;
    read->is_ssd = true;
    if (!place->bytes) {
        submit(fetcher, read);
        return;
    }
    /* Its segment is not written yet. As if it had been read to where it belongs. */
    char *to = read->is_in_place ? sti_store_pointer(fetcher->store, piece->address) : read->bounce;
    memcpy(to, place->bytes, piece->length);
    memset(&read->op, 0, sizeof(read->op));
    read->op.bytes = to;
    read->range = (struct sti_origin_range){.offset = piece->offset};
    sti_fetcher_conclude_read(fetcher, read, 0);
}

/* ---- set-up ------------------------------------------------------------------------ */

static void
on_trouble(void *context, const char *path, int code, bool is_full)
{
    struct sti_fetcher *fetcher = context;
    stk_error warning;

    (void)sti_error_set_path(&warning, code, path,
                             is_full ? "the SSD tier takes nothing more: %s; what it has is used"
                                     : "the SSD tier is given up: %s; the origin serves",
                             code == -EBUSY ? "another job is filling it" : sti_error_text(code));
    sti_staging_warn(&fetcher->staging, &warning);
}

int
sti_fetcher_open_ssd(struct sti_fetcher *fetcher)
{
    struct sti_ssd_opts opts = {.dataset = fetcher->opts.dataset,
                                .n_parts = fetcher->opts.n_ssd_parts,
                                .dataset_id = fetcher->opts.ssd_dataset_id,
                                .slot = fetcher->opts.ssd_slot,
                                .n_slots = fetcher->opts.n_ssd_slots,
                                .is_apart = fetcher->opts.is_ssd_apart,
                                .is_buffered = fetcher->opts.is_buffered,
                                .aio = fetcher->opts.aio,
                                .on_trouble = on_trouble,
                                .context = fetcher};
    int rc = 0;

    memcpy(opts.parts, fetcher->opts.ssd_parts, sizeof(opts.parts));
    if (opts.n_parts > 0)
        rc = sti_ssd_open(&fetcher->ssd, &opts);
    if (rc < 0)
        return rc;
    fetcher->sizes =
        sti_sizes_choose(&fetcher->opts, fetcher->ssd ? sti_ssd_capacity_bytes(fetcher->ssd) : 0);
    if (fetcher->ssd)
        sti_ssd_set_range(fetcher->ssd, fetcher->sizes.range);
    return 0;
}
