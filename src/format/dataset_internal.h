/* SPDX-License-Identifier: Apache-2.0 */
/* An open data set, as open.c or view.c makes it and dataset.c reads it. */
#ifndef STI_FORMAT_DATASET_INTERNAL_H
#define STI_FORMAT_DATASET_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "format/index.h"
#include "format/store.h"
#include "order/draws.h"

/* What makes a data set a view: which child each sample is of. Constant once made. */
struct sti_view {
    struct sti_dataset **children; /* the array is owned */
    uint32_t n;
    uint64_t *first_id;   /* n + 1 running sums; owned, as all below */
    uint32_t *first_file; /* where each child's files begin among the view's */
    uint64_t *ids;        /* subset of one child; NULL: those from first on */
    uint64_t first;
    uint64_t *first_draw;    /* mix; else NULL */
    struct sti_draws draws;  /* mix; points to the above */
    uint64_t identity_start; /* what the children's identities are hashed into */
};

/* Written by sti_dataset_open() or sti_view_...() only. Of a view, index has a head
 * alone. */
struct sti_dataset {
    struct sti_index index; /* points into image */
    struct sti_store_image image;
    const char *file_name; /* of the one file, in index; NULL otherwise */
    uint64_t file_bytes;
    int64_t file_mtime_ns;
    uint32_t n_files;
    char *shown;      /* the directory as it was given; owned */
    char *index_path; /* NULL: in memory only; owned */
    int dir_fd;       /* -1 until it is open */
    uint64_t identity;
    bool was_built;
    int save_code;         /* why the last place that was tried did not take the index, or 0 */
    struct sti_view *view; /* owned; NULL: not a view */
    uint32_t n_users;      /* views of it; atomic */
};

/* Frees a view's arrays and lets its children go. NULL is allowed. */
void
sti_view_free(struct sti_view *view);

#endif
