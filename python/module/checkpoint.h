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
    bool is_of_ranks; /* each call of save() is a vote */
    bool is_saving;
    bool is_closing;
};

/* 0, or -1 with an error set where it is closed or another process's. */
int
stkpy_ckpt_check(const struct stkpy_ckpt *self);

/* A user has gone; closes the checkpoints if they wait for that. */
void
stkpy_ckpt_put(struct stkpy_ckpt *self);

/* Tensors as the library takes them, and what keeps their names and memory. */
struct stkpy_tensors {
    PyObject_HEAD stk_tensor *tensors;
    uint64_t *shapes;
    uint32_t n_tensors;
    PyObject *keep;   /* a list: names, and views of what is copied */
    PyObject *stable; /* a list of views of what is not */
};

/*
 * From a mapping of names to buffers or to (dtype, shape, buffer). stable: a truth, or a
 * container of names. Returns owned, or NULL with an error set.
 */
struct stkpy_tensors *
stkpy_tensors_new(PyObject *mapping, PyObject *stable);

/* A save as the library takes it, and what keeps its memory. */
struct stkpy_save {
    stk_tensor *tensors;
    stk_blob *blobs;
    stk_pair *metadata;
    stk_holding *holdings; /* NULL, or one for each tensor */
    uint32_t n_tensors;
    uint32_t n_blobs;
    uint32_t n_metadata;
    PyObject *keep;   /* a list, for the call */
    PyObject *stable; /* a list of lists of views, until they are captured */
};

/*
 * tensors: a stoker.Tensors, or a mapping and stable as above, or a tuple of these.
 * blobs, metadata: mappings of names to bytes and of strings to strings, or None.
 * Returns 0, or -1 with an error set. Ended by stkpy_save_fini() either way.
 */
int
stkpy_save_init(struct stkpy_save *self, PyObject *tensors, PyObject *blobs, PyObject *metadata,
                PyObject *stable);
void
stkpy_save_fini(struct stkpy_save *self);

/* Gives the tensors of a save the holdings of a mapping by their names; None: none.
 * Returns 0, or -1 with an error set. */
int
stkpy_save_hold(struct stkpy_save *self, PyObject *holdings);

/* Methods of Checkpoints (ckpt_list.c). */
PyObject *
stkpy_ckpt_latest(PyObject *object, PyObject *unused);
PyObject *
stkpy_ckpt_list(PyObject *object, PyObject *unused);
PyObject *
stkpy_ckpt_prune(PyObject *object, PyObject *args, PyObject *kwargs);

/* Opens a checkpoint for reading; STK_LATEST for the newest. Returns owned. */
PyObject *
stkpy_view_new(struct stkpy_ckpt *ckpt, uint64_t step);

#endif
