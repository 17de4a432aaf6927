/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stoker._core: the module and its types. Only the limited interface of Python 3.11 is
 * used, so that one build serves this and every later version, and of that only what
 * Python 3.9 has too, for which, as for 3.10, it is built once more.
 *
 * Types are kept in variables, not in the module's state: an object's slots then find
 * them by themselves. So the module is of one interpreter, and others refuse to import
 * it.
 */
#include "binding.h"

PyObject *stkpy_error;
PyTypeObject *stkpy_engine_type;
PyTypeObject *stkpy_dataset_type;
PyTypeObject *stkpy_order_type;
PyTypeObject *stkpy_loader_type;
PyTypeObject *stkpy_batch_type;
PyTypeObject *stkpy_items_type;
PyTypeObject *stkpy_epoch_type;
PyTypeObject *stkpy_array_type;
PyTypeObject *stkpy_ckpt_type;
PyTypeObject *stkpy_tensors_type;
PyTypeObject *stkpy_view_type;
PyTypeObject *stkpy_file_type;

static const struct {
    const char *name; /* in the module; NULL: made by others only, and not shown */
    PyType_Spec *spec;
    PyTypeObject **type;
} types[] = {
    {"Engine", &stkpy_engine_spec, &stkpy_engine_type},
    {"Dataset", &stkpy_dataset_spec, &stkpy_dataset_type},
    {"Order", &stkpy_order_spec, &stkpy_order_type},
    {"Loader", &stkpy_loader_spec, &stkpy_loader_type},
    {"Batch", &stkpy_batch_spec, &stkpy_batch_type},
    {"Array", &stkpy_array_spec, &stkpy_array_type},
    {"Checkpoints", &stkpy_ckpt_spec, &stkpy_ckpt_type},
    {"Tensors", &stkpy_tensors_spec, &stkpy_tensors_type},
    {"View", &stkpy_view_spec, &stkpy_view_type},
    {"File", &stkpy_file_spec, &stkpy_file_type},
    {NULL, &stkpy_items_spec, &stkpy_items_type},
    {NULL, &stkpy_epoch_spec, &stkpy_epoch_type},
};

static const struct {
    const char *name;
    int code;
} codes[] = {
    {"E_CORRUPT", STK_E_CORRUPT},       {"E_VERSION", STK_E_VERSION}, {"E_STALE", STK_E_STALE},
    {"E_MISMATCH", STK_E_MISMATCH},     {"E_SAMPLE", STK_E_SAMPLE},   {"E_BORROW", STK_E_BORROW},
    {"E_INFEASIBLE", STK_E_INFEASIBLE},
};

PyObject *
stkpy_no_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    PyErr_Format(PyExc_TypeError, "cannot create %R instances: others make them", type);
    return NULL;
}

static int
add_type(PyObject *module, const char *name, PyObject *type)
{
    Py_INCREF(type);
    if (PyModule_AddObject(module, name, type) == 0) /* which takes the reference */
        return 0;
    Py_DECREF(type);
    return -1;
}

static int
add_types(PyObject *module)
{
    for (size_t at = 0; at < sizeof(types) / sizeof(types[0]); at++) {
        PyObject *type = PyType_FromModuleAndSpec(module, types[at].spec, NULL);

        *types[at].type = (PyTypeObject *)type;
        if (!type || (types[at].name && add_type(module, types[at].name, type) < 0))
            return -1;
    }
    return 0;
}

static int
fill(PyObject *module)
{
    PyObject *errors = PyImport_ImportModule("stoker._errors");

    if (errors)
        stkpy_error = PyObject_GetAttrString(errors, "Error");
    Py_XDECREF(errors);
    if (!stkpy_error || add_types(module) < 0)
        return -1;
    for (size_t at = 0; at < sizeof(codes) / sizeof(codes[0]); at++)
        if (PyModule_AddIntConstant(module, codes[at].name, codes[at].code) < 0)
            return -1;
    if (stkpy_forks_watch() < 0) {
        PyErr_NoMemory();
        return -1;
    }
    return PyModule_AddStringConstant(module, "__version__", stk_version());
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "stoker._core",
    .m_doc = "Stoker's C interface.",
    .m_size = -1,
};

PyMODINIT_FUNC
PyInit__core(void); /* what the interpreter looks for */

PyMODINIT_FUNC
PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);

    if (module && fill(module) < 0)
        Py_CLEAR(module);
    return module;
}
