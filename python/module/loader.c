/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stoker.Loader.
 *
 * next first looks with the interpreter's lock held: a batch that is there costs no
 * hand-over of the lock. Otherwise it drops the lock and waits in slices, and between two
 * of them lets Python look at its signals: no handler is replaced, no thread is added,
 * and a slice costs one wake-up and only while something waits.
 *
 * Invariant: one thread at a time is in a call of the library (is_busy). What must not
 * wait for it is put aside and done when it comes out or between two slices: batches that
 * another thread drops, and closing.
 */
#include "binding.h"

#include <errno.h>
#include <structmember.h>

#define SLICE_NS UINT64_C(25000000)
#define BORROW_DEFAULT 4 /* more than C's: a name holds its batch until it gets another value */

#define AT(member) offsetof(stk_loader_opts, member)

static const char *const policy_names[] = {"default",  "none",        "pin",   "lru",
                                           "next-use", "coordinated", "paper", NULL};
static const char *const layout_names[] = {"auto", "raw", "fixed", NULL};
static const char *const bad_names[] = {"default", "fail", "replace", NULL};

static const struct stkpy_option options[] = {
    {"batch_size", STKPY_U32, AT(batch_size), NULL},
    {"epochs", STKPY_U64, AT(epochs), NULL},
    {"drop_last", STKPY_FLAG, AT(drop_last), NULL},
    {"horizon_epochs", STKPY_U32, AT(horizon_epochs), NULL},
    {"policy", STKPY_NAME, AT(policy), policy_names},
    {"layout", STKPY_NAME, AT(layout), layout_names},
    {"bad_sample", STKPY_NAME, AT(bad_sample), bad_names},
    {"ram_bytes", STKPY_U64, AT(ram_bytes), NULL},
    {"ssd_bytes", STKPY_U64, AT(ssd_bytes), NULL},
    {"staging_bytes", STKPY_U64, AT(staging_bytes), NULL},
    {"staging_batches", STKPY_U32, AT(staging_batches), NULL},
    {"borrow_max", STKPY_U32, AT(borrow_max), NULL},
    {"retries", STKPY_COUNT, AT(retries), NULL},
    {0},
};

static const char *const positional[] = {"engine", "dataset", "batch_size", "epochs", NULL};

/* ---- opening ----------------------------------------------------------------------- */

/* The order: an Order, or its kind and arguments among the loader's own. */
static int
take_order(PyObject *arguments, stk_order_opts *order, PyObject *keep)
{
    PyObject *given = PyDict_GetItemString(arguments, "order");
    bool is_order = given && PyObject_TypeCheck(given, stkpy_order_type);

    if (is_order) {
        *order = ((struct stkpy_order *)given)->opts;
        if (PyDict_DelItemString(arguments, "order") < 0)
            return -1;
    } else if (stkpy_options_take(arguments, stkpy_order_kind_options, order, keep) < 0) {
        return -1;
    }
    int n_taken = stkpy_options_take(arguments, stkpy_order_options, order, keep);
    if (n_taken > 0 && is_order) {
        PyErr_SetString(PyExc_TypeError,
                        "order is an Order, so seed, world and the like are in it: leave them out");
        return -1;
    }
    return n_taken < 0 ? -1 : 0;
}

/* What is read, by what. */
static int
take_objects(struct stkpy_loader *self, PyObject *arguments)
{
    PyObject *engine = stkpy_arguments_need(arguments, "engine", stkpy_engine_type);

    self->engine = (struct stkpy_engine *)engine;
    if (!engine)
        return -1;
    PyObject *dataset = stkpy_arguments_need(arguments, "dataset", stkpy_dataset_type);
    self->dataset = (struct stkpy_dataset *)dataset;
    if (!dataset)
        return -1;
    if (self->dataset->engine != self->engine) {
        PyErr_SetString(PyExc_ValueError, "the data set was opened with another engine");
        return -1;
    }
    if (stkpy_engine_check(self->engine) < 0)
        return -1;
    return stkpy_check(self->dataset->dataset, self->dataset->is_closing, self->dataset->forks,
                       "the data set");
}

static int
open_loader(struct stkpy_loader *self, const stk_loader_opts *opts)
{
    stk_engine *engine = self->engine->engine;
    stk_dataset *dataset = self->dataset->dataset;
    stk_loader *loader = NULL;
    stk_error err = {0};

    self->engine->n_users++; /* so that both stay open meanwhile */
    self->dataset->n_users++;
    PyThreadState *thread = PyEval_SaveThread();
    int rc = stk_loader_open(&loader, engine, dataset, opts, &err);
    PyEval_RestoreThread(thread);
    if (rc == 0) {
        self->returned = PyMem_Calloc(opts->borrow_max, sizeof(*self->returned));
        rc = self->returned ? 0 : -ENOMEM;
    }
    if (rc < 0) {
        stk_loader_close(loader);
        stkpy_dataset_put(self->dataset);
        stkpy_engine_put(self->engine);
        stkpy_raise(rc, &err);
        return -1;
    }
    self->loader = loader;
    self->forks = stkpy_forks();
    return 0;
}

static int
init_from(PyObject *object, PyObject *arguments, PyObject *keep)
{
    struct stkpy_loader *self = (struct stkpy_loader *)object;
    stk_order_opts order = {STK_ORDER_OPTS_INIT};
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .order = &order};

    if (!PyDict_GetItemString(arguments, "epochs"))
        opts.epochs = 1; /* None, which leaves 0, is the run without an end */
    if (take_objects(self, arguments) < 0 || take_order(arguments, &order, keep) < 0 ||
        stkpy_options_take(arguments, options, &opts, keep) < 0 ||
        stkpy_arguments_end(arguments, "Loader") < 0)
        return -1;
    if (opts.borrow_max == 0) {
        bool has_fewer = opts.staging_batches > 0 && opts.staging_batches < BORROW_DEFAULT;

        opts.borrow_max = has_fewer ? opts.staging_batches : BORROW_DEFAULT;
    }
    stkpy_layout_of(&self->layout, &self->dataset->info);
    return open_loader(self, &opts);
}

static int
loader_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    const struct stkpy_opening opening = {
        .what = "the loader is",
        .is_open = ((struct stkpy_loader *)object)->engine != NULL,
        .positional = positional,
        .open = init_from,
    };

    return stkpy_open(object, args, kwargs, &opening);
}

/* ---- closing ----------------------------------------------------------------------- */

static void
close_now(struct stkpy_loader *self)
{
    stk_loader *loader = self->loader;

    if (!loader)
        return;
    self->loader = NULL;
    if (self->forks == stkpy_forks()) {
        PyThreadState *thread = PyEval_SaveThread();
        stk_loader_close(loader);
        PyEval_RestoreThread(thread);
    }
    stkpy_dataset_put(self->dataset);
    stkpy_engine_put(self->engine);
}

static void
close_if_unused(struct stkpy_loader *self)
{
    if (self->is_closing && !self->is_busy && self->n_exports == 0)
        close_now(self);
}

void
stkpy_loader_put(struct stkpy_loader *self)
{
    self->n_exports--;
    close_if_unused(self);
}

static PyObject *
loader_close(PyObject *object, PyObject *unused)
{
    struct stkpy_loader *self = (struct stkpy_loader *)object;

    (void)unused;
    self->is_closing = true;
    if (self->is_busy && self->loader)
        stk_loader_interrupt(self->loader); /* who waits comes out and closes */
    close_if_unused(self);
    Py_RETURN_NONE;
}

static void
loader_dealloc(PyObject *object)
{
    struct stkpy_loader *self = (struct stkpy_loader *)object;
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    close_now(self);
    PyMem_Free(self->returned);
    Py_XDECREF((PyObject *)self->dataset);
    Py_XDECREF((PyObject *)self->engine);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int
loader_traverse(PyObject *object, visitproc visit, void *arg)
{
    struct stkpy_loader *self = (struct stkpy_loader *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)self->dataset);
    Py_VISIT((PyObject *)self->engine);
    return 0;
}

/* ---- calls ------------------------------------------------------------------------- */

static int
check(struct stkpy_loader *self)
{
    return stkpy_check(self->loader, self->is_closing, self->forks, "the loader");
}

/* Gives back what was put aside. The caller is the thread that may call the library. */
static void
flush(struct stkpy_loader *self)
{
    while (self->n_returned > 0)
        (void)stk_loader_release(self->loader, &self->returned[--self->n_returned]); /* is out */
}

int
stkpy_loader_begin(struct stkpy_loader *self)
{
    if (check(self) < 0)
        return -1;
    if (self->is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "the loader is in use by another thread");
        return -1;
    }
    self->is_busy = true;
    return 0;
}

void
stkpy_loader_end(struct stkpy_loader *self)
{
    self->is_busy = false;
    flush(self);
    close_if_unused(self);
}

void
stkpy_loader_give_back(struct stkpy_loader *self, const stk_batch *batch)
{
    stk_batch own = *batch; /* release clears what it is given; the caller keeps the numbers */

    self->n_out--;
    if (!self->loader || self->forks != stkpy_forks())
        return;
    if (self->is_busy)
        self->returned[self->n_returned++] = own; /* at most borrow_max are out */
    else
        (void)stk_loader_release(self->loader, &own); /* is out */
}

/* ---- batches ----------------------------------------------------------------------- */

/* The library's result, or -ETIMEDOUT with an exception that a signal's handler has
 * raised. */
static int
wait_for_batch(struct stkpy_loader *self, stk_batch *batch)
{
    int rc = stk_loader_next_timeout(self->loader, batch, 0);

    while (rc == -ETIMEDOUT) {
        flush(self);
        if (PyErr_CheckSignals() < 0)
            return rc;
        PyThreadState *thread = PyEval_SaveThread();
        rc = stk_loader_next_timeout(self->loader, batch, SLICE_NS);
        PyEval_RestoreThread(thread);
    }
    return rc;
}

static PyObject *
raise_next(struct stkpy_loader *self, int rc)
{
    stk_error err = {0};

    if (rc == STK_E_BORROW)
        return stkpy_raise_message(rc, "as many batches as borrow_max allows are held, by "
                                       "themselves or by arrays made from them; drop one first");
    if (rc == STK_E_SAMPLE && stk_loader_last_error(self->loader, &err) == 0)
        return stkpy_raise(rc, &err);
    if (rc == -EINTR)
        return stkpy_raise_message(rc, "the wait was interrupted");
    if (rc == -EAGAIN)
        return stkpy_raise_message(rc, "nothing is pushed that makes a batch");
    return stkpy_raise(rc, NULL);
}

static PyObject *
loader_next(PyObject *object)
{
    struct stkpy_loader *self = (struct stkpy_loader *)object;

    if (stkpy_loader_begin(self) < 0)
        return NULL;
    struct stkpy_batch *batch = stkpy_batch_new(self); /* before: so that none can be lost */
    int rc = batch ? wait_for_batch(self, &batch->batch) : -ENOMEM;
    if (rc == STK_BATCH) {
        batch->is_out = true;
        self->n_out++;
    } else if (rc != STK_END && !PyErr_Occurred()) {
        raise_next(self, rc);
    }
    stkpy_loader_end(self);
    if (rc == STK_BATCH)
        return (PyObject *)batch;
    Py_XDECREF((PyObject *)batch);
    return NULL;
}

/* The batches up to the end of an epoch; over for good after it, or after an error. */
struct epoch {
    PyObject_HEAD struct stkpy_loader *loader; /* NULL: over */
};

static PyObject *
loader_epoch(PyObject *object, PyObject *unused)
{
    (void)unused;
    if (check((struct stkpy_loader *)object) < 0)
        return NULL;
    struct epoch *epoch = PyObject_GC_New(struct epoch, stkpy_epoch_type);
    if (!epoch)
        return NULL;
    Py_INCREF(object);
    epoch->loader = (struct stkpy_loader *)object;
    PyObject_GC_Track((PyObject *)epoch);
    return (PyObject *)epoch;
}

static PyObject *
epoch_next(PyObject *object)
{
    struct epoch *epoch = (struct epoch *)object;

    if (!epoch->loader)
        return NULL;
    PyObject *batch = loader_next((PyObject *)epoch->loader);
    if (!batch || ((struct stkpy_batch *)batch)->batch.last_of_epoch)
        Py_CLEAR(epoch->loader);
    return batch;
}

static void
epoch_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    Py_XDECREF((PyObject *)((struct epoch *)object)->loader);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int
epoch_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)((struct epoch *)object)->loader);
    return 0;
}

static PyObject *
loader_interrupt(PyObject *object, PyObject *unused)
{
    struct stkpy_loader *self = (struct stkpy_loader *)object;

    (void)unused;
    if (check(self) < 0)
        return NULL;
    stk_loader_interrupt(self->loader);
    Py_RETURN_NONE;
}

static PyObject *
loader_leave(PyObject *object, PyObject *unused)
{
    struct stkpy_loader *self = (struct stkpy_loader *)object;

    (void)unused;
    if (stkpy_loader_begin(self) < 0)
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    int rc = stk_loader_leave(self->loader);
    PyEval_RestoreThread(thread);
    stkpy_loader_end(self);
    if (rc < 0)
        return stkpy_raise(rc, NULL);
    Py_RETURN_NONE;
}

static PyObject *
loader_enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    if (check((struct stkpy_loader *)object) < 0)
        return NULL;
    Py_INCREF(object);
    return object;
}

/* ---- positions --------------------------------------------------------------------- */

static PyObject *
result_of(int rc, const char *message)
{
    if (rc == -EBUSY)
        return stkpy_raise_message(rc, "batches are held, by themselves or by arrays made from "
                                       "them; drop them first");
    if (rc < 0)
        return stkpy_raise_message(rc, message);
    Py_RETURN_NONE;
}

static PyObject *
loader_seek(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"epoch", "epoch_step", NULL};
    struct stkpy_loader *self = (struct stkpy_loader *)object;
    PyObject *epoch_given, *step_given = NULL;
    uint64_t epoch, epoch_step = 0;
    int rc;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:seek", names, &epoch_given, &step_given) ||
        stkpy_u64(epoch_given, "epoch", &epoch) < 0 ||
        (step_given && stkpy_u64(step_given, "epoch_step", &epoch_step) < 0) ||
        stkpy_loader_begin(self) < 0)
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    rc = stk_loader_seek(self->loader, epoch, epoch_step);
    PyEval_RestoreThread(thread);
    stkpy_loader_end(self);
    return result_of(rc, rc == -ERANGE ? "the run has no such batch" : stk_strerror(rc));
}

static PyObject *
loader_state(PyObject *object, PyObject *unused)
{
    struct stkpy_loader *self = (struct stkpy_loader *)object;
    char state[STK_LOADER_STATE_SIZE];
    size_t n_bytes;

    (void)unused;
    if (stkpy_loader_begin(self) < 0)
        return NULL;
    int rc = stk_loader_save_state(self->loader, state, &n_bytes);
    stkpy_loader_end(self);
    if (rc == -ENOTSUP)
        return stkpy_raise_message(rc, "a pushed list has no state");
    return rc < 0 ? stkpy_raise(rc, NULL) : PyBytes_FromStringAndSize(state, (Py_ssize_t)n_bytes);
}

static PyObject *
loader_restore(PyObject *object, PyObject *state)
{
    struct stkpy_loader *self = (struct stkpy_loader *)object;
    stk_error err = {0};
    Py_buffer view;
    int rc;

    if (PyObject_GetBuffer(state, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (stkpy_loader_begin(self) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    PyThreadState *thread = PyEval_SaveThread();
    rc = stk_loader_restore_state(self->loader, view.buf, (size_t)view.len, &err);
    PyEval_RestoreThread(thread);
    stkpy_loader_end(self);
    PyBuffer_Release(&view);
    return rc < 0 && rc != -EBUSY ? stkpy_raise(rc, &err) : result_of(rc, "");
}

/* ---- types ------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"epoch", loader_epoch, METH_NOARGS,
     "epoch($self, /)\n--\n\nThe batches from where the loader is to the end of that epoch."},
    {"state", loader_state, METH_NOARGS,
     "state($self, /)\n--\n\nThe position, as bytes: what next() would return."},
    {"restore", loader_restore, METH_O,
     "restore($self, state, /)\n--\n\nGoes to a saved position."},
    {"seek", STKPY_METHOD(loader_seek), METH_VARARGS | METH_KEYWORDS,
     "seek($self, epoch, epoch_step=0)\n--\n\nGoes to a batch of an epoch."},
    {"push", STKPY_METHOD(stkpy_loader_push), METH_VARARGS | METH_KEYWORDS,
     "push($self, ids=(), *, end_epoch=False, end_run=False)\n--\n\nWith order='list': appends ids "
     "(integers, or a buffer of 64-bit ones) to the epoch."},
    {"stats", STKPY_METHOD(stkpy_loader_stats), METH_VARARGS | METH_KEYWORDS,
     "stats($self, epoch=None)\n--\n\nWhat an epoch, or the whole run, has done, as a dictionary."},
    {"warning", stkpy_loader_warning, METH_NOARGS,
     "warning($self, /)\n--\n\nThe last thing that went worse than asked for, as an Error, or "
     "None."},
    {"replacements", stkpy_loader_replacements, METH_NOARGS,
     "replacements($self, /)\n--\n\nWhat was replaced: (epoch, sample, replacement, code) each."},
    {"leave", loader_leave, METH_NOARGS,
     "leave($self, /)\n--\n\nOf ranks: no more batches are wanted. Serves the others until they "
     "are done, as close() does, and stays open for stats()."},
    {"interrupt", loader_interrupt, METH_NOARGS,
     "interrupt($self, /)\n--\n\nEnds the wait that another thread is in, or the next one."},
    {"close", loader_close, METH_NOARGS,
     "close($self, /)\n--\n\nStops it, as soon as no buffer into it is held any more."},
    {"__enter__", loader_enter, METH_NOARGS, NULL},
    {"__exit__", loader_close, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef loader_members[] = {
    {"borrowed", T_UINT, offsetof(struct stkpy_loader, n_out), READONLY,
     "Batches that are out: held, or shown by an array or a view that is."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot loader_slots[] = {
    {Py_tp_doc,
     "Loader(engine, dataset, batch_size, epochs=1, *, order='torch', seed=0, "
     "sampler='distributed', world=1, rank=0, shuffle=True, drop_uneven=False, "
     "legacy_torch=False, replacement=False, num_samples=None, workers='none', drop_last=False, "
     "horizon_epochs=None, policy='next-use', layout='auto', bad_sample='fail', retries=None, "
     "ram_bytes=None, ssd_bytes=None, staging_bytes=None, staging_batches=None, "
     "borrow_max=None)\n--\n\n"
     "Iterates over the batches of a run, each in memory when it is asked for."},
    {Py_tp_init, loader_init},
    {Py_tp_dealloc, loader_dealloc},
    {Py_tp_traverse, loader_traverse},
    {Py_tp_methods, methods},
    {Py_tp_members, loader_members},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, loader_next},
    {0, NULL},
};

PyType_Spec stkpy_loader_spec = {
    .name = "stoker.Loader",
    .basicsize = sizeof(struct stkpy_loader),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = loader_slots,
};

static PyType_Slot epoch_slots[] = {
    {Py_tp_doc, "The batches of an epoch."},
    {Py_tp_new, stkpy_no_new},
    {Py_tp_dealloc, epoch_dealloc},
    {Py_tp_traverse, epoch_traverse},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, epoch_next},
    {0, NULL},
};

PyType_Spec stkpy_epoch_spec = {
    .name = "stoker.Epoch",
    .basicsize = sizeof(struct epoch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = epoch_slots,
};
