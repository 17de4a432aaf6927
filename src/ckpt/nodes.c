/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at what other nodes have, one question after the other. */
#include "ckpt/nodes.h"

#include <errno.h>
#include <inttypes.h>

#include "base/error.h"
#include "base/mem.h"

#define STEPS_MAX 65536u /* of a node's directory, the newest */
#define SIZE_ONLY 8u

static int
run(const struct sti_scan *scan, uint32_t node, struct sti_depot_ask *ask)
{
    ask->peer = scan->nodes->keepers[node];
    ask->aio = scan->aio;
    return sti_depot_run(scan->nodes->depot, ask);
}

static struct sti_depot_ask *
ask_new(enum sti_depot_what what, uint64_t step)
{
    struct sti_depot_ask *ask = sti_mem_new(1, sizeof(*ask));

    if (ask)
        *ask = (struct sti_depot_ask){.what = what, .step = step};
    return ask;
}

int
sti_nodes_steps(const struct sti_scan *scan, uint32_t node, uint64_t **ret_steps, uint32_t *ret_n)
{
    struct sti_depot_ask *ask = ask_new(STI_DEPOT_STEPS, 0);
    uint64_t most = sti_depot_most_bytes(scan->nodes->depot) / 8;
    uint32_t n = most < STEPS_MAX ? (uint32_t)most : STEPS_MAX;
    unsigned char *bytes = sti_mem_new((size_t)n + 1, 8);
    int rc = -ENOMEM;

    if (ask && bytes) {
        ask->into = bytes;
        ask->n_bytes = n * 8;
        rc = run(scan, node, ask);
    }
    uint32_t got = rc == 0 ? ask->got_bytes / 8 : 0;
    uint64_t *steps = rc == 0 ? sti_mem_new(got, sizeof(*steps)) : NULL;
    if (rc == 0 && !steps)
        rc = -ENOMEM;
    for (uint32_t at = 0; rc == 0 && at < got; at++) {
        steps[at] = 0;
        for (int byte = 7; byte >= 0; byte--)
            steps[at] = steps[at] << 8 | bytes[(size_t)at * 8 + (size_t)byte];
    }
    sti_mem_free(bytes);
    sti_mem_free(ask);
    if (rc < 0)
        return rc;
    *ret_steps = steps;
    *ret_n = got;
    return 0;
}

/* Reads a manifest of so many bytes, piece by piece; there is room for a size behind
 * them. */
static int
read_manifest(const struct sti_scan *scan, uint32_t node, struct sti_depot_ask *ask, char *bytes,
              uint64_t n_bytes)
{
    uint64_t most = sti_depot_most_bytes(scan->nodes->depot);
    int rc = 0;

    for (uint64_t at = 0; rc == 0 && at < n_bytes; at += ask->got_bytes) {
        ask->offset = at;
        ask->into = bytes + at;
        ask->n_bytes = (uint32_t)(n_bytes - at < most ? n_bytes - at : most);
        rc = run(scan, node, ask);
        if (rc == 0 && (ask->got_bytes == 0 || ask->file_bytes != n_bytes))
            rc = STK_E_CORRUPT; /* it is not what it was */
    }
    return rc;
}

int
sti_nodes_manifest(const struct sti_scan *scan, uint32_t node, uint64_t step, char **ret_bytes,
                   uint64_t *ret_n_bytes)
{
    struct sti_depot_ask *ask = ask_new(STI_DEPOT_MANIFEST, step);
    unsigned char size[SIZE_ONLY];
    char *bytes = NULL;

    if (!ask)
        return -ENOMEM;
    ask->into = size;
    int rc = run(scan, node, ask);
    uint64_t n_bytes = ask->file_bytes;
    if (rc == 0 && n_bytes >= STI_MANIFEST_MAX_BYTES)
        rc = -EFBIG;
    if (rc == 0) {
        bytes = sti_mem_new(n_bytes + STI_DEPOT_SIZE_BYTES, 1);
        rc = bytes ? read_manifest(scan, node, ask, bytes, n_bytes) : -ENOMEM;
    }
    sti_mem_free(ask);
    if (rc < 0) {
        sti_mem_free(bytes);
        return rc;
    }
    *ret_bytes = bytes;
    *ret_n_bytes = n_bytes;
    return 0;
}

void
sti_nodes_name_part(struct sti_depot_ask *ask, const struct sti_manifest *manifest, uint32_t part)
{
    ask->what = STI_DEPOT_PART;
    ask->step = manifest->step;
    ask->id = manifest->id;
    ask->root = manifest->roots[manifest->parts[part].root];
    ask->writer = manifest->parts[part].writer;
    ask->number = manifest->parts[part].number;
    ask->has_one_part = manifest->n_parts == 1;
}

int
sti_nodes_find_part(const struct sti_scan *scan, const struct sti_manifest *manifest, uint32_t part,
                    uint32_t *node, stk_error *err)
{
    const struct sti_nodes *nodes = scan->nodes;
    struct sti_depot_ask *ask = ask_new(STI_DEPOT_PART, manifest->step);
    unsigned char size[SIZE_ONLY];
    uint32_t lost = UINT32_MAX;
    int lost_by = 0;

    if (!ask)
        return sti_error_set(err, -ENOMEM, "no memory to look for part %" PRIu32, part);
    for (uint32_t tried = 0; tried < nodes->n; tried++) {
        uint32_t at = (*node + tried) % nodes->n;

        *ask = (struct sti_depot_ask){.into = size};
        sti_nodes_name_part(ask, manifest, part);
        int rc = run(scan, at, ask);
        if (rc == 0 && ask->file_bytes == manifest->parts[part].n_bytes) {
            *node = at;
            sti_mem_free(ask);
            return 0;
        }
        if (rc < 0 && rc != -ENOENT && rc != -EINVAL) { /* a root that it does not have */
            lost = nodes->keepers[at];
            lost_by = rc;
        }
    }
    sti_mem_free(ask);
    const char *root = manifest->roots[manifest->parts[part].root];
    if (lost_by == 0)
        return sti_error_set(err, STK_E_CORRUPT,
                             "part %" PRIu32 " of step %" PRIu64 " (rank %" PRIu32
                             " wrote it, root %.100s) is on none of %" PRIu32 " nodes",
                             part, manifest->step, manifest->parts[part].writer, root,
                             nodes->n + 1);
    (void)sti_error_set(
        err, lost_by,
        "part %" PRIu32 " of step %" PRIu64 " (rank %" PRIu32
        " wrote it, root %.80s) is not found, and rank %" PRIu32 "'s node does not answer: %s",
        part, manifest->step, manifest->parts[part].writer, root, lost, sti_error_text(lost_by));
    if (err)
        err->rank = (int)lost;
    return lost_by;
}
