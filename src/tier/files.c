/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of open files. A file that is wanted and has no slot gets one if one is free,
 * or if the one that was not wanted for longest has not been for long: with a random
 * order over more files than slots, replacing others all the time would gain nothing and
 * cost an open each. A file that is not the one that was indexed gets its slot all the
 * same and is never open in it, so that its samples are bad one by one, as each is read.
 *
 * Invariant: slot_of[f] names a slot exactly while the slot's extent is of file f. The
 * loop's thread alone.
 */
#include "tier/files.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include <stoker/types.h>

#include "base/mem.h"
#include "format/time.h"

/* Wanted again after so many uses for each slot, a file keeps its own. */
#define KEEP_USES 8u

int
sti_files_init(struct sti_files *files, struct sti_aio *aio, uint32_t n_files, uint32_t limit,
               uint32_t open_flags)
{
    *files = (struct sti_files){.aio = aio, .open_flags = open_flags, .n_files = n_files};
    files->n_slots = limit < n_files ? limit : n_files;
    if (files->n_slots == 0)
        return 0;
    files->slot_of = sti_mem_new(n_files, sizeof(*files->slot_of));
    files->slots = sti_mem_new(files->n_slots, sizeof(*files->slots));
    return files->slot_of && files->slots ? 0 : -ENOMEM;
}

void
sti_files_fini(struct sti_files *files)
{
    assert(files->n_busy == 0);
    for (uint32_t at = 0; files->slots && at < files->n_used; at++) {
        struct sti_aio_op op = {.kind = STI_AIO_CLOSE, .fd = files->slots[at].fd};

        if (files->slots[at].state == STI_FILE_OPEN)
            sti_aio_op_execute(&op); /* read only: a failure loses nothing */
    }
    sti_mem_free(files->slot_of);
    sti_mem_free(files->slots);
    *files = (struct sti_files){0};
}

static void
prepare_open(struct sti_file_slot *slot)
{
    memset(&slot->op, 0, sizeof(slot->op));
    slot->op.kind = STI_AIO_OPEN;
    slot->op.dir_fd = slot->extent.dir_fd;
    slot->op.path = slot->extent.path;
    slot->op.open_flags = O_RDONLY | slot->open_flags;
}

void
sti_files_prepare_look(const struct sti_extent *extent, struct statx *found, struct sti_aio_op *op)
{
    memset(op, 0, sizeof(*op));
    op->kind = STI_AIO_STATX;
    op->dir_fd = extent->dir_fd;
    op->path = extent->path;
    op->statx = found;
    op->statx_mask = STATX_TYPE | STATX_SIZE | STATX_MTIME;
}

int
sti_files_compare(const struct sti_extent *extent, const struct sti_aio_op *op)
{
    const struct statx *found = op->statx;

    if (op->result == -ENOENT || op->result == -ENOTDIR)
        return STK_E_STALE;
    if (op->result < 0)
        return op->result;
    if (!S_ISREG(found->stx_mode) || found->stx_size != extent->file_bytes ||
        sti_time_ns(&found->stx_mtime) != extent->file_mtime_ns)
        return STK_E_STALE;
    return 0;
}

static void
on_refused(struct sti_aio_op *op)
{
    struct sti_file_slot *slot = op->context;

    slot->files->n_busy--;
    slot->state = STI_FILE_FAILED;
}

/* The slot's next operation. */
static void
submit(struct sti_file_slot *slot, sti_aio_fn done)
{
    slot->op.done = done;
    slot->op.context = slot;
    slot->files->n_busy++;
    sti_aio_submit(slot->files->aio, &slot->op);
}

static void
start_close(struct sti_file_slot *slot, enum sti_file_state state, sti_aio_fn done)
{
    slot->state = state;
    slot->op = (struct sti_aio_op){.kind = STI_AIO_CLOSE, .fd = slot->fd};
    submit(slot, done);
}

static void
on_looked_at(struct sti_aio_op *op)
{
    struct sti_file_slot *slot = op->context;

    slot->files->n_busy--;
    if (sti_files_compare(&slot->extent, op) < 0)
        start_close(slot, STI_FILE_REFUSING, on_refused);
    else
        slot->state = STI_FILE_OPEN;
}

static void
start_open(struct sti_file_slot *slot);

static void
on_opened(struct sti_aio_op *op)
{
    struct sti_file_slot *slot = op->context;

    slot->files->n_busy--;
    if (op->result == -EINVAL && (slot->open_flags & O_DIRECT)) {
        slot->open_flags &= ~(uint32_t)O_DIRECT; /* this one lies where direct I/O does not work */
        start_open(slot);
        return;
    }
    slot->fd = op->result;
    if (slot->fd < 0) {
        slot->state = STI_FILE_FAILED;
        return;
    }
    sti_files_prepare_look(&slot->extent, &slot->found, &slot->op);
    submit(slot, on_looked_at);
}

static void
start_open(struct sti_file_slot *slot)
{
    slot->state = STI_FILE_OPENING;
    prepare_open(slot);
    submit(slot, on_opened);
}

static void
on_closed(struct sti_aio_op *op)
{
    struct sti_file_slot *slot = op->context;

    slot->files->n_busy--;
    start_open(slot);
}

/* Gives a slot to a file; what was open in it is closed first. */
static void
assign(struct sti_files *files, struct sti_file_slot *slot, const struct sti_extent *extent)
{
    bool must_close = slot->state == STI_FILE_OPEN;

    if (slot->state != STI_FILE_EMPTY)
        files->slot_of[slot->extent.file] = 0;
    files->slot_of[extent->file] = (uint32_t)(slot - files->slots) + 1;
    slot->files = files;
    slot->extent = *extent;
    slot->open_flags = files->open_flags;
    slot->used_at = files->n_uses;
    if (must_close)
        start_close(slot, STI_FILE_CLOSING, on_closed);
    else
        start_open(slot);
}

/* A slot that may be given to another file, or NULL. */
static struct sti_file_slot *
find_slot(struct sti_files *files)
{
    struct sti_file_slot *oldest = NULL;

    if (files->n_used < files->n_slots)
        return &files->slots[files->n_used++];
    for (uint32_t at = 0; at < files->n_slots; at++) {
        struct sti_file_slot *slot = &files->slots[at];
        bool is_idle = slot->state == STI_FILE_OPEN || slot->state == STI_FILE_FAILED;

        if (is_idle && slot->n_users == 0 && (!oldest || slot->used_at < oldest->used_at))
            oldest = slot;
    }
    if (oldest && files->n_uses - oldest->used_at > (uint64_t)KEEP_USES * files->n_slots)
        return oldest;
    return NULL;
}

int
sti_files_open_now(struct sti_files *files, const struct sti_extent *extent)
{
    if (files->n_slots == 0)
        return 0;
    struct sti_file_slot *slot = &files->slots[0];
    assert(files->n_used == 0);
    slot->extent = *extent;
    slot->open_flags = files->open_flags;
    prepare_open(slot);
    sti_aio_op_execute(&slot->op);
    if (slot->op.result < 0)
        return slot->op.result;
    slot->files = files;
    slot->fd = slot->op.result;
    slot->state = STI_FILE_OPEN;
    files->slot_of[extent->file] = 1;
    files->n_used = 1; /* closed with the others from here on */
    sti_files_prepare_look(extent, &slot->found, &slot->op);
    sti_aio_op_execute(&slot->op);
    return sti_files_compare(extent, &slot->op);
}

struct sti_file_slot *
sti_files_get(struct sti_files *files, const struct sti_extent *extent)
{
    struct sti_file_slot *slot;

    if (extent->file == STI_EXTENT_WHOLE || files->n_slots == 0)
        return NULL;
    assert(extent->file < files->n_files);
    files->n_uses++;
    uint32_t slot_idx = files->slot_of[extent->file];
    if (slot_idx == 0) {
        slot = find_slot(files);
        if (slot)
            assign(files, slot, extent);
        return NULL;
    }
    slot = &files->slots[slot_idx - 1];
    slot->used_at = files->n_uses;
    if (slot->state != STI_FILE_OPEN)
        return NULL;
    slot->n_users++;
    return slot;
}

void
sti_files_put(struct sti_file_slot *slot)
{
    if (!slot)
        return;
    assert(slot->n_users > 0);
    slot->n_users--;
}
