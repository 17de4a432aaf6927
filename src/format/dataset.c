/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an open data set says. Invariant: nothing is written after open, so any number of
 * threads read without a lock; a getter touches one entry of the index and, for a path,
 * one name. A view has no entries: its samples are followed to the data set that has
 * them.
 */
#include "format/dataset.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "format/dataset_internal.h"

void
sti_dataset_close(struct sti_dataset *dataset)
{
    if (!dataset)
        return;
    assert(__atomic_load_n(&dataset->n_users, __ATOMIC_RELAXED) == 0 &&
           "views are closed before what they are made of");
    sti_view_free(dataset->view);
    if (dataset->dir_fd >= 0)
        (void)close(dataset->dir_fd); /* nothing was written through it */
    sti_store_release(&dataset->image);
    sti_mem_free(dataset->shown);
    sti_mem_free(dataset->index_path);
    sti_mem_free(dataset);
}

uint64_t
sti_dataset_count(const struct sti_dataset *dataset)
{
    return dataset->index.head.samples;
}

/* ---- down to the data set that has a sample ---------------------------------------- */

/* The child that a sample of a view is of. */
static uint32_t
child_of(const struct sti_view *view, uint64_t sample)
{
    uint32_t low = 0, high = view->n;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (view->first_id[middle] <= sample)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Follows a sample through views; sample becomes what it is in the result. ret_file (or
 * NULL): where that one's files begin among the view's. */
static const struct sti_dataset *
find_base(const struct sti_dataset *dataset, uint64_t *sample, uint32_t *ret_file)
{
    uint32_t file = 0;

    assert(*sample < dataset->index.head.samples);
    while (dataset->view) {
        const struct sti_view *view = dataset->view;
        uint32_t child = child_of(view, *sample);

        if (view->ids)
            *sample = view->ids[*sample];
        else
            *sample += view->first - view->first_id[child];
        file += view->first_file[child];
        dataset = view->children[child];
    }
    if (ret_file)
        *ret_file = file;
    return dataset;
}

/* ---- samples ----------------------------------------------------------------------- */

static int
span_extent(const struct sti_dataset *dataset, uint64_t sample, struct sti_extent *ret_extent)
{
    struct sti_index_span span;
    struct sti_index_source source;
    int rc = sti_index_get_span(&dataset->index, sample, &span);

    if (rc == 0)
        rc = sti_index_get_source(&dataset->index, span.source_idx, &source);
    if (rc < 0)
        return rc;
    *ret_extent = (struct sti_extent){.path = source.path,
                                      .dir_fd = dataset->dir_fd,
                                      .file = span.source_idx,
                                      .offset = span.offset,
                                      .length = span.n_bytes,
                                      .file_bytes = source.n_bytes,
                                      .file_mtime_ns = source.mtime_ns};
    return 0;
}

static int
base_extent(const struct sti_dataset *dataset, uint64_t sample, struct sti_extent *ret_extent)
{
    const struct sti_index_head *head = &dataset->index.head;
    struct sti_index_entry entry;

    if (head->format == STK_FORMAT_TAR)
        return span_extent(dataset, sample, ret_extent);
    *ret_extent = (struct sti_extent){.dir_fd = dataset->dir_fd, .file = STI_EXTENT_WHOLE};
    if (dataset->file_name) {
        ret_extent->path = dataset->file_name;
        ret_extent->file = 0;
        ret_extent->offset = head->data_offset + sample * head->stride_bytes;
        ret_extent->length = head->uniform_bytes;
        ret_extent->file_bytes = dataset->file_bytes;
        ret_extent->file_mtime_ns = dataset->file_mtime_ns;
        return 0;
    }
    int rc = sti_index_get_entry(&dataset->index, sample, &entry);
    if (rc < 0)
        return rc;
    ret_extent->path = entry.path;
    ret_extent->length = entry.n_bytes;
    return 0;
}

int
sti_dataset_extent(const struct sti_dataset *dataset, uint64_t sample,
                   struct sti_extent *ret_extent)
{
    struct sti_extent extent;
    uint32_t first_file;
    const struct sti_dataset *base = find_base(dataset, &sample, &first_file);
    int rc = base_extent(base, sample, &extent);

    if (rc < 0)
        return rc;
    if (extent.file != STI_EXTENT_WHOLE)
        extent.file += first_file;
    *ret_extent = extent;
    return 0;
}

uint64_t
sti_dataset_length(const struct sti_dataset *dataset, uint64_t sample)
{
    struct sti_index_entry entry;
    struct sti_index_span span;

    if (dataset->index.head.uniform_bytes)
        return dataset->index.head.uniform_bytes;
    dataset = find_base(dataset, &sample, NULL);
    if (dataset->index.head.uniform_bytes)
        return dataset->index.head.uniform_bytes;
    if (dataset->index.head.format == STK_FORMAT_TAR)
        return sti_index_get_span(&dataset->index, sample, &span) == 0 ? span.n_bytes : 0;
    if (dataset->file_name) /* its samples have no bytes */
        return 0;
    return sti_index_get_entry(&dataset->index, sample, &entry) == 0 ? entry.n_bytes : 0;
}

int64_t
sti_dataset_label(const struct sti_dataset *dataset, uint64_t sample)
{
    struct sti_index_entry entry;

    dataset = find_base(dataset, &sample, NULL);
    if (dataset->index.head.has_labels)
        return sti_index_get_label(&dataset->index, sample);
    if (dataset->index.head.classes == 0 ||
        sti_index_get_entry(&dataset->index, sample, &entry) < 0)
        return -1;
    return entry.label;
}

const char *
sti_dataset_sample_name(const struct sti_dataset *dataset, uint64_t sample)
{
    struct sti_index_entry entry;
    struct sti_index_span span;

    dataset = find_base(dataset, &sample, NULL);
    if (dataset->index.head.format == STK_FORMAT_TAR)
        return sti_index_get_span(&dataset->index, sample, &span) == 0 ? span.key : "";
    if (dataset->file_name)
        return "";
    return sti_index_get_entry(&dataset->index, sample, &entry) == 0 ? entry.path : "";
}

int
sti_dataset_path(const struct sti_dataset *dataset, uint64_t sample, char *buffer, size_t size)
{
    struct sti_extent extent;

    buffer[0] = '\0';
    dataset = find_base(dataset, &sample, NULL);
    const char *shown = dataset->shown;
    int rc = base_extent(dataset, sample, &extent);
    if (rc < 0)
        return rc;
    size_t n = strlen(shown);
    const char *slash = n > 0 && shown[n - 1] != '/' ? "/" : "";
    int written = snprintf(buffer, size, "%s%s%s", shown, slash, extent.path);
    return written < 0 || (size_t)written >= size ? -ENAMETOOLONG : 0;
}

/* ---- fields ------------------------------------------------------------------------ */

uint32_t
sti_dataset_fields(const struct sti_dataset *dataset)
{
    return dataset->index.head.fields ? dataset->index.head.fields : 1;
}

const char *
sti_dataset_field_name(const struct sti_dataset *dataset, uint32_t field_idx)
{
    const char *name = NULL;

    assert(field_idx < sti_dataset_fields(dataset));
    while (dataset->view)
        dataset = dataset->view->children[0];
    if (dataset->index.head.format == STK_FORMAT_TAR)
        name = sti_index_get_field(&dataset->index, field_idx);
    return name ? name : "data";
}

struct sti_field_range
sti_dataset_field(const struct sti_dataset *dataset, uint64_t sample, uint32_t field_idx)
{
    struct sti_index_range range;

    dataset = find_base(dataset, &sample, NULL);
    if (dataset->index.head.format != STK_FORMAT_TAR)
        return (struct sti_field_range){.at = 0, .n_bytes = sti_dataset_length(dataset, sample)};
    if (sti_index_get_range(&dataset->index, sample, field_idx, &range) < 0)
        return (struct sti_field_range){.at = STI_FIELD_NONE};
    return (struct sti_field_range){.at = range.at, .n_bytes = range.n_bytes};
}

/* ---- the whole --------------------------------------------------------------------- */

int
sti_dataset_dir_fd(const struct sti_dataset *dataset)
{
    return dataset->dir_fd;
}

uint32_t
sti_dataset_files(const struct sti_dataset *dataset)
{
    return dataset->n_files;
}

uint32_t
sti_dataset_parts(const struct sti_dataset *dataset)
{
    return dataset->view ? dataset->view->n : 1;
}

int
sti_dataset_part_extent(const struct sti_dataset *dataset, uint32_t part_idx,
                        struct sti_extent *ret_extent)
{
    return sti_dataset_extent(dataset, dataset->view ? dataset->view->first_id[part_idx] : 0,
                              ret_extent);
}

bool
sti_dataset_is_one_file(const struct sti_dataset *dataset)
{
    return dataset->file_name != NULL;
}

uint64_t
sti_dataset_file_bytes(const struct sti_dataset *dataset)
{
    return dataset->file_bytes;
}

uint64_t
sti_dataset_bytes(const struct sti_dataset *dataset)
{
    return dataset->index.head.n_bytes;
}

uint64_t
sti_dataset_max_bytes(const struct sti_dataset *dataset)
{
    return dataset->index.head.max_bytes;
}

uint64_t
sti_dataset_uniform_bytes(const struct sti_dataset *dataset)
{
    return dataset->index.head.uniform_bytes;
}

uint64_t
sti_dataset_largest(const struct sti_dataset *dataset, uint64_t k)
{
    const struct sti_index_head *head = &dataset->index.head;

    if (k == 0)
        return 0;
    if (k >= head->samples)
        return head->n_bytes;
    if (head->uniform_bytes)
        return k * head->uniform_bytes; /* at most n_bytes */
    for (unsigned step = 0; step < STI_INDEX_LARGEST; step++)
        if (k <= UINT64_C(1) << step)
            return head->largest[step];
    return head->n_bytes;
}

uint64_t
sti_dataset_fingerprint(const struct sti_dataset *dataset)
{
    return dataset->index.head.fingerprint;
}

uint64_t
sti_dataset_identity(const struct sti_dataset *dataset)
{
    return dataset->identity;
}

void
sti_dataset_info(const struct sti_dataset *dataset, stk_dataset_info *ret_info)
{
    const struct sti_index_head *head = &dataset->index.head;

    ret_info->format = head->format;
    ret_info->classes = head->classes;
    ret_info->samples = head->samples;
    ret_info->bytes = head->n_bytes;
    ret_info->max_sample_bytes = head->max_bytes;
    ret_info->record_bytes = head->uniform_bytes;
    ret_info->fingerprint = head->fingerprint;
    memcpy(ret_info->dtype, head->dtype, sizeof(ret_info->dtype));
    ret_info->dims = head->dims;
    ret_info->index_built = dataset->was_built;
    ret_info->index_code = dataset->save_code;
    ret_info->reserved = 0;
    memcpy(ret_info->shape, head->shape, sizeof(ret_info->shape));
    ret_info->fields = sti_dataset_fields(dataset);
    ret_info->files = dataset->n_files;
}

const char *
sti_dataset_class_name(const struct sti_dataset *dataset, uint32_t class_idx)
{
    if (class_idx >= dataset->index.head.classes)
        return NULL;
    while (dataset->view)
        dataset = dataset->view->children[0];
    return sti_index_get_class(&dataset->index, class_idx);
}

const char *
sti_dataset_index_path(const struct sti_dataset *dataset)
{
    return dataset->index_path;
}
