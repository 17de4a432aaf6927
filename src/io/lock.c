/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks. flock(2) belongs to the open file, so it ends with a killed process and it keeps
 * two owners within one process apart. A lock file that was unlinked between opening and
 * locking protects nothing any more; then the one that is there now is tried.
 */
#include "io/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define TRIES 8

static int
take_once(int dir_fd, const char *path, int *ret_fd)
{
    struct stat found;
    int fd = openat(dir_fd, path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    int rc;

    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        rc = errno == EWOULDBLOCK ? -EAGAIN : -errno;
        goto err_fd;
    }
    if (fstat(fd, &found) < 0) {
        rc = -errno;
        goto err_fd;
    }
    if (found.st_nlink == 0) {
        rc = -ESTALE;
        goto err_fd;
    }
    *ret_fd = fd;
    return 0;

err_fd:
    (void)close(fd); /* nothing was written */
    return rc;
}

int
sti_lock_take(int dir_fd, const char *path, int *ret_fd)
{
    int rc = -ESTALE;

    for (int tries = 0; tries < TRIES && rc == -ESTALE; tries++)
        rc = take_once(dir_fd, path, ret_fd);
    return rc == -ESTALE ? -EAGAIN : rc;
}

int
sti_free_bytes(int dir_fd, uint64_t *ret_bytes)
{
    struct statvfs found;

    if (fstatvfs(dir_fd, &found) < 0)
        return -errno;
    if (found.f_blocks == 0)
        return -EOPNOTSUPP;
    *ret_bytes = (uint64_t)found.f_bavail * found.f_frsize;
    return 0;
}
