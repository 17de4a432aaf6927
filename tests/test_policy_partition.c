/* SPDX-License-Identifier: Apache-2.0 */
/* The partition: covers the stream once, never cuts what one writer holds, and shares by
 * speed. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "policy/partition.h"

#define SPANS_MAX 40
#define TARGETS 24

static uint64_t random_state = 1;

static uint64_t
next_random(uint64_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % n;
}

struct input {
    struct sti_span spans[SPANS_MAX];
    struct sti_target targets[TARGETS];
    struct sti_partition partition;
    uint64_t bytes;
    uint64_t shared_bytes;
    uint64_t largest_owned_bytes;
};

static void
make_input(struct input *input, uint32_t world, uint32_t n_roots, int is_even)
{
    *input = (struct input){0};
    uint32_t n_spans = 1 + (uint32_t)next_random(SPANS_MAX - 1);
    for (uint32_t at = 0; at < n_spans; at++) {
        struct sti_span *span = &input->spans[at];

        span->n_bytes = next_random(4) == 0 ? 0 : next_random(3000000);
        span->owner = next_random(3) == 0 ? (uint32_t)next_random(world) : STI_SPAN_SHARED;
        input->bytes += span->n_bytes;
        if (span->owner == STI_SPAN_SHARED)
            input->shared_bytes += span->n_bytes;
        else if (span->n_bytes > input->largest_owned_bytes)
            input->largest_owned_bytes = span->n_bytes;
    }
    for (uint32_t at = 0; at < world * n_roots; at++)
        input->targets[at] =
            (struct sti_target){.writer = at / n_roots,
                                .root = at % n_roots,
                                .bytes_per_s = is_even ? 1 : 100 + (double)next_random(900)};
    input->partition = (struct sti_partition){.spans = input->spans,
                                              .n_spans = n_spans,
                                              .targets = input->targets,
                                              .n_targets = world * n_roots,
                                              .chunk_bytes = 4096};
}

/* Each byte once and in order; the owner's bytes by the owner, each span of it by one
 * target. */
static void
check_cover(const struct input *input, const struct sti_cut *cuts, int64_t n_cuts)
{
    uint64_t at = 0;
    uint64_t span_at = 0;

    for (int64_t idx = 0; idx < n_cuts; idx++) {
        assert_int_equal(cuts[idx].offset, at);
        assert_true(cuts[idx].n_bytes > 0);
        at += cuts[idx].n_bytes;
    }
    assert_int_equal(at, input->bytes);
    for (uint32_t span = 0; span < input->partition.n_spans; span++) {
        const struct sti_span *owned = &input->spans[span];
        uint64_t end = span_at + owned->n_bytes;

        for (int64_t idx = 0; owned->owner != STI_SPAN_SHARED && idx < n_cuts; idx++) {
            if (owned->n_bytes == 0)
                break;
            uint64_t cut_end = cuts[idx].offset + cuts[idx].n_bytes;

            if (cut_end <= span_at || cuts[idx].offset >= end)
                continue;
            assert_true(cuts[idx].offset <= span_at && cut_end >= end);
            assert_int_equal(input->targets[cuts[idx].target].writer, owned->owner);
        }
        span_at = end;
    }
}

static void
test_cover(void **unused)
{
    (void)unused;
    for (uint32_t round = 0; round < 3000; round++) {
        struct input input;
        struct sti_cut cuts[SPANS_MAX + TARGETS];
        double loads[2 * TARGETS];
        double sum = 0;

        make_input(&input, 1 + round % 6, 1 + round % 4, round % 2);
        assert_true(sti_partition_cuts_max(&input.partition) <= SPANS_MAX + TARGETS);
        int64_t n_cuts = sti_partition_cut(&input.partition, cuts, loads);
        assert_true(n_cuts >= 0 && n_cuts <= sti_partition_cuts_max(&input.partition));
        check_cover(&input, cuts, n_cuts);
        for (uint32_t at = 0; at < input.partition.n_targets; at++)
            sum += loads[at];
        assert_true(fabs(sum - (double)input.bytes) < 0.5);
    }
}

/* Shared bytes alone: every target is within a chunk of its part by speed. */
static void
test_equal_within_a_chunk(void **unused)
{
    (void)unused;
    for (uint32_t round = 0; round < 2000; round++) {
        struct input input;
        struct sti_cut cuts[SPANS_MAX + TARGETS];
        double loads[2 * TARGETS];
        double speed = 0;

        make_input(&input, 1 + round % 6, 1 + round % 4, round % 2);
        for (uint32_t at = 0; at < input.partition.n_spans; at++)
            input.spans[at].owner = STI_SPAN_SHARED;
        assert_true(sti_partition_cut(&input.partition, cuts, loads) >= 0);
        for (uint32_t at = 0; at < input.partition.n_targets; at++)
            speed += input.targets[at].bytes_per_s;
        for (uint32_t at = 0; at < input.partition.n_targets; at++)
            assert_true(fabs(loads[at] -
                             (double)input.bytes * input.targets[at].bytes_per_s / speed) <= 4096);
    }
}

/* What one writer holds alone is made up for by the others. */
static void
test_balance(void **unused)
{
    const struct sti_span spans[] = {{1 << 20, STI_SPAN_SHARED}, {600000, 1}, {0, 0}, {100000, 0}};
    const struct sti_target targets[] = {{0, 0, 1}, {1, 0, 1}};
    const struct sti_partition partition = {spans, 4, targets, 2, 4096};
    struct sti_cut cuts[6];
    double loads[4];
    (void)unused;

    assert_true(sti_partition_cut(&partition, cuts, loads) > 0);
    assert_true(fabs(loads[0] - loads[1]) <= 2 * 4096);
    /* One that holds more than its part gets nothing of what all hold. */
    const struct sti_span lopsided[] = {{1 << 20, STI_SPAN_SHARED}, {9000000, 1}};
    const struct sti_partition other = {lopsided, 2, targets, 2, 4096};
    assert_int_equal(sti_partition_cut(&other, cuts, loads), 2);
    assert_true(loads[0] > (1 << 20) - 1 && loads[0] < (1 << 20) + 1);
}

static void
test_refused(void **unused)
{
    const struct sti_span spans[] = {{10, 2}};
    const struct sti_target targets[] = {{0, 0, 1}, {1, 0, 1}};
    struct sti_partition partition = {spans, 1, targets, 2, 4096};
    struct sti_cut cuts[3];
    double loads[4];
    (void)unused;

    assert_int_equal(sti_partition_cut(&partition, cuts, loads), -EINVAL);
    partition.n_targets = 0;
    assert_int_equal(sti_partition_cut(&partition, cuts, loads), -EINVAL);
    partition.n_targets = STI_TARGETS_MAX + 1;
    assert_int_equal(sti_partition_cut(&partition, cuts, loads), -EINVAL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cover),
        cmocka_unit_test(test_equal_within_a_chunk),
        cmocka_unit_test(test_balance),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
