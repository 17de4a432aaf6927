/* SPDX-License-Identifier: Apache-2.0 */
/* Tar shards become an index. */
#ifndef STI_FORMAT_TAR_INDEX_H
#define STI_FORMAT_TAR_INDEX_H

#include <stoker/engine.h>

#include "format/index.h"
#include "format/shards.h"

struct sti_aio;

/* Where shards are. All borrowed. */
struct sti_tar_place {
    int dir_fd;
    const char *shown; /* what dir_fd is called, for errors */
    const struct sti_shards *shards;
};

/*
 * Indexes shards: reads all their headers. opts: checked; its format may be AUTO. writer:
 * sealed on success, given to sti_index_writer_fini() in any case. Errors: as
 * sti_tar_scan(); -EINVAL no sample, or one without a field of opts; -E2BIG.
 */
int
sti_tar_index(struct sti_index_writer *writer, struct sti_aio *aio,
              const struct sti_tar_place *place, const stk_dataset_opts *opts, stk_error *err);

#endif
