/* SPDX-License-Identifier: Apache-2.0 */
/* Placement over ranks: what holds for every input, over many of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "order/mix.h"
#include "policy/assign.h"

#define SAMPLES 600
#define RANKS_MAX 70

struct world {
    struct sti_assign_input input;
    uint32_t bytes[SAMPLES];
    uint64_t ram_bytes[RANKS_MAX];
    uint64_t ssd_bytes[RANKS_MAX];
    uint8_t counts[SAMPLES * RANKS_MAX];
    uint64_t drawn;
};

static uint64_t
draw(struct world *world, uint64_t below)
{
    world->drawn += STI_MIX_INCREMENT;
    return sti_mix(world->drawn) % below;
}

/* A world of unequal samples and ranks; room_percent of the data set in all. */
static void
world_init(struct world *world, uint64_t seed, uint32_t n_ranks, uint64_t room_percent)
{
    uint64_t total = 0;

    memset(world, 0, sizeof(*world));
    world->drawn = seed;
    for (uint32_t sample = 0; sample < SAMPLES; sample++) {
        world->bytes[sample] = 50 + (uint32_t)draw(world, 100);
        total += world->bytes[sample];
    }
    for (uint32_t use = 0; use < 10 * SAMPLES; use++)
        world->counts[draw(world, SAMPLES) * n_ranks + draw(world, n_ranks)]++;
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        uint64_t room = total * room_percent / 100 / n_ranks * (50 + draw(world, 100)) / 100;

        world->ram_bytes[rank] = room / 3;
        world->ssd_bytes[rank] = room - room / 3;
    }
    world->input = (struct sti_assign_input){
        .n_samples = SAMPLES,
        .n_ranks = n_ranks,
        .bytes = world->bytes,
        .ram_bytes = world->ram_bytes,
        .ssd_bytes = world->ssd_bytes,
        .counts = world->counts,
        .seed = seed,
    };
}

/* No tier of any rank holds more than fits, and what is left is what is said. */
static void
check_rooms(const struct world *world, const struct sti_assignment *assignment)
{
    for (uint32_t rank = 0; rank < world->input.n_ranks; rank++) {
        uint64_t ram = assignment->ram_bytes[rank];
        uint64_t ssd = assignment->ssd_bytes[rank];

        for (uint32_t sample = 0; sample < SAMPLES; sample++) {
            if (!sti_assignment_has(assignment, sample, rank))
                continue;
            if (sti_assignment_on_ssd(assignment, sample, rank))
                ssd += world->bytes[sample];
            else
                ram += world->bytes[sample];
        }
        assert_int_equal(ram, world->ram_bytes[rank]);
        assert_int_equal(ssd, world->ssd_bytes[rank]);
    }
}

static uint32_t
count_holders(const struct sti_assignment *assignment, uint32_t sample)
{
    uint32_t n = 0;

    for (uint32_t rank = 0; rank < assignment->n_ranks; rank++)
        n += sti_assignment_has(assignment, sample, rank);
    return n;
}

/* The peer that is found holds the sample, is another rank, and is found whenever there
 * is one. */
static void
check_peers(const struct sti_assignment *assignment)
{
    for (uint32_t sample = 0; sample < SAMPLES; sample++)
        for (uint32_t rank = 0; rank < assignment->n_ranks; rank++) {
            uint32_t peer = sti_assignment_peer(assignment, sample, rank);
            uint32_t n = count_holders(assignment, sample);

            if (peer == STI_ASSIGN_NOBODY) {
                assert_true(n == 0 || (n == 1 && sti_assignment_has(assignment, sample, rank)));
                continue;
            }
            assert_int_not_equal(peer, rank);
            assert_true(sti_assignment_has(assignment, sample, peer));
        }
}

static bool
is_same(const struct sti_assignment *a, const struct sti_assignment *b)
{
    size_t n_bytes = (size_t)a->n_samples * a->n_words * sizeof(uint64_t);

    return !memcmp(a->held, b->held, n_bytes) && !memcmp(a->on_ssd, b->on_ssd, n_bytes);
}

static void
test_rooms(void **state)
{
    static const uint32_t ranks[] = {1, 2, 5, 64, 65, RANKS_MAX};
    static const uint64_t rooms[] = {0, 30, 100, 150, 400};
    struct world *world = calloc(1, sizeof(*world));

    (void)state;
    for (uint32_t i = 0; i < 30; i++) {
        world_init(world, i, ranks[i % 6], rooms[i / 6]);
        for (uint32_t ties = 0; ties <= STI_ASSIGN_TIES_UNSTABLE; ties++) {
            struct sti_assignment a;
            struct sti_assignment b;

            world->input.ties = (enum sti_assign_ties)ties;
            assert_int_equal(sti_assign_paper(&a, &world->input), 0);
            check_rooms(world, &a);
            check_peers(&a);
            assert_int_equal(sti_assign_paper(&b, &world->input), 0);
            assert_true(is_same(&a, &b));
            sti_assignment_fini(&a);
            sti_assignment_fini(&b);
        }
        struct sti_assignment ours;
        assert_int_equal(sti_assign_coordinated(&ours, &world->input), 0);
        check_rooms(world, &ours);
        check_peers(&ours);
        sti_assignment_fini(&ours);
    }
    free(world);
}

/* With room for all, everything is held; with less, ranks are full to less than one
 * sample. */
static void
test_everything_is_held(void **state)
{
    struct world *world = calloc(1, sizeof(*world));

    (void)state;
    for (uint32_t seed = 0; seed < 10; seed++) {
        struct sti_assignment ours;
        uint32_t n_held = 0;

        world_init(world, seed, 2 + 3 * seed, 220);
        assert_int_equal(sti_assign_coordinated(&ours, &world->input), 0);
        for (uint32_t sample = 0; sample < SAMPLES; sample++)
            n_held += count_holders(&ours, sample) > 0;
        assert_int_equal(n_held, SAMPLES);
        sti_assignment_fini(&ours);

        world_init(world, seed, 2 + 3 * seed, 40);
        assert_int_equal(sti_assign_coordinated(&ours, &world->input), 0);
        for (uint32_t sample = 0; sample < SAMPLES; sample++)
            assert_true(count_holders(&ours, sample) <= 1);
        for (uint32_t rank = 0; rank < world->input.n_ranks; rank++)
            assert_true(ours.ram_bytes[rank] < 150 && ours.ssd_bytes[rank] < 150);
        sti_assignment_fini(&ours);
    }
    free(world);
}

/* Each rank of the paper's holds what it reads most: nothing outside is read more than
 * something inside that is as large. */
static void
test_paper_holds_the_most_read(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    struct sti_assignment paper;

    (void)state;
    world_init(world, 3, 8, 60);
    for (uint32_t sample = 0; sample < SAMPLES; sample++)
        world->bytes[sample] = 100;
    assert_int_equal(sti_assign_paper(&paper, &world->input), 0);
    for (uint32_t rank = 0; rank < 8; rank++) {
        uint32_t least_in = UINT8_MAX;
        uint32_t most_out = 0;

        for (uint32_t sample = 0; sample < SAMPLES; sample++) {
            uint32_t uses = world->counts[sample * 8 + rank];

            if (sti_assignment_has(&paper, sample, rank))
                least_in = uses < least_in ? uses : least_in;
            else
                most_out = uses > most_out ? uses : most_out;
        }
        assert_true(least_in >= most_out);
    }
    sti_assignment_fini(&paper);
    free(world);
}

/* Every allocation may fail; nothing is lost then. */
static void
test_no_memory(void **state)
{
    struct world *world = calloc(1, sizeof(*world));

    (void)state;
    world_init(world, 1, 4, 150);
    for (uint64_t n = 1;; n++) {
        struct sti_assignment ours;

        sti_mem_fail_at(n, 0);
        int rc = sti_assign_coordinated(&ours, &world->input);
        sti_mem_fail_at(0, 0);
        sti_assignment_fini(&ours);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ENOMEM);
        assert_true(n < 20);
    }
    free(world);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rooms),
        cmocka_unit_test(test_everything_is_held),
        cmocka_unit_test(test_paper_holds_the_most_read),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
