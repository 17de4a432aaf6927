/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies on the disk is not what was written: any bit of any file flipped, files cut,
 * directories that look like checkpoints, manifests of a later version; and clocks that
 * jump. What is read is right or an error, and the newest whole checkpoint is found.
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
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "ckpt/manifest.h"
#include "ckpt/names.h"
#include "ckpt_machine.h"

#define SESSION 7 /* the machine's */
#define FILE_MAX 16384
#define CRC_FROM 11u /* behind {"crc32c":" */
#define CRC_DIGITS 8u

struct file {
    char path[128];
    char bytes[FILE_MAX];
    uint32_t n_bytes;
};

/* ---- the clock --------------------------------------------------------------------- */

/* The linker puts it in the place of the library's: the time of day is whatever a test
 * says. */
static uint64_t wall_s; /* 0: as it is */

int
__real_clock_gettime(clockid_t clock, struct timespec *now);
int
__wrap_clock_gettime(clockid_t clock, struct timespec *now);

int
__wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    int rc = __real_clock_gettime(clock, now);

    if (clock == CLOCK_REALTIME && wall_s > 0)
        *now = (struct timespec){.tv_sec = (time_t)wall_s};
    return rc;
}

/* ---- files on the disk ------------------------------------------------------------- */

static void
read_file(struct machine *machine, struct file *file)
{
    struct sti_aio_op op = {.kind = STI_AIO_READ_FILE,
                            .dir_fd = AT_FDCWD,
                            .path = file->path,
                            .bytes = file->bytes,
                            .n_bytes = FILE_MAX};
    int32_t n = sti_aio_run(machine->disk.aio, &op);

    assert_in_range(n, 1, FILE_MAX - 1);
    file->n_bytes = (uint32_t)n;
}

static void
put_file(struct machine *machine, const struct file *file)
{
    assert_int_equal(
        sti_fault_put_file(machine->disk.fault, file->path, file->bytes, file->n_bytes), 0);
}

/* The manifest of a step, or its part in a root; the serial of its save. */
static void
take_manifest(struct machine *machine, struct file *file, uint64_t step)
{
    (void)snprintf(file->path, sizeof(file->path), "/run/step-%llu/%s", (unsigned long long)step,
                   STI_MANIFEST_NAME);
    read_file(machine, file);
}

static void
name_part(struct file *file, uint64_t step, uint64_t serial, uint32_t root)
{
    char id[STI_ID_SIZE];

    sti_name_id(id, SESSION, serial);
    (void)snprintf(file->path, sizeof(file->path), "/%s/step-%llu.%s/part-0-%u.bin",
                   root == 0 ? "a" : "b", (unsigned long long)step, id, root);
}

static void
take_part(struct machine *machine, struct file *file, uint64_t step, uint64_t serial, uint32_t root)
{
    name_part(file, step, serial, root);
    read_file(machine, file);
}

/* Whether both roots have a part of step 2: one that writes while the other one waits for its
 * processor may write all of a small state. */
static bool
is_on_both(struct machine *machine)
{
    static struct file file;
    struct statx found;
    bool is_on = true;

    for (uint32_t root = 0; root < 2; root++) {
        struct sti_aio_op op = {.kind = STI_AIO_STATX,
                                .dir_fd = AT_FDCWD,
                                .path = file.path,
                                .statx_mask = STATX_SIZE,
                                .statx = &found};

        name_part(&file, 2, 1, root);
        is_on = sti_aio_run(machine->disk.aio, &op) == 0 && is_on;
    }
    return is_on;
}

/* Makes a manifest's checksum right again. */
static void
sum(struct file *manifest)
{
    const uint32_t from = CRC_FROM + CRC_DIGITS;
    char digits[CRC_DIGITS + 1];

    (void)snprintf(digits, sizeof(digits), "%08x",
                   sti_crc32c(0, manifest->bytes + from, manifest->n_bytes - from));
    memcpy(manifest->bytes + CRC_FROM, digits, CRC_DIGITS);
}

/* Changes a text of a manifest into another of the same length. */
static void
change(struct file *manifest, const char *from, const char *to)
{
    char *at = memmem(manifest->bytes, manifest->n_bytes, from, strlen(from));

    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    sum(manifest);
}

static void
stop(struct machine *machine)
{
    machine_stop(machine);
    fault_stop(&machine->disk);
}

static void
start_with_two(struct machine *machine)
{
    struct scenario scenario = {.world = 1, .n_roots = 2, .keep = 2};

    for (int tries = 0; tries < 50; tries++) {
        *machine = (struct machine){0};
        fault_start(&machine->disk);
        assert_int_equal(machine_start(machine, &scenario), 0);
        assert_int_equal(machine_save_and_wait(machine, 1), 0);
        assert_int_equal(machine_save_and_wait(machine, 2), 0);
        if (is_on_both(machine))
            return;
        stop(machine);
    }
    fail_msg("one root has everything");
}

/* ---- decay ------------------------------------------------------------------------- */

/* Whether step 2 is found damaged: passed over for step 1 where looking at it shows that,
 * else by reading it. */
static void
expect_damaged(struct machine *machine, bool shows)
{
    uint32_t n_skipped;
    int rc;
    uint64_t found = machine_find(&machine->disk, &rc, &n_skipped);

    if (shows) {
        assert_int_equal(rc, 0);
        assert_int_equal(found, 1);
        assert_int_equal(n_skipped, 1);
    } else {
        assert_int_equal(rc, STK_E_CORRUPT);
        assert_int_equal(n_skipped, 0);
    }
}

static void
flip_everywhere(struct machine *machine, const struct file *file, bool is_manifest)
{
    const uint32_t n_bits = getenv("STOKER_TEST_LONG") ? 8 : 1;
    static struct file bad;

    bad = *file;
    for (uint32_t at = 0; at < file->n_bytes; at++) {
        for (uint32_t bit = 0; bit < n_bits; bit++) {
            bad.bytes[at] = (char)(file->bytes[at] ^ 1 << (at + bit) % 8);
            put_file(machine, &bad);
            expect_damaged(machine, is_manifest);
        }
        bad.bytes[at] = file->bytes[at];
    }
    put_file(machine, file);
    assert_int_equal(machine_recover(&machine->disk, true), 2);
}

static void
test_flipped_bits(void **unused)
{
    struct machine machine;
    static struct file file;
    (void)unused;

    machine_divide_state(64);
    start_with_two(&machine);
    take_manifest(&machine, &file, 2);
    flip_everywhere(&machine, &file, true);
    for (uint32_t root = 0; root < 2; root++) {
        take_part(&machine, &file, 2, 1, root);
        flip_everywhere(&machine, &file, false);
    }
    stop(&machine);
    machine_divide_state(1);
}

/* Cut at every length, and one byte too long. */
static void
test_cut_files(void **unused)
{
    struct machine machine;
    static struct file file;
    static struct file bad;
    (void)unused;

    machine_divide_state(64);
    start_with_two(&machine);
    for (uint32_t which = 0; which < 3; which++) {
        if (which == 2)
            take_manifest(&machine, &file, 2);
        else
            take_part(&machine, &file, 2, 1, which);
        bad = file;
        for (bad.n_bytes = 0; bad.n_bytes <= file.n_bytes + 1; bad.n_bytes++) {
            put_file(&machine, &bad);
            if (bad.n_bytes != file.n_bytes)
                expect_damaged(&machine, true);
        }
        put_file(&machine, &file);
        assert_int_equal(machine_recover(&machine.disk, true), 2);
    }
    stop(&machine);
    machine_divide_state(1);
}

/* What is half written, or looks like a checkpoint, is none. */
static void
test_half_written(void **unused)
{
    static const char *const dirs[] = {"/run/step-9", "/run/step-8.0123456789abcdef-0",
                                       "/run/step-8.0123456789abcdef-0.tmp",
                                       "/run/step-8.0123456789abcdef-0.gone", "/run/step-6"};
    struct machine machine;
    static struct file file;
    uint32_t n_skipped;
    int rc;
    (void)unused;

    start_with_two(&machine);
    for (size_t at = 0; at < sizeof(dirs) / sizeof(dirs[0]); at++)
        assert_int_equal(fault_run_path(&machine.disk, STI_AIO_MKDIR, dirs[at], 0), 0);
    take_manifest(&machine, &file, 2);
    (void)snprintf(file.path, sizeof(file.path), "%s/%s", dirs[2], STI_MANIFEST_NAME);
    put_file(&machine, &file);
    (void)snprintf(file.path, sizeof(file.path), "/run/step-7");
    put_file(&machine, &file);
    assert_int_equal(machine_find(&machine.disk, &rc, &n_skipped), 2);
    assert_int_equal(rc, 0);
    /* A whole manifest under another step's name, and half of one. */
    (void)snprintf(file.path, sizeof(file.path), "%s/%s", dirs[0], STI_MANIFEST_NAME);
    put_file(&machine, &file);
    (void)snprintf(file.path, sizeof(file.path), "%s/%s", dirs[4], STI_MANIFEST_NAME);
    file.n_bytes /= 2;
    put_file(&machine, &file);
    assert_int_equal(machine_find(&machine.disk, &rc, &n_skipped), 2);
    assert_true(n_skipped >= 2);
    assert_int_equal(machine_save_and_wait(&machine, 3), 0);
    assert_int_equal(machine_find(&machine.disk, &rc, &n_skipped), 3);
    stop(&machine);
}

/* A later version is refused as such, passed over, and outlives removals. */
static void
test_from_the_future(void **unused)
{
    struct machine machine;
    struct sti_manifest manifest;
    static struct file file;
    uint32_t n_skipped;
    stk_error err;
    int rc;
    (void)unused;

    start_with_two(&machine);
    take_manifest(&machine, &file, 2);
    change(&file, "\"version\":1,", "\"version\":3,");
    put_file(&machine, &file);
    assert_int_equal(sti_manifest_decode(&manifest, file.bytes, file.n_bytes, &err), STK_E_VERSION);
    assert_non_null(strstr(err.message, "version 3"));
    expect_damaged(&machine, true);
    for (uint64_t step = 3; step < 7; step++)
        assert_int_equal(machine_save_and_wait(&machine, step), 0);
    assert_int_equal(machine_find(&machine.disk, &rc, &n_skipped), 6);
    assert_false(fault_exists(&machine.disk, "/run/step-1"));
    assert_true(fault_exists(&machine.disk, "/run/step-2/manifest.json"));
    assert_false(fault_exists(&machine.disk, "/run/step-4"));
    assert_true(fault_exists(&machine.disk, "/run/step-5"));
    take_part(&machine, &file, 2, 1, 0); /* its parts are there, too */
    stop(&machine);
}

/* ---- time -------------------------------------------------------------------------- */

/* The time of day goes back and forth by decades: the step says what is newest. */
static void
test_clock_jumps(void **unused)
{
    static const uint64_t times_s[] = {4000000000, 1, 2000000000, 3, 4200000000, 2};
    struct scenario scenario = {.world = 1, .n_roots = 1, .keep = 2};
    struct machine machine = {0};
    struct sti_manifest manifest;
    static struct file file;
    (void)unused;

    fault_start(&machine.disk);
    assert_int_equal(machine_start(&machine, &scenario), 0);
    for (uint64_t step = 0; step < sizeof(times_s) / sizeof(times_s[0]); step++) {
        wall_s = times_s[step];
        assert_int_equal(machine_save_and_wait(&machine, step), 0);
        take_manifest(&machine, &file, step);
        assert_int_equal(sti_manifest_decode(&manifest, file.bytes, file.n_bytes, NULL), 0);
        assert_int_equal(manifest.created_ns, times_s[step] * 1000000000);
        sti_manifest_fini(&manifest);
        assert_int_equal(machine_recover(&machine.disk, true), step);
        machine_check_all_left(&machine, step);
    }
    wall_s = 0;
    assert_true(fault_exists(&machine.disk, "/run/step-4"));
    assert_false(fault_exists(&machine.disk, "/run/step-3"));
    stop(&machine);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flipped_bits), cmocka_unit_test(test_cut_files),
        cmocka_unit_test(test_half_written), cmocka_unit_test(test_from_the_future),
        cmocka_unit_test(test_clock_jumps),
    };

    machine_pool_open();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    machine_pool_close();
    return failed;
}
