/* SPDX-License-Identifier: Apache-2.0 */
/* From what a person asked for to what the saver is given: defaults and ranges. Pure. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "checkpointer/checkpointer_internal.h"

#define DEFAULT_SLOT_BYTES (UINT64_C(8) << 20)
#define SLOT_MIN_BYTES (UINT64_C(64) << 10)
#define SLOT_MAX_BYTES (UINT64_C(256) << 20)
#define DEFAULT_SLOTS 8u
#define SLOTS_MAX 1024u
#define DEFAULT_CHUNK_BYTES (1u << 20)
#define DEFAULT_KEEP 2u
#define ROOT_MAX_BYTES 1000u
#define DEFAULT_VOTE_TIMEOUT_MS 300000u

size_t
sti_ckpt_word(const char *list, uint32_t idx, const char **ret_word)
{
    size_t length = 0;

    for (uint32_t at = 0; list && at <= idx; at++) {
        list += length;
        list += strspn(list, " \t\n");
        length = strcspn(list, " \t\n");
    }
    *ret_word = list;
    return length;
}

static int
resolve_roots(struct sti_ckpt_resolved *resolved, const char *roots, stk_error *err)
{
    /* Other nodes ask for parts by their root's name. */
    uint32_t most = resolved->is_of_node ? STI_DEPOT_ROOT_MAX : ROOT_MAX_BYTES;
    const char *word;
    size_t length;
    uint32_t n = 0;

    for (; (length = sti_ckpt_word(roots, n, &word)) > 0; n++) {
        if (word[0] != '/' || length > most)
            return sti_error_set(err, -EINVAL,
                                 "roots: '%.*s' is no absolute path of at most %u bytes",
                                 (int)(length < 100 ? length : 100), word, most);
        for (uint32_t other = 0; other < n; other++) {
            const char *earlier;

            if (sti_ckpt_word(roots, other, &earlier) == length &&
                memcmp(earlier, word, length) == 0)
                return sti_error_set(err, -EINVAL, "roots: '%.*s' is given twice",
                                     (int)(length < 100 ? length : 100), word);
        }
        if (n + 1 == STI_ROOTS_MAX)
            return sti_error_set(err, -EINVAL, "roots: more than %u", STI_ROOTS_MAX - 1);
    }
    resolved->n_roots = n + 1;
    resolved->first_part_root = n > 0 ? 1 : 0;
    return 0;
}

static int
resolve_sizes(struct sti_ckpt_resolved *resolved, const stk_ckpt_opts *opts, stk_error *err)
{
    uint64_t slot_bytes = opts->slot_bytes ? opts->slot_bytes : DEFAULT_SLOT_BYTES;
    uint32_t chunk_bytes = opts->chunk_bytes;

    if (chunk_bytes == 0)
        chunk_bytes = slot_bytes < DEFAULT_CHUNK_BYTES ? (uint32_t)slot_bytes : DEFAULT_CHUNK_BYTES;
    if (slot_bytes < SLOT_MIN_BYTES || slot_bytes > SLOT_MAX_BYTES ||
        slot_bytes % SLOT_MIN_BYTES != 0)
        return sti_error_set(err, -EINVAL,
                             "slot_bytes %" PRIu64 " is no multiple of 64 KiB in 64 KiB .. 256 MiB",
                             slot_bytes);
    if (chunk_bytes < STI_CHUNK_MIN_BYTES || chunk_bytes > STI_CHUNK_MAX_BYTES ||
        (chunk_bytes & (chunk_bytes - 1)) != 0 || slot_bytes % chunk_bytes != 0)
        return sti_error_set(err, -EINVAL,
                             "chunk_bytes %" PRIu32 " is no power of two in 4 KiB .. 64 MiB that "
                             "divides slot_bytes %" PRIu64,
                             chunk_bytes, slot_bytes);
    resolved->slot_bytes = slot_bytes;
    resolved->chunk_bytes = chunk_bytes;
    return 0;
}

int
sti_ckpt_resolve(struct sti_ckpt_resolved *ret_resolved, const stk_ckpt_opts *opts, stk_error *err)
{
    struct sti_ckpt_resolved resolved = {
        .slots = opts->slots ? opts->slots : DEFAULT_SLOTS,
        .outstanding = opts->outstanding ? opts->outstanding : 1,
        .keep = opts->keep ? opts->keep : DEFAULT_KEEP,
        .is_buffered = opts->buffered == 1,
        .is_read_only = opts->read_only == 1,
        .is_alone = opts->alone == 1 || opts->read_only == 1,
        .is_checked = opts->check_replicas == 1,
        .is_of_node = opts->node_local == 1,
        .has_partner = opts->partner == 1,
        .writers = opts->writers,
        .shared_every = opts->shared_every ? opts->shared_every : 1,
        .shared_keep = opts->shared_keep ? opts->shared_keep : DEFAULT_KEEP,
        .vote_timeout_ns =
            (opts->vote_timeout_ms ? opts->vote_timeout_ms : DEFAULT_VOTE_TIMEOUT_MS) *
            UINT64_C(1000000),
    };
    int rc = resolve_sizes(&resolved, opts, err);

    if (rc == 0)
        rc = resolve_roots(&resolved, opts->roots, err);
    if (rc < 0)
        return rc;
    if (opts->buffered > 1 || opts->read_only > 1 || opts->alone > 1 || opts->check_replicas > 1 ||
        opts->node_local > 1 || opts->partner > 1)
        return sti_error_set(
            err, -EINVAL,
            "buffered, read_only, alone, check_replicas, node_local and partner are 0 or 1");
    if (opts->partner == 1 && opts->node_local == 0)
        return sti_error_set(err, -EINVAL, "partner: it needs node_local");
    if (opts->writers > STK_WRITERS_SOCKET)
        return sti_error_set(err, -EINVAL, "writers %" PRIu32 " is no stk_writers", opts->writers);
    if (resolved.slots < 2 || resolved.slots > SLOTS_MAX)
        return sti_error_set(err, -EINVAL, "slots %" PRIu32 " is not in 2 .. %u", resolved.slots,
                             SLOTS_MAX);
    if (resolved.outstanding > STI_SAVES_MAX)
        return sti_error_set(err, -EINVAL, "outstanding %" PRIu32 " is not in 1 .. %u",
                             resolved.outstanding, STI_SAVES_MAX);
    if (resolved.keep == STK_NONE)
        resolved.keep = 0; /* the saver's word for all */
    if (resolved.shared_keep == STK_NONE)
        resolved.shared_keep = 0;
    if (resolved.shared_every == STK_NONE)
        resolved.shared_every = 0; /* the saver's word for none */
    *ret_resolved = resolved;
    return 0;
}
