/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What plain threads make of a list of files: each takes the next file of a shuffled
 * list, opens it, reads it and closes it. The contender that every loader of many files
 * is to be held against.
 *
 *     plain_readers [-t THREADS] [-d] [-s SEED] LIST
 *
 * LIST has one path a line. -d reads with O_DIRECT into huge pages; otherwise through the
 * page cache into memory touched before. Prints one JSON object; times begin when all
 * threads are ready.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clocks.h"

#define THREADS_MAX 256
#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)
/* A direct read costs by what it asks for, also behind the end of the file: 4 MiB at a
 * time take five times the processor time. */
#define READ_BYTES (UINT64_C(128) << 10)

static struct {
    char **paths;
    size_t n_paths;
    int direct;
    _Atomic size_t next;
    _Atomic uint64_t bytes;
    _Atomic int failed;
    pthread_barrier_t ready;
} job;

/* Reads one path of the list into the job. Returns 0 or -1. */
static int
add_path(const char *line, size_t *capacity)
{
    if (job.n_paths == *capacity) {
        size_t more = *capacity ? *capacity * 2 : 1024;
        char **paths = realloc(job.paths, more * sizeof(*paths));

        if (!paths)
            return -1;
        job.paths = paths;
        *capacity = more;
    }
    job.paths[job.n_paths] = strdup(line);
    return job.paths[job.n_paths++] ? 0 : -1;
}

static int
read_list(const char *path)
{
    FILE *file = fopen(path, "re");
    size_t capacity = 0;
    char line[2048];
    int rc = 0;

    if (!file)
        return -1;
    while (rc == 0 && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        rc = add_path(line, &capacity);
    }
    fclose(file);
    return rc;
}

/* Fisher and Yates' shuffle. */
static void
shuffle(uint64_t seed)
{
    uint64_t state = seed * 2 + 1;

    for (size_t k = job.n_paths; k > 1; k--) {
        size_t other;
        char *path;

        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        other = (size_t)((state >> 33) % k);
        path = job.paths[k - 1];
        job.paths[k - 1] = job.paths[other];
        job.paths[other] = path;
    }
}

static int
read_file(const char *path, char *buffer)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | (job.direct ? O_DIRECT : 0));
    uint64_t total = 0;
    ssize_t got = 0;

    if (fd < 0)
        return -1;
    do {
        got = read(fd, buffer, READ_BYTES);
        total += got > 0 ? (uint64_t)got : 0;
    } while (got == (ssize_t)READ_BYTES || (got < 0 && errno == EINTR));
    close(fd);
    atomic_fetch_add(&job.bytes, total);
    return got < 0 ? -1 : 0;
}

static void *
reader(void *argument)
{
    char *memory =
        mmap(NULL, 2 * HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *buffer = memory;
    size_t k;

    (void)argument;
    if (memory == MAP_FAILED) {
        atomic_store(&job.failed, ENOMEM);
    } else {
        buffer += HUGE_PAGE_BYTES - ((uintptr_t)memory & (HUGE_PAGE_BYTES - 1));
        (void)madvise(buffer, HUGE_PAGE_BYTES, MADV_HUGEPAGE); /* a wish */
        memset(buffer, 1, READ_BYTES);
    }
    pthread_barrier_wait(&job.ready); /* all are there */
    pthread_barrier_wait(&job.ready); /* the clock has been read */
    while (!atomic_load(&job.failed) && (k = atomic_fetch_add(&job.next, 1)) < job.n_paths)
        if (read_file(job.paths[k], buffer) < 0)
            atomic_store(&job.failed, errno);
    return NULL;
}

/* Runs the threads; returns 0 or an errno. */
static int
run(unsigned threads)
{
    pthread_t ids[THREADS_MAX];
    double began, cpu_began, seconds, cpu;

    pthread_barrier_init(&job.ready, NULL, threads + 1);
    for (unsigned k = 0; k < threads; k++)
        if (pthread_create(&ids[k], NULL, reader, NULL) != 0)
            return EAGAIN;
    pthread_barrier_wait(&job.ready);
    began = now_seconds();
    cpu_began = cpu_seconds();
    pthread_barrier_wait(&job.ready);
    for (unsigned k = 0; k < threads; k++)
        pthread_join(ids[k], NULL);
    seconds = now_seconds() - began;
    cpu = cpu_seconds() - cpu_began;
    if (atomic_load(&job.failed))
        return atomic_load(&job.failed);
    printf("{\"samples\": %zu, \"bytes\": %" PRIu64 ", \"seconds\": %.6f, \"cpu_seconds\": %.6f, ",
           job.n_paths, atomic_load(&job.bytes), seconds, cpu);
    printf("\"samples_per_s\": %.1f, \"bytes_per_s\": %.0f}\n", (double)job.n_paths / seconds,
           (double)atomic_load(&job.bytes) / seconds);
    return 0;
}

int
main(int argc, char **argv)
{
    unsigned long threads = 8, seed = 1;
    int letter, rc;

    while ((letter = getopt(argc, argv, "dt:s:")) != -1) {
        if (letter == 't')
            threads = strtoul(optarg, NULL, 10);
        else if (letter == 's')
            seed = strtoul(optarg, NULL, 10);
        else if (letter == 'd')
            job.direct = 1;
        else
            threads = 0;
    }
    if (threads < 1 || threads > THREADS_MAX || optind != argc - 1) {
        fprintf(stderr, "usage: plain_readers [-t THREADS] [-d] [-s SEED] LIST\n");
        return 2;
    }
    if (read_list(argv[optind]) < 0 || job.n_paths == 0) {
        fprintf(stderr, "plain_readers: %s: cannot be read or is empty\n", argv[optind]);
        return 1;
    }
    shuffle(seed);
    rc = run((unsigned)threads);
    if (rc)
        fprintf(stderr, "plain_readers: %s\n", strerror(rc));
    return rc != 0;
}
