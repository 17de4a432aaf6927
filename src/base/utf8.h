/* SPDX-License-Identifier: Apache-2.0 */
/* Text that goes into JSON or SVG has to be UTF-8. */
#ifndef STI_BASE_UTF8_H
#define STI_BASE_UTF8_H

#include <stdbool.h>

/* Whether a string is UTF-8 without surrogates and overlong forms. */
bool
sti_utf8_is_valid(const char *value);

#endif
