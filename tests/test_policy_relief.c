/* SPDX-License-Identifier: Apache-2.0 */
/* Who serves for ranks that are slow to serve: nobody where all are alike; within everybody's
 * room and so that all are done at the same time where one is slow; and the same again from
 * what is measured under the decision. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policy/relief.h"

#define WORLD 4u
#define HELD UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

/* Ranks that all hold as much and were asked for three quarters of it, which took them so many
 * milliseconds of an epoch of a second. */
static void
make(struct sti_relief_rank *ranks, const uint64_t *busy_ms, uint64_t spare_bytes)
{
    memset(ranks, 0, WORLD * sizeof(*ranks));
    for (uint32_t at = 0; at < WORLD; at++)
        ranks[at] = (struct sti_relief_rank){.held_bytes = HELD,
                                             .spare_bytes = spare_bytes,
                                             .served_bytes = HELD / 4 * 3,
                                             .busy_ns = busy_ms[at] * 1000000,
                                             .wall_ns = SECOND};
}

static void
ranks_that_are_alike_are_left_alone(void **state)
{
    const uint64_t alike[][WORLD] = {{900, 900, 900, 900},
                                     {900, 450, 820, 640},
                                     {400, 20, 20, 20},
                                     {0, 0, 0, 0},
                                     {999, 999, 999, 550}};
    struct sti_relief_rank ranks[WORLD];

    (void)state;
    for (size_t at = 0; at < sizeof(alike) / sizeof(alike[0]); at++) {
        make(ranks, alike[at], 10 * HELD);
        assert_false(sti_relief_decide(ranks, WORLD));
        for (uint32_t rank = 0; rank < WORLD; rank++)
            assert_true(ranks[rank].give_bytes == 0 && ranks[rank].take_bytes == 0);
    }
    const uint64_t slow[WORLD] = {950, 50, 50, 50};
    make(ranks, slow, 0); /* nobody has room */
    assert_false(sti_relief_decide(ranks, WORLD));
    make(ranks, slow, 10 * HELD);
    ranks[0].wall_ns = SECOND / 100; /* too short to tell */
    ranks[0].busy_ns /= 100;
    assert_false(sti_relief_decide(ranks, WORLD));
    memset(ranks, 0, sizeof(ranks));
    assert_false(sti_relief_decide(ranks, WORLD));
}

/* What serving all that a rank is to serve takes it, in milliseconds. */
static double
load_ms(const struct sti_relief_rank *rank)
{
    double n_bytes = (double)(rank->held_bytes - rank->give_bytes + rank->take_bytes);

    return n_bytes * 0.75 * (double)rank->busy_ns / (double)rank->served_bytes * 1e-6;
}

static void
one_that_is_slow_is_relieved(void **state)
{
    const uint64_t slow[WORLD] = {960, 60, 60, 60};
    struct sti_relief_rank ranks[WORLD], again[WORLD];

    (void)state;
    make(ranks, slow, 10 * HELD);
    assert_true(sti_relief_decide(ranks, WORLD));
    assert_true(ranks[0].give_bytes > HELD / 10 * 8 && ranks[0].give_bytes < HELD);
    assert_int_equal(ranks[0].take_bytes, 0);
    for (uint32_t rank = 1; rank < WORLD; rank++) {
        assert_int_equal(ranks[rank].give_bytes, 0);
        assert_true(load_ms(&ranks[rank]) > 0.99 * load_ms(&ranks[0]) &&
                    load_ms(&ranks[rank]) < 1.01 * load_ms(&ranks[0]));
    }
    /* What it serves now is less and takes less; a byte takes what it took. */
    memcpy(again, ranks, sizeof(ranks));
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        uint64_t served_bytes =
            (ranks[rank].held_bytes - ranks[rank].give_bytes + ranks[rank].take_bytes) / 4 * 3;

        again[rank].busy_ns = (uint64_t)((double)ranks[rank].busy_ns * (double)served_bytes /
                                         (double)ranks[rank].served_bytes);
        again[rank].served_bytes = served_bytes;
        again[rank].wall_ns = SECOND / 20 * 11;
    }
    assert_true(sti_relief_decide(again, WORLD));
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        assert_true(llabs((int64_t)(again[rank].give_bytes - ranks[rank].give_bytes)) <
                    (int64_t)HELD / 100);
        assert_true(llabs((int64_t)(again[rank].take_bytes - ranks[rank].take_bytes)) <
                    (int64_t)HELD / 100);
    }
    make(ranks, slow, HELD / 5); /* as far as there is room */
    assert_true(sti_relief_decide(ranks, WORLD));
    for (uint32_t rank = 1; rank < WORLD; rank++)
        assert_true(ranks[rank].take_bytes <= HELD / 5);
    assert_true(ranks[0].give_bytes > HELD / 2 && ranks[0].give_bytes <= HELD / 5 * 3);
}

/* Every rank finds the same samples, nobody more than it gives or takes. */
static void
samples_follow(void **state)
{
    enum { SAMPLES = 1000 };
    static uint16_t first[SAMPLES], relief[SAMPLES], other[SAMPLES];
    static uint32_t bytes[SAMPLES];
    uint64_t given[WORLD] = {0}, taken[WORLD] = {0};
    const uint64_t give[WORLD] = {60000, 0, 0, 7000}, take[WORLD] = {0, 40000, 33000, 0};

    (void)state;
    for (uint32_t at = 0; at < SAMPLES; at++) {
        first[at] = at % 9 == 8 ? STI_RELIEF_NOBODY : (uint16_t)(at * 7 % WORLD);
        bytes[at] = at * 131 % 700;
    }
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        uint64_t give_left[WORLD], take_left[WORLD];
        const struct sti_relief_input input = {
            .first = first, .bytes = bytes, .n_ranks = WORLD, .n_samples = SAMPLES};

        memcpy(give_left, give, sizeof(give));
        memcpy(take_left, take, sizeof(take));
        sti_relief_assign(&input, give_left, take_left, rank == 0 ? relief : other);
        if (rank > 0)
            assert_memory_equal(relief, other, sizeof(relief));
    }
    for (uint32_t at = 0; at < SAMPLES; at++) {
        if (relief[at] == STI_RELIEF_NOBODY)
            continue;
        assert_true(first[at] != STI_RELIEF_NOBODY && relief[at] != first[at]);
        given[first[at]] += bytes[at];
        taken[relief[at]] += bytes[at];
    }
    for (uint32_t rank = 0; rank < WORLD; rank++)
        assert_true(given[rank] <= give[rank] && taken[rank] <= take[rank]);
    assert_true(given[0] + 700 > give[0] && given[3] + 700 > give[3]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_are_alike_are_left_alone),
        cmocka_unit_test(one_that_is_slow_is_relieved),
        cmocka_unit_test(samples_follow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
