/* SPDX-License-Identifier: Apache-2.0 */
/* Folders: order, classes, links, every method of I/O giving the same index. */
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
#include "format/dataset.h"
#include "format/name.h"
#include "format_util.h"

static struct scratch scratch;

static int
setup(void **state)
{
    const char *const *method = (const char *const *)*state;

    scratch_open(&scratch, *method, 8);
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
test_class_folders(void **state)
{
    static const char *const files[] = {
        "top.jpg", "b/2.png",       "b/10.JPEG", "b/sub/a.bmp",        "b/sub-1/a.bmp",
        "b/x.txt", "b-1/only.webp", "B/z.tiff",  "a\xc3\xa9/n\nl.ppm", "a\xff/q.jpg",
        "b/.jpg",
    };
    static const struct {
        const char *path;
        int64_t label;
    } expected[] = {
        {"B/z.tiff", 0},    {"a\xc3\xa9/n\nl.ppm", 1}, {"a\xff/q.jpg", 2},
        {"b/.jpg", 3},      {"b/10.JPEG", 3},          {"b/2.png", 3},
        {"b/sub/a.bmp", 3}, {"b/sub-1/a.bmp", 3},      {"b-1/only.webp", 4},
    };
    size_t n = sizeof(expected) / sizeof(expected[0]);
    stk_dataset_info info = {STK_DATASET_INFO_INIT};

    (void)state;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        put_blob(scratch_path(&scratch, "%s", files[i]), i + 1);
    for (int round = 0; round < 2; round++) {
        struct sti_dataset *dataset = open_good(&scratch, scratch.path, NULL);

        sti_dataset_info(dataset, &info);
        assert_int_equal(info.format, STK_FORMAT_CLASS_FOLDER);
        assert_int_equal(info.index_built, round == 0);
        assert_int_equal(info.samples, n);
        assert_int_equal(info.classes, 5);
        for (size_t i = 0; i < n; i++)
            check_sample(dataset, i, expected[i].path, expected[i].label);
        assert_int_equal(sti_dataset_length(dataset, 5), 2);
        assert_int_equal(sti_dataset_length(dataset, 4), 3);
        assert_string_equal(sti_dataset_class_name(dataset, 2), "a\xff");
        assert_null(sti_dataset_class_name(dataset, 5));
        assert_false(sti_dataset_is_one_file(dataset));
        assert_true(sti_dataset_largest(dataset, 3) >= 11 + 10 + 9);
        sti_dataset_close(dataset);
    }
}

static void
test_plain_folder(void **state)
{
    static const char *const files[] = {"b",   "a/z", "a-1",  "a/b/c",
                                        "a.x", "a0",  "\xff", "\xee\x80\x80"};
    static const char *const expected[] = {"a-1", "a.x", "a/b/c",        "a/z",
                                           "a0",  "b",   "\xee\x80\x80", "\xff"};
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT};

    (void)state;
    for (size_t i = 0; i < 8; i++)
        put_blob(scratch_path(&scratch, "%s", files[i]), i);
    for (int round = 0; round < 2; round++) {
        struct sti_dataset *dataset = open_good(&scratch, scratch.path, &opts);

        assert_int_equal(sti_dataset_count(dataset), 8);
        for (size_t i = 0; i < 8; i++)
            check_sample(dataset, i, expected[i], -1);
        sti_dataset_close(dataset);
        opts.format = STK_FORMAT_FOLDER;
    }
}

/* The rule of the order as properties of random trees, and that methods agree byte by
 * byte. */
static void
put_random_tree(uint64_t seed)
{
    static const char *const parts[] = {
        "a",    "b", "B",  "a-", "a.", "a0", "\xc3\xa9", "\xf0\x9f\x98\x80", "\xee\x80\x80",
        "\xff", " ", "z\n"};
    for (int i = 0; i < 300; i++) {
        char path[256] = "";

        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t bits = seed >> 20;
        int depth = 1 + (int)(bits % 3);
        bits /= 3;
        for (int level = 0; level <= depth; level++, bits /= 12) {
            size_t n = strlen(path);

            (void)snprintf(path + n, sizeof(path) - n, "%s%s%s", level ? "/" : "", parts[bits % 12],
                           level == depth ? ".png" : "");
        }
        put_blob(scratch_path(&scratch, "t/%s", path), (size_t)i);
    }
}

static void
split(const char *path, char *class_name, char *directory, char *name)
{
    const char *first = strchr(path, '/');
    const char *last = strrchr(path, '/');

    (void)snprintf(class_name, 256, "%.*s", (int)(first - path), path);
    (void)snprintf(directory, 256, "%.*s", (int)(last - path), path);
    (void)snprintf(name, 256, "%s", last + 1);
}

static void
check_class_order(const struct sti_dataset *dataset)
{
    char parts[2][3][256];
    struct sti_extent extent;

    for (uint64_t i = 0; i < sti_dataset_count(dataset); i++) {
        char(*now)[256] = parts[i % 2], (*before)[256] = parts[(i + 1) % 2];

        assert_int_equal(sti_dataset_extent(dataset, i, &extent), 0);
        split(extent.path, now[0], now[1], now[2]);
        int64_t label = sti_dataset_label(dataset, i);
        assert_string_equal(sti_dataset_class_name(dataset, (uint32_t)label), now[0]);
        if (i == 0)
            continue;
        int order = sti_name_compare_text(before[0], now[0]);
        assert_int_equal(label, sti_dataset_label(dataset, i - 1) + (order < 0));
        if (order == 0)
            order = sti_name_compare_text(before[1], now[1]);
        if (order == 0)
            order = sti_name_compare_text(before[2], now[2]);
        assert_true(order < 0);
    }
}

static void
test_random_trees(void **state)
{
    struct sti_extent extent;

    (void)state;
    put_random_tree(5);
    const char *root = scratch_path(&scratch, "t");
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_FOLDER};
    struct sti_dataset *dataset = open_good(&scratch, root, &opts);
    uint64_t n = sti_dataset_count(dataset);
    char before[256] = "";
    for (uint64_t i = 0; i < n; i++) {
        assert_int_equal(sti_dataset_extent(dataset, i, &extent), 0);
        assert_true(strcmp(before, extent.path) < 0);
        (void)snprintf(before, sizeof(before), "%s", extent.path);
    }
    sti_dataset_close(dataset);
    opts.format = STK_FORMAT_CLASS_FOLDER;
    dataset = open_good(&scratch, root, &opts);
    assert_int_equal(sti_dataset_count(dataset), n);
    check_class_order(dataset);
    sti_dataset_close(dataset);
}

/* However the listings come in, the index is the same. */
static void
test_parallel_is_serial(void **state)
{
    struct scratch serial;
    uint64_t fingerprints[8];
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT, .rebuild = 1};

    (void)state;
    put_random_tree(9);
    const char *root = scratch_path(&scratch, "t");
    scratch_open(&serial, "sync", 1);
    for (int i = 0; i < 8; i++) {
        struct sti_dataset *dataset = open_good(i == 0 ? &serial : &scratch, root, &opts);

        fingerprints[i] = sti_dataset_fingerprint(dataset);
        assert_int_equal(fingerprints[i], fingerprints[0]);
        sti_dataset_close(dataset);
    }
    scratch_close(&serial);
}

static void
test_links(void **state)
{
    (void)state;
    put_blob(scratch_path(&scratch, "t/c/1.png"), 3);
    put_blob(scratch_path(&scratch, "o/d/2.png"), 4);
    put_blob(scratch_path(&scratch, "o/3.png"), 5);
    assert_int_equal(symlink("../../o/3.png", scratch_path(&scratch, "t/c/0.png")), 0);
    assert_int_equal(symlink("../../o/d", scratch_path(&scratch, "t/c/9")), 0);
    assert_int_equal(symlink("../o/d", scratch_path(&scratch, "t/again")), 0);
    assert_int_equal(symlink("nowhere", scratch_path(&scratch, "t/c/broken.txt")), 0);
    const char *root = scratch_path(&scratch, "t");
    struct sti_dataset *dataset = open_good(&scratch, root, NULL);
    assert_int_equal(sti_dataset_count(dataset), 4);
    check_sample(dataset, 0, "again/2.png", 0);
    check_sample(dataset, 1, "c/0.png", 1);
    check_sample(dataset, 2, "c/1.png", 1);
    check_sample(dataset, 3, "c/9/2.png", 1);
    assert_int_equal(sti_dataset_length(dataset, 1), 5);
    sti_dataset_close(dataset);
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT, .rebuild = 1};
    assert_int_equal(symlink("nowhere", scratch_path(&scratch, "t/c/broken.png")), 0);
    open_bad(&scratch, root, &opts, -ENOENT, "leads nowhere");
    assert_int_equal(unlink(scratch_path(&scratch, "t/c/broken.png")), 0);
    assert_int_equal(symlink("..", scratch_path(&scratch, "t/c/up")), 0);
    open_bad(&scratch, root, &opts, -ELOOP, "leads back");
}

static void
open_unreadable(const struct scratch *own)
{
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT, .rebuild = 1};

    open_bad(own, scratch_path(own, "t"), &opts, -EACCES, "cannot list");
}

static void
test_folder_errors(void **state)
{
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_CLASS_FOLDER};

    (void)state;
    assert_int_equal(mkdir(scratch_path(&scratch, "t"), 0777), 0);
    const char *root = scratch_path(&scratch, "t");
    open_bad(&scratch, root, NULL, -EINVAL, "empty");
    open_bad(&scratch, root, &opts, -EINVAL, "no classes");
    put_blob(scratch_path(&scratch, "t/a/1.png"), 3);
    put_blob(scratch_path(&scratch, "t/b/1.txt"), 3);
    open_bad(&scratch, root, NULL, -EINVAL, "class \"b\" holds no file");
    opts.extensions = " ";
    open_bad(&scratch, root, &opts, -EINVAL, "extensions is empty");
    opts.extensions = ".TXT .png";
    struct sti_dataset *dataset = open_good(&scratch, root, &opts);
    assert_int_equal(sti_dataset_count(dataset), 2);
    sti_dataset_close(dataset);
    open_bad(&scratch, scratch_path(&scratch, "gone"), NULL, -ENOENT, "cannot open");
    opts.extensions = "*";
    assert_int_equal(mkfifo(scratch_path(&scratch, "t/a/pipe"), 0600), 0);
    open_bad(&scratch, root, &opts, -EINVAL, "neither a regular file");
    opts.index_path = scratch_path(&scratch, "t/a/index");
    assert_int_equal(unlink(scratch_path(&scratch, "t/a/pipe")), 0);
    open_bad(&scratch, root, &opts, -EINVAL, "must end in .stoker-index");
    assert_int_equal(chmod(scratch.path, 0755), 0);
    assert_int_equal(chmod(scratch_path(&scratch, "t/b"), 0), 0);
    int rc = wait_child(start_child(&scratch, "unreadable"));
    assert_int_equal(chmod(scratch_path(&scratch, "t/b"), 0700), 0);
    if (rc == 77)
        skip();
    assert_int_equal(rc, 0);
}

static void
test_too_deep(void **state)
{
    enum { DEPTH = 25 };
    int fds[DEPTH + 1] = {open(scratch.path, O_PATH | O_CLOEXEC)};
    char name[201];

    (void)state;
    memset(name, 'n', 200);
    name[200] = '\0';
    for (int i = 0; i < DEPTH; i++) {
        assert_int_equal(mkdirat(fds[i], name, 0777), 0);
        fds[i + 1] = openat(fds[i], name, O_PATH | O_CLOEXEC);
        assert_true(fds[i + 1] >= 0);
    }
    open_bad(&scratch, scratch.path, NULL, -ENAMETOOLONG, "below");
    for (int i = DEPTH; i > 0; i--) {
        assert_int_equal(close(fds[i]), 0);
        assert_int_equal(unlinkat(fds[i - 1], name, AT_REMOVEDIR), 0);
    }
    assert_int_equal(close(fds[0]), 0);
}

/* An allocation that fails anywhere gives -ENOMEM and nothing else. */
static void
test_no_memory(void **state)
{
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT};
    struct sti_dataset *dataset = NULL;
    uint64_t n_failed = 0;

    (void)state;
    put_random_tree(3);
    const char *root = scratch_path(&scratch, "t");
    for (int round = 0; round < 3; round++) {
        opts.rebuild = round < 2;
        opts.format = round == 0 ? STK_FORMAT_FOLDER : STK_FORMAT_CLASS_FOLDER;
        for (uint64_t n = 1;; n += n < 60 ? 1 : 37) {
            sti_mem_fail_at(n, 1);
            int rc = sti_dataset_open(&dataset, scratch.aio, root, &opts, NULL, NULL);
            sti_mem_fail_at(0, 0);
            if (rc == 0)
                break;
            assert_int_equal(rc, -ENOMEM);
            n_failed++;
        }
        sti_dataset_close(dataset);
    }
    assert_true(n_failed > 100);
}

#define TESTS(method)                                                                     \
    {"class_folders " method, test_class_folders, setup, teardown, &state},               \
        {"plain_folder " method, test_plain_folder, setup, teardown, &state},             \
        {"random_trees " method, test_random_trees, setup, teardown, &state},             \
        {"parallel_is_serial " method, test_parallel_is_serial, setup, teardown, &state}, \
        {"links " method, test_links, setup, teardown, &state},                           \
        {"folder_errors " method, test_folder_errors, setup, teardown, &state},           \
        {"too_deep " method, test_too_deep, setup, teardown, &state},                     \
        {"no_memory " method, test_no_memory, setup, teardown, &state},

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
    static const char *state = "sync";
    const struct CMUnitTest sync_tests[] = {TESTS("sync")};
    const struct CMUnitTest uring_tests[] = {TESTS("uring")};
    int failed = cmocka_run_group_tests(sync_tests, NULL, NULL);

    if (failed == 0 && scratch_has_uring()) {
        state = "uring";
        failed = cmocka_run_group_tests(uring_tests, NULL, NULL);
    }
    return failed;
}
