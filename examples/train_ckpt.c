/* SPDX-License-Identifier: Apache-2.0 */
#include "train_ckpt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "train_util.h"

/* All of it belongs to the optimizer: nothing else changes it, so nothing is copied
 * before save returns. */
static void
name_tensors(struct train_ckpt *saved, struct mlp *net)
{
    struct mlp_array arrays[MLP_ARRAYS];

    mlp_get_arrays(net, arrays);
    for (uint32_t k = 0; k < MLP_ARRAYS; k++) {
        saved->shapes[k][0] = arrays[k].rows;
        saved->shapes[k][1] = arrays[k].columns;
        saved->tensors[k] = (stk_tensor){.name = arrays[k].name,
                                         .dtype = "F32",
                                         .shape = saved->shapes[k],
                                         .dims = 2,
                                         .data = arrays[k].values,
                                         .flags = STK_TENSOR_STABLE};
    }
}

static int
load(struct train_ckpt *saved, stk_view *view, struct mlp *net, stk_error *err)
{
    struct mlp_array arrays[MLP_ARRAYS];
    stk_load loads[MLP_ARRAYS];
    stk_view_info info = {STK_VIEW_INFO_INIT};
    int rc;

    mlp_get_arrays(net, arrays);
    for (uint32_t k = 0; k < MLP_ARRAYS; k++)
        loads[k] = (stk_load){.name = arrays[k].name,
                              .dst = arrays[k].values,
                              .n_bytes = arrays[k].rows * arrays[k].columns * sizeof(float)};
    rc = stk_view_get_info(view, &info);
    if (rc == 0)
        rc = stk_view_load(view, loads, MLP_ARRAYS, err);
    if (rc == 0)
        rc = stk_view_load_blob(view, "loader", saved->state, sizeof(saved->state),
                                &saved->state_bytes, err);
    saved->step = info.step;
    saved->first_step = info.step;
    return rc;
}

int
train_ckpt_open(struct train_ckpt *saved, stk_engine *engine, const char *directory,
                struct mlp *net)
{
    stk_view *view;
    stk_error err = {0};
    int rc = stk_ckpt_open(&saved->ckpt, engine, directory, NULL, &err);

    if (rc < 0)
        return complain("cannot open the checkpoints", rc, &err);
    name_tensors(saved, net);
    rc = stk_view_open(&view, saved->ckpt, STK_LATEST, &err);
    if (rc == -ENOENT)
        return 0; /* the first run */
    if (rc > 0)
        fprintf(stderr, "train_fashion: %d newer checkpoints are damaged: %s\n", rc, err.message);
    if (rc >= 0) {
        rc = load(saved, view, net, &err);
        stk_view_close(view);
    }
    return rc < 0 ? complain("cannot load the newest checkpoint", rc, &err) : 0;
}

/* Adds up how long checkpoints took: at most one is under way, so none is missed. */
static void
note_durable(struct train_ckpt *saved)
{
    stk_ckpt_status status = {STK_CKPT_STATUS_INIT};

    (void)stk_ckpt_get_status(saved->ckpt, &status); /* the size is right */
    if (status.durable == saved->durable)
        return;
    saved->durable = status.durable;
    saved->bytes = status.bytes / status.durable;
    saved->durable_seconds += (double)status.durable_ns * 1e-9;
}

int
train_ckpt_fence(struct train_ckpt *saved)
{
    const double began = now_seconds();
    stk_error err = {0};
    int rc = saved->ckpt ? stk_ckpt_fence(saved->ckpt, &err) : 0;

    saved->wait_seconds += now_seconds() - began;
    return rc < 0 ? complain("a save failed", rc, &err) : 0;
}

int
train_ckpt_save(struct train_ckpt *saved, stk_loader *loader)
{
    const double began = now_seconds();
    stk_error err = {0};

    if (!saved->ckpt)
        return 0;
    /* Waits for the one before, should it not be durable yet. */
    int rc =
        stk_ckpt_save(saved->ckpt,
                      &(stk_save){STK_SAVE_INIT, .step = ++saved->step, .tensors = saved->tensors,
                                  .n_tensors = MLP_ARRAYS, .loader = loader},
                      &err);
    note_durable(saved);
    saved->wait_seconds += now_seconds() - began;
    return rc < 0 ? complain("cannot save", rc, &err) : 0;
}

int
train_ckpt_finish(struct train_ckpt *saved, double seconds)
{
    const double began = now_seconds();
    stk_error err = {0};

    if (!saved->ckpt)
        return 0;
    int rc = stk_ckpt_wait(saved->ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err);
    note_durable(saved);
    saved->wait_seconds += now_seconds() - began;
    if (rc < 0)
        return complain("a save failed", rc, &err);
    printf("checkpoints: %" PRIu64 " of %.2f MB, all durable; training waited for them %.2f s"
           " of %.2f\n",
           saved->durable, (double)saved->bytes * 1e-6, saved->wait_seconds, seconds);
    return 0;
}

void
train_ckpt_close(struct train_ckpt *saved)
{
    stk_ckpt_close(saved->ckpt);
}
