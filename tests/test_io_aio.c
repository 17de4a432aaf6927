/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One suite over every method of asynchronous I/O: what each kind of operation does and
 * how it fails, limits, order, callbacks, wakes. STOKER_TEST_METHODS names the methods
 * ("uring sync fault"); unset, all that work here.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/pool.h"
#include "io/aio_internal.h"
#include "io/fault.h"

#define N_MANY 10000
#define N_DIRS 10
#define LONG_NS (10 * STI_NS_PER_S)

static const char *method;

struct world {
    struct sti_pool *pool;
    struct sti_fault *fault;
    struct sti_aio *aio;
    char dir[64];
    int dir_fd;
};

static void
open_aio(struct world *world, uint32_t queue_depth, uint32_t max_open_files)
{
    struct sti_aio_opts opts = {.method = method,
                                .pool = world->pool,
                                .queue_depth = queue_depth,
                                .max_open_files = max_open_files,
                                .fault = world->fault};
    stk_error err = {0};

    if (sti_aio_open(&world->aio, &opts, &err) < 0)
        fail_msg("%s", err.message);
    assert_string_equal(sti_aio_method_name(world->aio), method);
}

static int
setup(void **state)
{
    struct world *world = calloc(1, sizeof(*world));

    assert_non_null(world);
    *state = world;
    assert_int_equal(sti_pool_open(&world->pool, 2, 3), 0);
    if (strcmp(method, "fault") == 0) {
        world->dir_fd = AT_FDCWD;
        return sti_fault_new(&world->fault);
    }
    (void)snprintf(world->dir, sizeof(world->dir), "/tmp/stoker-test-aio-XXXXXX");
    assert_non_null(mkdtemp(world->dir));
    world->dir_fd = open(world->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(world->dir_fd >= 0);
    return 0;
}

static int
remove_entry(const char *path, const struct stat *found, int type, struct FTW *ftw)
{
    (void)found;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int
teardown(void **state)
{
    struct world *world = *state;

    sti_aio_close(world->aio);
    sti_pool_close(world->pool);
    sti_fault_free(world->fault);
    if (world->dir[0] != '\0') {
        (void)close(world->dir_fd);
        assert_int_equal(nftw(world->dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
    }
    free(world);
    return 0;
}

static struct sti_aio_op
path_op(const struct world *world, enum sti_aio_kind kind, const char *path)
{
    return (struct sti_aio_op){.kind = kind,
                               .dir_fd = world->dir_fd,
                               .dir_fd2 = world->dir_fd,
                               .path = path,
                               .mode = kind == STI_AIO_MKDIR ? 0755 : 0644};
}

static int32_t
run(struct world *world, struct sti_aio_op op)
{
    return sti_aio_run(world->aio, &op);
}

static int32_t
run_path(struct world *world, enum sti_aio_kind kind, const char *path)
{
    return run(world, path_op(world, kind, path));
}

static int
must_open(struct world *world, const char *path, uint32_t flags)
{
    struct sti_aio_op op = path_op(world, STI_AIO_OPEN, path);

    op.open_flags = flags;
    int fd = run(world, op);
    assert_true(fd >= 0);
    return fd;
}

static int32_t
run_fd(struct world *world, enum sti_aio_kind kind, int fd, void *bytes, uint32_t n_bytes,
       uint64_t offset)
{
    return run(world,
               (struct sti_aio_op){
                   .kind = kind, .fd = fd, .bytes = bytes, .n_bytes = n_bytes, .offset = offset});
}

static int32_t
rename_paths(struct world *world, const char *from, const char *to, uint32_t flags)
{
    struct sti_aio_op op = path_op(world, STI_AIO_RENAME, from);

    op.path2 = to;
    op.rename_flags = flags;
    return run(world, op);
}

static void
must_write_file(struct world *world, const char *path, const char *text)
{
    int fd = must_open(world, path, O_CREAT | O_TRUNC | O_WRONLY);
    char copy[64];
    uint32_t n = (uint32_t)strlen(text);

    memcpy(copy, text, n);
    assert_int_equal(run_fd(world, STI_AIO_WRITE, fd, copy, n, 0), n);
    assert_int_equal(run_fd(world, STI_AIO_CLOSE, fd, NULL, 0, 0), 0);
}

static uint64_t
size_of(struct world *world, const char *path)
{
    struct statx found;
    struct sti_aio_op op = path_op(world, STI_AIO_STATX, path);

    op.statx_mask = STATX_SIZE | STATX_TYPE;
    op.statx = &found;
    assert_int_equal(run(world, op), 0);
    return found.stx_size;
}

static int
list_entry(void *context, const char *name, unsigned char d_type)
{
    char *names = context;

    (void)d_type;
    assert_true(strlen(names) + strlen(name) + 2 < 64);
    (void)stpcpy(names + strlen(names), name);
    (void)stpcpy(names + strlen(names), " ");
    return strcmp(name, "stop") == 0 ? 7 : 0;
}

/* ---- kinds ------------------------------------------------------------------------- */

static void
files_are_written_and_read(void **state)
{
    struct world *world = *state;
    char bytes[64] = "twelve bytes";

    open_aio(world, 8, 4);
    int fd = must_open(world, "f", O_CREAT | O_EXCL | O_RDWR);
    assert_int_equal(run_fd(world, STI_AIO_WRITE, fd, bytes, 12, 0), 12);
    assert_int_equal(run_fd(world, STI_AIO_SYNC, fd, NULL, 0, 0), 0);
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(run_fd(world, STI_AIO_READ, fd, bytes, 64, 7), 5);
    assert_memory_equal(bytes, "bytes", 5);
    assert_int_equal(run_fd(world, STI_AIO_READ, fd, bytes, 64, 12), 0);
    assert_int_equal(run_fd(world, STI_AIO_TRUNCATE, fd, NULL, 0, 6), 0);
    assert_int_equal(size_of(world, "f"), 6);
    assert_int_equal(run_fd(world, STI_AIO_TRUNCATE, fd, NULL, 0, 8), 0);
    struct sti_aio_op reserve = {.kind = STI_AIO_ALLOCATE, .fd = fd, .offset = 0, .length = 5000};
    int32_t rc = run(world, reserve);
    assert_true(rc == 0 || rc == -EOPNOTSUPP);
    assert_int_equal(size_of(world, "f"), rc == 0 ? 5000 : 8);
    assert_int_equal(run_fd(world, STI_AIO_CLOSE, fd, NULL, 0, 0), 0);

    struct sti_aio_op op = path_op(world, STI_AIO_READ_FILE, "f");
    memset(bytes, 'x', sizeof(bytes));
    op.bytes = bytes;
    op.n_bytes = 5;
    op.offset = 3;
    assert_int_equal(run(world, op), 5);
    assert_memory_equal(bytes, "lve\0\0x", 6);
}

static void
names_are_made_and_changed(void **state)
{
    struct world *world = *state;
    char names[64] = "";
    struct sti_aio_op op;

    open_aio(world, 8, 4);
    assert_int_equal(run_path(world, STI_AIO_MKDIR, "d"), 0);
    must_write_file(world, "d/a", "a");
    must_write_file(world, "b", "bb");
    assert_int_equal(rename_paths(world, "b", "d/a", RENAME_NOREPLACE), -EEXIST);
    assert_int_equal(rename_paths(world, "b", "d/b", RENAME_NOREPLACE), 0);
    assert_int_equal(rename_paths(world, "d/b", "d/a", 0), 0);
    assert_int_equal(size_of(world, "d/a"), 2);
    assert_int_equal(run_path(world, STI_AIO_SYNC_DIR, "d"), 0);
    assert_int_equal(run_path(world, STI_AIO_SYNC_DIR, "."), 0);
    op = path_op(world, STI_AIO_LIST, "d");
    op.list_fn = list_entry;
    op.list_context = names;
    assert_int_equal(run(world, op), 0);
    assert_string_equal(names, "a ");
    must_write_file(world, "d/stop", "");
    names[0] = '\0';
    assert_int_equal(run(world, op), 7);
    assert_int_equal(rename_paths(world, "d", "e", 0), 0);
    assert_int_equal(run_path(world, STI_AIO_UNLINK, "e/a"), 0);
    assert_int_equal(run_path(world, STI_AIO_UNLINK, "e/stop"), 0);
    op = path_op(world, STI_AIO_UNLINK, "e");
    op.unlink_flags = AT_REMOVEDIR;
    assert_int_equal(run(world, op), 0);
    assert_int_equal(run(world, op), -ENOENT);
}

static void
a_directory_is_a_start(void **state)
{
    struct world *world = *state;

    open_aio(world, 8, 4);
    assert_int_equal(run_path(world, STI_AIO_MKDIR, "d"), 0);
    int fd = must_open(world, "d", O_RDONLY | O_DIRECTORY);
    must_write_file(world, "d/f", "text");
    char bytes[8];
    struct sti_aio_op op = {
        .kind = STI_AIO_READ_FILE, .dir_fd = fd, .path = "../d/./f", .bytes = bytes, .n_bytes = 8};
    assert_int_equal(run(world, op), 4);
    assert_int_equal(run_fd(world, STI_AIO_SYNC, fd, NULL, 0, 0), 0);
    assert_int_equal(run_fd(world, STI_AIO_CLOSE, fd, NULL, 0, 0), 0);
}

static void
errors_are_results(void **state)
{
    struct world *world = *state;
    char bytes[16];
    struct sti_aio_op op;

    open_aio(world, 8, 4);
    assert_int_equal(run_path(world, STI_AIO_MKDIR, "d"), 0);
    must_write_file(world, "d/f", "f");
    const struct {
        enum sti_aio_kind kind;
        const char *path;
        uint32_t flags;
        int32_t result;
    } cases[] = {
        {STI_AIO_READ_FILE, "none", 0, -ENOENT},
        {STI_AIO_READ_FILE, "d/f/x", 0, -ENOTDIR},
        {STI_AIO_READ_FILE, "d", 0, -EISDIR},
        {STI_AIO_OPEN, "none", O_RDONLY, -ENOENT},
        {STI_AIO_OPEN, "d/f", O_CREAT | O_EXCL | O_WRONLY, -EEXIST},
        {STI_AIO_OPEN, "d", O_WRONLY, -EISDIR},
        {STI_AIO_OPEN, "d/f", O_DIRECTORY, -ENOTDIR},
        {STI_AIO_MKDIR, "d", 0, -EEXIST},
        {STI_AIO_MKDIR, "none/d", 0, -ENOENT},
        {STI_AIO_UNLINK, "none", 0, -ENOENT},
        {STI_AIO_UNLINK, "d", 0, -EISDIR},
        {STI_AIO_UNLINK, "d", AT_REMOVEDIR, -ENOTEMPTY},
        {STI_AIO_UNLINK, "d/f", AT_REMOVEDIR, -ENOTDIR},
        {STI_AIO_SYNC_DIR, "none", 0, -ENOENT},
        {STI_AIO_SYNC_DIR, "d/f", 0, -ENOTDIR},
        {STI_AIO_LIST, "none", 0, -ENOENT},
        {STI_AIO_LIST, "d/f", 0, -ENOTDIR},
        {STI_AIO_STATX, "none", 0, -ENOENT},
    };
    for (size_t at = 0; at < sizeof(cases) / sizeof(cases[0]); at++) {
        struct statx found;

        op = path_op(world, cases[at].kind, cases[at].path);
        op.open_flags = op.unlink_flags = cases[at].flags;
        if (cases[at].kind == STI_AIO_READ_FILE)
            op.open_flags = 0;
        op.bytes = bytes;
        op.n_bytes = sizeof(bytes);
        op.statx = &found;
        op.statx_mask = STATX_SIZE;
        op.list_fn = list_entry;
        op.list_context = bytes;
        int32_t result = run(world, op);
        if (result != cases[at].result)
            fail_msg("case %zu: %d, not %d", at, result, cases[at].result);
    }
    /* More failures than files may be open: each gives back what it had. */
    for (int at = 0; at < 20; at++) {
        op = path_op(world, STI_AIO_READ_FILE, at % 2 == 0 ? "none" : "d");
        op.bytes = bytes;
        op.n_bytes = sizeof(bytes);
        assert_int_equal(run(world, op), at % 2 == 0 ? -ENOENT : -EISDIR);
    }
    assert_int_equal(rename_paths(world, "none", "x", 0), -ENOENT);
    assert_int_equal(rename_paths(world, "d", "d/e", 0), -EINVAL);
    assert_int_equal(run_path(world, STI_AIO_MKDIR, "e"), 0);
    assert_int_equal(rename_paths(world, "d/f", "e", 0), -EISDIR);
    assert_int_equal(rename_paths(world, "e", "d/f", 0), -ENOTDIR);
    assert_int_equal(rename_paths(world, "e", "d", 0), -ENOTEMPTY);
}

static void
bad_descriptors_are_results(void **state)
{
    struct world *world = *state;
    char bytes[4] = "abc";

    open_aio(world, 8, 4);
    must_write_file(world, "f", "f");
    int fd = must_open(world, "f", O_RDONLY);
    assert_int_equal(run_fd(world, STI_AIO_WRITE, fd, bytes, 1, 0), -EBADF);
    assert_int_equal(run_fd(world, STI_AIO_TRUNCATE, fd, NULL, 0, 0), -EINVAL);
    assert_int_equal(run_fd(world, STI_AIO_CLOSE, fd, NULL, 0, 0), 0);
    const enum sti_aio_kind kinds[] = {STI_AIO_READ,     STI_AIO_WRITE,    STI_AIO_SYNC,
                                       STI_AIO_TRUNCATE, STI_AIO_ALLOCATE, STI_AIO_CLOSE};
    for (size_t at = 0; at < sizeof(kinds) / sizeof(kinds[0]); at++) {
        struct sti_aio_op op = {
            .kind = kinds[at], .fd = fd, .bytes = bytes, .n_bytes = 1, .length = 1};

        assert_int_equal(run(world, op), -EBADF);
    }
    struct sti_aio_stats stats;
    sti_aio_get_stats(world->aio, &stats);
    assert_int_equal(stats.errors, 8);
}

/* ---- many -------------------------------------------------------------------------- */

struct many {
    struct sti_aio_op ops[N_MANY];
    char paths[N_MANY][16];
    unsigned char bytes[N_MANY][128];
    uint32_t n_done_of[N_MANY];
    uint32_t n_done;
};

static uint32_t
length_of(uint32_t file)
{
    return file * 7 % 127;
}

static unsigned char
byte_of(uint32_t file, uint32_t at)
{
    return (unsigned char)(file * 31 + at * 7 + (file >> 8));
}

static void
make_many(struct world *world, struct many *many, uint32_t n)
{
    for (uint32_t dir = 0; dir < N_DIRS; dir++) {
        char path[16];

        (void)snprintf(path, sizeof(path), "d%u", dir);
        assert_int_equal(run_path(world, STI_AIO_MKDIR, path), 0);
    }
    for (uint32_t file = 0; file < n; file++) {
        unsigned char bytes[128];

        (void)snprintf(many->paths[file], sizeof(many->paths[file]), "d%u/f%u", file % N_DIRS,
                       file);
        for (uint32_t at = 0; at < length_of(file); at++)
            bytes[at] = byte_of(file, at);
        if (world->fault) {
            assert_int_equal(
                sti_fault_put_file(world->fault, many->paths[file], bytes, length_of(file)), 0);
            continue;
        }
        int fd = openat(world->dir_fd, many->paths[file], O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, bytes, length_of(file)), length_of(file));
        assert_int_equal(close(fd), 0);
    }
}

static void
note_many(struct sti_aio_op *op)
{
    struct many *many = op->context;
    uint32_t file = (uint32_t)(op - many->ops);

    many->n_done_of[file]++;
    many->n_done++;
}

static void
submit_many(struct world *world, struct many *many, uint32_t n)
{
    for (uint32_t file = 0; file < n; file++) {
        many->ops[file] = path_op(world, STI_AIO_READ_FILE, many->paths[file]);
        many->ops[file].bytes = many->bytes[file];
        many->ops[file].n_bytes = 128;
        many->ops[file].done = note_many;
        many->ops[file].context = many;
        sti_aio_submit(world->aio, &many->ops[file]);
    }
}

static uint32_t
count_good(const struct many *many, uint32_t n)
{
    uint32_t n_good = 0;

    for (uint32_t file = 0; file < n; file++) {
        bool is_good =
            many->n_done_of[file] == 1 && many->ops[file].result == (int32_t)length_of(file);

        for (uint32_t at = 0; is_good && at < length_of(file); at++)
            is_good = many->bytes[file][at] == byte_of(file, at);
        n_good += is_good ? 1 : 0;
    }
    return n_good;
}

static void
ten_thousand_files(void **state)
{
    struct world *world = *state;
    struct many *many = calloc(1, sizeof(*many));
    struct sti_aio_stats before;
    struct sti_aio_stats after;
    uint64_t n_waits = 0;

    assert_non_null(many);
    open_aio(world, 64, 32);
    make_many(world, many, N_MANY);
    sti_aio_get_stats(world->aio, &before);
    submit_many(world, many, N_MANY);
    assert_int_equal(sti_aio_pending(world->aio), N_MANY);
    sti_aio_flush(world->aio);
    n_waits++; /* a flush may be a system call, as a wait may */
    assert_int_equal(world->aio->n_under_way, 32);
    while (sti_aio_pending(world->aio) > 0) {
        (void)sti_aio_wait(world->aio, LONG_NS);
        n_waits++;
        assert_true(world->aio->n_under_way <= 64);
        assert_true(world->aio->n_files <= 32);
    }
    sti_aio_get_stats(world->aio, &after);
    assert_int_equal(count_good(many, N_MANY), N_MANY);
    assert_true(after.submit_calls - before.submit_calls <= n_waits);
    assert_int_equal(after.reads - before.reads, N_MANY);
    assert_int_equal(after.errors, before.errors);
    free(many);
}

/* A limit is a line to wait in, and never an error; other kinds pass between files. */
static void
limits_are_kept(void **state)
{
    struct world *world = *state;
    struct many *many = calloc(1, sizeof(*many));
    const uint32_t limits[][2] = {{1, 1}, {4, 1}, {3, 2}, {2, 8}};

    assert_non_null(many);
    open_aio(world, 8, 8);
    make_many(world, many, 200);
    for (size_t at = 0; at < sizeof(limits) / sizeof(limits[0]); at++) {
        sti_aio_close(world->aio);
        open_aio(world, limits[at][0], limits[at][1]);
        memset(many->n_done_of, 0, sizeof(many->n_done_of));
        submit_many(world, many, 200);
        for (uint32_t file = 0; file < 200; file += 3)
            many->ops[file].kind = STI_AIO_STATX;
        struct statx found;
        for (uint32_t file = 0; file < 200; file += 3) {
            many->ops[file].statx_mask = STATX_SIZE;
            many->ops[file].statx = &found;
        }
        while (sti_aio_pending(world->aio) > 0) {
            (void)sti_aio_wait(world->aio, LONG_NS);
            assert_true(world->aio->n_under_way <= limits[at][0]);
            assert_true(world->aio->n_files <= limits[at][1]);
        }
        for (uint32_t file = 0; file < 200; file++) {
            assert_int_equal(many->n_done_of[file], 1);
            assert_int_equal(many->ops[file].result, file % 3 == 0 ? 0 : (int32_t)length_of(file));
        }
    }
    free(many);
}

static void
close_waits_for_all(void **state)
{
    struct world *world = *state;
    struct many *many = calloc(1, sizeof(*many));

    assert_non_null(many);
    open_aio(world, 4, 2);
    make_many(world, many, 300);
    submit_many(world, many, 300);
    sti_aio_flush(world->aio);
    sti_aio_close(world->aio);
    world->aio = NULL;
    assert_int_equal(count_good(many, 300), 300);
    free(many);
}

/* With 256 descriptors and an aio that may use half of them. In a child: the limit
 * stays. */
static void
few_descriptors_suffice(void **state)
{
    struct world *world = *state;
    struct many *many = calloc(1, sizeof(*many));
    int status;

    assert_non_null(many);
    open_aio(world, 8, 4);
    make_many(world, many, 2000);
    sti_aio_close(world->aio);
    world->aio = NULL;
    sti_pool_close(world->pool); /* a fork is best done with one thread */
    world->pool = NULL;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit limit = {.rlim_cur = 256, .rlim_max = 256};
        struct sti_aio_opts opts = {.method = method, .queue_depth = 256, .max_open_files = 128};

        opts.fault = world->fault;
        if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || sti_pool_open(&opts.pool, 1, 4) < 0 ||
            sti_aio_open(&world->aio, &opts, NULL) < 0)
            _exit(2);
        submit_many(world, many, 2000);
        sti_aio_close(world->aio);
        sti_pool_close(opts.pool);
        _exit(count_good(many, 2000) == 2000 ? 0 : 3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    free(many);
}

/* ---- callbacks --------------------------------------------------------------------- */

struct again {
    struct sti_aio_op op;
    struct world *world;
    uint32_t n_left;
    uint32_t n_good;
};

static void
submit_again(struct sti_aio_op *op)
{
    struct again *again = op->context;

    again->n_good += op->result == 4 ? 1 : 0;
    if (--again->n_left > 0)
        sti_aio_submit(again->world->aio, op);
}

static void
done_may_submit(void **state)
{
    struct world *world = *state;
    struct again again[3];
    char bytes[3][8];

    open_aio(world, 2, 1);
    must_write_file(world, "f", "text");
    for (int at = 0; at < 3; at++) {
        again[at] = (struct again){.world = world, .n_left = 400};
        again[at].op = path_op(world, STI_AIO_READ_FILE, "f");
        again[at].op.bytes = bytes[at];
        again[at].op.n_bytes = 8;
        again[at].op.done = submit_again;
        again[at].op.context = &again[at];
        sti_aio_submit(world->aio, &again[at].op);
    }
    while (sti_aio_pending(world->aio) > 0)
        (void)sti_aio_wait(world->aio, LONG_NS);
    for (int at = 0; at < 3; at++)
        assert_int_equal(again[at].n_good, 400);
}

struct worked {
    struct sti_aio_op op;
    pthread_t owner;
    char bytes[8];
    int n_work; /* plain: the pool hands it back by its lock */
    int n_done;
    bool is_own_thread;
};

static void
do_work(struct sti_aio_op *op)
{
    struct worked *worked = op->context;

    worked->n_work++;
    worked->is_own_thread = pthread_equal(pthread_self(), worked->owner) != 0;
    op->result += 100; /* work may have the last word */
}

static void
note_worked(struct sti_aio_op *op)
{
    struct worked *worked = op->context;

    worked->n_done += worked->n_work;
}

static void
work_is_the_pools(void **state)
{
    struct world *world = *state;
    struct worked worked[50];

    open_aio(world, 8, 4);
    must_write_file(world, "f", "text");
    for (int at = 0; at < 50; at++) {
        worked[at] = (struct worked){.owner = pthread_self()};
        worked[at].op = path_op(world, STI_AIO_READ_FILE, at % 10 == 9 ? "none" : "f");
        worked[at].op.bytes = worked[at].bytes;
        worked[at].op.n_bytes = 8;
        worked[at].op.work = do_work;
        worked[at].op.work_lane = STI_LANE_NORMAL;
        worked[at].op.done = note_worked;
        worked[at].op.context = &worked[at];
        sti_aio_submit(world->aio, &worked[at].op);
    }
    while (sti_aio_pending(world->aio) > 0)
        (void)sti_aio_wait(world->aio, LONG_NS);
    for (int at = 0; at < 50; at++) {
        assert_int_equal(worked[at].n_work, 1);
        assert_int_equal(worked[at].n_done, 1);
        assert_false(worked[at].is_own_thread);
        assert_int_equal(worked[at].op.result, at % 10 == 9 ? 100 - ENOENT : 104);
    }
}

static void
run_serves_others(void **state)
{
    struct world *world = *state;
    struct again again = {.world = world, .n_left = 100000000};
    char bytes[8];

    open_aio(world, 4, 4);
    must_write_file(world, "f", "text");
    again.op = path_op(world, STI_AIO_READ_FILE, "f");
    again.op.bytes = bytes;
    again.op.n_bytes = 8;
    again.op.done = submit_again;
    again.op.context = &again;
    sti_aio_submit(world->aio, &again.op);
    for (int at = 0; at < 20; at++) {
        struct sti_aio_op op = path_op(world, STI_AIO_SYNC_DIR, ".");

        op.context = &again;
        assert_int_equal(sti_aio_run(world->aio, &op), 0);
        assert_ptr_equal(op.context, &again);
    }
    assert_true(again.n_good > 0);
    again.n_left = 1;
    sti_aio_close(world->aio);
    world->aio = NULL;
}

/* ---- waits and wakes --------------------------------------------------------------- */

struct waker {
    struct sti_aio *aio;
    uint32_t n_said; /* atomic */
    uint32_t n_seen; /* atomic */
    uint32_t n;
};

static void *
say_and_wake(void *context)
{
    struct waker *waker = context;

    for (uint32_t at = 1; at <= waker->n; at++) {
        __atomic_store_n(&waker->n_said, at, __ATOMIC_RELEASE);
        sti_aio_wake(waker->aio);
        /* Some in a burst, most one at a time: the owner is then about to sleep, or
         * asleep. */
        while (at % 8 != 0 && __atomic_load_n(&waker->n_seen, __ATOMIC_ACQUIRE) < at)
            (void)sched_yield();
    }
    return NULL;
}

static void
no_wake_is_lost(void **state)
{
    struct world *world = *state;
    struct waker waker = {.n = 4000};
    pthread_t thread;

    open_aio(world, 4, 4);
    waker.aio = world->aio;
    assert_int_equal(pthread_create(&thread, NULL, say_and_wake, &waker), 0);
    for (uint32_t seen = 0; seen < waker.n;) {
        uint64_t start_ns = sti_clock_ns();

        (void)sti_aio_wait(world->aio, LONG_NS);
        assert_true(sti_clock_ns() - start_ns < LONG_NS);
        seen = __atomic_load_n(&waker.n_said, __ATOMIC_ACQUIRE);
        __atomic_store_n(&waker.n_seen, seen, __ATOMIC_RELEASE);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void
a_wake_before_the_wait_counts(void **state)
{
    struct world *world = *state;

    open_aio(world, 4, 4);
    uint64_t start_ns = sti_clock_ns();
    sti_aio_wake(world->aio);
    (void)sti_aio_wait(world->aio, LONG_NS);
    assert_true(sti_clock_ns() - start_ns < LONG_NS / 2);
}

/* Nothing to do is one sleep of the whole time, and no more. */
static void
idle_is_idle(void **state)
{
    struct world *world = *state;
    struct sti_aio_stats before;
    struct sti_aio_stats after;
    uint32_t n_waits = 0;

    open_aio(world, 4, 4);
    must_write_file(world, "f", "text");
    (void)sti_aio_wait(world->aio, 1000); /* takes what a late wake has left */
    sti_aio_get_stats(world->aio, &before);
    uint64_t start_ns = sti_clock_ns();
    while (sti_clock_ns() - start_ns < STI_NS_PER_S / 10) {
        assert_int_equal(sti_aio_wait(world->aio, STI_NS_PER_S / 10), 0);
        n_waits++;
    }
    sti_aio_get_stats(world->aio, &after);
    assert_true(n_waits <= 2); /* a clock may be a little early */
    assert_true(after.waits - before.waits <= 2);
    assert_true(after.submit_calls - before.submit_calls <= 1);
}

static void
looking_does_not_wait(void **state)
{
    struct world *world = *state;

    open_aio(world, 4, 4);
    uint64_t start_ns = sti_clock_ns();
    for (int at = 0; at < 100; at++)
        assert_int_equal(sti_aio_wait(world->aio, 0), 0);
    assert_true(sti_clock_ns() - start_ns < STI_NS_PER_S);
}

static const char *
default_methods(void)
{
    struct sti_aio *aio;
    struct sti_aio_opts opts = {.method = "uring", .queue_depth = 4, .max_open_files = 4};

    if (sti_pool_open(&opts.pool, 1, 1) < 0)
        return "sync fault";
    bool has_uring = sti_aio_open(&aio, &opts, NULL) == 0;
    if (has_uring)
        sti_aio_close(aio);
    sti_pool_close(opts.pool);
    return has_uring ? "uring sync fault" : "sync fault";
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_are_written_and_read, setup, teardown),
        cmocka_unit_test_setup_teardown(names_are_made_and_changed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_directory_is_a_start, setup, teardown),
        cmocka_unit_test_setup_teardown(errors_are_results, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_descriptors_are_results, setup, teardown),
        cmocka_unit_test_setup_teardown(ten_thousand_files, setup, teardown),
        cmocka_unit_test_setup_teardown(limits_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(close_waits_for_all, setup, teardown),
        cmocka_unit_test_setup_teardown(few_descriptors_suffice, setup, teardown),
        cmocka_unit_test_setup_teardown(done_may_submit, setup, teardown),
        cmocka_unit_test_setup_teardown(work_is_the_pools, setup, teardown),
        cmocka_unit_test_setup_teardown(run_serves_others, setup, teardown),
        cmocka_unit_test_setup_teardown(no_wake_is_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(a_wake_before_the_wait_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(idle_is_idle, setup, teardown),
        cmocka_unit_test_setup_teardown(looking_does_not_wait, setup, teardown),
    };
    const char *wanted = getenv("STOKER_TEST_METHODS");
    char *methods = strdup(wanted ? wanted : default_methods());
    char *state = NULL;
    int n_failed = 0;

    if (!methods)
        return 1;
    for (method = strtok_r(methods, " ,", &state); method; method = strtok_r(NULL, " ,", &state))
        n_failed += cmocka_run_group_tests_name(method, tests, NULL, NULL);
    free(methods);
    return n_failed == 0 ? 0 : 1;
}
