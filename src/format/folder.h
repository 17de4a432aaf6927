/* SPDX-License-Identifier: Apache-2.0 */
/* Class folders and plain folders: a tree becomes an index. */
#ifndef STI_FORMAT_FOLDER_H
#define STI_FORMAT_FOLDER_H

#include <stoker/engine.h>

#include "format/index.h"
#include "format/tree.h"

struct sti_aio;

/*
 * Indexes the folder at tree->root_fd. opts: checked; its format may be AUTO. tree:
 * root_fd and shown are set; filled, sorted so that directory i is source i, and kept by
 * the caller, who gives it to sti_tree_fini(). writer: sealed on success, given to
 * sti_index_writer_fini() in any case. Errors: as sti_tree_scan() and sti_tree_stat(),
 * -EINVAL no sample, or a class without one, -E2BIG.
 */
int
sti_folder_index(struct sti_index_writer *writer, struct sti_tree *tree, struct sti_aio *aio,
                 const stk_dataset_opts *opts, stk_error *err);

#endif
