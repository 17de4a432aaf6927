/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One file, written from its beginning to its end at the speed of the device, and there
 * only when all of it is: for whoever has a format of their own and wants a checkpoint's
 * way of writing.
 *
 *     stk_file_create(&file, engine, "/run1/model.pt", &err);
 *     stk_file_write(file, bytes, n_bytes, &err);       as often as there is something
 *     stk_file_commit(file, &err);                      it is there, and survives a power cut
 *     stk_file_close(file);
 *
 * Until the commit the bytes are in a file beside it, ".stoker-ID.tmp", which a close
 * without a commit removes; a process that is killed leaves it.
 */
#ifndef STOKER_FILE_H
#define STOKER_FILE_H

#include <stoker/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stk_file stk_file;

/*
 * Begins a file. What is there under that name stays until the commit; it must be a
 * regular file. The new one has the mode of new files. ret_file: returns owned, closed
 * with stk_file_close() before its engine. Takes 32 MiB of memory as they are written.
 * Errors, with the path: -EINVAL what is there is no regular file, -ENOENT, -EACCES,
 * -EROFS, -ENOSPC and what else making a file can give; -ENOMEM. Any thread. Blocks.
 */
STK_API int
stk_file_create(stk_file **ret_file, stk_engine *engine, const char *path, stk_error *err);

/*
 * Appends bytes, which are copied. Waits while as much as the device takes at a time is
 * under way. Errors: that of an earlier write, as often as it is asked: -ENOSPC, -EIO ...;
 * -EINVAL after the commit. One thread at a time.
 */
STK_API int
stk_file_write(stk_file *file, const void *bytes, uint64_t n_bytes, stk_error *err);

/*
 * Makes the file durable, then gives it its name in one step, durably too. After an error
 * of writing nothing has changed under that name. If only the last step fails, making the
 * name durable, the file is there and may be the old one after a power cut. Errors: as
 * stk_file_write(). One thread at a time. Blocks.
 */
STK_API int
stk_file_commit(stk_file *file, stk_error *err);

/* Ends a file; one without a commit leaves nothing behind. NULL is allowed. Waits for
 * writes under way. */
STK_API void
stk_file_close(stk_file *file);

#ifdef __cplusplus
}
#endif

#endif
