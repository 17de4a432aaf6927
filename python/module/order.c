/* SPDX-License-Identifier: Apache-2.0 */
/* stoker.Order: a run's order alone, without an engine. */
#include "binding.h"

#include <errno.h>

#define AT(member) offsetof(stk_order_opts, member)

static const char *const kind_names[] = {"default", "sequential", "torch", "keyed", "list", NULL};
static const char *const sampler_names[] = {"default",   "distributed", "dataloader",
                                            "generator", "stateful",    NULL};
static const char *const worker_names[] = {"none", "some", "persistent", NULL};

/* Everything but n and kind: a loader takes the same by the same names. */
const struct stkpy_option stkpy_order_options[] = {
    {"seed", STKPY_I64, AT(seed), NULL},
    {"sampler", STKPY_NAME, AT(sampler), sampler_names},
    {"world", STKPY_U32, AT(world), NULL},
    {"rank", STKPY_U32, AT(rank), NULL},
    {"shuffle", STKPY_UNFLAG, AT(no_shuffle), NULL},
    {"drop_uneven", STKPY_FLAG, AT(drop_uneven), NULL},
    {"legacy_torch", STKPY_FLAG, AT(legacy_torch), NULL},
    {"replacement", STKPY_FLAG, AT(replacement), NULL},
    {"num_samples", STKPY_U64, AT(num_samples), NULL},
    {"workers", STKPY_NAME, AT(workers), worker_names},
    {0},
};

const struct stkpy_option stkpy_order_kind_options[] = {
    {"order", STKPY_NAME, AT(kind), kind_names},
    {0},
};

static const struct stkpy_option own_options[] = {
    {"n", STKPY_U64, AT(n), NULL},
    {"kind", STKPY_NAME, AT(kind), kind_names},
    {0},
};

static const char *const positional[] = {"n", "kind", NULL};

static int
take_options(PyObject *args, PyObject *kwargs, stk_order_opts *opts)
{
    PyObject *keep = PyList_New(0); /* no option here is a string */
    PyObject *arguments = keep ? stkpy_arguments(args, kwargs, positional) : NULL;
    int rc = arguments ? stkpy_options_take(arguments, own_options, opts, keep) : -1;

    if (rc >= 0)
        rc = stkpy_options_take(arguments, stkpy_order_options, opts, keep);
    if (rc >= 0)
        rc = stkpy_arguments_end(arguments, "Order");
    Py_XDECREF(arguments);
    Py_XDECREF(keep);
    return rc;
}

static int
order_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    struct stkpy_order *self = (struct stkpy_order *)object;
    stk_order_opts opts = {STK_ORDER_OPTS_INIT};
    stk_error err = {0};

    if (self->order) {
        PyErr_SetString(PyExc_RuntimeError, "the order is made already");
        return -1;
    }
    if (take_options(args, kwargs, &opts) < 0)
        return -1;
    int rc = stk_order_new(&self->order, &opts, &err);
    if (rc < 0) {
        stkpy_raise(rc, &err);
        return -1;
    }
    self->opts = opts;
    return 0;
}

static void
order_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    stk_order_free(((struct stkpy_order *)object)->order);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int
order_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static int
get_length(struct stkpy_order *self, uint64_t *ret_count)
{
    int rc = stk_order_length(self->order, ret_count);

    if (rc == -ENOTSUP)
        stkpy_raise_message(rc, "a pushed list has no ids of its own");
    else if (rc < 0)
        stkpy_raise_message(rc, "the order is not made");
    return rc < 0 ? -1 : 0;
}

static Py_ssize_t
order_length(PyObject *object)
{
    uint64_t count;

    return get_length((struct stkpy_order *)object, &count) < 0 ? -1 : (Py_ssize_t)count;
}

/* Memory for count elements and a buffer over it. Returns owned. */
static struct stkpy_array *
new_buffer(uint64_t count, const char *format, Py_ssize_t element_bytes)
{
    if (count > (uint64_t)(PY_SSIZE_T_MAX / element_bytes)) {
        PyErr_NoMemory();
        return NULL;
    }
    PyObject *memory = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)count * element_bytes);
    struct stkpy_array *array = NULL;

    if (memory)
        array = stkpy_array_new(memory, NULL, PyByteArray_AsString(memory), (Py_ssize_t)count,
                                format, element_bytes);
    Py_XDECREF(memory);
    if (array)
        array->is_readonly = false;
    return array;
}

static PyObject *
order_ids(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"epoch", "first", "count", NULL};
    struct stkpy_order *self = (struct stkpy_order *)object;
    PyObject *epoch_given, *first_given = NULL, *count_given = Py_None;
    uint64_t epoch, length, first = 0;
    int rc;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO:ids", names, &epoch_given, &first_given,
                                     &count_given) ||
        stkpy_u64(epoch_given, "epoch", &epoch) < 0 ||
        (first_given && stkpy_u64(first_given, "first", &first) < 0) ||
        get_length(self, &length) < 0)
        return NULL;
    uint64_t count = first < length ? length - first : 0;
    if (count_given != Py_None && stkpy_u64(count_given, "count", &count) < 0)
        return NULL;
    if (first > length || count > length - first) {
        PyErr_Format(PyExc_IndexError, "%llu ids from position %llu on: an epoch has %llu",
                     (unsigned long long)count, (unsigned long long)first,
                     (unsigned long long)length);
        return NULL;
    }
    struct stkpy_array *array = new_buffer(count, "Q", sizeof(uint64_t));
    if (!array)
        return NULL;
    uint64_t *ids = array->bytes;
    PyThreadState *thread = PyEval_SaveThread();
    rc = stk_order_ids(self->order, epoch, first, count, ids);
    PyEval_RestoreThread(thread);
    if (rc == 0)
        return (PyObject *)array;
    Py_DECREF((PyObject *)array);
    return stkpy_raise(rc, NULL);
}

static PyObject *
order_frequency(PyObject *object, PyObject *args)
{
    struct stkpy_order *self = (struct stkpy_order *)object;
    PyObject *first_given, *epochs_given;
    uint64_t first_epoch, epochs, length;
    int rc;

    if (!PyArg_ParseTuple(args, "OO:frequency", &first_given, &epochs_given) ||
        stkpy_u64(first_given, "first_epoch", &first_epoch) < 0 ||
        stkpy_u64(epochs_given, "epochs", &epochs) < 0 || get_length(self, &length) < 0)
        return NULL;
    struct stkpy_array *array = new_buffer(self->opts.n, "I", sizeof(uint32_t));
    if (!array)
        return NULL;
    uint32_t *counts = array->bytes;
    PyThreadState *thread = PyEval_SaveThread();
    rc = stk_order_frequency(self->order, first_epoch, epochs, counts);
    PyEval_RestoreThread(thread);
    if (rc == 0)
        return (PyObject *)array;
    Py_DECREF((PyObject *)array);
    return stkpy_raise(rc, NULL);
}

static PyMethodDef methods[] = {
    {"ids", STKPY_METHOD(order_ids), METH_VARARGS | METH_KEYWORDS,
     "ids($self, epoch, first=0, count=None)\n--\n\nThe ids that this rank reads in an epoch, as a "
     "buffer "
     "of uint64."},
    {"frequency", order_frequency, METH_VARARGS,
     "frequency($self, first_epoch, epochs, /)\n--\n\nHow often this rank reads each sample in "
     "some "
     "epochs, as a buffer of uint32."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Order(n, kind='torch', *, seed=0, sampler='distributed', world=1, rank=0, "
                "shuffle=True, drop_uneven=False, legacy_torch=False, replacement=False, "
                "num_samples=None, workers='none')\n--\n\n"
                "The order of a run: a function of these arguments. Needs no engine."},
    {Py_tp_init, order_init},
    {Py_tp_dealloc, order_dealloc},
    {Py_tp_traverse, order_traverse},
    {Py_tp_methods, methods},
    {Py_sq_length, order_length},
    {0, NULL},
};

PyType_Spec stkpy_order_spec = {
    .name = "stoker.Order",
    .basicsize = sizeof(struct stkpy_order),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};
