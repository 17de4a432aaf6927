/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file system that has less than others: poor_fs SOURCE MOUNTPOINT [WORD]...
 *
 * Passes everything on to a directory, but for what the words refuse, as file systems on
 * networks do: nodirect (open with O_DIRECT), nofallocate, noreplace (rename with flags).
 * While SOURCE.eio-write or SOURCE.eio-sync is there, writes or syncs fail with EIO. It
 * reports no alignment in any case.
 */
#define FUSE_USE_VERSION 312
#include <fuse.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static struct {
    int dir_fd;
    const char *source;
    int no_direct, no_fallocate, no_replace;
} poor;

/* As openat() and its kin want it. */
static const char *
below(const char *path)
{
    return path[1] ? path + 1 : ".";
}

static int
result(long rc)
{
    return rc < 0 ? -errno : (int)rc;
}

static int
fails(const char *what)
{
    char path[1024];

    (void)snprintf(path, sizeof(path), "%s.eio-%s", poor.source, what);
    return access(path, F_OK) == 0;
}

static int
on_getattr(const char *path, struct stat *st, struct fuse_file_info *info)
{
    if (info)
        return result(fstat((int)info->fh, st));
    return result(fstatat(poor.dir_fd, below(path), st, AT_SYMLINK_NOFOLLOW));
}

static int
on_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset,
           struct fuse_file_info *info, enum fuse_readdir_flags flags)
{
    int fd = openat(poor.dir_fd, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    (void)offset;
    (void)info;
    (void)flags;
    if (!dir)
        return -errno;
    while ((entry = readdir(dir)) != NULL)
        fill(buffer, entry->d_name, NULL, 0, 0);
    closedir(dir);
    return 0;
}

static int
on_mkdir(const char *path, mode_t mode)
{
    return result(mkdirat(poor.dir_fd, below(path), mode));
}

static int
on_unlink(const char *path)
{
    return result(unlinkat(poor.dir_fd, below(path), 0));
}

static int
on_rmdir(const char *path)
{
    return result(unlinkat(poor.dir_fd, below(path), AT_REMOVEDIR));
}

static int
on_rename(const char *from, const char *to, unsigned flags)
{
    if (flags && poor.no_replace)
        return -EINVAL;
    return result(renameat2(poor.dir_fd, below(from), poor.dir_fd, below(to), flags));
}

static int
open_file(const char *path, mode_t mode, struct fuse_file_info *info)
{
    int fd;

    if (poor.no_direct && info->flags & O_DIRECT)
        return -EINVAL;
    /* Requests come from memory that is not aligned; the caller's promise ends here. */
    fd = openat(poor.dir_fd, below(path), (info->flags & ~O_DIRECT) | O_CLOEXEC, mode);
    if (fd < 0)
        return -errno;
    info->fh = (uint64_t)fd;
    return 0;
}

static int
on_open(const char *path, struct fuse_file_info *info)
{
    return open_file(path, 0, info);
}

static int
on_create(const char *path, mode_t mode, struct fuse_file_info *info)
{
    return open_file(path, mode, info);
}

static int
on_read(const char *path, char *bytes, size_t n_bytes, off_t offset, struct fuse_file_info *info)
{
    (void)path;
    return result(pread((int)info->fh, bytes, n_bytes, offset));
}

static int
on_write(const char *path, const char *bytes, size_t n_bytes, off_t offset,
         struct fuse_file_info *info)
{
    (void)path;
    return fails("write") ? -EIO : result(pwrite((int)info->fh, bytes, n_bytes, offset));
}

static int
on_fsync(const char *path, int datasync, struct fuse_file_info *info)
{
    (void)path;
    (void)datasync;
    return fails("sync") ? -EIO : result(fsync((int)info->fh));
}

static int
on_fsyncdir(const char *path, int datasync, struct fuse_file_info *info)
{
    (void)path;
    (void)datasync;
    (void)info;
    return fails("sync") ? -EIO : 0; /* what lies below survives this process anyway */
}

static int
on_truncate(const char *path, off_t n_bytes, struct fuse_file_info *info)
{
    int fd = info ? (int)info->fh : openat(poor.dir_fd, below(path), O_WRONLY | O_CLOEXEC);
    int rc = fd < 0 ? -errno : result(ftruncate(fd, n_bytes));

    if (!info && fd >= 0)
        close(fd);
    return rc;
}

static int
on_fallocate(const char *path, int mode, off_t offset, off_t n_bytes, struct fuse_file_info *info)
{
    (void)path;
    return poor.no_fallocate ? -EOPNOTSUPP
                             : result(fallocate((int)info->fh, mode, offset, n_bytes));
}

static int
on_release(const char *path, struct fuse_file_info *info)
{
    (void)path;
    return result(close((int)info->fh));
}

static int
on_statfs(const char *path, struct statvfs *st)
{
    (void)path;
    return result(fstatvfs(poor.dir_fd, st));
}

static const struct fuse_operations operations = {
    .getattr = on_getattr,
    .readdir = on_readdir,
    .mkdir = on_mkdir,
    .unlink = on_unlink,
    .rmdir = on_rmdir,
    .rename = on_rename,
    .open = on_open,
    .create = on_create,
    .read = on_read,
    .write = on_write,
    .fsync = on_fsync,
    .fsyncdir = on_fsyncdir,
    .truncate = on_truncate,
    .fallocate = on_fallocate,
    .release = on_release,
    .statfs = on_statfs,
};

int
main(int argc, char **argv)
{
    for (int at = 3; at < argc; at++) {
        poor.no_direct |= strcmp(argv[at], "nodirect") == 0;
        poor.no_fallocate |= strcmp(argv[at], "nofallocate") == 0;
        poor.no_replace |= strcmp(argv[at], "noreplace") == 0;
    }
    if (argc < 3) {
        fprintf(stderr, "usage: poor_fs SOURCE MOUNTPOINT [nodirect] [nofallocate] [noreplace]\n");
        return 2;
    }
    poor.source = realpath(argv[1], NULL); /* for as long as the process lives */
    poor.dir_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!poor.source || poor.dir_fd < 0) {
        perror(argv[1]);
        return 1;
    }
    char *fuse_argv[] = {argv[0], argv[2], (char[]){"-ofsname=poor_fs"}, NULL};
    return fuse_main(3, fuse_argv, &operations, NULL);
}
