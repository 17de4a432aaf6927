/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stoker.Comm as the library takes it. It is plain data, of which only attributes are
 * asked for; its exchange is called once, on the thread that opens the engine, which
 * takes the interpreter's lock for it. What it raises is what opening raises.
 */
#include "comm.h"

#include <errno.h>

#define AT(member) offsetof(stk_comm_opts, member)

static const struct stkpy_option options[] = {
    {"rank", STKPY_U32, AT(rank), NULL},
    {"world", STKPY_U32, AT(world), NULL},
    {"host", STKPY_TEXT, AT(host), NULL},
    {"port", STKPY_U32, AT(port), NULL},
    {"secret", STKPY_TEXT, AT(secret), NULL},
    {"method", STKPY_TEXT, AT(method), NULL},
    {"node", STKPY_TEXT, AT(node), NULL},
    {"transports", STKPY_TEXT, AT(transports), NULL},
    {"start_timeout", STKPY_MS, AT(start_timeout_ms), NULL},
    {"timeout", STKPY_MS, AT(timeout_ms), NULL},
    {"close_timeout", STKPY_MS, AT(close_timeout_ms), NULL},
    {"tiers_per_rank", STKPY_FLAG, AT(tiers_per_rank), NULL},
    {0},
};

/* ---- exchange ---------------------------------------------------------------------- */

static int
take_answer(const struct stkpy_comm *self, PyObject *answer, size_t n_bytes, char *all)
{
    Py_ssize_t n = PySequence_Size(answer);

    if (n < 0)
        return -1;
    if (n != (Py_ssize_t)self->opts.world) {
        PyErr_Format(PyExc_ValueError, "exchange gave %zd ranks' bytes, of %u ranks", n,
                     (unsigned)self->opts.world);
        return -1;
    }
    for (Py_ssize_t rank = 0; rank < n; rank++) {
        PyObject *one = PySequence_GetItem(answer, rank);
        char *bytes = NULL;
        Py_ssize_t length = 0;
        int rc = one ? PyBytes_AsStringAndSize(one, &bytes, &length) : -1;

        if (rc == 0 && (size_t)length != n_bytes) {
            PyErr_Format(PyExc_ValueError, "exchange gave %zd bytes of rank %zd, not %zd", length,
                         rank, (Py_ssize_t)n_bytes);
            rc = -1;
        }
        if (rc == 0)
            memcpy(all + (size_t)rank * n_bytes, bytes, n_bytes);
        Py_XDECREF(one);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* Called by the library, without the interpreter's lock. */
static int
exchange(void *context, const void *mine, size_t n_bytes, void *all)
{
    struct stkpy_comm *self = context;

    PyEval_RestoreThread(self->thread);
    PyObject *answer =
        PyObject_CallFunction(self->exchange, "y#", (const char *)mine, (Py_ssize_t)n_bytes);
    int rc = answer ? take_answer(self, answer, n_bytes, all) : -1;
    Py_XDECREF(answer);
    self->thread = PyEval_SaveThread();
    return rc < 0 ? -ECANCELED : 0;
}

/* ---- the description --------------------------------------------------------------- */

/* Puts an attribute into a dictionary. Returns 0, or -1 with an error set. */
static int
copy_attribute(PyObject *dict, PyObject *comm, const char *name)
{
    return stkpy_dict_set(dict, name, PyObject_GetAttrString(comm, name));
}

static int
take_fields(struct stkpy_comm *self, PyObject *comm, PyObject *keep)
{
    PyObject *fields = PyDict_New();
    int rc = fields ? 0 : -1;

    for (const struct stkpy_option *option = options; rc == 0 && option->name; option++)
        rc = copy_attribute(fields, comm, option->name);
    if (rc == 0)
        rc = stkpy_options_take(fields, options, &self->opts, keep);
    Py_XDECREF(fields);
    return rc < 0 ? -1 : 0;
}

static int
take_hosts(struct stkpy_comm *self, PyObject *hosts, PyObject *keep)
{
    Py_ssize_t n = hosts == Py_None ? 0 : PySequence_Size(hosts);

    if (n <= 0)
        return n < 0 ? -1 : 0;
    self->hosts = PyMem_Calloc((size_t)n, sizeof(*self->hosts));
    if (!self->hosts) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t at = 0; at < n; at++) {
        PyObject *host = PySequence_GetItem(hosts, at);
        int rc = host ? PyList_Append(keep, host) : -1;

        if (rc == 0)
            self->hosts[at] = PyUnicode_AsUTF8AndSize(host, NULL);
        Py_XDECREF(host);
        if (rc < 0 || !self->hosts[at])
            return -1;
    }
    self->opts.hosts = self->hosts;
    self->opts.n_hosts = (uint32_t)n;
    return 0;
}

int
stkpy_comm_init(struct stkpy_comm *self, PyObject *comm, PyObject *keep)
{
    *self = (struct stkpy_comm){.opts = {STK_COMM_OPTS_INIT}};
    int rc = take_fields(self, comm, keep);
    PyObject *hosts = rc == 0 ? PyObject_GetAttrString(comm, "hosts") : NULL;
    rc = hosts ? take_hosts(self, hosts, keep) : -1;
    Py_XDECREF(hosts);
    if (rc == 0)
        self->exchange = PyObject_GetAttrString(comm, "exchange");
    if (!self->exchange)
        return -1;
    if (self->exchange == Py_None)
        return 0;
    if (!PyCallable_Check(self->exchange)) {
        PyErr_Format(PyExc_TypeError, "exchange is a function or None, not %R", self->exchange);
        return -1;
    }
    self->opts.exchange = exchange;
    self->opts.exchange_context = self;
    return 0;
}

void
stkpy_comm_fini(struct stkpy_comm *self)
{
    Py_CLEAR(self->exchange);
    PyMem_Free(self->hosts);
    self->hosts = NULL;
}
