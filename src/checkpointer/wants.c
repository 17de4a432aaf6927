/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From boxes of tensors, as a program knows them, to boxes of the stream's tensors: of one that
 * was saved in shards one for each shard that the box meets. Values only; one thread.
 */
#include "checkpointer/wants.h"

#include <errno.h>
#include <inttypes.h>

#include "base/error.h"
#include "base/mem.h"

static struct sti_want *
add_want(struct sti_wants *wants)
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
            struct sti_wants *wants)
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

int
sti_wants_add_item(struct sti_wants *wants, const struct sti_view *view,
                   const struct sti_view_item *item, const stk_load *load, stk_error *err)
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

int
sti_wants_add(struct sti_wants *wants, const struct sti_view *view, const stk_load *load,
              stk_error *err)
{
    const struct sti_view_item *item =
        load->name ? sti_contents_tensor(&view->contents, load->name) : NULL;

    return item ? sti_wants_add_item(wants, view, item, load, err)
                : sti_error_set(err, -ENOENT, "there is no tensor '%.150s'",
                                load->name ? load->name : "(NULL)");
}

void
sti_wants_fini(struct sti_wants *wants)
{
    sti_mem_free(wants->list);
    *wants = (struct sti_wants){0};
}
