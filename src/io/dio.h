/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether and how a file may be read around the page cache. The answer is the file
 * system's, asked once per data set or root, never a constant.
 */
#ifndef STI_IO_DIO_H
#define STI_IO_DIO_H

#include <stdbool.h>
#include <stdint.h>

struct sti_dio {
    bool has_nowait;       /* a read may be asked not to wait, so O_NONBLOCK costs nothing */
    bool is_direct;        /* O_DIRECT works */
    uint32_t block_bytes;  /* offsets and lengths are multiples of it; 1 if buffered */
    uint32_t memory_align; /* addresses are multiples of it; 1 if buffered */
};

/* What a program may always do: go through the page cache. */
struct sti_dio
sti_dio_buffered(void);

/*
 * Asks for a regular file, dir_fd-relative: statx's direct-I/O alignment where the file
 * system reports one, else a trial read. Where neither works the answer is buffered.
 * Blocks. Errors: -ENOENT, -EACCES and what else opening can give.
 */
int
sti_dio_probe(int dir_fd, const char *path, struct sti_dio *ret_dio);

#endif
