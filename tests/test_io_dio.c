/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probe for direct I/O tells the truth: with what it answers, reads around the page
 * cache work and give the file's bytes. On the file systems of /tmp, of this directory
 * and of memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/dio.h"

#define FILE_BYTES 200000u

static void
make_file(char *path)
{
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    for (uint32_t at = 0; at < FILE_BYTES; at += 4)
        assert_int_equal(write(fd, &at, 4), 4);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(close(fd), 0);
}

/* Reads at the smallest unit that was promised, in the middle of the file and at its
 * end. */
static void
check_reads(const char *path, const struct sti_dio *dio)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    uint32_t *bytes = NULL;
    uint32_t end = FILE_BYTES / dio->block_bytes * dio->block_bytes;

    assert_true(fd >= 0);
    /* An address that is aligned to what was asked for and to no more. */
    assert_int_equal(posix_memalign((void **)&bytes, 65536, 3 * 65536), 0);
    uint32_t *buffer = bytes + dio->memory_align / 4;
    assert_int_equal(pread(fd, buffer, dio->block_bytes, dio->block_bytes), dio->block_bytes);
    for (uint32_t at = 0; at < dio->block_bytes / 4; at++)
        assert_int_equal(buffer[at], dio->block_bytes + 4 * at);
    assert_int_equal(pread(fd, buffer, dio->block_bytes, end), FILE_BYTES - end);
    assert_int_equal(buffer[0], end);
    free(bytes);
    (void)close(fd);
}

static void
check_in(const char *dir, bool must_be_direct)
{
    char path[256];
    struct sti_dio dio = {0};

    (void)snprintf(path, sizeof(path), "%s/stoker-test-dio-XXXXXX", dir);
    make_file(path);
    assert_int_equal(sti_dio_probe(AT_FDCWD, path, &dio), 0);
    if (dio.is_direct) {
        assert_true(dio.block_bytes >= 4 && (dio.block_bytes & (dio.block_bytes - 1)) == 0);
        assert_true(dio.memory_align >= 1 && (dio.memory_align & (dio.memory_align - 1)) == 0);
        check_reads(path, &dio);
    } else {
        assert_int_equal(dio.block_bytes, 1);
        assert_int_equal(dio.memory_align, 1);
    }
    assert_int_equal(unlink(path), 0);
    if (must_be_direct)
        assert_true(dio.is_direct);
}

static bool
is_direct_for_sure(const char *dir)
{
    struct statfs found;

    assert_int_equal(statfs(dir, &found), 0);
    return found.f_type == EXT4_SUPER_MAGIC || found.f_type == XFS_SUPER_MAGIC;
}

static void
disks_are_direct(void **state)
{
    (void)state;
    check_in("/tmp", is_direct_for_sure("/tmp"));
    check_in(".", is_direct_for_sure("."));
}

static void
memory_is_what_the_kernel_says(void **state)
{
    (void)state;
    check_in("/dev/shm", false);
}

static void
what_cannot_be_opened_is_an_error(void **state)
{
    struct sti_dio dio;

    (void)state;
    assert_int_equal(sti_dio_probe(AT_FDCWD, "/tmp/stoker-no-such-file", &dio), -ENOENT);
    assert_int_equal(sti_dio_probe(AT_FDCWD, "/dev/null/x", &dio), -ENOTDIR);
    assert_int_equal(sti_dio_probe(-1, "x", &dio), -EBADF);
}

/* Where a file cannot be read around the cache, as in /proc, it is read through it. */
static void
the_fallback_is_buffered(void **state)
{
    struct sti_dio dio;

    (void)state;
    assert_int_equal(sti_dio_probe(AT_FDCWD, "/proc/self/stat", &dio), 0);
    assert_false(dio.is_direct);
    assert_int_equal(dio.block_bytes, 1);
    assert_int_equal(dio.memory_align, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(disks_are_direct),
        cmocka_unit_test(memory_is_what_the_kernel_says),
        cmocka_unit_test(what_cannot_be_opened_is_an_error),
        cmocka_unit_test(the_fallback_is_buffered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
