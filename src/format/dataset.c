/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an open data set says. Invariant: nothing is written after open, so any number of threads
 * read without a lock; a getter touches one entry of the index and, for a path, one name.
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

int
sti_dataset_extent(const struct sti_dataset *dataset, uint64_t sample,
                   struct sti_extent *ret_extent)
{
    const struct sti_index_head *head = &dataset->index.head;
    struct sti_index_entry entry;

    assert(sample < head->samples);
    if (dataset->file_name) {
        ret_extent->path = dataset->file_name;
        ret_extent->offset = head->data_offset + sample * head->stride_bytes;
        ret_extent->length = head->uniform_bytes;
        return 0;
    }
    int rc = sti_index_get_entry(&dataset->index, sample, &entry);
    if (rc < 0)
        return rc;
    ret_extent->path = entry.path;
    ret_extent->offset = 0;
    ret_extent->length = entry.n_bytes;
    return 0;
}

uint64_t
sti_dataset_length(const struct sti_dataset *dataset, uint64_t sample)
{
    struct sti_index_entry entry;

    assert(sample < dataset->index.head.samples);
    if (dataset->index.head.uniform_bytes)
        return dataset->index.head.uniform_bytes;
    return sti_index_get_entry(&dataset->index, sample, &entry) == 0 ? entry.n_bytes : 0;
}

int64_t
sti_dataset_label(const struct sti_dataset *dataset, uint64_t sample)
{
    struct sti_index_entry entry;

    assert(sample < dataset->index.head.samples);
    if (dataset->index.head.has_labels)
        return sti_index_get_label(&dataset->index, sample);
    if (dataset->index.head.classes == 0 ||
        sti_index_get_entry(&dataset->index, sample, &entry) < 0)
        return -1;
    return entry.label;
}

int
sti_dataset_path(const struct sti_dataset *dataset, uint64_t sample, char *buffer, size_t size)
{
    struct sti_extent extent;
    const char *shown = dataset->shown;

    buffer[0] = '\0';
    int rc = sti_dataset_extent(dataset, sample, &extent);
    if (rc < 0)
        return rc;
    size_t n = strlen(shown);
    const char *slash = n > 0 && shown[n - 1] != '/' ? "/" : "";
    int written = snprintf(buffer, size, "%s%s%s", shown, slash, extent.path);
    return written < 0 || (size_t)written >= size ? -ENAMETOOLONG : 0;
}

int
sti_dataset_dir_fd(const struct sti_dataset *dataset)
{
    return dataset->dir_fd;
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
    memcpy(ret_info->shape, head->shape, sizeof(ret_info->shape));
}

const char *
sti_dataset_class_name(const struct sti_dataset *dataset, uint32_t class_idx)
{
    if (class_idx >= dataset->index.head.classes)
        return NULL;
    return sti_index_get_class(&dataset->index, class_idx);
}

const char *
sti_dataset_index_path(const struct sti_dataset *dataset)
{
    return dataset->index_path;
}
