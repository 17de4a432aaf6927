/* SPDX-License-Identifier: Apache-2.0 */
/* Codes become exceptions; handles of another process are told apart. */
#include "binding.h"

#include <pthread.h>

static unsigned long fork_count;

/* Runs in the child of a fork, which has one thread. */
static void
count_fork(void)
{
    fork_count++;
}

int
stkpy_forks_watch(void)
{
    return -pthread_atfork(NULL, NULL, count_fork);
}

unsigned long
stkpy_forks(void)
{
    return fork_count;
}

int
stkpy_check(const void *handle, bool is_closing, unsigned long forks, const char *what)
{
    if (!handle || is_closing) {
        PyErr_Format(PyExc_ValueError, "%s is closed", what);
        return -1;
    }
    if (forks != stkpy_forks()) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s was opened before this process was forked; open one here (start workers "
                     "with 'spawn' or 'forkserver', or open after the fork)",
                     what);
        return -1;
    }
    return 0;
}

static PyObject *
none(void)
{
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *
make_error(int code, const char *message, const char *path, uint64_t sample, int rank)
{
    bool has_path = path[0] != '\0';
    bool has_sample = sample != STK_NO_SAMPLE;
    PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "surrogateescape");
    PyObject *where = has_path ? PyUnicode_DecodeFSDefault(path) : none();
    PyObject *which = has_sample ? PyLong_FromUnsignedLongLong(sample) : none();
    PyObject *whose = rank >= 0 ? PyLong_FromLong(rank) : none();
    PyObject *error = NULL;

    if (text && where && which && whose)
        error = PyObject_CallFunction(stkpy_error, "iOOOO", code, text, where, which, whose);
    Py_XDECREF(whose);
    Py_XDECREF(which);
    Py_XDECREF(where);
    Py_XDECREF(text);
    return error;
}

PyObject *
stkpy_error_from(const stk_error *err)
{
    return make_error(err->code, err->message, err->path, err->sample, err->rank);
}

static PyObject *
raise_error(int code, const char *message, const char *path, uint64_t sample, int rank)
{
    PyObject *error = make_error(code, message, path, sample, rank);

    if (error)
        PyErr_SetObject(stkpy_error, error);
    Py_XDECREF(error);
    return NULL;
}

PyObject *
stkpy_raise(int code, const stk_error *err)
{
    if (!err || err->message[0] == '\0')
        return stkpy_raise_message(code, stk_strerror(code));
    return raise_error(code, err->message, err->path, err->sample, err->rank);
}

PyObject *
stkpy_raise_message(int code, const char *message)
{
    return raise_error(code, message, "", STK_NO_SAMPLE, -1);
}

int
stkpy_dict_set(PyObject *dict, const char *name, PyObject *value)
{
    int rc = value ? PyDict_SetItemString(dict, name, value) : -1;

    Py_XDECREF(value);
    return rc;
}
