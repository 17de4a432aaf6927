/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the headers of many shards at once. */
#ifndef STI_FORMAT_TAR_SCAN_H
#define STI_FORMAT_TAR_SCAN_H

#include <stdbool.h>

#include "format/shard.h"
#include "format/shards.h"

struct sti_aio;

struct sti_tar_scan {
    struct sti_shard *shards; /* as many as there are names; owned */
    char **shown;             /* their paths for errors; owned */
    uint32_t n;
    bool is_fresh; /* one changed so recently that its time does not tell of a later change */
};

/*
 * Reads all headers. dir_fd: what the names are relative to, and shown its path. The scan
 * must be given to sti_tar_scan_fini() in any case. Errors, with the shard's path: as
 * sti_tar_next() and sti_shard_add(); -ENOENT, -EACCES, -EIO, -ENOMEM; STK_E_STALE one
 * became shorter meanwhile.
 */
int
sti_tar_scan(struct sti_tar_scan *scan, struct sti_aio *aio, int dir_fd, const char *shown,
             const struct sti_shards *names, stk_error *err);

/* All zero is allowed. */
void
sti_tar_scan_fini(struct sti_tar_scan *scan);

#endif
