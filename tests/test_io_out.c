/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are written whole: what is committed is there, byte for byte; without a
 * commit, or where memory or space fails, there is nothing, and what was there stays.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stoker/stoker.h>

#include "base/mem.h"

#define MIB (1u << 20)
#define LARGE (37u * MIB + 4321u)

static char folder[64];
static char path[80];
static stk_engine *engine;

static int
set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/stoker-out-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/file", folder);
    assert_int_equal(stk_engine_open(&engine, NULL, NULL), 0);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    stk_engine_close(engine);
    (void)unlink(path);                 /* some tests leave none */
    assert_int_equal(rmdir(folder), 0); /* nothing else is in it */
    return 0;
}

static unsigned char
byte_at(uint64_t at)
{
    return (unsigned char)(at * 31 + at / 4096);
}

static int
write_file(uint64_t n_bytes, uint64_t at_a_time, stk_error *err)
{
    unsigned char *bytes = malloc(n_bytes + 1);
    stk_file *file = NULL;

    assert_non_null(bytes);
    for (uint64_t at = 0; at < n_bytes; at++)
        bytes[at] = byte_at(at);
    int rc = stk_file_create(&file, engine, path, err);
    for (uint64_t at = 0; rc == 0 && at < n_bytes; at += at_a_time) {
        uint64_t n = n_bytes - at < at_a_time ? n_bytes - at : at_a_time;

        rc = stk_file_write(file, bytes + at, n, err);
    }
    if (rc == 0)
        rc = stk_file_commit(file, err);
    stk_file_close(file);
    free(bytes);
    return rc;
}

static void
check_file(uint64_t n_bytes)
{
    FILE *file = fopen(path, "rbe");
    struct stat found;
    int byte;

    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &found), 0);
    assert_int_equal(found.st_size, n_bytes);
    for (uint64_t at = 0; (byte = getc_unlocked(file)) != EOF; at++)
        if (byte != byte_at(at))
            fail_msg("byte %llu", (unsigned long long)at);
    assert_int_equal(fclose(file), 0);
}

static void
test_sizes(void **state)
{
    static const uint64_t sizes[] = {0, 1, 4095, 4096, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, LARGE};

    (void)state;
    for (size_t at = 0; at < sizeof(sizes) / sizeof(sizes[0]); at++) {
        assert_int_equal(write_file(sizes[at], 3 * MIB + 7, NULL), 0);
        check_file(sizes[at]);
    }
}

static void
test_without_a_commit(void **state)
{
    stk_file *file;

    (void)state;
    assert_int_equal(write_file(100, 100, NULL), 0);
    assert_int_equal(stk_file_create(&file, engine, path, NULL), 0);
    assert_int_equal(stk_file_write(file, path, sizeof(path), NULL), 0);
    stk_file_close(file);
    check_file(100);
    assert_int_equal(stk_file_create(&file, engine, path, NULL), 0);
    assert_int_equal(stk_file_commit(file, NULL), 0);
    assert_int_equal(stk_file_commit(file, NULL), 0);
    assert_int_equal(stk_file_write(file, path, 1, NULL), -EINVAL);
    stk_file_close(file);
    stk_file_close(NULL);
    check_file(0);
}

/* Each allocation fails in its turn. */
static void
test_memory(void **state)
{
    stk_error err = {0};
    int n_failed = 0;

    (void)state;
    assert_int_equal(write_file(50, 50, NULL), 0);
    for (uint64_t n = 1;; n++) {
        sti_mem_fail_at(n, 0);
        int rc = write_file(LARGE, MIB, &err);

        sti_mem_fail_at(0, 0);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ENOMEM);
        check_file(50);
        n_failed++;
    }
    assert_true(n_failed >= 4);
    check_file(LARGE);
}

static void
test_refused(void **state)
{
    stk_error err = {0};
    stk_file *file;

    (void)state;
    assert_int_equal(stk_file_create(&file, engine, folder, &err), -EINVAL);
    assert_string_equal(err.path, folder);
    assert_int_equal(stk_file_create(&file, engine, "/tmp/stoker-none/file", &err), -ENOENT);
    assert_int_equal(stk_file_create(&file, engine, "", &err), -EINVAL);
    assert_int_equal(stk_file_create(NULL, engine, path, &err), -EINVAL);
    assert_int_equal(stk_file_create(&file, NULL, path, &err), -EINVAL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sizes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_a_commit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
