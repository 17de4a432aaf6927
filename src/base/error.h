/* SPDX-License-Identifier: Apache-2.0 */
/* Filling a stk_error: the one way in which a configuring call explains itself. */
#ifndef STI_BASE_ERROR_H
#define STI_BASE_ERROR_H

#include <stdint.h>

#include <stoker/types.h>

#define STI_PRINTF(fmt_idx, arg_idx) __attribute__((format(printf, fmt_idx, arg_idx)))

/* Fills err (nullable) with code and a message. Returns code, so that a caller can return
 * it. */
int
sti_error_set(stk_error *err, int code, const char *format, ...) STI_PRINTF(3, 4);

/* The same, naming a path (borrowed, nullable). */
int
sti_error_set_path(stk_error *err, int code, const char *path, const char *format, ...)
    STI_PRINTF(4, 5);

/* The same, naming a sample and, if not NULL, a path. */
int
sti_error_set_sample(stk_error *err, int code, uint64_t sample, const char *path,
                     const char *format, ...) STI_PRINTF(5, 6);

/* The text of a negative or positive code: ours or errno's. Returns a constant string. */
const char *
sti_error_text(int code);

#endif
