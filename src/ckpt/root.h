/* SPDX-License-Identifier: Apache-2.0 */
/* A root: a directory on one device, and how files in it may be written. */
#ifndef STI_CKPT_ROOT_H
#define STI_CKPT_ROOT_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/types.h>

#include "io/aio.h"
#include "io/dio.h"

struct sti_budget;

struct sti_root {
    char *path; /* as the manifest names it: absolute, or "." for the directory itself */
    int dir_fd; /* -1: not open */
    struct sti_dio dio;
    uint64_t device;           /* major and minor of the file system */
    double bytes_per_s;        /* measured over the saves so far; 1 before. Its saver's lock */
    struct sti_budget *budget; /* NULL: nobody else uses the device */
};

/* What opening a root needs besides it. */
struct sti_root_open {
    struct sti_aio *aio;
    uint64_t session;  /* makes the name of the trial file unique */
    bool is_buffered;  /* never direct */
    bool is_read_only; /* no trial */
    void *block;       /* 64 KiB, aligned to 4 KiB, for the trial */
};

/*
 * Opens a root at where (made if it is not there; its parent must be). Tries a direct
 * write unless is_read_only. root->path is taken from the caller. Errors: -ENOENT,
 * -EACCES, -EROFS, -ENOTDIR, -ENOSPC and others of the file system; err names the path.
 */
int
sti_root_open(struct sti_root *root, const char *where, const struct sti_root_open *how,
              stk_error *err);

/* A root that was never opened has dir_fd -1. Frees the path. */
void
sti_root_close(struct sti_root *root);

#endif
