/* SPDX-License-Identifier: Apache-2.0 */
/* Copies by next use: what holds for every order, against a search through everything. */
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
#include "policy/replica.h"

#define SAMPLES 120
#define HOLDERS 5
#define EPOCHS 12

/* A run: in every epoch every sample is read once. */
struct run {
    uint32_t ids[EPOCHS][SAMPLES];
    uint16_t holder_of[HOLDERS];
    uint32_t bytes[SAMPLES];
    uint64_t ram_bytes[HOLDERS];
    uint64_t ssd_bytes[HOLDERS];
    struct sti_assign_input input;
    uint64_t drawn;
};

static uint64_t
draw(struct run *run, uint64_t below)
{
    run->drawn += STI_MIX_INCREMENT;
    return sti_mix(run->drawn) % below;
}

static void
run_init(struct run *run, uint64_t seed, uint64_t room, uint32_t unequal_bytes)
{
    memset(run, 0, sizeof(*run));
    run->drawn = seed;
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++)
        for (uint32_t at = 0; at < SAMPLES; at++) {
            uint32_t other = (uint32_t)draw(run, at + 1);

            run->ids[epoch][at] = run->ids[epoch][other];
            run->ids[epoch][other] = at;
        }
    for (uint32_t sample = 0; sample < SAMPLES; sample++)
        run->bytes[sample] = 100 + (uint32_t)draw(run, unequal_bytes + 1);
    for (uint16_t holder = 0; holder < HOLDERS; holder++) {
        run->holder_of[holder] = holder;
        run->ram_bytes[holder] = room / 2;
        run->ssd_bytes[holder] = room - room / 2;
    }
    run->input = (struct sti_assign_input){
        .n_samples = SAMPLES,
        .n_ranks = HOLDERS,
        .bytes = run->bytes,
        .ram_bytes = run->ram_bytes,
        .ssd_bytes = run->ssd_bytes,
    };
}

/* What is held is within each holder's room, and what is left is what is said. */
static void
check_rooms(const struct run *run, const struct sti_replicas *replicas)
{
    for (uint32_t holder = 0; holder < HOLDERS; holder++) {
        uint64_t ram = replicas->held.ram_bytes[holder];
        uint64_t ssd = replicas->held.ssd_bytes[holder];

        for (uint32_t sample = 0; sample < SAMPLES; sample++) {
            if (!sti_replicas_has(replicas, sample, holder))
                continue;
            if (sti_assignment_on_ssd(&replicas->held, sample, holder))
                ssd += run->bytes[sample];
            else
                ram += run->bytes[sample];
        }
        assert_int_equal(ram, run->ram_bytes[holder]);
        assert_int_equal(ssd, run->ssd_bytes[holder]);
    }
}

/* Goes through the run with n_ahead epochs known; nothing has a first copy. Returns the
 * reads that found a copy. */
static uint32_t
hits_of(struct run *run, uint32_t n_ahead)
{
    struct sti_replicas replicas;
    uint32_t n_hits = 0;

    assert_int_equal(sti_replicas_init(&replicas, &run->input, n_ahead), 0);
    for (uint64_t epoch = 1; epoch <= n_ahead; epoch++)
        sti_replicas_order(&replicas, epoch, run->ids[epoch], SAMPLES, run->holder_of, HOLDERS);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        uint64_t end = epoch + 1 + n_ahead < EPOCHS ? epoch + 1 + n_ahead : EPOCHS;

        if (epoch > 0 && n_ahead > 0 && epoch + n_ahead < EPOCHS)
            sti_replicas_order(&replicas, epoch + n_ahead, run->ids[epoch + n_ahead], SAMPLES,
                               run->holder_of, HOLDERS);
        sti_replicas_begin(&replicas, epoch, end, end == EPOCHS);
        for (uint32_t at = 0; at < SAMPLES; at++) {
            n_hits += sti_replicas_has(&replicas, run->ids[epoch][at], at % HOLDERS);
            sti_replicas_used(&replicas, epoch, run->ids[epoch][at], at % HOLDERS);
        }
        check_rooms(run, &replicas);
    }
    for (uint32_t sample = 0; sample < SAMPLES && n_ahead > 0; sample++)
        for (uint32_t holder = 0; holder < HOLDERS; holder++)
            assert_false(sti_replicas_has(&replicas, sample, holder)); /* nothing is read again */
    sti_replicas_fini(&replicas);
    return n_hits;
}

/* Reads that find a copy with room for everything: each that is not the holder's first. */
static uint32_t
hits_possible(const struct run *run)
{
    bool seen[SAMPLES][HOLDERS] = {{false}};
    uint32_t n = 0;

    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++)
        for (uint32_t at = 0; at < SAMPLES; at++) {
            n += seen[run->ids[epoch][at]][at % HOLDERS];
            seen[run->ids[epoch][at]][at % HOLDERS] = true;
        }
    return n;
}

static void
test_everything_fits(void **state)
{
    struct run *run = calloc(1, sizeof(*run));

    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++)
        for (uint32_t n_ahead = 0; n_ahead < EPOCHS; n_ahead++) {
            run_init(run, seed, UINT64_C(4) * SAMPLES * 300, seed % 2 ? 200 : 0);
            assert_int_equal(hits_of(run, n_ahead), hits_possible(run));
        }
    free(run);
}

/* Less room, fewer hits; the more epochs are known, the more; no more than possible. */
static void
test_room_and_sight(void **state)
{
    struct run *run = calloc(1, sizeof(*run));
    uint64_t sums[3] = {0};

    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        static const uint32_t sights[] = {0, 1, EPOCHS - 1};
        uint32_t before = 0;

        for (uint64_t room = 0; room <= 3000; room += 500) {
            run_init(run, seed, room, 0);
            uint32_t n = hits_of(run, EPOCHS - 1);
            assert_true(n >= before && n <= hits_possible(run));
            before = n;
        }
        run_init(run, seed, 1000, 0);
        for (uint32_t at = 0; at < 3; at++)
            sums[at] += hits_of(run, sights[at]);
    }
    print_message("hits with 0, 1 and all epochs known: %llu, %llu, %llu\n",
                  (unsigned long long)sums[0], (unsigned long long)sums[1],
                  (unsigned long long)sums[2]);
    assert_true(sums[0] < sums[1] && sums[1] < sums[2]);
    free(run);
}

/* What fills room beforehand is read in that epoch. */
static void
test_fill(void **state)
{
    struct run *run = calloc(1, sizeof(*run));
    struct sti_assignment none;
    struct sti_replicas replicas;
    uint32_t n_hits = 0;

    (void)state;
    run_init(run, 7, 1000, 0);
    assert_int_equal(sti_assignment_init(&none, &run->input), 0);
    assert_int_equal(sti_replicas_init(&replicas, &run->input, EPOCHS - 1), 0);
    for (uint64_t epoch = 1; epoch < EPOCHS; epoch++) {
        sti_replicas_order(&replicas, epoch, run->ids[epoch], SAMPLES, run->holder_of, HOLDERS);
        sti_replicas_fill(&replicas, &none, epoch, run->ids[epoch], SAMPLES);
    }
    check_rooms(run, &replicas);
    for (uint32_t at = 0; at < SAMPLES; at++)
        n_hits += sti_replicas_has(&replicas, run->ids[1][at], at % HOLDERS);
    assert_int_equal(n_hits, HOLDERS * 10);
    sti_replicas_fini(&replicas);
    sti_assignment_fini(&none);
    free(run);
}

/* Memory for a list may be missing: then there is no copy, and nothing else changes. */
static void
test_no_memory(void **state)
{
    struct run *run = calloc(1, sizeof(*run));
    uint32_t n_refused = 0;

    (void)state;
    run_init(run, 1, 1000, 50);
    for (uint64_t n = 1; n < 12; n++) {
        struct sti_replicas replicas;

        sti_mem_fail_at(n, 0);
        int rc = sti_replicas_init(&replicas, &run->input, 3);
        if (rc == 0) {
            sti_replicas_begin(&replicas, 0, 1, false);
            for (uint32_t at = 0; at < SAMPLES; at++)
                sti_replicas_used(&replicas, 0, run->ids[0][at], at % HOLDERS);
            check_rooms(run, &replicas);
        }
        sti_mem_fail_at(0, 0);
        n_refused += rc == -ENOMEM;
        sti_replicas_fini(&replicas);
    }
    assert_int_equal(n_refused, 6);
    free(run);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_fits),
        cmocka_unit_test(test_room_and_sight),
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
