/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of one machine and its tiers: what the tiers are given is the machine's, each rank has
 * its part; one cache directory serves them all, and the next job, of as many ranks or not.
 */
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <pthread.h>
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

#include "ranks_util.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define SAMPLES 240u       /* ranks have equal parts of them */
#define SAMPLE_BYTES 3000u /* of SET_FILES */

static struct set set;
static char cache[64];
static char tiers[160];

static int
remove_one(const char *path, const struct stat *about, int type, struct FTW *at)
{
    (void)about;
    (void)type;
    (void)at;
    return remove(path);
}

static void
new_cache(void)
{
    if (cache[0])
        (void)nftw(cache, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    (void)snprintf(cache, sizeof(cache), "/tmp/stoker-node-XXXXXX");
    assert_non_null(mkdtemp(cache));
}

static int
make(void **state)
{
    set_make(&set, SET_FILES, SAMPLES);
    return watchdog(state);
}

static int
clean(void **state)
{
    (void)state;
    set_remove(&set);
    (void)nftw(cache, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}

/* On-disk bytes below the cache directory. */
static uint64_t disk_bytes;

static int
add_bytes(const char *path, const struct stat *about, int type, struct FTW *at)
{
    (void)path;
    (void)at;
    if (type == FTW_F)
        disk_bytes += (uint64_t)about->st_blocks * 512;
    return 0;
}

static uint64_t
cached_bytes(void)
{
    disk_bytes = 0;
    assert_int_equal(nftw(cache, add_bytes, 16, FTW_PHYS), 0);
    return disk_bytes;
}

static struct job
job_of(uint32_t world, uint64_t ssd_bytes)
{
    struct job job = {
        .set = &set,
        .method = "sync",
        .tiers = tiers,
        .world = world,
        .opts = {STK_LOADER_OPTS_INIT, .batch_size = 5, .epochs = 1, .layout = STK_LAYOUT_RAW},
        .order = {STK_ORDER_OPTS_INIT, .seed = 7},
        .close_timeout_ms = 20000,
    };

    (void)snprintf(tiers, sizeof(tiers), "ssd:%s:%lu", cache, (unsigned long)ssd_bytes);
    return job;
}

static void
check_tiers(const struct job *job)
{
    for (uint32_t rank = 0; rank < job->world; rank++) {
        assert_int_equal(job->ranks[rank].opened, 0);
        assert_int_equal(job->ranks[rank].stats.ssd_dropped, 0);
        assert_int_equal(job->ranks[rank].warned, -ENOENT);
    }
}

/* Four ranks fill one directory; the next jobs find it warm, with as many ranks, with fewer
 * and with more. */
static void
one_directory_serves_all_ranks(void **state)
{
    static const uint32_t worlds[] = {4, 4, 2, 8, 3, 4};

    (void)state;
    new_cache();
    for (size_t at = 0; at < sizeof(worlds) / sizeof(worlds[0]); at++) {
        static struct job job;

        job = job_of(worlds[at], set.bytes + 8 * SAMPLE_BYTES);

        job_run(&job);
        check_tiers(&job);
        print_message("%u ranks: %lu from the origin, %lu on the disk\n", worlds[at],
                      (unsigned long)job_origin_bytes(&job), (unsigned long)cached_bytes());
        assert_int_equal(job_origin_bytes(&job), at == 0 ? set.bytes : 0);
        /* Headers, and a catalogue of one block for each rank there ever was. */
        assert_true(cached_bytes() <= set.bytes + set.bytes / 8 + 16 * 4 * KIB);
    }
}

/* Samples that the tier had, of those that a job has read. */
static double
warm_share(const struct job *job)
{
    uint64_t n = 0;

    for (uint32_t rank = 0; rank < job->world; rank++)
        n += job->ranks[rank].stats.samples;
    return (double)job_tier_samples(job, STK_TIER_SSD) / (double)n;
}

/* Room for half of the data set: the ranks together have no more than that, whatever their
 * number, and the next job uses all that there is. */
static void
the_capacity_is_the_machines(void **state)
{
    static const uint32_t worlds[] = {4, 4, 2, 8};

    (void)state;
    new_cache();
    for (size_t at = 0; at < sizeof(worlds) / sizeof(worlds[0]); at++) {
        static struct job job;

        job = job_of(worlds[at], set.bytes / 2);
        job_run(&job);
        print_message("%u ranks: %.3f from the tier, %lu on the disk\n", worlds[at],
                      warm_share(&job), (unsigned long)cached_bytes());
        for (uint32_t rank = 0; rank < job.world; rank++) {
            assert_int_equal(job.ranks[rank].stats.ssd_dropped, 0);
            assert_int_equal(job.ranks[rank].engine_stats.node_ranks, job.world);
            assert_int_equal(job.ranks[rank].engine_stats.node_rank, rank);
            assert_int_equal(job.ranks[rank].engine_stats.ssd_bytes, set.bytes / 2 / job.world);
        }
        assert_true(cached_bytes() <= set.bytes / 2 + set.bytes / 16 + 16 * 4 * KIB);
        if (at > 0)
            assert_true(warm_share(&job) > 0.45 && warm_share(&job) < 0.55);
    }
}

/* A cache of another data set goes when its room is needed, those of this one's ranks stay. */
static void
other_data_sets_make_room(void **state)
{
    static struct job job;
    static struct set other;

    (void)state;
    new_cache();
    set_make(&other, SET_FILES, SAMPLES);
    job = job_of(4, set.bytes + 8 * SAMPLE_BYTES);
    job.set = &other;
    job_run(&job);
    assert_int_equal(job_origin_bytes(&job), other.bytes);
    for (int round = 0; round < 2; round++) {
        job = job_of(4, set.bytes + 8 * SAMPLE_BYTES);
        job_run(&job);
        assert_int_equal(job_origin_bytes(&job), round == 0 ? set.bytes : 0);
    }
    assert_true(cached_bytes() <= set.bytes + set.bytes / 8 + 16 * 4 * KIB);
    set_remove(&other);
}

static void
each_rank_may_have_its_own(void **state)
{
    static struct job job;

    (void)state;
    new_cache();
    for (int round = 0; round < 2; round++) {
        job = job_of(4, set.bytes / 4 + SAMPLE_BYTES);
        job.tiers_per_rank = 1;
        job_run(&job);
        check_tiers(&job);
        for (uint32_t rank = 0; rank < job.world; rank++)
            assert_int_equal(job.ranks[rank].engine_stats.ssd_bytes, set.bytes / 4 + SAMPLE_BYTES);
        assert_int_equal(job_origin_bytes(&job), round == 0 ? set.bytes : 0);
    }
}

/* ---- memory ---- */

static void
wants_more_than_its_part(struct rank *rank)
{
    rank->opts.ram_bytes = 4 * MIB + (rank->rank == 2);
}

static void
memory_is_divided(void **state)
{
    static struct job job;

    (void)state;
    new_cache();
    job = job_of(4, MIB);
    job.tiers = "ram:16M";
    job_run(&job);
    for (uint32_t rank = 0; rank < 4; rank++)
        assert_int_equal(job.ranks[rank].engine_stats.ram_bytes, 4 * MIB);
    /* One more than its part is refused, and why is said. */
    job.change = wants_more_than_its_part;
    job_run(&job);
    assert_int_equal(job.ranks[2].opened, STK_E_INFEASIBLE);
    assert_non_null(strstr(job.ranks[2].err.message, "4 ranks share them"));
    /* To each its own. */
    job = job_of(4, MIB);
    job.tiers = "ram:16M";
    job.tiers_per_rank = 1;
    job.change = wants_more_than_its_part;
    job_run(&job);
    for (uint32_t rank = 0; rank < 4; rank++) {
        assert_int_equal(job.ranks[rank].opened, 0);
        assert_int_equal(job.ranks[rank].engine_stats.ram_bytes, 16 * MIB);
    }
    /* On two machines, of which one has a rank only. */
    job = job_of(3, MIB);
    job.tiers = "ram:16M";
    job.per_node = 2;
    job_run(&job);
    for (uint32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(job.ranks[rank].engine_stats.ram_bytes, rank == 2 ? 16 * MIB : 8 * MIB);
        assert_int_equal(job.ranks[rank].engine_stats.node_rank, rank == 1);
    }
}

/* ---- limits ---- */

enum { MOST = 32 };

struct opener {
    pthread_t thread;
    stk_comm_hub *hub;
    pthread_barrier_t *barrier;
    unsigned char *cards;
    uint32_t rank;
    uint32_t world;
    int rc;
    stk_error err;
};

static int
swap(void *context, const void *mine, size_t n_bytes, void *all)
{
    struct opener *opener = context;

    memcpy(opener->cards + opener->rank * n_bytes, mine, n_bytes);
    (void)pthread_barrier_wait(opener->barrier);
    memcpy(all, opener->cards, opener->world * n_bytes);
    (void)pthread_barrier_wait(opener->barrier);
    return 0;
}

static void *
open_and_close(void *context)
{
    struct opener *opener = context;
    const stk_comm_opts comm = {STK_COMM_OPTS_INIT,     .rank = opener->rank,
                                .world = opener->world, .hub = opener->hub,
                                .exchange = swap,       .exchange_context = opener};
    const stk_engine_opts opts = {STK_ENGINE_OPTS_INIT, .io_method = "sync", .tiers = tiers,
                                  .workers = 1,         .io_threads = 1,     .comm = &comm};
    stk_engine *engine = NULL;

    opener->rc = stk_engine_open(&engine, &opts, &opener->err);
    (void)pthread_barrier_wait(opener->barrier);
    stk_engine_close(engine);
    return NULL;
}

static void
open_many(struct opener *openers, uint32_t world)
{
    pthread_barrier_t barrier;
    stk_comm_hub *hub;
    unsigned char *cards = calloc(world, 1 << 16);

    assert_non_null(cards);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, world), 0);
    assert_int_equal(stk_comm_hub_new(&hub, world, NULL), 0);
    for (uint32_t rank = 0; rank < world; rank++) {
        openers[rank] = (struct opener){
            .hub = hub, .barrier = &barrier, .cards = cards, .rank = rank, .world = world};
        assert_int_equal(
            pthread_create(&openers[rank].thread, NULL, open_and_close, &openers[rank]), 0);
    }
    for (uint32_t rank = 0; rank < world; rank++)
        assert_int_equal(pthread_join(openers[rank].thread, NULL), 0);
    stk_comm_hub_free(hub);
    (void)pthread_barrier_destroy(&barrier);
    free(cards);
}

static void
so_many_share_a_directory(void **state)
{
    static struct opener openers[MOST + 1];

    (void)state;
    new_cache();
    (void)snprintf(tiers, sizeof(tiers), "ssd:%s:1M", cache);
    open_many(openers, MOST);
    for (uint32_t rank = 0; rank < MOST; rank++)
        assert_int_equal(openers[rank].rc, 0);
    open_many(openers, MOST + 1);
    for (uint32_t rank = 0; rank <= MOST; rank++) {
        assert_int_equal(openers[rank].rc, -E2BIG);
        assert_non_null(strstr(openers[rank].err.message, "33 ranks of this machine share"));
        assert_non_null(strstr(openers[rank].err.message, "32 are the most"));
    }
    /* Memory has no such limit. */
    (void)snprintf(tiers, sizeof(tiers), "ram:16M");
    open_many(openers, MOST + 1);
    assert_int_equal(openers[MOST].rc, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_directory_serves_all_ranks),
        cmocka_unit_test(the_capacity_is_the_machines),
        cmocka_unit_test(other_data_sets_make_room),
        cmocka_unit_test(each_rank_may_have_its_own),
        cmocka_unit_test(memory_is_divided),
        cmocka_unit_test(so_many_share_a_directory),
    };

    return cmocka_run_group_tests(tests, make, clean);
}
