/* SPDX-License-Identifier: Apache-2.0 */
/* A stoker.Comm, while an engine is opened with it. */
#ifndef PYTHON_MODULE_COMM_H
#define PYTHON_MODULE_COMM_H

#include "binding.h"

struct stkpy_comm {
    stk_comm_opts opts;
    const char **hosts;
    PyObject *exchange;    /* a function, or None */
    PyThreadState *thread; /* of whoever opens, while it does not hold the interpreter's lock */
};

/* From an object with the attributes of a stoker.Comm; strings live as long as keep. Does
 * not move until stkpy_comm_fini(), which ends it either way. Returns 0, or -1 with an
 * error set. */
int
stkpy_comm_init(struct stkpy_comm *self, PyObject *comm, PyObject *keep);
void
stkpy_comm_fini(struct stkpy_comm *self);

#endif
