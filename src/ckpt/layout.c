/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a layout: copy what was given, order it, give it offsets, check the names, write
 * the header. Nothing is kept from one save to the next, so a layout is always that of
 * the tensors given. The format is in docs/format/checkpoint.md. Values only; one thread.
 */
#include "ckpt/layout.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "ckpt/text.h"

#define LENGTH_BYTES 8u

void
sti_layout_fini(struct sti_layout *layout)
{
    sti_mem_free(layout->tensors);
    sti_mem_free(layout->by_name);
    sti_mem_free(layout->pairs);
    sti_mem_free(layout->header);
    sti_mem_free(layout->names);
    sti_mem_free(layout->shapes);
    sti_mem_free(layout->wholes);
    *layout = (struct sti_layout){0};
}

const struct sti_layout_tensor *
sti_layout_find(const struct sti_layout *layout, const char *name)
{
    uint32_t low = 0;
    uint32_t high = layout->n_tensors;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct sti_layout_tensor *tensor = &layout->tensors[layout->by_name[middle]];
        int order = strcmp(tensor->name, name);

        if (order == 0)
            return tensor;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static int
compare_places(const void *left, const void *right, void *context)
{
    const struct sti_layout_tensor *tensors = context;
    const uint32_t *a = left;
    const uint32_t *b = right;

    return strcmp(tensors[*a].name, tensors[*b].name);
}

int
sti_layout_sort_names(struct sti_layout *layout)
{
    layout->by_name = sti_mem_new(layout->n_tensors, sizeof(layout->by_name[0]));
    if (!layout->by_name)
        return -ENOMEM;
    for (uint32_t idx = 0; idx < layout->n_tensors; idx++)
        layout->by_name[idx] = idx;
    qsort_r(layout->by_name, layout->n_tensors, sizeof(layout->by_name[0]), compare_places,
            layout->tensors);
    return 0;
}

/* ---- taking what was given --------------------------------------------------------- */

static int
check_whole(const struct sti_layout_input *input, stk_error *err)
{
    const struct sti_layout_whole *whole = &input->whole;

    if (!sti_utf8_is_valid(whole->name))
        return sti_error_set(err, -EINVAL, "a tensor in shards: its name is not UTF-8");
    if (input->dims == 0 || sti_dtype_find(input->dtype)->bits % 8 != 0)
        return sti_error_set(err, -EINVAL,
                             "tensor '%.100s': one element, and elements narrower than a byte, "
                             "have no shards",
                             whole->name);
    for (uint32_t dim = 0; dim < input->dims; dim++)
        if (whole->start[dim] > whole->shape[dim] ||
            input->shape[dim] > whole->shape[dim] - whole->start[dim])
            return sti_error_set(err, -EINVAL,
                                 "tensor '%.100s': a shard goes beyond its global shape in "
                                 "dimension %" PRIu32,
                                 whole->name, dim);
    return 0;
}

static int
check_input(const struct sti_layout_input *input, uint32_t idx, stk_error *err)
{
    if (!input->name || !input->dtype || (input->dims > 0 && !input->shape))
        return sti_error_set(err, -EINVAL, "tensor %" PRIu32 ": name, dtype and shape are required",
                             idx);
    if (!sti_utf8_is_valid(input->name))
        return sti_error_set(err, -EINVAL, "tensor %" PRIu32 ": its name is not UTF-8", idx);
    if (strcmp(input->name, "__metadata__") == 0)
        return sti_error_set(err, -EINVAL,
                             "tensor %" PRIu32 ": the format keeps the name "
                             "__metadata__ for itself",
                             idx);
    if (!sti_dtype_find(input->dtype))
        return sti_error_set(err, -EINVAL, "tensor '%.100s': dtype '%.40s' is none of safetensors",
                             input->name, input->dtype);
    if (input->dims > STI_LAYOUT_DIMS_MAX)
        return sti_error_set(err, -EINVAL, "tensor '%.100s': %" PRIu32 " dimensions, at most %u",
                             input->name, input->dims, STI_LAYOUT_DIMS_MAX);
    return input->whole.name ? check_whole(input, err) : 0;
}

static int
compare_keys(const void *left, const void *right)
{
    const char *const *a = left;
    const char *const *b = right;

    return strcmp(*a, *b);
}

static int
check_keys(const struct sti_layout_pair *pairs, uint32_t n_pairs, stk_error *err)
{
    const char **keys = sti_mem_new(n_pairs, sizeof(*keys));
    int rc = 0;

    if (!keys)
        return sti_error_set(err, -ENOMEM, "no memory for %" PRIu32 " pairs of metadata", n_pairs);
    for (uint32_t at = 0; at < n_pairs; at++)
        keys[at] = pairs[at].key;
    qsort(keys, n_pairs, sizeof(*keys), compare_keys);
    for (uint32_t at = 1; rc == 0 && at < n_pairs; at++)
        if (strcmp(keys[at - 1], keys[at]) == 0)
            rc = sti_error_set(err, -EINVAL, "metadata '%.150s' is given twice", keys[at]);
    sti_mem_free(keys);
    return rc;
}

static int
check_pairs(const struct sti_layout_pair *pairs, uint32_t n_pairs, stk_error *err)
{
    for (uint32_t at = 0; at < n_pairs; at++) {
        if (!pairs[at].key || !pairs[at].value)
            return sti_error_set(err, -EINVAL, "metadata %" PRIu32 ": key and value are required",
                                 at);
        if (!sti_utf8_is_valid(pairs[at].key) || !sti_utf8_is_valid(pairs[at].value))
            return sti_error_set(err, -EINVAL, "metadata %" PRIu32 ": not UTF-8", at);
    }
    return n_pairs > 0 ? check_keys(pairs, n_pairs, err) : 0;
}

static const char *
copy_text(char **names, const char *text)
{
    size_t n_bytes = strlen(text) + 1;
    char *copy = *names;

    memcpy(copy, text, n_bytes);
    *names += n_bytes;
    return copy;
}

static int
allocate(struct sti_layout *layout, const struct sti_layout_input *inputs, uint32_t n_inputs,
         const struct sti_layout_pair *pairs, uint32_t n_pairs)
{
    size_t name_bytes = 0;
    size_t n_shape = 0;

    for (uint32_t idx = 0; idx < n_inputs; idx++) {
        name_bytes += strlen(inputs[idx].name) + 1;
        n_shape += inputs[idx].dims;
        if (!inputs[idx].whole.name)
            continue;
        name_bytes += strlen(inputs[idx].whole.name) + 1;
        n_shape += 2 * (size_t)inputs[idx].dims;
    }
    for (uint32_t at = 0; at < n_pairs; at++)
        name_bytes += strlen(pairs[at].key) + strlen(pairs[at].value) + 2;
    layout->tensors = sti_mem_new(n_inputs, sizeof(layout->tensors[0]));
    layout->pairs = sti_mem_new(n_pairs, sizeof(layout->pairs[0]));
    layout->names = sti_mem_new(name_bytes, 1);
    layout->shapes = sti_mem_new(n_shape, sizeof(layout->shapes[0]));
    return layout->tensors && layout->pairs && layout->names && layout->shapes ? 0 : -ENOMEM;
}

static const uint64_t *
copy_shape(uint64_t **shapes, const uint64_t *shape, uint32_t dims)
{
    uint64_t *copy = *shapes;

    if (dims > 0)
        memcpy(copy, shape, dims * sizeof(*copy));
    *shapes += dims;
    return copy;
}

static int
take_tensor(struct sti_layout_tensor *tensor, const struct sti_layout_input *input, uint32_t idx,
            stk_error *err)
{
    tensor->dtype = sti_dtype_find(input->dtype);
    tensor->dims = input->dims;
    tensor->owner = input->owner;
    tensor->given_idx = idx;
    int rc = sti_dtype_bytes(tensor->dtype, tensor->shape, tensor->dims, &tensor->n_bytes);
    if (rc == -EINVAL)
        return sti_error_set(
            err, rc, "tensor '%.100s': elements of %" PRIu32 " bits do not fill its last byte",
            tensor->name, tensor->dtype->bits);
    if (rc < 0)
        return sti_error_set(err, rc, "tensor '%.100s' has more bytes than 64 bits count",
                             tensor->name);
    return 0;
}

static int
take_inputs(struct sti_layout *layout, const struct sti_layout_input *inputs, uint32_t n_inputs,
            const struct sti_layout_pair *pairs, uint32_t n_pairs, stk_error *err)
{
    int rc = allocate(layout, inputs, n_inputs, pairs, n_pairs);

    if (rc < 0)
        return sti_error_set(err, rc, "no memory for %" PRIu32 " tensors", n_inputs);
    char *names = layout->names;
    uint64_t *shapes = layout->shapes;
    layout->n_tensors = n_inputs;
    layout->n_pairs = n_pairs;
    for (uint32_t idx = 0; rc == 0 && idx < n_inputs; idx++) {
        struct sti_layout_tensor *tensor = &layout->tensors[idx];

        tensor->name = copy_text(&names, inputs[idx].name);
        tensor->shape = copy_shape(&shapes, inputs[idx].shape, inputs[idx].dims);
        if (inputs[idx].whole.name)
            tensor->whole = (struct sti_layout_whole){
                .name = copy_text(&names, inputs[idx].whole.name),
                .shape = copy_shape(&shapes, inputs[idx].whole.shape, inputs[idx].dims),
                .start = copy_shape(&shapes, inputs[idx].whole.start, inputs[idx].dims)};
        rc = take_tensor(tensor, &inputs[idx], idx, err);
    }
    for (uint32_t at = 0; at < n_pairs; at++) {
        layout->pairs[at].key = copy_text(&names, pairs[at].key);
        layout->pairs[at].value = copy_text(&names, pairs[at].value);
    }
    return rc;
}

/* ---- order and names --------------------------------------------------------------- */

/* STI_LAYOUT_SHARED first, STI_LAYOUT_OWN last. */
static uint32_t
owner_rank(const struct sti_layout_tensor *tensor)
{
    return tensor->owner + 1;
}

static int
compare_in_stream(const void *left, const void *right)
{
    const struct sti_layout_tensor *a = left;
    const struct sti_layout_tensor *b = right;

    if (a->dtype->bits != b->dtype->bits)
        return a->dtype->bits > b->dtype->bits ? -1 : 1;
    if (a->owner != b->owner)
        return owner_rank(a) < owner_rank(b) ? -1 : 1;
    return a->given_idx < b->given_idx ? -1 : 1;
}

static int
check_names(struct sti_layout *layout, stk_error *err)
{
    int rc = sti_layout_sort_names(layout);

    if (rc < 0)
        return sti_error_set(err, rc, "no memory for %" PRIu32 " names", layout->n_tensors);
    for (uint32_t at = 1; at < layout->n_tensors; at++) {
        const char *name = layout->tensors[layout->by_name[at]].name;

        if (strcmp(layout->tensors[layout->by_name[at - 1]].name, name) == 0)
            return sti_error_set(err, -EINVAL, "two tensors are named '%.150s'", name);
    }
    return 0;
}

/* ---- the header -------------------------------------------------------------------- */

static void
write_pairs(struct sti_text *text, const struct sti_layout *layout)
{
    sti_text_print(text, "\"__metadata__\":{");
    for (uint32_t at = 0; at < layout->n_pairs; at++) {
        sti_text_append(text, ",", at > 0 ? 1 : 0);
        sti_text_append_json(text, layout->pairs[at].key);
        sti_text_append(text, ":", 1);
        sti_text_append_json(text, layout->pairs[at].value);
    }
    sti_text_append(text, "}", 1);
}

static void
append(struct sti_text *text, const char *piece)
{
    sti_text_append(text, piece, strlen(piece));
}

static void
write_tensor(struct sti_text *text, const struct sti_layout_tensor *tensor, uint64_t offset)
{
    sti_text_append_json(text, tensor->name);
    append(text, ":{\"dtype\":\"");
    append(text, tensor->dtype->name);
    append(text, "\",\"shape\":[");
    for (uint32_t dim = 0; dim < tensor->dims; dim++) {
        append(text, dim > 0 ? "," : "");
        sti_text_append_u64(text, tensor->shape[dim]);
    }
    append(text, "],\"data_offsets\":[");
    sti_text_append_u64(text, offset);
    append(text, ",");
    sti_text_append_u64(text, offset + tensor->n_bytes);
    append(text, "]}");
}

static int
write_header(struct sti_layout *layout, stk_error *err)
{
    static const char blanks[] = "                                                                ";
    struct sti_text text = {0};
    uint64_t length;
    uint64_t offset = 0;

    sti_text_append(&text, "\0\0\0\0\0\0\0\0{", LENGTH_BYTES + 1);
    if (layout->n_pairs > 0)
        write_pairs(&text, layout);
    for (uint32_t idx = 0; idx < layout->n_tensors; idx++) {
        if (idx > 0 || layout->n_pairs > 0)
            sti_text_append(&text, ",", 1);
        write_tensor(&text, &layout->tensors[idx], offset);
        offset += layout->tensors[idx].n_bytes;
    }
    sti_text_append(&text, "}", 1);
    while (!text.is_failed && text.n_bytes % STI_LAYOUT_HEADER_ALIGN != 0) {
        size_t missing = STI_LAYOUT_HEADER_ALIGN - text.n_bytes % STI_LAYOUT_HEADER_ALIGN;

        sti_text_append(&text, blanks, missing < sizeof(blanks) - 1 ? missing : sizeof(blanks) - 1);
    }
    if (text.is_failed || text.n_bytes > STI_LAYOUT_HEADER_MAX) {
        int rc = text.is_failed ? -ENOMEM : -EINVAL;

        sti_text_fini(&text);
        return sti_error_set(err, rc,
                             "the header of %" PRIu32 " tensors cannot be made (at most 100 MiB)",
                             layout->n_tensors);
    }
    length = text.n_bytes - LENGTH_BYTES;
    for (uint32_t at = 0; at < LENGTH_BYTES; at++)
        text.bytes[at] = (char)(length >> (8 * at) & 0xff);
    layout->header = text.bytes;
    layout->header_bytes = text.n_bytes;
    return 0;
}

static int
place_tensors(struct sti_layout *layout, stk_error *err)
{
    uint64_t offset = layout->header_bytes;

    for (uint32_t idx = 0; idx < layout->n_tensors; idx++) {
        layout->tensors[idx].offset = offset;
        if (__builtin_add_overflow(offset, layout->tensors[idx].n_bytes, &offset) ||
            offset > (uint64_t)INT64_MAX)
            return sti_error_set(err, -EOVERFLOW, "the tensors have more bytes than 63 bits count");
    }
    layout->stream_bytes = offset;
    return 0;
}

int
sti_layout_build(struct sti_layout *layout, const struct sti_layout_input *inputs,
                 uint32_t n_inputs, const struct sti_layout_pair *pairs, uint32_t n_pairs,
                 stk_error *err)
{
    int rc = check_pairs(pairs, n_pairs, err);

    *layout = (struct sti_layout){0};
    for (uint32_t idx = 0; rc == 0 && idx < n_inputs; idx++)
        rc = check_input(&inputs[idx], idx, err);
    if (rc < 0)
        return rc;
    rc = take_inputs(layout, inputs, n_inputs, pairs, n_pairs, err);
    if (rc == 0) {
        qsort(layout->tensors, layout->n_tensors, sizeof(layout->tensors[0]), compare_in_stream);
        rc = check_names(layout, err);
    }
    if (rc == 0)
        rc = write_header(layout, err);
    if (rc == 0)
        rc = place_tensors(layout, err);
    if (rc < 0)
        sti_layout_fini(layout);
    return rc;
}

uint32_t
sti_layout_first_behind(const struct sti_layout *layout, uint64_t offset)
{
    uint32_t low = 0;
    uint32_t high = layout->n_tensors;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (layout->tensors[middle].offset + layout->tensors[middle].n_bytes > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}
