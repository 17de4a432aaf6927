/* SPDX-License-Identifier: Apache-2.0 */
/* Whether an index still describes its data set. */
#ifndef STI_FORMAT_FRESH_H
#define STI_FORMAT_FRESH_H

#include <stoker/types.h>

#include "format/index.h"

struct sti_aio;

/* Where the sources of an index are. All borrowed. */
struct sti_fresh_place {
    int dir_fd;
    const char *shown;       /* what dir_fd is called, for errors */
    const char *labels_path; /* or NULL */
    const char *index_path;  /* the index's own file */
};

/*
 * Looks at every source, many at a time, and compares. Errors: STK_E_STALE, err says what
 * has changed from what to what; -EACCES, -EIO, -ENOMEM.
 */
int
sti_fresh_check(const struct sti_index *index, struct sti_aio *aio,
                const struct sti_fresh_place *place, stk_error *err);

/*
 * For an index that lies in one of its own directories: compares the names in there with
 * those that were indexed and, if they are the same, notes the directory's time in the
 * index. Does nothing for other indexes. Errors: STK_E_STALE, -EACCES, -EIO, -ENOMEM.
 */
int
sti_fresh_settle(const struct sti_index *index, struct sti_aio *aio,
                 const struct sti_fresh_place *place, stk_error *err);

#endif
