/* SPDX-License-Identifier: Apache-2.0 */
/* The fault method: operations that fail, fall short, hang, are late or come in other
 * orders. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/mem.h"
#include "fault_util.h"

static bool
f_is_new(struct fault_disk *left)
{
    return fault_is_file(left, "f", "new");
}

static bool
f_is_old(struct fault_disk *left)
{
    return fault_is_file(left, "f", "old");
}

static bool
f_is_empty(struct fault_disk *left)
{
    return fault_is_file(left, "f", "");
}

static void
rules_choose_operations(void **state)
{
    struct fault_disk disk;
    char bytes[8192];

    (void)state;
    fault_start(&disk);
    (void)fault_durable_file(&disk, "f", "old");
    (void)fault_durable_file(&disk, "other", "old");
    uint64_t n = sti_fault_ops(disk.fault);
    struct sti_fault_rule rules[] = {
        {.op_idx = n + 1, .effect = STI_FAULT_FAIL, .error = EACCES},
        {.op_idx = STI_FAULT_ANY,
         .path_part = "oth",
         .n_skip = 1,
         .n_times = 2,
         .effect = STI_FAULT_FAIL,
         .error = ENOMEM},
        {.op_idx = STI_FAULT_ANY,
         .kinds = BIT(STI_AIO_MKDIR) | BIT(STI_AIO_RENAME),
         .effect = STI_FAULT_FAIL,
         .error = EDQUOT},
    };
    for (size_t at = 0; at < 3; at++)
        assert_int_equal(sti_fault_add_rule(disk.fault, &rules[at]), 0);
    assert_int_equal(fault_read_file(&disk, "f", bytes), 3);
    assert_int_equal(fault_read_file(&disk, "f", bytes), -EACCES);
    assert_int_equal(fault_read_file(&disk, "f", bytes), 3);
    assert_int_equal(fault_read_file(&disk, "other", bytes), 3);
    assert_int_equal(fault_read_file(&disk, "other", bytes), -ENOMEM);
    assert_int_equal(fault_rename(&disk, "f", "another"), -ENOMEM);
    assert_int_equal(fault_read_file(&disk, "other", bytes), 3);
    assert_int_equal(fault_rename(&disk, "f", "g"), -EDQUOT);
    assert_int_equal(fault_run_path(&disk, STI_AIO_MKDIR, "d", 0), -EDQUOT);
    assert_false(fault_exists(&disk, "d") || fault_exists(&disk, "g"));
    sti_fault_clear_rules(disk.fault);
    assert_int_equal(fault_run_path(&disk, STI_AIO_MKDIR, "d", 0), 0);
    for (int at = 0; at < 16; at++)
        assert_int_equal(sti_fault_add_rule(disk.fault, &rules[0]), 0);
    assert_int_equal(sti_fault_add_rule(disk.fault, &rules[0]), -ENOSPC);
    fault_stop(&disk);
}

static void
a_descriptor_has_the_path_it_was_opened_by(void **state)
{
    struct fault_disk disk;
    struct sti_fault_rule rule = {.op_idx = STI_FAULT_ANY,
                                  .kinds = BIT(STI_AIO_WRITE),
                                  .path_part = "f",
                                  .effect = STI_FAULT_FAIL,
                                  .error = ENOSPC};

    (void)state;
    fault_start(&disk);
    int fd = fault_must_open(&disk, "./f");
    int other_fd = fault_must_open(&disk, "g");
    assert_int_equal(sti_fault_add_rule(disk.fault, &rule), 0);
    assert_int_equal(fault_write_at(&disk, fd, 0, "x", 1), -ENOSPC);
    assert_int_equal(fault_write_at(&disk, other_fd, 0, "x", 1), 1);
    assert_true(f_is_empty(&disk));
    assert_int_equal(sti_fault_open_files(disk.fault), 2);
    assert_int_equal(fault_run_fd(&disk, STI_AIO_CLOSE, fd, 0), 0);
    assert_int_equal(sti_fault_open_files(disk.fault), 1);
    fault_stop(&disk);
}

static void
reads_and_writes_may_be_short(void **state)
{
    struct fault_disk disk;
    char bytes[8192];
    struct sti_fault_rule rule = {
        .op_idx = STI_FAULT_ANY, .effect = STI_FAULT_SHORT, .n_bytes = 2, .n_times = 2};

    (void)state;
    fault_start(&disk);
    int fd = fault_must_open(&disk, "f");
    rule.kinds = BIT(STI_AIO_WRITE);
    assert_int_equal(sti_fault_add_rule(disk.fault, &rule), 0);
    assert_int_equal(fault_write_at(&disk, fd, 0, "new", 3), 2);
    assert_true(fault_is_file(&disk, "f", "ne"));
    assert_int_equal(fault_write_at(&disk, fd, 2, "w", 1), 1);
    rule.kinds = BIT(STI_AIO_READ_FILE);
    assert_int_equal(sti_fault_add_rule(disk.fault, &rule), 0);
    assert_int_equal(fault_read_file(&disk, "f", bytes), 2);
    assert_memory_equal(bytes, "ne?", 3);
    fault_stop(&disk);
}

static void
direct_transfers_are_aligned(void **state)
{
    struct fault_disk disk;
    char *bytes = sti_mem_new_aligned(4096, 512);

    (void)state;
    assert_non_null(bytes);
    memset(bytes, 'd', 4096);
    fault_start(&disk);
    int fd = fault_run_path(&disk, STI_AIO_OPEN, "f", O_RDWR | O_CREAT | O_DIRECT);
    struct sti_aio_op op = {.kind = STI_AIO_WRITE, .fd = fd, .bytes = bytes, .n_bytes = 1024};
    assert_int_equal(sti_aio_run(disk.aio, &op), 1024);
    op.n_bytes = 1000;
    assert_int_equal(sti_aio_run(disk.aio, &op), -EINVAL);
    op.n_bytes = 1024;
    op.offset = 100;
    assert_int_equal(sti_aio_run(disk.aio, &op), -EINVAL);
    op.offset = 512;
    op.bytes = bytes + 8;
    op.kind = STI_AIO_READ;
    assert_int_equal(sti_aio_run(disk.aio, &op), -EINVAL);
    op.bytes = bytes;
    assert_int_equal(sti_aio_run(disk.aio, &op), 512);
    fault_stop(&disk);
    sti_mem_free(bytes);
}

struct order {
    uint32_t n;
    char names[16];
};

static void
note_order(struct sti_aio_op *op)
{
    struct order *order = op->context;

    order->names[order->n++] = op->path[0];
}

/* Submits a stat of each of the names a .. h, which exist, and says in what order they
 * end. */
static void
submit_stats(struct fault_disk *disk, struct sti_aio_op *ops, struct statx *found,
             struct order *order)
{
    static const char *const names[8] = {"a", "b", "c", "d", "e", "f", "g", "h"};

    *order = (struct order){.n = 0};
    for (int at = 0; at < 8; at++) {
        ops[at] = (struct sti_aio_op){.kind = STI_AIO_STATX,
                                      .dir_fd = AT_FDCWD,
                                      .path = names[at],
                                      .statx = found,
                                      .done = note_order,
                                      .context = order};
        sti_aio_submit(disk->aio, &ops[at]);
    }
}

static void
operations_hang_and_are_late(void **state)
{
    struct fault_disk disk;
    struct sti_aio_op ops[8];
    struct statx found;
    struct order order;
    struct sti_fault_rule rules[] = {
        {.op_idx = 1, .effect = STI_FAULT_HANG},
        {.op_idx = 3, .effect = STI_FAULT_DELAY, .n_later = 4},
        {.op_idx = 6, .effect = STI_FAULT_DELAY, .n_later = 1000},
    };

    (void)state;
    fault_start(&disk);
    for (size_t at = 0; at < 3; at++)
        assert_int_equal(sti_fault_add_rule(disk.fault, &rules[at]), 0);
    submit_stats(&disk, ops, &found, &order);
    while (sti_aio_wait(disk.aio, 1000) > 0)
        ;
    assert_string_equal(order.names, "acefdhg");
    assert_int_equal(sti_aio_pending(disk.aio), 1);
    assert_int_equal(sti_aio_wait(disk.aio, 1000), 0);
    sti_fault_release(disk.fault);
    assert_int_equal(sti_aio_wait(disk.aio, UINT64_MAX), 1);
    assert_string_equal(order.names, "acefdhgb");
    fault_stop(&disk);
}

static void
orders_are_seeded(void **state)
{
    char names[2][16];
    uint32_t n_other = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        for (int round = 0; round < 2; round++) {
            struct fault_disk disk;
            struct sti_aio_op ops[8];
            struct statx found;
            struct order order;

            fault_start(&disk);
            sti_fault_reorder(disk.fault, seed);
            submit_stats(&disk, ops, &found, &order);
            while (sti_aio_pending(disk.aio) > 0)
                (void)sti_aio_wait(disk.aio, UINT64_MAX);
            assert_int_equal(order.n, 8);
            memcpy(names[round], order.names, sizeof(order.names));
            fault_stop(&disk);
        }
        assert_string_equal(names[0], names[1]);
        n_other += strcmp(names[0], "abcdefgh") != 0 ? 1 : 0;
    }
    assert_true(n_other > 45);
}

/* Two writes of one place at a time: whichever reads show in the end is what a sync
 * keeps. */
static void
what_is_synced_is_what_was_seen(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct fault_disk disk;
        char bytes[2][4] = {"old", "new"};
        struct sti_aio_op ops[2];
        struct sti_fault_rule rule = {
            .op_idx = STI_FAULT_ANY, .kinds = BIT(STI_AIO_WRITE), .n_times = 1};

        fault_start(&disk);
        int fd = fault_durable_file(&disk, "f", "---");
        rule.effect = STI_FAULT_HANG;
        assert_int_equal(sti_fault_add_rule(disk.fault, &rule), 0);
        sti_fault_reorder(disk.fault, seed);
        for (int at = 0; at < 2; at++) {
            ops[at] = (struct sti_aio_op){
                .kind = STI_AIO_WRITE, .fd = fd, .bytes = bytes[at], .n_bytes = 3};
            sti_aio_submit(disk.aio, &ops[at]);
        }
        while (sti_aio_pending(disk.aio) > 1)
            (void)sti_aio_wait(disk.aio, UINT64_MAX);
        assert_int_equal(fault_run_fd(&disk, STI_AIO_SYNC, fd, 0), 0);
        sti_fault_release(disk.fault);
        while (sti_aio_pending(disk.aio) > 0)
            (void)sti_aio_wait(disk.aio, UINT64_MAX);
        assert_int_equal(fault_run_fd(&disk, STI_AIO_SYNC, fd, 0), 0);
        assert_int_equal(sti_fault_variants(disk.fault), 1);
        struct fault_disk left;
        fault_crash(&left, &disk, 0);
        assert_true(f_is_new(&left) != f_is_old(&left));
        assert_int_equal(f_is_new(&left), f_is_new(&disk));
        fault_stop(&left);
        fault_stop(&disk);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_choose_operations),
        cmocka_unit_test(a_descriptor_has_the_path_it_was_opened_by),
        cmocka_unit_test(reads_and_writes_may_be_short),
        cmocka_unit_test(direct_transfers_are_aligned),
        cmocka_unit_test(operations_hang_and_are_late),
        cmocka_unit_test(orders_are_seeded),
        cmocka_unit_test(what_is_synced_is_what_was_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
