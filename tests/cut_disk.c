/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk that remembers: cut_disk IMAGE MOUNTPOINT LOG
 *
 * A FUSE file system with two files. "disk" has the bytes of the image; a loop device and
 * a real file system go on top. What is written to "notes" goes into the log alone, so
 * that a program's words stand in it between the writes that they came after. The log has
 * all that happened, in its order, from which ckpt_powercut.py makes what a power cut
 * would have left:
 *
 *     4 x 8 bytes, native order: kind ('W'rite, 'Z'ero, 'F'lush, 'N'ote), offset, length, 0
 *     the bytes of a write or a note
 *
 * One thread, one request at a time, so the order of the log is the order of the disk.
 */
#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DISK_INO 2
#define NOTES_INO 3
#define REQUEST_MAX (1U << 20)
#define CACHE_FOREVER 1e9

static struct {
    int fd;
    int log_fd;
    off_t bytes;
    char *buffer;
} disk;

/* Appends to the log; 0 or an errno. */
static int
remember(char kind, off_t offset, size_t n_bytes, const void *bytes)
{
    const uint64_t head[4] = {(uint64_t)kind, (uint64_t)offset, n_bytes, 0};

    if (write(disk.log_fd, head, sizeof(head)) != (ssize_t)sizeof(head))
        return EIO;
    if (bytes && write(disk.log_fd, bytes, n_bytes) != (ssize_t)n_bytes)
        return EIO;
    return 0;
}

static void
describe(fuse_ino_t ino, struct stat *st)
{
    *st = (struct stat){.st_ino = ino, .st_nlink = 1, .st_mode = S_IFDIR | 0755};
    if (ino == FUSE_ROOT_ID)
        return;
    st->st_mode = S_IFREG | 0600;
    st->st_blksize = 4096;
    if (ino == DISK_INO) {
        st->st_size = disk.bytes;
        st->st_blocks = disk.bytes / 512;
    }
}

static void
on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
    struct stat st;

    (void)info;
    describe(ino, &st);
    fuse_reply_attr(req, &st, CACHE_FOREVER);
}

static void
on_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int which,
           struct fuse_file_info *info)
{
    (void)attr; /* times, and the notes' size: neither matters */
    (void)which;
    on_getattr(req, ino, info);
}

static void
on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param entry = {.attr_timeout = CACHE_FOREVER, .entry_timeout = CACHE_FOREVER};

    if (parent == FUSE_ROOT_ID && strcmp(name, "disk") == 0)
        entry.ino = DISK_INO;
    else if (parent == FUSE_ROOT_ID && strcmp(name, "notes") == 0)
        entry.ino = NOTES_INO;
    if (entry.ino == 0) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    describe(entry.ino, &entry.attr);
    fuse_reply_entry(req, &entry);
}

static void
on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
    if (ino == FUSE_ROOT_ID) {
        fuse_reply_err(req, EISDIR);
        return;
    }
    info->direct_io = 1; /* no page cache between the loop device and here */
    fuse_reply_open(req, info);
}

static void
on_read(fuse_req_t req, fuse_ino_t ino, size_t n_bytes, off_t offset, struct fuse_file_info *info)
{
    ssize_t got = 0;

    (void)info;
    if (ino == DISK_INO)
        got = pread(disk.fd, disk.buffer, n_bytes < REQUEST_MAX ? n_bytes : REQUEST_MAX, offset);
    if (got < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_buf(req, disk.buffer, (size_t)got);
}

static void
on_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t n_bytes, off_t offset,
         struct fuse_file_info *info)
{
    int error = remember(ino == DISK_INO ? 'W' : 'N', offset, n_bytes, bytes);

    (void)info;
    if (!error && ino == DISK_INO && pwrite(disk.fd, bytes, n_bytes, offset) != (ssize_t)n_bytes)
        error = EIO;
    if (error)
        fuse_reply_err(req, error);
    else
        fuse_reply_write(req, n_bytes);
}

static void
on_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *info)
{
    (void)datasync;
    (void)info;
    fuse_reply_err(req, ino == DISK_INO ? remember('F', 0, 0, NULL) : 0);
}

static void
on_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t n_bytes,
             struct fuse_file_info *info)
{
    int error = 0;

    (void)ino;
    (void)info;
    if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
        error = remember('Z', offset, (size_t)n_bytes, NULL);
    if (!error && fallocate(disk.fd, mode, offset, n_bytes) < 0)
        error = errno;
    fuse_reply_err(req, error);
}

static void
on_init(void *context, struct fuse_conn_info *conn)
{
    (void)context;
    conn->max_write = REQUEST_MAX;
}

static const struct fuse_lowlevel_ops operations = {
    .init = on_init,
    .lookup = on_lookup,
    .getattr = on_getattr,
    .setattr = on_setattr,
    .open = on_open,
    .read = on_read,
    .write = on_write,
    .fsync = on_fsync,
    .fallocate = on_fallocate,
};

static int
open_files(const char *image, const char *log)
{
    disk.fd = open(image, O_RDWR | O_CLOEXEC);
    disk.log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    disk.buffer = malloc(REQUEST_MAX);
    if (disk.fd < 0 || disk.log_fd < 0 || !disk.buffer) {
        perror(disk.fd < 0 ? image : log);
        return -1;
    }
    disk.bytes = lseek(disk.fd, 0, SEEK_END);
    return disk.bytes < 4096 ? -1 : 0;
}

int
main(int argc, char **argv)
{
    char *fuse_argv[] = {(char[]){"cut_disk"}, (char[]){"-ofsname=cut_disk"}, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(2, fuse_argv);
    struct fuse_session *session;
    int rc = 1;

    if (argc != 4 || open_files(argv[1], argv[3]) < 0)
        return 2;
    session = fuse_session_new(&args, &operations, sizeof(operations), NULL);
    if (!session)
        return 1;
    if (fuse_set_signal_handlers(session) == 0) {
        if (fuse_session_mount(session, argv[2]) == 0) {
            rc = fuse_daemonize(0);
            if (rc == 0)
                rc = fuse_session_loop(session) != 0;
            fuse_session_unmount(session);
        }
        fuse_remove_signal_handlers(session);
    }
    fuse_session_destroy(session);
    return rc;
}
