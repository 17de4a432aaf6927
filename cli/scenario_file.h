/* SPDX-License-Identifier: Apache-2.0 */
/* Scenario files: docs/format/scenario.md. */
#ifndef CLI_SCENARIO_FILE_H
#define CLI_SCENARIO_FILE_H

#include <stddef.h>

#include <stoker/simulate.h>

/*
 * Reads a scenario from a file. Returns 0, or -1 after writing what is wrong, with path,
 * line and key, to message. ret_scenario: returns owned.
 */
int
cli_scenario_load(const char *path, stk_scenario **ret_scenario, char *message, size_t n_message);

/* The same from a text; path: what messages call it. */
int
cli_scenario_parse(const char *path, const char *text, stk_scenario **ret_scenario, char *message,
                   size_t n_message);

#endif
