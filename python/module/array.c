/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stoker.Array: memory of a batch, or of its own, as a buffer in C order. It has no
 * arithmetic: NumPy, PyTorch and memoryview() take it as it is, without a copy.
 *
 * Invariant: while a buffer of a batch is exported, the batch is out and its loader open.
 */
#include "binding.h"

static char nothing[1]; /* what an empty sample points to */

struct stkpy_array *
stkpy_array_new(PyObject *owner, struct stkpy_batch *batch, const void *bytes, Py_ssize_t count,
                const char *format, Py_ssize_t element_bytes)
{
    struct stkpy_array *array = PyObject_GC_New(struct stkpy_array, stkpy_array_type);
    union {
        const void *shown;
        void *bytes;
    } memory = {bytes ? bytes : nothing}; /* written to only where is_readonly is taken back */

    if (!array)
        return NULL;
    Py_INCREF(owner);
    array->owner = owner;
    array->batch = batch;
    array->bytes = memory.bytes;
    array->n_bytes = count * element_bytes;
    array->element_bytes = element_bytes;
    array->shape[0] = count;
    array->strides[0] = element_bytes;
    array->n_dims = 1;
    array->is_readonly = true;
    (void)PyOS_snprintf(array->format, sizeof(array->format), "%s", format); /* 3 bytes at most */
    PyObject_GC_Track((PyObject *)array);
    return array;
}

static void
array_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    Py_DECREF(((struct stkpy_array *)object)->owner);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int
array_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((struct stkpy_array *)object)->owner);
    return 0;
}

/* ---- the buffer protocol ----------------------------------------------------------- */

int
stkpy_array_hold(struct stkpy_array *array)
{
    struct stkpy_batch *batch = array->batch;

    if (!batch)
        return 0;
    if (!batch->is_out || batch->is_released || !batch->loader->loader ||
        batch->loader->is_closing) {
        PyErr_SetString(PyExc_ValueError, "the batch has been given back");
        return -1;
    }
    batch->n_exports++;
    batch->loader->n_exports++;
    return 0;
}

void
stkpy_array_put(struct stkpy_array *array)
{
    struct stkpy_batch *batch = array->batch;

    if (!batch)
        return;
    if (--batch->n_exports == 0 && batch->is_released && batch->is_out) {
        batch->is_out = false;
        stkpy_loader_give_back(batch->loader, &batch->batch);
    }
    stkpy_loader_put(batch->loader);
}

static int
array_get_buffer(PyObject *object, Py_buffer *view, int flags)
{
    struct stkpy_array *array = (struct stkpy_array *)object;

    view->obj = NULL;
    if ((flags & PyBUF_WRITABLE) && array->is_readonly) {
        PyErr_SetString(PyExc_BufferError, "the memory is read-only");
        return -1;
    }
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && array->n_dims > 1) {
        PyErr_SetString(PyExc_BufferError, "the memory is in C order");
        return -1;
    }
    if (stkpy_array_hold(array) < 0)
        return -1;
    *view = (Py_buffer){
        .buf = array->bytes,
        .obj = object,
        .len = array->n_bytes,
        .itemsize = array->element_bytes,
        .readonly = array->is_readonly,
        .ndim = array->n_dims,
        .format = (flags & PyBUF_FORMAT) ? array->format : NULL,
        .shape = (flags & PyBUF_ND) ? array->shape : NULL,
        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? array->strides : NULL,
    };
    if (!view->shape) { /* asked for as plain bytes */
        view->ndim = 1;
        view->itemsize = view->format ? view->itemsize : 1;
    }
    Py_INCREF(object);
    return 0;
}

static void
array_release_buffer(PyObject *object, Py_buffer *view)
{
    (void)view;
    stkpy_array_put((struct stkpy_array *)object);
}

/* ---- as a sequence: what memoryview() does ----------------------------------------- */

static Py_ssize_t
array_length(PyObject *object)
{
    struct stkpy_array *array = (struct stkpy_array *)object;

    return array->shape[0];
}

static PyObject *
array_item(PyObject *object, PyObject *key)
{
    PyObject *view = PyMemoryView_FromObject(object);
    PyObject *item = view ? PyObject_GetItem(view, key) : NULL;

    Py_XDECREF(view);
    return item;
}

static PyObject *
array_iterate(PyObject *object)
{
    PyObject *view = PyMemoryView_FromObject(object);
    PyObject *iterator = view ? PyObject_GetIter(view) : NULL;

    Py_XDECREF(view);
    return iterator;
}

static PyObject *
array_to_list(PyObject *object, PyObject *unused)
{
    PyObject *view = PyMemoryView_FromObject(object);
    PyObject *list = view ? PyObject_CallMethod(view, "tolist", NULL) : NULL;

    (void)unused;
    Py_XDECREF(view);
    return list;
}

static PyObject *
array_shape(PyObject *object, void *unused)
{
    struct stkpy_array *array = (struct stkpy_array *)object;
    PyObject *shape = PyTuple_New(array->n_dims);

    (void)unused;
    for (int at = 0; shape && at < array->n_dims; at++) {
        PyObject *length = PyLong_FromSsize_t(array->shape[at]);

        if (!length || PyTuple_SetItem(shape, at, length) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *
array_format(PyObject *object, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(((struct stkpy_array *)object)->format);
}

static PyObject *
array_n_bytes(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromSsize_t(((struct stkpy_array *)object)->n_bytes);
}

static PyObject *
array_readonly(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((struct stkpy_array *)object)->is_readonly);
}

static PyMethodDef methods[] = {
    {"tolist", array_to_list, METH_NOARGS, "tolist($self, /)\n--\n\nA copy as a list of numbers."},
    {"__dlpack__", STKPY_METHOD(stkpy_dlpack), METH_VARARGS | METH_KEYWORDS,
     "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "The memory as a DLPack tensor, without a copy."},
    {"__dlpack_device__", stkpy_dlpack_device, METH_NOARGS,
     "__dlpack_device__($self, /)\n--\n\nWhere the memory is: (1, 0), the CPU."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"shape", array_shape, NULL, "Lengths of its dimensions.", NULL},
    {"format", array_format, NULL, "Of an element, as in the struct module.", NULL},
    {"nbytes", array_n_bytes, NULL, "Bytes in all.", NULL},
    {"readonly", array_readonly, NULL, "Whether it may not be written to.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Memory of a batch, for NumPy, PyTorch (DLPack) and memoryview() without a copy."},
    {Py_tp_new, stkpy_no_new},
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_traverse, array_traverse},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_tp_iter, array_iterate},
    {Py_mp_length, array_length},
    {Py_mp_subscript, array_item},
    {Py_bf_getbuffer, array_get_buffer},
    {Py_bf_releasebuffer, array_release_buffer},
    {0, NULL},
};

PyType_Spec stkpy_array_spec = {
    .name = "stoker.Array",
    .basicsize = sizeof(struct stkpy_array),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};
