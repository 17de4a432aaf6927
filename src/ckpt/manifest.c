/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoding and decoding manifests. The CRC stands in front, at a fixed place, and covers
 * every byte behind it. A decoded manifest is consistent: extents cover the stream
 * exactly once, each part has as many CRCs as chunks, the tensors cover the data. Values
 * only; one thread.
 */
#include "ckpt/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/mem.h"

#define PREFIX "{\"crc32c\":\""
#define PREFIX_BYTES (sizeof(PREFIX) - 1)
#define CRC_DIGITS STI_MANIFEST_CRC_BYTES
#define COVERED_AT (PREFIX_BYTES + CRC_DIGITS)

/* What the bytes say that they are. */
static const char *const kinds[] = {"stoker-checkpoint", "stoker-ballot"};

/* ---- encoding ---------------------------------------------------------------------- */

static void
append_crc(struct sti_text *text, uint32_t crc)
{
    static const char digits[] = "0123456789abcdef";
    char hex[CRC_DIGITS];

    for (uint32_t at = 0; at < CRC_DIGITS; at++)
        hex[at] = digits[crc >> (28 - 4 * at) & 15];
    sti_text_append(text, hex, CRC_DIGITS);
}

static void
encode_part(const struct sti_part *part, int version, struct sti_text *text)
{
    sti_text_print(text, "{\"writer\":%" PRIu32 ",\"root\":%" PRIu32 ",", part->writer, part->root);
    if (version > 1)
        sti_text_print(text, "\"number\":%" PRIu32 ",", part->number);
    sti_text_print(text, "\"bytes\":%" PRIu64 ",\"extents\":[", part->n_bytes);
    for (uint32_t at = 0; at < part->n_extents; at++)
        sti_text_print(text, "%s[%" PRIu64 ",%" PRIu64 "]", at > 0 ? "," : "",
                       part->extents[at].offset, part->extents[at].n_bytes);
    sti_text_print(text, "],\"crc32c\":\"");
    for (uint32_t at = 0; at < part->n_chunks; at++)
        append_crc(text, part->crcs[at]);
    sti_text_print(text, "\"}");
}

/* The header's JSON without its padding. */
static void
encode_header(const struct sti_layout *layout, struct sti_text *text)
{
    uint64_t end = layout->header_bytes;

    while (end > 8 && layout->header[end - 1] == ' ')
        end--;
    sti_text_append(text, layout->header + 8, end - 8);
}

static void
append_counts(struct sti_text *text, const char *name, const uint64_t *counts, uint32_t n)
{
    sti_text_print(text, ",\"%s\":[", name);
    for (uint32_t at = 0; at < n; at++)
        sti_text_print(text, "%s%" PRIu64, at > 0 ? "," : "", counts[at]);
    sti_text_append(text, "]", 1);
}

static void
encode_wholes(const struct sti_layout *layout, struct sti_text *text)
{
    bool is_first = true;

    sti_text_print(text, "\"shards\":{");
    for (uint32_t idx = 0; idx < layout->n_tensors; idx++) {
        const struct sti_layout_tensor *tensor = &layout->tensors[idx];

        if (!tensor->whole.name)
            continue;
        sti_text_append(text, ",\n", is_first ? 0 : 2);
        sti_text_append_json(text, tensor->name);
        sti_text_print(text, ":{\"of\":");
        sti_text_append_json(text, tensor->whole.name);
        append_counts(text, "shape", tensor->whole.shape, tensor->dims);
        append_counts(text, "start", tensor->whole.start, tensor->dims);
        sti_text_append(text, "}", 1);
        is_first = false;
    }
    sti_text_print(text, "},\n");
}

static bool
has_wholes(const struct sti_layout *layout)
{
    for (uint32_t idx = 0; idx < layout->n_tensors; idx++)
        if (layout->tensors[idx].whole.name)
            return true;
    return false;
}

/* As the parts of version 1 are. */
static bool
are_named_by_roots(const struct sti_manifest *manifest)
{
    for (uint32_t at = 0; at < manifest->n_parts; at++)
        if (manifest->parts[at].number != manifest->parts[at].root)
            return false;
    return true;
}

static void
encode_groups(const struct sti_manifest *ballot, struct sti_text *text)
{
    sti_text_print(text, "\"groups\":[");
    for (uint32_t at = 0; at < ballot->n_groups; at++) {
        sti_text_print(text, at > 0 ? ",[" : "[");
        for (uint32_t idx = 0; idx < ballot->groups[at].n_writers; idx++)
            sti_text_print(text, "%s%" PRIu32, idx > 0 ? "," : "", ballot->groups[at].writers[idx]);
        sti_text_append(text, "]", 1);
    }
    sti_text_print(text, "],\n\"owners\":[");
    for (uint32_t idx = 0; idx < ballot->layout.n_tensors; idx++)
        sti_text_print(text, "%s%" PRIu32, idx > 0 ? "," : "", ballot->layout.tensors[idx].owner);
    sti_text_print(text, "],\n");
    if (!ballot->sums)
        return;
    sti_text_print(text, "\"sums\":[");
    for (uint32_t idx = 0; idx < ballot->layout.n_tensors; idx++)
        sti_text_print(text, "%s%" PRIu32, idx > 0 ? "," : "", ballot->sums[idx]);
    sti_text_print(text, "],\n");
}

static void
encode(const struct sti_manifest *manifest, bool is_ballot, struct sti_text *text)
{
    size_t start = text->n_bytes;
    bool has_shards = has_wholes(&manifest->layout);
    bool is_plain = manifest->world == 1 && !has_shards && are_named_by_roots(manifest);
    int version = is_plain ? 1 : STI_MANIFEST_VERSION;

    sti_text_print(text, PREFIX "00000000\",\n\"format\":\"%s\",\"version\":%d,", kinds[is_ballot],
                   version);
    sti_text_print(text,
                   "\"step\":%" PRIu64 ",\"id\":\"%s\",\"world\":%" PRIu32
                   ",\"created_ns\":%" PRIu64 ",\n",
                   manifest->step, manifest->id, manifest->world, manifest->created_ns);
    sti_text_print(text,
                   "\"stream_bytes\":%" PRIu64 ",\"header_bytes\":%" PRIu64
                   ",\"chunk_bytes\":%" PRIu32 ",\n\"roots\":[",
                   manifest->layout.stream_bytes, manifest->layout.header_bytes,
                   manifest->chunk_bytes);
    for (uint32_t at = 0; at < manifest->n_roots; at++) {
        sti_text_append(text, ",", at > 0 ? 1 : 0);
        sti_text_append_json(text, manifest->roots[at]);
    }
    sti_text_print(text, "],\n\"parts\":[");
    for (uint32_t at = 0; at < manifest->n_parts; at++) {
        sti_text_append(text, ",\n", at > 0 ? 2 : 0);
        encode_part(&manifest->parts[at], version, text);
    }
    sti_text_print(text, "],\n");
    if (has_shards)
        encode_wholes(&manifest->layout, text);
    if (is_ballot)
        encode_groups(manifest, text);
    sti_text_print(text, "\"header\":");
    encode_header(&manifest->layout, text);
    sti_text_print(text, "}\n");
    if (text->is_failed)
        return;
    struct sti_text crc = {.bytes = text->bytes + start + PREFIX_BYTES, .capacity = CRC_DIGITS};
    append_crc(&crc,
               sti_crc32c(0, text->bytes + start + COVERED_AT, text->n_bytes - start - COVERED_AT));
}

void
sti_manifest_encode(const struct sti_manifest *manifest, struct sti_text *text)
{
    encode(manifest, false, text);
}

void
sti_ballot_encode(const struct sti_manifest *ballot, struct sti_text *text)
{
    encode(ballot, true, text);
}

/* ---- decoding ---------------------------------------------------------------------- */

static int
corrupt(stk_error *err, const char *what)
{
    return sti_error_set(err, STK_E_CORRUPT, "the manifest is damaged: %s", what);
}

static bool
parse_crc(const char *digits, uint32_t *ret_crc)
{
    uint32_t crc = 0;

    for (uint32_t at = 0; at < CRC_DIGITS; at++) {
        char digit = digits[at];

        if (digit >= '0' && digit <= '9')
            crc = crc << 4 | (uint32_t)(digit - '0');
        else if (digit >= 'a' && digit <= 'f')
            crc = crc << 4 | (uint32_t)(digit - 'a' + 10);
        else
            return false;
    }
    *ret_crc = crc;
    return true;
}

static int
check_crc(const char *bytes, uint64_t n_bytes, stk_error *err)
{
    uint32_t crc;

    if (n_bytes <= COVERED_AT || memcmp(bytes, PREFIX, PREFIX_BYTES) != 0 ||
        !parse_crc(bytes + PREFIX_BYTES, &crc))
        return corrupt(err, "it does not begin with its CRC");
    if (sti_crc32c(0, bytes + COVERED_AT, n_bytes - COVERED_AT) != crc)
        return corrupt(err, "its CRC does not match");
    return 0;
}

static int
get_u64(const json_t *object, const char *key, uint64_t most, uint64_t *ret, stk_error *err)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > most)
        return sti_error_set(err, STK_E_CORRUPT,
                             "the manifest is damaged: %s is missing or out of range", key);
    *ret = (uint64_t)json_integer_value(value);
    return 0;
}

static int
get_u32(const json_t *object, const char *key, uint32_t most, uint32_t *ret, stk_error *err)
{
    uint64_t value = 0;
    int rc = get_u64(object, key, most, &value, err);

    if (rc == 0)
        *ret = (uint32_t)value;
    return rc;
}

/* What the variable parts take: counted first, so that there is one allocation. */
struct room {
    size_t n_extents;
    size_t n_chunks;
    size_t root_bytes;
    char *texts;
    struct sti_part_extent *extents;
    uint32_t *crcs;
};

static int
measure(const json_t *roots, const json_t *parts, struct room *room, stk_error *err)
{
    if (!json_is_array(roots) || json_array_size(roots) == 0 ||
        json_array_size(roots) > STI_ROOTS_MAX || !json_is_array(parts) ||
        json_array_size(parts) > UINT32_MAX)
        return corrupt(err, "no roots or parts");
    for (size_t at = 0; at < json_array_size(roots); at++) {
        const char *root = json_string_value(json_array_get(roots, at));

        if (!root || (strcmp(root, ".") != 0 && root[0] != '/'))
            return corrupt(err, "a root is no absolute path");
        room->root_bytes += strlen(root) + 1;
    }
    for (size_t at = 0; at < json_array_size(parts); at++) {
        const json_t *part = json_array_get(parts, at);

        room->n_extents += json_array_size(json_object_get(part, "extents"));
        room->n_chunks += json_string_length(json_object_get(part, "crc32c")) / CRC_DIGITS;
    }
    return 0;
}

static int
take_memory(struct sti_manifest *manifest, struct room *room, stk_error *err)
{
    size_t extents_bytes = room->n_extents * sizeof(struct sti_part_extent);
    size_t parts_bytes = manifest->n_parts * sizeof(struct sti_part);
    size_t roots_bytes = manifest->n_roots * sizeof(char *);
    size_t crcs_bytes = room->n_chunks * sizeof(uint32_t);
    char *memory = sti_mem_new(
        parts_bytes + extents_bytes + roots_bytes + crcs_bytes + room->root_bytes + 1, 1);

    if (!memory)
        return sti_error_set(err, -ENOMEM, "no memory for the manifest");
    manifest->memory = memory;
    manifest->parts = (struct sti_part *)(void *)memory;
    room->extents = (struct sti_part_extent *)(void *)(memory + parts_bytes);
    manifest->roots = (const char **)(void *)(memory + parts_bytes + extents_bytes);
    room->crcs = (uint32_t *)(void *)(memory + parts_bytes + extents_bytes + roots_bytes);
    room->texts = memory + parts_bytes + extents_bytes + roots_bytes + crcs_bytes;
    return 0;
}

static int
take_extents(struct sti_part *part, const json_t *extents, struct room *room, stk_error *err)
{
    uint64_t sum = 0;

    part->extents = room->extents;
    part->n_extents = (uint32_t)json_array_size(extents);
    room->extents += part->n_extents;
    for (uint32_t at = 0; at < part->n_extents; at++) {
        const json_t *pair = json_array_get(extents, at);
        json_int_t offset = json_integer_value(json_array_get(pair, 0));
        json_int_t n_bytes = json_integer_value(json_array_get(pair, 1));

        if (json_array_size(pair) != 2 || offset < 0 || n_bytes <= 0)
            return corrupt(err, "an extent is no pair of counts");
        part->extents[at] = (struct sti_part_extent){(uint64_t)offset, (uint64_t)n_bytes};
        if (__builtin_add_overflow(sum, (uint64_t)n_bytes, &sum))
            return corrupt(err, "extents overflow");
    }
    return sum == part->n_bytes ? 0 : corrupt(err, "a part's extents are not its bytes");
}

static int
take_crcs(struct sti_part *part, const json_t *text, uint32_t chunk_bytes, struct room *room,
          stk_error *err)
{
    const char *digits = json_string_value(text);
    size_t n_digits = json_string_length(text);
    uint64_t n_chunks = part->n_bytes / chunk_bytes + (part->n_bytes % chunk_bytes ? 1 : 0);

    if (!digits || n_digits % CRC_DIGITS != 0 || n_digits / CRC_DIGITS != n_chunks)
        return corrupt(err, "a part has not one CRC for each chunk");
    part->crcs = room->crcs;
    part->n_chunks = (uint32_t)n_chunks;
    room->crcs += n_chunks;
    for (uint32_t at = 0; at < part->n_chunks; at++)
        if (!parse_crc(digits + (size_t)at * CRC_DIGITS, &part->crcs[at]))
            return corrupt(err, "a CRC is not hexadecimal");
    return 0;
}

/* In version 1 a part was named by its root, and the header was some writer's. */
static int
take_parts(struct sti_manifest *manifest, const json_t *parts, uint64_t version, struct room *room,
           stk_error *err)
{
    uint64_t stream_bytes = manifest->layout.stream_bytes;
    uint32_t last_writer = version > 1 ? manifest->world : manifest->world - 1;

    for (uint32_t at = 0; at < manifest->n_parts; at++) {
        const json_t *value = json_array_get(parts, at);
        struct sti_part *part = &manifest->parts[at];
        int rc = get_u32(value, "writer", last_writer, &part->writer, err);

        if (rc == 0)
            rc = get_u32(value, "root", manifest->n_roots - 1, &part->root, err);
        part->number = part->root;
        if (rc == 0 && version > 1)
            rc = get_u32(value, "number", STI_ROOTS_MAX - 1, &part->number, err);
        if (rc == 0)
            rc = get_u64(value, "bytes", stream_bytes, &part->n_bytes, err);
        if (rc == 0)
            rc = take_extents(part, json_object_get(value, "extents"), room, err);
        if (rc == 0)
            rc =
                take_crcs(part, json_object_get(value, "crc32c"), manifest->chunk_bytes, room, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int
compare_extents(const void *left, const void *right)
{
    const struct sti_part_extent *a = left;
    const struct sti_part_extent *b = right;

    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* All extents of a manifest in the order of the stream. */
static int
sort_extents(const struct sti_manifest *manifest, struct sti_part_extent **ret_all, size_t *ret_n,
             stk_error *err)
{
    size_t n = 0;

    for (uint32_t at = 0; at < manifest->n_parts; at++)
        n += manifest->parts[at].n_extents;
    struct sti_part_extent *all = sti_mem_new(n, sizeof(*all));
    if (!all)
        return sti_error_set(err, -ENOMEM, "no memory for the manifest");
    n = 0;
    for (uint32_t at = 0; at < manifest->n_parts; at++)
        for (uint32_t idx = 0; idx < manifest->parts[at].n_extents; idx++)
            all[n++] = manifest->parts[at].extents[idx];
    if (n > 0)
        qsort(all, n, sizeof(*all), compare_extents);
    *ret_all = all;
    *ret_n = n;
    return 0;
}

int
sti_manifest_check_cover(const struct sti_manifest *manifest, stk_error *err)
{
    struct sti_part_extent *all = NULL;
    size_t n = 0;
    size_t good = 0;
    uint64_t at_byte = 0;
    int rc = sort_extents(manifest, &all, &n, err);

    if (rc < 0)
        return rc;
    while (good < n && all[good].offset == at_byte)
        at_byte += all[good++].n_bytes;
    sti_mem_free(all);
    return good == n && at_byte == manifest->layout.stream_bytes
               ? 0
               : corrupt(err, "the parts do not cover the stream");
}

/* Whether the extents of a ballot lie in its data, none over another. */
static int
check_apart(const struct sti_manifest *ballot, stk_error *err)
{
    struct sti_part_extent *all = NULL;
    size_t n = 0;
    size_t good = 0;
    uint64_t at_byte = ballot->layout.header_bytes;
    int rc = sort_extents(ballot, &all, &n, err);

    if (rc < 0)
        return rc;
    while (good < n && all[good].offset >= at_byte &&
           all[good].n_bytes <= ballot->layout.stream_bytes &&
           all[good].offset <= ballot->layout.stream_bytes - all[good].n_bytes) {
        at_byte = all[good].offset + all[good].n_bytes;
        good++;
    }
    sti_mem_free(all);
    return good == n ? 0 : corrupt(err, "extents overlap or go beyond the data");
}

/* ---- of a ballot ------------------------------------------------------------------- */

static int
take_group(struct sti_group *group, const json_t *list, uint32_t world, uint32_t *writers,
           stk_error *err)
{
    group->writers = writers;
    group->n_writers = (uint32_t)json_array_size(list);
    for (uint32_t at = 0; at < group->n_writers; at++) {
        const json_t *value = json_array_get(list, at);
        json_int_t writer = json_is_integer(value) ? json_integer_value(value) : -1;

        if (writer < 0 || writer >= world || (at > 0 && (uint32_t)writer <= writers[at - 1]))
            return corrupt(err, "a group is no rising list of writers");
        writers[at] = (uint32_t)writer;
    }
    return 0;
}

static int
take_owners(struct sti_manifest *ballot, const json_t *owners, const json_t *sums, uint32_t *room,
            stk_error *err)
{
    struct sti_layout *layout = &ballot->layout;

    if (json_array_size(owners) != layout->n_tensors ||
        (sums && json_array_size(sums) != layout->n_tensors))
        return corrupt(err, "not one owner and sum for each tensor");
    for (uint32_t idx = 0; idx < layout->n_tensors; idx++) {
        const json_t *owner = json_array_get(owners, idx);
        const json_t *sum = json_array_get(sums, idx);
        json_int_t value = json_is_integer(owner) ? json_integer_value(owner) : -1;

        if (value < 0 ||
            (value >= ballot->n_groups && value != STI_LAYOUT_SHARED && value != STI_LAYOUT_OWN))
            return corrupt(err, "an owner is no group");
        layout->tensors[idx].owner = (uint32_t)value;
        if (!sums)
            continue;
        value = json_is_integer(sum) ? json_integer_value(sum) : -1;
        if (value < 0 || value > UINT32_MAX)
            return corrupt(err, "a sum is no 32 bits");
        room[idx] = (uint32_t)value;
    }
    ballot->sums = sums ? room : NULL;
    return 0;
}

static int
take_groups(struct sti_manifest *ballot, const json_t *root, stk_error *err)
{
    const json_t *groups = json_object_get(root, "groups");
    const json_t *sums = json_object_get(root, "sums");
    size_t n_groups = json_array_size(groups);
    size_t n_writers = 0;
    int rc = 0;

    if (!json_is_array(groups) || n_groups >= STI_LAYOUT_OWN)
        return corrupt(err, "no groups");
    for (size_t at = 0; at < n_groups; at++)
        n_writers += json_array_size(json_array_get(groups, at));
    size_t groups_bytes = n_groups * sizeof(struct sti_group);
    char *memory = sti_mem_new(
        groups_bytes + (n_writers + ballot->layout.n_tensors) * sizeof(uint32_t) + 1, 1);
    if (!memory)
        return sti_error_set(err, -ENOMEM, "no memory for a ballot");
    struct sti_group *list = (struct sti_group *)(void *)memory;
    uint32_t *room = (uint32_t *)(void *)(memory + groups_bytes);
    ballot->group_memory = memory;
    ballot->groups = list;
    ballot->n_groups = (uint32_t)n_groups;
    for (size_t at = 0; rc == 0 && at < n_groups; at++) {
        rc = take_group(&list[at], json_array_get(groups, at), ballot->world, room, err);
        room += list[at].n_writers;
    }
    return rc < 0 ? rc : take_owners(ballot, json_object_get(root, "owners"), sums, room, err);
}

/* ---- all of it --------------------------------------------------------------------- */

static int
take_head(struct sti_manifest *manifest, const json_t *root, stk_error *err)
{
    const char *id = json_string_value(json_object_get(root, "id"));
    int rc = get_u64(root, "step", INT64_MAX, &manifest->step, err);

    if (rc == 0)
        rc = get_u64(root, "created_ns", INT64_MAX, &manifest->created_ns, err);
    if (rc == 0)
        rc = get_u32(root, "world", UINT32_MAX - 1, &manifest->world, err);
    if (rc == 0)
        rc = get_u32(root, "chunk_bytes", STI_CHUNK_MAX_BYTES, &manifest->chunk_bytes, err);
    if (rc < 0)
        return rc;
    if (!id || !sti_name_is_id(id) || strlen(id) >= STI_ID_SIZE)
        return corrupt(err, "no id");
    (void)snprintf(manifest->id, sizeof(manifest->id), "%s", id); /* fits */
    if (manifest->world == 0 || manifest->chunk_bytes < STI_CHUNK_MIN_BYTES ||
        manifest->chunk_bytes % STI_CHUNK_MIN_BYTES != 0)
        return corrupt(err, "world or chunk_bytes is out of range");
    return 0;
}

static int
take_layout(struct sti_manifest *manifest, const json_t *root, stk_error *err)
{
    uint64_t stream_bytes = 0;
    uint64_t header_bytes = 0;
    int rc = get_u64(root, "stream_bytes", INT64_MAX, &stream_bytes, err);

    if (rc == 0)
        rc = get_u64(root, "header_bytes", STI_LAYOUT_HEADER_MAX + 8, &header_bytes, err);
    if (rc == 0)
        rc = sti_layout_from_json(&manifest->layout, json_object_get(root, "header"), header_bytes,
                                  stream_bytes, err);
    if (rc == 0)
        rc = sti_layout_take_wholes(&manifest->layout, json_object_get(root, "shards"), err);
    return rc;
}

/* What holds of all together. */
static int
check_whole(const struct sti_manifest *manifest, stk_error *err)
{
    uint32_t unused[2];
    int rc = sti_manifest_check_cover(manifest, err);

    if (rc < 0)
        return rc;
    rc = sti_layout_check_wholes(&manifest->layout, unused, err);
    if (rc == -EINVAL && err)
        err->code = STK_E_CORRUPT;
    return rc == -EINVAL ? STK_E_CORRUPT : rc;
}

static int
take_root(struct sti_manifest *manifest, const json_t *root, uint64_t version, stk_error *err)
{
    const json_t *roots = json_object_get(root, "roots");
    const json_t *parts = json_object_get(root, "parts");
    struct room room = {0};
    int rc = take_head(manifest, root, err);

    if (rc == 0)
        rc = measure(roots, parts, &room, err);
    if (rc == 0)
        rc = take_layout(manifest, root, err);
    if (rc < 0)
        return rc;
    manifest->n_roots = (uint32_t)json_array_size(roots);
    manifest->n_parts = (uint32_t)json_array_size(parts);
    rc = take_memory(manifest, &room, err);
    if (rc < 0)
        return rc;
    for (uint32_t at = 0; at < manifest->n_roots; at++) {
        const char *path = json_string_value(json_array_get(roots, at));

        if (!path || !room.texts)
            return corrupt(err, "a root is no string");
        size_t n_bytes = strlen(path) + 1;
        memcpy(room.texts, path, n_bytes);
        manifest->roots[at] = room.texts;
        room.texts += n_bytes;
    }
    return take_parts(manifest, parts, version, &room, err);
}

static int
decode(struct sti_manifest *manifest, bool is_ballot, const char *bytes, uint64_t n_bytes,
       stk_error *err)
{
    json_error_t what;
    uint64_t version = 0;

    *manifest = (struct sti_manifest){0};
    int rc = check_crc(bytes, n_bytes, err);
    if (rc < 0)
        return rc;
    json_t *root = json_loadb(bytes, n_bytes, JSON_REJECT_DUPLICATES, &what);
    if (!root)
        return corrupt(err, what.text);
    const char *kind = json_string_value(json_object_get(root, "format"));
    if (is_ballot && (!kind || strcmp(kind, kinds[true]) != 0))
        rc = corrupt(err, "it is no ballot");
    if (rc == 0)
        rc = get_u64(root, "version", INT64_MAX, &version, err);
    if (rc == 0 && (version < 1 || version > STI_MANIFEST_VERSION))
        rc = sti_error_set(err, STK_E_VERSION,
                           "the manifest has version %" PRIu64 ", this library reads 1 to %d",
                           version, STI_MANIFEST_VERSION);
    if (rc == 0)
        rc = take_root(manifest, root, version, err);
    if (rc == 0 && is_ballot) {
        rc = take_groups(manifest, root, err);
        if (rc == 0)
            rc = check_apart(manifest, err);
    } else if (rc == 0) {
        rc = check_whole(manifest, err);
    }
    json_decref(root);
    if (rc < 0)
        sti_manifest_fini(manifest);
    return rc;
}

int
sti_manifest_decode(struct sti_manifest *manifest, const char *bytes, uint64_t n_bytes,
                    stk_error *err)
{
    return decode(manifest, false, bytes, n_bytes, err);
}

int
sti_ballot_decode(struct sti_manifest *ballot, const char *bytes, uint64_t n_bytes, stk_error *err)
{
    return decode(ballot, true, bytes, n_bytes, err);
}

void
sti_manifest_fini(struct sti_manifest *manifest)
{
    sti_layout_fini(&manifest->layout);
    sti_mem_free(manifest->memory);
    sti_mem_free(manifest->group_memory);
    *manifest = (struct sti_manifest){0};
}
