/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of data sets share: scratch directories, files in them, an aio to open
 * with. */
#ifndef TESTS_FORMAT_UTIL_H
#define TESTS_FORMAT_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stoker/engine.h>

struct sti_dataset;

/* A test's surroundings: a directory of its own under /tmp, and an aio. */
struct scratch {
    char path[64];
    struct sti_pool *pool;
    struct sti_aio *aio;
};

/* Fails the test on any error. method: as sti_aio_opts; io_threads 1 makes sync
 * serial. */
void
scratch_open(struct scratch *scratch, const char *method, uint32_t io_threads);

/* Removes everything. */
void
scratch_close(struct scratch *scratch);

/* Whether this machine and build have io_uring. */
bool
scratch_has_uring(void);

/*
 * Child processes: the test's program once more, because threads do not survive a fork. A
 * child runs the function of this name with an aio of its own in the directory of its
 * parent.
 */
struct child {
    const char *name;
    bool is_nobody; /* gives up being root first */
    void (*run)(const struct scratch *own);
};

/* For main(): where this process is a child, runs it and returns its exit status (77
 * where root cannot be given up); else -1. children ends with a NULL name. */
int
child_main(int argc, char **argv, const struct child *children);

/* Starts a child and, with wait_child(), waits for it. Returns its exit status. */
int
start_child(const struct scratch *scratch, const char *name);
int
wait_child(int pid);

/* The path of something in the scratch directory; one of eight buffers, used in turn. */
const char *
scratch_path(const struct scratch *scratch, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes a file, with the directories above it. */
void
put_file(const char *path, const void *bytes, size_t n_bytes);

/* The same, of n_bytes of some pattern. */
void
put_blob(const char *path, size_t n_bytes);

/* Opens, expecting success or a code. */
struct sti_dataset *
open_good(const struct scratch *scratch, const char *path, const stk_dataset_opts *opts);
void
open_bad(const struct scratch *scratch, const char *path, const stk_dataset_opts *opts, int code,
         const char *words);

/* Compares the relative path of a sample. */
void
check_sample(const struct sti_dataset *dataset, uint64_t sample, const char *path, int64_t label);

#endif
