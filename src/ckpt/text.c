/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows by doubling. A failure is remembered, so that a writer checks once at
 * its end. Values only; one thread. */
#include "ckpt/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define FIRST_CAPACITY ((size_t)4096)
#define PRINT_BYTES 256

void
sti_text_fini(struct sti_text *text)
{
    sti_mem_free(text->bytes);
    *text = (struct sti_text){0};
}

static bool
reserve(struct sti_text *text, size_t n_bytes)
{
    size_t capacity = text->capacity ? text->capacity : FIRST_CAPACITY;

    while (capacity - text->n_bytes < n_bytes && capacity <= SIZE_MAX / 2)
        capacity *= 2;
    if (capacity == text->capacity)
        return true;
    char *bytes =
        capacity - text->n_bytes < n_bytes ? NULL : sti_mem_resize(text->bytes, capacity, 1);
    if (!bytes) {
        text->is_failed = true;
        return false;
    }
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

void
sti_text_append(struct sti_text *text, const char *bytes, size_t n_bytes)
{
    if (text->is_failed || !reserve(text, n_bytes))
        return;
    memcpy(text->bytes + text->n_bytes, bytes, n_bytes);
    text->n_bytes += n_bytes;
}

void
sti_text_print(struct sti_text *text, const char *format, ...)
{
    char piece[PRINT_BYTES];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(piece, sizeof(piece), format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof(piece)) {
        text->is_failed = true;
        return;
    }
    sti_text_append(text, piece, (size_t)n);
}

void
sti_text_append_u64(struct sti_text *text, uint64_t value)
{
    char digits[20]; /* as many as 2^64 - 1 has */
    size_t at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    sti_text_append(text, digits + at, sizeof(digits) - at);
}

void
sti_text_append_json(struct sti_text *text, const char *value)
{
    const char *plain = value; /* begins what needs no escape */

    sti_text_append(text, "\"", 1);
    for (; *value; value++) {
        unsigned char byte = (unsigned char)*value;

        if (byte >= 0x20 && byte != '"' && byte != '\\')
            continue;
        sti_text_append(text, plain, (size_t)(value - plain));
        if (byte < 0x20)
            sti_text_print(text, "\\u%04x", (unsigned)byte);
        else
            sti_text_print(text, "\\%c", *value);
        plain = value + 1;
    }
    sti_text_append(text, plain, (size_t)(value - plain));
    sti_text_append(text, "\"", 1);
}
