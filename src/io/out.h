/* SPDX-License-Identifier: Apache-2.0 */
/* A file that is written from beginning to end, several direct writes at a time, and takes
 * its name when all of it is durable. stoker/file.h says what it promises. */
#ifndef STI_IO_OUT_H
#define STI_IO_OUT_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/types.h>

#include "base/pool.h"

struct sti_out;

/* pool: borrowed; its I/O lane writes. is_buffered: never direct. ret_out: returns owned.
 * Any thread. */
int
sti_out_open(struct sti_out **ret_out, struct sti_pool *pool, const char *path, bool is_buffered,
             stk_error *err);

/* One thread at a time. */
int
sti_out_write(struct sti_out *out, const void *bytes, uint64_t n_bytes, stk_error *err);
int
sti_out_commit(struct sti_out *out, stk_error *err);

/* Removes what was not committed. NULL is allowed. */
void
sti_out_close(struct sti_out *out);

#endif
