/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All ranks load the same: each reads a part of it and gets the rest from the others. What is
 * whole is cut into pieces of some megabytes; a box, or what was saved in shards, is one piece.
 * The list of pieces follows from what is loaded, so it is the same on all ranks. A piece that
 * does not come, or whose CRC is wrong, is read here.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/mem.h"
#include "checkpointer/checkpointer_internal.h"
#include "checkpointer/exchange.h"
#include "checkpointer/wants.h"
#include "format/hash.h"

struct together {
    struct sti_view *view;
    const stk_load *loads;
    struct sti_piece *pieces;
    uint32_t *load_of; /* of each piece, and where it begins in it */
    uint64_t *at;
    uint32_t n;
    uint64_t hash; /* of what is loaded */
};

/* ---- what is loaded ---------------------------------------------------------------- */

/* Whether a load's memory is its tensor's bytes as the stream has them. */
static bool
is_plain(const struct sti_view_item *item, const stk_load *load)
{
    return !item->is_sharded && load->n_bytes == item->n_bytes;
}

static const struct sti_view_item *
item_of(const struct together *together, uint32_t load)
{
    return sti_contents_tensor(&together->view->contents, together->loads[load].name);
}

static void
add_to_hash(struct together *together, const struct sti_view_item *item, const stk_load *load)
{
    uint64_t hash = sti_hash(together->hash, item->name, strlen(item->name) + 1);

    hash = sti_hash_u64(hash, load->n_bytes);
    for (uint32_t dim = 0; load->start && dim < item->dims; dim++) {
        hash = sti_hash_u64(hash, load->start[dim]);
        hash = sti_hash_u64(hash, load->count[dim]);
    }
    together->hash = hash;
}

/* Checks the loads, and counts pieces and bytes. */
static int
check(struct together *together, uint32_t n_loads, uint64_t *ret_pieces, uint64_t *ret_bytes,
      stk_error *err)
{
    struct sti_wants wants = {0};
    int rc = 0;

    *ret_pieces = 0;
    *ret_bytes = 0;
    for (uint32_t idx = 0; rc == 0 && idx < n_loads; idx++) {
        const stk_load *load = &together->loads[idx];

        rc = sti_wants_add(&wants, together->view, load, err);
        if (rc < 0)
            break;
        const struct sti_view_item *item = item_of(together, idx);
        uint64_t piece_bytes = is_plain(item, load) ? STI_EXCHANGE_PIECE_BYTES : load->n_bytes;

        add_to_hash(together, item, load);
        *ret_bytes += load->n_bytes;
        if (load->n_bytes > 0)
            *ret_pieces += (load->n_bytes + piece_bytes - 1) / piece_bytes;
    }
    sti_wants_fini(&wants);
    if (rc == 0 && *ret_pieces > UINT32_MAX)
        rc = sti_error_set(err, -EINVAL, "more pieces than 32 bits count");
    return rc;
}

/* Who reads a piece that has the middle at a byte of all: shares of equal size in a row. */
static uint32_t
owner_of(const struct together *together, const struct sti_team *team, uint64_t middle,
         uint64_t total)
{
    (void)together;
    return (uint32_t)(middle / (total / team->world + 1));
}

static int
cut(struct together *together, const struct sti_team *team, uint32_t n_loads, stk_error *err)
{
    uint64_t n;
    uint64_t total;
    uint64_t done = 0;
    int rc = check(together, n_loads, &n, &total, err);

    if (rc < 0)
        return rc;
    together->pieces = sti_mem_new(n, sizeof(together->pieces[0]));
    together->load_of = sti_mem_new(n, sizeof(together->load_of[0]));
    together->at = sti_mem_new(n, sizeof(together->at[0]));
    if (!together->pieces || !together->load_of || !together->at)
        return sti_error_set(err, -ENOMEM, "no memory for %" PRIu64 " pieces", n);
    for (uint32_t idx = 0; idx < n_loads; idx++) {
        const stk_load *load = &together->loads[idx];
        bool may_cut = is_plain(item_of(together, idx), load);

        for (uint64_t at = 0; at < load->n_bytes;) {
            uint64_t left = load->n_bytes - at;
            uint64_t now =
                may_cut && left > STI_EXCHANGE_PIECE_BYTES ? STI_EXCHANGE_PIECE_BYTES : left;

            together->pieces[together->n] = (struct sti_piece){
                .memory = (char *)load->dst + at,
                .n_bytes = now,
                /* What no message holds each rank reads for itself. */
                .owner = now > STI_COMM_BODY_MAX ? team->rank
                                                 : owner_of(together, team, done + now / 2, total)};
            together->load_of[together->n] = idx;
            together->at[together->n++] = at;
            done += now;
            at += now;
        }
    }
    return 0;
}

/* ---- reading ----------------------------------------------------------------------- */

/* Adds a piece to a list of things to be read. There is room for each. */
static int
add_piece(const struct together *together, uint32_t idx, struct sti_wants *wants,
          struct sti_range *ranges, uint32_t *n_ranges, stk_error *err)
{
    const struct sti_layout *layout = &sti_reader_manifest(together->view->reader)->layout;
    const struct sti_piece *piece = &together->pieces[idx];
    const stk_load *load = &together->loads[together->load_of[idx]];
    const struct sti_view_item *item = item_of(together, together->load_of[idx]);

    if (!is_plain(item, load))
        return sti_wants_add_item(wants, together->view, item, load, err);
    uint64_t offset = layout->tensors[item->pieces[0]].offset + together->at[idx];
    struct sti_range *last = *n_ranges > 0 ? &ranges[*n_ranges - 1] : NULL;
    if (last && last->offset + last->n_bytes == offset &&
        last->dst + last->n_bytes == piece->memory)
        last->n_bytes += piece->n_bytes;
    else
        ranges[(*n_ranges)++] = (struct sti_range){offset, piece->n_bytes, piece->memory};
    return 0;
}

/* Reads the pieces that are this rank's, or that have not come. */
static int
read_pieces(const struct together *together, uint32_t rank, bool is_own, stk_error *err)
{
    struct sti_range *ranges = sti_mem_new(together->n, sizeof(*ranges));
    struct sti_wants wants = {0};
    struct sti_aio *aio;
    uint32_t n_ranges = 0;
    int rc = 0;

    if (!ranges)
        return sti_error_set(err, -ENOMEM, "no memory to load %" PRIu32 " pieces", together->n);
    for (uint32_t idx = 0; rc == 0 && idx < together->n; idx++)
        if (is_own ? together->pieces[idx].owner == rank : !together->pieces[idx].is_here)
            rc = add_piece(together, idx, &wants, ranges, &n_ranges, err);
    if (rc == 0 && n_ranges + wants.n > 0) {
        rc = sti_view_begin(together->view, &aio, err);
        if (rc == 0) {
            const struct sti_read_list list = {
                .wants = wants.list, .n_wants = wants.n, .ranges = ranges, .n_ranges = n_ranges};

            rc = sti_reader_read_list(together->view->reader, &list, err);
            sti_view_end(together->view, aio);
        }
    }
    sti_wants_fini(&wants);
    sti_mem_free(ranges);
    return rc;
}

static void
sum_up(struct together *together, uint32_t rank)
{
    for (uint32_t idx = 0; idx < together->n; idx++) {
        struct sti_piece *piece = &together->pieces[idx];

        if (piece->owner != rank)
            continue;
        piece->crc = sti_crc32c(0, piece->memory, piece->n_bytes);
        piece->is_here = true;
    }
}

static bool
have_all_come(struct together *together, uint32_t rank)
{
    bool has_all = true;

    for (uint32_t idx = 0; idx < together->n; idx++) {
        struct sti_piece *piece = &together->pieces[idx];

        if (piece->owner != rank && piece->is_here)
            piece->is_here = sti_crc32c(0, piece->memory, piece->n_bytes) == piece->crc;
        has_all = has_all && piece->is_here;
    }
    return has_all;
}

int
sti_view_load_together(struct sti_view *view, const stk_load *loads, uint32_t n, stk_error *err)
{
    const struct sti_manifest *manifest = sti_reader_manifest(view->reader);
    struct together together = {.view = view, .loads = loads};

    if (!view->exchange)
        return n > 0 && !loads ? sti_error_set(err, -EINVAL, "loads are required")
                               : sti_view_load(view, loads, n, err);
    const struct sti_team *team = view->team;
    together.hash = sti_hash(manifest->step, manifest->id, strlen(manifest->id));
    int rc = n > 0 && !loads ? sti_error_set(err, -EINVAL, "loads are required")
                             : cut(&together, team, n, err);
    rc = sti_exchange_agree(view->exchange, together.hash, rc, err);
    if (rc == 0) {
        rc = read_pieces(&together, team->rank, true, err);
        if (rc == 0)
            sum_up(&together, team->rank);
        sti_exchange_run(view->exchange, together.pieces, together.n);
        if (rc == 0 && !have_all_come(&together, team->rank))
            rc = read_pieces(&together, team->rank, false, err);
        sti_exchange_end(view->exchange);
    }
    sti_mem_free(together.pieces);
    sti_mem_free(together.load_of);
    sti_mem_free(together.at);
    return rc;
}
