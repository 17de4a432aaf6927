/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a data set: what it is at, and what find.c does for open.c. */
#ifndef STI_FORMAT_OPEN_INTERNAL_H
#define STI_FORMAT_OPEN_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include <stoker/engine.h>

#include "format/dataset_internal.h"
#include "format/shards.h"
#include "format/tree.h"

struct sti_aio;

#define STI_OPENING_PLACES 2

/* What sti_dataset_open() is at. */
struct sti_opening {
    struct sti_aio *aio;
    const char *path;
    stk_dataset_opts opts; /* checked */
    const char *cache_dir;
    stk_error *err;
    struct sti_dataset *dataset; /* being filled */
    struct statx found;          /* of path */
    bool is_dir;
    bool is_tar;
    bool is_list; /* the path is a pattern for shards */
    char *name;   /* of the one file, or the pattern; NULL for folders; owned */
    struct sti_shards shards;
    char *places[STI_OPENING_PLACES]; /* where the index may be, the best first; owned */
    uint32_t n_places;
    struct sti_tree tree;
};

/* Finds what is at the path, opens the directory that extents are relative to, and names
 * the shards where it is known that there are some. Errors: as sti_dataset_open(). */
int
sti_opening_find(struct sti_opening *opening);

/* Names the shards of a data set that is_tar. Errors: as sti_shards_find() and
 * _list(). */
int
sti_opening_find_shards(struct sti_opening *opening);

/* Lists the places where the index may be. Errors: -ENOMEM. */
int
sti_opening_list_places(struct sti_opening *opening);

/* Looks at a path. Returns 0 or a negative code. */
int
sti_opening_stat(struct sti_aio *aio, const char *path, struct statx *ret_found);

int
sti_opening_no_memory(const struct sti_opening *opening);

#endif
