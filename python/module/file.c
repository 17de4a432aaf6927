/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stoker._core.File: a file that is written whole, or not at all. stoker/_open.py makes a
 * Python file object of it.
 */
#include "binding.h"

struct file {
    PyObject_HEAD struct stkpy_engine *engine;
    stk_file *file; /* NULL: not begun, or closed */
    unsigned long forks;
    bool is_busy; /* a thread is in a call and does not hold the interpreter's lock */
};

static const char *const positional[] = {"engine", "path", NULL};

/* ---- life -------------------------------------------------------------------------- */

static int
create(struct file *self, const char *path)
{
    stk_file *file = NULL;
    stk_error err = {0};

    self->engine->n_users++; /* so that it stays open meanwhile */
    PyThreadState *thread = PyEval_SaveThread();
    int rc = stk_file_create(&file, self->engine->engine, path, &err);
    PyEval_RestoreThread(thread);
    if (rc < 0) {
        stkpy_engine_put(self->engine);
        stkpy_raise(rc, &err);
        return -1;
    }
    self->file = file;
    self->forks = stkpy_forks();
    return 0;
}

static int
init_from(PyObject *object, PyObject *arguments, PyObject *keep)
{
    struct file *self = (struct file *)object;
    PyObject *engine = stkpy_arguments_need(arguments, "engine", stkpy_engine_type);

    if (!engine)
        return -1;
    self->engine = (struct stkpy_engine *)engine;
    const char *path = stkpy_path_need(arguments, "path", keep);
    if (!path || stkpy_arguments_end(arguments, "File") < 0)
        return -1;
    if (stkpy_engine_check(self->engine) < 0)
        return -1;
    return create(self, path);
}

static int
file_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    const struct stkpy_opening opening = {
        .what = "the file is",
        .is_open = ((struct file *)object)->engine != NULL,
        .positional = positional,
        .open = init_from,
    };

    return stkpy_open(object, args, kwargs, &opening);
}

static void
close_now(struct file *self)
{
    stk_file *file = self->file;

    if (!file)
        return;
    self->file = NULL;
    if (self->forks == stkpy_forks()) { /* else the file is another process's */
        PyThreadState *thread = PyEval_SaveThread();
        stk_file_close(file);
        PyEval_RestoreThread(thread);
    }
    stkpy_engine_put(self->engine);
}

static void
file_dealloc(PyObject *object)
{
    struct file *self = (struct file *)object;
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    close_now(self);
    Py_XDECREF((PyObject *)self->engine);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int
file_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)((struct file *)object)->engine);
    return 0;
}

/* ---- calls ------------------------------------------------------------------------- */

static int
begin(struct file *self)
{
    if (self->is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is in a call of the file");
        return -1;
    }
    if (stkpy_check(self->file, false, self->forks, "the file") < 0)
        return -1;
    self->is_busy = true;
    return 0;
}

static PyObject *
file_write(PyObject *object, PyObject *bytes)
{
    struct file *self = (struct file *)object;
    stk_error err = {0};
    Py_buffer buffer;

    if (PyObject_GetBuffer(bytes, &buffer, PyBUF_C_CONTIGUOUS) < 0)
        return NULL;
    if (begin(self) < 0) {
        PyBuffer_Release(&buffer);
        return NULL;
    }
    PyThreadState *thread = PyEval_SaveThread();
    int rc = stk_file_write(self->file, buffer.buf, (uint64_t)buffer.len, &err);
    PyEval_RestoreThread(thread);
    self->is_busy = false;
    Py_ssize_t n_bytes = buffer.len;
    PyBuffer_Release(&buffer);
    return rc < 0 ? stkpy_raise(rc, &err) : PyLong_FromSsize_t(n_bytes);
}

static PyObject *
file_commit(PyObject *object, PyObject *unused)
{
    struct file *self = (struct file *)object;
    stk_error err = {0};

    (void)unused;
    if (begin(self) < 0)
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    int rc = stk_file_commit(self->file, &err);
    PyEval_RestoreThread(thread);
    self->is_busy = false;
    if (rc < 0)
        return stkpy_raise(rc, &err);
    Py_RETURN_NONE;
}

static PyObject *
file_close(PyObject *object, PyObject *unused)
{
    struct file *self = (struct file *)object;

    (void)unused;
    if (self->is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is in a call of the file");
        return NULL;
    }
    close_now(self);
    Py_RETURN_NONE;
}

/* ---- type -------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"write", file_write, METH_O, "write($self, bytes, /)\n--\n\nAppends bytes; all of them."},
    {"commit", file_commit, METH_NOARGS,
     "commit($self, /)\n--\n\nMakes it durable and gives it its name."},
    {"close", file_close, METH_NOARGS, "close($self, /)\n--\n\nRemoves what was not committed."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "File(engine, path)\n--\n\nA file that is written whole, or not at all."},
    {Py_tp_init, file_init},
    {Py_tp_dealloc, file_dealloc},
    {Py_tp_traverse, file_traverse},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec stkpy_file_spec = {
    .name = "stoker._core.File",
    .basicsize = sizeof(struct file),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};
