/* SPDX-License-Identifier: Apache-2.0 */
/* The bound: never above what Belady's choice reads, and equal to it within one sample
 * where every epoch reads all samples of one size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "policy/bound.h"

#define SAMPLES 12
#define EPOCHS 5
#define ACCESSES_MAX 200

static uint64_t
draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static uint64_t
next_use(const uint32_t *ids, uint64_t n, uint64_t at, uint32_t sample)
{
    for (; at < n; at++)
        if (ids[at] == sample)
            return at;
    return n;
}

/* What the best replacement reads: unit sizes, one sample at a time, a missed sample may
 * also not be kept at all. missed: of each access, whether it was read; may be NULL. */
static uint64_t
belady_reads(const uint32_t *ids, uint64_t n, uint32_t capacity, char *missed)
{
    char held[SAMPLES] = {0};
    uint32_t n_held = 0;
    uint64_t reads = 0;

    for (uint64_t at = 0; at < n; at++) {
        if (missed)
            missed[at] = !held[ids[at]];
        if (!held[ids[at]]) {
            reads++;
            held[ids[at]] = 1;
            n_held++;
        }
        if (n_held <= capacity)
            continue;
        uint32_t victim = SAMPLES;
        for (uint32_t sample = 0; sample < SAMPLES; sample++)
            if (held[sample] && (victim == SAMPLES || next_use(ids, n, at + 1, sample) >
                                                          next_use(ids, n, at + 1, victim)))
                victim = sample;
        held[victim] = 0;
        n_held--;
    }
    return reads;
}

/* The run's bound, and each epoch's (of_epochs may be NULL). */
static uint64_t
bound_of(const uint32_t *ids, const uint64_t *ends, uint32_t capacity, uint64_t *of_epochs)
{
    struct sti_bound bound;
    char in_run[SAMPLES] = {0};
    uint64_t at = 0, before = 0;

    sti_bound_init(&bound, capacity);
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        char in_epoch[SAMPLES] = {0};

        sti_bound_epoch(&bound);
        for (; at < ends[epoch]; at++) {
            sti_bound_sample(&bound, 1, !in_epoch[ids[at]], !in_run[ids[at]]);
            in_epoch[ids[at]] = in_run[ids[at]] = 1;
            assert_true(sti_bound_bytes(&bound) >= before); /* it only grows */
            before = sti_bound_bytes(&bound);
        }
        if (of_epochs)
            of_epochs[epoch] = sti_bound_of_epoch(&bound);
    }
    return before;
}

static void
shuffled_epochs_meet_it(void **state)
{
    uint64_t seed = 5;

    (void)state;
    for (int round = 0; round < 400; round++) {
        uint32_t ids[SAMPLES * EPOCHS];
        uint64_t ends[EPOCHS];
        uint32_t capacity = (uint32_t)(draw(&seed) % (SAMPLES + 2));

        for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
            uint32_t *own = ids + epoch * SAMPLES;

            for (uint32_t at = 0; at < SAMPLES; at++) {
                uint32_t other = (uint32_t)(draw(&seed) % (at + 1));

                own[at] = own[other];
                own[other] = at;
            }
            ends[epoch] = (epoch + 1) * SAMPLES;
        }
        uint64_t bound = bound_of(ids, ends, capacity, NULL);
        uint64_t reads = belady_reads(ids, sizeof(ids) / sizeof(ids[0]), capacity, NULL);
        assert_true(bound <= reads);
        assert_true(reads <= bound + (EPOCHS - 1));
        uint64_t missing = capacity < SAMPLES ? SAMPLES - capacity : 0;
        assert_int_equal(bound, SAMPLES + (EPOCHS - 1) * missing);
    }
}

/* Epochs of some samples only. Repetitions within an epoch count once. Each epoch's part
 * holds by itself. */
static void
it_is_never_above_the_best(void **state)
{
    uint64_t seed = 6;

    (void)state;
    for (int round = 0; round < 2000; round++) {
        uint32_t ids[ACCESSES_MAX];
        uint64_t ends[EPOCHS], n = 0;
        uint32_t capacity = (uint32_t)(draw(&seed) % (SAMPLES + 2));

        for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
            for (uint64_t left = draw(&seed) % 30; left > 0; left--)
                ids[n++] = (uint32_t)(draw(&seed) % SAMPLES);
            ends[epoch] = n;
        }
        uint64_t of_epochs[EPOCHS], sum = 0, at = 0;
        char missed[ACCESSES_MAX];
        uint64_t bound = bound_of(ids, ends, capacity, of_epochs);
        assert_true(bound <= belady_reads(ids, n, capacity, missed));
        for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
            uint64_t reads = 0;

            for (; at < ends[epoch]; at++)
                reads += (uint64_t)missed[at];
            assert_true(of_epochs[epoch] <= reads);
            sum += of_epochs[epoch];
        }
        assert_int_equal(sum, bound);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shuffled_epochs_meet_it),
        cmocka_unit_test(it_is_never_above_the_best),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
