/* SPDX-License-Identifier: Apache-2.0 */
/* stoker.Engine. */
#include "comm.h"

#define AT(member) offsetof(stk_engine_opts, member)

static const struct stkpy_option options[] = {
    {"tiers", STKPY_TEXT, AT(tiers), NULL},
    {"io_method", STKPY_TEXT, AT(io_method), NULL},
    {"shape", STKPY_TEXT, AT(shape), NULL},
    {"ssd_shape", STKPY_TEXT, AT(ssd_shape), NULL},
    {"cache_dir", STKPY_PATH, AT(cache_dir), NULL},
    {"buffered", STKPY_FLAG, AT(buffered), NULL},
    {"workers", STKPY_U32, AT(workers), NULL},
    {"queue_depth", STKPY_U32, AT(queue_depth), NULL},
    {"io_threads", STKPY_U32, AT(io_threads), NULL},
    {"max_open_files", STKPY_U32, AT(max_open_files), NULL},
    {0},
};

static const char *const positional[] = {"tiers", NULL};

/* comm: empty; ended by the caller. */
static int
take_options(PyObject *args, PyObject *kwargs, stk_engine_opts *opts, struct stkpy_comm *comm,
             PyObject *keep)
{
    PyObject *arguments = stkpy_arguments(args, kwargs, positional);
    int rc = arguments ? stkpy_options_take(arguments, options, opts, keep) : -1;
    PyObject *given = rc >= 0 ? stkpy_arguments_pop(arguments, "comm") : NULL;

    if (PyErr_Occurred())
        rc = -1;
    if (rc >= 0 && given && given != Py_None) {
        rc = stkpy_comm_init(comm, given, keep);
        opts->comm = &comm->opts;
    }
    Py_XDECREF(given);
    if (rc >= 0)
        rc = stkpy_arguments_end(arguments, "Engine");
    Py_XDECREF(arguments);
    return rc;
}

static int
engine_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    struct stkpy_engine *self = (struct stkpy_engine *)object;
    stk_engine_opts opts = {STK_ENGINE_OPTS_INIT};
    struct stkpy_comm comm = {.exchange = NULL};
    stk_engine *engine = NULL;
    stk_error err = {0};
    PyObject *keep = PyList_New(0);
    int rc = keep ? take_options(args, kwargs, &opts, &comm, keep) : -1;

    if (rc == 0 && self->engine) {
        PyErr_SetString(PyExc_RuntimeError, "the engine is open already");
        rc = -1;
    } else if (rc == 0) {
        comm.thread = PyEval_SaveThread();
        rc = stk_engine_open(&engine, &opts, &err);
        PyEval_RestoreThread(comm.thread);
        if (rc < 0 && !PyErr_Occurred()) /* else exchange has raised */
            stkpy_raise(rc, &err);
    }
    stkpy_comm_fini(&comm);
    Py_XDECREF(keep);
    if (rc < 0)
        return -1;
    self->engine = engine;
    self->rank = opts.comm ? comm.opts.rank : 0;
    self->world = opts.comm ? comm.opts.world : 1;
    self->forks = stkpy_forks();
    return 0;
}

static void
close_now(struct stkpy_engine *self)
{
    stk_engine *engine = self->engine;

    self->engine = NULL;
    if (!engine || self->forks != stkpy_forks()) /* its threads are another process's */
        return;
    PyThreadState *thread = PyEval_SaveThread();
    stk_engine_close(engine);
    PyEval_RestoreThread(thread);
}

void
stkpy_engine_put(struct stkpy_engine *self)
{
    if (--self->n_users == 0 && self->is_closing)
        close_now(self);
}

static PyObject *
engine_close(PyObject *object, PyObject *unused)
{
    struct stkpy_engine *self = (struct stkpy_engine *)object;

    (void)unused;
    self->is_closing = true;
    if (self->n_users == 0)
        close_now(self);
    Py_RETURN_NONE;
}

static void
engine_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    close_now((struct stkpy_engine *)object);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int
engine_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    return 0;
}

int
stkpy_engine_check(const struct stkpy_engine *self)
{
    return stkpy_check(self->engine, self->is_closing, self->forks, "the engine");
}

static PyObject *
engine_stats(PyObject *object, PyObject *unused)
{
    struct stkpy_engine *self = (struct stkpy_engine *)object;
    stk_engine_stats stats = {STK_ENGINE_STATS_INIT};

    (void)unused;
    if (stkpy_engine_check(self) < 0)
        return NULL;
    int rc = stk_engine_get_stats(self->engine, &stats);
    if (rc < 0)
        return stkpy_raise(rc, NULL);
    return Py_BuildValue("{sKsKsKsKsKsK}", "reads", (unsigned long long)stats.reads, "read_bytes",
                         (unsigned long long)stats.read_bytes, "submit_calls",
                         (unsigned long long)stats.submit_calls, "loop_wakeups",
                         (unsigned long long)stats.loop_wakeups, "io_errors",
                         (unsigned long long)stats.io_errors, "allocations",
                         (unsigned long long)stats.allocations);
}

static PyObject *
engine_io_method(PyObject *object, void *unused)
{
    struct stkpy_engine *self = (struct stkpy_engine *)object;

    (void)unused;
    return stkpy_engine_check(self) < 0 ? NULL
                                        : PyUnicode_FromString(stk_engine_io_method(self->engine));
}

static PyObject *
engine_rank(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(((struct stkpy_engine *)object)->rank);
}

static PyObject *
engine_world(PyObject *object, void *unused)
{
    const struct stkpy_engine *self = (const struct stkpy_engine *)object;

    (void)unused;
    return PyLong_FromUnsignedLong(self->world ? self->world : 1);
}

static PyObject *
engine_enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    if (stkpy_engine_check((struct stkpy_engine *)object) < 0)
        return NULL;
    Py_INCREF(object);
    return object;
}

static PyMethodDef methods[] = {
    {"stats", engine_stats, METH_NOARGS,
     "stats($self, /)\n--\n\nWhat it has done, as a dictionary."},
    {"close", engine_close, METH_NOARGS,
     "close($self, /)\n--\n\nStops it, as soon as no data set or loader uses it any more."},
    {"__enter__", engine_enter, METH_NOARGS, NULL},
    {"__exit__", engine_close, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"io_method", engine_io_method, NULL, "How it reads: 'uring' or 'sync'.", NULL},
    {"rank", engine_rank, NULL, "This rank, as comm says; else 0.", NULL},
    {"world", engine_world, NULL, "How many ranks comm has; else 1.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Engine(tiers=None, *, io_method=None, shape=None, ssd_shape=None, cache_dir=None, "
                "buffered=False, workers=None, queue_depth=None, io_threads=None, "
                "max_open_files=None, comm=None)\n--\n\n"
                "What a process opens once: threads, memory and tiers that data sets and loaders "
                "share.\ntiers: 'ram:32G ssd:/nvme/cache:200G'. comm: a Comm, the way to the "
                "other ranks of the job; opening then waits for all of them."},
    {Py_tp_init, engine_init},
    {Py_tp_dealloc, engine_dealloc},
    {Py_tp_traverse, engine_traverse},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {0, NULL},
};

PyType_Spec stkpy_engine_spec = {
    .name = "stoker.Engine",
    .basicsize = sizeof(struct stkpy_engine),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};
