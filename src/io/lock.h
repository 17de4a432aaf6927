/* SPDX-License-Identifier: Apache-2.0 */
/* A lock between processes that the kernel lets go with its owner, and the room of a file
 * system. Blocking calls, but none that waits for another process. */
#ifndef STI_IO_LOCK_H
#define STI_IO_LOCK_H

#include <stdint.h>

/*
 * Takes the lock file dir_fd/path, making it if it is not there. ret_fd: returns owned,
 * given up by closing it, or by the end of the process however it ends. Errors: -EAGAIN
 * somebody has it, -EACCES, -EROFS and what else opening gives.
 */
int
sti_lock_take(int dir_fd, const char *path, int *ret_fd);

/* Bytes that an unprivileged program can still write to the file system of a directory.
 * Errors: -EOPNOTSUPP it has no blocks that could be counted (ramfs). */
int
sti_free_bytes(int dir_fd, uint64_t *ret_bytes);

#endif
