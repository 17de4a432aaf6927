/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads every header of some tar shards once and does nothing with them: the least that
 * indexing shards can be. Threads each take the next shard and pread its headers one
 * after the other.
 *
 *     tar_headers [-t THREADS] SHARD...
 *
 * The shards are bench/tar_index.py's: ustar members, sizes in octal. Prints how many
 * members there were.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS_MAX 256
#define BLOCK_BYTES 512
#define SIZE_AT 124

static struct {
    char **paths;
    int n_paths;
    _Atomic int next;
    _Atomic uint64_t members;
    _Atomic int failed;
} job;

/* Returns how many members a shard has, or -1. */
static int64_t
read_headers(const char *path)
{
    char header[BLOCK_BYTES];
    int64_t n_members = 0;
    uint64_t offset = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* no more than a page for each */
    for (;;) {
        ssize_t got = pread(fd, header, sizeof(header), (off_t)offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got != BLOCK_BYTES) {
            n_members = -1;
            break;
        }
        if (header[0] == '\0')
            break;
        header[SIZE_AT + 11] = '\0';
        uint64_t n_bytes = strtoull(header + SIZE_AT, NULL, 8);
        offset += BLOCK_BYTES + (n_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
        n_members++;
    }
    (void)close(fd); /* only read */
    return n_members;
}

static void *
read_shards(void *unused)
{
    (void)unused;
    for (;;) {
        int at = atomic_fetch_add(&job.next, 1);

        if (at >= job.n_paths)
            return NULL;
        int64_t n_members = read_headers(job.paths[at]);
        if (n_members < 0) {
            perror(job.paths[at]);
            atomic_store(&job.failed, 1);
            return NULL;
        }
        atomic_fetch_add(&job.members, (uint64_t)n_members);
    }
}

int
main(int argc, char **argv)
{
    pthread_t threads[THREADS_MAX];
    unsigned long n = 1;
    int letter;

    while ((letter = getopt(argc, argv, "t:")) != -1)
        n = letter == 't' ? strtoul(optarg, NULL, 10) : 0;
    if (n < 1 || n > THREADS_MAX || optind == argc) {
        fprintf(stderr, "usage: tar_headers [-t THREADS] SHARD...\n");
        return 2;
    }
    job.paths = argv + optind;
    job.n_paths = argc - optind;
    for (unsigned long k = 0; k < n; k++) {
        if (pthread_create(&threads[k], NULL, read_shards, NULL) != 0) {
            fprintf(stderr, "tar_headers: no thread\n");
            return 1;
        }
    }
    for (unsigned long k = 0; k < n; k++)
        (void)pthread_join(threads[k], NULL); /* they were started above */
    printf("%" PRIu64 "\n", atomic_load(&job.members));
    return atomic_load(&job.failed);
}
