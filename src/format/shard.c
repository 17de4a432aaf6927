/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grouping as WebDataset does it: files that follow each other and have one key are one
 * sample, and what comes behind the key names the field, in lower case. There a key that
 * comes again later silently begins another sample; here it is an error, since such an
 * archive was packed in the wrong order and its samples would be torn. Keys are looked up
 * in a hash table for that.
 *
 * Invariant: the parts of sample i are those from its first_part to the next one's. One
 * thread.
 */
#include "format/shard.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "format/hash.h"

#define ROOM_MIN 4
#define LABEL_DIGITS 18

typedef unsigned long long ull;

void
sti_shard_fini(struct sti_shard *shard)
{
    sti_mem_free(shard->fields);
    sti_mem_free(shard->keys);
    sti_mem_free(shard->parts);
    sti_mem_free(shard->samples);
    sti_mem_free(shard->slots);
    shard->fields = NULL;
    shard->keys = NULL;
    shard->parts = NULL;
    shard->samples = NULL;
    shard->slots = NULL;
}

static int
no_memory(const struct sti_shard *shard, stk_error *err)
{
    return sti_error_set_path(err, -ENOMEM, shard->shown, "no memory for the samples of the shard");
}

/* Makes room for n elements in an array that doubles. Returns the array, NULL without
 * memory; the old one is good then. */
static void *
grow(void *array, uint64_t *room, uint64_t n, size_t element_bytes)
{
    if (n <= *room)
        return array;
    uint64_t wanted = *room * 2 > ROOM_MIN ? *room * 2 : ROOM_MIN;
    if (wanted < n)
        wanted = n;
    void *grown = sti_mem_resize(array, wanted, element_bytes);
    if (grown)
        *room = wanted;
    return grown;
}

/* ---- keys -------------------------------------------------------------------------- */

static bool
has_key(const struct sti_shard *shard, uint64_t sample, const char *key, size_t key_bytes)
{
    const struct sti_shard_sample *at = &shard->samples[sample];

    return at->key_bytes == key_bytes && memcmp(shard->keys + at->key_at, key, key_bytes) == 0;
}

/* The slot of a key: where it is, or the empty one where it would be. */
static uint64_t *
find_slot(const struct sti_shard *shard, const char *key, size_t key_bytes)
{
    uint64_t at = sti_hash(STI_HASH_START, key, key_bytes) & (shard->n_slots - 1);

    while (shard->slots[at] && !has_key(shard, shard->slots[at] - 1, key, key_bytes))
        at = (at + 1) & (shard->n_slots - 1);
    return &shard->slots[at];
}

/* Keeps the table at most half full. */
static int
grow_slots(struct sti_shard *shard)
{
    if (shard->n_samples * 2 < shard->n_slots)
        return 0;
    uint64_t *old = shard->slots;
    uint64_t n = shard->n_slots ? shard->n_slots * 4 : 64;
    uint64_t *slots = sti_mem_new(n, sizeof(*slots));
    if (!slots)
        return -ENOMEM;
    shard->slots = slots;
    shard->n_slots = n;
    for (uint64_t sample = 0; sample < shard->n_samples; sample++) {
        const struct sti_shard_sample *at = &shard->samples[sample];

        *find_slot(shard, shard->keys + at->key_at, at->key_bytes) = sample + 1;
    }
    sti_mem_free(old);
    return 0;
}

static int
add_sample(struct sti_shard *shard, const struct sti_tar_member *member, size_t key_bytes,
           stk_error *err)
{
    void *samples =
        grow(shard->samples, &shard->samples_room, shard->n_samples + 1, sizeof(*shard->samples));
    if (!samples)
        return no_memory(shard, err);
    shard->samples = samples;
    void *keys = grow(shard->keys, &shard->keys_room, shard->keys_bytes + key_bytes + 1, 1);
    if (!keys)
        return no_memory(shard, err);
    shard->keys = keys;
    if (grow_slots(shard) < 0)
        return no_memory(shard, err);
    uint64_t *slot = find_slot(shard, member->path, key_bytes);
    if (*slot) {
        const struct sti_shard_sample *before = &shard->samples[*slot - 1];

        return sti_error_set_path(err, -EINVAL, shard->shown,
                                  "the files of key \"%.64s\" are not adjacent: one has its header "
                                  "at offset %llu, \"%.64s\" comes at %llu with others between; "
                                  "pack with: tar --sort=name",
                                  shard->keys + before->key_at, (ull)before->header_offset,
                                  member->path, (ull)member->header_offset);
    }
    struct sti_shard_sample *sample = &shard->samples[shard->n_samples];
    *sample = (struct sti_shard_sample){.key_at = shard->keys_bytes,
                                        .key_bytes = (uint32_t)key_bytes,
                                        .first_part = shard->n_parts,
                                        .header_offset = member->header_offset,
                                        .label = -1};
    memcpy(shard->keys + shard->keys_bytes, member->path, key_bytes);
    shard->keys[shard->keys_bytes + key_bytes] = '\0';
    shard->keys_bytes += key_bytes + 1;
    shard->n_samples++;
    *slot = shard->n_samples;
    return 0;
}

/* ---- fields ------------------------------------------------------------------------ */

/* The number of a field, in lower case, added if it is new. */
static int
find_field(struct sti_shard *shard, const char *name, uint32_t *ret_field, stk_error *err)
{
    char lower[STI_SHARD_FIELD_SIZE];
    size_t n = strlen(name);

    if (n >= sizeof(lower))
        return sti_error_set_path(err, -EINVAL, shard->shown,
                                  "a field's name has %llu bytes, 63 are allowed: \"%.64s\"",
                                  (ull)n, name);
    for (size_t i = 0; i <= n; i++)
        lower[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + ('a' - 'A') : name[i]);
    for (uint32_t at = 0; at < shard->n_fields; at++) {
        if (strcmp(shard->fields[at], lower) == 0) {
            *ret_field = at;
            return 0;
        }
    }
    if (shard->n_fields == STK_MAX_FIELDS)
        return sti_error_set_path(err, -EINVAL, shard->shown,
                                  "more than %d different fields, the last one \"%.64s\"; what is "
                                  "behind a file's first dot names its field",
                                  STK_MAX_FIELDS, lower);
    void *fields = grow(shard->fields, &shard->fields_room, shard->n_fields + UINT64_C(1),
                        sizeof(*shard->fields));
    if (!fields)
        return no_memory(shard, err);
    shard->fields = fields;
    memcpy(shard->fields[shard->n_fields], lower, n + 1);
    *ret_field = shard->n_fields++;
    return 0;
}

/* Digits, perhaps with a line's end behind them; -1 for anything else. */
static int64_t
parse_label(const struct sti_tar_member *member)
{
    int64_t value = 0;
    uint64_t n = member->n_bytes;

    if (!member->data)
        return -1;
    while (n > 0 && (member->data[n - 1] == '\n' || member->data[n - 1] == '\r'))
        n--;
    if (n == 0 || n > LABEL_DIGITS)
        return -1;
    for (uint64_t i = 0; i < n; i++) {
        if (member->data[i] < '0' || member->data[i] > '9')
            return -1;
        value = value * 10 + (member->data[i] - '0');
    }
    return value;
}

int
sti_shard_add(struct sti_shard *shard, const struct sti_tar_member *member, stk_error *err)
{
    const char *name = NULL;
    size_t key_bytes = sti_tar_split(member->path, &name);
    uint32_t field = 0;

    if (key_bytes == 0)
        return 0;
    int rc = find_field(shard, name, &field, err);
    if (rc == 0 &&
        (shard->n_samples == 0 || !has_key(shard, shard->n_samples - 1, member->path, key_bytes)))
        rc = add_sample(shard, member, key_bytes, err);
    if (rc < 0)
        return rc;
    assert(shard->fields && shard->samples); /* one of each was found or added */
    struct sti_shard_sample *sample = &shard->samples[shard->n_samples - 1];
    if (sample->field_mask & UINT32_C(1) << field)
        return sti_error_set_path(err, -EINVAL, shard->shown,
                                  "key \"%.64s\" has the field \"%s\" twice: again at offset %llu",
                                  shard->keys + sample->key_at, shard->fields[field],
                                  (ull)member->header_offset);
    void *parts = grow(shard->parts, &shard->parts_room, shard->n_parts + 1, sizeof(*shard->parts));
    if (!parts)
        return no_memory(shard, err);
    shard->parts = parts;
    shard->parts[shard->n_parts++] = (struct sti_shard_part){
        .offset = member->offset, .n_bytes = member->n_bytes, .field = field};
    sample->field_mask |= UINT32_C(1) << field;
    if (strcmp(shard->fields[field], STI_SHARD_LABEL) == 0) {
        sample->label = parse_label(member);
        shard->not_labels += sample->label < 0;
    }
    return 0;
}

uint64_t
sti_shard_parts_of(const struct sti_shard *shard, uint64_t sample)
{
    uint64_t end =
        sample + 1 < shard->n_samples ? shard->samples[sample + 1].first_part : shard->n_parts;

    return end - shard->samples[sample].first_part;
}
