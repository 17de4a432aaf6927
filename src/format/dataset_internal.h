/* SPDX-License-Identifier: Apache-2.0 */
/* An open data set, as open.c makes it and dataset.c reads it. */
#ifndef STI_FORMAT_DATASET_INTERNAL_H
#define STI_FORMAT_DATASET_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "format/index.h"
#include "format/store.h"

/* Written by sti_dataset_open() only. */
struct sti_dataset {
    struct sti_index index; /* points into image */
    struct sti_store_image image;
    const char *file_name; /* of the one file, in index; NULL for folders */
    uint64_t file_bytes;
    char *shown;      /* the directory as it was given; owned */
    char *index_path; /* NULL: in memory only; owned */
    int dir_fd;       /* -1 until it is open */
    bool was_built;
};

#endif
