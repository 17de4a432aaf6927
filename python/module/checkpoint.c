/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stoker.Checkpoints: a directory of checkpoints, saved to and read from.
 *
 * Invariant: memory of a stable tensor is held by a view on the list held from save()
 * until a wait has seen all saves captured, or the directory is closed. Waits are in
 * slices, between which Python looks at its signals, as those of a loader.
 */
#include "checkpoint.h"

#include <errno.h>

#define SLICE_NS UINT64_C(25000000)
#define NS_PER_S 1e9

#define AT(member) offsetof(stk_ckpt_opts, member)

static const char *const writers[] = {"all", "node", "socket", NULL};

static const struct stkpy_option options[] = {
    {"roots", STKPY_TEXT, AT(roots), NULL},
    {"slot_bytes", STKPY_U64, AT(slot_bytes), NULL},
    {"slots", STKPY_U32, AT(slots), NULL},
    {"chunk_bytes", STKPY_U32, AT(chunk_bytes), NULL},
    {"outstanding", STKPY_U32, AT(outstanding), NULL},
    {"keep", STKPY_COUNT, AT(keep), NULL},
    {"buffered", STKPY_FLAG, AT(buffered), NULL},
    {"read_only", STKPY_FLAG, AT(read_only), NULL},
    {"alone", STKPY_FLAG, AT(alone), NULL},
    {"vote_timeout", STKPY_MS, AT(vote_timeout_ms), NULL},
    {"check_replicas", STKPY_FLAG, AT(check_replicas), NULL},
    {"writers", STKPY_NAME, AT(writers), writers},
    {"shared", STKPY_PATH, AT(shared), NULL},
    {"shared_every", STKPY_COUNT, AT(shared_every), NULL},
    {"shared_keep", STKPY_U32, AT(shared_keep), NULL},
    {"node_local", STKPY_FLAG, AT(node_local), NULL},
    {"partner", STKPY_FLAG, AT(partner), NULL},
    {0},
};

static const char *const positional[] = {"engine", "directory", NULL};

/* ---- life -------------------------------------------------------------------------- */

static int
open_ckpt(struct stkpy_ckpt *self, const char *directory, const stk_ckpt_opts *opts)
{
    stk_engine *engine = self->engine->engine;
    stk_ckpt *ckpt = NULL;
    stk_error err = {0};

    self->engine->n_users++; /* so that it stays open meanwhile */
    PyThreadState *thread = PyEval_SaveThread();
    int rc = stk_ckpt_open(&ckpt, engine, directory, opts, &err);
    PyEval_RestoreThread(thread);
    if (rc < 0) {
        stkpy_engine_put(self->engine);
        stkpy_raise(rc, &err);
        return -1;
    }
    self->ckpt = ckpt;
    self->forks = stkpy_forks();
    self->outstanding = opts->outstanding ? opts->outstanding : 1;
    self->is_of_ranks = self->engine->world > 1 && !opts->alone && !opts->read_only;
    return 0;
}

static int
init_from(PyObject *object, PyObject *arguments, PyObject *keep)
{
    struct stkpy_ckpt *self = (struct stkpy_ckpt *)object;
    stk_ckpt_opts opts = {STK_CKPT_OPTS_INIT};
    PyObject *engine = stkpy_arguments_need(arguments, "engine", stkpy_engine_type);

    if (!engine)
        return -1;
    self->engine = (struct stkpy_engine *)engine;
    self->held = PyList_New(0);
    const char *directory = self->held ? stkpy_path_need(arguments, "directory", keep) : NULL;
    if (!directory || stkpy_options_take(arguments, options, &opts, keep) < 0 ||
        stkpy_arguments_end(arguments, "Checkpoints") < 0)
        return -1;
    if (stkpy_engine_check(self->engine) < 0)
        return -1;
    return open_ckpt(self, directory, &opts);
}

static int
ckpt_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    const struct stkpy_opening opening = {
        .what = "the checkpoints are",
        .is_open = ((struct stkpy_ckpt *)object)->engine != NULL,
        .positional = positional,
        .open = init_from,
    };

    return stkpy_open(object, args, kwargs, &opening);
}

/* Lets go of what is held: nothing is read from it any more. */
static void
let_go(struct stkpy_ckpt *self)
{
    PyObject *held = self->held;

    self->held = PyList_New(0); /* NULL: the next save says that there is no memory */
    if (!self->held)
        PyErr_Clear();
    Py_XDECREF(held);
}

static void
close_now(struct stkpy_ckpt *self)
{
    stk_ckpt *ckpt = self->ckpt;

    if (!ckpt)
        return;
    self->ckpt = NULL;
    if (self->forks == stkpy_forks()) {
        PyThreadState *thread = PyEval_SaveThread();
        stk_ckpt_close(ckpt);
        PyEval_RestoreThread(thread);
    }
    Py_CLEAR(self->held);
    stkpy_engine_put(self->engine);
}

void
stkpy_ckpt_put(struct stkpy_ckpt *self)
{
    if (--self->n_users == 0 && self->is_closing)
        close_now(self);
}

static PyObject *
ckpt_close(PyObject *object, PyObject *unused)
{
    struct stkpy_ckpt *self = (struct stkpy_ckpt *)object;

    (void)unused;
    self->is_closing = true;
    if (self->n_users == 0)
        close_now(self);
    Py_RETURN_NONE;
}

static void
ckpt_dealloc(PyObject *object)
{
    struct stkpy_ckpt *self = (struct stkpy_ckpt *)object;
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    close_now(self);
    Py_XDECREF(self->held);
    Py_XDECREF((PyObject *)self->engine);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int
ckpt_traverse(PyObject *object, visitproc visit, void *arg)
{
    struct stkpy_ckpt *self = (struct stkpy_ckpt *)object;

    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)self->engine);
    Py_VISIT(self->held);
    return 0;
}

int
stkpy_ckpt_check(const struct stkpy_ckpt *self)
{
    return stkpy_check(self->ckpt, self->is_closing, self->forks, "the checkpoint directory");
}

static PyObject *
ckpt_enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    if (stkpy_ckpt_check((struct stkpy_ckpt *)object) < 0)
        return NULL;
    Py_INCREF(object);
    return object;
}

/* ---- waiting ----------------------------------------------------------------------- */

/* Whether one save more need not wait. */
static bool
has_room(struct stkpy_ckpt *self)
{
    stk_ckpt_status status = {STK_CKPT_STATUS_INIT};

    return stk_ckpt_get_status(self->ckpt, &status) == 0 && status.unfinished < self->outstanding;
}

/*
 * Waits for a level, at most timeout_ns; or, until_room, only until a save may begin. The
 * caller is a user. Returns 0, or -1 with an error set.
 */
static int
wait_for(struct stkpy_ckpt *self, stk_level level, uint64_t timeout_ns, bool until_room)
{
    uint64_t waited_ns = 0;

    for (;;) {
        stk_error err = {0};
        uint64_t left_ns = timeout_ns - waited_ns;
        uint64_t slice_ns = left_ns < SLICE_NS ? left_ns : SLICE_NS;

        PyThreadState *thread = PyEval_SaveThread();
        int rc = stk_ckpt_wait(self->ckpt, level, slice_ns, &err);
        PyEval_RestoreThread(thread);
        /* A save that was lost because a rank did not come in time has the same code, and
         * its directory as the path. */
        bool is_slice_over = rc == -ETIMEDOUT && err.path[0] == '\0';
        if (is_slice_over && PyErr_CheckSignals() < 0)
            return -1;
        if (rc == 0 || (is_slice_over && until_room && has_room(self)))
            return 0;
        waited_ns += slice_ns;
        if (is_slice_over && waited_ns < timeout_ns)
            continue;
        if (is_slice_over)
            PyErr_SetString(PyExc_TimeoutError, "the saves have not come so far yet");
        else
            stkpy_raise(rc, &err);
        return -1;
    }
}

static PyObject *
ckpt_fence(PyObject *object, PyObject *unused)
{
    struct stkpy_ckpt *self = (struct stkpy_ckpt *)object;

    (void)unused;
    if (stkpy_ckpt_check(self) < 0)
        return NULL;
    self->n_users++;
    int rc = wait_for(self, STK_CAPTURED, STK_FOREVER, false);
    if (rc == 0)
        let_go(self);
    stkpy_ckpt_put(self);
    if (rc < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* A level by its name. Returns 0, or -1 with an error set. */
static int
take_level(PyObject *given, stk_level *ret_level)
{
    static const struct {
        const char *name;
        stk_level level;
    } levels[] = {{"local", STK_DURABLE_LOCAL},
                  {"partner", STK_DURABLE_PARTNER},
                  {"shared", STK_DURABLE_SHARED}};

    for (size_t at = 0; at < sizeof(levels) / sizeof(levels[0]); at++)
        if (PyUnicode_Check(given) &&
            PyUnicode_CompareWithASCIIString(given, levels[at].name) == 0) {
            *ret_level = levels[at].level;
            return 0;
        }
    PyErr_Format(PyExc_ValueError, "level %R is none of: local, partner, shared", given);
    return -1;
}

static PyObject *
ckpt_wait(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"timeout", "level", NULL};
    struct stkpy_ckpt *self = (struct stkpy_ckpt *)object;
    PyObject *given = Py_None, *level_given = NULL;
    stk_level level = STK_DURABLE_LOCAL;
    uint64_t timeout_ns = STK_FOREVER;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O$O:wait", names, &given, &level_given) ||
        (level_given && take_level(level_given, &level) < 0) || stkpy_ckpt_check(self) < 0)
        return NULL;
    if (given != Py_None) {
        double seconds = PyFloat_AsDouble(given);

        if (PyErr_Occurred())
            return NULL;
        if (!(seconds >= 0) || seconds > 1e9) {
            PyErr_SetString(PyExc_ValueError, "timeout is seconds, 0 .. 1e9, or None");
            return NULL;
        }
        timeout_ns = (uint64_t)(seconds * NS_PER_S);
    }
    self->n_users++;
    int rc = wait_for(self, level, timeout_ns, false);
    if (rc == 0)
        let_go(self);
    stkpy_ckpt_put(self);
    if (rc < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- saving ------------------------------------------------------------------------ */

static int
begin_save(struct stkpy_ckpt *self, stk_save *save, struct stkpy_loader *loader,
           const struct stkpy_save *given)
{
    stk_error err = {0};

    /* Ranks count their saves by their calls: one that is not made because of an earlier
     * one would be missed by the others. So the library waits, as long as a vote takes. */
    if (!self->is_of_ranks && !has_room(self) &&
        wait_for(self, STK_DURABLE_LOCAL, STK_FOREVER, true) < 0)
        return -1;
    if (loader && stkpy_loader_begin(loader) < 0)
        return -1;
    PyThreadState *thread = PyEval_SaveThread();
    int rc = stk_ckpt_save(self->ckpt, save, &err);
    PyEval_RestoreThread(thread);
    if (loader)
        stkpy_loader_end(loader);
    if (rc < 0) {
        stkpy_raise(rc, &err);
        return -1;
    }
    /* Beyond this the memory is read from: what cannot be held is waited for. */
    if (self->held && PyList_Append(self->held, given->stable) == 0)
        return 0;
    PyErr_Clear();
    return wait_for(self, STK_CAPTURED, STK_FOREVER, false);
}

/* This rank's vote against a save, with words of its own. What is raised stays. */
static void
decline(struct stkpy_ckpt *self, uint64_t step, const char *why)
{
    const stk_tensor tensor = {.name = why, .dtype = "nothing"}; /* which is refused */
    const stk_save save = {STK_SAVE_INIT, .step = step, .tensors = &tensor, .n_tensors = 1};

    PyThreadState *thread = PyEval_SaveThread();
    (void)stk_ckpt_save(self->ckpt, &save, NULL); /* it fails, as it is to */
    PyEval_RestoreThread(thread);
}

static PyObject *
ckpt_decline(PyObject *object, PyObject *args)
{
    struct stkpy_ckpt *self = (struct stkpy_ckpt *)object;
    PyObject *given;
    const char *why;
    uint64_t step;

    if (!PyArg_ParseTuple(args, "Os:decline", &given, &why) ||
        stkpy_u64(given, "step", &step) < 0 || stkpy_ckpt_check(self) < 0)
        return NULL;
    self->n_users++;
    if (self->is_of_ranks)
        decline(self, step, why);
    stkpy_ckpt_put(self);
    Py_RETURN_NONE;
}

static PyObject *
ckpt_save(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"step",   "tensors",  "blobs",  "metadata", "loader",
                            "stable", "holdings", "shared", NULL};
    struct stkpy_ckpt *self = (struct stkpy_ckpt *)object;
    PyObject *step, *given, *blobs = Py_None, *metadata = Py_None, *loader = Py_None;
    PyObject *stable = Py_False, *holdings = Py_None;
    int is_shared = 0;
    stk_save save = {STK_SAVE_INIT};
    struct stkpy_save lists;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$OOOOOp:save", names, &step, &given, &blobs,
                                     &metadata, &loader, &stable, &holdings, &is_shared) ||
        stkpy_u64(step, "step", &save.step) < 0 || stkpy_ckpt_check(self) < 0)
        return NULL;
    if (loader != Py_None && !PyObject_TypeCheck(loader, stkpy_loader_type)) {
        PyErr_SetString(PyExc_TypeError, "loader must be a stoker.Loader or None");
        return NULL;
    }
    if (self->is_saving) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is saving");
        return NULL;
    }
    struct stkpy_loader *position = loader == Py_None ? NULL : (struct stkpy_loader *)loader;
    self->is_saving = true;
    self->n_users++;
    int rc = stkpy_save_init(&lists, given, blobs, metadata, stable);
    if (rc == 0)
        rc = stkpy_save_hold(&lists, holdings);
    if (rc < 0 && self->is_of_ranks)
        decline(self, save.step, "that Python does not give as asked for");
    if (rc == 0) {
        save.holdings = lists.holdings;
        save.flags = is_shared ? STK_SAVE_SHARED : 0;
        save.tensors = lists.tensors;
        save.n_tensors = lists.n_tensors;
        save.blobs = lists.blobs;
        save.n_blobs = lists.n_blobs;
        save.metadata = lists.metadata;
        save.n_metadata = lists.n_metadata;
        save.loader = position ? position->loader : NULL;
        rc = begin_save(self, &save, position, &lists);
    }
    stkpy_save_fini(&lists);
    self->is_saving = false;
    stkpy_ckpt_put(self);
    if (rc < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- looking ----------------------------------------------------------------------- */

static PyObject *
ckpt_open_view(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"step", NULL};
    struct stkpy_ckpt *self = (struct stkpy_ckpt *)object;
    PyObject *given = Py_None;
    uint64_t step = STK_LATEST;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:open", names, &given) ||
        (given != Py_None && stkpy_u64(given, "step", &step) < 0) || stkpy_ckpt_check(self) < 0)
        return NULL;
    return stkpy_view_new(self, step);
}

/* A step, or None where there is none yet. */
static PyObject *
step_of(uint64_t step)
{
    if (step == STK_LATEST)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(step);
}

static PyObject *
ckpt_status(PyObject *object, PyObject *unused)
{
    struct stkpy_ckpt *self = (struct stkpy_ckpt *)object;
    stk_ckpt_status status = {STK_CKPT_STATUS_INIT};

    (void)unused;
    if (stkpy_ckpt_check(self) < 0)
        return NULL;
    int rc = stk_ckpt_get_status(self->ckpt, &status);
    if (rc < 0)
        return stkpy_raise(rc, NULL);
    return Py_BuildValue(
        "{sKsKsKsKsKsKsKsKsIsNsNsIsKsKsNsIsKsKsN}", "saves", (unsigned long long)status.saves,
        "durable", (unsigned long long)status.durable, "failed", (unsigned long long)status.failed,
        "bytes", (unsigned long long)status.bytes, "save_wait_ns",
        (unsigned long long)status.save_wait_ns, "fence_wait_ns",
        (unsigned long long)status.fence_wait_ns, "captured_ns",
        (unsigned long long)status.captured_ns, "durable_ns", (unsigned long long)status.durable_ns,
        "unfinished", status.unfinished, "last_captured", step_of(status.last_captured),
        "last_durable", step_of(status.last_durable), "shared_unfinished", status.shared_unfinished,
        "shared", (unsigned long long)status.shared, "shared_failed",
        (unsigned long long)status.shared_failed, "last_shared", step_of(status.last_shared),
        "partner_unfinished", status.partner_unfinished, "partner",
        (unsigned long long)status.partner, "partner_failed",
        (unsigned long long)status.partner_failed, "last_partner", step_of(status.last_partner));
}

/* ---- type -------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"save", STKPY_METHOD(ckpt_save), METH_VARARGS | METH_KEYWORDS,
     "save($self, step, tensors, *, blobs=None, metadata=None, loader=None, stable=False, "
     "holdings=None, shared=False)\n--\n\n"
     "Begins to save buffers, or (dtype, shape, buffer), by name; or Tensors; or a tuple of such. "
     "stable: True, or names, of those that do not change before fence(); others are copied at "
     "once. holdings: of ranks, Holding by name; a tensor without one is held by all. shared: it "
     "is copied to the shared directory in any case."},
    {"decline", ckpt_decline, METH_VARARGS,
     "decline($self, step, why, /)\n--\n\nOf ranks: votes against the save that the others begin, "
     "instead of save(); it fails on all, and why is in what they are told."},
    {"fence", ckpt_fence, METH_NOARGS,
     "fence($self, /)\n--\n\nWaits until all stable tensors may be changed again."},
    {"wait", STKPY_METHOD(ckpt_wait), METH_VARARGS | METH_KEYWORDS,
     "wait($self, timeout=None, *, level='local')\n--\n\nWaits until all saves are durable, at "
     "most timeout seconds (TimeoutError); level 'shared': those that are copied to the shared "
     "directory, there; 'partner': on another node, too."},
    {"latest", stkpy_ckpt_latest, METH_NOARGS,
     "latest($self, /)\n--\n\nThe step of the newest whole checkpoint; None where there is none."},
    {"list", stkpy_ckpt_list, METH_NOARGS,
     "list($self, /)\n--\n\nAll checkpoints, newest first, damaged ones too, as dictionaries."},
    {"prune", STKPY_METHOD(stkpy_ckpt_prune), METH_VARARGS | METH_KEYWORDS,
     "prune($self, keep, *, orphans=False)\n--\n\nRemoves all but the newest keep checkpoints; "
     "returns how many directories. orphans: also what crashed writers left, where nobody else "
     "saves."},
    {"open", STKPY_METHOD(ckpt_open_view), METH_VARARGS | METH_KEYWORDS,
     "open($self, step=None)\n--\n\nOpens one for reading; the newest whole one where step is "
     "None."},
    {"status", ckpt_status, METH_NOARGS,
     "status($self, /)\n--\n\nWhat it has done, as a dictionary."},
    {"close", ckpt_close, METH_NOARGS,
     "close($self, /)\n--\n\nWaits for saves under way and closes, as soon as nothing is read "
     "from it."},
    {"__enter__", ckpt_enter, METH_NOARGS, NULL},
    {"__exit__", ckpt_close, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Checkpoints(engine, directory, *, roots=None, slot_bytes=None, slots=None, "
                "chunk_bytes=None, outstanding=None, keep=None, buffered=False, "
                "read_only=False, alone=False, vote_timeout=None, check_replicas=False, "
                "writers='all', shared=None, shared_every=None, shared_keep=None, "
                "node_local=False, partner=False)\n--\n\n"
                "A directory of checkpoints. keep: how many stay (0: all). Of an engine with a "
                "comm all ranks open it and save together, unless alone. shared_every: every "
                "so many-th save is copied to shared; 0: none but those that say so. node_local: "
                "directory and roots are each node's own; partner: each save is copied to "
                "another node, too."},
    {Py_tp_init, ckpt_init},
    {Py_tp_dealloc, ckpt_dealloc},
    {Py_tp_traverse, ckpt_traverse},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec stkpy_ckpt_spec = {
    .name = "stoker.Checkpoints",
    .basicsize = sizeof(struct stkpy_ckpt),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};
