/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of loaders share: data sets whose bytes are known, engines of every
 * method, and a reader that compares each batch with the order and the bytes it must
 * have.
 */
#ifndef TESTS_LOADER_UTIL_H
#define TESTS_LOADER_UTIL_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/stoker.h>

/* Data sets: kinds differ in how their samples are read. */
enum set_kind {
    SET_FILES,   /* small files of one size */
    SET_SIZES,   /* files of many sizes, empty and large ones among them */
    SET_BIG,     /* files of many sizes, all read in place */
    SET_RECORDS, /* records of 100 bytes behind an odd header, many to a read */
    SET_ROWS,    /* records that are read in place, at unaligned offsets */
    SET_WINDOWS, /* overlapping windows over one file */
    SET_KINDS
};

struct set {
    char path[64]; /* a directory of its own under /tmp, removed at the end */
    char data_path[96];
    enum set_kind kind;
    uint64_t n;
    uint64_t bytes; /* sum of the samples */
    unsigned char *contents;
    uint64_t *offsets; /* of each sample in contents */
    uint64_t *lengths;
    stk_dataset_opts opts;
};

/* Makes a data set of n samples; nothing of it depends on when or where. */
void
set_make(struct set *set, enum set_kind kind, uint64_t n);
void
set_remove(struct set *set);

/* The path of a sample's file (files only); one buffer. */
const char *
set_file(const struct set *set, uint64_t sample);

/* Writes a whole file. */
void
write_file(const char *path, const void *bytes, uint64_t n_bytes);

/* The methods to test, from STOKER_TEST_METHODS (default: all that this machine has). */
const char *const *
methods(void);

/* Opens, or fails the test with the error's words. */
stk_engine *
engine_open(const char *method, const char *tiers);
stk_engine *
engine_open_by(const stk_engine_opts *opts);
stk_dataset *
dataset_open(stk_engine *engine, const struct set *set);
stk_loader *
loader_open(stk_engine *engine, stk_dataset *dataset, const stk_loader_opts *opts);

/* Opens a loader expecting a code and words in its message. */
void
loader_refused(stk_engine *engine, stk_dataset *dataset, const stk_loader_opts *opts, int code,
               const char *words);

/* The ids of a rank's epoch. n is filled in. Returns owned (free()). */
uint64_t *
expected_ids(const struct set *set, const stk_order_opts *order, uint64_t epoch,
             uint64_t *ret_count);

/* Whether a batch's samples have the bytes and labels they must have. */
void
check_bytes(const struct set *set, const stk_batch *batch);

/* What is to be read, from where to where. */
struct course {
    const struct set *set;
    const stk_loader_opts *opts;
    uint64_t epoch;
    uint64_t epoch_step;
    uint64_t end_epoch;
    uint64_t most_batches; /* 0: no limit */
};

/* Reads and compares every batch of a course, releasing each at once; returns how
 * many. */
uint64_t
follow(stk_loader *loader, const struct course *course);

/* Statistics, checked. epoch UINT64_MAX: the run. */
stk_loader_stats
loader_stats(stk_loader *loader, uint64_t epoch);
stk_engine_stats
engine_stats(stk_engine *engine);

/* A sequence of numbers that is the same in every run. */
uint64_t
draw(uint64_t *state);

/* Ends a test that hangs. For setup functions. */
int
watchdog(void **state);

#endif
