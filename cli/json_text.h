/* SPDX-License-Identifier: Apache-2.0 */
/* Text of the system in JSON, which knows UTF-8 only, while a path may be any bytes. */
#ifndef CLI_JSON_TEXT_H
#define CLI_JSON_TEXT_H

#include <jansson.h>

/* A JSON string of text; where that is not UTF-8, each byte beyond ASCII is shown as U+FFFD.
 * Owned by the caller; NULL when there is no memory. */
json_t *
cli_json_text(const char *text);

#endif
