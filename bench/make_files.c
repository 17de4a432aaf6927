/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a data set of files that neither compress nor repeat:
 *
 *     make_files DIR COUNT BYTES        DIR/c00/000000.bin ...   100 class folders
 *
 * and syncs it. Files that are there with the right size are kept.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDERS 100

/* Fills a buffer from a xorshift generator (Marsaglia 2003). */
static void
fill(uint64_t *words, size_t n_words, uint64_t *state)
{
    for (size_t k = 0; k < n_words; k++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        words[k] = *state;
    }
}

static int
write_file(const char *path, const char *bytes, size_t n_bytes)
{
    struct stat st;
    size_t done = 0;
    int fd;

    if (stat(path, &st) == 0 && st.st_size == (off_t)n_bytes)
        return 0;
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return -1;
    while (done < n_bytes) {
        ssize_t put = write(fd, bytes + done, n_bytes - done);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0) {
            close(fd);
            return -1;
        }
        done += (size_t)put;
    }
    return close(fd);
}

static int
make_folder(const char *path)
{
    return mkdir(path, 0755) < 0 && errno != EEXIST ? -1 : 0;
}

static int
make_all(const char *target, unsigned long count, size_t n_bytes, uint64_t *words)
{
    const size_t n_words = n_bytes / 8 + 1;
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    char path[1024];

    if (make_folder(target) < 0)
        return -1;
    for (unsigned k = 0; k < FOLDERS; k++) {
        snprintf(path, sizeof(path), "%s/c%02u", target, k);
        if (make_folder(path) < 0)
            return -1;
    }
    for (unsigned long k = 0; k < count; k++) {
        snprintf(path, sizeof(path), "%s/c%02lu/%06lu.bin", target, k * FOLDERS / count, k);
        fill(words, n_words, &state);
        if (write_file(path, (const char *)words, n_bytes) < 0)
            return -1;
    }
    sync();
    return 0;
}

int
main(int argc, char **argv)
{
    const unsigned long count = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
    const size_t n_bytes = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
    uint64_t *words;
    int rc;

    if (!count || !n_bytes || strlen(argv[1]) > 900) {
        fprintf(stderr, "usage: make_files DIR COUNT BYTES\n");
        return 2;
    }
    words = malloc(n_bytes + 16);
    if (!words) {
        perror("make_files");
        return 1;
    }
    rc = make_all(argv[1], count, n_bytes, words);
    if (rc < 0)
        perror(argv[1]);
    free(words);
    return rc < 0 ? 1 : 0;
}
