/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stoker.View: one checkpoint, open for reading. Tensors go into buffers of the caller's;
 * every chunk is checked before a byte of it is handed out.
 */
#include "checkpoint.h"

#include <errno.h>

struct view {
    PyObject_HEAD struct stkpy_ckpt *ckpt;
    stk_view *view; /* NULL: closed */
    unsigned long forks;
    int n_newer;      /* checkpoints that are newer and not whole, where the newest was asked for */
    uint32_t n_calls; /* threads in a call that does not hold the interpreter's lock */
    bool is_closing;
};

/* ---- life -------------------------------------------------------------------------- */

PyObject *
stkpy_view_new(struct stkpy_ckpt *ckpt, uint64_t step)
{
    struct view *self = PyObject_GC_New(struct view, stkpy_view_type);
    stk_error err = {0};

    if (!self)
        return NULL;
    Py_INCREF((PyObject *)ckpt);
    self->ckpt = ckpt;
    self->view = NULL;
    self->forks = stkpy_forks();
    self->n_calls = 0;
    self->is_closing = false;
    PyObject_GC_Track((PyObject *)self);
    ckpt->n_users++;
    PyThreadState *thread = PyEval_SaveThread();
    int rc = stk_view_open(&self->view, ckpt->ckpt, step, &err);
    PyEval_RestoreThread(thread);
    if (rc < 0) {
        self->view = NULL;
        stkpy_ckpt_put(ckpt);
        Py_DECREF((PyObject *)self);
        return stkpy_raise(rc, &err);
    }
    self->n_newer = rc;
    return (PyObject *)self;
}

static void
close_now(struct view *self)
{
    stk_view *view = self->view;

    if (!view)
        return;
    self->view = NULL;
    if (self->forks == stkpy_forks()) {
        PyThreadState *thread = PyEval_SaveThread();
        stk_view_close(view);
        PyEval_RestoreThread(thread);
    }
    stkpy_ckpt_put(self->ckpt);
}

static PyObject *
view_close(PyObject *object, PyObject *unused)
{
    struct view *self = (struct view *)object;

    (void)unused;
    self->is_closing = true;
    if (self->n_calls == 0)
        close_now(self);
    Py_RETURN_NONE;
}

static void
view_dealloc(PyObject *object)
{
    struct view *self = (struct view *)object;
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    close_now(self);
    Py_DECREF((PyObject *)self->ckpt);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int
view_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)((struct view *)object)->ckpt);
    return 0;
}

static int
check(struct view *self)
{
    return stkpy_check(self->view, self->is_closing, self->forks, "the checkpoint");
}

static void
end_call(struct view *self)
{
    if (--self->n_calls == 0 && self->is_closing)
        close_now(self);
}

static PyObject *
view_enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    if (check((struct view *)object) < 0)
        return NULL;
    Py_INCREF(object);
    return object;
}

/* ---- what is in it ----------------------------------------------------------------- */

static PyObject *
shape_of(const stk_view_tensor *tensor)
{
    PyObject *shape = PyTuple_New((Py_ssize_t)tensor->dims);

    for (uint32_t at = 0; shape && at < tensor->dims; at++) {
        PyObject *length = PyLong_FromUnsignedLongLong(tensor->shape[at]);

        if (!length || PyTuple_SetItem(shape, (Py_ssize_t)at, length) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *
view_tensors(PyObject *object, PyObject *unused)
{
    struct view *self = (struct view *)object;
    PyObject *dict = check(self) < 0 ? NULL : PyDict_New();
    stk_view_tensor tensor;

    (void)unused;
    for (uint32_t at = 0; dict && stk_view_tensor_at(self->view, at, &tensor) == 0; at++) {
        PyObject *shape = shape_of(&tensor);
        PyObject *one =
            shape ? Py_BuildValue("(sNK)", tensor.dtype, shape, (unsigned long long)tensor.n_bytes)
                  : NULL;

        if (stkpy_dict_set(dict, tensor.name, one) < 0)
            Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
view_blobs(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"rank", NULL};
    struct view *self = (struct view *)object;
    PyObject *given = Py_None;
    stk_view_tensor blob;
    uint64_t rank = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$O:blobs", names, &given) ||
        (given != Py_None && stkpy_u64(given, "rank", &rank) < 0))
        return NULL;
    PyObject *dict = check(self) < 0 ? NULL : PyDict_New();
    for (uint32_t at = 0; dict && stk_view_blob_at(self->view, at, &blob) == 0; at++)
        if ((given == Py_None || blob.rank == rank) &&
            stkpy_dict_set(dict, blob.name, PyLong_FromUnsignedLongLong(blob.n_bytes)) < 0)
            Py_CLEAR(dict);
    return dict;
}

static PyObject *
view_metadata(PyObject *object, PyObject *unused)
{
    struct view *self = (struct view *)object;
    PyObject *dict = check(self) < 0 ? NULL : PyDict_New();
    stk_pair pair;

    (void)unused;
    for (uint32_t at = 0; dict && stk_view_metadata_at(self->view, at, &pair) == 0; at++)
        if (stkpy_dict_set(dict, pair.key, PyUnicode_FromString(pair.value)) < 0)
            Py_CLEAR(dict);
    return dict;
}

static PyObject *
view_info(PyObject *object, PyObject *unused)
{
    struct view *self = (struct view *)object;
    stk_view_info info = {STK_VIEW_INFO_INIT};

    (void)unused;
    if (check(self) < 0)
        return NULL;
    int rc = stk_view_get_info(self->view, &info);
    if (rc < 0)
        return stkpy_raise(rc, NULL);
    return Py_BuildValue("{sKsKsKsIsIsIsIsisK}", "step", (unsigned long long)info.step, "bytes",
                         (unsigned long long)info.bytes, "created_ns",
                         (unsigned long long)info.created_ns, "tensors", info.tensors, "blobs",
                         info.blobs, "parts", info.parts, "world", info.world, "newer_damaged",
                         self->n_newer, "mended_bytes", (unsigned long long)info.mended_bytes);
}

/* ---- reading ----------------------------------------------------------------------- */

#define DIMS_MAX 64

struct loads {
    stk_load *loads;
    Py_buffer *buffers;
    uint64_t (*boxes)[2][DIMS_MAX]; /* start and count of each that is a box */
    uint32_t count;
};

static void
loads_fini(struct loads *self)
{
    for (uint32_t at = 0; at < self->count; at++)
        PyBuffer_Release(&self->buffers[at]);
    PyMem_Free(self->loads);
    PyMem_Free(self->boxes);
    PyMem_Free(self->buffers);
}

static int
take_numbers(uint64_t *numbers, PyObject *given, uint32_t dims, const char *name)
{
    Py_ssize_t n = PySequence_Size(given);

    if (n < 0)
        return -1;
    if (n != (Py_ssize_t)dims) {
        PyErr_Format(PyExc_ValueError, "tensor '%s' has %u dimensions, start or count %zd", name,
                     (unsigned)dims, n);
        return -1;
    }
    for (Py_ssize_t at = 0; at < n; at++) {
        PyObject *number = PySequence_GetItem(given, at);
        int rc = number ? stkpy_u64(number, "start or count", &numbers[at]) : -1;

        Py_XDECREF(number);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* A box of a tensor: (start, count, buffer). Returns the buffer, borrowed; NULL with an
 * error set. */
static PyObject *
take_box(const struct view *view, stk_load *load, uint64_t (*box)[DIMS_MAX], PyObject *given)
{
    PyObject *start, *count, *target;
    stk_view_tensor tensor;

    if (!PyArg_ParseTuple(given, "OOO:a box, (start, count, buffer)", &start, &count, &target))
        return NULL;
    if (stk_view_tensor_find(view->view, load->name, &tensor) < 0)
        return target; /* the library says so */
    if (tensor.dims > DIMS_MAX || take_numbers(box[0], start, tensor.dims, load->name) < 0 ||
        take_numbers(box[1], count, tensor.dims, load->name) < 0)
        return NULL;
    load->start = box[0];
    load->count = box[1];
    return target;
}

/* Names and writable buffers, from a list of pairs, which keeps them. */
static int
loads_init(struct loads *self, const struct view *view, PyObject *items)
{
    size_t room = (size_t)PyList_Size(items) + 1;

    *self = (struct loads){.loads = PyMem_Calloc(room, sizeof(*self->loads)),
                           .boxes = PyMem_Calloc(room, sizeof(*self->boxes)),
                           .buffers = PyMem_Calloc(room, sizeof(*self->buffers))};
    if (!self->loads || !self->boxes || !self->buffers) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t at = 0; at < PyList_Size(items); at++) {
        stk_load *load = &self->loads[self->count];
        Py_buffer *buffer = &self->buffers[self->count];
        PyObject *name, *target;

        if (!PyArg_ParseTuple(PyList_GetItem(items, at), "OO", &name, &target))
            return -1;
        load->name = PyUnicode_AsUTF8AndSize(name, NULL);
        if (load->name && PyTuple_Check(target))
            target = take_box(view, load, self->boxes[self->count], target);
        if (!load->name || !target ||
            PyObject_GetBuffer(target, buffer, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0)
            return -1;
        load->dst = buffer->buf;
        load->n_bytes = (uint64_t)buffer->len;
        self->count++;
    }
    return 0;
}

static PyObject *
view_load(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"", "together", NULL};
    struct view *self = (struct view *)object;
    PyObject *mapping;
    int is_together = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$p:load", names, &mapping, &is_together))
        return NULL;
    PyObject *items = check(self) < 0 ? NULL : PyMapping_Items(mapping);
    struct loads loads = {.count = 0};
    stk_error err = {0};

    if (!items)
        return NULL;
    int rc = loads_init(&loads, self, items);
    if (rc == 0) {
        self->n_calls++;
        PyThreadState *thread = PyEval_SaveThread();
        rc = is_together ? stk_view_load_together(self->view, loads.loads, loads.count, &err)
                         : stk_view_load(self->view, loads.loads, loads.count, &err);
        PyEval_RestoreThread(thread);
        end_call(self);
        if (rc < 0)
            stkpy_raise(rc, &err);
    }
    loads_fini(&loads);
    Py_DECREF(items);
    if (rc < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* The bytes of a blob by the name: this rank's, or of a rank. Returns its length, or a
 * negative code. */
static int64_t
read_blob(struct view *self, const char *name, const uint32_t *rank, char *into, uint64_t capacity,
          stk_error *err)
{
    uint64_t n_bytes = 0;

    self->n_calls++;
    PyThreadState *thread = PyEval_SaveThread();
    int rc = rank ? stk_view_load_blob_of(self->view, *rank, name, into, capacity, &n_bytes, err)
                  : stk_view_load_blob(self->view, name, into, capacity, &n_bytes, err);
    PyEval_RestoreThread(thread);
    end_call(self);
    /* It is the length that is asked for where there is no room. */
    return rc < 0 && (rc != -ENOSPC || capacity > 0) ? rc : (int64_t)n_bytes;
}

static PyObject *
view_blob(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"", "rank", NULL};
    struct view *self = (struct view *)object;
    PyObject *name, *given = Py_None;
    uint64_t number = 0;
    stk_error err = {0};

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "U|$O:blob", names, &name, &given) ||
        (given != Py_None && stkpy_u64(given, "rank", &number) < 0) || check(self) < 0)
        return NULL;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    if (!text)
        return NULL;
    uint32_t of = number < UINT32_MAX ? (uint32_t)number : UINT32_MAX; /* which there is not */
    const uint32_t *rank = given == Py_None ? NULL : &of;
    int64_t n_bytes = read_blob(self, text, rank, NULL, 0, &err);
    if (n_bytes == -ENOENT) {
        PyErr_SetObject(PyExc_KeyError, name);
        return NULL;
    }
    if (n_bytes < 0)
        return stkpy_raise((int)n_bytes, &err);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n_bytes);
    if (!bytes || n_bytes == 0)
        return bytes;
    n_bytes = read_blob(self, text, rank, PyBytes_AsString(bytes), (uint64_t)n_bytes, &err);
    if (n_bytes >= 0)
        return bytes;
    Py_DECREF(bytes);
    return stkpy_raise((int)n_bytes, &err);
}

/* Lets Python look at its signals while everything is read. */
static int
look_at_signals(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    PyThreadState **thread = context;

    (void)done_bytes;
    (void)total_bytes;
    PyEval_RestoreThread(*thread);
    int rc = PyErr_CheckSignals();
    *thread = PyEval_SaveThread();
    return rc;
}

static PyObject *
view_verify(PyObject *object, PyObject *unused)
{
    struct view *self = (struct view *)object;
    stk_error err = {0};

    (void)unused;
    if (check(self) < 0)
        return NULL;
    self->n_calls++;
    PyThreadState *thread = PyEval_SaveThread();
    int rc = stk_view_verify(self->view, look_at_signals, &thread, &err);
    PyEval_RestoreThread(thread);
    end_call(self);
    if (PyErr_Occurred())
        return NULL;
    if (rc < 0)
        return stkpy_raise(rc, &err);
    Py_RETURN_NONE;
}

/* ---- type -------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"info", view_info, METH_NOARGS,
     "info($self, /)\n--\n\nWhat it is, as a dictionary. mended_bytes: loaded so far that were "
     "damaged and came from another copy."},
    {"tensors", view_tensors, METH_NOARGS,
     "tensors($self, /)\n--\n\nName to (dtype, shape, bytes), in the order of the file."},
    {"blobs", STKPY_METHOD(view_blobs), METH_VARARGS | METH_KEYWORDS,
     "blobs($self, /, *, rank=None)\n--\n\nName to bytes; of a rank, or of all, where the last "
     "one's count."},
    {"metadata", view_metadata, METH_NOARGS, "metadata($self, /)\n--\n\nStrings by name."},
    {"load", STKPY_METHOD(view_load), METH_VARARGS | METH_KEYWORDS,
     "load($self, targets, /, *, together=False)\n--\n\nLoads tensors into writable buffers, by "
     "name, or the box of "
     "one that (start, count, buffer) says, in elements of each dimension; every chunk is "
     "checked. After an error the buffers hold nothing of use. together: all ranks "
     "load the same, and storage gives each byte once."},
    {"blob", STKPY_METHOD(view_blob), METH_VARARGS | METH_KEYWORDS,
     "blob($self, name, /, *, rank=None)\n--\n\nA blob's bytes: of a rank, or this rank's, or "
     "rank 0's where the checkpoint is of fewer."},
    {"verify", view_verify, METH_NOARGS,
     "verify($self, /)\n--\n\nReads everything and checks every chunk; raises what is wrong."},
    {"close", view_close, METH_NOARGS, "close($self, /)\n--\n\nCloses it."},
    {"__enter__", view_enter, METH_NOARGS, NULL},
    {"__exit__", view_close, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A checkpoint, open for reading."},
    {Py_tp_new, stkpy_no_new},
    {Py_tp_dealloc, view_dealloc},
    {Py_tp_traverse, view_traverse},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec stkpy_view_spec = {
    .name = "stoker.View",
    .basicsize = sizeof(struct view),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};
