/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keyword arguments become fields of option structs by a table. Ranges are the library's
 * to check; here a value only has to fit its field.
 */
#include "binding.h"

PyObject *
stkpy_arguments(PyObject *args, PyObject *kwargs, const char *const *names)
{
    PyObject *arguments = kwargs ? PyDict_Copy(kwargs) : PyDict_New();

    for (Py_ssize_t at = 0; arguments && at < PyTuple_Size(args); at++) {
        int rc = -1;

        if (!names[at]) {
            PyErr_Format(PyExc_TypeError, "at most %zd positional arguments are taken, not %zd", at,
                         PyTuple_Size(args));
        } else {
            PyObject *given = PyUnicode_FromString(names[at]);
            int has = given ? PyDict_Contains(arguments, given) : -1;

            if (has > 0)
                PyErr_Format(PyExc_TypeError, "argument '%s' is given twice", names[at]);
            else if (has == 0)
                rc = PyDict_SetItem(arguments, given, PyTuple_GetItem(args, at));
            Py_XDECREF(given);
        }
        if (rc < 0)
            Py_CLEAR(arguments);
    }
    return arguments;
}

PyObject *
stkpy_arguments_pop(PyObject *arguments, const char *name)
{
    PyObject *key = PyUnicode_FromString(name);
    PyObject *value = key ? PyDict_GetItemWithError(arguments, key) : NULL;

    Py_XINCREF(value);
    if (value && PyDict_DelItem(arguments, key) < 0)
        Py_CLEAR(value);
    Py_XDECREF(key);
    return value;
}

PyObject *
stkpy_arguments_need(PyObject *arguments, const char *name, PyTypeObject *type)
{
    PyObject *value = stkpy_arguments_pop(arguments, name);

    if (!value && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "argument '%s' is required", name);
    if (value && type && !PyObject_TypeCheck(value, type)) {
        PyErr_Format(PyExc_TypeError, "argument '%s' is not of the type that it must be: %R", name,
                     (PyObject *)type);
        Py_CLEAR(value);
    }
    return value;
}

int
stkpy_arguments_end(PyObject *arguments, const char *callable)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;

    if (!PyDict_Next(arguments, &at, &name, &value))
        return 0;
    PyErr_Format(PyExc_TypeError, "%s does not know an argument '%S'", callable, name);
    return -1;
}

/* ---- values ------------------------------------------------------------------------ */

int
stkpy_u64(PyObject *object, const char *what, uint64_t *ret_value)
{
    PyObject *number = PyNumber_Index(object);
    unsigned long long value = number ? PyLong_AsUnsignedLongLong(number) : 0;

    Py_XDECREF(number);
    if (!PyErr_Occurred()) {
        *ret_value = value;
        return 0;
    }
    if (PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_Format(PyExc_OverflowError, "%s is %S: it must be in 0 .. 2^64 - 1", what, object);
    return -1;
}

static int
take_u32(PyObject *object, const char *what, uint32_t *ret_value)
{
    uint64_t value;

    if (stkpy_u64(object, what, &value) < 0)
        return -1;
    if (value >= UINT32_MAX) { /* the last one is STK_NONE */
        PyErr_Format(PyExc_OverflowError, "%s is %S: it must be below 2^32 - 1", what, object);
        return -1;
    }
    *ret_value = (uint32_t)value;
    return 0;
}

static int
take_i64(PyObject *object, const char *what, int64_t *ret_value)
{
    PyObject *number = PyNumber_Index(object);
    long long value = number ? PyLong_AsLongLong(number) : 0;

    Py_XDECREF(number);
    if (!PyErr_Occurred()) {
        *ret_value = value;
        return 0;
    }
    if (PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_Format(PyExc_OverflowError, "%s is %S: it must fit 64 bits", what, object);
    return -1;
}

static int
take_flag(PyObject *object, uint32_t if_true, uint32_t *ret_value)
{
    int truth = PyObject_IsTrue(object);

    if (truth >= 0)
        *ret_value = truth ? if_true : !if_true;
    return truth < 0 ? -1 : 0;
}

static void
refuse_name(PyObject *object, const char *what, const char *const *names)
{
    PyObject *known = PyUnicode_FromString(names[0]);

    for (size_t at = 1; known && names[at]; at++) {
        PyObject *more = PyUnicode_FromFormat("%U, %s", known, names[at]);

        Py_DECREF(known);
        known = more;
    }
    if (known)
        PyErr_Format(PyExc_ValueError, "%s %R is none of: %U", what, object, known);
    Py_XDECREF(known);
}

static int
take_name(PyObject *object, const char *what, const char *const *names, uint32_t *ret_value)
{
    for (uint32_t at = 0; PyUnicode_Check(object) && names[at]; at++)
        if (PyUnicode_CompareWithASCIIString(object, names[at]) == 0) {
            *ret_value = at;
            return 0;
        }
    refuse_name(object, what, names);
    return -1;
}

static int
take_text(PyObject *object, const char *what, PyObject *keep, const char **ret_text)
{
    Py_ssize_t n_bytes = 0;
    const char *text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &n_bytes) : NULL;

    if (!text) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "%s must be a string or None, not %R", what, object);
        return -1;
    }
    if ((size_t)n_bytes != strlen(text)) {
        PyErr_Format(PyExc_ValueError, "%s has a zero byte in it", what);
        return -1;
    }
    *ret_text = text;
    return PyList_Append(keep, object);
}

static int
take_path(PyObject *object, PyObject *keep, const char **ret_path)
{
    PyObject *bytes = NULL;
    int rc = -1;

    if (PyUnicode_FSConverter(object, &bytes)) {
        *ret_path = PyBytes_AsString(bytes);
        rc = *ret_path ? PyList_Append(keep, bytes) : -1;
    }
    Py_XDECREF(bytes);
    return rc;
}

/* Seconds that are more than 0: 0 would be the default. */
static int
take_ms(PyObject *object, const char *what, uint32_t *ret_value)
{
    double seconds = PyFloat_AsDouble(object);

    if (PyErr_Occurred())
        return -1;
    if (!(seconds > 0) || seconds > 1e6) {
        PyErr_Format(PyExc_ValueError, "%s is seconds, above 0 and at most 1e6, not %R", what,
                     object);
        return -1;
    }
    *ret_value = seconds < 1e-3 ? 1 : (uint32_t)(seconds * 1e3);
    return 0;
}

static int
take_count(PyObject *object, const char *what, uint32_t *ret_value)
{
    int rc = take_u32(object, what, ret_value);

    if (rc == 0 && *ret_value == 0)
        *ret_value = STK_NONE;
    return rc;
}

static int
take_value(PyObject *object, const struct stkpy_option *option, char *into, PyObject *keep)
{
    void *field = into + option->offset;

    if (object == Py_None && option->kind <= STKPY_LAST_OPTIONAL)
        return 0;
    switch (option->kind) {
    case STKPY_U32:
        return take_u32(object, option->name, field);
    case STKPY_U64:
        return stkpy_u64(object, option->name, field);
    case STKPY_I64:
        return take_i64(object, option->name, field);
    case STKPY_COUNT:
        return take_count(object, option->name, field);
    case STKPY_TEXT:
        return take_text(object, option->name, keep, field);
    case STKPY_PATH:
        return take_path(object, keep, field);
    case STKPY_MS:
        return take_ms(object, option->name, field);
    case STKPY_FLAG:
        return take_flag(object, 1, field);
    case STKPY_UNFLAG:
        return take_flag(object, 0, field);
    case STKPY_NAME:
        return take_name(object, option->name, option->names, field);
    }
    return -1; /* not reached: the switch is over all kinds */
}

int
stkpy_options_take(PyObject *arguments, const struct stkpy_option *options, void *into,
                   PyObject *keep)
{
    int n_taken = 0;

    for (const struct stkpy_option *option = options; option->name; option++) {
        PyObject *value = stkpy_arguments_pop(arguments, option->name);
        int rc = value ? take_value(value, option, into, keep) : 0;

        if (value)
            n_taken++;
        Py_XDECREF(value);
        if (rc < 0 || PyErr_Occurred())
            return -1;
    }
    return n_taken;
}

const char *
stkpy_path_need(PyObject *arguments, const char *name, PyObject *keep)
{
    const struct stkpy_option option[] = {{name, STKPY_PATH, 0, NULL}, {0}};
    const char *path = NULL;

    if (stkpy_options_take(arguments, option, &path, keep) < 0)
        return NULL;
    if (!path)
        PyErr_Format(PyExc_TypeError, "argument '%s' is required", name);
    return path;
}

int
stkpy_open(PyObject *object, PyObject *args, PyObject *kwargs, const struct stkpy_opening *opening)
{
    if (opening->is_open) {
        PyErr_Format(PyExc_RuntimeError, "%s open already", opening->what);
        return -1;
    }
    PyObject *keep = PyList_New(0);
    PyObject *arguments = keep ? stkpy_arguments(args, kwargs, opening->positional) : NULL;
    int rc = arguments ? opening->open(object, arguments, keep) : -1;
    Py_XDECREF(arguments);
    Py_XDECREF(keep);
    return rc;
}
