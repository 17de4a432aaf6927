/* SPDX-License-Identifier: Apache-2.0 */
/* File names: how they are ordered and which of them are samples. Pure. */
#ifndef STI_FORMAT_NAME_H
#define STI_FORMAT_NAME_H

#include <stdbool.h>
#include <stddef.h>

/* What torchvision's ImageFolder takes for an image. */
#define STI_NAME_IMAGE_ENDINGS ".jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp"

/* Every file is a sample. */
#define STI_NAME_ANY "*"

/* Ends the name of every index and begins that of a temporary, STI_NAME_INDEX ".*.tmp";
 * such a name is never a sample. */
#define STI_NAME_INDEX ".stoker-index"

/*
 * Compares as Python compares two str that os.fsdecode() made of these bytes: by code
 * point, where a byte that is not UTF-8 counts as U+DC00 plus its value (PEP 383).
 * Returns as strcmp().
 */
int
sti_name_compare_text(const char *a, const char *b);

/* Whether a name ends in one of the endings, which are separated by blanks, without
 * regard to ASCII case. The ending "*" accepts every name. */
bool
sti_name_has_ending(const char *name, size_t name_bytes, const char *endings);

/* Whether a name is that of an index or of an unfinished one. */
bool
sti_name_is_index(const char *name);

#endif
