/* SPDX-License-Identifier: Apache-2.0 */
/* How the result of a measured run is shown. */
#ifndef CLI_BENCH_REPORT_H
#define CLI_BENCH_REPORT_H

#include "bench_load.h"

/* Prints the result as one JSON object on stdout. Returns CLI_OK or CLI_FAILED (said). */
int
bench_report_json(const char *command, const struct bench_load_request *request,
                  const struct bench_load_result *result);

/* Prints the result for a person on stdout. Returns CLI_OK or CLI_FAILED (said). */
int
bench_report_text(const char *command, const struct bench_load_request *request,
                  const struct bench_load_result *result);

#endif
