/* SPDX-License-Identifier: Apache-2.0 */
/* stoker.Dataset. */
#include "binding.h"

#include <errno.h>
#include <limits.h>

#define AT(member) offsetof(stk_dataset_opts, member)

static const char *const format_names[] = {"auto", "class-folder", "folder", "record", "npy",
                                           "idx",  "window",       "tar",    NULL};

static const struct stkpy_option options[] = {
    {"format", STKPY_NAME, AT(format), format_names},
    {"rebuild", STKPY_FLAG, AT(rebuild), NULL},
    {"header_bytes", STKPY_U64, AT(header_bytes), NULL},
    {"record_bytes", STKPY_U64, AT(record_bytes), NULL},
    {"window_tokens", STKPY_U64, AT(window_tokens), NULL},
    {"stride_tokens", STKPY_U64, AT(stride_tokens), NULL},
    {"token_bytes", STKPY_U32, AT(token_bytes), NULL},
    {"labels_path", STKPY_PATH, AT(labels_path), NULL},
    {"extensions", STKPY_TEXT, AT(extensions), NULL},
    {"index_path", STKPY_PATH, AT(index_path), NULL},
    {"fields", STKPY_TEXT, AT(fields), NULL},
    {0},
};

static const char *const positional[] = {"engine", "path", "format", NULL};

/* ---- life -------------------------------------------------------------------------- */

/* What a data set is opened from: a path, or else extents. */
struct source {
    const char *path;
    stk_extent *extents;
    uint64_t n_extents;
};

static int
open_dataset(struct stkpy_dataset *self, const struct source *source, const stk_dataset_opts *opts)
{
    stk_dataset *dataset = NULL;
    stk_engine *engine = self->engine->engine;
    stk_error err = {0};
    int rc;

    self->engine->n_users++; /* so that it stays open meanwhile */
    PyThreadState *thread = PyEval_SaveThread();
    if (source->path)
        rc = stk_dataset_open(&dataset, engine, source->path, opts, &err);
    else
        rc = stk_dataset_extents(&dataset, engine, source->extents, source->n_extents, &err);
    PyEval_RestoreThread(thread);
    self->info.size = sizeof(self->info);
    if (rc == 0)
        rc = stk_dataset_get_info(dataset, &self->info);
    if (rc < 0) {
        stk_dataset_close(dataset);
        stkpy_engine_put(self->engine);
        stkpy_raise(rc, &err);
        return -1;
    }
    self->dataset = dataset;
    self->forks = stkpy_forks();
    return 0;
}

/* One of (path, offset, bytes) or (path, offset, bytes, label). */
static int
take_extent(PyObject *one, stk_extent *extent, PyObject *keep)
{
    PyObject *path, *encoded = NULL, *offset, *n_bytes;
    long long label = -1;

    if (!PyTuple_Check(one)) {
        PyErr_SetString(PyExc_TypeError, "an extent is (path, offset, bytes), or with a label");
        return -1;
    }
    if (!PyArg_ParseTuple(one, "OOO|L", &path, &offset, &n_bytes, &label) ||
        stkpy_u64(offset, "offset", &extent->offset) < 0 ||
        stkpy_u64(n_bytes, "bytes", &extent->n_bytes) < 0 || !PyUnicode_FSConverter(path, &encoded))
        return -1;
    int rc = PyList_Append(keep, encoded);
    extent->path = PyBytes_AsString(encoded);
    extent->label = label;
    Py_DECREF(encoded);
    return rc;
}

static int
open_extents(struct stkpy_dataset *self, PyObject *given, PyObject *keep)
{
    PyObject *list = PySequence_List(given);
    struct source source = {0};
    int rc = list ? 0 : -1;

    if (rc == 0) {
        source.n_extents = (uint64_t)PyList_Size(list);
        source.extents = PyMem_Calloc((size_t)source.n_extents + 1, sizeof(*source.extents));
        if (!source.extents) {
            PyErr_NoMemory();
            rc = -1;
        }
    }
    for (uint64_t at = 0; rc == 0 && at < source.n_extents; at++)
        rc = take_extent(PyList_GetItem(list, (Py_ssize_t)at), &source.extents[at], keep);
    if (rc == 0)
        rc = open_dataset(self, &source, NULL);
    PyMem_Free(source.extents);
    Py_XDECREF(list);
    return rc;
}

static int
init_from(PyObject *object, PyObject *arguments, PyObject *keep)
{
    struct stkpy_dataset *self = (struct stkpy_dataset *)object;
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT};
    PyObject *engine = stkpy_arguments_need(arguments, "engine", stkpy_engine_type);

    if (!engine)
        return -1;
    self->engine = (struct stkpy_engine *)engine;
    PyObject *extents = stkpy_arguments_pop(arguments, "extents");
    if (extents && extents != Py_None) {
        PyObject *path = stkpy_arguments_pop(arguments, "path");
        bool has_path = path && path != Py_None;

        Py_XDECREF(path);
        if (has_path)
            PyErr_SetString(PyExc_TypeError, "path and extents exclude each other");
        int rc = has_path || stkpy_arguments_end(arguments, "Dataset of extents") < 0 ||
                         stkpy_engine_check(self->engine) < 0
                     ? -1
                     : open_extents(self, extents, keep);

        Py_DECREF(extents);
        return rc;
    }
    Py_XDECREF(extents);
    if (PyErr_Occurred())
        return -1;
    struct source source = {.path = stkpy_path_need(arguments, "path", keep)};
    if (!source.path || stkpy_options_take(arguments, options, &opts, keep) < 0 ||
        stkpy_arguments_end(arguments, "Dataset") < 0)
        return -1;
    if (stkpy_engine_check(self->engine) < 0)
        return -1;
    return open_dataset(self, &source, &opts);
}

static int
dataset_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    const struct stkpy_opening opening = {
        .what = "the data set is",
        .is_open = ((struct stkpy_dataset *)object)->engine != NULL,
        .positional = positional,
        .open = init_from,
    };

    return stkpy_open(object, args, kwargs, &opening);
}

static void
close_now(struct stkpy_dataset *self)
{
    stk_dataset *dataset = self->dataset;

    if (!dataset)
        return;
    self->dataset = NULL;
    if (self->forks == stkpy_forks()) {
        PyThreadState *thread = PyEval_SaveThread();
        stk_dataset_close(dataset);
        PyEval_RestoreThread(thread);
    }
    stkpy_engine_put(self->engine);
}

void
stkpy_dataset_put(struct stkpy_dataset *self)
{
    if (--self->n_users == 0 && self->is_closing)
        close_now(self);
}

static PyObject *
dataset_close(PyObject *object, PyObject *unused)
{
    struct stkpy_dataset *self = (struct stkpy_dataset *)object;

    (void)unused;
    self->is_closing = true;
    if (self->n_users == 0)
        close_now(self);
    Py_RETURN_NONE;
}

static void
dataset_dealloc(PyObject *object)
{
    struct stkpy_dataset *self = (struct stkpy_dataset *)object;
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    close_now(self);
    Py_XDECREF((PyObject *)self->engine);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int
dataset_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)((struct stkpy_dataset *)object)->engine);
    return 0;
}

/* ---- what it says ------------------------------------------------------------------ */

static int
check(struct stkpy_dataset *self)
{
    return stkpy_check(self->dataset, self->is_closing, self->forks, "the data set");
}

static Py_ssize_t
dataset_length(PyObject *object)
{
    struct stkpy_dataset *self = (struct stkpy_dataset *)object;

    return check(self) < 0 ? -1 : (Py_ssize_t)self->info.samples;
}

/* The dimensions of a sample, or None where nothing is known of its elements. */
static PyObject *
describe_shape(const stk_dataset_info *info)
{
    if (info->dtype[0] == '\0')
        Py_RETURN_NONE;
    PyObject *shape = PyTuple_New((Py_ssize_t)info->dims);

    for (uint32_t at = 0; shape && at < info->dims; at++) {
        PyObject *length = PyLong_FromUnsignedLongLong(info->shape[at]);

        if (!length || PyTuple_SetItem(shape, (Py_ssize_t)at, length) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *
dataset_info(PyObject *object, PyObject *unused)
{
    struct stkpy_dataset *self = (struct stkpy_dataset *)object;
    const stk_dataset_info *info = &self->info;

    (void)unused;
    if (check(self) < 0)
        return NULL;
    PyObject *dict = Py_BuildValue(
        "{sssIsKsKsKsKsKszsO}", "format", format_names[info->format], "classes", info->classes,
        "samples", (unsigned long long)info->samples, "bytes", (unsigned long long)info->bytes,
        "max_sample_bytes", (unsigned long long)info->max_sample_bytes, "record_bytes",
        (unsigned long long)info->record_bytes, "fingerprint",
        (unsigned long long)info->fingerprint, "dtype", info->dtype[0] ? info->dtype : NULL,
        "index_built", info->index_built ? Py_True : Py_False);

    if (dict && stkpy_dict_set(dict, "shape", describe_shape(info)) < 0)
        Py_CLEAR(dict);
    return dict;
}

/* Finds a sample; path has room for PATH_MAX. Returns owned. */
static PyObject *
locate(struct stkpy_dataset *self, uint64_t sample, char *path)
{
    uint64_t offset, n_bytes;
    int64_t label;
    int rc = stk_dataset_locate(self->dataset, sample, path, PATH_MAX, &offset, &n_bytes, &label);

    if (rc == -ERANGE) {
        PyErr_Format(PyExc_IndexError, "sample %llu of a data set of %llu",
                     (unsigned long long)sample, (unsigned long long)self->info.samples);
        return NULL;
    }
    if (rc < 0)
        return stkpy_raise(rc, NULL);
    return Py_BuildValue("(NKKL)", PyUnicode_DecodeFSDefault(path), (unsigned long long)offset,
                         (unsigned long long)n_bytes, (long long)label);
}

static PyObject *
dataset_locate(PyObject *object, PyObject *which)
{
    struct stkpy_dataset *self = (struct stkpy_dataset *)object;
    uint64_t sample;

    if (check(self) < 0 || stkpy_u64(which, "the sample", &sample) < 0)
        return NULL;
    char *path = PyMem_Malloc(PATH_MAX);
    if (!path)
        return PyErr_NoMemory();
    PyObject *place = locate(self, sample, path);
    PyMem_Free(path);
    return place;
}

static PyObject *
dataset_classes(PyObject *object, void *unused)
{
    struct stkpy_dataset *self = (struct stkpy_dataset *)object;

    (void)unused;
    if (check(self) < 0)
        return NULL;
    PyObject *names = PyTuple_New((Py_ssize_t)self->info.classes);
    for (uint32_t at = 0; names && at < self->info.classes; at++) {
        const char *text = stk_dataset_class_name(self->dataset, at);
        PyObject *name = PyUnicode_DecodeFSDefault(text ? text : "");

        if (!name || PyTuple_SetItem(names, (Py_ssize_t)at, name) < 0)
            Py_CLEAR(names);
    }
    return names;
}

static PyObject *
dataset_fields(PyObject *object, void *unused)
{
    struct stkpy_dataset *self = (struct stkpy_dataset *)object;

    (void)unused;
    if (check(self) < 0)
        return NULL;
    PyObject *names = PyTuple_New((Py_ssize_t)self->info.fields);
    for (uint32_t at = 0; names && at < self->info.fields; at++) {
        PyObject *name = PyUnicode_DecodeFSDefault(stk_dataset_field_name(self->dataset, at));

        if (!name || PyTuple_SetItem(names, (Py_ssize_t)at, name) < 0)
            Py_CLEAR(names);
    }
    return names;
}

static PyObject *
dataset_enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    if (check((struct stkpy_dataset *)object) < 0)
        return NULL;
    Py_INCREF(object);
    return object;
}

static PyMethodDef methods[] = {
    {"info", dataset_info, METH_NOARGS, "info($self, /)\n--\n\nWhat it is, as a dictionary."},
    {"locate", dataset_locate, METH_O,
     "locate($self, sample, /)\n--\n\nWhere a sample lies: (path, offset, bytes, label)."},
    {"close", dataset_close, METH_NOARGS,
     "close($self, /)\n--\n\nCloses it, as soon as no loader uses it any more."},
    {"__enter__", dataset_enter, METH_NOARGS, NULL},
    {"__exit__", dataset_close, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"classes", dataset_classes, NULL, "The names of the classes, by label.", NULL},
    {"fields", dataset_fields, NULL, "The names of a sample's fields.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc,
     "Dataset(engine, path=None, format='auto', *, rebuild=False, header_bytes=None, "
     "record_bytes=None, "
     "window_tokens=None, stride_tokens=None, token_bytes=None, labels_path=None, extensions=None, "
     "index_path=None, fields=None, extents=None)\n--\n\n"
     "extents: instead of a path, (path, offset, bytes) or (path, offset, bytes, label) of each "
     "sample.\nSamples where they lie. Indexed the first time; blocks while it is (not to be "
     "interrupted)."},
    {Py_tp_init, dataset_init},
    {Py_tp_dealloc, dataset_dealloc},
    {Py_tp_traverse, dataset_traverse},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_sq_length, dataset_length},
    {0, NULL},
};

PyType_Spec stkpy_dataset_spec = {
    .name = "stoker.Dataset",
    .basicsize = sizeof(struct stkpy_dataset),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};
