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
#include "ckpt/scan.h"

#define READ_SLOTS 8u
#define READ_SLOT_BYTES (8u << 20)

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

/* Of the job's, also where this checkpointer asks nobody. */
static uint32_t
rank_of(const struct sti_checkpointer *checkpointer)
{
    struct sti_peers *peers = sti_engine_peers(checkpointer->engine);

    return peers ? sti_comm_rank(sti_peers_comm(peers)) : 0;
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
    opts.is_buffered |= checkpointer->resolved.is_buffered;
    int rc = step == STK_LATEST ? open_latest(view, scans, n_scans, &opts, err)
                                : open_step(view, &scans[0], step, &opts, err);
    /* What is wrong with the own one is said, unless it is only not there. */
    if (rc < 0 && step != STK_LATEST && n_scans > 1) {
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
    sti_reader_close(view->reader);
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

/* A list of boxes to be read, which grows. */
struct wants {
    struct sti_want *list;
    uint32_t n;
    uint32_t capacity;
};

static struct sti_want *
add_want(struct wants *wants)
{
    if (wants->n == wants->capacity) {
        uint32_t capacity = wants->capacity ? 2 * wants->capacity : 16;
        struct sti_want *grown = sti_mem_resize(wants->list, capacity, sizeof(*grown));

        if (!grown)
            return NULL;
        wants->list = grown;
        wants->capacity = capacity;
    }
    return &wants->list[wants->n++];
}

/* What a box has in common with a shard: from in the shard, to in the box; false: nothing. */
static bool
intersect(const struct sti_layout_tensor *shard, const stk_load *load, uint64_t *from, uint64_t *to,
          uint64_t *count)
{
    for (uint32_t dim = 0; dim < shard->dims; dim++) {
        uint64_t shard_begin = shard->whole.start[dim];
        uint64_t shard_end = shard_begin + shard->shape[dim];
        uint64_t begin = load->start[dim] > shard_begin ? load->start[dim] : shard_begin;
        uint64_t end = load->start[dim] + load->count[dim];

        end = end < shard_end ? end : shard_end;
        if (end <= begin)
            return false;
        from[dim] = begin - shard_begin;
        to[dim] = begin - load->start[dim];
        count[dim] = end - begin;
    }
    return true;
}

static int
take_shards(const struct sti_view *view, const struct sti_view_item *item, const stk_load *load,
            struct wants *wants)
{
    const struct sti_layout *layout = &sti_reader_manifest(view->reader)->layout;
    uint64_t from[STI_LAYOUT_DIMS_MAX];
    uint64_t to[STI_LAYOUT_DIMS_MAX];
    uint64_t count[STI_LAYOUT_DIMS_MAX];
    const struct sti_slice_room room = {.shape = load->count, .start = to};

    for (uint32_t at = 0; at < item->n_pieces; at++) {
        const struct sti_layout_tensor *shard = &layout->tensors[item->pieces[at]];

        if (!intersect(shard, load, from, to, count))
            continue;
        struct sti_want *want = add_want(wants);
        if (!want)
            return -ENOMEM;
        want->dst = load->dst;
        int rc = sti_slice_init_into(&want->slice, shard, from, count, &room);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* How many bytes the box has. */
static int
measure_box(const struct sti_view_item *item, const stk_load *load, uint64_t *ret_bytes,
            stk_error *err)
{
    *ret_bytes = item->n_bytes;
    if (!load->start != !load->count)
        return sti_error_set(err, -EINVAL, "tensor '%.150s': start and count go together",
                             item->name);
    if (!load->start)
        return 0;
    bool is_whole = true;
    uint64_t elements = 1;
    for (uint32_t dim = 0; dim < item->dims; dim++) {
        if (load->start[dim] > item->shape[dim] ||
            load->count[dim] > item->shape[dim] - load->start[dim])
            return sti_error_set(err, -ERANGE, "tensor '%.150s': the box goes beyond it",
                                 item->name);
        is_whole = is_whole && load->count[dim] == item->shape[dim];
        elements *= load->count[dim]; /* no more than the tensor has */
    }
    if (is_whole)
        return 0;
    if (item->dtype->bits % 8 != 0)
        return sti_error_set(err, -EINVAL,
                             "tensor '%.150s': elements of %" PRIu32 " bits are loaded all or none",
                             item->name, item->dtype->bits);
    *ret_bytes = elements * (item->dtype->bits / 8);
    return 0;
}

static int
take_item(const struct sti_view *view, const struct sti_view_item *item, const stk_load *load,
          struct wants *wants, stk_error *err)
{
    static const uint64_t zeros[STI_LAYOUT_DIMS_MAX];
    uint64_t n_bytes;
    int rc = measure_box(item, load, &n_bytes, err);

    if (rc < 0)
        return rc;
    if (n_bytes != load->n_bytes || (n_bytes > 0 && !load->dst))
        return sti_error_set(err, -EINVAL,
                             "tensor '%.150s': it needs %" PRIu64 " bytes, n_bytes is %" PRIu64,
                             item->name, n_bytes, load->n_bytes);
    if (item->is_sharded) {
        stk_load box = *load;

        box.start = load->start ? load->start : zeros;
        box.count = load->count ? load->count : item->shape;
        rc = take_shards(view, item, &box, wants);
    } else {
        struct sti_want *want = add_want(wants);

        if (want)
            want->dst = load->dst;
        rc = want ? sti_slice_init(
                        &want->slice,
                        &sti_reader_manifest(view->reader)->layout.tensors[item->pieces[0]],
                        load->start, load->count)
                  : -ENOMEM;
    }
    return rc < 0 ? sti_error_set(err, rc, "no memory to load tensor '%.150s'", item->name) : 0;
}

static int
read_wants(struct sti_view *view, const struct wants *wants, stk_error *err)
{
    struct sti_aio *aio;
    int rc = begin(view, &aio, err);

    if (rc < 0)
        return rc;
    rc = sti_reader_read(view->reader, wants->list, wants->n, err);
    end(view, aio);
    return rc;
}

int
sti_view_load(struct sti_view *view, const stk_load *loads, uint32_t n, stk_error *err)
{
    struct wants wants = {0};
    int rc = 0;

    for (uint32_t at = 0; rc == 0 && at < n; at++) {
        const char *name = loads[at].name;
        const struct sti_view_item *item = name ? sti_contents_tensor(&view->contents, name) : NULL;

        rc = item ? take_item(view, item, &loads[at], &wants, err)
                  : sti_error_set(err, -ENOENT, "there is no tensor '%.150s'",
                                  name ? name : "(NULL)");
    }
    if (rc == 0)
        rc = read_wants(view, &wants, err);
    sti_mem_free(wants.list);
    return rc;
}

int
sti_view_load_item(struct sti_view *view, const struct sti_view_item *item, void *dst,
                   stk_error *err)
{
    const stk_load load = {.dst = dst, .n_bytes = item->n_bytes};
    struct wants wants = {0};
    int rc = take_item(view, item, &load, &wants, err);

    if (rc == 0)
        rc = read_wants(view, &wants, err);
    sti_mem_free(wants.list);
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
