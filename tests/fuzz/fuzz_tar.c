/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An archive of any bytes, parsed twice: with all of it in view, and with no more in view
 * than the parser asks for. Both must find the same; members lie in the archive and
 * behind each other; samples have their parts. Each input is tried as it is and with the
 * checksums of what would be its headers made right, because a fuzzer does not guess
 * those.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/shard.h"
#include "format/tar.h"
#include "fuzz.h"

#define MAX_BYTES ((size_t)1 << 16)

static void
check_member(const struct sti_tar_member *member, const uint8_t *bytes, size_t n_bytes)
{
    must(member->offset == member->header_offset + STI_TAR_BLOCK_BYTES);
    must(member->offset <= n_bytes && member->n_bytes <= n_bytes - member->offset);
    must(strlen(member->path) < STI_TAR_PATH_SIZE);
    must(!member->data || memcmp(member->data, bytes + member->offset, member->n_bytes) == 0);
}

static void
check_shard(const struct sti_shard *shard)
{
    uint64_t n_parts = 0;

    must(shard->n_fields <= STK_MAX_FIELDS);
    for (uint64_t at = 0; at < shard->n_samples; at++) {
        const struct sti_shard_sample *sample = &shard->samples[at];

        must(sample->first_part == n_parts && sti_shard_parts_of(shard, at) > 0);
        must(strlen(shard->keys + sample->key_at) == sample->key_bytes && sample->label >= -1);
        n_parts += sti_shard_parts_of(shard, at);
    }
    must(n_parts == shard->n_parts);
}

/* Parses with a window of what is asked for, in memory of exactly that size; 0: of
 * all. */
static int
parse(const uint8_t *bytes, size_t n_bytes, bool is_narrow, struct sti_shard *shard)
{
    struct sti_tar *tar = malloc(sizeof(*tar));
    struct sti_tar_member member;
    struct sti_tar_window window = {.bytes = bytes, .n_bytes = is_narrow ? 0 : n_bytes};
    unsigned char *seen = NULL;
    uint64_t before = 0;
    stk_error err = {.message = ""};
    int rc = STI_TAR_MEMBER;

    must(tar != NULL);
    sti_tar_init(tar, n_bytes, "fuzz");
    while (rc == STI_TAR_MEMBER || rc == STI_TAR_NEED) {
        rc = sti_tar_next(tar, &window, &member, &err);
        must(tar->offset >= before && tar->offset <= n_bytes);
        before = tar->offset;
        if (rc == STI_TAR_NEED) {
            must(is_narrow && tar->need_bytes <= STI_TAR_NEED_MAX);
            must(tar->need_bytes <= n_bytes - tar->offset);
            free(seen);
            seen = malloc(tar->need_bytes);
            must(seen != NULL);
            memcpy(seen, bytes + tar->offset, tar->need_bytes);
            window = (struct sti_tar_window){
                .bytes = seen, .offset = tar->offset, .n_bytes = tar->need_bytes};
        } else if (rc == STI_TAR_MEMBER) {
            check_member(&member, bytes, n_bytes);
            if (sti_shard_add(shard, &member, &err) < 0)
                break; /* torn samples: the words are checked below */
        }
    }
    free(seen);
    free(tar);
    must(rc == STI_TAR_END || err.message[0] != '\0');
    check_shard(shard);
    return rc;
}

static void
parse_twice(const uint8_t *bytes, size_t n_bytes)
{
    struct sti_shard all = {.shown = "fuzz"}, narrow = {.shown = "fuzz"};
    int rc = parse(bytes, n_bytes, false, &all);

    must(parse(bytes, n_bytes, true, &narrow) == rc);
    must(all.n_samples == narrow.n_samples && all.n_parts == narrow.n_parts);
    must(all.keys_bytes == narrow.keys_bytes);
    if (all.keys_bytes > 0)
        must(memcmp(all.keys, narrow.keys, all.keys_bytes) == 0);
    sti_shard_fini(&all);
    sti_shard_fini(&narrow);
}

/* Gives every block that has a checksum's digits the right ones. */
static void
put_checksums(uint8_t *bytes, size_t n_bytes)
{
    for (size_t at = 0; at + STI_TAR_BLOCK_BYTES <= n_bytes; at += STI_TAR_BLOCK_BYTES) {
        unsigned sum = 0;
        char digits[8];

        memset(bytes + at + 148, ' ', 8);
        for (size_t i = 0; i < STI_TAR_BLOCK_BYTES; i++)
            sum += bytes[at + i];
        if (sum == 8 * ' ') { /* zeros: the end stays the end */
            memset(bytes + at + 148, 0, 8);
            continue;
        }
        (void)snprintf(digits, sizeof(digits), "%06o", sum); /* 18 bits fit */
        memcpy(bytes + at + 148, digits, 7);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    const char *field;

    if (n_bytes > MAX_BYTES)
        return 0;
    uint8_t *archive = malloc(n_bytes + 1); /* with nothing behind it but a NUL */
    must(archive != NULL);
    memcpy(archive, bytes, n_bytes);
    archive[n_bytes] = '\0';
    size_t key_bytes = sti_tar_split((const char *)archive, &field);
    must(key_bytes == 0 || field == (const char *)archive + key_bytes + 1);
    parse_twice(archive, n_bytes);
    put_checksums(archive, n_bytes);
    parse_twice(archive, n_bytes);
    free(archive);
    return 0;
}
