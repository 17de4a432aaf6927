/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views: checkpoints and plain files open for reading. Each call brings an aio for the
 * thread that makes it, so a view may be opened on one thread and read on another.
 */
#include <errno.h>
#include <inttypes.h>

#include "base/error.h"
#include "base/mem.h"
#include "checkpointer/checkpointer_internal.h"
#include "checkpointer/wants.h"
#include "ckpt/scan.h"

#define READ_SLOTS 8u
#define READ_SLOT_BYTES (8u << 20)

/* ---- opening ---------------------------------------------------------------------- */

static struct sti_reader_opts
reader_opts(struct sti_engine *engine)
{
    return (struct sti_reader_opts){.slots = READ_SLOTS,
                                    .slot_bytes = READ_SLOT_BYTES,
                                    .is_buffered = sti_engine_is_buffered(engine)};
}

struct sti_reader_opts
sti_view_part_opts(const struct sti_checkpointer *checkpointer, const struct sti_scan *scan)
{
    struct sti_reader_opts opts = reader_opts(checkpointer->engine);

    opts.scan = *scan;
    opts.is_buffered |= checkpointer->resolved.is_buffered;
    opts.may_lack = true;
    return opts;
}

/* Of the job's, also where this checkpointer asks nobody. */
static uint32_t
rank_of(const struct sti_checkpointer *checkpointer)
{
    struct sti_peers *peers = sti_engine_peers(checkpointer->engine);

    return peers ? sti_comm_rank(sti_peers_comm(peers)) : 0;
}

/* ---- the spare copy ----------------------------------------------------------------
 *
 * What is damaged in the own directory may be right in the shared one, and the other way round:
 * the same checkpoint has the same stream there. It is opened when it is first needed, whatever is
 * left of it. */

static void
open_spare(struct sti_view *view, struct sti_aio *aio)
{
    struct sti_reader_opts opts = reader_opts(view->engine);
    const struct sti_manifest *own = sti_reader_manifest(view->reader);
    struct sti_manifest manifest;

    opts.scan = view->spare_scan;
    opts.scan.aio = aio;
    opts.may_lack = true;
    if (sti_scan_manifest(&opts.scan, own->step, &manifest, NULL) == 0)
        (void)sti_reader_open(&view->spare, &manifest, &opts, NULL); /* or there is none */
}

static int
read_spare(void *context, struct sti_aio *aio, uint64_t offset, uint64_t n_bytes, char *dst)
{
    struct sti_view *view = context;

    if (!view->has_looked_for_spare)
        open_spare(view, aio);
    view->has_looked_for_spare = true;
    if (!view->spare || sti_reader_manifest(view->spare)->layout.stream_bytes !=
                            sti_reader_manifest(view->reader)->layout.stream_bytes)
        return -ENOENT;
    sti_reader_set_aio(view->spare, aio);
    int rc = sti_reader_read_stream(view->spare, offset, n_bytes, dst, NULL);
    sti_reader_set_aio(view->spare, NULL);
    return rc;
}

/* A view whose reader is open, with the aio of this call. */
static int
finish_opening(struct sti_view *view, stk_error *err)
{
    const struct sti_manifest *manifest = sti_reader_manifest(view->reader);
    int rc = sti_contents_take(&view->contents, &manifest->layout, manifest->world, err);

    if (rc < 0)
        sti_reader_close(view->reader);
    else
        sti_reader_set_aio(view->reader, NULL);
    return rc;
}

static int
open_latest(struct sti_view *view, const struct sti_scan *scans, int n_scans,
            struct sti_reader_opts *opts, stk_error *err)
{
    struct sti_manifest manifest;
    const struct sti_scan *scan;
    int skipped = sti_checkpointer_find_latest(scans, n_scans, &manifest, &scan, err);

    if (skipped < 0)
        return skipped;
    if (scan != &scans[0])
        view->spare_scan = scans[0];
    opts->scan = *scan;
    int rc = sti_reader_open(&view->reader, &manifest, opts, err);
    return rc < 0 ? rc : skipped;
}

static int
open_step(struct sti_view *view, const struct sti_scan *scan, uint64_t step,
          struct sti_reader_opts *opts, stk_error *err)
{
    struct sti_manifest manifest;
    /* Whether the parts are there is seen when they are opened; of several nodes one may have a
     * manifest whose parts are gone, and another one that is whole. */
    int rc = scan->nodes ? sti_scan_whole(scan, step, &manifest, err)
                         : sti_scan_manifest(scan, step, &manifest, err);

    if (rc < 0)
        return rc;
    opts->scan = *scan;
    return sti_reader_open(&view->reader, &manifest, opts, err);
}

int
sti_view_open(struct sti_view *view, struct sti_checkpointer *checkpointer, uint64_t step,
              stk_error *err)
{
    struct sti_reader_opts opts = reader_opts(checkpointer->engine);
    struct sti_scan scans[2];
    stk_error why;
    int n_scans = sti_checkpointer_scans(checkpointer, scans, err);

    if (n_scans < 0)
        return n_scans;
    view->engine = checkpointer->engine;
    view->rank = rank_of(checkpointer);
    view->team = &checkpointer->team;
    view->exchange = checkpointer->exchange;
    opts.is_buffered |= checkpointer->resolved.is_buffered;
    if (n_scans > 1) {
        view->spare_scan = scans[1];
        opts.spare = read_spare;
        opts.spare_context = view;
    }
    int rc = step == STK_LATEST ? open_latest(view, scans, n_scans, &opts, err)
                                : open_step(view, &scans[0], step, &opts, err);
    /* What is wrong with the own one is said, unless it is only not there. */
    if (rc < 0 && step != STK_LATEST && n_scans > 1) {
        view->spare_scan = scans[0];
        int other_rc = open_step(view, &scans[1], step, &opts, &why);

        if (other_rc < 0 && rc == -ENOENT && err)
            *err = why;
        if (other_rc == 0 || rc == -ENOENT)
            rc = other_rc;
    }
    if (rc >= 0) {
        int finished = finish_opening(view, err);

        rc = finished < 0 ? finished : rc;
    }
    sti_aio_close(scans[0].aio);
    return rc;
}

int
sti_view_open_file(struct sti_view *view, struct sti_engine *engine, const char *path,
                   stk_error *err)
{
    struct sti_reader_opts opts = reader_opts(engine);

    view->engine = engine;
    int rc = sti_engine_aio_open(engine, &opts.scan.aio, err);
    if (rc < 0)
        return rc;
    rc = sti_reader_open_file(&view->reader, path, &opts, err);
    if (rc == 0)
        rc = finish_opening(view, err);
    sti_aio_close(opts.scan.aio);
    return rc;
}

void
sti_view_close(struct sti_view *view)
{
    sti_contents_fini(&view->contents);
    sti_reader_close(view->spare);
    sti_reader_close(view->reader);
}

/* ---- reading ---------------------------------------------------------------------- */

int
sti_view_begin(struct sti_view *view, struct sti_aio **ret_aio, stk_error *err)
{
    int rc = sti_engine_aio_open(view->engine, ret_aio, err);

    if (rc == 0)
        sti_reader_set_aio(view->reader, *ret_aio);
    return rc;
}

void
sti_view_end(struct sti_view *view, struct sti_aio *aio)
{
    sti_reader_set_aio(view->reader, NULL);
    sti_aio_close(aio);
}

static int
read_wants(struct sti_view *view, const struct sti_wants *wants, stk_error *err)
{
    struct sti_aio *aio;
    int rc = sti_view_begin(view, &aio, err);

    if (rc < 0)
        return rc;
    rc = sti_reader_read(view->reader, wants->list, wants->n, err);
    sti_view_end(view, aio);
    return rc;
}

int
sti_view_load(struct sti_view *view, const stk_load *loads, uint32_t n, stk_error *err)
{
    struct sti_wants wants = {0};
    int rc = 0;

    for (uint32_t at = 0; rc == 0 && at < n; at++)
        rc = sti_wants_add(&wants, view, &loads[at], err);
    if (rc == 0)
        rc = read_wants(view, &wants, err);
    sti_wants_fini(&wants);
    return rc;
}

int
sti_view_load_item(struct sti_view *view, const struct sti_view_item *item, void *dst,
                   stk_error *err)
{
    const stk_load load = {.dst = dst, .n_bytes = item->n_bytes};
    struct sti_wants wants = {0};
    int rc = sti_wants_add_item(&wants, view, item, &load, err);

    if (rc == 0)
        rc = read_wants(view, &wants, err);
    sti_wants_fini(&wants);
    return rc;
}

int
sti_view_read(struct sti_view *view, uint64_t offset, void *dst, uint64_t n_bytes, stk_error *err)
{
    uint64_t stream_bytes = sti_reader_manifest(view->reader)->layout.stream_bytes;
    struct sti_aio *aio;

    if (offset > stream_bytes || n_bytes > stream_bytes - offset)
        return sti_error_set(err, -ERANGE, "the stream has %" PRIu64 " bytes", stream_bytes);
    int rc = sti_view_begin(view, &aio, err);
    if (rc < 0)
        return rc;
    rc = sti_reader_read_stream(view->reader, offset, n_bytes, dst, err);
    sti_view_end(view, aio);
    return rc;
}

int
sti_view_verify(struct sti_view *view, stk_progress_fn progress, void *context, stk_error *err)
{
    struct sti_aio *aio;
    int rc = sti_view_begin(view, &aio, err);

    if (rc < 0)
        return rc;
    rc = sti_reader_verify(view->reader, progress, context, err);
    sti_view_end(view, aio);
    return rc;
}
