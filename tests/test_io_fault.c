/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fault method: what a crash may and may not leave, rule by rule. At the end a
 * program that saves a file is cut off at each step, as it should be written and with
 * each of the usual mistakes: the method must find every one of them.
 */
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

typedef bool (*check_fn)(struct fault_disk *left);

/* In how many of the ways in which a crash now can end the check holds. */
static uint64_t
count_left(const struct fault_disk *disk, check_fn check)
{
    uint64_t n = 0;

    for (uint64_t variant = 0; variant < sti_fault_variants(disk->fault); variant++) {
        struct fault_disk left;

        fault_crash(&left, disk, variant);
        n += check(&left) ? 1 : 0;
        fault_stop(&left);
    }
    return n;
}

static bool
always(const struct fault_disk *disk, check_fn check)
{
    return count_left(disk, check) == sti_fault_variants(disk->fault);
}

static bool
never(const struct fault_disk *disk, check_fn check)
{
    return count_left(disk, check) == 0;
}

static bool
sometimes(const struct fault_disk *disk, check_fn check)
{
    return !always(disk, check) && !never(disk, check);
}

/* ---- what is left ------------------------------------------------------------------ */

static bool
has_f(struct fault_disk *left)
{
    return fault_exists(left, "f");
}

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

static bool
f_has_a_hole(struct fault_disk *left)
{
    char bytes[8192];

    return fault_read_file(left, "f", bytes) == 3 && memcmp(bytes, "\0\0\0", 3) == 0;
}

static void
a_sync_covers_a_file_and_not_its_name(void **state)
{
    struct fault_disk disk;

    (void)state;
    fault_start(&disk);
    int fd = fault_must_open(&disk, "f");
    assert_int_equal(fault_write_at(&disk, fd, 0, "new", 3), 3);
    assert_true(sometimes(&disk, has_f));
    assert_true(sometimes(&disk, f_is_empty));
    assert_true(sometimes(&disk, f_has_a_hole));
    assert_int_equal(fault_run_fd(&disk, STI_AIO_SYNC, fd, 0), 0);
    assert_true(sometimes(&disk, has_f));
    assert_true(never(&disk, f_is_empty));
    assert_true(never(&disk, f_has_a_hole));
    assert_true(sometimes(&disk, f_is_new));
    assert_int_equal(fault_run_path(&disk, STI_AIO_SYNC_DIR, "/", 0), 0);
    assert_int_equal(sti_fault_variants(disk.fault), 1);
    assert_true(always(&disk, f_is_new));
    fault_stop(&disk);
}

static void
a_name_without_its_bytes(void **state)
{
    struct fault_disk disk;

    (void)state;
    fault_start(&disk);
    int fd = fault_must_open(&disk, "f");
    assert_int_equal(fault_write_at(&disk, fd, 0, "new", 3), 3);
    assert_int_equal(fault_run_path(&disk, STI_AIO_SYNC_DIR, ".", 0), 0);
    assert_true(always(&disk, has_f));
    assert_true(sometimes(&disk, f_is_empty));
    assert_true(sometimes(&disk, f_has_a_hole));
    assert_true(sometimes(&disk, f_is_new));
    fault_stop(&disk);
}

static void
a_sync_covers_what_had_completed(void **state)
{
    struct fault_disk disk;
    char bytes[] = "new";

    (void)state;
    fault_start(&disk);
    int fd = fault_durable_file(&disk, "f", "old");
    struct sti_aio_op write = {.kind = STI_AIO_WRITE, .fd = fd, .bytes = bytes, .n_bytes = 3};
    struct sti_aio_op sync = {.kind = STI_AIO_SYNC, .fd = fd};
    sti_aio_submit(disk.aio, &write);
    sti_aio_submit(disk.aio, &sync);
    while (sti_aio_pending(disk.aio) > 0)
        (void)sti_aio_wait(disk.aio, UINT64_MAX);
    assert_int_equal(write.result, 3);
    assert_int_equal(sync.result, 0);
    assert_true(sometimes(&disk, f_is_old));
    /* Submitted after it had completed, one covers it; even on another descriptor. */
    int other_fd = fault_must_open(&disk, "f");
    assert_int_equal(fault_run_fd(&disk, STI_AIO_SYNC, other_fd, 0), 0);
    assert_true(always(&disk, f_is_new));
    fault_stop(&disk);
}

static void
a_sync_under_way_covers_nothing_for_sure(void **state)
{
    struct fault_disk disk;

    (void)state;
    fault_start(&disk);
    int fd = fault_durable_file(&disk, "f", "old");
    assert_int_equal(fault_write_at(&disk, fd, 0, "new", 3), 3);
    struct sti_aio_op sync = {.kind = STI_AIO_SYNC, .fd = fd};
    sti_aio_submit(disk.aio, &sync);
    sti_aio_flush(disk.aio);
    assert_true(sometimes(&disk, f_is_old));
    (void)sti_aio_wait(disk.aio, UINT64_MAX);
    assert_true(always(&disk, f_is_new));
    fault_stop(&disk);
}

/* A write under way may be found, though its submitter does not know that it is over. */
static void
a_write_under_way_may_be_there(void **state)
{
    struct fault_disk disk;
    char bytes[] = "new";

    (void)state;
    fault_start(&disk);
    int fd = fault_durable_file(&disk, "f", "old");
    struct sti_aio_op write = {.kind = STI_AIO_WRITE, .fd = fd, .bytes = bytes, .n_bytes = 3};
    sti_aio_submit(disk.aio, &write);
    assert_true(always(&disk, f_is_old));
    sti_aio_flush(disk.aio);
    assert_true(sometimes(&disk, f_is_old) && sometimes(&disk, f_is_new));
    fault_stop(&disk);
}

static void
nothing_crosses_a_sync(void **state)
{
    struct fault_disk disk;

    (void)state;
    fault_start(&disk);
    int fd = fault_durable_file(&disk, "f", "---");
    assert_int_equal(fault_write_at(&disk, fd, 0, "old", 3), 3);
    assert_int_equal(fault_run_fd(&disk, STI_AIO_SYNC, fd, 0), 0);
    assert_int_equal(fault_write_at(&disk, fd, 0, "new", 3), 3);
    assert_int_equal(count_left(&disk, f_is_old) + count_left(&disk, f_is_new),
                     sti_fault_variants(disk.fault));
    assert_true(sometimes(&disk, f_is_old));
    fault_stop(&disk);
}

/* Writes that no sync orders are found in every combination. */
static void
unsynced_writes_have_no_order(void **state)
{
    struct fault_disk disk;
    uint32_t seen = 0;

    (void)state;
    fault_start(&disk);
    int fd = fault_durable_file(&disk, "f", "...");
    for (uint64_t at = 0; at < 3; at++)
        assert_int_equal(fault_write_at(&disk, fd, at, "x", 1), 1);
    for (uint64_t variant = 0; variant < sti_fault_variants(disk.fault); variant++) {
        struct fault_disk left;
        char bytes[8192];

        fault_crash(&left, &disk, variant);
        assert_int_equal(fault_read_file(&left, "f", bytes), 3);
        seen |= 1u << ((bytes[0] == 'x') + 2 * (bytes[1] == 'x') + 4 * (bytes[2] == 'x'));
        fault_stop(&left);
    }
    assert_int_equal(seen, 0xff);
    fault_stop(&disk);
}

/* Each one missing, and each one alone, however many there are. */
static void
each_change_is_left_out_once(void **state)
{
    struct fault_disk disk;
    uint32_t missing = 0;
    uint32_t alone = 0;
    const uint32_t n = 24;
    const uint32_t all = (1u << 24) - 1;

    (void)state;
    fault_start(&disk);
    int fd = fault_durable_file(&disk, "f", "........................");
    for (uint64_t at = 0; at < n; at++)
        assert_int_equal(fault_write_at(&disk, fd, at, "x", 1), 1);
    assert_int_equal(sti_fault_variants(disk.fault), 2 + 2 * n + 64);
    for (uint64_t variant = 0; variant < sti_fault_variants(disk.fault); variant++) {
        struct fault_disk left;
        char bytes[8192];
        uint32_t found = 0;

        fault_crash(&left, &disk, variant);
        assert_int_equal(fault_read_file(&left, "f", bytes), n);
        for (uint32_t at = 0; at < n; at++)
            found |= bytes[at] == 'x' ? 1u << at : 0;
        missing |= __builtin_popcount(found) == (int)n - 1 ? all & ~found : 0;
        alone |= __builtin_popcount(found) == 1 ? found : 0;
        fault_stop(&left);
    }
    assert_int_equal(missing, all);
    assert_int_equal(alone, all);
    fault_stop(&disk);
}

static void
objects_have_no_order(void **state)
{
    struct fault_disk disk;

    (void)state;
    fault_start(&disk);
    int fd = fault_durable_file(&disk, "f", "old");
    int other_fd = fault_durable_file(&disk, "g", "-");
    assert_int_equal(fault_write_at(&disk, fd, 0, "new", 3), 3);
    assert_int_equal(fault_write_at(&disk, other_fd, 0, "+", 1), 1);
    assert_int_equal(fault_run_fd(&disk, STI_AIO_SYNC, other_fd, 0), 0);
    assert_true(sometimes(&disk, f_is_old));
    fault_stop(&disk);
}

/* A sector is old or new; a write of several may be any mixture, and is both halves. */
static void
writes_tear_at_sectors(void **state)
{
    struct fault_disk disk;
    char old[4096];
    char text[3000];
    bool is_torn[3] = {false, false, false};

    (void)state;
    fault_start(&disk);
    memset(old, 'o', sizeof(old));
    memset(text, 'n', sizeof(text));
    assert_int_equal(sti_fault_put_file(disk.fault, "f", old, sizeof(old)), 0);
    int fd = fault_must_open(&disk, "f");
    assert_int_equal(fault_write_at(&disk, fd, 700, text, sizeof(text)), sizeof(text));
    for (uint64_t variant = 0; variant < sti_fault_variants(disk.fault); variant++) {
        struct fault_disk left;
        char bytes[8192];
        uint32_t new_sectors = 0;

        fault_crash(&left, &disk, variant);
        assert_int_equal(fault_read_file(&left, "f", bytes), sizeof(old));
        for (uint32_t at = 0; at < sizeof(old); at++) {
            bool is_new = bytes[at] == 'n';

            assert_true(is_new || bytes[at] == 'o');
            assert_false(is_new && (at < 700 || at >= 3700));
            if (at > 700 && at < 3700 && at % 512 != 0)
                assert_int_equal(bytes[at], bytes[at - 1]);
            new_sectors |= is_new ? 1u << (at / 512) : 0;
        }
        is_torn[0] |= new_sectors == 0x1e; /* sectors 1 .. 7, the first half and the last */
        is_torn[1] |= new_sectors == 0xe0;
        is_torn[2] |=
            new_sectors != 0 && new_sectors != 0xfe && new_sectors != 0x1e && new_sectors != 0xe0;
        fault_stop(&left);
    }
    assert_true(is_torn[0] && is_torn[1] && is_torn[2]);
    assert_int_equal(fault_run_fd(&disk, STI_AIO_SYNC, fd, 0), 0);
    assert_int_equal(sti_fault_variants(disk.fault), 1);
    fault_stop(&disk);
}

static bool
f_is_long(struct fault_disk *left)
{
    char bytes[8192];

    return fault_read_file(left, "f", bytes) == 100;
}

static void
sizes_are_volatile_too(void **state)
{
    struct fault_disk disk;

    (void)state;
    fault_start(&disk);
    int fd = fault_durable_file(&disk, "f", "old");
    assert_int_equal(fault_run_fd(&disk, STI_AIO_TRUNCATE, fd, 0), 0);
    assert_true(sometimes(&disk, f_is_old) && sometimes(&disk, f_is_empty));
    assert_int_equal(fault_run_fd(&disk, STI_AIO_SYNC, fd, 0), 0);
    assert_true(always(&disk, f_is_empty));
    assert_int_equal(fault_run_fd(&disk, STI_AIO_ALLOCATE, fd, 0), 0);
    assert_true(sometimes(&disk, f_is_empty) && sometimes(&disk, f_is_long));
    assert_int_equal(fault_run_fd(&disk, STI_AIO_SYNC, fd, 0), 0);
    assert_true(always(&disk, f_is_long));
    assert_true(fault_run_path(&disk, STI_AIO_OPEN, "f", O_WRONLY | O_TRUNC) >= 0);
    assert_true(sometimes(&disk, f_is_long) && sometimes(&disk, f_is_empty));
    fault_stop(&disk);
}

/* ---- names ------------------------------------------------------------------------- */

static void
a_rename_is_all_or_nothing(void **state)
{
    struct fault_disk disk;

    (void)state;
    fault_start(&disk);
    (void)fault_durable_file(&disk, "f", "old");
    (void)fault_durable_file(&disk, "t", "new");
    assert_int_equal(fault_rename(&disk, "t", "f"), 0);
    assert_int_equal(count_left(&disk, f_is_old) + count_left(&disk, f_is_new),
                     sti_fault_variants(disk.fault));
    assert_true(sometimes(&disk, f_is_old));
    for (uint64_t variant = 0; variant < sti_fault_variants(disk.fault); variant++) {
        struct fault_disk left;

        fault_crash(&left, &disk, variant);
        assert_int_equal(fault_exists(&left, "t"), f_is_old(&left));
        fault_stop(&left);
    }
    assert_int_equal(fault_run_path(&disk, STI_AIO_SYNC_DIR, ".", 0), 0);
    assert_true(always(&disk, f_is_new));
    fault_stop(&disk);
}

static bool
has_both(struct fault_disk *left)
{
    return fault_exists(left, "a/x") && fault_exists(left, "b/x");
}

static bool
has_one(struct fault_disk *left)
{
    return fault_exists(left, "a/x") != fault_exists(left, "b/x");
}

static bool
has_new_name(struct fault_disk *left)
{
    return fault_exists(left, "b/x");
}

static bool
has_old_name(struct fault_disk *left)
{
    return fault_exists(left, "a/../a/x"); /* an image knows what lies above a directory */
}

static void
two_directories(struct fault_disk *disk)
{
    fault_start(disk);
    assert_int_equal(fault_run_path(disk, STI_AIO_MKDIR, "a", 0), 0);
    assert_int_equal(fault_run_path(disk, STI_AIO_MKDIR, "b", 0), 0);
    assert_int_equal(fault_run_path(disk, STI_AIO_SYNC_DIR, ".", 0), 0);
}

static void
a_file_that_moves_is_never_lost(void **state)
{
    struct fault_disk disk;

    (void)state;
    two_directories(&disk);
    (void)fault_durable_file(&disk, "a/x", "text");
    assert_int_equal(fault_rename(&disk, "a/x", "b/x"), 0);
    assert_true(sometimes(&disk, has_both) && sometimes(&disk, has_one));
    assert_true(sometimes(&disk, has_new_name) && sometimes(&disk, has_old_name));
    assert_int_equal(count_left(&disk, has_both) + count_left(&disk, has_one),
                     sti_fault_variants(disk.fault));
    assert_int_equal(fault_run_path(&disk, STI_AIO_SYNC_DIR, "b", 0), 0);
    assert_true(always(&disk, has_new_name));
    assert_true(sometimes(&disk, has_old_name));
    assert_int_equal(fault_run_path(&disk, STI_AIO_SYNC_DIR, "a", 0), 0);
    assert_true(never(&disk, has_old_name));
    fault_stop(&disk);
}

static void
a_directory_has_one_name(void **state)
{
    struct fault_disk disk;

    (void)state;
    two_directories(&disk);
    assert_int_equal(fault_run_path(&disk, STI_AIO_MKDIR, "a/x", 0), 0);
    assert_int_equal(fault_run_path(&disk, STI_AIO_SYNC_DIR, "a", 0), 0);
    assert_int_equal(fault_rename(&disk, "a/x", "b/x"), 0);
    assert_true(always(&disk, has_one));
    assert_true(sometimes(&disk, has_new_name));
    assert_int_equal(fault_run_path(&disk, STI_AIO_SYNC_DIR, "a", 0), 0);
    assert_true(always(&disk, has_new_name));
    assert_int_equal(fault_run_path(&disk, STI_AIO_SYNC_DIR, "b", 0), 0);
    assert_int_equal(sti_fault_variants(disk.fault), 1);
    fault_stop(&disk);
}

static void
unlinks_and_directories_are_volatile(void **state)
{
    struct fault_disk disk;

    (void)state;
    two_directories(&disk);
    (void)fault_durable_file(&disk, "f", "old");
    assert_int_equal(fault_run_path(&disk, STI_AIO_UNLINK, "f", 0), 0);
    assert_true(sometimes(&disk, f_is_old));
    assert_int_equal(fault_run_path(&disk, STI_AIO_UNLINK, "a", AT_REMOVEDIR), 0);
    assert_int_equal(fault_run_path(&disk, STI_AIO_SYNC_DIR, ".", 0), 0);
    assert_true(never(&disk, has_f));
    /* A directory that is synced, in one that is not. */
    assert_int_equal(fault_run_path(&disk, STI_AIO_MKDIR, "a", 0), 0);
    int fd = fault_must_open(&disk, "a/x");
    assert_int_equal(fault_run_fd(&disk, STI_AIO_SYNC, fd, 0), 0);
    assert_int_equal(fault_run_path(&disk, STI_AIO_SYNC_DIR, "a", 0), 0);
    assert_true(sometimes(&disk, has_old_name));
    assert_int_equal(fault_run_path(&disk, STI_AIO_SYNC_DIR, ".", 0), 0);
    assert_true(always(&disk, has_old_name));
    fault_stop(&disk);
}

/* ---- failed syncs ------------------------------------------------------------------ */

static void
a_failed_sync_loses_what_it_covered(void **state)
{
    struct fault_disk disk;
    struct sti_fault_rule rule = {.op_idx = STI_FAULT_ANY,
                                  .kinds = BIT(STI_AIO_SYNC),
                                  .n_times = 1,
                                  .effect = STI_FAULT_FAIL,
                                  .error = EIO};

    (void)state;
    fault_start(&disk);
    int fd = fault_durable_file(&disk, "f", "old");
    assert_int_equal(fault_write_at(&disk, fd, 0, "new", 3), 3);
    assert_int_equal(sti_fault_add_rule(disk.fault, &rule), 0);
    assert_int_equal(fault_run_fd(&disk, STI_AIO_SYNC, fd, 0), -EIO);
    assert_true(f_is_new(&disk)); /* reads still show it */
    assert_int_equal(fault_run_fd(&disk, STI_AIO_SYNC, fd, 0), 0);
    assert_true(sometimes(&disk, f_is_old)); /* the error was said once, and that was that */
    assert_int_equal(fault_write_at(&disk, fd, 0, "new", 3), 3);
    assert_int_equal(fault_run_fd(&disk, STI_AIO_SYNC, fd, 0), 0);
    assert_true(always(&disk, f_is_new)); /* written anew, it is safe */
    fault_stop(&disk);
}

static void
a_failed_directory_sync_loses_names(void **state)
{
    struct fault_disk disk;
    struct sti_fault_rule rule = {.op_idx = STI_FAULT_ANY,
                                  .kinds = BIT(STI_AIO_SYNC_DIR),
                                  .n_times = 1,
                                  .effect = STI_FAULT_FAIL,
                                  .error = ENOSPC};

    (void)state;
    fault_start(&disk);
    (void)fault_must_open(&disk, "f");
    assert_int_equal(sti_fault_add_rule(disk.fault, &rule), 0);
    assert_int_equal(fault_run_path(&disk, STI_AIO_SYNC_DIR, ".", 0), -ENOSPC);
    assert_int_equal(fault_run_path(&disk, STI_AIO_SYNC_DIR, ".", 0), 0);
    assert_true(sometimes(&disk, has_f));
    fault_stop(&disk);
}

/* ---- power cuts -------------------------------------------------------------------- */

static void
without_power_nothing_happens(void **state)
{
    struct fault_disk disk;
    char bytes[8192];

    (void)state;
    fault_start(&disk);
    int fd = fault_durable_file(&disk, "f", "old");
    uint64_t n_ops = sti_fault_ops(disk.fault);
    uint64_t n_steps = sti_fault_steps(disk.fault);
    sti_fault_crash_at(disk.fault, n_steps);
    assert_false(sti_fault_is_off(disk.fault));
    assert_int_equal(fault_write_at(&disk, fd, 0, "new", 3), -EIO);
    assert_true(sti_fault_is_off(disk.fault));
    assert_int_equal(fault_run_fd(&disk, STI_AIO_SYNC, fd, 0), -EIO);
    assert_int_equal(fault_read_file(&disk, "f", bytes), -EIO);
    assert_int_equal(sti_fault_ops(disk.fault), n_ops);
    assert_int_equal(sti_fault_steps(disk.fault), n_steps);
    assert_int_equal(sti_fault_variants(disk.fault), 1);
    assert_true(always(&disk, f_is_old));
    struct sti_fault *none = NULL;
    assert_int_equal(sti_fault_new_crashed(&none, disk.fault, 1), -EINVAL);
    assert_null(none);
    fault_stop(&disk);
}

/* A variant is a value: twice the same, and recovery may itself be cut off. */
static void
images_are_values(void **state)
{
    struct fault_disk disk;
    char text[2000];

    (void)state;
    memset(text, 'n', sizeof(text));
    fault_start(&disk);
    int fd = fault_must_open(&disk, "f");
    for (uint64_t at = 0; at < 3; at++)
        assert_int_equal(fault_write_at(&disk, fd, at * 1500, text, sizeof(text)), sizeof(text));
    for (uint64_t variant = 0; variant < sti_fault_variants(disk.fault); variant++) {
        struct fault_disk left[2];
        char bytes[2][8192];
        int32_t n[2];

        for (int at = 0; at < 2; at++) {
            fault_crash(&left[at], &disk, variant);
            n[at] = fault_read_file(&left[at], "f", bytes[at]);
        }
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(bytes[0], bytes[1], 8192);
        assert_int_equal(sti_fault_variants(left[0].fault), 1);
        assert_true(fault_run_path(&left[0], STI_AIO_MKDIR, "d", 0) == 0);
        assert_int_equal(sti_fault_variants(left[0].fault), 2 + 2 + 64);
        fault_stop(&left[0]);
        fault_stop(&left[1]);
    }
    fault_stop(&disk);
}

/* What a program may do wrong when it replaces a file. */
enum mistake {
    NO_MISTAKE,
    NO_SYNC,
    NO_DIR_SYNC,
    SYNC_WITH_WRITE,
    RENAME_WITH_SYNC,
    ACK_BEFORE_DIR_SYNC,
    IN_PLACE,
    IGNORE_SYNC_ERROR,
    MISTAKES
};

#define TEXT_BYTES 3000u

static int32_t
run_both(struct fault_disk *disk, struct sti_aio_op *first, struct sti_aio_op *second)
{
    first->done = second->done = NULL;
    sti_aio_submit(disk->aio, first);
    sti_aio_submit(disk->aio, second);
    while (sti_aio_pending(disk->aio) > 0)
        (void)sti_aio_wait(disk->aio, UINT64_MAX);
    return first->result < 0 ? first->result : second->result;
}

/* Replaces "f" by other bytes. Returns 0 when it says that they are safe. */
static int32_t
save(struct fault_disk *disk, enum mistake mistake, char *text, bool *is_acked)
{
    const char *path = mistake == IN_PLACE ? "f" : "t";
    int32_t fd = fault_run_path(disk, STI_AIO_OPEN, path, O_RDWR | O_CREAT);
    struct sti_aio_op write = {
        .kind = STI_AIO_WRITE, .fd = fd, .bytes = text, .n_bytes = TEXT_BYTES};
    struct sti_aio_op sync = {.kind = STI_AIO_SYNC, .fd = fd};
    struct sti_aio_op rename = {.kind = STI_AIO_RENAME,
                                .dir_fd = AT_FDCWD,
                                .dir_fd2 = AT_FDCWD,
                                .path = path,
                                .path2 = "f"};
    int32_t rc = fd < 0 ? fd : 0;

    if (rc == 0 && mistake == SYNC_WITH_WRITE)
        rc = run_both(disk, &write, &sync);
    else if (rc == 0)
        rc = sti_aio_run(disk->aio, &write);
    if (rc >= 0 && mistake == RENAME_WITH_SYNC) {
        rc = run_both(disk, &sync, &rename);
    } else {
        if (rc >= 0 && mistake != NO_SYNC && mistake != SYNC_WITH_WRITE) {
            rc = sti_aio_run(disk->aio, &sync);
            if (rc == -ENOSPC && mistake == IGNORE_SYNC_ERROR)
                rc = sti_aio_run(disk->aio, &sync);
        }
        if (rc >= 0)
            rc = sti_aio_run(disk->aio, &rename);
    }
    *is_acked = rc >= 0 && mistake == ACK_BEFORE_DIR_SYNC;
    if (rc >= 0 && mistake != NO_DIR_SYNC)
        rc = fault_run_path(disk, STI_AIO_SYNC_DIR, ".", 0);
    *is_acked |= rc >= 0;
    return rc;
}

static char old_text[TEXT_BYTES];
static char new_text[TEXT_BYTES];

/* Whether every image of a save cut off at this step is as promised. *ret_is_over: it was
 * not cut off at all. */
static bool
survives(enum mistake mistake, uint64_t step, uint64_t seed, bool *ret_is_over)
{
    struct fault_disk disk;
    bool is_acked = false;
    bool is_good = true;
    struct sti_fault_rule rule = {.op_idx = STI_FAULT_ANY,
                                  .kinds = BIT(STI_AIO_SYNC),
                                  .n_times = 1,
                                  .effect = STI_FAULT_FAIL,
                                  .error = ENOSPC};

    fault_start(&disk);
    assert_int_equal(sti_fault_put_file(disk.fault, "f", old_text, TEXT_BYTES), 0);
    sti_fault_crash_at(disk.fault, step);
    sti_fault_reorder(disk.fault, seed);
    if (mistake == IGNORE_SYNC_ERROR)
        assert_int_equal(sti_fault_add_rule(disk.fault, &rule), 0);
    int32_t rc = save(&disk, mistake, new_text, &is_acked);
    *ret_is_over = !sti_fault_is_off(disk.fault);
    assert_true(*ret_is_over == (rc >= 0));
    for (uint64_t at = 0; at < sti_fault_variants(disk.fault) && is_good; at++) {
        struct fault_disk left;
        char bytes[8192];

        fault_crash(&left, &disk, at);
        is_good = fault_read_file(&left, "f", bytes) == TEXT_BYTES &&
                  (memcmp(bytes, new_text, TEXT_BYTES) == 0 ||
                   (!is_acked && memcmp(bytes, old_text, TEXT_BYTES) == 0));
        fault_stop(&left);
    }
    fault_stop(&disk);
    return is_good;
}

static void
every_mistake_is_found(void **state)
{
    (void)state;
    memset(old_text, 'o', TEXT_BYTES);
    memset(new_text, 'n', TEXT_BYTES);
    for (enum mistake mistake = NO_MISTAKE; mistake < MISTAKES; mistake++) {
        for (uint64_t seed = 0; seed < 3; seed++) {
            bool is_over = false;
            uint64_t n_bad = 0;
            uint64_t step = 0;

            for (; !is_over; step++)
                n_bad += survives(mistake, step, seed, &is_over) ? 0 : 1;
            if ((n_bad == 0) != (mistake == NO_MISTAKE))
                fail_msg("mistake %u, seed %u: %u bad of %u steps", mistake, (unsigned)seed,
                         (unsigned)n_bad, (unsigned)step);
            if (mistake == NO_MISTAKE)
                assert_int_equal(step, 2 * 5 + 1); /* five operations, and none cut off */
        }
    }
}

/* With no memory an operation has no effect, and nothing leaks or breaks. */
static void
memory_may_run_out(void **state)
{
    bool is_over = false;

    (void)state;
    for (uint64_t n = 1; !is_over; n++) {
        struct fault_disk disk;
        struct sti_fault *left = NULL;
        bool is_acked;

        fault_start(&disk);
        assert_int_equal(sti_fault_put_file(disk.fault, "f", "old", 3), 0);
        sti_mem_fail_at(n, 0);
        int32_t rc = save(&disk, NO_MISTAKE, new_text, &is_acked);
        if (rc == 0)
            rc = sti_fault_new_crashed(&left, disk.fault, 0);
        sti_mem_fail_at(0, 0);
        assert_true(rc == 0 || rc == -ENOMEM);
        assert_true(fault_exists(&disk, "f"));
        is_over = rc == 0;
        sti_fault_free(left);
        fault_stop(&disk);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sync_covers_a_file_and_not_its_name),
        cmocka_unit_test(a_name_without_its_bytes),
        cmocka_unit_test(a_sync_covers_what_had_completed),
        cmocka_unit_test(a_sync_under_way_covers_nothing_for_sure),
        cmocka_unit_test(a_write_under_way_may_be_there),
        cmocka_unit_test(nothing_crosses_a_sync),
        cmocka_unit_test(unsynced_writes_have_no_order),
        cmocka_unit_test(each_change_is_left_out_once),
        cmocka_unit_test(objects_have_no_order),
        cmocka_unit_test(writes_tear_at_sectors),
        cmocka_unit_test(sizes_are_volatile_too),
        cmocka_unit_test(a_rename_is_all_or_nothing),
        cmocka_unit_test(a_file_that_moves_is_never_lost),
        cmocka_unit_test(a_directory_has_one_name),
        cmocka_unit_test(unlinks_and_directories_are_volatile),
        cmocka_unit_test(a_failed_sync_loses_what_it_covered),
        cmocka_unit_test(a_failed_directory_sync_loses_names),
        cmocka_unit_test(without_power_nothing_happens),
        cmocka_unit_test(images_are_values),
        cmocka_unit_test(every_mistake_is_found),
        cmocka_unit_test(memory_may_run_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
