/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows, and JSON strings in it. */
#ifndef STI_CKPT_TEXT_H
#define STI_CKPT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zero is empty. After a failed append is_failed is set and appends do nothing. */
struct sti_text {
    char *bytes;
    size_t n_bytes;
    size_t capacity;
    bool is_failed; /* no memory */
};

void
sti_text_fini(struct sti_text *text);

void
sti_text_append(struct sti_text *text, const char *bytes, size_t n_bytes);

/* A formatted piece of at most 255 bytes. */
void
sti_text_print(struct sti_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A number in decimal. */
void
sti_text_append_u64(struct sti_text *text, uint64_t value);

/* A JSON string with its quotes. value: valid UTF-8. */
void
sti_text_append_json(struct sti_text *text, const char *value);

#endif
