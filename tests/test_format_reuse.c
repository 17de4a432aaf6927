/* SPDX-License-Identifier: Apache-2.0 */
/* Indexes that are there already: when they are used, refused or replaced, and where they
 * go. */
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

#include "format/dataset.h"
#include "format_util.h"

static struct scratch scratch;
static char root[128], index_path[160];

static int
setup(void **state)
{
    (void)state;
    scratch_open(&scratch, "sync", 4);
    (void)snprintf(root, sizeof(root), "%s/t", scratch.path);
    (void)snprintf(index_path, sizeof(index_path), "%s/.stoker-index", root);
    for (int i = 0; i < 20; i++)
        put_blob(scratch_path(&scratch, "t/c%d/%d.png", i % 3, i), 10);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    scratch_close(&scratch);
    return 0;
}

static bool
was_built(const stk_dataset_opts *opts)
{
    stk_dataset_info info = {STK_DATASET_INFO_INIT};
    struct sti_dataset *dataset = open_good(&scratch, root, opts);

    sti_dataset_info(dataset, &info);
    sti_dataset_close(dataset);
    return info.index_built == 1;
}

static void
test_reuse(void **state)
{
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT};

    (void)state;
    assert_true(was_built(NULL));
    for (int i = 0; i < 3; i++)
        assert_false(was_built(NULL));
    opts.format = STK_FORMAT_CLASS_FOLDER; /* what AUTO has found */
    assert_false(was_built(&opts));
    opts.extensions = ".png";
    assert_true(was_built(&opts));
    assert_false(was_built(&opts));
    assert_true(was_built(NULL));
    opts = (stk_dataset_opts){STK_DATASET_OPTS_INIT, .format = STK_FORMAT_FOLDER};
    assert_true(was_built(&opts));
    assert_false(was_built(&opts));
    opts.rebuild = 1;
    assert_true(was_built(&opts));
}

/* Changes of any directory are seen, of the one that holds the index as well. */
static void
test_stale(void **state)
{
    stk_dataset_opts rebuild = {STK_DATASET_OPTS_INIT, .rebuild = 1};

    (void)state;
    assert_true(was_built(NULL));
    put_blob(scratch_path(&scratch, "t/c1/new.png"), 3);
    open_bad(&scratch, root, NULL, STK_E_STALE, "mtime was ");
    assert_true(was_built(&rebuild));
    assert_false(was_built(NULL));
    put_blob(scratch_path(&scratch, "t/new"), 3);
    open_bad(&scratch, root, NULL, STK_E_STALE, "other names");
    assert_true(was_built(&rebuild));
    assert_int_equal(unlink(scratch_path(&scratch, "t/new")), 0);
    open_bad(&scratch, root, NULL, STK_E_STALE, "other names");
    assert_true(was_built(&rebuild));
    assert_int_equal(rename(scratch_path(&scratch, "t/c0"), scratch_path(&scratch, "t/c9")), 0);
    open_bad(&scratch, root, NULL, STK_E_STALE, "other names");
    assert_true(was_built(&rebuild));
    /* What comes and goes in the home without a change of names, such as another index
     * being written, is no reason to refuse. */
    put_blob(scratch_path(&scratch, "t/.stoker-index.1.2.tmp"), 3);
    assert_false(was_built(NULL));
    assert_int_equal(unlink(scratch_path(&scratch, "t/.stoker-index.1.2.tmp")), 0);
    assert_false(was_built(NULL));
}

static void
test_stale_file(void **state)
{
    const char *path = scratch_path(&scratch, "r.bin");
    struct timespec times[2] = {{.tv_sec = 5}, {.tv_sec = 6, .tv_nsec = 7}};
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_RECORD,
                             .record_bytes = 10};

    (void)state;
    put_blob(path, 100);
    sti_dataset_close(open_good(&scratch, path, &opts));
    sti_dataset_close(open_good(&scratch, path, &opts));
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    open_bad(&scratch, path, &opts, STK_E_STALE, "is 6.000000007");
    put_blob(path, 110);
    open_bad(&scratch, path, &opts, STK_E_STALE, "had 100 bytes, has 110");
    opts.rebuild = 1;
    struct sti_dataset *dataset = open_good(&scratch, path, &opts);
    assert_int_equal(sti_dataset_count(dataset), 11);
    sti_dataset_close(dataset);
    assert_int_equal(rename(path, scratch_path(&scratch, "q.bin")), 0);
    opts.rebuild = 0;
    open_bad(&scratch, path, &opts, -ENOENT, "cannot open");
}

static void
flip(off_t at)
{
    unsigned char byte;
    int fd = open(index_path, O_RDWR | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    assert_int_equal(close(fd), 0);
}

static void
put_more(const char *path, off_t n_bytes)
{
    struct stat found;

    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(truncate(path, found.st_size + n_bytes), 0);
}

static void
test_corrupt(void **state)
{
    stk_dataset_opts rebuild = {STK_DATASET_OPTS_INIT, .rebuild = 1};

    (void)state;
    assert_true(was_built(NULL));
    flip(40);
    open_bad(&scratch, root, NULL, STK_E_CORRUPT, "head is wrong; rebuild the index");
    flip(40);
    flip(600);
    open_bad(&scratch, root, NULL, STK_E_CORRUPT, "tables is wrong; rebuild the index");
    flip(600);
    flip(8);
    open_bad(&scratch, root, NULL, STK_E_VERSION, "version 18");
    open_bad(&scratch, root, NULL, STK_E_VERSION, "; rebuild the index");
    flip(8);
    flip(0);
    open_bad(&scratch, root, NULL, STK_E_CORRUPT, "no index");
    open_bad(&scratch, root, NULL, STK_E_CORRUPT, "stoker index --rebuild");
    flip(0);
    assert_false(was_built(NULL));
    flip(500); /* the stamp: names decide, and it is written again */
    assert_false(was_built(NULL));
    put_more(index_path, 3);
    open_bad(&scratch, root, NULL, STK_E_CORRUPT, "longer than");
    assert_int_equal(truncate(index_path, 700), 0);
    open_bad(&scratch, root, NULL, STK_E_CORRUPT, "cut off");
    open_bad(&scratch, root, NULL, STK_E_CORRUPT, "; rebuild the index");
    assert_int_equal(truncate(index_path, 0), 0);
    open_bad(&scratch, root, NULL, STK_E_CORRUPT, "empty");
    assert_true(was_built(&rebuild));
    assert_false(was_built(NULL));
    assert_int_equal(unlink(index_path), 0);
    assert_int_equal(mkfifo(index_path, 0600), 0);
    open_bad(&scratch, root, NULL, STK_E_CORRUPT, "no regular file");
}

static void
check_cached(const struct scratch *own, const char *cache, bool built, bool has_path)
{
    struct sti_dataset *dataset = NULL;
    stk_dataset_info info = {STK_DATASET_INFO_INIT};

    assert_int_equal(sti_dataset_open(&dataset, own->aio, root, NULL, cache, NULL), 0);
    sti_dataset_info(dataset, &info);
    assert_int_equal(info.index_built, built);
    assert_int_equal(sti_dataset_index_path(dataset) != NULL, has_path);
    if (has_path)
        assert_int_equal(strncmp(sti_dataset_index_path(dataset), cache, strlen(cache)), 0);
    assert_int_equal(sti_dataset_count(dataset), 20);
    check_sample(dataset, 0, "c0/0.png", 0);
    sti_dataset_close(dataset);
}

static void
open_read_only(const struct scratch *own)
{
    char cache[160];

    (void)snprintf(cache, sizeof(cache), "%s/cache/made", own->path);
    check_cached(own, NULL, true, false);
    check_cached(own, NULL, true, false);
    /* A cache that cannot be made or is none is no reason not to open. */
    check_cached(own, "/proc/stoker-cache", true, false);
    check_cached(own, "/dev/null", true, false);
    check_cached(own, cache, true, true);
    check_cached(own, cache, false, true);
}

static void
open_explicit(const struct scratch *own)
{
    char place[160];
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT, .index_path = place};

    (void)snprintf(place, sizeof(place), "%s/mine", root);
    open_bad(own, root, &opts, -EINVAL, "must end in");
    (void)snprintf(place, sizeof(place), "%s/mine.stoker-index", root);
    open_bad(own, root, &opts, -EACCES, "cannot create the index");
}

static void
test_read_only(void **state)
{
    (void)state;
    assert_int_equal(mkdir(scratch_path(&scratch, "cache"), 0777), 0);
    assert_int_equal(chmod(scratch_path(&scratch, "cache"), 0777), 0);
    assert_int_equal(chmod(scratch.path, 0755), 0);
    assert_int_equal(chmod(root, 0555), 0);
    int rc = wait_child(start_child(&scratch, "read_only"));
    int rc_explicit = rc == 0 ? wait_child(start_child(&scratch, "explicit")) : rc;
    assert_int_equal(chmod(root, 0755), 0);
    if (rc == 77)
        skip();
    assert_int_equal(rc, 0);
    assert_int_equal(rc_explicit, 0);
    assert_int_equal(access(index_path, F_OK), -1);
}

static void
test_index_path(void **state)
{
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT,
                             .index_path = scratch_path(&scratch, "elsewhere")};

    (void)state;
    assert_true(was_built(&opts));
    assert_false(was_built(&opts));
    assert_int_equal(access(opts.index_path, F_OK), 0);
    assert_int_equal(access(index_path, F_OK), -1);
    /* In a directory below the root it is that directory whose time needs the stamp. */
    opts.index_path = scratch_path(&scratch, "t/c1/my.stoker-index");
    assert_true(was_built(&opts));
    assert_false(was_built(&opts));
    assert_false(was_built(&opts));
    put_blob(scratch_path(&scratch, "t/c1/new.png"), 3);
    open_bad(&scratch, root, &opts, STK_E_STALE, "other names");
}

static void
open_often(const struct scratch *own)
{
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT};

    for (uint32_t round = 0; round < 16; round++) {
        opts.rebuild = round % 2;
        struct sti_dataset *dataset = open_good(own, root, &opts);
        assert_int_equal(sti_dataset_count(dataset), 20);
        check_sample(dataset, 19, "c2/8.png", 2);
        sti_dataset_close(dataset);
    }
}

/* What a killed process has left is removed, what another may be writing is not. */
static void
test_left_behind(void **state)
{
    static const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    static const char *const names[] = {"t/.stoker-index.999999999.a1.tmp",
                                        "t/.stoker-index.999999999.a2.tmp",
                                        "t/.stoker-index.1.a3.tmp", "t/.stoker-index.mine.tmp"};

    (void)state;
    for (size_t at = 0; at < 4; at++) {
        const char *path = scratch_path(&scratch, "%s", names[at]);

        put_blob(path, 3);
        if (at != 1)
            assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    }
    assert_true(was_built(NULL));
    for (size_t at = 0; at < 4; at++)
        assert_int_equal(access(scratch_path(&scratch, "%s", names[at]), F_OK), at == 0 ? -1 : 0);
}

/* Several processes that index the same set at once, over and over: each gets a whole
 * index. */
static void
test_many_builders(void **state)
{
    int children[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        children[i] = start_child(&scratch, "often");
    for (int i = 0; i < 4; i++)
        assert_int_equal(wait_child(children[i]), 0);
    assert_false(was_built(NULL));
}

static const struct child children[] = {
    {"read_only", true, open_read_only},
    {"explicit", true, open_explicit},
    {"often", false, open_often},
    {NULL, false, NULL},
};

int
main(int argc, char **argv)
{
    if (argc == 4) { /* a child: the paths are its parent's */
        (void)snprintf(root, sizeof(root), "%s/t", argv[3]);
        (void)snprintf(index_path, sizeof(index_path), "%s/.stoker-index", root);
    }
    int status = child_main(argc, argv, children);
    if (status >= 0)
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reuse, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stale, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stale_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_corrupt, setup, teardown),
        cmocka_unit_test_setup_teardown(test_left_behind, setup, teardown),
        cmocka_unit_test_setup_teardown(test_read_only, setup, teardown),
        cmocka_unit_test_setup_teardown(test_index_path, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_builders, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
