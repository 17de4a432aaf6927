/* SPDX-License-Identifier: Apache-2.0 */
/* Loader.stats(), Loader.replacements() and Loader.warning(). */
#include "binding.h"

#include <errno.h>

#define KEPT_REPLACEMENTS 4096

static const char *const tier_names[STK_TIERS] = {"ram", "ssd", "peer", "origin"};

static const struct {
    const char *name;
    size_t offset;
} numbers[] = {
#define NUMBER(member)                              \
    {                                               \
#member, offsetof(stk_loader_stats, member) \
    }
    NUMBER(batches),      NUMBER(samples),     NUMBER(bytes),          NUMBER(wait_ns),
    NUMBER(elapsed_ns),   NUMBER(wait_p50_ns), NUMBER(wait_p99_ns),    NUMBER(wait_max_ns),
    NUMBER(origin_bytes), NUMBER(bound_bytes), NUMBER(capacity_bytes), NUMBER(resident_bytes),
    NUMBER(replaced),     NUMBER(allocations), NUMBER(ssd_bytes),      NUMBER(ssd_written_bytes),
    NUMBER(ssd_refused),  NUMBER(ssd_dropped),
#undef NUMBER
};

static PyObject *
by_tier(const uint64_t *values)
{
    PyObject *dict = PyDict_New();

    for (int tier = 0; dict && tier < STK_TIERS; tier++)
        if (stkpy_dict_set(dict, tier_names[tier], PyLong_FromUnsignedLongLong(values[tier])) < 0)
            Py_CLEAR(dict);
    return dict;
}

static PyObject *
describe(const stk_loader_stats *stats, PyObject *epoch)
{
    PyObject *dict = PyDict_New();
    int rc = dict ? PyDict_SetItemString(dict, "epoch", epoch) : -1;

    for (size_t at = 0; rc == 0 && at < sizeof(numbers) / sizeof(numbers[0]); at++) {
        uint64_t value;

        memcpy(&value, (const char *)stats + numbers[at].offset, sizeof(value));
        rc = stkpy_dict_set(dict, numbers[at].name, PyLong_FromUnsignedLongLong(value));
    }
    if (rc == 0)
        rc = stkpy_dict_set(dict, "tier_samples", by_tier(stats->tier_samples));
    if (rc == 0)
        rc = stkpy_dict_set(dict, "tier_bytes", by_tier(stats->tier_bytes));
    if (rc < 0)
        Py_CLEAR(dict);
    return dict;
}

static int
check(struct stkpy_loader *self)
{
    return stkpy_check(self->loader, self->is_closing, self->forks, "the loader");
}

PyObject *
stkpy_loader_stats(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"epoch", NULL};
    struct stkpy_loader *self = (struct stkpy_loader *)object;
    stk_loader_stats stats = {STK_LOADER_STATS_INIT};
    PyObject *given = Py_None;
    uint64_t epoch = UINT64_MAX;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:stats", names, &given) ||
        (given != Py_None && stkpy_u64(given, "epoch", &epoch) < 0) || check(self) < 0)
        return NULL;
    int rc = stk_loader_get_stats(self->loader, epoch, &stats);
    if (rc == -ENOENT) {
        PyErr_Format(PyExc_KeyError, "no statistics are kept of epoch %S", given);
        return NULL;
    }
    return rc < 0 ? stkpy_raise(rc, NULL) : describe(&stats, given);
}

static PyObject *
list_of(const stk_replacement *ledger, int count)
{
    PyObject *list = PyList_New(count);

    for (int at = 0; list && at < count; at++) {
        PyObject *entry = Py_BuildValue(
            "(KKKi)", (unsigned long long)ledger[at].epoch, (unsigned long long)ledger[at].sample,
            (unsigned long long)ledger[at].replacement, (int)ledger[at].reason);

        if (!entry || PyList_SetItem(list, at, entry) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *
stkpy_loader_replacements(PyObject *object, PyObject *unused)
{
    struct stkpy_loader *self = (struct stkpy_loader *)object;
    uint64_t total;

    (void)unused;
    if (check(self) < 0)
        return NULL;
    stk_replacement *ledger = PyMem_Malloc(KEPT_REPLACEMENTS * sizeof(*ledger));
    if (!ledger)
        return PyErr_NoMemory();
    int count = stk_loader_replacements(self->loader, ledger, KEPT_REPLACEMENTS, &total);
    PyObject *list = count < 0 ? stkpy_raise(count, NULL) : list_of(ledger, count);
    PyMem_Free(ledger);
    return list;
}

PyObject *
stkpy_loader_warning(PyObject *object, PyObject *unused)
{
    struct stkpy_loader *self = (struct stkpy_loader *)object;
    stk_error err;

    (void)unused;
    if (check(self) < 0)
        return NULL;
    if (stk_loader_last_warning(self->loader, &err) < 0)
        Py_RETURN_NONE;
    return stkpy_error_from(&err);
}
