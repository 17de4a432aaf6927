/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stoker.Holding, by the names of tensors, as the library takes it: one for each tensor,
 * in the tensors' order, all zero where nothing is said of it.
 */
#include "checkpoint.h"

/* The numbers of a sequence. Returns how many, or -1 with an error set. NULL numbers:
 * only counts. */
static Py_ssize_t
take_numbers(PyObject *given, const char *what, uint64_t *numbers)
{
    Py_ssize_t n = given == Py_None ? 0 : PySequence_Size(given);

    for (Py_ssize_t at = 0; numbers && at < n; at++) {
        PyObject *one = PySequence_GetItem(given, at);
        int rc = one ? stkpy_u64(one, what, &numbers[at]) : -1;

        Py_XDECREF(one);
        if (rc < 0)
            return -1;
    }
    return n;
}

/* Room for n numbers that lives as long as the save. NULL with an error set. */
static void *
room_for(struct stkpy_save *self, size_t n, size_t size)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((n + 1) * size));
    void *room = bytes && PyList_Append(self->keep, bytes) == 0 ? PyBytes_AsString(bytes) : NULL;

    Py_XDECREF(bytes);
    return room;
}

static int
take_ranks(struct stkpy_save *self, stk_holding *holding, PyObject *given)
{
    Py_ssize_t n = take_numbers(given, "a rank", NULL);

    if (n < 0)
        return -1;
    if (given != Py_None && n == 0) {
        PyErr_SetString(PyExc_ValueError, "a Holding of no ranks: give None where all hold it");
        return -1;
    }
    uint64_t *numbers = room_for(self, (size_t)n, sizeof(*numbers));
    uint32_t *ranks = numbers ? room_for(self, (size_t)n, sizeof(*ranks)) : NULL;
    if (!ranks || take_numbers(given, "a rank", numbers) < 0)
        return -1;
    for (Py_ssize_t at = 0; at < n; at++)
        ranks[at] = numbers[at] < UINT32_MAX ? (uint32_t)numbers[at] : UINT32_MAX;
    holding->ranks = n > 0 ? ranks : NULL;
    holding->n_ranks = (uint32_t)n;
    return 0;
}

/* A place or a shape, one number for each dimension. NULL with an error set. */
static const uint64_t *
take_place(struct stkpy_save *self, const stk_tensor *tensor, PyObject *given, const char *what)
{
    Py_ssize_t n = given == Py_None ? -1 : take_numbers(given, what, NULL);

    if (n < 0 && PyErr_Occurred())
        return NULL;
    if (n != (Py_ssize_t)tensor->dims) {
        PyErr_Format(PyExc_ValueError, "tensor '%s': %s has %zd numbers, the tensor %u dimensions",
                     tensor->name, what, n < 0 ? 0 : n, (unsigned)tensor->dims);
        return NULL;
    }
    uint64_t *numbers = room_for(self, (size_t)n, sizeof(*numbers));
    return numbers && take_numbers(given, what, numbers) >= 0 ? numbers : NULL;
}

static int
take_holding(struct stkpy_save *self, uint32_t idx, PyObject *given)
{
    stk_holding *holding = &self->holdings[idx];
    PyObject *ranks = PyObject_GetAttrString(given, "ranks");
    PyObject *shape = ranks ? PyObject_GetAttrString(given, "global_shape") : NULL;
    PyObject *start = shape ? PyObject_GetAttrString(given, "start") : NULL;
    int rc = start ? take_ranks(self, holding, ranks) : -1;

    if (rc == 0 && (shape != Py_None || start != Py_None)) {
        holding->global_shape = take_place(self, &self->tensors[idx], shape, "global_shape");
        holding->start =
            holding->global_shape ? take_place(self, &self->tensors[idx], start, "start") : NULL;
        rc = holding->start ? 0 : -1;
    }
    Py_XDECREF(start);
    Py_XDECREF(shape);
    Py_XDECREF(ranks);
    return rc;
}

/* Names one that is no tensor's. */
static void
refuse_names(const struct stkpy_save *self, PyObject *holdings)
{
    PyObject *names = PyMapping_Keys(holdings);

    for (Py_ssize_t at = 0; names && at < PyList_Size(names); at++) {
        PyObject *name = PyList_GetItem(names, at);
        const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
        bool is_known = false;

        for (uint32_t idx = 0; text && !is_known && idx < self->n_tensors; idx++)
            is_known = strcmp(self->tensors[idx].name, text) == 0;
        if (text && !is_known)
            PyErr_Format(PyExc_ValueError, "holdings names '%U', which is no tensor of this save",
                         name);
        if (!is_known)
            break;
    }
    Py_XDECREF(names);
}

int
stkpy_save_hold(struct stkpy_save *self, PyObject *holdings)
{
    Py_ssize_t n_found = 0;

    if (holdings == Py_None)
        return 0;
    Py_ssize_t n = PyMapping_Size(holdings);
    if (n < 0)
        return -1;
    self->holdings = PyMem_Calloc((size_t)self->n_tensors + 1, sizeof(*self->holdings));
    if (!self->holdings) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t idx = 0; idx < self->n_tensors; idx++) {
        PyObject *name = PyUnicode_FromString(self->tensors[idx].name);
        int has = name ? PySequence_Contains(holdings, name) : -1;
        PyObject *one = has > 0 ? PyObject_GetItem(holdings, name) : NULL;
        int rc = one ? take_holding(self, idx, one) : 0;

        n_found += has > 0;
        Py_XDECREF(one);
        Py_XDECREF(name);
        if (has < 0 || rc < 0 || (has > 0 && !one))
            return -1;
    }
    if (n_found != n)
        refuse_names(self, holdings);
    return PyErr_Occurred() ? -1 : 0;
}
