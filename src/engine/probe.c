/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes. In a directory the file is made without a name (or loses it at once), so
 * nothing is left behind whatever happens. Reads go to random blocks; each point has a
 * time after which no more are started. Everything belongs to the calling thread.
 */
#include "engine/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "io/dio.h"

#define CHUNK_BYTES (UINT32_C(1) << 20)
#define BRIEF_NS (UINT64_C(100) * 1000 * 1000)
#define FILE_LEAST_BYTES (UINT64_C(1) << 20)
#define DEPTH_MAX 64u
#define NS_PER_MS UINT64_C(1000000)

static const uint32_t blocks[] = {4096, 65536, CHUNK_BYTES};
static const uint32_t depths[] = {1, 4, 16, DEPTH_MAX};

/* ---- the file ---------------------------------------------------------------------- */

static int32_t
execute(struct sti_aio_op op)
{
    sti_aio_op_execute(&op);
    return op.result;
}

static void
close_file(int fd)
{
    (void)execute((struct sti_aio_op){.kind = STI_AIO_CLOSE, .fd = fd}); /* nothing to lose */
}

/* A file in a directory that has no name when this returns. direct: O_DIRECT or 0. */
static int
open_nameless(const char *path, uint32_t direct)
{
    char name[STK_ERROR_PATH_SIZE];
    int n = snprintf(name, sizeof(name), "%s/.stoker-probe-%d-%" PRIx64, path, (int)getpid(),
                     sti_clock_ns());

    if (n < 0 || (size_t)n >= sizeof(name))
        return -ENAMETOOLONG;
    int fd = execute((struct sti_aio_op){.kind = STI_AIO_OPEN,
                                         .dir_fd = AT_FDCWD,
                                         .path = name,
                                         .open_flags = O_RDWR | O_CREAT | O_EXCL | direct,
                                         .mode = 0600});
    if (fd >= 0 || fd == -EINVAL) /* O_DIRECT may be refused when the file is there already */
        (void)execute(
            (struct sti_aio_op){.kind = STI_AIO_UNLINK, .dir_fd = AT_FDCWD, .path = name});
    return fd;
}

static int
open_in_directory(const char *path)
{
    int fd = open_nameless(path, O_DIRECT);

    return fd == -EINVAL ? open_nameless(path, 0) : fd;
}

/* Writes up to n_bytes until a time; returns how many, or the first error. */
static int
fill(int fd, char *chunk, uint64_t n_bytes, uint64_t until_ns, uint64_t *ret_bytes)
{
    uint64_t done = 0;

    while (done < n_bytes && (done == 0 || sti_clock_ns() < until_ns)) {
        int32_t rc = execute((struct sti_aio_op){.kind = STI_AIO_WRITE,
                                                 .fd = fd,
                                                 .bytes = chunk,
                                                 .n_bytes = CHUNK_BYTES,
                                                 .offset = done});

        if (rc != (int32_t)CHUNK_BYTES)
            return rc < 0 ? rc : -ENOSPC;
        done += CHUNK_BYTES;
    }
    *ret_bytes = done;
    return 0;
}

/* ---- points ------------------------------------------------------------------------ */

struct point {
    struct sti_aio *aio;
    int fd;
    uint64_t file_bytes;
    uint32_t block_bytes;
    uint64_t until_ns;
    uint64_t random;
    uint64_t n_reads;
    uint64_t sum_ns; /* of their times */
    uint32_t n_under_way;
    int code; /* the first error */
    struct request {
        struct sti_aio_op op;
        struct point *point;
        uint64_t began_ns;
    } requests[DEPTH_MAX];
};

static void
start(struct request *request)
{
    struct point *point = request->point;
    uint64_t n_blocks = point->file_bytes / point->block_bytes;

    /* Knuth's multiplicative congruence, the high bits (TAOCP 2, 3.3.4). */
    point->random = point->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    request->op.offset = (point->random >> 20) % n_blocks * point->block_bytes;
    request->op.is_shaped = true; /* where the engine emulates a device, that is measured */
    request->began_ns = sti_clock_ns();
    point->n_under_way++;
    sti_aio_submit(point->aio, &request->op);
}

static void
on_read(struct sti_aio_op *op)
{
    struct request *request = op->context;
    struct point *point = request->point;
    uint64_t now_ns = sti_clock_ns();

    point->n_under_way--;
    if (op->result < 0) {
        point->code = op->result;
        return;
    }
    point->n_reads++;
    point->sum_ns += now_ns - request->began_ns;
    if (now_ns < point->until_ns && point->code == 0)
        start(request);
}

static int
measure(struct point *point, char *bytes, uint32_t depth, uint64_t n_ns, stk_probe_point *ret_point)
{
    uint64_t began_ns = sti_clock_ns();

    point->until_ns = began_ns + n_ns;
    point->n_reads = 0;
    point->sum_ns = 0;
    for (uint32_t at = 0; at < depth; at++) {
        struct request *request = &point->requests[at];

        memset(request, 0, sizeof(*request));
        request->point = point;
        request->op.kind = STI_AIO_READ;
        request->op.fd = point->fd;
        request->op.bytes = bytes + (uint64_t)at * point->block_bytes;
        request->op.n_bytes = point->block_bytes;
        request->op.done = on_read;
        request->op.context = request;
        start(request);
    }
    while (point->n_under_way > 0)
        (void)sti_aio_wait(point->aio, UINT64_MAX);
    if (point->code != 0)
        return point->code;
    double seconds = (double)(sti_clock_ns() - began_ns) / (double)STI_NS_PER_S;
    *ret_point = (stk_probe_point){
        .block_bytes = point->block_bytes,
        .depth = depth,
        .latency_s = (double)point->sum_ns / (double)point->n_reads / (double)STI_NS_PER_S,
        .bytes_per_s = (double)point->n_reads * point->block_bytes / seconds,
        .reads_per_s = (double)point->n_reads / seconds,
    };
    return 0;
}

static int
measure_all(struct point *point, char *bytes, uint32_t point_ms, stk_probe_point *points)
{
    int n = 0;

    for (uint32_t block = 0; block < sizeof(blocks) / sizeof(blocks[0]); block++) {
        for (uint32_t depth = 0; depth < sizeof(depths) / sizeof(depths[0]); depth++) {
            point->block_bytes = blocks[block];
            int rc = measure(point, bytes, depths[depth], point_ms * NS_PER_MS, &points[n]);

            if (rc < 0)
                return rc;
            n++;
        }
    }
    return n;
}

/* Opens the file or makes one; its length in ret_bytes. */
static int
open_place(const char *path, const stk_probe_opts *opts, char *chunk, uint64_t *ret_bytes)
{
    struct statx found;
    int rc = execute((struct sti_aio_op){.kind = STI_AIO_STATX,
                                         .dir_fd = AT_FDCWD,
                                         .path = path,
                                         .statx = &found,
                                         .statx_mask = STATX_TYPE | STATX_SIZE});
    int fd;

    if (rc < 0)
        return rc;
    if (!S_ISDIR(found.stx_mode)) {
        struct sti_dio dio;

        if (found.stx_size < FILE_LEAST_BYTES)
            return -EINVAL;
        *ret_bytes = found.stx_size;
        rc = sti_dio_probe(AT_FDCWD, path, &dio);
        if (rc < 0)
            return rc;
        return execute(
            (struct sti_aio_op){.kind = STI_AIO_OPEN,
                                .dir_fd = AT_FDCWD,
                                .path = path,
                                .open_flags = O_RDONLY | (dio.is_direct ? O_DIRECT : 0u)});
    }
    fd = open_in_directory(path);
    if (fd == -ENOENT) /* the directory is there: one that takes no files, as those of /proc */
        return -EROFS;
    if (fd < 0)
        return fd;
    rc = fill(fd, chunk, opts->file_bytes, UINT64_MAX, ret_bytes);
    if (rc < 0) {
        close_file(fd);
        return rc;
    }
    return fd;
}

int
sti_probe(struct sti_aio *aio, const char *path, const stk_probe_opts *opts,
          stk_probe_point *points, stk_error *err)
{
    struct point *point = sti_mem_new(1, sizeof(*point));
    struct sti_arena arena = {0};
    int rc = point ? sti_arena_open(&arena, (uint64_t)DEPTH_MAX * CHUNK_BYTES, 1) : -ENOMEM;

    if (rc < 0)
        goto out;
    point->aio = aio;
    point->fd = rc = open_place(path, opts, arena.base, &point->file_bytes);
    if (rc < 0)
        goto out;
    rc = measure_all(point, arena.base, opts->point_ms, points);
    close_file(point->fd);

out:
    sti_arena_close(&arena);
    sti_mem_free(point);
    if (rc < 0)
        return sti_error_set_path(err, rc, path, "it cannot be measured: %s%s", sti_error_text(rc),
                                  rc == -EINVAL ? " (a file must have 1 MiB at least)" : "");
    return rc;
}

/* ---- short ones -------------------------------------------------------------------- */

static int
read_back(int fd, char *chunk, uint64_t n_bytes, struct sti_cost_point *ret_point)
{
    uint64_t began_ns;
    uint64_t least_ns = UINT64_MAX;
    uint64_t done = 0;

    for (int at = 0; at < 8; at++) {
        uint64_t from_ns = sti_clock_ns();
        uint64_t offset = (uint64_t)at * (n_bytes / 8) / 4096 * 4096;
        int32_t rc = execute((struct sti_aio_op){
            .kind = STI_AIO_READ, .fd = fd, .bytes = chunk, .n_bytes = 4096, .offset = offset});
        uint64_t took_ns = sti_clock_ns() - from_ns;

        if (rc < 0)
            return rc;
        least_ns = took_ns < least_ns ? took_ns : least_ns;
    }
    began_ns = sti_clock_ns();
    while (done < n_bytes && (done == 0 || sti_clock_ns() - began_ns < BRIEF_NS)) {
        int32_t rc = execute((struct sti_aio_op){.kind = STI_AIO_READ,
                                                 .fd = fd,
                                                 .bytes = chunk,
                                                 .n_bytes = CHUNK_BYTES,
                                                 .offset = done});

        if (rc <= 0)
            return rc < 0 ? rc : -EIO;
        done += (uint64_t)rc;
    }
    uint64_t took_ns = sti_clock_ns() - began_ns;
    *ret_point = (struct sti_cost_point){
        .depth = 1,
        .latency_s = (double)least_ns / (double)STI_NS_PER_S,
        .bytes_per_s = (double)done * (double)STI_NS_PER_S / (double)(took_ns > 0 ? took_ns : 1),
    };
    return 0;
}

int
sti_probe_briefly(const char *path, uint64_t n_bytes, struct sti_cost_point *ret_point)
{
    struct sti_arena arena;
    int rc = sti_arena_open(&arena, CHUNK_BYTES, 1);

    if (rc < 0)
        return rc;
    int fd = rc = open_in_directory(path);
    if (rc >= 0) {
        rc = fill(fd, arena.base, n_bytes, sti_clock_ns() + BRIEF_NS, &n_bytes);
        if (rc == 0)
            rc = read_back(fd, arena.base, n_bytes, ret_point);
        close_file(fd);
    }
    sti_arena_close(&arena);
    return rc;
}

int
sti_probe_memory(struct sti_cost_point *ret_point)
{
    struct sti_arena arena;
    int rc = sti_arena_open(&arena, UINT64_C(8) << 20, 1);
    uint64_t best_ns = UINT64_MAX;

    if (rc < 0)
        return rc;
    for (int at = 0; at < 4; at++) {
        uint64_t began_ns = sti_clock_ns();

        memcpy(arena.base, arena.base + arena.n_bytes / 2, arena.n_bytes / 2);
        /* Without a use the copy could be left out. */
        __asm__ volatile("" : : "r"(arena.base) : "memory");
        uint64_t took_ns = sti_clock_ns() - began_ns;
        best_ns = took_ns < best_ns ? took_ns : best_ns;
    }
    *ret_point = (struct sti_cost_point){
        .depth = 1,
        .latency_s = 100e-9, /* a cache miss; nothing here waits for one */
        .bytes_per_s =
            (double)arena.n_bytes / 2 * (double)STI_NS_PER_S / (double)(best_ns > 0 ? best_ns : 1),
    };
    sti_arena_close(&arena);
    return 0;
}
