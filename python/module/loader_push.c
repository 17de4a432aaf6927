/* SPDX-License-Identifier: Apache-2.0 */
/* Loader.push(): ids from any buffer of 64-bit integers, or from any iterable of
 * integers. */
#include "binding.h"

#include <errno.h>

struct ids {
    Py_buffer view; /* where they came as a buffer */
    bool has_view;
    uint64_t *own; /* else */
    const uint64_t *ids;
    uint64_t count;
};

static void
ids_fini(struct ids *ids)
{
    if (ids->has_view)
        PyBuffer_Release(&ids->view);
    PyMem_Free(ids->own);
}

/* Signed ones, NumPy's default, are taken too: a negative one is then out of range. */
static int
take_buffer(struct ids *ids, PyObject *object)
{
    if (PyObject_GetBuffer(object, &ids->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0)
        return -1;
    ids->has_view = true;
    const char *format = ids->view.format;
    if (ids->view.itemsize != sizeof(uint64_t) || ids->view.ndim != 1 || !format ||
        format[0] == '\0' || !strchr("QqLlNn", format[0])) {
        PyErr_Format(PyExc_TypeError,
                     "ids must be one dimension of 64-bit integers, not %d of format '%s'",
                     ids->view.ndim, format ? format : "B");
        return -1;
    }
    ids->ids = ids->view.buf;
    ids->count = (uint64_t)ids->view.len / sizeof(uint64_t);
    return 0;
}

static int
take_list(struct ids *ids, PyObject *list)
{
    Py_ssize_t count = PyList_Size(list);

    ids->own = PyMem_Calloc((size_t)count + 1, sizeof(uint64_t));
    if (!ids->own) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++)
        if (stkpy_u64(PyList_GetItem(list, at), "an id", &ids->own[at]) < 0)
            return -1;
    ids->ids = ids->own;
    ids->count = (uint64_t)count;
    return 0;
}

static int
ids_init(struct ids *ids, PyObject *object)
{
    if (!object)
        return 0;
    if (PyObject_CheckBuffer(object))
        return take_buffer(ids, object);
    PyObject *list = PySequence_List(object); /* a copy: what __index__ does cannot change it */
    int rc = list ? take_list(ids, list) : -1;
    Py_XDECREF(list);
    return rc;
}

static PyObject *
result_of(int rc)
{
    switch (rc) {
    case -ERANGE:
        return stkpy_raise_message(rc, "an id is not of the data set; none was taken");
    case -ENOSPC:
        return stkpy_raise_message(rc, "too many ids wait already; none was taken");
    case -EINVAL:
        return stkpy_raise_message(rc, "ids are pushed with order='list', and before the run ends");
    default:
        if (rc < 0)
            return stkpy_raise(rc, NULL);
        Py_RETURN_NONE;
    }
}

PyObject *
stkpy_loader_push(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"ids", "end_epoch", "end_run", NULL};
    struct stkpy_loader *self = (struct stkpy_loader *)object;
    struct ids ids = {.has_view = false};
    PyObject *given = NULL;
    int end_epoch = 0, end_run = 0;
    int rc = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O$pp:push", names, &given, &end_epoch,
                                     &end_run))
        return NULL;
    if (ids_init(&ids, given) < 0 || stkpy_loader_begin(self) < 0) {
        ids_fini(&ids);
        return NULL;
    }
    PyThreadState *thread = PyEval_SaveThread();
    rc = stk_loader_push(self->loader, ids.ids, ids.count, end_epoch, end_run);
    PyEval_RestoreThread(thread);
    stkpy_loader_end(self);
    ids_fini(&ids);
    return result_of(rc);
}
