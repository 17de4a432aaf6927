/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints open for reading, exported: argument checks and descriptions. */
#include <stoker/checkpoint.h>

#include <errno.h>
#include <inttypes.h>

#include "api/handles.h"
#include "base/error.h"
#include "base/mem.h"

int
stk_view_open(stk_view **ret_view, stk_ckpt *ckpt, uint64_t step, stk_error *err)
{
    if (!ret_view || !ckpt)
        return sti_error_set(err, -EINVAL, "ret_view and ckpt are required");
    stk_view *view = sti_mem_new(1, sizeof(*view));
    if (!view)
        return sti_error_set(err, -ENOMEM, "no memory for a view");
    int rc = sti_view_open(&view->view, ckpt->checkpointer, step, err);
    if (rc < 0) {
        sti_mem_free(view);
        return rc;
    }
    *ret_view = view;
    return rc;
}

int
stk_view_open_file(stk_view **ret_view, stk_engine *engine, const char *path, stk_error *err)
{
    if (!ret_view || !engine || !path)
        return sti_error_set(err, -EINVAL, "ret_view, engine and path are required");
    stk_view *view = sti_mem_new(1, sizeof(*view));
    if (!view)
        return sti_error_set(err, -ENOMEM, "no memory for a view");
    int rc = sti_view_open_file(&view->view, engine->engine, path, err);
    if (rc < 0) {
        sti_mem_free(view);
        return rc;
    }
    view->is_file = true;
    *ret_view = view;
    return 0;
}

void
stk_view_close(stk_view *view)
{
    if (!view)
        return;
    sti_view_close(&view->view);
    sti_mem_free(view);
}

int
stk_view_get_info(const stk_view *view, stk_view_info *info)
{
    if (!view || !info || info->size != sizeof(*info))
        return -EINVAL;
    const struct sti_manifest *manifest = sti_reader_manifest(view->view.reader);

    *info = (stk_view_info){.size = sizeof(*info),
                            .step = view->is_file ? STK_LATEST : manifest->step,
                            .bytes = manifest->layout.stream_bytes,
                            .header_bytes = manifest->layout.header_bytes,
                            .created_ns = manifest->created_ns,
                            .tensors = view->view.contents.n_tensors,
                            .blobs = view->view.contents.n_blobs,
                            .metadata = manifest->layout.n_pairs,
                            .parts = manifest->n_parts,
                            .world = manifest->world,
                            .chunk_bytes = view->is_file ? 0 : manifest->chunk_bytes,
                            .mended_bytes = sti_reader_mended_bytes(view->view.reader)};
    return 0;
}

static void
describe(const stk_view *view, const struct sti_view_item *item, stk_view_tensor *out)
{
    const struct sti_layout *layout = &sti_reader_manifest(view->view.reader)->layout;

    *out = (stk_view_tensor){.name = item->name,
                             .dtype = item->dtype->name,
                             .shape = item->shape,
                             .n_bytes = item->n_bytes,
                             .offset = item->is_sharded ? STK_LATEST
                                                        : layout->tensors[item->pieces[0]].offset,
                             .dims = item->dims,
                             .rank = item->rank};
}

int
stk_view_tensor_at(const stk_view *view, uint32_t idx, stk_view_tensor *ret_tensor)
{
    if (!view || !ret_tensor)
        return -EINVAL;
    if (idx >= view->view.contents.n_tensors)
        return -ERANGE;
    describe(view, &view->view.contents.items[idx], ret_tensor);
    return 0;
}

int
stk_view_tensor_find(const stk_view *view, const char *name, stk_view_tensor *ret_tensor)
{
    if (!view || !name || !ret_tensor)
        return -EINVAL;
    const struct sti_view_item *item = sti_contents_tensor(&view->view.contents, name);

    if (!item)
        return -ENOENT;
    describe(view, item, ret_tensor);
    return 0;
}

int
stk_view_blob_at(const stk_view *view, uint32_t idx, stk_view_tensor *ret_blob)
{
    if (!view || !ret_blob)
        return -EINVAL;
    const struct sti_contents *contents = &view->view.contents;

    if (idx >= contents->n_blobs)
        return -ERANGE;
    describe(view, &contents->items[contents->n_tensors + idx], ret_blob);
    return 0;
}

int
stk_view_metadata_at(const stk_view *view, uint32_t idx, stk_pair *ret_pair)
{
    if (!view || !ret_pair)
        return -EINVAL;
    const struct sti_layout *layout = &sti_reader_manifest(view->view.reader)->layout;

    if (idx >= layout->n_pairs)
        return -ERANGE;
    *ret_pair = (stk_pair){layout->pairs[idx].key, layout->pairs[idx].value};
    return 0;
}

int
stk_view_load(stk_view *view, const stk_load *loads, uint32_t n, stk_error *err)
{
    if (!view || (n > 0 && !loads))
        return sti_error_set(err, -EINVAL, "view and loads are required");
    return sti_view_load(&view->view, loads, n, err);
}

int
stk_view_load_together(stk_view *view, const stk_load *loads, uint32_t n, stk_error *err)
{
    if (!view)
        return sti_error_set(err, -EINVAL, "view is required");
    return sti_view_load_together(&view->view, loads, n, err);
}

int
stk_view_load_blob_of(stk_view *view, uint32_t rank, const char *name, void *dst, uint64_t capacity,
                      uint64_t *ret_bytes, stk_error *err)
{
    if (!view || !name || !ret_bytes || (capacity > 0 && !dst))
        return sti_error_set(err, -EINVAL, "view, name, dst and ret_bytes are required");
    uint32_t world = sti_reader_manifest(view->view.reader)->world;

    if (rank >= world)
        return sti_error_set(err, -ERANGE,
                             "blob '%.150s': the checkpoint is of %" PRIu32 " ranks, not of rank "
                             "%" PRIu32,
                             name, world, rank);
    const struct sti_view_item *blob = sti_contents_blob(&view->view.contents, rank, name);
    if (!blob)
        return sti_error_set(err, -ENOENT, "there is no blob '%.150s' of rank %" PRIu32, name,
                             rank);
    *ret_bytes = blob->n_bytes;
    if (blob->n_bytes > capacity)
        return sti_error_set(err, -ENOSPC, "blob '%.150s' has %" PRIu64 " bytes", name,
                             blob->n_bytes);
    return sti_view_load_item(&view->view, blob, dst, err);
}

int
stk_view_load_blob(stk_view *view, const char *name, void *dst, uint64_t capacity,
                   uint64_t *ret_bytes, stk_error *err)
{
    uint32_t rank = 0;

    if (view && view->view.rank < sti_reader_manifest(view->view.reader)->world)
        rank = view->view.rank;
    return stk_view_load_blob_of(view, rank, name, dst, capacity, ret_bytes, err);
}

int
stk_view_read(stk_view *view, uint64_t offset, void *dst, uint64_t n_bytes, stk_error *err)
{
    if (!view || (n_bytes > 0 && !dst))
        return sti_error_set(err, -EINVAL, "view and dst are required");
    return sti_view_read(&view->view, offset, dst, n_bytes, err);
}

int
stk_view_verify(stk_view *view, stk_progress_fn progress, void *context, stk_error *err)
{
    return view ? sti_view_verify(&view->view, progress, context, err)
                : sti_error_set(err, -EINVAL, "view is required");
}
