/* SPDX-License-Identifier: Apache-2.0 */
/* Data sets that are one file: where samples lie, and every way in which a file can be
 * wrong. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "format/dataset.h"
#include "format_util.h"

static struct scratch scratch;

static int
setup(void **state)
{
    (void)state;
    scratch_open(&scratch, "sync", 4);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    scratch_close(&scratch);
    return 0;
}

static void
check_extent(const struct sti_dataset *dataset, uint64_t sample, uint64_t offset, uint64_t length)
{
    struct sti_extent extent;

    assert_int_equal(sti_dataset_extent(dataset, sample, &extent), 0);
    assert_int_equal(extent.offset, offset);
    assert_int_equal(extent.length, length);
    assert_int_equal(sti_dataset_length(dataset, sample), length);
}

static void
test_records(void **state)
{
    const char *path = scratch_path(&scratch, "r.bin");
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_RECORD,
                             .record_bytes = 100, .header_bytes = 7};
    char shown[256];
    struct sti_extent extent;

    (void)state;
    put_blob(path, 7 + 100 * 50);
    struct sti_dataset *dataset = open_good(&scratch, path, &opts);
    assert_int_equal(sti_dataset_count(dataset), 50);
    assert_int_equal(sti_dataset_bytes(dataset), 5000);
    assert_int_equal(sti_dataset_uniform_bytes(dataset), 100);
    assert_int_equal(sti_dataset_file_bytes(dataset), 5007);
    assert_true(sti_dataset_is_one_file(dataset));
    check_extent(dataset, 0, 7, 100);
    check_extent(dataset, 49, 4907, 100);
    assert_int_equal(sti_dataset_label(dataset, 3), -1);
    assert_int_equal(sti_dataset_largest(dataset, 3), 300);
    assert_int_equal(sti_dataset_largest(dataset, 51), 5000);
    assert_int_equal(sti_dataset_path(dataset, 3, shown, sizeof(shown)), 0);
    assert_string_equal(shown, path);
    assert_int_equal(sti_dataset_path(dataset, 3, shown, 5), -ENAMETOOLONG);
    assert_int_equal(strlen(shown), 4);
    assert_int_equal(sti_dataset_extent(dataset, 3, &extent), 0);
    assert_string_equal(extent.path, "r.bin");
    assert_int_equal(faccessat(sti_dataset_dir_fd(dataset), extent.path, R_OK, 0), 0);
    sti_dataset_close(dataset);
}

static void
test_record_errors(void **state)
{
    const char *path = scratch_path(&scratch, "cut.bin");
    const char *empty = scratch_path(&scratch, "empty.bin");
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_RECORD,
                             .record_bytes = 100, .header_bytes = 7};

    (void)state;
    put_blob(path, 7 + 100 * 50 + 99);
    put_blob(empty, 7);
    open_bad(&scratch, path, &opts, -EINVAL, "99 bytes remain behind 50 records");
    open_bad(&scratch, empty, &opts, -EINVAL, "empty");
    open_bad(&scratch, scratch_path(&scratch, "none.bin"), &opts, -ENOENT, "cannot open");
    open_bad(&scratch, scratch.path, &opts, -EISDIR, "directory");
    opts.record_bytes = 0;
    open_bad(&scratch, path, &opts, -EINVAL, "record_bytes is 0");
    opts.record_bytes = (UINT64_C(1) << 40) + 1;
    open_bad(&scratch, path, &opts, -EINVAL, "record_bytes");
    opts.record_bytes = 100;
    opts.window_tokens = 3;
    open_bad(&scratch, path, &opts, -EINVAL, "window_tokens");
    opts.window_tokens = 0;
    opts.extensions = ".jpg";
    open_bad(&scratch, path, &opts, -EINVAL, "extensions");
    opts.extensions = NULL;
    opts.format = STK_FORMAT_AUTO;
    open_bad(&scratch, path, &opts, -EINVAL, "record_bytes");
    opts.format = 8;
    open_bad(&scratch, path, &opts, -EINVAL, "format is 8");
    open_bad(&scratch, path, NULL, -EINVAL, "neither .npy nor IDX");
    opts = (stk_dataset_opts){STK_DATASET_OPTS_INIT, .format = STK_FORMAT_FOLDER};
    open_bad(&scratch, path, &opts, -ENOTDIR, "a file");
    path = scratch_path(&scratch, "pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    open_bad(&scratch, path, NULL, -EINVAL, "neither a directory nor a regular file");
}

static void
open_unreadable(const struct scratch *own)
{
    open_bad(own, scratch_path(own, "secret.npy"), NULL, -EACCES, "cannot read");
}

static void
test_unreadable(void **state)
{
    const char *path = scratch_path(&scratch, "secret.npy");

    (void)state;
    put_blob(path, 100);
    assert_int_equal(chmod(path, 0), 0);
    assert_int_equal(chmod(scratch.path, 0755), 0);
    int rc = wait_child(start_child(&scratch, "unreadable"));
    if (rc == 77)
        skip();
    assert_int_equal(rc, 0);
}

static void
test_windows(void **state)
{
    const char *path = scratch_path(&scratch, "tokens");
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_WINDOW, .window_tokens = 9,
                             .stride_tokens = 4};

    (void)state;
    put_blob(path, 2 * 30);
    struct sti_dataset *dataset = open_good(&scratch, path, &opts);
    assert_int_equal(sti_dataset_count(dataset), 6); /* starts 0, 4 .. 20; 24 + 9 > 30 */
    check_extent(dataset, 5, 40, 18);
    assert_int_equal(sti_dataset_bytes(dataset), 6 * 18);
    sti_dataset_close(dataset);
    opts.stride_tokens = 0;
    dataset = open_good(&scratch, path, &opts);
    assert_int_equal(sti_dataset_count(dataset), 3);
    check_extent(dataset, 2, 36, 18);
    sti_dataset_close(dataset);
    opts.window_tokens = 30;
    dataset = open_good(&scratch, path, &opts);
    assert_int_equal(sti_dataset_count(dataset), 1);
    sti_dataset_close(dataset);
    opts.window_tokens = 31;
    open_bad(&scratch, path, &opts, -EINVAL, "longer than the file");
    opts.window_tokens = 0;
    open_bad(&scratch, path, &opts, -EINVAL, "window_tokens");
    opts.window_tokens = 4;
    opts.token_bytes = 7;
    open_bad(&scratch, path, &opts, -EINVAL, "4 bytes remain");
    opts.token_bytes = 65;
    open_bad(&scratch, path, &opts, -EINVAL, "token_bytes");
}

/* A .npy of a type with rows of four elements. */
static void
put_npy(const char *path, const char *text, size_t n_bytes)
{
    unsigned char bytes[1024] = "\x93NUMPY\x01";
    size_t n = strlen(text);

    bytes[8] = (unsigned char)n;
    memcpy(bytes + 10, text, n);
    for (size_t i = 0; i < n_bytes; i++)
        bytes[10 + n + i] = (unsigned char)(i < 4 ? i : 0);
    put_file(path, bytes, 10 + n + n_bytes);
}

static void
test_arrays(void **state)
{
    static const unsigned char gz[] = {0x1f, 0x8b, 8, 0, 0};
    const char *path = scratch_path(&scratch, "a.npy");
    const char *idx_path = scratch_path(&scratch, "a.idx");
    static unsigned char idx[16 + 2 * 28 * 28] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28};
    stk_dataset_info info = {STK_DATASET_INFO_INIT};

    (void)state;
    put_npy(path, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2, 2), }\n", 48);
    struct sti_dataset *dataset = open_good(&scratch, path, NULL);
    sti_dataset_info(dataset, &info);
    assert_int_equal(info.format, STK_FORMAT_NPY);
    assert_int_equal(info.samples, 3);
    assert_int_equal(info.dims, 2);
    assert_int_equal(info.shape[1], 2);
    assert_int_equal(info.record_bytes, 16);
    assert_string_equal(info.dtype, "<f4");
    check_extent(dataset, 2, 10 + 63 + 32, 16);
    sti_dataset_close(dataset);
    put_npy(path, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2, 2), }\n", 47);
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT, .rebuild = 1};
    open_bad(&scratch, path, &opts, -EINVAL, "cut off");
    put_npy(path, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2, 2), }\n", 0);
    open_bad(&scratch, path, &opts, -EINVAL, "empty");
    put_file(idx_path, idx, sizeof(idx));
    dataset = open_good(&scratch, idx_path, NULL);
    assert_int_equal(sti_dataset_count(dataset), 2);
    check_extent(dataset, 1, 16 + 784, 784);
    sti_dataset_close(dataset);
    put_file(idx_path, gz, sizeof(gz));
    open_bad(&scratch, idx_path, &opts, -EINVAL, "gunzip");
    opts.format = STK_FORMAT_IDX;
    open_bad(&scratch, idx_path, &opts, -EINVAL, "gunzip");
}

static void
test_labels(void **state)
{
    static const unsigned char idx[] = {0, 0, 9, 1, 0, 0, 0, 3, 5, 0xff, 7};
    const char *path = scratch_path(&scratch, "l.npy");
    const char *idx_path = scratch_path(&scratch, "l.idx");
    const char *npy_path = scratch_path(&scratch, "labels.npy");
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT, .labels_path = idx_path};

    (void)state;
    put_npy(path, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n", 48);
    put_file(idx_path, idx, sizeof(idx));
    struct sti_dataset *dataset = open_good(&scratch, path, &opts);
    assert_int_equal(sti_dataset_label(dataset, 0), 5);
    assert_int_equal(sti_dataset_label(dataset, 1), -1);
    assert_int_equal(sti_dataset_label(dataset, 2), 7);
    uint64_t fingerprint = sti_dataset_fingerprint(dataset);
    sti_dataset_close(dataset);
    put_npy(npy_path, "{'descr': '<i8', 'fortran_order': False, 'shape': (3, 1), }\n", 24);
    opts.labels_path = npy_path;
    dataset = open_good(&scratch, path, &opts);
    assert_int_equal(sti_dataset_label(dataset, 0), 0x03020100);
    assert_int_not_equal(sti_dataset_fingerprint(dataset), fingerprint);
    sti_dataset_close(dataset);
    dataset = open_good(&scratch, path, &opts);
    assert_int_equal(sti_dataset_label(dataset, 0), 0x03020100);
    sti_dataset_close(dataset);
    put_npy(npy_path, "{'descr': '<i2', 'fortran_order': False, 'shape': (4,), }\n", 8);
    open_bad(&scratch, path, &opts, STK_E_STALE, "bytes");
    opts.rebuild = 1;
    open_bad(&scratch, path, &opts, -EINVAL, "4 values for 3 samples");
    put_npy(npy_path, "{'descr': '<f2', 'fortran_order': False, 'shape': (3,), }\n", 6);
    open_bad(&scratch, path, &opts, -EINVAL, "no integers");
    opts.labels_path = scratch_path(&scratch, "nowhere");
    open_bad(&scratch, path, &opts, -ENOENT, "labels");
    opts.labels_path = scratch.path;
    open_bad(&scratch, path, &opts, -EINVAL, "no regular file");
    opts.labels_path = idx_path;
    open_bad(&scratch, scratch.path, &opts, -EINVAL, "labels_path");
}

static const struct child children[] = {
    {"unreadable", true, open_unreadable},
    {NULL, false, NULL},
};

int
main(int argc, char **argv)
{
    int status = child_main(argc, argv, children);
    if (status >= 0)
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_records, setup, teardown),
        cmocka_unit_test_setup_teardown(test_record_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unreadable, setup, teardown),
        cmocka_unit_test_setup_teardown(test_windows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_arrays, setup, teardown),
        cmocka_unit_test_setup_teardown(test_labels, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
