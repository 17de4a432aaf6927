/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views: checkpoints and plain files open for reading. Each call brings an aio for the
 * thread that makes it, so a view may be opened on one thread and read on another.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "checkpointer/checkpointer_internal.h"
#include "ckpt/scan.h"

#define READ_SLOTS 8u
#define READ_SLOT_BYTES (8u << 20)

/* ---- what is in it ----------------------------------------------------------------- */

static bool
is_blob_name(const char *name)
{
    return strncmp(name, STI_BLOB_PREFIX, strlen(STI_BLOB_PREFIX)) == 0;
}

/* Notes the places of tensors and blobs, so that looking at each of many is not walking past
 * all before it. */
static int
sort_out(struct sti_view *view, stk_error *err)
{
    const struct sti_layout *layout = &sti_reader_manifest(view->reader)->layout;
    uint32_t n_blobs = 0;

    view->places = sti_mem_new(layout->n_tensors, sizeof(view->places[0]));
    if (!view->places)
        return sti_error_set(err, -ENOMEM, "no memory for %" PRIu32 " tensors", layout->n_tensors);
    for (uint32_t at = 0; at < layout->n_tensors; at++) {
        if (is_blob_name(layout->tensors[at].name))
            n_blobs++;
        else
            view->places[view->n_tensors++] = at;
    }
    view->n_blobs = n_blobs;
    for (uint32_t at = layout->n_tensors; n_blobs > 0 && at-- > 0;)
        if (is_blob_name(layout->tensors[at].name))
            view->places[view->n_tensors + --n_blobs] = at;
    return 0;
}

const struct sti_layout_tensor *
sti_view_at(const struct sti_view *view, uint32_t idx, bool is_blob)
{
    const struct sti_layout *layout = &sti_reader_manifest(view->reader)->layout;

    if (idx >= sti_view_count(view, is_blob))
        return NULL;
    return &layout->tensors[view->places[is_blob ? view->n_tensors + idx : idx]];
}

uint32_t
sti_view_count(const struct sti_view *view, bool is_blob)
{
    return is_blob ? view->n_blobs : view->n_tensors;
}

/* ---- opening
 *
 *
 * -------------------------------------------------------------------------------------- */

static struct sti_reader_opts
reader_opts(struct sti_engine *engine)
{
    return (struct sti_reader_opts){.slots = READ_SLOTS,
                                    .slot_bytes = READ_SLOT_BYTES,
                                    .is_buffered = sti_engine_is_buffered(engine)};
}

/* A view whose reader is open, with the aio of this call. */
static int
finish_opening(struct sti_view *view, stk_error *err)
{
    int rc = sort_out(view, err);

    if (rc < 0)
        sti_reader_close(view->reader);
    else
        sti_reader_set_aio(view->reader, NULL);
    return rc;
}

int
sti_view_open(struct sti_view *view, struct sti_checkpointer *checkpointer, uint64_t step,
              stk_error *err)
{
    struct sti_reader_opts opts = reader_opts(checkpointer->engine);
    struct sti_manifest manifest;
    uint32_t skipped = 0;

    view->engine = checkpointer->engine;
    opts.is_buffered |= checkpointer->resolved.is_buffered;
    opts.scan.dir_fd = checkpointer->roots[0].dir_fd;
    opts.scan.path = checkpointer->directory;
    int rc = sti_engine_aio_open(view->engine, &opts.scan.aio, err);
    if (rc < 0)
        return rc;
    if (step == STK_LATEST)
        rc = sti_scan_latest(&opts.scan, &manifest, &skipped, err);
    else
        rc = sti_scan_manifest(&opts.scan, step, &manifest, err);
    if (rc == 0)
        rc = sti_reader_open(&view->reader, &manifest, &opts, err);
    if (rc == 0)
        rc = finish_opening(view, err);
    sti_aio_close(opts.scan.aio);
    return rc < 0 ? rc : (int)(skipped < INT32_MAX ? skipped : INT32_MAX);
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
    sti_reader_close(view->reader);
    sti_mem_free(view->places);
}

/* ---- reading
 *
 *
 * ------------------------------------------------------------------------------------------ */

static int
begin(struct sti_view *view, struct sti_aio **ret_aio, stk_error *err)
{
    int rc = sti_engine_aio_open(view->engine, ret_aio, err);

    if (rc == 0)
        sti_reader_set_aio(view->reader, *ret_aio);
    return rc;
}

static void
end(struct sti_view *view, struct sti_aio *aio)
{
    sti_reader_set_aio(view->reader, NULL);
    sti_aio_close(aio);
}

static int
take_load(const struct sti_view *view, const stk_load *load, struct sti_want *want, stk_error *err)
{
    const struct sti_layout_tensor *tensor =
        load->name ? sti_layout_find(&sti_reader_manifest(view->reader)->layout, load->name) : NULL;

    if (!tensor)
        return sti_error_set(err, -ENOENT, "there is no tensor '%.150s'",
                             load->name ? load->name : "(NULL)");
    if (!load->start != !load->count)
        return sti_error_set(err, -EINVAL, "tensor '%.150s': start and count go together",
                             load->name);
    int rc = sti_slice_init(&want->slice, tensor, load->start, load->count);
    if (rc == -ERANGE)
        return sti_error_set(err, rc, "tensor '%.150s': the box goes beyond it", load->name);
    if (rc < 0)
        return sti_error_set(err, rc,
                             "tensor '%.150s': elements of %" PRIu32 " bits are loaded all or none",
                             load->name, tensor->dtype->bits);
    want->dst = load->dst;
    uint64_t n_bytes = sti_slice_bytes(&want->slice);
    if (n_bytes != load->n_bytes || (n_bytes > 0 && !load->dst))
        return sti_error_set(err, -EINVAL,
                             "tensor '%.150s': it needs %" PRIu64 " bytes, n_bytes is %" PRIu64,
                             load->name, n_bytes, load->n_bytes);
    return 0;
}

int
sti_view_load(struct sti_view *view, const stk_load *loads, uint32_t n, stk_error *err)
{
    struct sti_want *wants = sti_mem_new(n, sizeof(*wants));
    struct sti_aio *aio = NULL;
    int rc = 0;

    if (!wants)
        return sti_error_set(err, -ENOMEM, "no memory to load %" PRIu32 " tensors", n);
    for (uint32_t at = 0; rc == 0 && at < n; at++)
        rc = take_load(view, &loads[at], &wants[at], err);
    if (rc == 0)
        rc = begin(view, &aio, err);
    if (rc == 0) {
        rc = sti_reader_read(view->reader, wants, n, err);
        end(view, aio);
    }
    sti_mem_free(wants);
    return rc;
}

int
sti_view_read(struct sti_view *view, uint64_t offset, void *dst, uint64_t n_bytes, stk_error *err)
{
    uint64_t stream_bytes = sti_reader_manifest(view->reader)->layout.stream_bytes;
    struct sti_aio *aio;

    if (offset > stream_bytes || n_bytes > stream_bytes - offset)
        return sti_error_set(err, -ERANGE, "the stream has %" PRIu64 " bytes", stream_bytes);
    int rc = begin(view, &aio, err);
    if (rc < 0)
        return rc;
    rc = sti_reader_read_stream(view->reader, offset, n_bytes, dst, err);
    end(view, aio);
    return rc;
}

int
sti_view_verify(struct sti_view *view, stk_progress_fn progress, void *context, stk_error *err)
{
    struct sti_aio *aio;
    int rc = begin(view, &aio, err);

    if (rc < 0)
        return rc;
    rc = sti_reader_verify(view->reader, progress, context, err);
    end(view, aio);
    return rc;
}
