/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Direct-I/O probing. btrfs and tmpfs read around the page cache but do not report an
 * alignment, so a trial decides there; its 4 KiB is what every device of today accepts.
 * The statx fields are newer than the headers of Debian 12, so they are named here
 * (kernel 6.1; the fallback can go when no supported kernel lacks them).
 */
#include "io/dio.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define TRIAL_BYTES 4096u
#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x00002000U
#endif
/* struct statx: stx_dio_mem_align and stx_dio_offset_align lie at these bytes of the
 * ABI. */
#define DIO_MEM_ALIGN_AT 0x98
#define DIO_OFFSET_ALIGN_AT 0x9c

struct sti_dio
sti_dio_buffered(void)
{
    return (struct sti_dio){.is_direct = false, .block_bytes = 1, .memory_align = 1};
}

static bool
is_power_of_two(uint32_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* True when the file system has answered; *ret_dio then holds the answer. */
static bool
ask(int fd, struct sti_dio *ret_dio)
{
    struct statx found;
    uint32_t memory_align;
    uint32_t block_bytes;

    memset(&found, 0, sizeof(found));
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) < 0 ||
        !(found.stx_mask & STATX_DIOALIGN))
        return false;
    memcpy(&memory_align, (const char *)&found + DIO_MEM_ALIGN_AT, sizeof(memory_align));
    memcpy(&block_bytes, (const char *)&found + DIO_OFFSET_ALIGN_AT, sizeof(block_bytes));
    *ret_dio = sti_dio_buffered();
    if (is_power_of_two(memory_align) && is_power_of_two(block_bytes) && block_bytes <= 65536 &&
        memory_align <= 65536) {
        ret_dio->is_direct = true;
        ret_dio->block_bytes = block_bytes;
        ret_dio->memory_align = memory_align;
    }
    return true;
}

static bool
try_read(int fd)
{
    void *page =
        mmap(NULL, TRIAL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return false;
    ssize_t n = pread(fd, page, TRIAL_BYTES, 0);
    (void)munmap(page, TRIAL_BYTES); /* cannot fail: mapped above */
    return n >= 0;
}

/*
 * io_uring takes O_NONBLOCK on a file that cannot be read without waiting (NFS, FUSE) for
 * a wish to fail rather than to wait, so it is asked for only where it means nothing.
 */
static bool
try_nowait(int fd)
{
    void *page =
        mmap(NULL, TRIAL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct iovec part = {.iov_base = page, .iov_len = TRIAL_BYTES};

    if (page == MAP_FAILED)
        return false;
    ssize_t n = preadv2(fd, &part, 1, 0, RWF_NOWAIT);
    bool has_nowait = n >= 0 || errno == EAGAIN;
    (void)munmap(page, TRIAL_BYTES); /* cannot fail: mapped above */
    return has_nowait;
}

int
sti_dio_probe(int dir_fd, const char *path, struct sti_dio *ret_dio)
{
    int fd = openat(dir_fd, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_DIRECT);

    if (fd < 0 && errno == EINVAL) {
        *ret_dio = sti_dio_buffered();
        return 0;
    }
    if (fd < 0)
        return -errno;
    if (!ask(fd, ret_dio)) {
        *ret_dio = sti_dio_buffered();
        if (try_read(fd))
            *ret_dio = (struct sti_dio){
                .is_direct = true, .block_bytes = TRIAL_BYTES, .memory_align = TRIAL_BYTES};
    }
    ret_dio->has_nowait = try_nowait(fd);
    (void)close(fd); /* read only: nothing to lose */
    return 0;
}
