/* SPDX-License-Identifier: Apache-2.0 */
/* Data sets of extents that the program lists: where samples lie, what is refused, the
 * n-th allocation. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "format/extents.h"
#include "format_util.h"

static struct scratch scratch;
static char files[2][160];

static int
setup(void **state)
{
    (void)state;
    scratch_open(&scratch, "sync", 4);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(files[i], sizeof(files[i]), "%s/%c", scratch.path, "ba"[i]);
        put_blob(files[i], 100);
    }
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    scratch_close(&scratch);
    return 0;
}

static struct sti_dataset *
open_extents(const stk_extent *extents, uint64_t n)
{
    struct sti_dataset *dataset = NULL;
    stk_error err = {0};

    if (sti_extents_open(&dataset, scratch.aio, extents, n, &err) < 0)
        fail_msg("%s", err.message);
    return dataset;
}

static void
refuse(stk_extent extent, int code, const char *words)
{
    struct sti_dataset *dataset = NULL;
    const stk_extent extents[2] = {{files[0], 0, 1, -1}, extent};
    stk_error err = {0};

    assert_int_equal(sti_extents_open(&dataset, scratch.aio, extents, 2, &err), code);
    assert_non_null(strstr(err.message, words));
    assert_null(dataset);
}

static void
test_samples(void **state)
{
    const stk_extent extents[] = {
        {files[0], 90, 10, 7}, {files[1], 0, 100, -1}, {files[0], 0, 0, 3}, {files[0], 90, 10, 7}};
    struct sti_dataset *dataset = open_extents(extents, 4);
    char path[200];

    (void)state;
    assert_int_equal(sti_dataset_count(dataset), 4);
    assert_int_equal(sti_dataset_files(dataset), 2);
    assert_int_equal(sti_dataset_bytes(dataset), 120);
    assert_int_equal(sti_dataset_max_bytes(dataset), 100);
    assert_int_equal(sti_dataset_uniform_bytes(dataset), 0);
    for (uint64_t sample = 0; sample < 4; sample++) {
        struct sti_extent found;

        assert_int_equal(sti_dataset_extent(dataset, sample, &found), 0);
        assert_int_equal(found.offset, extents[sample].offset);
        assert_int_equal(found.length, extents[sample].n_bytes);
        assert_int_equal(sti_dataset_label(dataset, sample), extents[sample].label);
        assert_int_equal(sti_dataset_path(dataset, sample, path, sizeof(path)), 0);
        assert_string_equal(path, extents[sample].path);
        assert_int_equal(faccessat(found.dir_fd, found.path, 0, 0), 0);
    }
    sti_dataset_close(dataset);
}

/* Other samples and other files have another fingerprint; changed ones another identity. */
static void
test_fingerprint(void **state)
{
    const struct timespec times[2] = {{.tv_sec = 5}, {.tv_sec = 6}};
    stk_extent extents[2] = {{files[0], 1, 5, -1}, {files[1], 1, 5, -1}};
    uint64_t seen[5], identities[5];

    (void)state;
    for (int round = 0; round < 5; round++) {
        if (round == 2)
            extents[0].path = files[1];
        if (round == 3)
            extents[1].offset = 2;
        if (round == 4)
            assert_int_equal(utimensat(AT_FDCWD, files[1], times, 0), 0);
        struct sti_dataset *dataset = open_extents(extents, 2);
        seen[round] = sti_dataset_fingerprint(dataset);
        identities[round] = sti_dataset_identity(dataset);
        sti_dataset_close(dataset);
    }
    assert_true(seen[0] == seen[1] && seen[1] != seen[2] && seen[2] != seen[3] &&
                seen[3] == seen[4]);
    assert_true(identities[0] == identities[1] && identities[1] != identities[2] &&
                identities[2] != identities[3] && identities[3] != identities[4]);
}

static void
test_refused(void **state)
{
    struct sti_dataset *dataset = NULL;
    stk_error err = {0};

    (void)state;
    refuse((stk_extent){files[0], 91, 10, -1}, -EINVAL, "extent 1 (10 bytes from 91 on)");
    refuse((stk_extent){files[0], UINT64_MAX, 2, -1}, -EINVAL, "ends behind");
    refuse((stk_extent){files[0], 0, UINT64_MAX, -1}, -EINVAL, "ends behind");
    refuse((stk_extent){"b", 0, 1, -1}, -EINVAL, "must be absolute");
    refuse((stk_extent){NULL, 0, 1, -1}, -EINVAL, "must be absolute");
    refuse((stk_extent){"/", 0, 1, -1}, -EINVAL, "must be absolute");
    refuse((stk_extent){scratch.path, 0, 1, -1}, -EISDIR, "cannot use");
    refuse((stk_extent){"/not/there", 0, 1, -1}, -ENOENT, "cannot use");
    assert_int_equal(
        sti_extents_open(&dataset, scratch.aio, &(stk_extent){files[0], 0, 1, -1}, 0, &err),
        -EINVAL);
}

static void
test_memory(void **state)
{
    const stk_extent extents[] = {{files[0], 90, 10, 7}, {files[1], 0, 100, -1}};
    uint64_t n = 0;

    (void)state;
    for (;;) {
        struct sti_dataset *dataset = NULL;
        stk_error err = {0};

        sti_mem_fail_at(++n, 1);
        int rc = sti_extents_open(&dataset, scratch.aio, extents, 2, &err);
        sti_mem_fail_at(0, 0);
        if (rc == 0) {
            sti_dataset_close(dataset);
            break;
        }
        assert_int_equal(rc, -ENOMEM);
        assert_null(dataset);
    }
    assert_true(n > 5);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_samples, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fingerprint, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
