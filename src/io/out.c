/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots of an arena are filled by the caller and written by threads of the pool's I/O
 * lane, all but the one that is being filled at a time. A handful of large writes keeps a
 * device busy by either method, and threads of the pool leave the caller free to change
 * its own: a ring would be of the thread that made it.
 *
 * Invariant: the name is given after every byte has been synced, and by one rename.
 *
 * Entered by one caller at a time and by the pool's threads, which share what the mutex
 * guards. A small file never leaves the first slot and goes through the page cache.
 */
#include "io/out.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"
#include "io/aio.h"
#include "io/dio.h"

#define N_SLOTS 8u
#define SLOT_BYTES (4u << 20)
#define FILE_MODE 0666
#define TEMP_SIZE 40 /* ".stoker-", 16 digits, ".tmp" */

struct slot {
    struct sti_out *out;
    struct sti_job job;
    char *bytes;
    uint64_t offset;
    uint32_t n_bytes;
    bool is_under_way; /* guarded by the mutex */
};

struct sti_out {
    struct sti_pool *pool;
    char *path;
    char *temp; /* its full path; NULL: there is none any more */
    char *dir;
    int fd; /* -1: closed */
    struct sti_dio dio;
    bool is_buffered;
    bool is_committed;
    struct sti_arena arena;
    struct slot slots[N_SLOTS];
    uint32_t at;       /* the slot that is being filled */
    uint32_t n_filled; /* of it */
    uint64_t offset;   /* where it goes */
    struct sti_mutex mutex;
    struct sti_cond cond; /* a slot is free */
    int result STI_GUARDED_BY(&mutex);
};

static int
fail(const struct sti_out *out, int rc, const char *what, stk_error *err)
{
    return sti_error_set_path(err, rc, out->path, "it cannot be %s: %s", what, sti_error_text(rc));
}

/* ---- writing ----------------------------------------------------------------------- */

/* All of it, from the caller's thread or the pool's. Returns 0 or a negative errno. */
static int
write_whole(const struct sti_out *out, char *bytes, /* NOLINT(readability-non-const-parameter) */
            uint32_t n_bytes, uint64_t offset)
{
    uint32_t done = 0;

    while (done < n_bytes) {
        struct sti_aio_op op = {.kind = STI_AIO_WRITE,
                                .fd = out->fd,
                                .bytes = bytes + done,
                                .n_bytes = n_bytes - done,
                                .offset = offset + done};

        sti_aio_op_execute(&op);
        if (op.result < 0 && op.result != -EINTR)
            return op.result;
        uint32_t n = op.result > 0 ? (uint32_t)op.result : 0;
        /* A direct write goes on at a block; less than one is a device that is full. */
        n -= n % out->dio.block_bytes;
        if (n == 0 && op.result != -EINTR)
            return -ENOSPC;
        done += n;
    }
    return 0;
}

static void
write_slot(struct sti_job *job)
{
    struct slot *slot = (struct slot *)(void *)((char *)job - offsetof(struct slot, job));
    struct sti_out *out = slot->out;
    int rc = write_whole(out, slot->bytes, slot->n_bytes, slot->offset);

    sti_mutex_lock(&out->mutex);
    if (rc < 0 && out->result == 0)
        out->result = rc;
    slot->is_under_way = false;
    sti_cond_signal(&out->cond);
    sti_mutex_unlock(&out->mutex);
}

/* Waits until a slot is free. Returns what became of the writes so far. */
static int
wait_for(struct sti_out *out, const struct slot *slot)
{
    sti_mutex_lock(&out->mutex);
    while (slot->is_under_way)
        sti_cond_wait(&out->cond, &out->mutex);
    int rc = out->result;
    sti_mutex_unlock(&out->mutex);
    return rc;
}

static int
wait_for_all(struct sti_out *out)
{
    int rc = 0;

    for (uint32_t at = 0; at < N_SLOTS; at++)
        rc = wait_for(out, &out->slots[at]);
    return rc;
}

/* Opens it for direct writes if one block of what there is can be written so. */
static int
try_direct(struct sti_out *out)
{
    struct sti_dio dio;
    int rc = sti_dio_probe(AT_FDCWD, out->temp, &dio);

    if (rc < 0 || !dio.is_direct || SLOT_BYTES % dio.block_bytes != 0)
        return rc;
    int fd = open(out->temp, O_WRONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0)
        return errno == EINVAL ? 0 : -errno;
    int buffered_fd = out->fd;
    out->fd = fd;
    out->dio = dio;
    rc = write_whole(out, out->slots[0].bytes, dio.block_bytes, 0);
    if (rc == -EINVAL) { /* opened so and yet refused */
        out->fd = buffered_fd;
        out->dio = sti_dio_buffered();
        buffered_fd = fd;
        rc = 0;
    }
    (void)close(buffered_fd); /* nothing was written by it */
    return rc;
}

/* Hands the slot that is full to the pool and waits for the next one. */
static int
next_slot(struct sti_out *out)
{
    struct slot *slot = &out->slots[out->at];
    int rc = 0;

    if (out->offset == 0 && !out->is_buffered)
        rc = try_direct(out);
    if (rc < 0)
        return rc;
    slot->offset = out->offset;
    slot->n_bytes = out->n_filled;
    sti_mutex_lock(&out->mutex);
    slot->is_under_way = true;
    sti_mutex_unlock(&out->mutex);
    sti_pool_submit(out->pool, STI_LANE_IO, &slot->job, 1);
    out->offset += out->n_filled;
    out->n_filled = 0;
    out->at = (out->at + 1) % N_SLOTS;
    return wait_for(out, &out->slots[out->at]);
}

/* Keeps the first error: nothing is written behind a hole. */
static int
keep(struct sti_out *out, int rc)
{
    sti_mutex_lock(&out->mutex);
    if (out->result == 0)
        out->result = rc;
    rc = out->result;
    sti_mutex_unlock(&out->mutex);
    return rc;
}

int
sti_out_write(struct sti_out *out, const void *bytes, uint64_t n_bytes, stk_error *err)
{
    const char *from = bytes;
    int rc = keep(out, 0);

    if (out->is_committed)
        return sti_error_set_path(err, -EINVAL, out->path, "it has been committed");
    while (rc == 0 && n_bytes > 0) {
        uint32_t room = SLOT_BYTES - out->n_filled;
        uint32_t n = n_bytes < room ? (uint32_t)n_bytes : room;

        memcpy(out->slots[out->at].bytes + out->n_filled, from, n);
        out->n_filled += n;
        from += n;
        n_bytes -= n;
        if (out->n_filled == SLOT_BYTES)
            rc = keep(out, next_slot(out));
    }
    return rc < 0 ? fail(out, rc, "written", err) : 0;
}

/* ---- the end ----------------------------------------------------------------------- */

/* What is left in the last slot, padded where it must be, and the size. */
static int
write_rest(struct sti_out *out)
{
    struct slot *slot = &out->slots[out->at];
    uint32_t block_bytes = out->dio.block_bytes;
    uint32_t padded = (out->n_filled + block_bytes - 1) / block_bytes * block_bytes;

    memset(slot->bytes + out->n_filled, 0, padded - out->n_filled);
    int rc = write_whole(out, slot->bytes, padded, out->offset);
    int all_rc = wait_for_all(out);
    rc = rc < 0 ? rc : all_rc;
    if (rc == 0 && padded != out->n_filled) {
        struct sti_aio_op op = {
            .kind = STI_AIO_TRUNCATE, .fd = out->fd, .offset = out->offset + out->n_filled};

        sti_aio_op_execute(&op);
        rc = op.result;
    }
    return rc;
}

static int
sync_and_close(struct sti_out *out)
{
    struct sti_aio_op op = {.kind = STI_AIO_SYNC, .fd = out->fd};

    sti_aio_op_execute(&op);
    struct sti_aio_op close_op = {.kind = STI_AIO_CLOSE, .fd = out->fd};
    sti_aio_op_execute(&close_op);
    out->fd = -1;
    return op.result < 0 ? op.result : close_op.result;
}

int
sti_out_commit(struct sti_out *out, stk_error *err)
{
    int rc = keep(out, 0);

    if (out->is_committed)
        return 0;
    if (rc == 0)
        rc = keep(out, write_rest(out));
    if (rc < 0)
        return fail(out, rc, "written", err);
    rc = keep(out, sync_and_close(out));
    if (rc < 0)
        return fail(out, rc, "made durable", err);
    struct sti_aio_op op = {.kind = STI_AIO_RENAME,
                            .dir_fd = AT_FDCWD,
                            .path = out->temp,
                            .dir_fd2 = AT_FDCWD,
                            .path2 = out->path};
    sti_aio_op_execute(&op);
    if (op.result < 0)
        return fail(out, keep(out, op.result), "given its name", err);
    sti_mem_free(out->temp);
    out->temp = NULL;
    out->is_committed = true;
    op = (struct sti_aio_op){.kind = STI_AIO_SYNC_DIR, .dir_fd = AT_FDCWD, .path = out->dir};
    sti_aio_op_execute(&op);
    return op.result < 0 ? fail(out, op.result, "given its name durably", err) : 0;
}

void
sti_out_close(struct sti_out *out)
{
    if (!out)
        return;
    (void)wait_for_all(out); /* whoever wanted to know has asked for a commit */
    if (out->fd >= 0)
        (void)close(out->fd); /* not committed: there is nothing to lose */
    if (out->temp)
        (void)unlink(out->temp); /* what cannot be removed is left, as by a crash */
    sti_arena_close(&out->arena);
    sti_cond_fini(&out->cond);
    sti_mutex_fini(&out->mutex);
    sti_mem_free(out->temp);
    sti_mem_free(out->path);
    sti_mem_free(out->dir);
    sti_mem_free(out);
}

/* ---- the beginning ----------------------------------------------------------------- */

/* The names' own lengths do not matter: the temporary one has nothing of the file's. */
static int
make_names(struct sti_out *out, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t n_dir = slash ? (size_t)(slash - path) + 1 : 0;
    uint64_t id;

    if (getrandom(&id, sizeof(id), GRND_NONBLOCK) != (ssize_t)sizeof(id))
        id = sti_clock_wall_ns() * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)getpid() << 32;
    out->path = sti_mem_strdup(path);
    out->dir = sti_mem_new(n_dir + 2, 1);
    out->temp = sti_mem_new(n_dir + TEMP_SIZE, 1);
    if (!out->path || !out->dir || !out->temp)
        return -ENOMEM;
    memcpy(out->dir, n_dir ? path : ".", n_dir ? n_dir : 1);
    memcpy(out->temp, path, n_dir);
    (void)snprintf(out->temp + n_dir, TEMP_SIZE, ".stoker-%016" PRIx64 ".tmp", id); /* fits */
    return 0;
}

static int
make_file(struct sti_out *out, stk_error *err)
{
    struct stat found;

    if (stat(out->path, &found) == 0 && !S_ISREG(found.st_mode))
        return sti_error_set_path(err, -EINVAL, out->path,
                                  "what is there is no regular file, and would be replaced");
    out->fd = open(out->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
    if (out->fd >= 0)
        return 0;
    int rc = -errno;
    sti_mem_free(out->temp); /* not ours to remove */
    out->temp = NULL;
    return fail(out, rc, "made", err);
}

int
sti_out_open(struct sti_out **ret_out, struct sti_pool *pool, const char *path, bool is_buffered,
             stk_error *err)
{
    struct sti_out *out = sti_mem_new(1, sizeof(*out));
    int rc = out ? sti_mutex_init(&out->mutex, STI_RANK_LEAF) : -ENOMEM;

    if (rc < 0)
        goto err_free;
    rc = sti_cond_init(&out->cond);
    if (rc < 0)
        goto err_mutex;
    out->pool = pool;
    out->fd = -1;
    out->is_buffered = is_buffered;
    out->dio = sti_dio_buffered();
    if (make_names(out, path) < 0 ||
        sti_arena_open(&out->arena, (uint64_t)N_SLOTS * SLOT_BYTES, 0) < 0) {
        sti_mem_free(out->temp); /* not made yet */
        out->temp = NULL;
        sti_out_close(out);
        return sti_error_set_path(err, -ENOMEM, path, "no memory to write it with");
    }
    for (uint32_t at = 0; at < N_SLOTS; at++)
        out->slots[at] = (struct slot){
            .out = out, .job.fn = write_slot, .bytes = out->arena.base + (size_t)at * SLOT_BYTES};
    rc = make_file(out, err);
    if (rc < 0) {
        sti_out_close(out);
        return rc;
    }
    *ret_out = out;
    return 0;

err_mutex:
    sti_mutex_fini(&out->mutex);
err_free:
    sti_mem_free(out);
    return sti_error_set_path(err, rc, path, "no memory to write it with");
}
