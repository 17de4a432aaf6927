/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An index of any bytes. Each input is tried as it is and with its checksums made right,
 * because a fuzzer does not guess those. What is accepted must keep its promises: strings
 * end inside the index, paths stay below the data set, ranges lie in the file, sizes fit
 * their sums.
 */
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/index.h"
#include "fuzz.h"

#define MAX_BYTES ((size_t)1 << 20)

static void
must_be_inside(const struct sti_index *index, const char *text)
{
    must(text >= index->names && text < index->names + index->head.names_bytes);
    must(memchr(text, '\0', (size_t)(index->names + index->head.names_bytes - text)) != NULL);
}

static void
use_samples(const struct sti_index *index)
{
    struct sti_index_entry entry;
    uint64_t sum = 0;

    for (uint64_t sample = 0; sample < index->head.samples; sample++) {
        must(sti_index_get_entry(index, sample, &entry) == 0);
        must_be_inside(index, entry.path);
        must(entry.path[0] != '\0' && entry.path[0] != '/' && strlen(entry.path) < PATH_MAX);
        must(strcmp(entry.path, "..") != 0 && strncmp(entry.path, "../", 3) != 0);
        must(strstr(entry.path, "/../") == NULL);
        sum += entry.n_bytes;
    }
    must(sum == index->head.n_bytes);
}

static void
use_spans(const struct sti_index *index)
{
    struct sti_index_span span;
    struct sti_index_source source;
    struct sti_index_range range;

    for (uint32_t i = 0; i < index->head.fields; i++)
        must_be_inside(index, sti_index_get_field(index, i));
    for (uint64_t sample = 0; sample < index->head.samples; sample++) {
        must(sti_index_get_span(index, sample, &span) == 0);
        must_be_inside(index, span.key);
        must(sti_index_get_source(index, span.source_idx, &source) == 0);
        must(span.offset <= source.n_bytes && span.n_bytes <= source.n_bytes - span.offset);
        for (uint32_t i = 0; i < index->head.fields; i++) {
            must(sti_index_get_range(index, sample, i, &range) == 0);
            must(range.at == STI_INDEX_NO_FIELD || range.at + range.n_bytes <= span.n_bytes);
        }
        if (index->head.has_labels)
            (void)sti_index_get_label(index, sample); /* any value is a label */
    }
}

static void
use_range(const struct sti_index *index)
{
    const struct sti_index_head *head = &index->head;
    struct sti_index_source data;

    must(sti_index_get_source(index, 0, &data) == 0 && data.kind == STI_INDEX_DATA);
    must(head->data_offset + (head->samples - 1) * head->stride_bytes + head->uniform_bytes <=
         data.n_bytes);
    for (uint64_t sample = 0; head->has_labels && sample < head->samples; sample++)
        (void)sti_index_get_label(index, sample); /* any value is a label */
}

static void
use(const struct sti_index *index)
{
    struct sti_index_source source;
    int64_t stamp_ns;

    for (uint32_t i = 0; i < index->head.sources; i++) {
        must(sti_index_get_source(index, i, &source) == 0);
        must_be_inside(index, source.path);
    }
    for (uint32_t i = 0; i < index->head.classes; i++)
        must_be_inside(index, sti_index_get_class(index, i));
    (void)sti_index_get_stamp(index, &stamp_ns); /* there may be none */
    if (sti_index_is_one_file(index->head.format))
        use_range(index);
    else if (index->head.format == STK_FORMAT_TAR)
        use_spans(index);
    else
        use_samples(index);
}

static void
try_image(const void *image, size_t n_bytes)
{
    struct sti_index index;
    stk_error err = {.message = ""};
    int rc = sti_index_parse(&index, image, n_bytes, &err);

    if (rc == 0)
        rc = sti_index_verify(&index, &err);
    if (rc == 0) {
        use(&index);
        return;
    }
    must(rc == STK_E_CORRUPT || rc == STK_E_VERSION);
    must(err.code == rc && err.message[0] != '\0');
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    if (n_bytes > MAX_BYTES)
        return 0;
    unsigned char *image = malloc(n_bytes ? n_bytes : 1); /* aligned, and nothing behind it */
    must(image != NULL);
    memcpy(image, bytes, n_bytes);
    try_image(image, n_bytes);
    if (n_bytes >= STI_INDEX_HEAD_BYTES) {
        sti_index_put_checksums(image, n_bytes);
        try_image(image, n_bytes);
    }
    free(image);
    return 0;
}
