/* SPDX-License-Identifier: Apache-2.0 */
/* What is given to Checkpoints.save(), as the library takes it. */
#include "checkpoint.h"

/* ---- tensors ----------------------------------------------------------------------- */

/* Puts a mapping's or a Tensors' tensors behind the others. */
static int
take_list(struct stkpy_save *self, PyObject *given, PyObject *stable)
{
    struct stkpy_tensors *list;

    if (PyObject_TypeCheck(given, stkpy_tensors_type)) {
        Py_INCREF(given);
        list = (struct stkpy_tensors *)given;
    } else {
        list = stkpy_tensors_new(given, stable);
    }
    if (!list)
        return -1;
    size_t n_all = (size_t)self->n_tensors + list->n_tensors;
    stk_tensor *tensors = PyMem_Realloc(self->tensors, (n_all + 1) * sizeof(*tensors));
    int rc = -1;
    if (tensors) {
        self->tensors = tensors;
        memcpy(tensors + self->n_tensors, list->tensors, list->n_tensors * sizeof(*tensors));
        self->n_tensors += list->n_tensors;
        rc = PyList_Append(self->keep, (PyObject *)list);
    } else {
        PyErr_NoMemory();
    }
    if (rc == 0 && PyList_Size(list->stable) > 0)
        rc = PyList_Append(self->stable, list->stable);
    Py_DECREF((PyObject *)list);
    return rc;
}

static int
take_tensors(struct stkpy_save *self, PyObject *given, PyObject *stable)
{
    if (!PyTuple_Check(given))
        return take_list(self, given, stable);
    for (Py_ssize_t at = 0; at < PySequence_Size(given); at++) {
        PyObject *one = PySequence_GetItem(given, at);
        int rc = one ? take_list(self, one, stable) : -1;

        Py_XDECREF(one);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* ---- the rest ---------------------------------------------------------------------- */

static int
take_blob(struct stkpy_save *self, PyObject *name, PyObject *value)
{
    stk_blob *blob = &self->blobs[self->n_blobs++];
    PyObject *view = PyMemoryView_FromObject(value);
    Py_buffer buffer;

    blob->name = PyUnicode_AsUTF8AndSize(name, NULL);
    int rc = blob->name && view ? PyObject_GetBuffer(view, &buffer, PyBUF_C_CONTIGUOUS) : -1;
    if (rc == 0) {
        blob->data = buffer.buf;
        blob->n_bytes = (uint64_t)buffer.len;
        rc = PyList_Append(self->keep, view); /* which keeps the memory */
        PyBuffer_Release(&buffer);
    }
    Py_XDECREF(view);
    return rc;
}

static int
take_pair(struct stkpy_save *self, PyObject *key, PyObject *value)
{
    stk_pair *pair = &self->metadata[self->n_metadata++];

    pair->key = PyUnicode_AsUTF8AndSize(key, NULL);
    pair->value = pair->key ? PyUnicode_AsUTF8AndSize(value, NULL) : NULL;
    return pair->value ? 0 : -1;
}

/* The items of a mapping as a list, kept for the call; an empty one for None.
 * Borrowed. */
static PyObject *
items_of(struct stkpy_save *self, PyObject *mapping)
{
    PyObject *items = mapping == Py_None ? PyList_New(0) : PyMapping_Items(mapping);

    if (items && PyList_Append(self->keep, items) < 0)
        Py_CLEAR(items);
    Py_XDECREF(items);
    return items;
}

static int
take_items(struct stkpy_save *self, PyObject *items,
           int (*take)(struct stkpy_save *self, PyObject *key, PyObject *value))
{
    for (Py_ssize_t at = 0; at < PyList_Size(items); at++) {
        PyObject *key, *value;

        if (!PyArg_ParseTuple(PyList_GetItem(items, at), "OO", &key, &value) ||
            take(self, key, value) < 0)
            return -1;
    }
    return 0;
}

int
stkpy_save_init(struct stkpy_save *self, PyObject *tensors, PyObject *blobs, PyObject *metadata,
                PyObject *stable)
{
    *self = (struct stkpy_save){.keep = PyList_New(0), .stable = PyList_New(0)};
    if (!self->keep || !self->stable || take_tensors(self, tensors, stable) < 0)
        return -1;
    PyObject *blob_items = items_of(self, blobs);
    PyObject *pair_items = blob_items ? items_of(self, metadata) : NULL;
    if (!pair_items)
        return -1;
    self->blobs = PyMem_Calloc((size_t)PyList_Size(blob_items) + 1, sizeof(*self->blobs));
    self->metadata = PyMem_Calloc((size_t)PyList_Size(pair_items) + 1, sizeof(*self->metadata));
    if (!self->blobs || !self->metadata) {
        PyErr_NoMemory();
        return -1;
    }
    if (take_items(self, blob_items, take_blob) < 0)
        return -1;
    return take_items(self, pair_items, take_pair);
}

void
stkpy_save_fini(struct stkpy_save *self)
{
    PyMem_Free(self->tensors);
    PyMem_Free(self->blobs);
    PyMem_Free(self->metadata);
    PyMem_Free(self->holdings);
    Py_XDECREF(self->keep);
    Py_XDECREF(self->stable);
}
