/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/pool.h"
#include "format/dataset.h"
#include "format_util.h"
#include "io/aio.h"

void
scratch_open(struct scratch *scratch, const char *method, uint32_t io_threads)
{
    struct sti_aio_opts opts = {.method = method, .queue_depth = 64, .max_open_files = 64};

    (void)snprintf(scratch->path, sizeof(scratch->path), "/tmp/stoker-format-XXXXXX");
    assert_non_null(mkdtemp(scratch->path));
    assert_int_equal(sti_pool_open(&scratch->pool, 2, io_threads), 0);
    opts.pool = scratch->pool;
    assert_int_equal(sti_aio_open(&scratch->aio, &opts, NULL), 0);
}

static int
remove_one(const char *path, const struct stat *found, int type, struct FTW *walk)
{
    (void)found;
    (void)type;
    (void)walk;
    return remove(path);
}

void
scratch_close(struct scratch *scratch)
{
    sti_aio_close(scratch->aio);
    sti_pool_close(scratch->pool);
    assert_int_equal(nftw(scratch->path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

bool
scratch_has_uring(void)
{
    struct sti_pool *pool;
    struct sti_aio *aio = NULL;

    assert_int_equal(sti_pool_open(&pool, 1, 1), 0);
    struct sti_aio_opts opts = {
        .method = "uring", .pool = pool, .queue_depth = 8, .max_open_files = 8};
    bool has = sti_aio_open(&aio, &opts, NULL) == 0;
    sti_aio_close(aio);
    sti_pool_close(pool);
    return has;
}

int
child_main(int argc, char **argv, const struct child *children)
{
    struct scratch own = {.path = ""};
    struct sti_aio_opts opts = {.method = "sync", .queue_depth = 8, .max_open_files = 8};

    for (; argc == 4 && strcmp(argv[1], "child") == 0 && children->name; children++) {
        if (strcmp(children->name, argv[2]) != 0)
            continue;
        if (children->is_nobody && geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
            return 77;
        (void)snprintf(own.path, sizeof(own.path), "%s", argv[3]);
        assert_int_equal(sti_pool_open(&own.pool, 1, 2), 0);
        opts.pool = own.pool;
        assert_int_equal(sti_aio_open(&own.aio, &opts, NULL), 0);
        children->run(&own);
        sti_aio_close(own.aio);
        sti_pool_close(own.pool);
        return 0;
    }
    return -1;
}

int
start_child(const struct scratch *scratch, const char *name)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        (void)execl("/proc/self/exe", "test", "child", name, scratch->path, (char *)NULL);
        _exit(1);
    }
    return child;
}

int
wait_child(int pid)
{
    int status = -1;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

const char *
scratch_path(const struct scratch *scratch, const char *format, ...)
{
    static char buffers[8][4096];
    static unsigned next;
    char *buffer = buffers[next++ % 8];
    va_list args;

    int n = snprintf(buffer, sizeof(buffers[0]), "%s/", scratch->path);
    va_start(args, format);
    (void)vsnprintf(buffer + n, sizeof(buffers[0]) - (size_t)n, format, args);
    va_end(args);
    return buffer;
}

void
put_file(const char *path, const void *bytes, size_t n_bytes)
{
    char above[2048];

    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        (void)snprintf(above, sizeof(above), "%.*s", (int)(slash - path), path);
        assert_true(mkdir(above, 0777) == 0 || errno == EEXIST);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n_bytes), n_bytes);
    assert_int_equal(close(fd), 0);
}

void
put_blob(const char *path, size_t n_bytes)
{
    unsigned char *bytes = malloc(n_bytes + 1);

    assert_non_null(bytes);
    for (size_t i = 0; i < n_bytes; i++)
        bytes[i] = (unsigned char)(i * 7);
    put_file(path, bytes, n_bytes);
    free(bytes);
}

struct sti_dataset *
open_good(const struct scratch *scratch, const char *path, const stk_dataset_opts *opts)
{
    struct sti_dataset *dataset = NULL;
    stk_error err = {.message = ""};
    int rc = sti_dataset_open(&dataset, scratch->aio, path, opts, NULL, &err);

    if (rc != 0)
        print_error("%s: %s (%d)\n", err.path, err.message, rc);
    assert_int_equal(rc, 0);
    return dataset;
}

void
open_bad(const struct scratch *scratch, const char *path, const stk_dataset_opts *opts, int code,
         const char *words)
{
    struct sti_dataset *dataset = NULL;
    stk_error err = {.message = ""};
    int rc = sti_dataset_open(&dataset, scratch->aio, path, opts, NULL, &err);

    assert_null(dataset);
    if (rc != code || !strstr(err.message, words))
        print_error("%s: %s (%d), expected \"%s\" (%d)\n", err.path, err.message, rc, words, code);
    assert_int_equal(rc, code);
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.message, words));
}

void
check_sample(const struct sti_dataset *dataset, uint64_t sample, const char *path, int64_t label)
{
    struct sti_extent extent;

    assert_int_equal(sti_dataset_extent(dataset, sample, &extent), 0);
    assert_string_equal(extent.path, path);
    assert_int_equal(sti_dataset_label(dataset, sample), label);
}
