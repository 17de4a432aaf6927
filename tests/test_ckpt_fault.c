/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The invariant of the commit: the power is cut at every step of saves and removals,
 * everything that may be left is looked at, and each time the newest checkpoint must be
 * at least as new as the last one acknowledged, every byte of it. With one writer and
 * with several that vote; and with each operation failing in its turn.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/pool.h"
#include "ckpt/reader.h"
#include "ckpt/saver.h"
#include "ckpt/scan.h"
#include "fault_util.h"

#define WORLD_MAX 3
#define N_TENSORS 4
#define NOTHING UINT64_MAX

/* One writer of a set. */
struct writer {
    struct sti_saver *saver;
    struct sti_root roots[3];
};

struct machine {
    struct fault_disk disk;
    struct writer writers[WORLD_MAX];
    struct sti_vote *vote;
    uint32_t world;
    uint64_t acknowledged; /* step; NOTHING */
    int last_result;
};

/* How a scenario saves. */
struct scenario {
    uint32_t world;
    uint32_t n_roots; /* beside the directory */
    uint32_t keep;
    uint32_t n_saves;
    bool is_direct;
};

static struct sti_pool *pool;

/* What a sync that failed has lost, no later one makes durable: a removal that was told
 * to have failed may then have left an old name without its files. */
static bool has_failed_syncs;

/* ---- the state that is saved ------------------------------------------------------- */

static const uint64_t shapes[N_TENSORS] = {700, 9001, 0, 3000};
static const char *const names[N_TENSORS] = {"weights", "momentum", "nothing", "own"};
static const char *const dtypes[N_TENSORS] = {"F64", "U8", "I32", "BF16"};
static const uint32_t sizes[N_TENSORS] = {8, 1, 4, 2};

static void
make_tensor(char *bytes, uint32_t tensor, uint64_t step)
{
    for (uint64_t at = 0; at < shapes[tensor] * sizes[tensor]; at++)
        bytes[at] = (char)(at * 7 + tensor * 31 + step * 101 + at / 251);
}

static int
save(struct machine *machine, uint64_t step)
{
    static char bytes[N_TENSORS][9001];
    struct sti_layout_input inputs[N_TENSORS];
    struct sti_saver_tensor tensors[N_TENSORS];
    int rc = 0;

    for (uint32_t at = 0; at < N_TENSORS; at++) {
        make_tensor(bytes[at], at, step);
        inputs[at] =
            (struct sti_layout_input){.name = names[at],
                                      .dtype = dtypes[at],
                                      .shape = &shapes[at],
                                      .dims = 1,
                                      .owner = at == 3 ? machine->world - 1 : STI_LAYOUT_SHARED};
        tensors[at] = (struct sti_saver_tensor){.data = bytes[at], .is_stable = at != 1};
    }
    struct sti_saver_request request = {
        .step = step, .inputs = inputs, .tensors = tensors, .n_tensors = N_TENSORS};
    for (uint32_t writer = 0; rc == 0 && writer < machine->world; writer++)
        rc = sti_saver_save(machine->writers[writer].saver, &request, NULL);
    return rc;
}

/* ---- writers ----------------------------------------------------------------------- */

static bool
is_busy(struct machine *machine)
{
    struct sti_saver_status status;

    for (uint32_t writer = 0; writer < machine->world; writer++) {
        sti_saver_get_status(machine->writers[writer].saver, &status);
        if (status.unfinished > 0)
            return true;
    }
    return sti_aio_pending(machine->disk.aio) > 0;
}

/* Plays the loop until nothing is under way. */
static void
run_loop(struct machine *machine)
{
    do {
        for (uint32_t writer = 0; writer < machine->world; writer++)
            (void)sti_saver_step(machine->writers[writer].saver);
        (void)sti_aio_wait(machine->disk.aio, 1000000);
    } while (is_busy(machine));
    for (uint32_t writer = 0; writer < machine->world; writer++)
        (void)sti_saver_step(machine->writers[writer].saver);
}

static int
save_and_wait(struct machine *machine, uint64_t step)
{
    int rc = save(machine, step);

    if (rc == 0) {
        run_loop(machine);
        for (uint32_t writer = 0; writer < machine->world; writer++) {
            int own = sti_saver_wait(machine->writers[writer].saver, STI_LEVEL_DURABLE, 0, NULL);

            rc = own < 0 && own != -ETIMEDOUT ? own : rc;
        }
    }
    if (rc == 0)
        machine->acknowledged = step;
    machine->last_result = rc;
    return rc;
}

static int
open_writer(struct machine *machine, uint32_t idx, const struct scenario *scenario)
{
    static const char *const paths[] = {"/run", "/a", "/b"};
    struct writer *writer = &machine->writers[idx];
    struct sti_root_open how = {
        .aio = machine->disk.aio, .session = 1, .is_buffered = true, .block = NULL};

    for (uint32_t at = 0; at <= scenario->n_roots; at++) {
        writer->roots[at] =
            (struct sti_root){.dir_fd = -1, .path = sti_mem_strdup(at > 0 ? paths[at] : ".")};
        int rc = sti_root_open(&writer->roots[at], paths[at], &how, NULL);
        if (rc < 0)
            return rc;
        if (scenario->is_direct)
            writer->roots[at].dio =
                (struct sti_dio){.is_direct = true, .block_bytes = 512, .memory_align = 512};
    }
    struct sti_saver_opts opts = {.aio = machine->disk.aio,
                                  .pool = pool,
                                  .roots = writer->roots,
                                  .n_roots = scenario->n_roots + 1,
                                  .first_part_root = scenario->n_roots > 0 ? 1 : 0,
                                  .slots = 2,
                                  .slot_bytes = 65536,
                                  .chunk_bytes = 4096,
                                  .outstanding = 1,
                                  .keep = scenario->keep,
                                  .writer = idx,
                                  .world = scenario->world,
                                  .session = 7,
                                  .vote = machine->vote};
    return sti_saver_new(&writer->saver, &opts, NULL);
}

static int
start_machine(struct machine *machine, const struct scenario *scenario)
{
    int rc = 0;

    machine->world = scenario->world;
    machine->acknowledged = NOTHING;
    assert_int_equal(sti_vote_new(&machine->vote, scenario->world), 0);
    for (uint32_t writer = 0; rc == 0 && writer < scenario->world; writer++)
        rc = open_writer(machine, writer, scenario);
    return rc;
}

static void
stop_machine(struct machine *machine)
{
    for (uint32_t writer = 0; writer < machine->world; writer++) {
        sti_saver_free(machine->writers[writer].saver);
        for (uint32_t at = 0; at < 3; at++) {
            struct sti_root *root = &machine->writers[writer].roots[at];

            if (root->path && root->dir_fd >= 0) {
                struct sti_aio_op op = {.kind = STI_AIO_CLOSE, .fd = root->dir_fd};

                (void)sti_aio_run(machine->disk.aio, &op);
            }
            sti_mem_free(root->path);
        }
    }
    sti_vote_free(machine->vote);
}

static void
run_scenario(struct machine *machine, const struct scenario *scenario)
{
    if (start_machine(machine, scenario) < 0)
        return;
    for (uint64_t step = 0; step < scenario->n_saves; step++)
        if (save_and_wait(machine, step) < 0)
            return;
}

/* ---- what is left ------------------------------------------------------------------ */

/* Reads all tensors of a checkpoint and compares them with its step's. */
static bool
is_whole(struct sti_scan *scan, struct sti_manifest *manifest)
{
    static char expected[9001];
    static char got[N_TENSORS][9001];
    struct sti_reader_opts opts = {
        .scan = *scan, .slots = 2, .slot_bytes = 65536, .is_buffered = true};
    struct sti_want wants[N_TENSORS];
    struct sti_reader *reader;
    uint64_t step = manifest->step;
    stk_error err;

    if (sti_reader_open(&reader, manifest, &opts, &err) < 0) {
        print_error("open: %s: %s\n", err.path, err.message);
        return false;
    }
    for (uint32_t at = 0; at < N_TENSORS; at++) {
        const struct sti_layout_tensor *tensor =
            sti_layout_find(&sti_reader_manifest(reader)->layout, names[at]);

        assert_non_null(tensor);
        assert_int_equal(sti_slice_init(&wants[at].slice, tensor, NULL, NULL), 0);
        wants[at].dst = got[at];
    }
    memset(got, 0x55, sizeof(got));
    bool is = sti_reader_read(reader, wants, N_TENSORS, &err) == 0;
    if (!is)
        print_error("read: %s: %s\n", err.path, err.message);
    for (uint32_t at = 0; is && at < N_TENSORS; at++) {
        make_tensor(expected, at, step);
        is = memcmp(expected, got[at], shapes[at] * sizes[at]) == 0;
        if (!is)
            print_error("tensor %u of step %llu differs\n", at, (unsigned long long)step);
    }
    sti_reader_close(reader);
    return is;
}

/* Every directory that is named as a checkpoint is one: also those that were being
 * removed. */
static void
check_older(struct sti_scan *scan)
{
    uint64_t *steps;
    uint32_t n;

    assert_int_equal(sti_scan_steps(scan, &steps, &n, NULL), 0);
    for (uint32_t at = 0; at < n; at++) {
        struct sti_manifest manifest;

        assert_int_equal(sti_scan_manifest(scan, steps[at], &manifest, NULL), 0);
        assert_int_equal(sti_scan_check_parts(scan, &manifest, NULL), 0);
        sti_manifest_fini(&manifest);
    }
    sti_mem_free(steps);
}

/* The newest checkpoint on a disk: its step, NOTHING where there is none. A checkpoint
 * that is there and not whole, or that looks damaged, fails the test. */
static uint64_t
recover(struct fault_disk *left)
{
    struct sti_aio_op op = {.kind = STI_AIO_OPEN,
                            .dir_fd = AT_FDCWD,
                            .path = "/run",
                            .open_flags = O_RDONLY | O_DIRECTORY};
    struct sti_scan scan = {.aio = left->aio, .path = "/run"};
    struct sti_manifest manifest;
    uint64_t step = NOTHING;
    uint32_t skipped = 0;
    stk_error err;

    scan.dir_fd = sti_aio_run(left->aio, &op);
    if (scan.dir_fd == -ENOENT)
        return NOTHING;
    assert_true(scan.dir_fd >= 0);
    int rc = sti_scan_latest(&scan, &manifest, &skipped, &err);
    if (rc != 0 && rc != -ENOENT)
        print_error("latest: %s: %s\n", err.path, err.message);
    assert_true(rc == 0 || rc == -ENOENT);
    assert_int_equal(skipped, 0);
    if (rc == 0) {
        step = manifest.step;
        assert_true(is_whole(&scan, &manifest));
        if (!has_failed_syncs)
            check_older(&scan);
    }
    op = (struct sti_aio_op){.kind = STI_AIO_CLOSE, .fd = scan.dir_fd};
    assert_int_equal(sti_aio_run(left->aio, &op), 0);
    return step;
}

static void
check_all_left(const struct machine *machine, uint64_t step)
{
    uint64_t n = sti_fault_variants(machine->disk.fault);

    for (uint64_t variant = 0; variant < n; variant++) {
        struct fault_disk left;

        fault_crash(&left, &machine->disk, variant);
        uint64_t found = recover(&left);
        bool is_good = machine->acknowledged == NOTHING ||
                       (found != NOTHING && found >= machine->acknowledged);
        if (!is_good)
            print_error("cut at step %llu, variant %llu: acknowledged %lld, found %lld\n",
                        (unsigned long long)step, (unsigned long long)variant,
                        (long long)machine->acknowledged, (long long)found);
        assert_true(is_good);
        fault_stop(&left);
    }
}

static uint64_t
count_steps(const struct scenario *scenario)
{
    struct machine machine = {0};

    fault_start(&machine.disk);
    run_scenario(&machine, scenario);
    assert_int_equal(machine.acknowledged, scenario->n_saves - 1);
    uint64_t n = sti_fault_steps(machine.disk.fault);
    check_all_left(&machine, n);
    stop_machine(&machine);
    assert_int_equal(sti_fault_open_files(machine.disk.fault), 0);
    fault_stop(&machine.disk);
    return n;
}

static void
cut_everywhere(const struct scenario *scenario, uint64_t seed)
{
    uint64_t n = count_steps(scenario);

    for (uint64_t step = 0; step < n; step++) {
        struct machine machine = {0};

        fault_start(&machine.disk);
        sti_fault_reorder(machine.disk.fault, seed);
        sti_fault_crash_at(machine.disk.fault, step);
        run_scenario(&machine, scenario);
        check_all_left(&machine, step);
        stop_machine(&machine);
        fault_stop(&machine.disk);
    }
}

static void
test_power_cut(void **unused)
{
    (void)unused;
    cut_everywhere(&(struct scenario){.world = 1, .n_roots = 0, .keep = 1, .n_saves = 2}, 0);
    cut_everywhere(&(struct scenario){.world = 1, .n_roots = 2, .keep = 1, .n_saves = 2}, 0);
    cut_everywhere(
        &(struct scenario){.world = 1, .n_roots = 2, .keep = 2, .n_saves = 3, .is_direct = true},
        5);
}

static void
test_power_cut_of_several_writers(void **unused)
{
    (void)unused;
    cut_everywhere(&(struct scenario){.world = 2, .n_roots = 0, .keep = 1, .n_saves = 2}, 3);
    cut_everywhere(&(struct scenario){.world = 3, .n_roots = 2, .keep = 1, .n_saves = 2}, 0);
}

/* ---- each operation fails in its turn ---------------------------------------------- */

/* After a failed save: the old checkpoint is there, or the new one where it may have been
 * committed; the next save works, unless its step was; nothing is open, nothing of the
 * failed one is left but under a name of its own. */
static void
fail_each(const struct scenario *scenario, int error, uint32_t kinds)
{
    struct machine machine = {0};
    uint64_t n_first;
    uint64_t n;

    fault_start(&machine.disk);
    assert_int_equal(start_machine(&machine, scenario), 0);
    assert_int_equal(save_and_wait(&machine, 1), 0);
    n_first = sti_fault_ops(machine.disk.fault);
    assert_int_equal(save_and_wait(&machine, 2), 0);
    n = sti_fault_ops(machine.disk.fault);
    stop_machine(&machine);
    fault_stop(&machine.disk);

    for (uint64_t op = n_first; op < n; op++) {
        struct sti_fault_rule rule = {
            .op_idx = op, .kinds = kinds, .effect = STI_FAULT_FAIL, .error = error};

        machine = (struct machine){0};
        fault_start(&machine.disk);
        assert_int_equal(start_machine(&machine, scenario), 0);
        assert_int_equal(save_and_wait(&machine, 1), 0);
        assert_int_equal(sti_fault_add_rule(machine.disk.fault, &rule), 0);
        int rc = save_and_wait(&machine, 2);
        sti_fault_clear_rules(machine.disk.fault);
        uint64_t found = recover(&machine.disk);
        if (rc == 0)
            assert_int_equal(found, 2);
        else
            assert_true(found == 1 || found == 2);
        /* A removal that failed is told by the next call. */
        int again = save_and_wait(&machine, 3);
        if (again < 0)
            again = save_and_wait(&machine, 3);
        assert_int_equal(again, 0);
        assert_int_equal(recover(&machine.disk), 3);
        check_all_left(&machine, op);
        stop_machine(&machine);
        /* A close that fails here leaves the descriptor open; Linux's never does. */
        if (kinds != BIT(STI_AIO_CLOSE))
            assert_int_equal(sti_fault_open_files(machine.disk.fault), 0);
        fault_stop(&machine.disk);
    }
}

static void
test_each_operation_fails(void **unused)
{
    const uint32_t but_close = ~BIT(STI_AIO_CLOSE);
    (void)unused;

    has_failed_syncs = true;
    fail_each(&(struct scenario){.world = 1, .n_roots = 2, .keep = 1}, EIO, but_close);
    fail_each(&(struct scenario){.world = 1, .n_roots = 2, .keep = 1}, EIO, BIT(STI_AIO_CLOSE));
    fail_each(&(struct scenario){.world = 1, .keep = 1, .is_direct = true}, ENOSPC, but_close);
    fail_each(&(struct scenario){.world = 3, .n_roots = 1, .keep = 1}, EIO, but_close);
    has_failed_syncs = false;
}

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
        assert_int_equal(start_machine(&machine, &scenario), 0);
        assert_int_equal(save_and_wait(&machine, 1), 0);
        assert_int_equal(sti_fault_add_rule(machine.disk.fault, &rule), 0);
        assert_int_equal(save(&machine, 2), 0);
        run_loop(&machine);
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
        assert_int_equal(recover(&machine.disk), 1);
        assert_int_equal(save_and_wait(&machine, 2), 0); /* no file of the lost one is reused */
        assert_int_equal(recover(&machine.disk), 2);
        stop_machine(&machine);
        fault_stop(&machine.disk);
    }
}

/* Short writes are gone on with, and never taken for whole ones. */
static void
test_short_writes(void **unused)
{
    (void)unused;
    for (uint32_t n_bytes = 1; n_bytes < 6000; n_bytes += 511) {
        struct scenario scenario = {
            .world = 1, .n_roots = 2, .keep = 2, .is_direct = n_bytes > 511};
        struct machine machine = {0};
        struct sti_fault_rule rule = {.op_idx = STI_FAULT_ANY,
                                      .kinds = BIT(STI_AIO_WRITE),
                                      .n_times = 30,
                                      .effect = STI_FAULT_SHORT,
                                      .n_bytes = n_bytes};

        fault_start(&machine.disk);
        assert_int_equal(start_machine(&machine, &scenario), 0);
        assert_int_equal(sti_fault_add_rule(machine.disk.fault, &rule), 0);
        assert_int_equal(save_and_wait(&machine, 1), 0);
        assert_int_equal(recover(&machine.disk), 1);
        stop_machine(&machine);
        fault_stop(&machine.disk);
    }
}

/* A file system without RENAME_NOREPLACE, without fallocate. */
static void
test_lesser_file_systems(void **unused)
{
    struct scenario scenario = {.world = 1, .n_roots = 1, .keep = 2};
    struct machine machine = {0};
    const struct sti_fault_rule rules[] = {
        {.op_idx = STI_FAULT_ANY,
         .kinds = BIT(STI_AIO_ALLOCATE),
         .effect = STI_FAULT_FAIL,
         .error = EOPNOTSUPP},
        {.op_idx = STI_FAULT_ANY,
         .kinds = BIT(STI_AIO_RENAME),
         .path_part = ".tmp",
         .n_times = 1,
         .effect = STI_FAULT_FAIL,
         .error = EINVAL},
    };
    (void)unused;

    fault_start(&machine.disk);
    assert_int_equal(start_machine(&machine, &scenario), 0);
    assert_int_equal(sti_fault_add_rule(machine.disk.fault, &rules[0]), 0);
    assert_int_equal(sti_fault_add_rule(machine.disk.fault, &rules[1]), 0);
    assert_int_equal(save_and_wait(&machine, 1), 0);
    assert_int_equal(recover(&machine.disk), 1);
    /* The plain rename does not replace a checkpoint either. */
    sti_fault_clear_rules(machine.disk.fault);
    assert_int_equal(sti_fault_add_rule(machine.disk.fault, &rules[1]), 0);
    assert_int_equal(save_and_wait(&machine, 1), -EEXIST);
    assert_int_equal(recover(&machine.disk), 1);
    stop_machine(&machine);
    fault_stop(&machine.disk);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_power_cut),
        cmocka_unit_test(test_power_cut_of_several_writers),
        cmocka_unit_test(test_each_operation_fails),
        cmocka_unit_test(test_vote_fails_at_each_writer),
        cmocka_unit_test(test_short_writes),
        cmocka_unit_test(test_lesser_file_systems),
    };

    assert_int_equal(sti_pool_open(&pool, 1, 0), 0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sti_pool_close(pool);
    return failed;
}
