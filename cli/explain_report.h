/* SPDX-License-Identifier: Apache-2.0 */
/* How a run that was told beforehand is shown. */
#ifndef CLI_EXPLAIN_REPORT_H
#define CLI_EXPLAIN_REPORT_H

#include <jansson.h>

#include "bench_load.h"

/* The told run and the costs as JSON objects. Return owned, or NULL. */
json_t *
explained_json(const struct explained *explained);
json_t *
costs_json(const stk_costs *costs);

/* Prints the table of the told run. */
void
explained_print(const struct explained *explained);

/* With peers: from where this rank's samples came from the second epoch on, beside what was
 * told of that, and of the published policy. JSON: returns owned, or NULL. */
json_t *
shares_json(const struct bench_load_result *result);
void
shares_print(const struct bench_load_result *result);

/* All that "stoker explain" says. Return CLI_OK, or CLI_FAILED after saying why. */
int
explain_report_text(const char *command, const struct bench_load_request *request,
                    const struct bench_load_result *result);
int
explain_report_json(const char *command, const struct bench_load_request *request,
                    const struct bench_load_result *result);

#endif
