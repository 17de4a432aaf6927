/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a cache directory. The subfolder of a data set is stoker-FINGERPRINT, one for each of
 * the machine's ranks, in it `lock`, `data` and `catalog`. Whoever has the lock appends to both
 * files; bytes once written are never overwritten, so that others may read along without any
 * lock.
 *
 * The catalogue is a journal: an entry is appended when its sample has been written. It
 * is a hint, so nothing is synced and nothing is renamed: an entry that is lost is a
 * sample read from the origin again, and one that is wrong does not verify. Writes of a
 * killed process may still reach the disk after its successor has begun, so a data file
 * that was not closed in order is continued behind a gap larger than all that can have
 * been under way.
 */
#include "tier/ssd_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "io/aio.h"
#include "io/lock.h"
#include "tier/ssd_sweep.h"

#define CHUNK_BYTES (UINT32_C(1) << 20)
#define GAP_BYTES (UINT64_C(2) << 30)
#define FILE_UNIT_BYTES 4096u
/* Entries of these samples mark that a job has begun to write, and that it has ended in
 * order, with nothing under way. */
#define OPENED_SAMPLE (UINT64_MAX - 1)
#define CLOSED_SAMPLE UINT64_MAX

static const char lock_text[] = STI_SSD_LOCK_TEXT;

static int
open_at(int dir_fd, const char *path, uint32_t flags)
{
    struct sti_aio_op op = {.kind = STI_AIO_OPEN,
                            .dir_fd = dir_fd,
                            .path = path,
                            .open_flags = flags | O_NOFOLLOW,
                            .mode = 0644};

    sti_aio_op_execute(&op);
    return op.result;
}

static void
close_fd(int *fd)
{
    if (*fd < 0)
        return;
    struct sti_aio_op op = {.kind = STI_AIO_CLOSE, .fd = *fd};
    sti_aio_op_execute(&op); /* a cache: what is lost is read again */
    *fd = -1;
}

static int
write_at(int fd, void *bytes, uint32_t n_bytes, uint64_t offset)
{
    struct sti_aio_op op = {
        .kind = STI_AIO_WRITE, .fd = fd, .bytes = bytes, .n_bytes = n_bytes, .offset = offset};

    sti_aio_op_execute(&op);
    return op.result == (int32_t)n_bytes ? 0 : op.result < 0 ? op.result : -ENOSPC;
}

static int32_t
read_at(int fd, void *bytes, uint32_t n_bytes, uint64_t offset)
{
    struct sti_aio_op op = {
        .kind = STI_AIO_READ, .fd = fd, .bytes = bytes, .n_bytes = n_bytes, .offset = offset};

    sti_aio_op_execute(&op);
    return op.result;
}

static void
unlink_at(int dir_fd, const char *path)
{
    struct sti_aio_op op = {.kind = STI_AIO_UNLINK, .dir_fd = dir_fd, .path = path};

    sti_aio_op_execute(&op); /* not there, or it stays and O_EXCL says so */
}

/* ---- the subfolder ----------------------------------------------------------------- */

static int
open_subfolder(struct sti_ssd_dir *dir, int root_fd, bool must_make)
{
    char name[STI_SSD_NAME_SIZE];
    struct sti_aio_op op = {.kind = STI_AIO_MKDIR, .dir_fd = root_fd, .path = name, .mode = 0755};

    sti_ssd_name(name, dir->identity.dataset_id);
    op.result = -EEXIST;
    if (must_make)
        sti_aio_op_execute(&op);
    if (op.result < 0 && op.result != -EEXIST && op.result != -EROFS && op.result != -EACCES &&
        op.result != -ENOSPC && op.result != -EDQUOT)
        return op.result;
    int fd = open_at(root_fd, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0) /* it could not be made: that is what matters */
        return op.result < 0 && op.result != -EEXIST ? op.result : fd;
    dir->dir_fd = fd;
    return 0;
}

/* Takes the lock and notes the time of use in it; without it the cache is only read. */
static int
lock(struct sti_ssd_dir *dir)
{
    char text[sizeof(lock_text)];
    int rc = sti_lock_take(dir->dir_fd, "lock", &dir->lock_fd);

    dir->read_only_code = rc == -EAGAIN ? -EBUSY : rc;
    if (rc == -EAGAIN || rc == -EACCES || rc == -EROFS || rc == -ENOSPC || rc == -EDQUOT)
        return 0;
    if (rc < 0)
        return rc;
    memcpy(text, lock_text, sizeof(text));
    dir->read_only_code = write_at(dir->lock_fd, text, sizeof(text), 0);
    if (dir->read_only_code < 0) /* full to the last byte: read what there is */
        close_fd(&dir->lock_fd);
    return 0;
}

/* ---- files ------------------------------------------------------------------------- */

static uint64_t
file_bytes(int dir_fd, const char *path)
{
    struct statx found;
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .dir_fd = dir_fd,
                            .path = path,
                            .statx = &found,
                            .statx_mask = STATX_SIZE};

    sti_aio_op_execute(&op);
    return op.result < 0 ? 0 : found.stx_size;
}

static int
open_data(struct sti_ssd_dir *dir, bool is_buffered)
{
    uint32_t access = dir->lock_fd >= 0 ? O_RDWR : O_RDONLY;

    dir->dio = sti_dio_buffered();
    if (!is_buffered) {
        int rc = sti_dio_probe(dir->dir_fd, "data", &dir->dio);

        if (rc < 0)
            return rc;
    }
    if (dir->dio.block_bytes > FILE_UNIT_BYTES || dir->dio.memory_align > FILE_UNIT_BYTES)
        dir->dio = sti_dio_buffered();
    dir->data_fd = open_at(dir->dir_fd, "data", access | (dir->dio.is_direct ? O_DIRECT : 0u));
    return dir->data_fd < 0 ? dir->data_fd : 0;
}

/* Whether a file is not there or a regular one: opening a FIFO would wait for its other end. */
static bool
may_open(int dir_fd, const char *path)
{
    struct statx found = {0};
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .dir_fd = dir_fd,
                            .path = path,
                            .statx = &found,
                            .statx_mask = STATX_TYPE};

    sti_aio_op_execute(&op);
    return op.result < 0 || S_ISREG(found.stx_mode);
}

/* Opens what is there; -ENOENT and our own codes mean that there is nothing to go on
 * with. */
static int
open_files(struct sti_ssd_dir *dir, bool is_buffered)
{
    char head[STI_SSD_HEAD_BYTES];

    if (!may_open(dir->dir_fd, "catalog") || !may_open(dir->dir_fd, "data"))
        return STK_E_CORRUPT;
    dir->catalog_fd = open_at(dir->dir_fd, "catalog", dir->lock_fd >= 0 ? O_RDWR : O_RDONLY);
    if (dir->catalog_fd < 0)
        return dir->catalog_fd;
    int32_t n = read_at(dir->catalog_fd, head, sizeof(head), 0);
    if (n < 0)
        return n;
    if (n < (int32_t)sizeof(head))
        return STK_E_CORRUPT;
    int rc = sti_ssd_head_check(head, &dir->identity);
    if (rc == 0)
        rc = open_data(dir, is_buffered);
    return rc;
}

/* New files, never the old ones made empty: another job may be reading those. */
static int
make_files(struct sti_ssd_dir *dir, bool is_buffered)
{
    char head[STI_SSD_HEAD_BYTES];

    close_fd(&dir->catalog_fd);
    close_fd(&dir->data_fd);
    unlink_at(dir->dir_fd, "catalog");
    unlink_at(dir->dir_fd, "data");
    if (getrandom(&dir->identity.nonce, sizeof(dir->identity.nonce), 0) !=
        (ssize_t)sizeof(dir->identity.nonce))
        return -EIO;
    int fd = open_at(dir->dir_fd, "data", O_RDWR | O_CREAT | O_EXCL);
    if (fd < 0)
        return fd;
    close_fd(&fd);
    int rc = open_data(dir, is_buffered);
    if (rc < 0)
        return rc;
    dir->catalog_fd = open_at(dir->dir_fd, "catalog", O_RDWR | O_CREAT | O_EXCL);
    if (dir->catalog_fd < 0)
        return dir->catalog_fd;
    sti_ssd_head_encode(head, &dir->identity);
    return write_at(dir->catalog_fd, head, sizeof(head), 0);
}

/* ---- the catalogue ----------------------------------------------------------------- */

struct reading {
    const struct sti_ssd_dir_opts *opts;
    uint64_t data_bytes; /* length of the data file */
    uint64_t end;        /* of the last record */
    bool is_closed;      /* the last entry says so */
};

static void
take_entry(const struct sti_ssd_dir *dir, struct reading *reading, const char *entry)
{
    struct sti_ssd_record record;

    reading->is_closed = false;
    if (!sti_ssd_entry_decode(entry, &dir->identity, &record))
        return;
    if (record.sample == CLOSED_SAMPLE) {
        reading->is_closed = true;
        return;
    }
    if (record.offset % STI_SSD_HEADER_BYTES != 0 || record.offset > reading->data_bytes ||
        reading->data_bytes - record.offset < STI_SSD_HEADER_BYTES + (uint64_t)record.n_bytes)
        return;
    if (reading->opts->on_record(reading->opts->context, &record)) {
        uint64_t end = record.offset + STI_SSD_HEADER_BYTES + record.n_bytes;

        reading->end = end > reading->end ? end : reading->end;
    }
}

static int
read_catalog(struct sti_ssd_dir *dir, const struct sti_ssd_dir_opts *opts)
{
    struct reading reading = {.opts = opts, .data_bytes = file_bytes(dir->dir_fd, "data")};
    char *chunk = sti_mem_new(1, CHUNK_BYTES);
    uint64_t offset = STI_SSD_HEAD_BYTES;
    int32_t n;

    if (!chunk)
        return -ENOMEM;
    while ((n = read_at(dir->catalog_fd, chunk, CHUNK_BYTES, offset)) > 0) {
        uint32_t n_entries = (uint32_t)n / STI_SSD_ENTRY_BYTES;

        for (uint32_t at = 0; at < n_entries; at++)
            take_entry(dir, &reading, chunk + (uint64_t)at * STI_SSD_ENTRY_BYTES);
        offset += (uint64_t)n_entries * STI_SSD_ENTRY_BYTES;
        if (n < (int32_t)CHUNK_BYTES) /* a torn last entry is written over */
            break;
    }
    sti_mem_free(chunk);
    dir->catalog_end = offset;
    uint64_t end = reading.data_bytes > reading.end ? reading.data_bytes : reading.end;
    if (!reading.is_closed && offset > STI_SSD_HEAD_BYTES)
        end += GAP_BYTES;
    dir->data_end = (end + FILE_UNIT_BYTES - 1) / FILE_UNIT_BYTES * FILE_UNIT_BYTES;
    return n < 0 ? n : 0;
}

/* ---- open and close ---------------------------------------------------------------- */

static int
open_locked(struct sti_ssd_dir *dir, int root_fd, const struct sti_ssd_dir_opts *opts)
{
    dir->room_bytes = sti_ssd_sweep(root_fd, opts);
    int rc = open_files(dir, opts->is_buffered);
    if (rc < 0)
        rc = make_files(dir, opts->is_buffered);
    if (rc < 0)
        return rc;
    dir->is_writable = true;
    return 0;
}

static int
mark(struct sti_ssd_dir *dir, uint64_t sample)
{
    char entry[STI_SSD_ENTRY_BYTES];
    const struct sti_ssd_record record = {.sample = sample};

    sti_ssd_entry_encode(entry, &dir->identity, &record);
    int rc = write_at(dir->catalog_fd, entry, sizeof(entry), dir->catalog_end);
    if (rc == 0)
        dir->catalog_end += sizeof(entry);
    return rc;
}

static int
open_in(struct sti_ssd_dir *dir, int root_fd, const struct sti_ssd_dir_opts *opts)
{
    int rc = open_subfolder(dir, root_fd, !opts->is_beside);

    if (rc == 0 && !opts->is_beside)
        rc = lock(dir);
    if (rc < 0)
        return rc;
    if (dir->lock_fd >= 0)
        rc = open_locked(dir, root_fd, opts);
    else if (open_files(dir, opts->is_buffered) < 0)
        return 0; /* nothing to be read: neither flag */
    if (rc == 0)
        rc = read_catalog(dir, opts);
    if (rc < 0)
        return rc;
    dir->is_readable = true;
    if (dir->is_writable)
        dir->read_only_code = mark(dir, OPENED_SAMPLE);
    if (dir->read_only_code < 0) /* full to the last byte: read what there is */
        dir->is_writable = false;
    return 0;
}

int
sti_ssd_dir_open(struct sti_ssd_dir *dir, const struct sti_ssd_dir_opts *opts)
{
    *dir = (struct sti_ssd_dir){
        .dir_fd = -1,
        .lock_fd = -1,
        .data_fd = -1,
        .catalog_fd = -1,
        .identity = {.dataset_id = sti_ssd_slot_id(opts->dataset_id, opts->slot)}};
    struct sti_aio_op op = {.kind = STI_AIO_OPEN,
                            .dir_fd = AT_FDCWD,
                            .path = opts->path,
                            .open_flags = O_RDONLY | O_DIRECTORY};
    sti_aio_op_execute(&op);
    int root_fd = op.result;
    if (root_fd < 0)
        return root_fd;
    int rc = open_in(dir, root_fd, opts);
    close_fd(&root_fd);
    if (rc < 0) {
        dir->is_writable = false;
        sti_ssd_dir_close(dir);
    }
    return rc;
}

void
sti_ssd_dir_close(struct sti_ssd_dir *dir)
{
    if (dir->is_writable)
        (void)mark(dir, CLOSED_SAMPLE); /* if it fails, the next job leaves a gap */
    close_fd(&dir->data_fd);
    close_fd(&dir->catalog_fd);
    close_fd(&dir->dir_fd);
    close_fd(&dir->lock_fd);
    dir->is_readable = false;
    dir->is_writable = false;
}
