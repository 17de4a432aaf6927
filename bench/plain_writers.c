/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least that a checkpoint could be: one file written from a buffer as large as the
 * state, in order, and synced. No checksum, no copy, no commit.
 *
 *     plain_writers ring|buffered FILE BYTES
 *
 * ring      io_uring, O_DIRECT, eight writes of 8 MiB under way, space reserved first
 * buffered  write() by 1 MiB, sync_file_range() on each, fdatasync(): the strongest that the
 *           page cache gives
 *
 * Memory is huge pages, touched and filled before the clock is read. Prints one JSON
 * object. FILE is left behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clocks.h"

#define DEPTH 8
#define WRITE_BYTES (UINT64_C(8) << 20)
#define BUFFERED_BYTES (UINT64_C(1) << 20)

static struct {
    const char *path;
    char *memory;
    uint64_t n_bytes;
} job;

static int
make_memory(void)
{
    job.memory =
        mmap(NULL, job.n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (job.memory == MAP_FAILED)
        return -errno;
    (void)madvise(job.memory, job.n_bytes, MADV_HUGEPAGE); /* a wish */
    for (uint64_t at = 0; at < job.n_bytes; at += 8) {
        uint64_t word = at * UINT64_C(0x9e3779b97f4a7c15);

        memcpy(job.memory + at, &word, sizeof(word));
    }
    return 0;
}

static void
submit(struct io_uring *ring, int fd, uint64_t offset)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    uint64_t left = job.n_bytes - offset;
    unsigned n = (unsigned)(left < WRITE_BYTES ? left : WRITE_BYTES);

    if (!sqe) /* there are twice as many entries as are ever used */
        abort();
    io_uring_prep_write(sqe, fd, job.memory + offset, n, offset);
    io_uring_sqe_set_data64(sqe, n);
}

static int
run_ring(struct io_uring *ring, int fd)
{
    uint64_t submitted = 0;
    uint64_t done = 0;
    struct io_uring_cqe *cqe;
    int rc;

    for (unsigned k = 0; k < DEPTH && submitted < job.n_bytes; k++, submitted += WRITE_BYTES)
        submit(ring, fd, submitted);
    while (done < job.n_bytes) {
        rc = io_uring_submit_and_wait(ring, 1);
        while (rc >= 0 && io_uring_peek_cqe(ring, &cqe) == 0) {
            if (cqe->res < 0 || (uint64_t)cqe->res != io_uring_cqe_get_data64(cqe))
                rc = cqe->res < 0 ? cqe->res : -EIO;
            done += io_uring_cqe_get_data64(cqe);
            io_uring_cqe_seen(ring, cqe);
            if (rc >= 0 && submitted < job.n_bytes) {
                submit(ring, fd, submitted);
                submitted += WRITE_BYTES;
            }
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int
write_ring(int fd)
{
    struct io_uring ring;
    int rc = io_uring_queue_init(2 * DEPTH, &ring, IORING_SETUP_SINGLE_ISSUER);

    if (rc < 0)
        return rc;
    (void)fallocate(fd, 0, 0, (off_t)job.n_bytes); /* where it can */
    rc = run_ring(&ring, fd);
    io_uring_queue_exit(&ring);
    return rc;
}

static int
write_buffered(int fd)
{
    for (uint64_t at = 0; at < job.n_bytes;) {
        uint64_t left = job.n_bytes - at;
        ssize_t n = write(fd, job.memory + at, left < BUFFERED_BYTES ? left : BUFFERED_BYTES);

        if (n < 0)
            return -errno;
        /* What fails here the sync at the end reports. */
        (void)sync_file_range(fd, (off_t)at, n, SYNC_FILE_RANGE_WRITE);
        at += (uint64_t)n;
    }
    return 0;
}

static int
run(bool is_buffered)
{
    int flags = O_WRONLY | O_CREAT | O_TRUNC;
    double began = now_seconds();
    double cpu_began = cpu_seconds();
    int fd = open(job.path, flags | O_CLOEXEC | (is_buffered ? 0 : O_DIRECT), 0666);
    int rc = fd < 0 ? -errno : is_buffered ? write_buffered(fd) : write_ring(fd);

    if (rc == 0 && fdatasync(fd) < 0)
        rc = -errno;
    if (fd >= 0 && close(fd) < 0 && rc == 0)
        rc = -errno;
    double seconds = now_seconds() - began;
    if (rc == 0)
        printf("{\"bytes\": %" PRIu64 ", \"seconds\": %.6f, \"cpu_seconds\": %.6f}\n", job.n_bytes,
               seconds, cpu_seconds() - cpu_began);
    return rc;
}

int
main(int argc, char **argv)
{
    const char *how = argc == 4 ? argv[1] : "";
    bool is_buffered = strcmp(how, "buffered") == 0;

    job.n_bytes = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
    if ((!is_buffered && strcmp(how, "ring") != 0) || job.n_bytes % 4096 != 0 || job.n_bytes == 0) {
        fprintf(stderr, "usage: plain_writers ring|buffered FILE BYTES (whole 4 KiB)\n");
        return 2;
    }
    job.path = argv[2];
    int rc = make_memory();
    if (rc == 0)
        rc = run(is_buffered);
    if (rc < 0)
        fprintf(stderr, "plain_writers: %s: %s\n", job.path, strerror(-rc));
    return rc < 0;
}
