/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of stoker.Checkpoints and stoker.View share.
 *
 * View -> Checkpoints -> Engine: each keeps the next alive, as with data sets and
 * loaders, and closing waits for its turn.
 */
#ifndef PYTHON_MODULE_CHECKPOINT_H
#define PYTHON_MODULE_CHECKPOINT_H

#include <stoker/checkpoint.h>

#include "binding.h"

struct stkpy_ckpt {
    PyObject_HEAD struct stkpy_engine *engine;
    stk_ckpt *ckpt; /* NULL: not opened, or closed */
    unsigned long forks;
    PyObject *held;   /* a list: views of what may not be captured yet */
    uint32_t n_users; /* views, and threads in a call that does not hold the lock */
    uint32_t outstanding;
    bool is_saving;
    bool is_closing;
};

/* 0, or -1 with an error set where it is closed or another process's. */
int
stkpy_ckpt_check(const struct stkpy_ckpt *self);

/* A user has gone; closes the checkpoints if they wait for that. */
void
stkpy_ckpt_put(struct stkpy_ckpt *self);

/* A save's tensors as the library takes them, and what keeps their memory. */
struct stkpy_tensors {
    stk_tensor *tensors;
    stk_blob *blobs;
    stk_pair *metadata;
    uint64_t *shapes;
    uint32_t n_tensors;
    uint32_t n_blobs;
    uint32_t n_metadata;
    PyObject *keep;   /* a list, for the call */
    PyObject *stable; /* a list of views, until they are captured */
};

/*
 * Fills tensors from mappings: names to buffers or to (dtype, shape, buffer), names to
 * bytes, strings to strings; the latter two may be None. stable: a truth, or a container
 * of names. Returns 0, or -1 with an error set. Ended by stkpy_tensors_fini() either way.
 */
int
stkpy_tensors_init(struct stkpy_tensors *self, PyObject *tensors, PyObject *blobs,
                   PyObject *metadata, PyObject *stable);
void
stkpy_tensors_fini(struct stkpy_tensors *self);

/* Opens a checkpoint for reading; STK_LATEST for the newest. Returns owned. */
PyObject *
stkpy_view_new(struct stkpy_ckpt *ckpt, uint64_t step);

#endif
