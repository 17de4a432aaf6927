/* SPDX-License-Identifier: Apache-2.0 */
/* What is given to Checkpoints.save(), as the library takes it. */
#include "checkpoint.h"

#define DIMS_MAX 64

static const struct {
    const char *formats; /* of the buffer protocol, native; one character each */
    Py_ssize_t element_bytes;
    const char *dtype;
} types[] = {
    {"?", 1, "BOOL"}, {"B", 1, "U8"},     {"b", 1, "I8"},     {"H", 2, "U16"},
    {"h", 2, "I16"},  {"e", 2, "F16"},    {"ILQ", 4, "U32"},  {"ilq", 4, "I32"},
    {"f", 4, "F32"},  {"ILQN", 8, "U64"}, {"ilqn", 8, "I64"}, {"d", 8, "F64"},
};

static const char *
dtype_of(const Py_buffer *buffer)
{
    const char *format = buffer->format ? buffer->format : "B";

    if (format[0] == '<' || format[0] == '=' || format[0] == '@')
        format++;
    if (strcmp(format, "Zf") == 0)
        return "C64";
    for (size_t at = 0; at < sizeof(types) / sizeof(types[0]); at++)
        if (format[0] != '\0' && format[1] == '\0' && strchr(types[at].formats, format[0]) &&
            types[at].element_bytes == buffer->itemsize)
            return types[at].dtype;
    return NULL;
}

/* A view that keeps an object's memory, put on a list. Returns 0, or -1 with an error
 * set. */
static int
hold(PyObject *list, PyObject *object, Py_buffer *buffer)
{
    PyObject *view = PyMemoryView_FromObject(object);
    int rc = view ? PyObject_GetBuffer(view, buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) : -1;

    if (rc == 0 && PyList_Append(list, view) < 0) {
        PyBuffer_Release(buffer);
        rc = -1;
    }
    Py_XDECREF(view);
    return rc;
}

/* The lengths that a caller gives beside a buffer. */
static int
take_shape(stk_tensor *tensor, PyObject *given, uint64_t *shape)
{
    Py_ssize_t count = PySequence_Size(given);

    if (count < 0)
        return -1;
    if (count > DIMS_MAX) {
        PyErr_Format(PyExc_ValueError, "tensor '%s' has more than %d dimensions", tensor->name,
                     DIMS_MAX);
        return -1;
    }
    tensor->dims = (uint32_t)count;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *length = PySequence_GetItem(given, at);
        int rc = length ? stkpy_u64(length, "a length", &shape[at]) : -1;

        Py_XDECREF(length);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* dtype and shape: as told, or as the buffer has them. */
static int
describe(stk_tensor *tensor, const Py_buffer *buffer, PyObject *dtype, PyObject *given,
         uint64_t *shape)
{
    tensor->data = buffer->buf;
    tensor->n_bytes = (uint64_t)buffer->len;
    tensor->shape = shape;
    if (dtype) {
        tensor->dtype = PyUnicode_AsUTF8AndSize(dtype, NULL);
        return tensor->dtype ? take_shape(tensor, given, shape) : -1;
    }
    tensor->dtype = dtype_of(buffer);
    if (!tensor->dtype || buffer->ndim > DIMS_MAX) {
        PyErr_Format(PyExc_TypeError,
                     "tensor '%s' has elements of format '%s', which safetensors does not have; "
                     "give (dtype, shape, buffer)",
                     tensor->name, buffer->format ? buffer->format : "B");
        return -1;
    }
    tensor->dims = (uint32_t)buffer->ndim;
    for (int at = 0; at < buffer->ndim; at++)
        shape[at] = (uint64_t)buffer->shape[at];
    return 0;
}

static int
is_stable(PyObject *stable, PyObject *name)
{
    if (PyBool_Check(stable) || stable == Py_None)
        return PyObject_IsTrue(stable);
    return PySequence_Contains(stable, name);
}

/* One tensor: a buffer, or (dtype, shape, buffer). */
static int
take_tensor(struct stkpy_tensors *self, PyObject *name, PyObject *value, PyObject *stable)
{
    stk_tensor *tensor = &self->tensors[self->n_tensors];
    uint64_t *shape = self->shapes + (size_t)self->n_tensors * DIMS_MAX;
    PyObject *dtype = NULL, *given = NULL;
    Py_buffer buffer;
    int flag = is_stable(stable, name);

    tensor->name = PyUnicode_AsUTF8AndSize(name, NULL);
    if (!tensor->name || flag < 0)
        return -1;
    if (PyTuple_Check(value) && !PyArg_ParseTuple(value, "UOO", &dtype, &given, &value))
        return -1;
    if (hold(flag ? self->stable : self->keep, value, &buffer) < 0)
        return -1;
    int rc = describe(tensor, &buffer, dtype, given, shape);
    PyBuffer_Release(&buffer); /* the view on the list keeps the memory */
    tensor->flags = flag ? STK_TENSOR_STABLE : 0;
    self->n_tensors++;
    return rc;
}

static int
take_blob(struct stkpy_tensors *self, PyObject *name, PyObject *value)
{
    stk_blob *blob = &self->blobs[self->n_blobs++];
    Py_buffer buffer;

    blob->name = PyUnicode_AsUTF8AndSize(name, NULL);
    if (!blob->name || hold(self->keep, value, &buffer) < 0)
        return -1;
    blob->data = buffer.buf;
    blob->n_bytes = (uint64_t)buffer.len;
    PyBuffer_Release(&buffer);
    return 0;
}

static int
take_pair(struct stkpy_tensors *self, PyObject *key, PyObject *value)
{
    stk_pair *pair = &self->metadata[self->n_metadata++];

    pair->key = PyUnicode_AsUTF8AndSize(key, NULL);
    pair->value = pair->key ? PyUnicode_AsUTF8AndSize(value, NULL) : NULL;
    return pair->value ? 0 : -1;
}

/* The items of a mapping as a list, kept for the call; an empty one for None.
 * Borrowed. */
static PyObject *
items_of(struct stkpy_tensors *self, PyObject *mapping)
{
    PyObject *items = mapping == Py_None ? PyList_New(0) : PyMapping_Items(mapping);

    if (items && PyList_Append(self->keep, items) < 0)
        Py_CLEAR(items);
    Py_XDECREF(items);
    return items;
}

static int
take_all(struct stkpy_tensors *self, PyObject *lists[3], PyObject *stable)
{
    for (int which = 0; which < 3; which++)
        for (Py_ssize_t at = 0; at < PyList_Size(lists[which]); at++) {
            PyObject *key, *value;
            int rc;

            if (!PyArg_ParseTuple(PyList_GetItem(lists[which], at), "OO", &key, &value))
                return -1;
            if (which == 0)
                rc = take_tensor(self, key, value, stable);
            else
                rc = which == 1 ? take_blob(self, key, value) : take_pair(self, key, value);
            if (rc < 0)
                return -1;
        }
    return 0;
}

int
stkpy_tensors_init(struct stkpy_tensors *self, PyObject *tensors, PyObject *blobs,
                   PyObject *metadata, PyObject *stable)
{
    PyObject *lists[3] = {NULL, NULL, NULL};

    *self = (struct stkpy_tensors){.keep = PyList_New(0), .stable = PyList_New(0)};
    if (!self->keep || !self->stable)
        return -1;
    lists[0] = items_of(self, tensors);
    lists[1] = lists[0] ? items_of(self, blobs) : NULL;
    lists[2] = lists[1] ? items_of(self, metadata) : NULL;
    if (!lists[2])
        return -1;
    size_t count = (size_t)PyList_Size(lists[0]) + 1; /* none of them is an allocation of 0 */
    self->tensors = PyMem_Calloc(count, sizeof(*self->tensors));
    self->shapes = PyMem_Calloc(count * DIMS_MAX, sizeof(*self->shapes));
    self->blobs = PyMem_Calloc((size_t)PyList_Size(lists[1]) + 1, sizeof(*self->blobs));
    self->metadata = PyMem_Calloc((size_t)PyList_Size(lists[2]) + 1, sizeof(*self->metadata));
    if (!self->tensors || !self->shapes || !self->blobs || !self->metadata) {
        PyErr_NoMemory();
        return -1;
    }
    return take_all(self, lists, stable);
}

void
stkpy_tensors_fini(struct stkpy_tensors *self)
{
    PyMem_Free(self->tensors);
    PyMem_Free(self->shapes);
    PyMem_Free(self->blobs);
    PyMem_Free(self->metadata);
    Py_XDECREF(self->keep);
    Py_XDECREF(self->stable);
}
