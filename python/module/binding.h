/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the Python module share: its objects and how they hold one another.
 *
 * Array -> Batch -> Loader -> Dataset -> Engine: each keeps the next alive, so that
 * Python may drop them in any order. Nothing points back, so a cycle always runs through
 * the attributes of a subclass or through a container, which Python clears: the objects
 * are traversed, never cleared.
 *
 * Closing waits for its turn: an engine closes when no data set or loader uses it any
 * more, a data set when no loader does, a loader when no buffer into it is exported.
 * Everything here is guarded by the interpreter's lock; an object that drops it in a call
 * marks itself first.
 */
#ifndef PYTHON_MODULE_BINDING_H
#define PYTHON_MODULE_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <stoker/stoker.h>

/* ---- objects ---- */

struct stkpy_engine {
    PyObject_HEAD stk_engine *engine; /* NULL: not opened, or closed */
    unsigned long forks;
    uint32_t rank, world; /* as its comm has them; else 0 and 1 */
    uint32_t n_users;     /* open data sets, loaders and checkpoint directories */
    bool is_closing;
};

struct stkpy_dataset {
    PyObject_HEAD struct stkpy_engine *engine;
    stk_dataset *dataset; /* NULL: not opened, or closed */
    stk_dataset_info info;
    unsigned long forks;
    uint32_t n_users; /* open loaders */
    bool is_closing;
};

struct stkpy_order {
    PyObject_HEAD stk_order *order; /* NULL: not made */
    stk_order_opts opts;
};

/* What an element of a buffer is, and the dimensions of one sample. */
struct stkpy_layout {
    char format[4]; /* as in Python's struct module */
    int n_dims;
    Py_ssize_t element_bytes;
    Py_ssize_t shape[STK_MAX_DIMS];
};

struct stkpy_loader {
    PyObject_HEAD struct stkpy_engine *engine;
    struct stkpy_dataset *dataset;
    stk_loader *loader; /* NULL: not opened, or closed */
    unsigned long forks;
    struct stkpy_layout layout; /* of a sample in the fixed layout */
    stk_batch *returned;        /* given back while a thread was in a call; n_returned of them */
    uint32_t n_returned;
    uint32_t n_exports; /* buffers into the loader's memory that are out */
    uint32_t n_out;     /* batches that are */
    bool is_busy;       /* a thread is in a call and does not hold the interpreter's lock */
    bool is_closing;
};

struct stkpy_batch {
    PyObject_HEAD struct stkpy_loader *loader;
    stk_batch batch; /* what it points to is the library's while is_out */
    uint32_t n_exports;
    bool is_out;
    bool is_released; /* goes back when the last export ends */
};

struct stkpy_array {
    PyObject_HEAD PyObject *owner; /* of the memory */
    struct stkpy_batch *batch;     /* the owner, where that is a batch; else NULL */
    void *bytes;
    Py_ssize_t n_bytes;
    Py_ssize_t element_bytes;
    Py_ssize_t shape[STK_MAX_DIMS + 1];
    Py_ssize_t strides[STK_MAX_DIMS + 1];
    int n_dims;
    char format[4];
    bool is_readonly;
};

/* Set when the module is made; one interpreter of a process has it. */
extern PyObject *stkpy_error;
extern PyTypeObject *stkpy_engine_type;
extern PyTypeObject *stkpy_dataset_type;
extern PyTypeObject *stkpy_order_type;
extern PyTypeObject *stkpy_loader_type;
extern PyTypeObject *stkpy_batch_type;
extern PyTypeObject *stkpy_items_type;
extern PyTypeObject *stkpy_epoch_type;
extern PyTypeObject *stkpy_array_type;
extern PyTypeObject *stkpy_ckpt_type;
extern PyTypeObject *stkpy_tensors_type;
extern PyTypeObject *stkpy_view_type;
extern PyTypeObject *stkpy_file_type;

extern PyType_Spec stkpy_engine_spec;
extern PyType_Spec stkpy_dataset_spec;
extern PyType_Spec stkpy_order_spec;
extern PyType_Spec stkpy_loader_spec;
extern PyType_Spec stkpy_batch_spec;
extern PyType_Spec stkpy_items_spec;
extern PyType_Spec stkpy_epoch_spec;
extern PyType_Spec stkpy_array_spec;
extern PyType_Spec stkpy_ckpt_spec;
extern PyType_Spec stkpy_tensors_spec;
extern PyType_Spec stkpy_view_spec;
extern PyType_Spec stkpy_file_spec;

/* ---- module.c ---- */

/* The tp_new of types whose objects others make: raises TypeError. */
PyObject *
stkpy_no_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);

/* ---- errors.c ---- */

/* Raises stoker.Error for a code; err may be NULL, otherwise says it. Returns NULL. */
PyObject *
stkpy_raise(int code, const stk_error *err);

/* A stoker.Error of what err says, not raised. */
PyObject *
stkpy_error_from(const stk_error *err);

/* The same with words of the binding's own, for calls that give a code alone. */
PyObject *
stkpy_raise_message(int code, const char *message);

/* Begins to count forks. Errors: -ENOMEM. */
int
stkpy_forks_watch(void);

/* Forks between the process that loaded the module and this one: 0 in the former. */
unsigned long
stkpy_forks(void);

/*
 * 0, or -1 and ValueError where a handle is gone, RuntimeError where it is of another
 * process: threads do not survive a fork, so what needs them cannot be used. what: "the
 * loader".
 */
int
stkpy_check(const void *handle, bool is_closing, unsigned long forks, const char *what);

/* ---- options.c ---- */

enum stkpy_kind {
    STKPY_U32, /* these: an integer, or None for the default */
    STKPY_U64,
    STKPY_I64,
    STKPY_COUNT,  /* uint32_t, and 0 means none (STK_NONE) */
    STKPY_TEXT,   /* a string or None; const char * */
    STKPY_PATH,   /* a path or None; const char * */
    STKPY_MS,     /* seconds or None; milliseconds as uint32_t */
    STKPY_FLAG,   /* truth as uint32_t */
    STKPY_UNFLAG, /* the opposite */
    STKPY_NAME,   /* one of names; its index as uint32_t */
    STKPY_LAST_OPTIONAL = STKPY_MS
};

/* A keyword argument and the field of an option struct that it is. */
struct stkpy_option {
    const char *name; /* NULL ends a table */
    enum stkpy_kind kind;
    size_t offset;
    const char *const *names;
};

/*
 * Returns a new dictionary of all arguments by name: positional ones get theirs from
 * names (ended by NULL). NULL and TypeError where there are too many or one is given
 * twice.
 */
PyObject *
stkpy_arguments(PyObject *args, PyObject *kwargs, const char *const *names);

/* Takes an argument out. Returns owned, or NULL: without an error where it is not
 * there. */
PyObject *
stkpy_arguments_pop(PyObject *arguments, const char *name);

/* The same for one that must be there, of a type if that is not NULL. */
PyObject *
stkpy_arguments_need(PyObject *arguments, const char *name, PyTypeObject *type);

/*
 * Takes the arguments that a table knows out of a dictionary into a struct. Strings are
 * borrowed from objects that are appended to the list keep. Returns how many, or -1 with
 * an error set.
 */
int
stkpy_options_take(PyObject *arguments, const struct stkpy_option *options, void *into,
                   PyObject *keep);

/* 0, or -1 and TypeError where an argument is left that nothing has taken. */
int
stkpy_arguments_end(PyObject *arguments, const char *callable);

/* A path that must be there, borrowed as above. NULL with an error set. */
const char *
stkpy_path_need(PyObject *arguments, const char *name, PyObject *keep);

/* How an object is opened by its constructor. */
struct stkpy_opening {
    const char *what; /* "the loader is" */
    bool is_open;     /* it has been opened before */
    const char *const *positional;
    /* Takes the arguments and opens. Strings live as long as keep. Returns 0, or -1 with an
     * error set. */
    int (*open)(PyObject *object, PyObject *arguments, PyObject *keep);
};

/* Opens an object once. Returns 0, or -1 with an error set. */
int
stkpy_open(PyObject *object, PyObject *args, PyObject *kwargs, const struct stkpy_opening *opening);

/* An integer that fits. Returns 0, or -1 with an error set. what: for the message. */
int
stkpy_u64(PyObject *object, const char *what, uint64_t *ret_value);

/* ---- the objects' files ---- */

/* An order's arguments without n and kind; its kind, where a loader is given it as
 * "order". */
extern const struct stkpy_option stkpy_order_options[];
extern const struct stkpy_option stkpy_order_kind_options[];

/* As stkpy_check(), of an engine. */
int
stkpy_engine_check(const struct stkpy_engine *self);

/* A user of the engine has gone; closes it if it waits for that. */
void
stkpy_engine_put(struct stkpy_engine *self);
void
stkpy_dataset_put(struct stkpy_dataset *self);

/* Adds a value under a name and drops the reference to it. Returns 0 or -1; value may be
 * NULL. */
int
stkpy_dict_set(PyObject *dict, const char *name, PyObject *value);

/* Gives a batch back now, or when the thread that is in a call comes out of it. */
void
stkpy_loader_give_back(struct stkpy_loader *self, const stk_batch *batch);

/* An exported buffer has ended; closes the loader if it waits for that. */
void
stkpy_loader_put(struct stkpy_loader *self);

/* How the samples of a data set look in the fixed layout: bytes, where nothing better is
 * known. */
void
stkpy_layout_of(struct stkpy_layout *layout, const stk_dataset_info *info);

/* Methods of a loader that have a file of their own (loader_push.c, loader_stats.c). */
PyObject *
stkpy_loader_push(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *
stkpy_loader_stats(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *
stkpy_loader_replacements(PyObject *object, PyObject *unused);
PyObject *
stkpy_loader_warning(PyObject *object, PyObject *unused);

/* Begins a call of the library on a loader. Returns 0, or -1 with an error set. */
int
stkpy_loader_begin(struct stkpy_loader *self);
void
stkpy_loader_end(struct stkpy_loader *self);

/* A batch that is not filled yet. Returns owned. */
struct stkpy_batch *
stkpy_batch_new(struct stkpy_loader *loader);

/* A buffer of one dimension. owner: kept; batch: as in the struct. Returns owned. */
struct stkpy_array *
stkpy_array_new(PyObject *owner, struct stkpy_batch *batch, const void *bytes, Py_ssize_t count,
                const char *format, Py_ssize_t element_bytes);

/* Marks an array as exported, so that its memory stays. Returns 0, or -1 with an error
 * set. */
int
stkpy_array_hold(struct stkpy_array *array);
void
stkpy_array_put(struct stkpy_array *array);

/* __dlpack__ and __dlpack_device__ of an array (dlpack.c). */
PyObject *
stkpy_dlpack(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *
stkpy_dlpack_device(PyObject *object, PyObject *unused);

/* Where a method is declared with other arguments than its table has. */
#define STKPY_METHOD(function) ((PyCFunction)(void (*)(void))(function))

#endif
