/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints, exported: argument checks and option versions. */
#include <stoker/checkpoint.h>

#include <errno.h>
#include <stddef.h>

#include "api/handles.h"
#include "api/opts.h"
#include "base/error.h"
#include "base/mem.h"

static const struct sti_opts_type ckpt_opts_type = {"stk_ckpt_opts", sizeof(stk_ckpt_opts),
                                                    offsetof(stk_ckpt_opts, alone)};
static const struct sti_opts_type save_type = {"stk_save", sizeof(stk_save),
                                               offsetof(stk_save, holdings)};

int
stk_ckpt_open(stk_ckpt **ret_ckpt, stk_engine *engine, const char *directory,
              const stk_ckpt_opts *opts, stk_error *err)
{
    stk_ckpt_opts own = {0};

    if (!engine)
        return sti_error_set(err, -EINVAL, "engine is required");
    int rc = sti_opts_take(&own, &ckpt_opts_type, opts, err);
    bool is_whole = ret_ckpt && directory && directory[0] != '\0';
    if (rc == 0 && !is_whole)
        rc = sti_error_set(err, -EINVAL, "ret_ckpt and directory are required");
    if (rc < 0 || !is_whole)
        return sti_checkpointer_decline(engine->engine, rc, err);
    stk_ckpt *handle = sti_mem_new(1, sizeof(*handle));
    if (!handle)
        return sti_error_set(err, -ENOMEM, "no memory for the checkpointer");
    rc = sti_checkpointer_open(&handle->checkpointer, engine->engine, directory, &own, err);
    if (rc < 0) {
        sti_mem_free(handle);
        return rc;
    }
    *ret_ckpt = handle;
    return 0;
}

void
stk_ckpt_close(stk_ckpt *ckpt)
{
    if (!ckpt)
        return;
    sti_checkpointer_close(ckpt->checkpointer);
    sti_mem_free(ckpt);
}

int
stk_ckpt_save(stk_ckpt *ckpt, const stk_save *save, stk_error *err)
{
    unsigned char state[STK_LOADER_STATE_SIZE];
    size_t n_state = 0;
    stk_save own = {0};

    if (!ckpt)
        return sti_error_set(err, -EINVAL, "ckpt is required");
    int rc = save ? sti_opts_take(&own, &save_type, save, err)
                  : sti_error_set(err, -EINVAL, "save is required");
    if (rc < 0)
        return sti_checkpointer_refuse(ckpt->checkpointer, 0, rc, err);
    if ((own.n_tensors > 0 && !own.tensors) || (own.n_blobs > 0 && !own.blobs) ||
        (own.n_metadata > 0 && !own.metadata))
        rc = sti_error_set(err, -EINVAL, "tensors, blobs or metadata are counted but not given");
    if (rc == 0 && own.loader) {
        rc = sti_loader_save_state(own.loader->loader, state, &n_state);
        if (rc < 0)
            (void)sti_error_set(err, rc, "the loader's position cannot be saved: %s",
                                sti_error_text(rc));
    }
    if (rc < 0)
        return sti_checkpointer_refuse(ckpt->checkpointer, own.step, rc, err);
    return sti_checkpointer_save(ckpt->checkpointer, &own, state, n_state, err);
}

int
stk_ckpt_fence(stk_ckpt *ckpt, stk_error *err)
{
    return ckpt ? sti_checkpointer_fence(ckpt->checkpointer, err)
                : sti_error_set(err, -EINVAL, "ckpt is required");
}

int
stk_ckpt_fence_tensor(stk_ckpt *ckpt, uint32_t tensor_idx, stk_error *err)
{
    return ckpt ? sti_checkpointer_fence_tensor(ckpt->checkpointer, tensor_idx, err)
                : sti_error_set(err, -EINVAL, "ckpt is required");
}

int
stk_ckpt_wait(stk_ckpt *ckpt, stk_level level, uint64_t timeout_ns, stk_error *err)
{
    return ckpt ? sti_checkpointer_wait(ckpt->checkpointer, level, timeout_ns, err)
                : sti_error_set(err, -EINVAL, "ckpt is required");
}

int
stk_ckpt_get_status(stk_ckpt *ckpt, stk_ckpt_status *status)
{
    if (!ckpt || !status || status->size != sizeof(*status))
        return -EINVAL;
    sti_checkpointer_status(ckpt->checkpointer, status);
    return 0;
}

int
stk_ckpt_latest(stk_ckpt *ckpt, uint64_t *ret_step, stk_error *err)
{
    if (!ckpt || !ret_step)
        return sti_error_set(err, -EINVAL, "ckpt and ret_step are required");
    return sti_checkpointer_latest(ckpt->checkpointer, ret_step, err);
}

int
stk_ckpt_list(stk_ckpt *ckpt, stk_ckpt_info *out, uint32_t capacity, uint32_t *ret_total,
              stk_error *err)
{
    if (!ckpt || !ret_total || (capacity > 0 && !out))
        return sti_error_set(err, -EINVAL, "ckpt, out and ret_total are required");
    return sti_checkpointer_list(ckpt->checkpointer, out, capacity, ret_total, err);
}

int
stk_ckpt_parts(stk_ckpt *ckpt, uint64_t step, uint32_t flags, stk_ckpt_part *out, uint32_t capacity,
               uint32_t *ret_total, stk_error *err)
{
    if (!ckpt || !ret_total || (capacity > 0 && !out) || (flags & ~STK_PARTS_VERIFY))
        return sti_error_set(err, -EINVAL,
                             "ckpt, out and ret_total are required, and flags that are known");
    return sti_checkpointer_parts(ckpt->checkpointer, step, (flags & STK_PARTS_VERIFY) != 0,
                                  (struct sti_part_list){out, capacity, ret_total}, err);
}

int
stk_ckpt_prune(stk_ckpt *ckpt, uint32_t keep, uint32_t flags, uint32_t *ret_removed, stk_error *err)
{
    if (!ckpt || (flags & ~STK_PRUNE_ORPHANS))
        return sti_error_set(err, -EINVAL, "ckpt is required, and flags that are known");
    return sti_checkpointer_prune(ckpt->checkpointer, keep, (flags & STK_PRUNE_ORPHANS) != 0,
                                  ret_removed, err);
}
