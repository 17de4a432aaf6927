/* SPDX-License-Identifier: Apache-2.0 */
/* Data sets that are one file: records, arrays, windows over tokens. */
#ifndef STI_FORMAT_FILE_H
#define STI_FORMAT_FILE_H

#include <stdint.h>

#include <stoker/engine.h>

#include "format/index.h"

struct sti_aio;

struct sti_file {
    int dir_fd;
    const char *name;  /* in dir_fd */
    const char *shown; /* its path, for errors */
    uint64_t n_bytes;
    int64_t mtime_ns;
};

/*
 * Indexes a file. opts: checked; its format may be AUTO. writer: sealed on success, given
 * to sti_index_writer_fini() in any case. Errors: -EINVAL (not of its format, a
 * remainder, empty, a window longer than the file, labels that do not fit), -E2BIG,
 * -EACCES, -ENOENT, -ENOMEM, -EIO.
 */
int
sti_file_index(struct sti_index_writer *writer, struct sti_aio *aio, const struct sti_file *file,
               const stk_dataset_opts *opts, stk_error *err);

/* Size and time of the labels file. Errors: -ENOENT, -EACCES, -EINVAL no regular file. */
int
sti_file_stat_labels(struct sti_aio *aio, const char *path, struct sti_file *ret_file,
                     stk_error *err);

#endif
