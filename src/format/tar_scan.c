/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scanning shards. Each is a chain: look at it, open it, read, parse, read where the next
 * header is, ... close. Many chains run at a time, each with one operation under way;
 * what was read is parsed on the pool before its operation is done. Where members are
 * small the shard is read in large pieces, because skipping their data would cost more
 * than reading it; where they are large, a page or two per header are read.
 *
 * Invariant: a slot's shard and parser belong to the pool's thread between submit and
 * done of its read, and to the aio's owner otherwise; no two slots have one shard.
 */
#include "format/tar_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/mem.h"
#include "format/path.h"
#include "format/time.h"
#include "io/aio.h"

#define SLOTS 32
#define MASK (STATX_TYPE | STATX_MODE | STATX_SIZE | STATX_MTIME)
#define PAGE_BYTES UINT64_C(4096)
/* Seen along with a header, since small members often follow a large one. */
#define NEAR_BYTES UINT64_C(3072)
#define FIRST_BYTES (UINT64_C(64) << 10)
#define PIECE_BYTES (UINT64_C(256) << 10)
/* Members that are this far apart on average are read one by one. */
#define DENSE_BYTES (UINT64_C(16) << 10)

struct run;

struct slot {
    struct sti_aio_op op;
    struct run *run;
    struct sti_shard *shard;
    struct statx found;
    int fd;
    unsigned char *buffer; /* owned */
    uint64_t buffer_bytes;
    struct sti_tar tar;
    struct sti_tar_window window;
    uint64_t n_members;
    int step; /* what parsing came to */
    int rc;
    stk_error err;
    struct slot *next_free;
};

struct run {
    struct sti_tar_scan *scan;
    struct sti_aio *aio;
    int dir_fd;
    const struct sti_shards *names;
    stk_error *err;
    struct slot *free;
    uint32_t next;
    uint32_t n_busy;
    int rc;
    uint32_t rc_shard; /* the first of those that failed, in order of the names */
};

static uint32_t
number_of(const struct slot *slot)
{
    return (uint32_t)(slot->shard - slot->run->scan->shards);
}

static void
end_chain(struct slot *slot, int rc)
{
    struct run *run = slot->run;

    if (rc < 0 && (run->rc == 0 || number_of(slot) < run->rc_shard)) {
        run->rc = rc;
        run->rc_shard = number_of(slot);
        if (run->err)
            *run->err = slot->err;
    }
    slot->next_free = run->free;
    run->free = slot;
    run->n_busy--;
}

static int
fail(struct slot *slot, int rc, const char *what)
{
    return sti_error_set_path(&slot->err, rc, slot->shard->shown, "%s: %s", what,
                              sti_error_text(rc));
}

static void
submit(struct slot *slot, enum sti_aio_kind kind, sti_aio_fn done)
{
    memset(&slot->op, 0, sizeof(slot->op));
    slot->op.kind = kind;
    slot->op.dir_fd = slot->run->dir_fd;
    slot->op.path = slot->run->names->names[number_of(slot)];
    slot->op.fd = slot->fd;
    slot->op.done = done;
    slot->op.context = slot;
}

static void
on_closed(struct sti_aio_op *op)
{
    struct slot *slot = op->context;

    end_chain(slot, slot->rc); /* nothing was written: a failed close loses nothing */
}

static void
close_shard(struct slot *slot, int rc)
{
    slot->rc = rc;
    submit(slot, STI_AIO_CLOSE, on_closed);
    sti_aio_submit(slot->run->aio, &slot->op);
}

/* On a thread of the pool: parses what was read. */
static void
parse(struct sti_aio_op *op)
{
    struct slot *slot = op->context;
    struct sti_tar_member member;
    int step = STI_TAR_MEMBER;

    if (op->result < 0)
        return;
    slot->window.n_bytes = (uint32_t)op->result;
    while (step == STI_TAR_MEMBER) {
        step = sti_tar_next(&slot->tar, &slot->window, &member, &slot->err);
        if (step == STI_TAR_MEMBER) {
            int rc = sti_shard_add(slot->shard, &member, &slot->err);

            slot->n_members++;
            step = rc < 0 ? rc : step;
        }
    }
    slot->step = step;
}

static void
on_read(struct sti_aio_op *op);

/* How much to read from the next header on. */
static uint64_t
piece_bytes(const struct slot *slot)
{
    const struct sti_tar *tar = &slot->tar;
    uint64_t least = tar->offset + tar->need_bytes;
    uint64_t end = (least + NEAR_BYTES + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;

    if (slot->n_members == 0)
        end = tar->offset + FIRST_BYTES;
    else if (tar->offset / slot->n_members <= DENSE_BYTES)
        end = tar->offset + PIECE_BYTES;
    if (end < least)
        end = least;
    if (end > tar->n_bytes)
        end = tar->n_bytes;
    return end - tar->offset;
}

static void
read_piece(struct slot *slot)
{
    uint64_t n_bytes = piece_bytes(slot);

    if (n_bytes > slot->buffer_bytes) {
        sti_mem_free(slot->buffer);
        slot->buffer = sti_mem_new(n_bytes, 1);
        slot->buffer_bytes = slot->buffer ? n_bytes : 0;
        if (!slot->buffer) {
            close_shard(slot, fail(slot, -ENOMEM, "no memory to read headers"));
            return;
        }
    }
    submit(slot, STI_AIO_READ, on_read);
    slot->op.bytes = slot->buffer;
    slot->op.n_bytes = (uint32_t)n_bytes;
    slot->op.offset = slot->tar.offset;
    slot->op.work = parse;
    slot->op.work_lane = STI_LANE_NORMAL;
    slot->window = (struct sti_tar_window){.bytes = slot->buffer, .offset = slot->tar.offset};
    sti_aio_submit(slot->run->aio, &slot->op);
}

static void
on_read(struct sti_aio_op *op)
{
    struct slot *slot = op->context;

    if (op->result < 0)
        close_shard(slot, fail(slot, op->result, "cannot read the shard"));
    else if (slot->step != STI_TAR_NEED)
        close_shard(slot, slot->step); /* the end, or an error with its words */
    else if ((uint32_t)op->result < op->n_bytes)
        close_shard(slot, sti_error_set_path(&slot->err, STK_E_STALE, slot->shard->shown,
                                             "became shorter while it was indexed"));
    else
        read_piece(slot);
}

static void
on_opened(struct sti_aio_op *op)
{
    struct slot *slot = op->context;

    if (op->result < 0) {
        end_chain(slot, fail(slot, op->result, "cannot open the shard"));
        return;
    }
    slot->fd = op->result;
    sti_tar_init(&slot->tar, slot->shard->file_bytes, slot->shard->shown);
    slot->tar.need_bytes = STI_TAR_BLOCK_BYTES;
    slot->n_members = 0;
    slot->step = 0;
    read_piece(slot);
}

static void
on_found(struct sti_aio_op *op)
{
    struct slot *slot = op->context;

    if (op->result < 0) {
        end_chain(slot, fail(slot, op->result, "cannot look at the shard"));
        return;
    }
    if (!S_ISREG(slot->found.stx_mode) || slot->found.stx_size > INT64_MAX) {
        end_chain(slot, sti_error_set_path(&slot->err, -EINVAL, slot->shard->shown,
                                           "the shard is no regular file"));
        return;
    }
    slot->shard->file_bytes = slot->found.stx_size;
    slot->shard->mtime_ns = sti_time_ns(&slot->found.stx_mtime);
    slot->run->scan->is_fresh |= sti_time_is_fresh(&slot->found.stx_mtime);
    submit(slot, STI_AIO_OPEN, on_opened);
    slot->op.open_flags = O_RDONLY | O_NONBLOCK;
    sti_aio_submit(slot->run->aio, &slot->op);
}

static void
begin(struct run *run)
{
    struct slot *slot = run->free;

    run->free = slot->next_free;
    run->n_busy++;
    slot->shard = &run->scan->shards[run->next++];
    slot->fd = -1;
    submit(slot, STI_AIO_STATX, on_found);
    slot->op.statx = &slot->found;
    slot->op.statx_mask = MASK;
    sti_aio_submit(run->aio, &slot->op);
}

static void
scan_all(struct run *run)
{
    for (;;) {
        while (run->rc == 0 && run->free && run->next < run->names->n)
            begin(run);
        if (run->n_busy == 0)
            break;
        (void)sti_aio_wait(run->aio, UINT64_MAX); /* how many have run shows in n_busy */
    }
}

static int
prepare(struct sti_tar_scan *scan, const char *shown, const struct sti_shards *names)
{
    scan->shards = sti_mem_new(names->n, sizeof(*scan->shards));
    scan->shown = sti_mem_new(names->n, sizeof(*scan->shown));
    if (!scan->shards || !scan->shown)
        return -ENOMEM;
    scan->n = names->n;
    for (uint32_t at = 0; at < names->n; at++) {
        scan->shown[at] = sti_path_join(shown, names->names[at]);
        if (!scan->shown[at])
            return -ENOMEM;
        scan->shards[at].shown = scan->shown[at];
    }
    return 0;
}

int
sti_tar_scan(struct sti_tar_scan *scan, struct sti_aio *aio, int dir_fd, const char *shown,
             const struct sti_shards *names, stk_error *err)
{
    struct run run = {.scan = scan, .aio = aio, .dir_fd = dir_fd, .names = names, .err = err};
    struct slot *slots = sti_mem_new(SLOTS, sizeof(*slots));

    *scan = (struct sti_tar_scan){0};
    if (!slots || prepare(scan, shown, names) < 0) {
        sti_mem_free(slots);
        return sti_error_set_path(err, -ENOMEM, shown, "no memory to index the shards");
    }
    for (uint32_t at = 0; at < SLOTS; at++) {
        slots[at].run = &run;
        slots[at].next_free = run.free;
        run.free = &slots[at];
    }
    scan_all(&run);
    for (uint32_t at = 0; at < SLOTS; at++)
        sti_mem_free(slots[at].buffer);
    sti_mem_free(slots);
    return run.rc;
}

void
sti_tar_scan_fini(struct sti_tar_scan *scan)
{
    for (uint32_t at = 0; at < scan->n; at++) {
        sti_shard_fini(&scan->shards[at]);
        sti_mem_free(scan->shown[at]);
    }
    sti_mem_free(scan->shards);
    sti_mem_free(scan->shown);
    *scan = (struct sti_tar_scan){0};
}
