/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a safetensors header that somebody else may have written. Nothing in it is
 * believed: types, sizes and offsets are checked against each other and against the
 * length of the stream before anything is allocated by them. Values only; one thread.
 */
#include "ckpt/layout.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

/* Room that the strings and shapes of a header take. */
struct room {
    size_t name_bytes;
    size_t n_shape;
    uint32_t n_tensors;
    uint32_t n_pairs;
};

static int
corrupt(stk_error *err, const char *name, const char *what)
{
    return sti_error_set(err, STK_E_CORRUPT, "the header's tensor '%.80s': %s", name, what);
}

static int
measure(const json_t *root, struct room *room, stk_error *err)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        const char *pair_key;
        json_t *pair_value;

        if (strcmp(key, "__metadata__") != 0) {
            room->n_tensors++;
            room->name_bytes += strlen(key) + 1;
            room->n_shape += json_array_size(json_object_get(value, "shape"));
            continue;
        }
        json_object_foreach(value, pair_key, pair_value)
        {
            if (!json_is_string(pair_value))
                return sti_error_set(err, STK_E_CORRUPT,
                                     "the header's __metadata__ '%.80s' is no "
                                     "string",
                                     pair_key);
            room->n_pairs++;
            room->name_bytes += strlen(pair_key) + json_string_length(pair_value) + 2;
        }
    }
    return 0;
}

static bool
get_u64(const json_t *value, uint64_t *ret)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *ret = (uint64_t)json_integer_value(value);
    return true;
}

static int
take_shape(struct sti_layout_tensor *tensor, const json_t *shape, uint64_t *shapes, stk_error *err)
{
    if (!json_is_array(shape) || json_array_size(shape) > STI_LAYOUT_DIMS_MAX)
        return corrupt(err, tensor->name, "no shape, or too many dimensions");
    tensor->shape = shapes;
    tensor->dims = (uint32_t)json_array_size(shape);
    for (uint32_t dim = 0; dim < tensor->dims; dim++)
        if (!get_u64(json_array_get(shape, dim), &shapes[dim]))
            return corrupt(err, tensor->name, "a dimension is no count");
    return 0;
}

static int
take_tensor(struct sti_layout_tensor *tensor, const json_t *value, uint64_t *shapes, stk_error *err)
{
    const json_t *offsets = json_object_get(value, "data_offsets");
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    uint64_t n_bytes;
    uint64_t end;

    if (!dtype)
        return corrupt(err, tensor->name, "no dtype");
    tensor->dtype = sti_dtype_find(dtype);
    if (!tensor->dtype)
        return sti_error_set(err, STK_E_CORRUPT,
                             "the header's tensor '%.80s' has the unknown dtype '%.40s'",
                             tensor->name, dtype);
    int rc = take_shape(tensor, json_object_get(value, "shape"), shapes, err);
    if (rc < 0)
        return rc;
    if (json_array_size(offsets) != 2 || !get_u64(json_array_get(offsets, 0), &tensor->offset) ||
        !get_u64(json_array_get(offsets, 1), &end) || end < tensor->offset)
        return corrupt(err, tensor->name, "no pair of data_offsets");
    if (sti_dtype_bytes(tensor->dtype, tensor->shape, tensor->dims, &n_bytes) < 0 ||
        n_bytes != end - tensor->offset)
        return corrupt(err, tensor->name, "its offsets do not fit its shape");
    tensor->n_bytes = n_bytes;
    tensor->owner = STI_LAYOUT_SHARED;
    return 0;
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
take_all(struct sti_layout *layout, const json_t *root, stk_error *err)
{
    char *names = layout->names;
    uint64_t *shapes = layout->shapes;
    const char *key;
    json_t *value;
    int rc = 0;

    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        const char *pair_key;
        json_t *pair_value;

        if (strcmp(key, "__metadata__") != 0) {
            struct sti_layout_tensor *tensor = &layout->tensors[layout->n_tensors];

            tensor->name = copy_text(&names, key);
            tensor->given_idx = layout->n_tensors++;
            rc = take_tensor(tensor, value, shapes, err);
            if (rc < 0)
                return rc;
            shapes += tensor->dims;
            continue;
        }
        json_object_foreach(value, pair_key, pair_value)
        {
            layout->pairs[layout->n_pairs].key = copy_text(&names, pair_key);
            layout->pairs[layout->n_pairs++].value =
                copy_text(&names, json_string_value(pair_value));
        }
    }
    return 0;
}

static int
compare_offsets(const void *left, const void *right)
{
    const struct sti_layout_tensor *a = left;
    const struct sti_layout_tensor *b = right;

    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    if (a->n_bytes != b->n_bytes)
        return a->n_bytes < b->n_bytes ? -1 : 1; /* empty ones lie before what begins there */
    return a->given_idx < b->given_idx ? -1 : 1;
}

static int
check_cover(struct sti_layout *layout, stk_error *err)
{
    uint64_t at = 0;

    qsort(layout->tensors, layout->n_tensors, sizeof(layout->tensors[0]), compare_offsets);
    for (uint32_t idx = 0; idx < layout->n_tensors; idx++) {
        struct sti_layout_tensor *tensor = &layout->tensors[idx];

        if (tensor->offset != at)
            return corrupt(err, tensor->name, "a hole or an overlap before it");
        at += tensor->n_bytes;
        tensor->offset += layout->header_bytes;
    }
    if (layout->stream_bytes - layout->header_bytes != at)
        return sti_error_set(err, STK_E_CORRUPT,
                             "the header describes %" PRIu64 " bytes of data, there are %" PRIu64,
                             at, layout->stream_bytes - layout->header_bytes);
    return 0;
}

static int
parse_root(struct sti_layout *layout, const json_t *root, stk_error *err)
{
    struct room room = {0};
    int rc = measure(root, &room, err);

    if (rc < 0)
        return rc;
    layout->tensors = sti_mem_new(room.n_tensors, sizeof(layout->tensors[0]));
    layout->pairs = sti_mem_new(room.n_pairs, sizeof(layout->pairs[0]));
    layout->names = sti_mem_new(room.name_bytes, 1);
    layout->shapes = sti_mem_new(room.n_shape, sizeof(layout->shapes[0]));
    if (!layout->tensors || !layout->pairs || !layout->names || !layout->shapes)
        return sti_error_set(err, -ENOMEM, "no memory for %" PRIu32 " tensors", room.n_tensors);
    rc = take_all(layout, root, err);
    if (rc == 0)
        rc = check_cover(layout, err);
    if (rc == 0 && sti_layout_sort_names(layout) < 0)
        rc = sti_error_set(err, -ENOMEM, "no memory for %" PRIu32 " names", room.n_tensors);
    return rc;
}

int
sti_layout_from_json(struct sti_layout *layout, const void *object, uint64_t header_bytes,
                     uint64_t stream_bytes, stk_error *err)
{
    *layout = (struct sti_layout){.header_bytes = header_bytes, .stream_bytes = stream_bytes};
    if (!json_is_object((const json_t *)object))
        return sti_error_set(err, STK_E_CORRUPT, "the header is no JSON object");
    if (header_bytes > stream_bytes)
        return sti_error_set(err, STK_E_CORRUPT, "the header is longer than the stream");
    int rc = parse_root(layout, object, err);
    if (rc < 0)
        sti_layout_fini(layout);
    return rc;
}

int
sti_layout_parse(struct sti_layout *layout, const char *json, uint64_t n_bytes,
                 uint64_t stream_bytes, stk_error *err)
{
    json_error_t what;

    *layout = (struct sti_layout){0};
    if (n_bytes > STI_LAYOUT_HEADER_MAX || n_bytes + 8 > stream_bytes)
        return sti_error_set(err, STK_E_CORRUPT,
                             "the header's length %" PRIu64 " is beyond the file or 100 MiB",
                             n_bytes);
    json_t *root = json_loadb(json, n_bytes, JSON_REJECT_DUPLICATES, &what);
    if (!root)
        return sti_error_set(err, STK_E_CORRUPT, "the header is not JSON: %.120s at byte %d",
                             what.text, what.position);
    int rc = sti_layout_from_json(layout, root, n_bytes + 8, stream_bytes, err);
    json_decref(root);
    return rc;
}
