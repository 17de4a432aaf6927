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

static uint64_t
copied(const struct job *job)
{
    uint64_t n = 0;

    for (uint32_t rank = 0; rank < job->world; rank++)
        n += job->ranks[rank].stats.peer_copied;
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
                assert_true(job_tier_samples(&job, STK_TIER_PEER) + copied(&job) >= served(&job));
                assert_true(job_tier_samples(&job, STK_TIER_PEER) + copied(&job) > 0);
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

/* What is not read in an epoch is not read ahead either; what every rank drops costs
 * nothing. */
static void
dropped_tails_are_not_read(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (uint32_t epochs = 1; epochs <= 5; epochs += 4) {
            struct job job = job_of(&sets[SET_SIZES], *method, 100);

            job.opts.drop_last = 1;
            job.opts.epochs = epochs;
            job_run(&job);
            check_sums(&job);
            assert_int_equal(job_origin_bytes(&job), job.ranks[0].stats.bound_bytes);
            assert_true(epochs > 1 || job_origin_bytes(&job) < sets[SET_SIZES].bytes);
        }
}

/* Less memory than data: what nobody has room for is the origin's in every epoch, and no
 * more than what the plan leaves out. */
static void
what_has_no_room_is_read_again(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (uint64_t hundredths = 0; hundredths <= 80; hundredths += 40) {
            const struct set *set = &sets[SET_FILES];
            struct job job = job_of(set, *method, hundredths);

            if (hundredths == 0)
                job.opts.ram_bytes = 2 * largest(set);
            job_run(&job);
            check_sums(&job);
            uint64_t room_bytes = 4 * (job.opts.ram_bytes - job.opts.ram_bytes % largest(set));
            assert_true(job_origin_bytes(&job) >= job.ranks[0].stats.bound_bytes);
            /* Four later epochs; padding repeats a sample in each. */
            assert_true(job_origin_bytes(&job) <=
                        set->bytes + 4 * (set->bytes - room_bytes + largest(set)));
        }
}

/* Samples that crossed the network, for batches and as copies. */
static uint64_t
crossed(const struct job *job)
{
    uint64_t n_bytes = 0;

    for (uint32_t rank = 0; rank < job->world; rank++)
        n_bytes += job->ranks[rank].stats.peer_served_bytes;
    return n_bytes / (job->set->bytes / job->set->n);
}

/* Of the reads from the second epoch on, those out of the rank's own memory. */
static double
local_share(const struct job *job)
{
    uint64_t n = 0, n_local = 0;

    for (uint32_t rank = 0; rank < job->world; rank++)
        for (int epoch = 1; epoch < 8; epoch++) {
            n += job->ranks[rank].epochs[epoch].samples;
            n_local += job->ranks[rank].epochs[epoch].tier_samples[STK_TIER_RAM];
        }
    return (double)n_local / (double)n;
}

/* Shares and bytes of a job whose memory holds so much. */
static double
run_copies(uint32_t order, uint64_t hundredths, uint64_t *ret_crossed)
{
    struct job job = job_of(&sets[SET_FILES], "sync", hundredths);

    job.opts.epochs = 8;
    job.order.kind = order;
    job_run(&job);
    check_sums(&job);
    assert_int_equal(job_origin_bytes(&job), sets[SET_FILES].bytes);
    *ret_crossed = crossed(&job);
    return local_share(&job);
}

/* More memory than data: copies make reads local, and fewer samples cross the network than
 * without; a fixed owner would serve a quarter. */
static void
spare_room_takes_copies(void **state)
{
    static const uint32_t kinds[] = {STK_ORDER_TORCH, STK_ORDER_KEYED};

    (void)state;
    for (size_t at = 0; at < 2; at++) {
        uint64_t least_crossed, crossed_by_copies;
        double least = run_copies(kinds[at], 100, &least_crossed);
        double share = run_copies(kinds[at], 200, &crossed_by_copies);

        print_message("local %.3f and %.3f, crossed %lu and %lu\n", least, share,
                      (unsigned long)least_crossed, (unsigned long)crossed_by_copies);
        assert_true(least >= 0.46);
        assert_true(share >= 0.77);
        assert_true(crossed_by_copies * 10 < least_crossed * 8);
    }
}

/* With room for everything on every rank, nothing crosses the network twice: from the
 * second epoch on all is local. */
static void
with_room_for_all_everything_is_local(void **state)
{
    uint64_t n_crossed;

    (void)state;
    assert_true(run_copies(STK_ORDER_TORCH, 400, &n_crossed) >= 0.98);
    assert_true(n_crossed <= 3 * sets[SET_FILES].n);
}

/* The published policy works, and reads more. */
static void
the_published_policy_reads_more(void **state)
{
    struct job job = job_of(&sets[SET_FILES], "sync", 100);

    (void)state;
    job.opts.policy = STK_POLICY_PAPER;
    job_run(&job);
    check_sums(&job);
    assert_true(job_origin_bytes(&job) > sets[SET_FILES].bytes);
    assert_true(job_origin_bytes(&job) < 4 * sets[SET_FILES].bytes);
}

static void
two_loaders_are_told_apart(struct rank *rank)
{
    stk_loader_opts opts = rank->opts;
    stk_order_opts order = rank->order;
    stk_loader *other;

    order.seed = 99;
    opts.order = &order;
    other = loader_open(rank->engine, rank->dataset, &opts);
    const struct course course = {.set = rank->job->set, .opts = &opts, .end_epoch = 2};
    rank_follow(rank, 0, 2);
    (void)follow(other, &course);
    rank_follow(rank, 2, rank->opts.epochs);
    stk_loader_close(other);
}

static void
several_loaders_of_an_engine(void **state)
{
    struct job job = job_of(&sets[SET_FILES], "sync", 100);

    (void)state;
    job.work = two_loaders_are_told_apart;
    job_run(&job);
    check_sums(&job);
    assert_int_equal(job_origin_bytes(&job), sets[SET_FILES].bytes);
}

/* Seeks drop what is staged and not what is held; ranks need not do the same. */
static void
jump_about(struct rank *rank)
{
    rank_follow(rank, 0, 1);
    if (rank->rank % 2 == 0) {
        assert_int_equal(stk_loader_seek(rank->loader, 3, 0), 0);
        rank_follow(rank, 3, 4);
    }
    assert_int_equal(stk_loader_seek(rank->loader, 0, 0), 0);
    rank_follow(rank, 0, rank->opts.epochs);
}

static void
seeks_do_no_harm(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        struct job job = job_of(&sets[SET_BIG], *method, 100);

        job.opts.batch_size = 2;
        job.work = jump_about;
        job_run(&job);
        assert_int_equal(job_origin_bytes(&job), sets[SET_BIG].bytes);
    }
}

/* ---- another number of ranks ------------------------------------------------------- */

enum { GLOBAL_BATCH = 12, OLD_WORLD = 4, N_FILES = 203, RESUMED_EPOCHS = 3, STEPS = 18 };

static uint8_t seen[RESUMED_EPOCHS][STEPS][N_FILES]; /* by any rank */
static unsigned char saved_state[STK_LOADER_STATE_SIZE];
static size_t saved_bytes;

static void
mark_batch(struct rank *rank, stk_batch *batch)
{
    check_bytes(rank->job->set, batch);
    assert_true(batch->epoch < RESUMED_EPOCHS && batch->epoch_step < STEPS);
    for (uint32_t item = 0; item < batch->count; item++)
        (void)__atomic_fetch_add(&seen[batch->epoch][batch->epoch_step][batch->samples[item]], 1,
                                 __ATOMIC_RELAXED);
    assert_int_equal(stk_loader_release(rank->loader, batch), 0);
}

/* An epoch and seven steps of the next; then the job is over, with batches staged. */
static void
read_and_save(struct rank *rank)
{
    stk_batch batch;

    do {
        assert_int_equal(stk_loader_next(rank->loader, &batch), STK_BATCH);
        mark_batch(rank, &batch);
    } while (batch.epoch == 0 || batch.epoch_step < 6);
    if (rank->rank == 0)
        assert_int_equal(stk_loader_save_state(rank->loader, saved_state, &saved_bytes), 0);
}

static void
read_the_rest(struct rank *rank)
{
    stk_batch batch;

    while (stk_loader_next(rank->loader, &batch) == STK_BATCH)
        mark_batch(rank, &batch);
}

/* Every step is what one rank would read in it, each sample once; what pads the last one
 * of an epoch may come twice. */
static void
check_steps(const stk_order_opts *order)
{
    for (uint64_t epoch = 0; epoch < RESUMED_EPOCHS; epoch++) {
        const stk_order_opts alone = {STK_ORDER_OPTS_INIT, .seed = order->seed,
                                      .kind = order->kind};
        uint64_t n;
        uint64_t *ids = expected_ids(&sets[SET_FILES], &alone, epoch, &n);

        assert_int_equal(n, N_FILES);
        for (uint64_t at = 0; at < n; at++) {
            uint8_t *count = &seen[epoch][at / GLOBAL_BATCH][ids[at]];

            assert_true(*count == 1 || (*count > 1 && at / GLOBAL_BATCH == n / GLOBAL_BATCH));
            *count = 0;
        }
        for (uint64_t step = 0; step < n / GLOBAL_BATCH; step++)
            for (uint64_t sample = 0; sample < n; sample++)
                assert_int_equal(seen[epoch][step][sample], 0);
        free(ids);
    }
}

/* A job that was stopped in the midst of an epoch goes on with fewer ranks, or more: its global
 * batches are what they would have been, whether or not the samples divide by the ranks. */
static void
another_number_of_ranks_goes_on(void **state)
{
    static const uint32_t kinds[] = {STK_ORDER_TORCH, STK_ORDER_KEYED};
    static const uint32_t worlds[] = {1, 2, 3, 6};

    (void)state;
    for (size_t at = 0; at < 2 * sizeof(worlds) / sizeof(worlds[0]); at++) {
        struct job job = job_of(&sets[SET_FILES], "sync", 100);

        memset(seen, 0, sizeof(seen));
        job.opts.epochs = RESUMED_EPOCHS;
        job.opts.batch_size = GLOBAL_BATCH / OLD_WORLD;
        job.order.kind = kinds[at % 2];
        job.work = read_and_save;
        job_run(&job);
        job.world = worlds[at / 2];
        job.opts.batch_size = GLOBAL_BATCH / job.world;
        job.opts.staging_bytes = 4 * job.opts.batch_size * largest(job.set);
        job.opts.state = saved_state;
        job.opts.state_bytes = saved_bytes;
        job.work = read_the_rest;
        job_run(&job);
        check_steps(&job.order);
    }
}

/* ---- what is refused --------------------------------------------------------------- */

static void
other_batch(struct rank *rank)
{
    if (rank->rank == 2)
        rank->opts.batch_size = 6;
}

static void
other_seed(struct rank *rank)
{
    if (rank->rank == 1)
        rank->order.seed = 8;
}

static void
no_room(struct rank *rank)
{
    if (rank->rank == 3)
        rank->opts.ram_bytes = UINT64_C(1) << 40;
}

static void
ranks_that_differ_are_refused(void **state)
{
    struct job job = job_of(&sets[SET_FILES], "sync", 100);

    (void)state;
    job.change = other_batch;
    job_run(&job);
    for (uint32_t rank = 0; rank < 4; rank++) {
        assert_int_equal(job.ranks[rank].opened, STK_E_MISMATCH);
        assert_int_equal(job.ranks[rank].err.rank, 2);
        assert_non_null(
            strstr(job.ranks[rank].err.message, "rank 0 has batch_size 5, rank 2 has 6"));
    }
    job.change = other_seed;
    job_run(&job);
    for (uint32_t rank = 0; rank < 4; rank++) {
        assert_int_equal(job.ranks[rank].opened, STK_E_MISMATCH);
        assert_non_null(strstr(job.ranks[rank].err.message, "order fingerprint"));
    }
    job.change = no_room;
    job_run(&job);
    for (uint32_t rank = 0; rank < 4; rank++)
        assert_int_equal(job.ranks[rank].opened, rank == 3 ? STK_E_INFEASIBLE : -ECANCELED);
    assert_int_equal(job.ranks[0].err.rank, 3);
}

static void
peers_have_to_be_there(void **state)
{
    stk_engine *engine = engine_open("sync", "ram:64M");
    stk_dataset *dataset = dataset_open(engine, &sets[SET_FILES]);
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 5, .policy = STK_POLICY_PAPER};

    (void)state;
    loader_refused(engine, dataset, &opts, -EINVAL, "with comm");
    stk_dataset_close(dataset);
    stk_engine_close(engine);
}

/* ---- faults ------------------------------------------------------------------------ */

static bool
is_in(const uint64_t *ids, uint64_t n, uint64_t sample)
{
    for (uint64_t at = 0; at < n; at++)
        if (ids[at] == sample)
            return true;
    return false;
}

/* One of the bytes that a rank holds goes bad behind its first sending: whoever is sent it
 * sees it and has the sample from the origin. */
static void
spoil_one(struct rank *rank)
{
    uint64_t n;
    uint64_t *own = expected_ids(rank->job->set, &rank->order, 0, &n);
    stk_batch batch;

    if (rank->rank != 1) {
        free(own);
        rank_follow(rank, 0, 1);
        job_meet(rank->job);
        job_meet(rank->job);
        rank_follow(rank, 1, rank->opts.epochs);
        return;
    }
    /* What others have read in the first epoch they were sent, if this rank holds it; where
     * a batch has it is where it is sent from. */
    rank_follow(rank, 0, 1);
    job_meet(rank->job);
    for (int at = 0; at < 10; at++) {
        assert_int_equal(stk_loader_next(rank->loader, &batch), STK_BATCH);
        for (uint32_t item = 0; item < batch.count; item++)
            if (!is_in(own, n, batch.samples[item]))
                *(unsigned char *)(uintptr_t)batch.items[item] ^= 1;
        assert_int_equal(stk_loader_release(rank->loader, &batch), 0);
    }
    job_meet(rank->job);
    while (stk_loader_next(rank->loader, &batch) == STK_BATCH)
        assert_int_equal(stk_loader_release(rank->loader, &batch), 0);
    free(own);
}

static void
wrong_bytes_are_not_used(void **state)
{
    (void)state;
    for (const char *const *comm = comms(); *comm; comm++) {
        struct job job = job_of(&sets[SET_FILES], "sync", 100);
        uint64_t n_corrupt = 0;

        job.comm = *comm;
        /* No further ahead than a batch or two, so that what is spoiled is still to be asked
         * for. */
        job.opts.staging_batches = 2;
        job.opts.epochs = 8;
        job.work = spoil_one;
        job_run(&job);
        for (uint32_t rank = 0; rank < 4; rank++)
            n_corrupt += job.ranks[rank].stats.peer_corrupt;
        assert_true(n_corrupt > 0);
        assert_true(job_origin_bytes(&job) > sets[SET_FILES].bytes);
    }
}

/* A rank that is done early serves the others until they are. */
static void
leave_early(struct rank *rank)
{
    rank_follow(rank, 0, rank->rank == 0 ? 1 : rank->opts.epochs);
}

static void
who_leaves_early_serves_on(void **state)
{
    struct job job = job_of(&sets[SET_FILES], "sync", 100);

    (void)state;
    job.work = leave_early;
    job_run(&job);
    assert_int_equal(job_origin_bytes(&job), sets[SET_FILES].bytes);
    for (uint32_t rank = 1; rank < 4; rank++)
        assert_int_equal(job.ranks[rank].stats.peer_failed, 0);
}

/* The longest that it does is an option; the others then have the origin. */
static void
who_waits_for_nobody_is_done_without(void **state)
{
    struct job job = job_of(&sets[SET_FILES], "sync", 100);

    (void)state;
    job.work = leave_early;
    job.close_timeout_ms = 1;
    job.opts.staging_batches = 2;
    job.opts.epochs = 40;
    job_run(&job);
    assert_true(job_origin_bytes(&job) >= sets[SET_FILES].bytes);
}

/* Ranks of one machine read each other's memory: all of it, of samples that are not short. */
static void
peers_of_a_machine_are_read_in_place(void **state)
{
    (void)state;
    for (const char *const *comm = comms(); *comm; comm++) {
        struct job job = job_of(&sets[SET_BIG], "sync", 100);
        uint64_t n_bytes = 0, mapped_bytes = 0;

        job.comm = *comm;
        job_run(&job);
        check_sums(&job);
        for (uint32_t rank = 0; rank < job.world; rank++) {
            n_bytes += job.ranks[rank].stats.peer_served_bytes;
            mapped_bytes += job.ranks[rank].engine_stats.mapped_bytes;
        }
        assert_true(n_bytes > 0);
        assert_int_equal(mapped_bytes, n_bytes);
        assert_int_equal(job_origin_bytes(&job), sets[SET_BIG].bytes);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_byte_is_read_once),
        cmocka_unit_test(fixed_batches_are_served),
        cmocka_unit_test(peers_of_a_machine_are_read_in_place),
        cmocka_unit_test(dropped_tails_are_not_read),
        cmocka_unit_test(what_has_no_room_is_read_again),
        cmocka_unit_test(spare_room_takes_copies),
        cmocka_unit_test(with_room_for_all_everything_is_local),
        cmocka_unit_test(the_published_policy_reads_more),
        cmocka_unit_test(several_loaders_of_an_engine),
        cmocka_unit_test(seeks_do_no_harm),
        cmocka_unit_test(another_number_of_ranks_goes_on),
        cmocka_unit_test(ranks_that_differ_are_refused),
        cmocka_unit_test(peers_have_to_be_there),
        cmocka_unit_test(wrong_bytes_are_not_used),
        cmocka_unit_test(who_leaves_early_serves_on),
        cmocka_unit_test(who_waits_for_nobody_is_done_without),
    };

    return cmocka_run_group_tests(tests, make_sets, remove_sets);
}
