/* SPDX-License-Identifier: Apache-2.0 */
/* What the parsers of array files share. */
#ifndef STI_FORMAT_ARRAY_INTERNAL_H
#define STI_FORMAT_ARRAY_INTERNAL_H

#include <stdbool.h>

struct sti_array;

/* Multiplies the shape into counts; false where they are too large. */
bool
array_count(struct sti_array *array);

#endif
