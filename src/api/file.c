/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are written whole, exported: argument checks. */
#include <stoker/file.h>

#include <errno.h>

#include "api/handles.h"
#include "base/error.h"
#include "base/mem.h"

int
stk_file_create(stk_file **ret_file, stk_engine *engine, const char *path, stk_error *err)
{
    if (!ret_file || !engine || !path || path[0] == '\0')
        return sti_error_set(err, -EINVAL, "ret_file, engine and path are required");
    stk_file *file = sti_mem_new(1, sizeof(*file));
    if (!file)
        return sti_error_set(err, -ENOMEM, "no memory for a file");
    int rc = sti_out_open(&file->out, sti_engine_pool(engine->engine), path,
                          sti_engine_is_buffered(engine->engine), err);
    if (rc < 0) {
        sti_mem_free(file);
        return rc;
    }
    *ret_file = file;
    return 0;
}

int
stk_file_write(stk_file *file, const void *bytes, uint64_t n_bytes, stk_error *err)
{
    if (!file || (n_bytes > 0 && !bytes))
        return sti_error_set(err, -EINVAL, "file and bytes are required");
    return sti_out_write(file->out, bytes, n_bytes, err);
}

int
stk_file_commit(stk_file *file, stk_error *err)
{
    return file ? sti_out_commit(file->out, err) : sti_error_set(err, -EINVAL, "file is required");
}

void
stk_file_close(stk_file *file)
{
    if (!file)
        return;
    sti_out_close(file->out);
    sti_mem_free(file);
}
