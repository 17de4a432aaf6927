/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A main for a fuzz target that is built without a fuzzer: feeds it every file of the
 * folders named, in order of their names, so that what a fuzzer once found stays found.
 * Fails when there is no file at all: a corpus that got lost must not look like one that
 * passed.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fuzz.h"

/* What libFuzzer calls, defined by the target. */
static int
replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat about;
    int rc = -1;

    if (!file || fstat(fileno(file), &about) != 0) {
        fprintf(stderr, "replay: %s: %m\n", path);
        goto out;
    }
    /* Exactly as long as the input, so that a sanitizer sees a read behind it. */
    size_t n_bytes = (size_t)about.st_size;
    uint8_t *bytes = malloc(n_bytes ? n_bytes : 1);
    if (bytes && fread(bytes, 1, n_bytes, file) == n_bytes) {
        printf("replay: %s, %zu bytes\n", path, n_bytes);
        (void)fflush(stdout); /* so that a crash has its name above it */
        rc = LLVMFuzzerTestOneInput(bytes, n_bytes);
    } else {
        fprintf(stderr, "replay: %s cannot be read\n", path);
    }
    free(bytes);
out:
    if (file)
        (void)fclose(file); /* it was only read */
    return rc;
}

/* Replays a folder's files; returns how many, or -1. */
static int
replay_folder(const char *path)
{
    struct dirent **entries;
    int n_files = 0;
    int n_entries = scandir(path, &entries, NULL, alphasort);

    if (n_entries < 0) {
        fprintf(stderr, "replay: %s: %m\n", path);
        return -1;
    }
    for (int at = 0; at < n_entries; at++) {
        char file[2048];

        if (entries[at]->d_name[0] != '.' && n_files >= 0) {
            int length = snprintf(file, sizeof(file), "%s/%s", path, entries[at]->d_name);
            bool is_good = length < (int)sizeof(file) && replay_file(file) == 0;
            n_files = is_good ? n_files + 1 : -1;
        }
        free(entries[at]);
    }
    free(entries);
    return n_files;
}

int
main(int argc, char **argv)
{
    int n_files = 0;

    for (int at = 1; at < argc; at++) {
        int n = replay_folder(argv[at]);

        if (n < 0)
            return 1;
        n_files += n;
    }
    if (n_files == 0) {
        fprintf(stderr, "usage: %s FOLDER ... (with at least one file in them)\n", argv[0]);
        return 1;
    }
    return 0;
}
