/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The invariant of the commit: the power is cut at every step of saves and removals,
 * everything that may be left is looked at, and each time the newest checkpoint must be
 * at least as new as the last one acknowledged, every byte of it. With one writer and
 * with several that vote; and with each operation failing in its turn.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ckpt_machine.h"

static uint64_t
count_steps(const struct scenario *scenario)
{
    struct machine machine = {0};

    fault_start(&machine.disk);
    machine_run(&machine, scenario);
    assert_int_equal(machine.acknowledged, scenario->n_saves - 1);
    uint64_t n = sti_fault_steps(machine.disk.fault);
    machine_check_all_left(&machine, n);
    machine_stop(&machine);
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
        machine_run(&machine, scenario);
        machine_check_all_left(&machine, step);
        machine_stop(&machine);
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

/* What was acknowledged here is here, and what was acknowledged as shared is there. */
static void
test_power_cut_of_copies(void **unused)
{
    struct scenario scenario = {
        .world = 1, .n_roots = 2, .keep = 1, .n_saves = 2, .is_drained = true};
    (void)unused;

    cut_everywhere(&scenario, 0);
    scenario.world = 2;
    scenario.n_roots = 0;
    cut_everywhere(&scenario, 4);
}

/* What was acknowledged is on every node. */
static void
test_power_cut_of_nodes(void **unused)
{
    struct scenario scenario = {.world = 2, .n_roots = 1, .n_saves = 2, .is_of_nodes = true};
    (void)unused;

    cut_everywhere(&scenario, 0);
    scenario.world = 3;
    scenario.n_roots = 2;
    scenario.is_drained = true;
    cut_everywhere(&scenario, 6);
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
    assert_int_equal(machine_start(&machine, scenario), 0);
    assert_int_equal(machine_save_and_wait(&machine, 1), 0);
    n_first = sti_fault_ops(machine.disk.fault);
    assert_int_equal(machine_save_and_wait(&machine, 2), 0);
    n = sti_fault_ops(machine.disk.fault);
    machine_stop(&machine);
    fault_stop(&machine.disk);

    for (uint64_t op = n_first; op < n; op++) {
        struct sti_fault_rule rule = {
            .op_idx = op, .kinds = kinds, .effect = STI_FAULT_FAIL, .error = error};

        machine = (struct machine){.has_failed_syncs = true};
        fault_start(&machine.disk);
        assert_int_equal(machine_start(&machine, scenario), 0);
        assert_int_equal(machine_save_and_wait(&machine, 1), 0);
        assert_int_equal(sti_fault_add_rule(machine.disk.fault, &rule), 0);
        int rc = machine_save_and_wait(&machine, 2);
        sti_fault_clear_rules(machine.disk.fault);
        uint64_t found = machine_recover(&machine.disk, !machine.has_failed_syncs);
        if (rc == 0) { /* it was gone on without: the step counts as much as any other */
            assert_int_equal(found, 2);
            machine_check_all_left(&machine, op);
        } else {
            assert_true(found == 1 || found == 2);
        }
        /* A removal that failed is told by the next call. */
        uint64_t last = 3;
        int again = machine_save_and_wait(&machine, last);
        if (again < 0) {
            last += scenario->is_drained; /* of the shared directory: the save itself is there */
            again = machine_save_and_wait(&machine, last);
        }
        assert_int_equal(again, 0);
        assert_int_equal(machine_recover(&machine.disk, !machine.has_failed_syncs), last);
        machine_check_all_left(&machine, op);
        machine_stop(&machine);
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

    fail_each(&(struct scenario){.world = 1, .n_roots = 2, .keep = 1}, EIO, but_close);
    fail_each(&(struct scenario){.world = 1, .n_roots = 2, .keep = 1}, EIO, BIT(STI_AIO_CLOSE));
    fail_each(&(struct scenario){.world = 1, .keep = 1, .is_direct = true}, ENOSPC, but_close);
    fail_each(&(struct scenario){.world = 3, .n_roots = 1, .keep = 1}, EIO, but_close);
    fail_each(&(struct scenario){.world = 1, .n_roots = 2, .keep = 1, .is_drained = true}, EIO,
              but_close);
    fail_each(&(struct scenario){.world = 2, .keep = 1, .is_drained = true}, ENOSPC, but_close);
    fail_each(&(struct scenario){.world = 3, .n_roots = 1, .is_of_nodes = true}, EIO, but_close);
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
        assert_int_equal(machine_start(&machine, &scenario), 0);
        assert_int_equal(sti_fault_add_rule(machine.disk.fault, &rule), 0);
        assert_int_equal(machine_save_and_wait(&machine, 1), 0);
        assert_int_equal(machine_recover(&machine.disk, !machine.has_failed_syncs), 1);
        machine_stop(&machine);
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
    assert_int_equal(machine_start(&machine, &scenario), 0);
    assert_int_equal(sti_fault_add_rule(machine.disk.fault, &rules[0]), 0);
    assert_int_equal(sti_fault_add_rule(machine.disk.fault, &rules[1]), 0);
    assert_int_equal(machine_save_and_wait(&machine, 1), 0);
    assert_int_equal(machine_recover(&machine.disk, !machine.has_failed_syncs), 1);
    /* The plain rename does not replace a checkpoint either. */
    sti_fault_clear_rules(machine.disk.fault);
    assert_int_equal(sti_fault_add_rule(machine.disk.fault, &rules[1]), 0);
    assert_int_equal(machine_save_and_wait(&machine, 1), -EEXIST);
    assert_int_equal(machine_recover(&machine.disk, !machine.has_failed_syncs), 1);
    machine_stop(&machine);
    fault_stop(&machine.disk);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_power_cut),
        cmocka_unit_test(test_power_cut_of_several_writers),
        cmocka_unit_test(test_power_cut_of_copies),
        cmocka_unit_test(test_power_cut_of_nodes),
        cmocka_unit_test(test_each_operation_fails),
        cmocka_unit_test(test_short_writes),
        cmocka_unit_test(test_lesser_file_systems),
    };

    machine_pool_open();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    machine_pool_close();
    return failed;
}
