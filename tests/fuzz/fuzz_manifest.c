/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests and safetensors headers. The first byte says which; a manifest gets the CRC
 * that it needs to be looked at. Beside not crashing: what is accepted is consistent, and
 * what is refused is refused as damaged or of another version, with words.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "ckpt/manifest.h"
#include "fuzz.h"

#define PREFIX "{\"crc32c\":\""
#define COVERED_AT (sizeof(PREFIX) - 1 + 8)

/* Tensors cover the data, in order, each as large as its shape says. */
static void
check_layout(const struct sti_layout *layout)
{
    uint64_t at = layout->header_bytes;

    for (uint32_t idx = 0; idx < layout->n_tensors; idx++) {
        const struct sti_layout_tensor *tensor = &layout->tensors[idx];
        uint64_t n;

        must(sti_dtype_bytes(tensor->dtype, tensor->shape, tensor->dims, &n) == 0);
        must(n == tensor->n_bytes && tensor->offset == at);
        at += n;
        must(strlen(tensor->name) < SIZE_MAX);
    }
    must(at == layout->stream_bytes);
}

static void
check_manifest(const struct sti_manifest *manifest)
{
    uint64_t sum = 0;

    check_layout(&manifest->layout);
    must(sti_name_is_id(manifest->id) && manifest->world > 0);
    must(manifest->chunk_bytes >= STI_CHUNK_MIN_BYTES);
    for (uint32_t at = 0; at < manifest->n_parts; at++) {
        const struct sti_part *part = &manifest->parts[at];
        uint64_t n_bytes = 0;

        must(part->root < manifest->n_roots && part->writer <= manifest->world);
        must(manifest->roots[part->root][0] == '/' ||
             strcmp(manifest->roots[part->root], ".") == 0);
        for (uint32_t idx = 0; idx < part->n_extents; idx++)
            n_bytes += part->extents[idx].n_bytes;
        must(n_bytes == part->n_bytes);
        must((uint64_t)part->n_chunks * manifest->chunk_bytes >= n_bytes);
        for (uint32_t idx = 0; idx < part->n_chunks; idx++)
            sum += part->crcs[idx];
    }
    must(sum <= UINT64_MAX / 2);
}

/* Owners are groups, and groups are of writers. */
static void
check_ballot(const struct sti_manifest *ballot)
{
    check_manifest(ballot);
    for (uint32_t idx = 0; idx < ballot->layout.n_tensors; idx++) {
        uint32_t owner = ballot->layout.tensors[idx].owner;

        must(owner < ballot->n_groups || owner == STI_LAYOUT_SHARED || owner == STI_LAYOUT_OWN);
    }
    for (uint32_t at = 0; at < ballot->n_groups; at++)
        for (uint32_t idx = 0; idx < ballot->groups[at].n_writers; idx++)
            must(ballot->groups[at].writers[idx] < ballot->world);
}

static void
check_refused(int rc, const stk_error *err)
{
    must(rc == STK_E_CORRUPT || rc == STK_E_VERSION);
    must(err->code == rc && err->message[0] != '\0');
}

static void
try_manifest(const uint8_t *bytes, size_t n_bytes)
{
    char *text = malloc(n_bytes + COVERED_AT + 1);
    struct sti_manifest manifest;
    stk_error err;

    must(text != NULL);
    memcpy(text + COVERED_AT, bytes, n_bytes);
    (void)snprintf(text, COVERED_AT + 1, PREFIX "%08x", sti_crc32c(0, bytes, n_bytes));
    if (n_bytes > 0)
        text[COVERED_AT] = (char)bytes[0]; /* where the terminator was put */
    int rc = sti_manifest_decode(&manifest, text, n_bytes + COVERED_AT, &err);
    if (rc == 0)
        check_manifest(&manifest);
    else
        check_refused(rc, &err);
    if (rc == 0)
        sti_manifest_fini(&manifest);
    rc = sti_ballot_decode(&manifest, text, n_bytes + COVERED_AT, &err);
    if (rc == 0)
        check_ballot(&manifest);
    else
        check_refused(rc, &err);
    if (rc == 0)
        sti_manifest_fini(&manifest);
    free(text);
}

static void
try_header(const uint8_t *bytes, size_t n_bytes)
{
    struct sti_layout layout;
    stk_error err;
    int rc = sti_layout_parse(&layout, (const char *)bytes, n_bytes, n_bytes + 8 + 96, &err);

    if (rc == 0)
        check_layout(&layout);
    else
        check_refused(rc, &err);
    if (rc == 0)
        sti_layout_fini(&layout);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    if (n_bytes == 0)
        return 0;
    if (bytes[0] == 'm')
        try_manifest(bytes + 1, n_bytes - 1);
    else
        try_header(bytes + 1, n_bytes - 1);
    return 0;
}
