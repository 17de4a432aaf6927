/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks whose SSDs hold samples for each other: every batch is right on every rank, the
 * origin gives each byte once where memory and SSDs of all together hold the data set, and
 * nothing to the next job, whatever its order and wherever in it it begins.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader/warm.h"
#include "policy/assign.h"
#include "ranks_util.h"

enum { WORLD = 4 };

static struct set sets[SET_KINDS];
static char caches[64];

/* Indexes are made beforehand: an SSD keeps samples for an index file, and of those that
 * several ranks make at the same time the last one stays. */
static int
make_sets(void **state)
{
    stk_engine *engine = engine_open("sync", "ram:64M");

    for (int kind = 0; kind < SET_KINDS; kind++) {
        set_make(&sets[kind], (enum set_kind)kind, kind == SET_BIG || kind == SET_ROWS ? 61 : 203);
        stk_dataset_close(dataset_open(engine, &sets[kind]));
    }
    stk_engine_close(engine);
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

static void
remove_caches(void)
{
    char command[128];

    (void)snprintf(command, sizeof(command), "rm -rf %s", caches);
    assert_int_equal(system(command), 0); /* NOLINT(concurrency-mt-unsafe,cert-env33-c) */
}

static int
new_caches(void **state)
{
    (void)state;
    (void)snprintf(caches, sizeof(caches), "/tmp/stoker-peers-ssd-XXXXXX");
    assert_non_null(mkdtemp(caches));
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        char path[80];

        (void)snprintf(path, sizeof(path), "%s/%u", caches, rank);
        assert_int_equal(mkdir(path, 0755), 0);
    }
    return 0;
}

static int
old_caches(void **state)
{
    (void)state;
    remove_caches();
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

/* Memory and SSDs of all for hundredths of the data set each, and one sample more for each
 * rank and tier. */
static struct job
job_of(const struct set *set, const char *method, uint64_t ram, uint64_t ssd)
{
    struct job job = {
        .set = set,
        .method = method,
        .tiers = "ram:64M",
        .caches = caches,
        .ssd_bytes = set->bytes * ssd / 400 + largest(set),
        .world = WORLD,
        .opts = {STK_LOADER_OPTS_INIT, .batch_size = 5, .epochs = 4, .layout = STK_LAYOUT_RAW},
        .order = {STK_ORDER_OPTS_INIT, .seed = 7},
        .close_timeout_ms = 20000,
    };

    job.opts.ram_bytes = set->bytes * ram / 400 + largest(set);
    job.opts.staging_bytes = 4 * job.opts.batch_size * largest(set);
    return job;
}

static uint64_t
sum_of(const struct job *job, uint64_t (*value)(const stk_loader_stats *stats))
{
    uint64_t sum = 0;

    for (uint32_t rank = 0; rank < job->world; rank++)
        sum += value(&job->ranks[rank].stats);
    return sum;
}

static uint64_t
failed(const stk_loader_stats *stats)
{
    return stats->peer_failed + stats->peer_corrupt;
}

static uint64_t
served(const stk_loader_stats *stats)
{
    return stats->peer_served;
}

static uint64_t
written(const stk_loader_stats *stats)
{
    return stats->ssd_written_bytes;
}

static uint64_t
kept(const stk_loader_stats *stats)
{
    return stats->ssd_bytes;
}

static uint64_t
refused(const stk_loader_stats *stats)
{
    return stats->ssd_refused;
}

static void
run_and_expect(struct job *job, uint64_t origin_bytes)
{
    job_run(job);
    if (job_origin_bytes(job) != origin_bytes || job->ranks[0].stats.bound_bytes != origin_bytes)
        print_error("%s, set %u, memory %lu, SSD %lu: %lu from the origin, bound %lu, not %lu\n",
                    job->method, job->set->kind, (unsigned long)job->opts.ram_bytes,
                    (unsigned long)job->ssd_bytes, (unsigned long)job_origin_bytes(job),
                    (unsigned long)job->ranks[0].stats.bound_bytes, (unsigned long)origin_bytes);
    assert_int_equal(job_origin_bytes(job), origin_bytes);
    assert_int_equal(job->ranks[0].stats.bound_bytes, origin_bytes);
    assert_int_equal(sum_of(job, failed), 0);
}

/* However the data set is divided between memory and SSDs. */
static void
each_byte_is_read_once(void **state)
{
    static const uint64_t rams[] = {40, 4, 100};

    for (const char *const *method = methods(); *method; method++)
        for (int kind = 0; kind < SET_KINDS; kind++)
            for (size_t at = 0; at < 3; at++) {
                struct job job = job_of(&sets[kind], *method, rams[at], 104 - rams[at]);

                run_and_expect(&job, sets[kind].bytes);
                assert_true(sum_of(&job, served) > 0);
                assert_true(rams[at] == 100 || sum_of(&job, kept) > 0);
                remove_caches();
                (void)new_caches(state);
            }
}

/* Samples in slots; and the published policy, which holds on SSDs, too, and reads more. */
static void
batches_are_decoded_and_dropped(void **state)
{
    for (const char *const *method = methods(); *method; method++) {
        struct job job = job_of(&sets[SET_FILES], *method, 40, 64);

        job.opts.layout = STK_LAYOUT_FIXED;
        job.opts.staging_bytes = 0;
        run_and_expect(&job, sets[SET_FILES].bytes);
        remove_caches();
        (void)new_caches(state);
        job = job_of(&sets[SET_SIZES], *method, 40, 64);
        job.order.kind = STK_ORDER_KEYED;
        job.opts.policy = STK_POLICY_PAPER;
        job_run(&job);
        assert_true(job_origin_bytes(&job) >= sets[SET_SIZES].bytes);
        assert_int_equal(sum_of(&job, failed), 0);
        remove_caches();
        (void)new_caches(state);
    }
}

/* Peers hold what a rank has no memory for: all ranks' batches wait for each other's SSDs
 * while their memory is full, and all come to their end. */
static void
full_memory_serves(void **state)
{
    for (const char *const *method = methods(); *method; method++) {
        struct job job = job_of(&sets[SET_BIG], *method, 0, 100);

        job.opts.ram_bytes = 1;
        job.opts.batch_size = 4;
        job.opts.staging_bytes = 2 * 4 * largest(&sets[SET_BIG]);
        job.opts.epochs = 6;
        job_run(&job);
        assert_int_equal(job_origin_bytes(&job), sets[SET_BIG].bytes);
        remove_caches();
        (void)new_caches(state);
    }
}

/* The next job finds on the SSDs what the last one left there, by whichever rank it would
 * hold it: with another seed, from a later epoch on, and with less memory. */
static void
the_next_job_reads_nothing(void **state)
{
    for (const char *const *method = methods(); *method; method++)
        for (int kind = 0; kind < SET_KINDS; kind++) {
            /* Each SSD has room for all that its rank may hold. */
            struct job job = job_of(&sets[kind], *method, 40, 150);

            run_and_expect(&job, sets[kind].bytes);
            run_and_expect(&job, 0);
            job.order.seed = 99;
            job.order.kind = STK_ORDER_KEYED;
            run_and_expect(&job, 0);
            job.opts.ram_bytes = largest(&sets[kind]);
            run_and_expect(&job, 0);
            assert_true(sum_of(&job, written) < sets[kind].bytes);
            assert_true(job_tier_samples(&job, STK_TIER_SSD) > 0);
            remove_caches();
            (void)new_caches(state);
        }
}

/* A rank that comes without its SSD: the others give what they have, and what was on it comes
 * from the origin once more. */
static void
one_rank_comes_cold(void **state)
{
    struct job job = job_of(&sets[SET_FILES], "sync", 4, 104);
    char command[160];

    (void)state;
    run_and_expect(&job, sets[SET_FILES].bytes);
    uint64_t lost_bytes = job.ranks[2].stats.ssd_bytes;
    (void)snprintf(command, sizeof(command), "rm -rf %s/2/*", caches);
    assert_int_equal(system(command), 0); /* NOLINT(concurrency-mt-unsafe,cert-env33-c) */
    job.order.seed = 8;
    job_run(&job);
    assert_true(lost_bytes > 0);
    assert_int_equal(job_origin_bytes(&job), lost_bytes);
    assert_int_equal(sum_of(&job, failed), 0);
}

/* Spoils the middle of every data file of a rank's SSD. */
static void
spoil(uint32_t rank)
{
    char command[256];

    (void)snprintf(command, sizeof(command),
                   "find %s/%u -type f -size +64k -exec dd if=/dev/zero of={} bs=4096 seek=8 "
                   "count=4 conv=notrunc status=none \\;",
                   caches, rank);
    assert_int_equal(system(command), 0); /* NOLINT(concurrency-mt-unsafe,cert-env33-c) */
}

/* What has gone bad on an SSD is noticed by the rank that holds it, not sent, and read from
 * the origin instead: batches are right, which following them has shown. */
static void
what_is_spoilt_is_not_served(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        struct job job = job_of(&sets[SET_BIG], *method, 4, 104);

        run_and_expect(&job, sets[SET_BIG].bytes);
        spoil(1);
        job_run(&job);
        assert_true(sum_of(&job, refused) > 0);
        assert_true(job_origin_bytes(&job) > 0);
        assert_true(job_origin_bytes(&job) < sets[SET_BIG].bytes / 2);
        remove_caches();
        (void)new_caches(state);
    }
}

/* Runs a job whose SSDs have room for the data set several times; those of the first n_slow
 * ranks from rank 1 on have a rate. Returns rank 1's part of what all have served;
 * *ret_ssd_bytes: what all SSDs hold, which is the data set if nobody serves for others. */
static double
run_rates(const char *method, const char *slow, uint32_t n_slow, uint64_t *ret_ssd_bytes)
{
    struct job job = job_of(&sets[SET_BIG], method, 4, 400);

    job.opts.batch_size = 3;
    job.opts.staging_bytes = 2 * 3 * largest(&sets[SET_BIG]);
    job.opts.epochs = n_slow == 1 ? 12 : 6;
    for (uint32_t rank = 0; rank < n_slow; rank++)
        job.ssd_shapes[(rank + 1) % WORLD] = slow;
    run_and_expect(&job, sets[SET_BIG].bytes);
    *ret_ssd_bytes = sum_of(&job, kept);
    remove_caches();
    (void)new_caches(NULL);
    return (double)job.ranks[1].stats.peer_served / (double)sum_of(&job, served);
}

/* One rank's SSD is slow: others come to serve what it holds, and nothing comes from the
 * origin twice for it. Where all are slow alike each goes on serving about its part; that then
 * nothing at all is decided is test_policy_relief's and test_sim_nodes', since epochs of a second
 * on a busy machine are not alike. */
static void
who_is_slow_is_relieved(void **state)
{
    uint64_t set_bytes = sets[SET_BIG].bytes;

    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        uint64_t ssd_bytes;
        double share = run_rates(*method, "rbps=500k", 1, &ssd_bytes);

        print_message("the slow one serves %.3f, SSDs hold the data set %.2f times\n", share,
                      (double)ssd_bytes / (double)set_bytes);
        assert_true(share < 0.2);
        assert_true(ssd_bytes > set_bytes + set_bytes / 10);
        share = run_rates(*method, "rbps=1M", WORLD, &ssd_bytes);
        assert_true(share > 0.13 && share < 0.37);
    }
}

static void
lists_are_checked(void **state)
{
    uint16_t rank_of[300];
    const unsigned char good[] = {0, 1, 0, 0xa4, 0x02}; /* 0, 2, 3, 296 */
    const unsigned char last[] = {0xab, 0x02};          /* 299 */
    const unsigned char endless[] = {0x80};
    unsigned char huge[16];

    (void)state;
    memset(rank_of, 0xff, sizeof(rank_of));
    memset(huge, 0xff, sizeof(huge));
    assert_int_equal(sti_warm_decode(rank_of, 300, 5, good, 3), 0);
    assert_true(rank_of[0] == 5 && rank_of[1] == STI_ASSIGN_COLD && rank_of[2] == 5);
    assert_int_equal(rank_of[3], 5);
    assert_int_equal(sti_warm_decode(rank_of, 300, 6, good, 5), 0);
    assert_int_equal(rank_of[296], 6);
    assert_int_equal(rank_of[0], 5); /* whoever comes first */
    assert_int_equal(sti_warm_decode(rank_of, 296, 6, good, 5), -EBADMSG);
    assert_int_equal(sti_warm_decode(rank_of, 300, 7, last, 2), 0);
    assert_int_equal(rank_of[299], 7);
    assert_int_equal(sti_warm_decode(rank_of, 299, 7, last, 2), -EBADMSG);
    assert_int_equal(sti_warm_decode(rank_of, 300, 7, endless, 1), -EBADMSG);
    assert_int_equal(sti_warm_decode(rank_of, 300, 7, huge, sizeof(huge)), -EBADMSG);
    /* 1.28 M samples on 16 ranks, 14 M on 1,024; 100 M on 4,096 are too many. */
    assert_true(sti_warm_is_told(16, 80000) && sti_warm_is_told(1024, 27400));
    assert_false(sti_warm_is_told(4096, 49000));
    assert_true(sti_warm_is_told(2, STI_WARM_MOST_BYTES));
    assert_false(sti_warm_is_told(2, STI_WARM_MOST_BYTES + 1));
    assert_true(sti_warm_is_told(65535, 0));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_byte_is_read_once, new_caches, old_caches),
        cmocka_unit_test_setup_teardown(batches_are_decoded_and_dropped, new_caches, old_caches),
        cmocka_unit_test_setup_teardown(full_memory_serves, new_caches, old_caches),
        cmocka_unit_test_setup_teardown(the_next_job_reads_nothing, new_caches, old_caches),
        cmocka_unit_test_setup_teardown(one_rank_comes_cold, new_caches, old_caches),
        cmocka_unit_test_setup_teardown(what_is_spoilt_is_not_served, new_caches, old_caches),
        cmocka_unit_test_setup_teardown(who_is_slow_is_relieved, new_caches, old_caches),
        cmocka_unit_test(lists_are_checked),
    };

    return cmocka_run_group_tests(tests, make_sets, remove_sets);
}
