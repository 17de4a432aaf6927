/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stoker.Batch: a loan of the loader. It ends by release(), by the end of a with block or
 * when Python drops the object, but never before the last buffer into it; only then does
 * it stop counting against borrow_max.
 */
#include "binding.h"

#include <structmember.h>

struct stkpy_batch *
stkpy_batch_new(struct stkpy_loader *loader)
{
    struct stkpy_batch *batch = PyObject_GC_New(struct stkpy_batch, stkpy_batch_type);

    if (!batch)
        return NULL;
    Py_INCREF((PyObject *)loader);
    batch->loader = loader;
    batch->batch = (stk_batch){0};
    batch->n_exports = 0;
    batch->is_out = false;
    batch->is_released = false;
    PyObject_GC_Track((PyObject *)batch);
    return batch;
}

static void
give_back(struct stkpy_batch *self)
{
    if (!self->is_out || self->n_exports > 0)
        return;
    self->is_out = false;
    stkpy_loader_give_back(self->loader, &self->batch);
}

static void
batch_dealloc(PyObject *object)
{
    struct stkpy_batch *self = (struct stkpy_batch *)object;
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    give_back(self);
    Py_DECREF((PyObject *)self->loader);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int
batch_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)((struct stkpy_batch *)object)->loader);
    return 0;
}

static PyObject *
batch_release(PyObject *object, PyObject *unused)
{
    struct stkpy_batch *self = (struct stkpy_batch *)object;

    (void)unused;
    self->is_released = true;
    give_back(self);
    return PyBool_FromLong(!self->is_out);
}

/* As release(), but true would swallow the exception that a block ends with. */
static PyObject *
batch_release_at_exit(PyObject *object, PyObject *unused)
{
    PyObject *done = batch_release(object, unused);

    Py_XDECREF(done);
    Py_RETURN_NONE;
}

static int
check(struct stkpy_batch *self)
{
    if (self->is_out && !self->is_released && self->loader->loader && !self->loader->is_closing)
        return 0;
    PyErr_SetString(PyExc_ValueError, "the batch has been given back");
    return -1;
}

static PyObject *
batch_enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    if (check((struct stkpy_batch *)object) < 0)
        return NULL;
    Py_INCREF(object);
    return object;
}

static Py_ssize_t
batch_length(PyObject *object)
{
    return (Py_ssize_t)((struct stkpy_batch *)object)->batch.count;
}

/* ---- what is in it ----------------------------------------------------------------- */

static PyObject *
batch_samples(PyObject *object, void *unused)
{
    struct stkpy_batch *self = (struct stkpy_batch *)object;

    (void)unused;
    if (check(self) < 0)
        return NULL;
    return (PyObject *)stkpy_array_new(object, self, self->batch.samples, self->batch.count, "Q",
                                       sizeof(uint64_t));
}

static PyObject *
batch_labels(PyObject *object, void *unused)
{
    struct stkpy_batch *self = (struct stkpy_batch *)object;

    (void)unused;
    if (check(self) < 0)
        return NULL;
    return (PyObject *)stkpy_array_new(object, self, self->batch.labels, self->batch.count, "q",
                                       sizeof(int64_t));
}

static PyObject *
batch_data(PyObject *object, void *unused)
{
    struct stkpy_batch *self = (struct stkpy_batch *)object;
    const struct stkpy_layout *layout = &self->loader->layout;

    (void)unused;
    if (check(self) < 0)
        return NULL;
    if (!self->batch.data)
        Py_RETURN_NONE;
    struct stkpy_array *array = stkpy_array_new(object, self, self->batch.data, self->batch.count,
                                                layout->format, (Py_ssize_t)self->batch.item_bytes);
    if (!array)
        return NULL;
    array->is_readonly = false;
    array->element_bytes = layout->element_bytes;
    array->n_dims = layout->n_dims + 1;
    for (int at = layout->n_dims; at > 0; at--) {
        array->shape[at] = layout->shape[at - 1];
        array->strides[at] = at == layout->n_dims ? layout->element_bytes
                                                  : array->strides[at + 1] * array->shape[at + 1];
    }
    return (PyObject *)array;
}

static PyObject *
batch_last_of_epoch(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((struct stkpy_batch *)object)->batch.last_of_epoch != 0);
}

/* ---- its samples one by one -------------------------------------------------------- */

struct items {
    PyObject_HEAD struct stkpy_batch *batch;
    uint64_t field_idx;
};

static PyObject *
items_new(PyObject *object, uint64_t field_idx)
{
    struct items *items = NULL;

    if (check((struct stkpy_batch *)object) == 0)
        items = PyObject_GC_New(struct items, stkpy_items_type);
    if (!items)
        return NULL;
    Py_INCREF(object);
    items->batch = (struct stkpy_batch *)object;
    items->field_idx = field_idx;
    PyObject_GC_Track((PyObject *)items);
    return (PyObject *)items;
}

static PyObject *
batch_items(PyObject *object, void *unused)
{
    (void)unused;
    return items_new(object, 0);
}

static PyObject *
batch_fields(PyObject *object, void *unused)
{
    struct stkpy_batch *batch = (struct stkpy_batch *)object;
    PyObject *dict = check(batch) == 0 ? PyDict_New() : NULL;

    (void)unused;
    for (uint64_t at = 0; dict && at < batch->batch.n_fields; at++)
        if (stkpy_dict_set(dict, batch->batch.fields[at].name, items_new(object, at)) < 0)
            Py_CLEAR(dict);
    return dict;
}

static void
items_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    PyObject_GC_UnTrack(object);
    Py_DECREF((PyObject *)((struct items *)object)->batch);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int
items_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)((struct items *)object)->batch);
    return 0;
}

static Py_ssize_t
items_length(PyObject *object)
{
    return (Py_ssize_t)((struct items *)object)->batch->batch.count;
}

static PyObject *
items_get(PyObject *object, Py_ssize_t at)
{
    struct stkpy_batch *batch = ((struct items *)object)->batch;

    if (at < 0 || at >= (Py_ssize_t)batch->batch.count) {
        PyErr_Format(PyExc_IndexError, "item %zd of a batch of %zd", at,
                     (Py_ssize_t)batch->batch.count);
        return NULL;
    }
    if (check(batch) < 0)
        return NULL;
    const stk_field *field = &batch->batch.fields[((struct items *)object)->field_idx];
    if (!field->items[at]) /* this sample lacks the field */
        Py_RETURN_NONE;
    struct stkpy_array *array = stkpy_array_new((PyObject *)batch, batch, field->items[at],
                                                (Py_ssize_t)field->n_bytes[at], "B", 1);
    PyObject *view = array ? PyMemoryView_FromObject((PyObject *)array) : NULL;
    Py_XDECREF((PyObject *)array);
    return view;
}

/* ---- types ------------------------------------------------------------------------- */

#define AT(member) (Py_ssize_t) offsetof(struct stkpy_batch, batch.member)

static PyMemberDef members[] = {
    {"epoch", T_ULONGLONG, AT(epoch), READONLY, "The epoch that it is of."},
    {"step", T_ULONGLONG, AT(step), READONLY, "Batches of the run before it."},
    {"epoch_step", T_ULONGLONG, AT(epoch_step), READONLY, "Batches of the epoch before it."},
    {"count", T_UINT, AT(count), READONLY, "Samples in it."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"last_of_epoch", batch_last_of_epoch, NULL, "Whether the epoch ends with it.", NULL},
    {"samples", batch_samples, NULL, "Ids, as an Array of uint64.", NULL},
    {"labels", batch_labels, NULL, "Labels, as an Array of int64; -1 without.", NULL},
    {"data", batch_data, NULL, "All samples, as one Array; None in the raw layout.", NULL},
    {"items", batch_items, NULL, "The samples one by one, as memoryviews of bytes.", NULL},
    {"fields", batch_fields, NULL, "The items of each field by its name; None where one lacks it.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"release", batch_release, METH_NOARGS,
     "release($self, /)\n--\n\nGives it back. False where buffers into it are still held: then it "
     "goes "
     "back with the last of them."},
    {"__enter__", batch_enter, METH_NOARGS, NULL},
    {"__exit__", batch_release_at_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot batch_slots[] = {
    {Py_tp_doc, "A batch, borrowed from a loader. len() is the number of its samples."},
    {Py_tp_new, stkpy_no_new},
    {Py_tp_dealloc, batch_dealloc},
    {Py_tp_traverse, batch_traverse},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {Py_mp_length, batch_length},
    {0, NULL},
};

PyType_Spec stkpy_batch_spec = {
    .name = "stoker.Batch",
    .basicsize = sizeof(struct stkpy_batch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = batch_slots,
};

static PyType_Slot items_slots[] = {
    {Py_tp_doc, "The samples of a batch as a sequence of memoryviews."},
    {Py_tp_new, stkpy_no_new},
    {Py_tp_dealloc, items_dealloc},
    {Py_tp_traverse, items_traverse},
    {Py_sq_length, items_length},
    {Py_sq_item, items_get},
    {0, NULL},
};

PyType_Spec stkpy_items_spec = {
    .name = "stoker.Items",
    .basicsize = sizeof(struct items),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = items_slots,
};
