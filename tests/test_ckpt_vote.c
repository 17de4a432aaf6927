/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several writers: whoever loses its part, nobody commits, everybody is told, and the old
 * checkpoint stays; with the power cut at every step of it; and with writers that really
 * are threads.
 */
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

#include <cmocka.h>

#include "base/mem.h"
#include "base/thread.h"
#include "ckpt/names.h"
#include "ckpt/scan.h"
#include "ckpt_machine.h"

/* ---- on a disk that fails ---------------------------------------------------------- */

/* One writer of several loses its part: nobody commits, everybody is told, the old one
 * stays. */
static void
test_vote_fails_at_each_writer(void **unused)
{
    (void)unused;
    for (uint32_t writer = 0; writer < WORLD_MAX; writer++) {
        struct scenario scenario = {.world = WORLD_MAX, .n_roots = 1, .keep = 2};
        struct machine machine = {0};
        char part[32];
        struct sti_fault_rule rule = {.op_idx = STI_FAULT_ANY,
                                      .kinds = BIT(STI_AIO_SYNC),
                                      .path_part = part,
                                      .effect = STI_FAULT_FAIL,
                                      .error = EIO};

        (void)snprintf(part, sizeof(part), "part-%u-", writer);
        fault_start(&machine.disk);
        assert_int_equal(machine_start(&machine, &scenario), 0);
        assert_int_equal(machine_save_and_wait(&machine, 1), 0);
        assert_int_equal(sti_fault_add_rule(machine.disk.fault, &rule), 0);
        assert_int_equal(machine_save(&machine, 2), 0);
        machine_run_loop(&machine);
        for (uint32_t at = 0; at < WORLD_MAX; at++) {
            stk_error err;

            assert_int_equal(sti_saver_wait(machine.writers[at].saver, STI_LEVEL_DURABLE, 0, &err),
                             -EIO);
            assert_non_null(strstr(err.message, "step 2"));
            if (at == writer)
                assert_non_null(strstr(err.message, "sync"));
            else
                assert_int_equal(err.rank, writer);
        }
        sti_fault_clear_rules(machine.disk.fault);
        assert_int_equal(machine_recover(&machine.disk, !machine.has_failed_syncs), 1);
        assert_int_equal(machine_save_and_wait(&machine, 2),
                         0); /* no file of the lost one is reused */
        assert_int_equal(machine_recover(&machine.disk, !machine.has_failed_syncs), 2);
        machine_stop(&machine);
        fault_stop(&machine.disk);
    }
}

/* Step 1 is saved, step 2 lost by one writer, step 3 saved. ret_steps: the disk's before
 * and after step 2. */
static void
lose_second(struct machine *machine, const struct scenario *scenario, uint32_t writer,
            uint64_t ret_steps[2])
{
    char part[32];
    struct sti_fault_rule rule = {.op_idx = STI_FAULT_ANY,
                                  .kinds = BIT(STI_AIO_SYNC),
                                  .path_part = part,
                                  .effect = STI_FAULT_FAIL,
                                  .error = EIO};

    (void)snprintf(part, sizeof(part), "part-%u-", writer);
    if (machine_start(machine, scenario) < 0 || machine_save_and_wait(machine, 1) < 0)
        return;
    assert_int_equal(sti_fault_add_rule(machine->disk.fault, &rule), 0);
    ret_steps[0] = sti_fault_steps(machine->disk.fault);
    int rc = machine_save_and_wait(machine, 2);
    ret_steps[1] = sti_fault_steps(machine->disk.fault);
    sti_fault_clear_rules(machine->disk.fault);
    assert_int_equal(rc, -EIO);
    if (!sti_fault_is_off(machine->disk.fault))
        (void)machine_save_and_wait(machine, 3);
}

/* Each writer in turn loses its part, and the power is cut at each step of that. */
static void
test_power_cut_of_lost_votes(void **unused)
{
    const struct scenario scenario = {.world = WORLD_MAX, .n_roots = 0, .keep = 1};
    (void)unused;

    for (uint32_t writer = 0; writer < scenario.world; writer++) {
        struct machine machine = {0};
        uint64_t steps[2];
        uint64_t unused_steps[2];

        fault_start(&machine.disk);
        lose_second(&machine, &scenario, writer, steps);
        assert_int_equal(machine.acknowledged, 3);
        machine_stop(&machine);
        fault_stop(&machine.disk);
        for (uint64_t step = steps[0]; step <= steps[1]; step++) {
            machine = (struct machine){0};
            fault_start(&machine.disk);
            sti_fault_crash_at(machine.disk.fault, step);
            lose_second(&machine, &scenario, writer, unused_steps);
            machine_check_all_left(&machine, step);
            machine_stop(&machine);
            fault_stop(&machine.disk);
        }
    }
}

/* ---- threads ----------------------------------------------------------------------- */

#define N_STEPS 40

/* A writer with a loop of its own. */
struct member {
    struct sti_aio *aio;
    struct sti_saver *saver;
    struct sti_root root;
    pthread_t thread;
    uint32_t is_over; /* atomic */
};

static struct sti_pool *pool;

static void *
play(void *context)
{
    struct member *member = context;

    while (!__atomic_load_n(&member->is_over, __ATOMIC_ACQUIRE)) {
        uint64_t wait_ns = sti_saver_step(member->saver);

        (void)sti_aio_wait(member->aio, wait_ns);
    }
    return NULL;
}

static void
start_member(struct member *member, uint32_t idx, struct sti_vote *vote, const char *dir,
             const char *method)
{
    const struct sti_aio_opts how = {
        .method = method, .queue_depth = 32, .max_open_files = 8, .pool = pool};

    *member = (struct member){.root = {.dir_fd = -1, .path = sti_mem_strdup(".")}};
    assert_int_equal(sti_aio_open(&member->aio, &how, NULL), 0);
    struct sti_root_open root = {.aio = member->aio, .session = idx + 1, .is_buffered = true};
    assert_int_equal(sti_root_open(&member->root, dir, &root, NULL), 0);
    struct sti_saver_opts opts = {.aio = member->aio,
                                  .pool = pool,
                                  .roots = &member->root,
                                  .n_roots = 1,
                                  .slots = 2,
                                  .slot_bytes = 65536,
                                  .chunk_bytes = 4096,
                                  .outstanding = 1,
                                  .keep = 2,
                                  .writer = idx,
                                  .world = WORLD_MAX,
                                  .session = 7,
                                  .vote = vote};
    assert_int_equal(sti_saver_new(&member->saver, &opts, NULL), 0);
    assert_int_equal(pthread_create(&member->thread, NULL, play, member), 0);
}

static void
stop_member(struct member *member)
{
    sti_saver_drain(member->saver);
    __atomic_store_n(&member->is_over, 1, __ATOMIC_RELEASE);
    sti_aio_wake(member->aio);
    assert_int_equal(pthread_join(member->thread, NULL), 0);
    sti_saver_free(member->saver);
    sti_root_close(&member->root);
    sti_aio_close(member->aio);
}

/* Puts a file where a writer will want to make its part, so that it cannot. */
static void
obstruct(const char *dir, uint64_t step, uint64_t serial, uint32_t writer)
{
    char id[STI_ID_SIZE];
    char name[STI_NAME_SIZE];
    char path[512];

    sti_name_id(id, 7, serial);
    sti_name_make(name, STI_NAME_PARTS, step, id);
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(mkdir(path, 0777), 0);
    (void)snprintf(path, sizeof(path), "%s/%s/part-%u-0.bin", dir, name, writer);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

static void
save_on_all(struct member *members, uint64_t step)
{
    static char bytes[100000];
    const uint64_t shape = sizeof(bytes);
    const struct sti_layout_input input = {
        .name = "t", .dtype = "U8", .shape = &shape, .dims = 1, .owner = STI_LAYOUT_SHARED};
    const struct sti_saver_tensor tensor = {.data = bytes};
    const struct sti_saver_request request = {
        .step = step, .inputs = &input, .tensors = &tensor, .n_tensors = 1};

    memset(bytes, (int)step, sizeof(bytes));
    for (uint32_t at = 0; at < WORLD_MAX; at++)
        assert_int_equal(sti_saver_save(members[at].saver, &request, NULL), 0);
}

/* Of each step all writers are told the same. */
static void
expect_same(struct member *members, uint32_t loser)
{
    for (uint32_t at = 0; at < WORLD_MAX; at++) {
        stk_error err = {0};
        int rc = sti_saver_wait(members[at].saver, STI_LEVEL_DURABLE, UINT64_MAX, &err);

        assert_int_equal(rc, loser < WORLD_MAX ? -EEXIST : 0);
        if (loser < WORLD_MAX && at != loser)
            assert_int_equal(err.rank, loser);
    }
}

static uint64_t
newest(struct member *member, const char *dir)
{
    struct sti_aio_opts how = {
        .method = "sync", .queue_depth = 8, .max_open_files = 8, .pool = pool};
    struct sti_scan scan = {.dir_fd = member->root.dir_fd, .path = dir};
    struct sti_manifest manifest;
    uint32_t n_skipped;

    assert_int_equal(sti_aio_open(&scan.aio, &how, NULL), 0);
    assert_int_equal(sti_scan_latest(&scan, &manifest, &n_skipped, NULL), 0);
    assert_int_equal(n_skipped, 0);
    uint64_t step = manifest.step;
    sti_manifest_fini(&manifest);
    sti_aio_close(scan.aio);
    return step;
}

static int
remove_one(const char *path, const struct stat *found, int type, struct FTW *walk)
{
    (void)found;
    (void)type;
    (void)walk;
    return remove(path);
}

static void
vote_in_threads(const char *method)
{
    const char *base = getenv("STOKER_TEST_DIR");
    struct member members[WORLD_MAX];
    struct sti_vote *vote;
    char dir[256];

    (void)snprintf(dir, sizeof(dir), "%s/stoker-vote-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(sti_pool_open(&pool, 2, 4), 0);
    assert_int_equal(sti_vote_new(&vote, WORLD_MAX), 0);
    for (uint32_t at = 0; at < WORLD_MAX; at++)
        start_member(&members[at], at, vote, dir, method);
    uint64_t last = 0;
    for (uint64_t step = 0; step < N_STEPS; step++) {
        uint32_t loser = step % (WORLD_MAX + 2) < 2 ? WORLD_MAX : step % (WORLD_MAX + 2) - 2;

        if (loser < WORLD_MAX)
            obstruct(dir, step, step, loser);
        save_on_all(members, step);
        expect_same(members, loser);
        last = loser == WORLD_MAX ? step : last;
        assert_int_equal(newest(&members[0], dir), last);
    }
    for (uint32_t at = 0; at < WORLD_MAX; at++)
        stop_member(&members[at]);
    sti_vote_free(vote);
    sti_pool_close(pool);
    assert_int_equal(nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void
test_threads(void **unused)
{
    const char *methods = getenv("STOKER_TEST_METHODS");
    (void)unused;

    vote_in_threads("sync");
    if (!methods || strstr(methods, "uring"))
        vote_in_threads("auto");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vote_fails_at_each_writer),
        cmocka_unit_test(test_power_cut_of_lost_votes),
        cmocka_unit_test(test_threads),
    };

    machine_pool_open();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    machine_pool_close();
    return failed;
}
