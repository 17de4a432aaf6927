/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing checkpoints. A machine that says which operation comes next and is told its
 * result, so that the same code runs on the loop after a save and on a caller's own
 * thread.
 */
#ifndef STI_CKPT_RETAIN_H
#define STI_CKPT_RETAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "ckpt/manifest.h"
#include "ckpt/names.h"
#include "io/aio.h"

enum sti_retain_state {
    STI_RETAIN_LIST,
    STI_RETAIN_SIZE,
    STI_RETAIN_READ,
    STI_RETAIN_LOOK,
    STI_RETAIN_RENAME,
    STI_RETAIN_SYNC,
    STI_RETAIN_PART,
    STI_RETAIN_PART_DIR,
    STI_RETAIN_MANIFEST,
    STI_RETAIN_MANIFEST_DIR,
    STI_RETAIN_OVER,
};

/* A checkpoint found: committed, or gone already but not all of it. */
struct sti_retain_found {
    uint64_t step;
    bool is_gone;
    char id[STI_ID_SIZE]; /* gone ones */
};

#define STI_RETAIN_BUSY_MAX 20u

/* Set dir_fd, keep, protect_step, pinned_step, is_of_node and what is busy, all else zero. */
struct sti_retain {
    int dir_fd;            /* the checkpoint directory */
    uint32_t keep;         /* at least 1 */
    uint64_t protect_step; /* never removed: the one just made durable; UINT64_MAX: none */
    uint64_t pinned_step;  /* nor this, the newest that another node has, too; UINT64_MAX: none */

    bool is_of_node; /* parts that are not here are on other nodes */

    /* Neither removed nor counted: somebody reads them. */
    uint64_t busy_steps[STI_RETAIN_BUSY_MAX];
    uint32_t n_busy;

    enum sti_retain_state state;
    int result; /* 0, or what ended the work before all was done */
    uint32_t n_removed;
    uint32_t n_kept; /* whole ones, newer than what is looked at */
    struct sti_retain_found *found;
    uint32_t n_found;
    uint32_t capacity;
    uint32_t at; /* in found */
    uint32_t part;
    struct sti_manifest manifest;
    struct statx *statx;
    char *bytes;
    uint64_t n_bytes;
    char name[STI_NAME_SIZE]; /* of the directory that is looked at, now */
    char path[2048];
    char path2[STI_NAME_SIZE];
};

/*
 * Takes the result of the operation before (ignored at the first call) and prepares the
 * next one (all but done and context). False when there is none: result then says how it
 * ended.
 */
bool
sti_retain_next(struct sti_retain *retain, struct sti_aio_op *op);

/* Frees what it holds; it may be used again. */
void
sti_retain_fini(struct sti_retain *retain);

#endif
