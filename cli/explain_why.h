/* SPDX-License-Identifier: Apache-2.0 */
/* stoker explain --why: where one sample of a data set is in a run. */
#ifndef CLI_EXPLAIN_WHY_H
#define CLI_EXPLAIN_WHY_H

#include "bench_load.h"

/* Prints it. Returns what the program exits with. */
int
explain_why(const char *command, const struct bench_load_request *request,
            const stk_dataset *dataset);

#endif
