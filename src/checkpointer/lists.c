/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names in the stream: a blob is "stoker.blob.NAME", or of several ranks "stoker.blob.RANK.NAME";
 * a shard is "stoker.shard.START.NAME", START its coordinates joined by hyphens. Several empty ones
 * may begin at one place: such a one is "stoker.shard.START.RANK-PLACE.NAME", and this rank's own
 * whoever else holds it. Names are made in one text first, since it moves as it grows, and pointed
 * at afterwards.
 */
#include "checkpointer/lists.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "checkpointer/checkpointer.h"

/* ---- names ------------------------------------------------------------------------- */

static bool
begins_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static void
end_name(struct sti_text *names, const char *name)
{
    sti_text_append(names, name, strlen(name) + 1);
}

static bool
is_empty(const stk_tensor *tensor)
{
    for (uint32_t dim = 0; dim < tensor->dims; dim++)
        if (tensor->shape[dim] == 0)
            return true;
    return false;
}

static void
name_shard(struct sti_lists *lists, const stk_tensor *tensor, const uint64_t *start)
{
    sti_text_print(&lists->names, "%s", STI_SHARD_PREFIX);
    for (uint32_t dim = 0; dim < tensor->dims; dim++)
        sti_text_print(&lists->names, "%s%" PRIu64, dim > 0 ? "-" : "", start[dim]);
    sti_text_print(&lists->names, ".");
    if (is_empty(tensor))
        sti_text_print(&lists->names, "%" PRIu32 "-%" PRIu32 ".", lists->rank, lists->n);
    end_name(&lists->names, tensor->name);
}

static void
name_blob(struct sti_lists *lists, const char *name)
{
    sti_text_print(&lists->names, "%s", STI_BLOB_PREFIX);
    if (lists->world > 1)
        sti_text_print(&lists->names, "%" PRIu32 ".", lists->rank);
    end_name(&lists->names, name);
}

/* Points at the names, which are in the order of what has them. */
static void
point_at_names(struct sti_lists *lists)
{
    const char *name = lists->names.bytes;

    for (uint32_t at = 0; at < lists->n; at++)
        if (!lists->inputs[at].name) {
            assert(name); /* the text has one for each */
            lists->inputs[at].name = name;
            name += strlen(name) + 1;
        }
}

/* ---- who holds what ---------------------------------------------------------------- */

static int
check_ranks(const struct sti_lists *lists, const stk_tensor *tensor, const stk_holding *holding,
            stk_error *err)
{
    bool is_here = false;

    if (!holding->ranks)
        return sti_error_set(err, -EINVAL, "tensor '%.100s': ranks are counted but not given",
                             tensor->name);
    if (tensor->flags & STK_TENSOR_UNIQUE)
        return sti_error_set(
            err, -EINVAL, "tensor '%.100s': it is held by this rank alone, or by ranks, not both",
            tensor->name);
    for (uint32_t at = 0; at < holding->n_ranks; at++) {
        uint32_t rank = holding->ranks[at];

        if (rank >= lists->world || (at > 0 && rank <= holding->ranks[at - 1]))
            return sti_error_set(err, -EINVAL,
                                 "tensor '%.100s': rank %" PRIu32 " is not below %" PRIu32
                                 ", or not in rising order",
                                 tensor->name, rank, lists->world);
        is_here |= rank == lists->rank;
    }
    if (!is_here)
        return sti_error_set(err, -EINVAL,
                             "tensor '%.100s': this rank, %" PRIu32 ", is not among those that "
                             "hold it",
                             tensor->name, lists->rank);
    return 0;
}

/* The number of a group, a new one where it is. There is room for one more of each tensor. */
static uint32_t
group_of(struct sti_lists *lists, const stk_holding *holding)
{
    for (uint32_t at = 0; at < lists->n_groups; at++)
        if (lists->groups[at].n_writers == holding->n_ranks &&
            memcmp(lists->groups[at].writers, holding->ranks,
                   holding->n_ranks * sizeof(uint32_t)) == 0)
            return at;
    lists->groups[lists->n_groups] =
        (struct sti_group){.writers = holding->ranks, .n_writers = holding->n_ranks};
    return lists->n_groups++;
}

static int
take_owner(struct sti_lists *lists, const stk_tensor *tensor, const stk_holding *holding,
           uint32_t *ret_owner, stk_error *err)
{
    *ret_owner = tensor->flags & STK_TENSOR_UNIQUE ? STI_LAYOUT_OWN : STI_LAYOUT_SHARED;
    if (holding->n_ranks == 0)
        return 0;
    int rc = check_ranks(lists, tensor, holding, err);
    if (rc < 0)
        return rc;
    if (holding->n_ranks == lists->world)
        *ret_owner = STI_LAYOUT_SHARED;
    else
        *ret_owner = holding->n_ranks == 1 ? STI_LAYOUT_OWN : group_of(lists, holding);
    return 0;
}

/* ---- shards ------------------------------------------------------------------------ */

static int
take_shard(struct sti_lists *lists, const stk_tensor *tensor, const stk_holding *holding,
           struct sti_layout_input *input, stk_error *err)
{
    const struct sti_dtype *dtype = tensor->dtype ? sti_dtype_find(tensor->dtype) : NULL;

    if (!holding->start || !tensor->shape || !tensor->name || tensor->dims == 0 ||
        tensor->dims > STI_LAYOUT_DIMS_MAX || (dtype && dtype->bits % 8 != 0))
        return sti_error_set(err, -EINVAL,
                             "tensor '%.100s': a shard has a name, a start, a dimension at least "
                             "and elements of whole bytes",
                             tensor->name ? tensor->name : "(NULL)");
    for (uint32_t dim = 0; dim < tensor->dims; dim++)
        if (holding->start[dim] > holding->global_shape[dim] ||
            tensor->shape[dim] > holding->global_shape[dim] - holding->start[dim])
            return sti_error_set(err, -EINVAL,
                                 "tensor '%.100s': in dimension %" PRIu32 " the shard goes from "
                                 "%" PRIu64 " on for %" PRIu64 ", beyond the tensor's %" PRIu64,
                                 tensor->name, dim, holding->start[dim], tensor->shape[dim],
                                 holding->global_shape[dim]);
    name_shard(lists, tensor, holding->start);
    input->name = NULL; /* pointed at when all names are made */
    if (is_empty(tensor))
        input->owner = STI_LAYOUT_OWN;
    input->whole = (struct sti_layout_whole){
        .name = tensor->name, .shape = holding->global_shape, .start = holding->start};
    return 0;
}

/* ---- tensors and blobs ------------------------------------------------------------- */

static int
check_tensor(const stk_tensor *tensor, uint32_t idx, stk_error *err)
{
    const struct sti_dtype *dtype = tensor->dtype ? sti_dtype_find(tensor->dtype) : NULL;
    uint64_t n_bytes;

    if (tensor->flags & ~(STK_TENSOR_STABLE | STK_TENSOR_UNIQUE))
        return sti_error_set(err, -EINVAL, "tensor %" PRIu32 ": unknown flags", idx);
    if (!tensor->name)
        return sti_error_set(err, -EINVAL, "tensor %" PRIu32 ": a name is required", idx);
    if (begins_with(tensor->name, STI_BLOB_PREFIX) || begins_with(tensor->name, STI_SHARD_PREFIX))
        return sti_error_set(err, -EINVAL,
                             "tensor %" PRIu32 ": names that begin with " STI_BLOB_PREFIX
                             " or " STI_SHARD_PREFIX " are kept for blobs and shards",
                             idx);
    if (tensor->n_bytes > 0 && dtype && (tensor->dims == 0 || tensor->shape) &&
        sti_dtype_bytes(dtype, tensor->shape, tensor->dims, &n_bytes) == 0 &&
        n_bytes != tensor->n_bytes)
        return sti_error_set(
            err, -EINVAL, "tensor '%.100s': n_bytes is %" PRIu64 ", dtype and shape make %" PRIu64,
            tensor->name, tensor->n_bytes, n_bytes);
    return 0;
}

static int
take_tensor(struct sti_lists *lists, const stk_tensor *tensor, const stk_holding *holding,
            stk_error *err)
{
    static const stk_holding by_flags;
    struct sti_layout_input *input = &lists->inputs[lists->n];
    int rc = check_tensor(tensor, lists->n, err);

    if (rc < 0)
        return rc;
    holding = holding ? holding : &by_flags;
    if (holding->reserved != 0)
        return sti_error_set(err, -EINVAL, "tensor '%.100s': its holding's reserved is not 0",
                             tensor->name);
    *input = (struct sti_layout_input){
        .name = tensor->name, .dtype = tensor->dtype, .shape = tensor->shape, .dims = tensor->dims};
    rc = take_owner(lists, tensor, holding, &input->owner, err);
    if (rc == 0 && holding->global_shape)
        rc = take_shard(lists, tensor, holding, input, err);
    lists->tensors[lists->n++] = (struct sti_saver_tensor){
        .data = tensor->data, .is_stable = (tensor->flags & STK_TENSOR_STABLE) != 0};
    return rc;
}

static void
take_blob(struct sti_lists *lists, const stk_blob *blob, uint64_t *room)
{
    *room = blob->n_bytes;
    name_blob(lists, blob->name);
    lists->inputs[lists->n] =
        (struct sti_layout_input){.dtype = "U8", .shape = room, .dims = 1, .owner = STI_LAYOUT_OWN};
    lists->tensors[lists->n++] = (struct sti_saver_tensor){.data = blob->data};
}

static int
take_blobs(struct sti_lists *lists, const stk_save *save, const void *state, size_t n_state,
           stk_error *err)
{
    const stk_blob position = {.name = "loader", .data = state, .n_bytes = n_state};

    for (uint32_t idx = 0; idx < save->n_blobs; idx++) {
        if (!save->blobs[idx].name)
            return sti_error_set(err, -EINVAL, "blob %" PRIu32 ": a name is required", idx);
        take_blob(lists, &save->blobs[idx], &lists->blob_bytes[idx]);
    }
    if (n_state > 0)
        take_blob(lists, &position, &lists->blob_bytes[save->n_blobs]);
    return 0;
}

int
sti_lists_take(struct sti_lists *lists, const stk_save *save, const void *state, size_t n_state,
               stk_error *err)
{
    size_t n = (size_t)save->n_tensors + save->n_blobs + 1;
    int rc = 0;

    if (save->step > (uint64_t)INT64_MAX || (save->flags & ~STK_SAVE_SHARED) != 0)
        return sti_error_set(err, -EINVAL, "step is beyond 2^63 - 1, or flags are not known");
    if (n >= UINT32_MAX)
        return sti_error_set(err, -EINVAL, "more tensors than 32 bits count");
    lists->inputs = sti_mem_new(n, sizeof(lists->inputs[0]));
    lists->tensors = sti_mem_new(n, sizeof(lists->tensors[0]));
    lists->groups = sti_mem_new(save->holdings ? save->n_tensors : 0, sizeof(lists->groups[0]));
    lists->blob_bytes = sti_mem_new((size_t)save->n_blobs + 1, sizeof(lists->blob_bytes[0]));
    lists->pairs = sti_mem_new(save->n_metadata, sizeof(lists->pairs[0]));
    if (!lists->inputs || !lists->tensors || !lists->groups || !lists->blob_bytes || !lists->pairs)
        return sti_error_set(err, -ENOMEM, "no memory for %zu tensors", n);
    for (uint32_t idx = 0; rc == 0 && idx < save->n_tensors; idx++)
        rc = take_tensor(lists, &save->tensors[idx], save->holdings ? &save->holdings[idx] : NULL,
                         err);
    if (rc == 0)
        rc = take_blobs(lists, save, state, n_state, err);
    if (rc < 0)
        return rc;
    if (lists->names.is_failed)
        return sti_error_set(err, -ENOMEM, "no memory for the names of %zu tensors", n);
    point_at_names(lists);
    for (uint32_t idx = 0; idx < save->n_metadata; idx++)
        lists->pairs[idx] =
            (struct sti_layout_pair){save->metadata[idx].key, save->metadata[idx].value};
    return 0;
}

void
sti_lists_fini(struct sti_lists *lists)
{
    sti_mem_free(lists->inputs);
    sti_mem_free(lists->tensors);
    sti_mem_free(lists->groups);
    sti_mem_free(lists->blob_bytes);
    sti_mem_free(lists->pairs);
    sti_text_fini(&lists->names);
}
