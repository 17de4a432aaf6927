/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One shard's samples: the members of an archive, grouped by their keys. Filled by one
 * thread at a time; nothing in here does I/O.
 */
#ifndef STI_FORMAT_SHARD_H
#define STI_FORMAT_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/engine.h>

#include "format/tar.h"

/* Length of a field's name at most, with its NUL. */
#define STI_SHARD_FIELD_SIZE 64
/* The field that is a label where it is a number. */
#define STI_SHARD_LABEL "cls"

/* A field of a sample: one member. */
struct sti_shard_part {
    uint64_t offset;
    uint64_t n_bytes;
    uint32_t field; /* of the shard's fields */
};

struct sti_shard_sample {
    uint64_t key_at; /* in keys, ended by a NUL */
    uint32_t key_bytes;
    uint32_t field_mask; /* which fields it has */
    uint64_t first_part; /* its parts lie together, in the order of the archive */
    uint64_t header_offset;
    int64_t label; /* -1 without */
};

struct sti_shard {
    const char *shown; /* its path, for errors; borrowed */
    uint64_t file_bytes;
    int64_t mtime_ns;
    char (*fields)[STI_SHARD_FIELD_SIZE]; /* in order of appearance; owned, as all below */
    uint64_t fields_room;
    uint32_t n_fields;
    uint32_t not_labels; /* files of the label's field that are no label */
    char *keys;
    uint64_t keys_bytes;
    uint64_t keys_room;
    struct sti_shard_part *parts;
    uint64_t n_parts;
    uint64_t parts_room;
    struct sti_shard_sample *samples;
    uint64_t n_samples;
    uint64_t samples_room;
    uint64_t *slots; /* hash table over keys: 1 + a sample, 0 empty */
    uint64_t n_slots;
};

/* Frees what a shard owns; all zero is allowed. */
void
sti_shard_fini(struct sti_shard *shard);

/*
 * Adds the next member. Errors: -EINVAL a key whose files are not adjacent, a field
 * twice, a field's name that is too long, more than STK_MAX_FIELDS fields; -ENOMEM.
 */
int
sti_shard_add(struct sti_shard *shard, const struct sti_tar_member *member, stk_error *err);

/* Parts of a sample. */
uint64_t
sti_shard_parts_of(const struct sti_shard *shard, uint64_t sample);

#endif
