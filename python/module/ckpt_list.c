/* SPDX-License-Identifier: Apache-2.0 */
/* What checkpoints a directory has, and the removal of old ones. */
#include "checkpoint.h"

#include <errno.h>

PyObject *
stkpy_ckpt_latest(PyObject *object, PyObject *unused)
{
    struct stkpy_ckpt *self = (struct stkpy_ckpt *)object;
    stk_error err = {0};
    uint64_t step;

    (void)unused;
    if (stkpy_ckpt_check(self) < 0)
        return NULL;
    self->n_users++;
    PyThreadState *thread = PyEval_SaveThread();
    int rc = stk_ckpt_latest(self->ckpt, &step, &err);
    PyEval_RestoreThread(thread);
    stkpy_ckpt_put(self);
    if (rc == -ENOENT)
        Py_RETURN_NONE;
    return rc < 0 ? stkpy_raise(rc, &err) : PyLong_FromUnsignedLongLong(step);
}

static PyObject *
describe(const stk_ckpt_info *info)
{
    return Py_BuildValue("{sKsKsKsIsIsIsi}", "step", (unsigned long long)info->step, "bytes",
                         (unsigned long long)info->bytes, "created_ns",
                         (unsigned long long)info->created_ns, "tensors", info->tensors, "parts",
                         info->parts, "world", info->world, "state", (int)info->state);
}

/* All of them: there may be more than there was room for, so it is asked again. */
static int
read_list(struct stkpy_ckpt *self, stk_ckpt_info **ret_infos, stk_error *err)
{
    uint32_t capacity = 64, total = 0;

    for (;;) {
        stk_ckpt_info *infos = PyMem_Calloc(capacity, sizeof(*infos));

        if (!infos)
            return -ENOMEM;
        PyThreadState *thread = PyEval_SaveThread();
        int rc = stk_ckpt_list(self->ckpt, infos, capacity, &total, err);
        PyEval_RestoreThread(thread);
        if (rc >= 0 && total <= capacity) {
            *ret_infos = infos;
            return rc;
        }
        PyMem_Free(infos);
        if (rc < 0)
            return rc;
        capacity = total;
    }
}

PyObject *
stkpy_ckpt_list(PyObject *object, PyObject *unused)
{
    struct stkpy_ckpt *self = (struct stkpy_ckpt *)object;
    stk_ckpt_info *infos = NULL;
    stk_error err = {0};

    (void)unused;
    if (stkpy_ckpt_check(self) < 0)
        return NULL;
    self->n_users++;
    int count = read_list(self, &infos, &err);
    stkpy_ckpt_put(self);
    if (count < 0)
        return stkpy_raise(count, &err);
    PyObject *list = PyList_New(0);
    for (int at = 0; list && at < count; at++) {
        PyObject *one = describe(&infos[at]);

        if (!one || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    PyMem_Free(infos);
    return list;
}

PyObject *
stkpy_ckpt_prune(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"keep", "orphans", NULL};
    struct stkpy_ckpt *self = (struct stkpy_ckpt *)object;
    PyObject *given;
    int orphans = 0;
    uint64_t keep;
    uint32_t removed = 0;
    stk_error err = {0};

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$p:prune", names, &given, &orphans) ||
        stkpy_u64(given, "keep", &keep) < 0 || stkpy_ckpt_check(self) < 0)
        return NULL;
    if (keep > UINT32_MAX)
        keep = UINT32_MAX; /* more than there can be */
    self->n_users++;
    PyThreadState *thread = PyEval_SaveThread();
    int rc =
        stk_ckpt_prune(self->ckpt, (uint32_t)keep, orphans ? STK_PRUNE_ORPHANS : 0, &removed, &err);
    PyEval_RestoreThread(thread);
    stkpy_ckpt_put(self);
    return rc < 0 ? stkpy_raise(rc, &err) : PyLong_FromUnsignedLong(removed);
}
