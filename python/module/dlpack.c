/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays as DLPack tensors, of the version that the consumer can take: 1.0, which knows
 * read-only memory, or the one before it, which does not. A tensor is an export of its
 * array as a buffer is, and ends when the consumer calls its deleter: on any thread, with
 * or without the interpreter.
 *
 * The structures are those of the DLPack specification, in its layout.
 */
#include "binding.h"

#include <stdlib.h>

#define DEVICE_CPU 1
#define FLAG_READ_ONLY UINT64_C(1)
#define NAME_OLD "dltensor"
#define NAME_VERSIONED "dltensor_versioned"

enum type_code { CODE_INT = 0, CODE_UINT = 1, CODE_FLOAT = 2, CODE_COMPLEX = 5, CODE_BOOL = 6 };

struct tensor {
    void *data;
    int32_t device_type;
    int32_t device_id;
    int32_t n_dims;
    uint8_t type_code;
    uint8_t type_bits;
    uint16_t type_lanes;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
};

struct managed_old {
    struct tensor tensor;
    void *context;
    void (*deleter)(struct managed_old *self);
};

struct managed_versioned {
    uint32_t major;
    uint32_t minor;
    void *context;
    void (*deleter)(struct managed_versioned *self);
    uint64_t flags;
    struct tensor tensor;
};

/* A tensor of either version with what it points to. */
struct export
{
    union {
        struct managed_old old;
        struct managed_versioned versioned;
    } managed;
    struct stkpy_array *array;
    int64_t shape[STK_MAX_DIMS + 1];
    int64_t strides[STK_MAX_DIMS + 1]; /* in elements */
};

static void
export_free(struct export *export)
{
    if (Py_IsInitialized()) { /* at the very end of a process the array is gone with everything */
        PyGILState_STATE state = PyGILState_Ensure();

        stkpy_array_put(export->array);
        Py_DECREF((PyObject *)export->array);
        PyGILState_Release(state);
    }
    free(export);
}

static void
delete_old(struct managed_old *self)
{
    export_free(self->context);
}

static void
delete_versioned(struct managed_versioned *self)
{
    export_free(self->context);
}

/* A capsule that nobody has taken the tensor out of still owns it. */
static void
destroy_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, NAME_OLD)) {
        struct managed_old *old = PyCapsule_GetPointer(capsule, NAME_OLD);

        old->deleter(old);
    } else if (PyCapsule_IsValid(capsule, NAME_VERSIONED)) {
        struct managed_versioned *versioned = PyCapsule_GetPointer(capsule, NAME_VERSIONED);

        versioned->deleter(versioned);
    }
}

static int
code_of(const char *format)
{
    if (strchr("bhiq", format[0]))
        return CODE_INT;
    if (strchr("BHIQ", format[0]))
        return CODE_UINT;
    if (strchr("efd", format[0]))
        return CODE_FLOAT;
    if (format[0] == 'Z')
        return CODE_COMPLEX;
    return format[0] == '?' ? CODE_BOOL : -1;
}

static int
describe(struct tensor *tensor, struct export *export)
{
    struct stkpy_array *array = export->array;
    int code = code_of(array->format);

    if (code < 0) {
        PyErr_Format(PyExc_BufferError,
                     "DLPack has no elements of format '%s'; use numpy.asarray()", array->format);
        return -1;
    }
    for (int at = 0; at < array->n_dims; at++) {
        export->shape[at] = array->shape[at];
        export->strides[at] = array->strides[at] / array->element_bytes;
    }
    *tensor = (struct tensor){
        .data = array->bytes,
        .device_type = DEVICE_CPU,
        .n_dims = array->n_dims,
        .type_code = (uint8_t)code,
        .type_bits = (uint8_t)(array->element_bytes * 8),
        .type_lanes = 1,
        .shape = export->shape,
        .strides = export->strides,
    };
    return 0;
}

static PyObject *
export_new(struct stkpy_array *array, bool is_versioned)
{
    struct export *export = calloc(1, sizeof(*export));
    PyObject *capsule = NULL;

    if (!export)
        return PyErr_NoMemory();
    export->array = array;
    if (is_versioned) {
        export->managed.versioned =
            (struct managed_versioned){.major = 1,
                                       .context = export,
                                       .deleter = delete_versioned,
                                       .flags = array->is_readonly ? FLAG_READ_ONLY : 0};
    } else {
        export->managed.old = (struct managed_old){.context = export, .deleter = delete_old};
    }
    int rc = describe(
        is_versioned ? &export->managed.versioned.tensor : &export->managed.old.tensor, export);
    if (rc == 0 && stkpy_array_hold(array) == 0) {
        Py_INCREF((PyObject *)array);
        capsule = PyCapsule_New(&export->managed, is_versioned ? NAME_VERSIONED : NAME_OLD,
                                destroy_capsule);
        if (capsule)
            return capsule;
        stkpy_array_put(array);
        Py_DECREF((PyObject *)array);
    }
    free(export);
    return NULL;
}

/* Whether the consumer takes tensors of version 1 or newer. -1 with an error set. */
static int
takes_versioned(PyObject *max_version)
{
    if (max_version == Py_None)
        return 0;
    PyObject *major = PySequence_GetItem(max_version, 0);
    long value = major ? PyLong_AsLong(major) : -1;

    Py_XDECREF(major);
    return PyErr_Occurred() ? -1 : value >= 1;
}

static int
check_device(PyObject *device)
{
    int type, id;

    if (device == Py_None)
        return 0;
    if (!PyArg_ParseTuple(device, "ii;dl_device is a pair of integers", &type, &id))
        return -1;
    if (type == DEVICE_CPU && id == 0)
        return 0;
    PyErr_SetString(PyExc_BufferError, "the memory is the CPU's and is not copied elsewhere");
    return -1;
}

PyObject *
stkpy_dlpack(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
    struct stkpy_array *array = (struct stkpy_array *)object;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream,
                                     &max_version, &device, &copy))
        return NULL;
    int is_versioned = takes_versioned(max_version);
    if (is_versioned < 0 || check_device(device) < 0)
        return NULL;
    if (stream != Py_None) {
        PyErr_SetString(PyExc_BufferError, "memory of the CPU has no stream");
        return NULL;
    }
    if (copy == Py_True) {
        PyErr_SetString(PyExc_BufferError, "the memory is shown, not copied");
        return NULL;
    }
    if (array->is_readonly && !is_versioned) {
        PyErr_SetString(PyExc_BufferError, "the memory is read-only, which DLPack before 1.0 "
                                           "cannot say; use numpy.asarray()");
        return NULL;
    }
    return export_new(array, is_versioned > 0);
}

PyObject *
stkpy_dlpack_device(PyObject *object, PyObject *unused)
{
    (void)object;
    (void)unused;
    return Py_BuildValue("(ii)", DEVICE_CPU, 0);
}
