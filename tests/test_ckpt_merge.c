/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several writers of which none knows what the others have: ballots of four in a grid of two by
 * two become one checkpoint that has every byte once; and what does not belong together is
 * refused with the names of tensor and ranks.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "ckpt/merge.h"
#include "policy/partition.h"

#define WORLD 4
#define N_MAX 8
#define CHUNK 4096u
#define ID "0123456789abcdef-1"

/* What one writer holds. Its ballot says that it has written its share of each. */
struct held {
    struct sti_layout_input inputs[N_MAX];
    uint32_t n;
    struct sti_group groups[2];
    uint32_t n_groups;
    uint64_t step;
};

/* Rank r is in row r / 2 and column r % 2: what a row holds is in shards over the columns. */
static const uint32_t all_columns[2][2] = {{0, 2}, {1, 3}};
static const uint64_t weight_shape[2] = {70, 90};
static const uint64_t global_shape[2] = {40, 30};
static const uint64_t shard_shape[2] = {40, 15};
static const uint64_t starts[2][2] = {{0, 0}, {0, 15}};
static const uint64_t own_shape = 1000;
static char own_names[WORLD][16];
static char shard_names[2][32];

static struct sti_layout_input
input(const char *name, const uint64_t *shape, uint32_t dims, uint32_t owner)
{
    return (struct sti_layout_input){
        .name = name, .dtype = "F32", .shape = shape, .dims = dims, .owner = owner};
}

/* All hold "w", the two of a column a shard of "t", each one something of its own. */
static void
hold(struct held *held, uint32_t rank)
{
    uint32_t column = rank % 2;

    *held = (struct held){.step = 7, .n = 4, .n_groups = 1};
    (void)snprintf(own_names[rank], sizeof(own_names[rank]), "own %u", rank);
    (void)snprintf(shard_names[column], sizeof(shard_names[column]), "shard %u of t", column);
    held->groups[0] = (struct sti_group){.writers = all_columns[column], .n_writers = 2};
    held->inputs[0] = input("w", weight_shape, 2, STI_LAYOUT_SHARED);
    held->inputs[1] = input(shard_names[column], shard_shape, 2, 0);
    held->inputs[1].whole =
        (struct sti_layout_whole){.name = "t", .shape = global_shape, .start = starts[column]};
    held->inputs[2] = input(own_names[rank], &own_shape, 1, STI_LAYOUT_OWN);
    held->inputs[3] = input("b", &own_shape, 1, STI_LAYOUT_SHARED);
}

/* This rank's share of what a group holds, as extents; returns how many. */
static uint32_t
add_share(const struct sti_layout *layout, uint32_t owner, uint32_t n, uint32_t place,
          struct sti_part_extent *extents)
{
    uint64_t total = 0, at = 0;
    uint32_t n_extents = 0;

    for (uint32_t idx = 0; idx < layout->n_tensors; idx++)
        total += layout->tensors[idx].owner == owner ? layout->tensors[idx].n_bytes : 0;
    uint64_t from = sti_partition_share(total, n, place, CHUNK);
    uint64_t to = sti_partition_share(total, n, place + 1, CHUNK);
    for (uint32_t idx = 0; idx < layout->n_tensors; idx++) {
        const struct sti_layout_tensor *tensor = &layout->tensors[idx];

        if (tensor->owner != owner)
            continue;
        uint64_t begin = from > at ? from : at;
        uint64_t end = to < at + tensor->n_bytes ? to : at + tensor->n_bytes;
        if (begin < end)
            extents[n_extents++] =
                (struct sti_part_extent){tensor->offset + (begin - at), end - begin};
        at += tensor->n_bytes;
    }
    return n_extents;
}

static void
make_ballot(const struct held *held, uint32_t rank, struct sti_ballot *ret_ballot)
{
    static uint32_t crcs[64];
    static const char *roots[1] = {"."};
    struct sti_part_extent extents[N_MAX];
    struct sti_part part = {.writer = rank, .extents = extents, .crcs = crcs};
    struct sti_manifest ballot = {.step = held->step,
                                  .world = WORLD,
                                  .chunk_bytes = CHUNK,
                                  .id = ID,
                                  .roots = roots,
                                  .parts = &part,
                                  .groups = held->groups,
                                  .n_groups = held->n_groups,
                                  .n_roots = 1,
                                  .n_parts = 1};
    struct sti_text text = {0};

    assert_int_equal(sti_layout_build(&ballot.layout, held->inputs, held->n, NULL, 0, NULL), 0);
    part.n_extents = add_share(&ballot.layout, STI_LAYOUT_SHARED, WORLD, rank, extents);
    for (uint32_t at = 0; at < held->n_groups; at++)
        part.n_extents += add_share(&ballot.layout, at, 2, rank / 2, extents + part.n_extents);
    part.n_extents += add_share(&ballot.layout, STI_LAYOUT_OWN, 1, 0, extents + part.n_extents);
    for (uint32_t at = 0; at < part.n_extents; at++)
        part.n_bytes += extents[at].n_bytes;
    part.n_chunks = (uint32_t)((part.n_bytes + CHUNK - 1) / CHUNK);
    sti_ballot_encode(&ballot, &text);
    assert_false(text.is_failed);
    *ret_ballot = (struct sti_ballot){.bytes = text.bytes, .n_bytes = text.n_bytes};
    sti_layout_fini(&ballot.layout);
}

static int
merge(const struct held *held, struct sti_merged *merged, stk_error *err)
{
    struct sti_ballot ballots[WORLD];
    const struct sti_merge from = {
        .step = 7, .id = ID, .world = WORLD, .chunk_bytes = CHUNK, .ballots = ballots};

    for (uint32_t rank = 0; rank < WORLD; rank++)
        make_ballot(&held[rank], rank, &ballots[rank]);
    int rc = sti_merge(merged, &from, err);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        sti_mem_free(ballots[rank].bytes);
    return rc;
}

static void
hold_all(struct held *held)
{
    for (uint32_t rank = 0; rank < WORLD; rank++)
        hold(&held[rank], rank);
}

/* Who writes a byte of a tensor; the merge has seen to it that somebody does. */
static uint32_t
writer_of(const struct sti_manifest *manifest, uint64_t offset)
{
    for (uint32_t at = 0; at < manifest->n_parts; at++)
        for (uint32_t idx = 0; idx < manifest->parts[at].n_extents; idx++) {
            const struct sti_part_extent *extent = &manifest->parts[at].extents[idx];

            if (offset >= extent->offset && offset < extent->offset + extent->n_bytes)
                return manifest->parts[at].writer;
        }
    return WORLD;
}

static void
test_grid(void **unused)
{
    struct held held[WORLD];
    struct sti_merged merged;
    struct sti_manifest again;
    struct sti_text text = {0};
    stk_error err;
    (void)unused;

    hold_all(held);
    assert_int_equal(merge(held, &merged, &err), 0);
    struct sti_manifest *manifest = &merged.manifest;
    assert_int_equal(manifest->layout.n_tensors, 2 + 2 + WORLD);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        const struct sti_layout_tensor *own = sti_layout_find(&manifest->layout, own_names[rank]);

        assert_non_null(own); /* a tensor of one is never cut */
        for (uint64_t at = 0; at < own->n_bytes; at += 100)
            assert_int_equal(writer_of(manifest, own->offset + at), rank);
    }
    for (uint32_t column = 0; column < 2; column++) {
        const struct sti_layout_tensor *shard =
            sti_layout_find(&manifest->layout, shard_names[column]);

        assert_non_null(shard);
        for (uint64_t at = 0; at < shard->n_bytes; at += 100)
            assert_int_equal(writer_of(manifest, shard->offset + at) % 2, column);
    }
    uint64_t shared[WORLD + 1] = {0};
    const struct sti_layout_tensor *weight = sti_layout_find(&manifest->layout, "w");
    for (uint64_t at = 0; at < weight->n_bytes; at += 4)
        shared[writer_of(manifest, weight->offset + at)] += 4;
    for (uint32_t rank = 0; rank < WORLD; rank++)
        assert_true(shared[rank] > 0);
    /* With the header's part it is a manifest that is read back. */
    struct sti_part_extent header = {0, manifest->layout.header_bytes};
    uint32_t crcs[64] = {0};
    manifest->parts[manifest->n_parts++] =
        (struct sti_part){.writer = WORLD,
                          .n_extents = 1,
                          .n_chunks = (uint32_t)((header.n_bytes + CHUNK - 1) / CHUNK),
                          .n_bytes = header.n_bytes,
                          .extents = &header,
                          .crcs = crcs};
    sti_manifest_encode(manifest, &text);
    assert_int_equal(sti_manifest_decode(&again, text.bytes, text.n_bytes, &err), 0);
    const struct sti_layout_tensor *shard = sti_layout_find(&again.layout, shard_names[1]);
    assert_string_equal(shard->whole.name, "t");
    assert_int_equal(shard->whole.shape[1], 30);
    assert_int_equal(shard->whole.start[1], 15);
    sti_manifest_fini(&again);
    sti_text_fini(&text);
    sti_merged_fini(&merged);
}

static void
expect_refused(const struct held *held, int code, const char *first, const char *second)
{
    struct sti_merged merged;
    stk_error err;

    assert_int_equal(merge(held, &merged, &err), code);
    if (!strstr(err.message, first) || !strstr(err.message, second))
        print_error("'%s' and '%s' are not in: %s\n", first, second, err.message);
    assert_non_null(strstr(err.message, first));
    assert_non_null(strstr(err.message, second));
}

static void
test_what_differs_is_refused(void **unused)
{
    static const uint64_t other_shape[2] = {35, 180}; /* of as many bytes */
    static const uint64_t overlapping[2] = {0, 14};
    struct held held[WORLD];
    (void)unused;

    hold_all(held);
    held[2].inputs[0].shape = other_shape;
    expect_refused(held, STK_E_MISMATCH, "'w'", "ranks 0 and 2");
    hold_all(held);
    held[3].n = 3; /* "b" is missing */
    expect_refused(held, STK_E_MISMATCH, "'b'", "ranks 0 and 3");
    hold_all(held);
    held[3].inputs[2].name = own_names[1];
    expect_refused(held, STK_E_MISMATCH, "'own 1'", "rank 3");
    hold_all(held); /* one of a column says nothing of the column */
    held[2].inputs[1] = held[2].inputs[3];
    held[2].n = 3;
    held[2].n_groups = 0;
    expect_refused(held, STK_E_MISMATCH, "'shard 0 of t'", "ranks 0 and 2");
    hold_all(held);
    held[1].step = 8;
    expect_refused(held, STK_E_MISMATCH, "rank 1", "step 8");
    hold_all(held);
    held[1].inputs[1].whole.start = held[3].inputs[1].whole.start = overlapping;
    expect_refused(held, STK_E_MISMATCH, "'t'", "overlap");
    hold_all(held);
    held[2].inputs[2].name = "t";
    expect_refused(held, STK_E_MISMATCH, "'t'", "whole and in shards");
    hold_all(held); /* nobody has column 1 */
    for (uint32_t rank = 1; rank < WORLD; rank += 2) {
        held[rank].inputs[1] = held[rank].inputs[3];
        held[rank].n = 3;
        held[rank].n_groups = 0;
    }
    held[1].inputs[2].name = "spare 1";
    expect_refused(held, STK_E_MISMATCH, "'t'", "its shards have");
}

/* What is put together is all freed, whatever allocation fails. */
static void
test_memory(void **unused)
{
    struct held held[WORLD];
    struct sti_ballot ballots[WORLD];
    const struct sti_merge from = {
        .step = 7, .id = ID, .world = WORLD, .chunk_bytes = CHUNK, .ballots = ballots};
    struct sti_merged merged;
    int rc = -1;
    (void)unused;

    hold_all(held);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        make_ballot(&held[rank], rank, &ballots[rank]);
    for (uint64_t nth = 1; rc < 0; nth++) {
        sti_mem_fail_at(nth, 0);
        rc = sti_merge(&merged, &from, NULL);
        sti_mem_fail_at(0, 0);
        assert_true(rc == 0 || rc == -ENOMEM);
    }
    sti_merged_fini(&merged);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        sti_mem_free(ballots[rank].bytes);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grid),
        cmocka_unit_test(test_what_differs_is_refused),
        cmocka_unit_test(test_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
