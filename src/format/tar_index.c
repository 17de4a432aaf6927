/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From shards to an index. The samples are those of the shards one after the other. Which
 * fields there are is known only when all shards were read: those asked for, or all in
 * order of appearance, but for a label that is a number everywhere. A sample's span
 * reaches from the first to the last of its fields that are loaded, so one read brings
 * them all: they lie beside each other, with no more than headers between them.
 *
 * Invariant: what is put depends on the shards' bytes and order alone, not on which was
 * read first. One thread, the aio's owner.
 */
#include "format/tar_index.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "format/options.h"
#include "format/tar_scan.h"
#include "format/time.h"
#include "io/aio.h"

#define SAMPLES_MAX (UINT64_C(1) << 48)
#define NOT_LOADED UINT32_MAX
#define BLANKS " \t\n"

typedef unsigned long long ull;

/* Shards being put together. */
struct merge {
    struct sti_index_writer *writer;
    struct sti_tar_scan scan;
    const struct sti_tar_place *place;
    stk_error *err;
    struct sti_index_head head;
    char fields[STK_MAX_FIELDS][STI_SHARD_FIELD_SIZE];
    bool are_required; /* they were asked for */
};

/* ---- fields ------------------------------------------------------------------------ */

static uint32_t
find_field(const struct merge *merge, const char *name)
{
    for (uint32_t at = 0; at < merge->head.fields; at++)
        if (strcmp(merge->fields[at], name) == 0)
            return at;
    return NOT_LOADED;
}

/* Takes the fields that the options name; they have been checked. */
static void
take_asked(struct merge *merge, const char *names)
{
    merge->are_required = true;
    for (names += strspn(names, BLANKS); *names; names += strspn(names, BLANKS)) {
        size_t n = strcspn(names, BLANKS);

        memcpy(merge->fields[merge->head.fields++], names, n); /* the NUL is there */
        names += n;
    }
}

/* Whether the label's field is a number wherever there is one, and something else is
 * loaded. */
static bool
is_label_only(const struct merge *merge)
{
    for (uint32_t at = 0; at < merge->scan.n; at++)
        if (merge->scan.shards[at].not_labels > 0)
            return false;
    return merge->head.fields > 1;
}

static int
take_found(struct merge *merge)
{
    for (uint32_t at = 0; at < merge->scan.n; at++) {
        const struct sti_shard *shard = &merge->scan.shards[at];

        for (uint32_t field = 0; field < shard->n_fields; field++) {
            if (find_field(merge, shard->fields[field]) != NOT_LOADED)
                continue;
            if (merge->head.fields == STK_MAX_FIELDS)
                return sti_error_set_path(merge->err, -EINVAL, shard->shown,
                                          "more than %d different fields in all shards; choose "
                                          "some with the option fields",
                                          STK_MAX_FIELDS);
            memcpy(merge->fields[merge->head.fields++], shard->fields[field], STI_SHARD_FIELD_SIZE);
        }
    }
    uint32_t label = find_field(merge, STI_SHARD_LABEL);
    if (label != NOT_LOADED && is_label_only(merge)) {
        merge->head.fields--;
        memmove(merge->fields + label, merge->fields + label + 1,
                (merge->head.fields - label) * sizeof(merge->fields[0]));
    }
    return 0;
}

/* ---- samples ----------------------------------------------------------------------- */

/* A sample as it will be in the index. */
struct sample {
    struct sti_index_span span;
    struct sti_index_range ranges[STK_MAX_FIELDS];
    uint32_t n_found;
};

static int
refuse_sample(const struct merge *merge, const struct sti_shard *shard, uint64_t idx)
{
    const struct sti_shard_sample *sample = &shard->samples[idx];

    for (uint32_t field = 0; merge->are_required && field < merge->head.fields; field++) {
        bool is_there = false;

        for (uint64_t part = 0; part < sti_shard_parts_of(shard, idx); part++) {
            uint32_t own = shard->parts[sample->first_part + part].field;

            is_there |= strcmp(shard->fields[own], merge->fields[field]) == 0;
        }
        if (!is_there)
            return sti_error_set_path(merge->err, -EINVAL, shard->shown,
                                      "key \"%.64s\" at offset %llu has no field \"%s\"",
                                      shard->keys + sample->key_at, (ull)sample->header_offset,
                                      merge->fields[field]);
    }
    return sti_error_set_path(merge->err, -EINVAL, shard->shown,
                              "key \"%.64s\" at offset %llu has nothing but a label",
                              shard->keys + sample->key_at, (ull)sample->header_offset);
}

/* map: which loaded field each of the shard's is. */
static int
make_sample(const struct merge *merge, uint32_t shard_idx, uint64_t idx, const uint32_t *map,
            struct sample *ret_sample)
{
    const struct sti_shard *shard = &merge->scan.shards[shard_idx];
    const struct sti_shard_sample *from = &shard->samples[idx];
    const struct sti_shard_part *parts = &shard->parts[from->first_part];
    uint64_t n_parts = sti_shard_parts_of(shard, idx), end = 0;

    ret_sample->n_found = 0;
    for (uint32_t field = 0; field < merge->head.fields; field++)
        ret_sample->ranges[field] = (struct sti_index_range){.at = STI_INDEX_NO_FIELD};
    for (uint64_t at = 0; at < n_parts; at++) {
        uint32_t field = map[parts[at].field];

        if (field == NOT_LOADED)
            continue;
        if (ret_sample->n_found++ == 0)
            ret_sample->span.offset = parts[at].offset;
        ret_sample->ranges[field].at = parts[at].offset - ret_sample->span.offset;
        ret_sample->ranges[field].n_bytes = parts[at].n_bytes;
        end = parts[at].offset + parts[at].n_bytes;
    }
    if (ret_sample->n_found == 0 ||
        (merge->are_required && ret_sample->n_found < merge->head.fields))
        return refuse_sample(merge, shard, idx);
    ret_sample->span.n_bytes = end - ret_sample->span.offset;
    ret_sample->span.key = shard->keys + from->key_at;
    ret_sample->span.source_idx = shard_idx;
    return 0;
}

static void
put_sample(const struct merge *merge, uint64_t number, const struct sample *sample, int64_t label)
{
    sti_index_put_span(merge->writer, number, &sample->span);
    for (uint32_t field = 0; merge->head.fields > 1 && field < merge->head.fields; field++)
        sti_index_put_range(merge->writer, number, field, &sample->ranges[field]);
    if (merge->head.has_labels)
        sti_index_put_label(merge->writer, number, label);
}

static int
put_samples(struct merge *merge)
{
    uint64_t number = 0;

    for (uint32_t at = 0; at < merge->scan.n; at++) {
        const struct sti_shard *shard = &merge->scan.shards[at];
        uint32_t map[STK_MAX_FIELDS];
        struct sample sample;

        for (uint32_t field = 0; field < shard->n_fields; field++)
            map[field] = find_field(merge, shard->fields[field]);
        for (uint64_t idx = 0; idx < shard->n_samples; idx++) {
            int rc = make_sample(merge, at, idx, map, &sample);

            if (rc < 0)
                return rc;
            put_sample(merge, number++, &sample, shard->samples[idx].label);
        }
    }
    return 0;
}

/* ---- the whole --------------------------------------------------------------------- */

/* Counts everything, so that the index can be allocated. */
static int
count(struct merge *merge)
{
    struct sti_index_head *head = &merge->head;

    for (uint32_t at = 0; at < merge->scan.n; at++) {
        const struct sti_shard *shard = &merge->scan.shards[at];

        head->samples += shard->n_samples;
        head->names_bytes += shard->keys_bytes + strlen(merge->place->shards->names[at]) + 1;
        for (uint64_t idx = 0; idx < shard->n_samples && !head->has_labels; idx++)
            head->has_labels = shard->samples[idx].label >= 0;
    }
    for (uint32_t field = 0; field < head->fields; field++)
        head->names_bytes += strlen(merge->fields[field]) + 1;
    if (head->samples == 0)
        return sti_error_set_path(merge->err, -EINVAL, merge->scan.shards[0].shown,
                                  "the data set is empty: no file in its shards has a name with a "
                                  "dot, as in KEY.jpg");
    if (head->samples > SAMPLES_MAX)
        return sti_error_set_path(merge->err, -E2BIG, merge->place->shown,
                                  "more than 2^48 samples");
    head->sources = merge->scan.n;
    return 0;
}

static void
put_rest(const struct merge *merge)
{
    for (uint32_t field = 0; field < merge->head.fields; field++)
        sti_index_put_field(merge->writer, field, merge->fields[field]);
    sti_index_put_fingerprint(merge->writer);
    for (uint32_t at = 0; at < merge->scan.n; at++) {
        struct sti_index_source source = {.path = merge->place->shards->names[at],
                                          .kind = STI_INDEX_DATA,
                                          .mtime_ns = merge->scan.shards[at].mtime_ns,
                                          .n_bytes = merge->scan.shards[at].file_bytes};

        sti_index_put_source(merge->writer, at, &source);
    }
}

static int
put_all(struct merge *merge)
{
    const char *shown = merge->place->shown;

    if (sti_index_writer_init(merge->writer, &merge->head) < 0)
        return sti_error_set_path(merge->err, -ENOMEM, shown, "no memory for the index");
    int rc = put_samples(merge);
    if (rc < 0)
        return rc;
    put_rest(merge);
    rc = sti_index_seal(merge->writer);
    if (rc < 0)
        return sti_error_set_path(merge->err, rc, shown, "the samples add up to more than 2^63");
    return 0;
}

static int
index_shards(struct merge *merge, struct sti_aio *aio, const stk_dataset_opts *opts)
{
    const struct sti_tar_place *place = merge->place;
    int rc =
        sti_tar_scan(&merge->scan, aio, place->dir_fd, place->shown, place->shards, merge->err);

    if (rc < 0)
        return rc;
    if (merge->scan.is_fresh)
        sti_time_let_pass(aio); /* so that a later change has a later time */
    if (opts->fields)
        take_asked(merge, opts->fields);
    else
        rc = take_found(merge);
    if (rc == 0)
        rc = count(merge);
    if (rc == 0)
        rc = put_all(merge);
    return rc;
}

int
sti_tar_index(struct sti_index_writer *writer, struct sti_aio *aio,
              const struct sti_tar_place *place, const stk_dataset_opts *opts, stk_error *err)
{
    struct merge *merge = sti_mem_new(1, sizeof(*merge));

    memset(writer, 0, sizeof(*writer));
    if (!merge)
        return sti_error_set_path(err, -ENOMEM, place->shown, "no memory to index the shards");
    merge->writer = writer;
    merge->place = place;
    merge->err = err;
    merge->head.format = STK_FORMAT_TAR;
    merge->head.auto_format = STK_FORMAT_TAR;
    merge->head.home_source = STI_INDEX_NO_HOME;
    merge->head.options_hash = sti_options_hash(opts, STK_FORMAT_TAR);
    int rc = index_shards(merge, aio, opts);
    sti_tar_scan_fini(&merge->scan);
    sti_mem_free(merge);
    return rc;
}
