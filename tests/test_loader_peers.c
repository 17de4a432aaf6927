/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that serve each other's samples: every batch is right on every rank, the origin
 * gives each byte as often as the bound says, and what goes wrong costs time alone.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ranks_util.h"

static struct set sets[SET_KINDS];

static int
make_sets(void **state)
{
    for (int kind = 0; kind < SET_KINDS; kind++)
        set_make(&sets[kind], (enum set_kind)kind, kind == SET_BIG || kind == SET_ROWS ? 61 : 203);
    return watchdog(state);
}

static int
remove_sets(void **state)
{
    (void)state;
    for (int kind = 0; kind < SET_KINDS; kind++)
        set_remove(&sets[kind]);
    return 0;
}

static uint64_t
largest(const struct set *set)
{
    uint64_t most = 0;

    for (uint64_t at = 0; at < set->n; at++)
        most = set->lengths[at] > most ? set->lengths[at] : most;
    return most;
}

/* A job of four ranks whose memory holds hundredths of the data set, and one sample more for
 * each. */
static struct job
job_of(const struct set *set, const char *method, uint64_t hundredths)
{
    struct job job = {
        .set = set,
        .method = method,
        .tiers = "ram:64M",
        .world = 4,
        .opts = {STK_LOADER_OPTS_INIT, .batch_size = 5, .epochs = 5, .layout = STK_LAYOUT_RAW},
        .order = {STK_ORDER_OPTS_INIT, .seed = 7},
        .close_timeout_ms = 20000,
    };

    job.opts.ram_bytes = set->bytes * hundredths / 400 + largest(set);
    job.opts.staging_bytes = 4 * job.opts.batch_size * largest(set);
    return job;
}

static void
check_sums(const struct job *job)
{
    for (uint32_t rank = 0; rank < job->world; rank++) {
        const stk_loader_stats *stats = &job->ranks[rank].stats;
        uint64_t n = 0, n_bytes = 0;

        for (int tier = 0; tier < STK_TIERS; tier++) {
            n += stats->tier_samples[tier];
            n_bytes += stats->tier_bytes[tier];
        }
        assert_int_equal(n, stats->samples);
        assert_int_equal(n_bytes, stats->bytes);
        assert_int_equal(stats->peer_corrupt, 0);
    }
}

static uint64_t
served(const struct job *job)
{
    uint64_t n = 0;

    for (uint32_t rank = 0; rank < job->world; rank++)
        n += job->ranks[rank].stats.peer_served;
    return n;
}

/* Memory of all ranks for the data set and one sample each: every byte is read once, by
 * whichever layout, order and sizes. */
static void
each_byte_is_read_once(void **state)
{
    static const uint32_t kinds[] = {STK_ORDER_TORCH, STK_ORDER_KEYED, STK_ORDER_SEQUENTIAL};

    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (int kind = 0; kind < SET_KINDS; kind++)
            for (size_t at = 0; at < 3; at++) {
                struct job job = job_of(&sets[kind], *method, 100);

                job.order.kind = kinds[at];
                job_run(&job);
                check_sums(&job);
                if (job_origin_bytes(&job) != sets[kind].bytes)
                    print_error("%s, set %d, order %zu: %lu of %lu\n", *method, kind, at,
                                (unsigned long)job_origin_bytes(&job),
                                (unsigned long)sets[kind].bytes);
                assert_int_equal(job_origin_bytes(&job), sets[kind].bytes);
                assert_int_equal(job.ranks[0].stats.bound_bytes, sets[kind].bytes);
                assert_true(job_tier_samples(&job, STK_TIER_PEER) >= served(&job));
                assert_true(served(&job) > 0);
                assert_true(job_tier_samples(&job, STK_TIER_RAM) > sets[kind].n);
            }
}

static void
fixed_batches_are_served(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        struct job job = job_of(&sets[SET_FILES], *method, 100);

        job.opts.layout = STK_LAYOUT_FIXED;
        job.opts.staging_bytes = 0;
        job_run(&job);
        check_sums(&job);
        assert_int_equal(job_origin_bytes(&job), sets[SET_FILES].bytes);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_byte_is_read_once),
        cmocka_unit_test(fixed_batches_are_served),
    };

    return cmocka_run_group_tests(tests, make_sets, remove_sets);
}
