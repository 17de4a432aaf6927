/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stoker.Tensors: tensors as the library takes them, made once from a mapping of buffers
 * and saved as often as somebody likes. Nothing of it changes afterwards.
 */
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

/* Room for the lengths of one tensor more. Returns 0, or -1 with an error set. */
static int
reserve_shape(struct stkpy_tensors *self, size_t n_used, size_t *capacity)
{
    if (*capacity - n_used >= DIMS_MAX)
        return 0;
    uint64_t *shapes = PyMem_Realloc(self->shapes, 2 * (*capacity + DIMS_MAX) * sizeof(*shapes));

    if (!shapes) {
        PyErr_NoMemory();
        return -1;
    }
    self->shapes = shapes;
    *capacity = 2 * (*capacity + DIMS_MAX);
    return 0;
}

/* One tensor: a buffer, or (dtype, shape, buffer). */
static int
take_tensor(struct stkpy_tensors *self, PyObject *name, PyObject *value, PyObject *stable,
            uint64_t *shape)
{
    stk_tensor *tensor = &self->tensors[self->n_tensors];
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
take_all(struct stkpy_tensors *self, PyObject *items, PyObject *stable)
{
    size_t n_lengths = 0, capacity = 0;
    PyObject *key, *value;

    self->tensors = PyMem_Calloc((size_t)PyList_Size(items) + 1, sizeof(*self->tensors));
    if (!self->tensors) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t at = 0; at < PyList_Size(items); at++) {
        if (reserve_shape(self, n_lengths, &capacity) < 0 ||
            !PyArg_ParseTuple(PyList_GetItem(items, at), "OO", &key, &value) ||
            take_tensor(self, key, value, stable, self->shapes + n_lengths) < 0)
            return -1;
        n_lengths += self->tensors[at].dims;
    }
    const uint64_t *shape = self->shapes;
    for (uint32_t at = 0; at < self->n_tensors; at++) { /* now they do not move any more */
        self->tensors[at].shape = shape;
        shape += self->tensors[at].dims;
    }
    return 0;
}

/* ---- the object -------------------------------------------------------------------- */

static int
fill(struct stkpy_tensors *self, PyObject *mapping, PyObject *stable)
{
    PyObject *items = PyMapping_Items(mapping);

    self->keep = PyList_New(0);
    self->stable = PyList_New(0);
    int rc = items && self->keep && self->stable ? PyList_Append(self->keep, items) : -1;
    if (rc == 0)
        rc = take_all(self, items, stable);
    Py_XDECREF(items);
    return rc;
}

struct stkpy_tensors *
stkpy_tensors_new(PyObject *mapping, PyObject *stable)
{
    struct stkpy_tensors *self = PyObject_GC_New(struct stkpy_tensors, stkpy_tensors_type);

    if (!self)
        return NULL;
    self->tensors = NULL;
    self->shapes = NULL;
    self->n_tensors = 0;
    self->keep = self->stable = NULL;
    PyObject_GC_Track((PyObject *)self);
    if (fill(self, mapping, stable) == 0)
        return self;
    Py_DECREF((PyObject *)self);
    return NULL;
}

static PyObject *
tensors_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"tensors", "stable", NULL};
    PyObject *mapping, *stable = Py_False;

    (void)type;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$O:Tensors", names, &mapping, &stable))
        return NULL;
    return (PyObject *)stkpy_tensors_new(mapping, stable);
}

static void
tensors_dealloc(PyObject *object)
{
    struct stkpy_tensors *self = (struct stkpy_tensors *)object;
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    PyMem_Free(self->tensors);
    PyMem_Free(self->shapes);
    Py_XDECREF(self->keep);
    Py_XDECREF(self->stable);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int
tensors_traverse(PyObject *object, visitproc visit, void *arg)
{
    struct stkpy_tensors *self = (struct stkpy_tensors *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->keep);
    Py_VISIT(self->stable);
    return 0;
}

static Py_ssize_t
tensors_length(PyObject *object)
{
    return (Py_ssize_t)((struct stkpy_tensors *)object)->n_tensors;
}

static PyObject *
tensors_names(PyObject *object, PyObject *unused)
{
    const struct stkpy_tensors *self = (const struct stkpy_tensors *)object;
    PyObject *dict = PyDict_New();

    (void)unused;
    for (uint32_t at = 0; dict && at < self->n_tensors; at++)
        if (stkpy_dict_set(dict, self->tensors[at].name,
                           PyBool_FromLong(self->tensors[at].flags & STK_TENSOR_STABLE)) < 0)
            Py_CLEAR(dict);
    return dict;
}

static PyMethodDef methods[] = {
    {"names", tensors_names, METH_NOARGS, "names($self, /)\n--\n\nName to whether it is stable."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Tensors(tensors, *, stable=False)\n--\n\n"
                "What Checkpoints.save() takes, looked at once for many saves: the same memory "
                "each time. Keeps the memory."},
    {Py_tp_new, tensors_new},
    {Py_tp_dealloc, tensors_dealloc},
    {Py_tp_traverse, tensors_traverse},
    {Py_tp_methods, methods},
    {Py_sq_length, tensors_length},
    {0, NULL},
};

PyType_Spec stkpy_tensors_spec = {
    .name = "stoker.Tensors",
    .basicsize = sizeof(struct stkpy_tensors),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};
