/* SPDX-License-Identifier: Apache-2.0 */
/* Which files a data set of shards is: one, those of a directory, a list in braces, a
 * pattern. */
#ifndef STI_FORMAT_SHARDS_H
#define STI_FORMAT_SHARDS_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/types.h>

#include "format/index.h"

struct sti_aio;

/* Shards of a data set at most. */
#define STI_SHARDS_MAX (UINT32_C(1) << 20)

struct sti_shards {
    char **names; /* relative to a directory, in order; owned, as each of them */
    uint32_t n;
    uint32_t room;
};

/* Frees the names; all zero is allowed. */
void
sti_shards_fini(struct sti_shards *shards);

/* Adds a copy of a name. Errors: -ENOMEM, -E2BIG. */
int
sti_shards_add(struct sti_shards *shards, const char *name);

/* Whether a path has braces or wildcards. */
bool
sti_shards_is_pattern(const char *path);

/* Where the part of a pattern begins that is behind its fixed directory. */
const char *
sti_shards_pattern_part(const char *pattern);

/*
 * Expands the braces of a pattern: {a,b} lists, {00..12} numbers of the width of the
 * wider end, upwards or downwards; they may be nested. Pure. Errors: -EINVAL (a brace
 * without its partner, a name that leaves the directory), -E2BIG, -ENOMEM.
 */
int
sti_shards_expand(struct sti_shards *shards, const char *pattern, stk_error *err);

/*
 * The shards that a pattern stands for: braces first, then the wildcards ?, * and [...]
 * in the last part of each name, those in the order of their bytes. dir_fd, shown: what
 * sti_shards_pattern_part() is relative to. Errors: as expand; -ENOENT nothing has such a
 * name, -EINVAL a name twice, -EACCES, -EIO.
 */
int
sti_shards_find(struct sti_shards *shards, struct sti_aio *aio, int dir_fd, const char *shown,
                const char *pattern, stk_error *err);

/*
 * The files of a directory that end in .tar, in the order of their bytes. ret_is_alone
 * (or NULL): there are some, and neither a directory nor an image beside them. Errors:
 * -EACCES, -EIO, -ENOMEM, -E2BIG.
 */
int
sti_shards_list(struct sti_shards *shards, struct sti_aio *aio, int dir_fd, const char *shown,
                bool *ret_is_alone, stk_error *err);

/* Whether an index was made from these shards. Errors: STK_E_STALE, naming what is new or
 * gone. */
int
sti_shards_compare(const struct sti_shards *shards, const struct sti_index *index,
                   const char *shown, stk_error *err);

#endif
