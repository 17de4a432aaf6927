/* SPDX-License-Identifier: Apache-2.0 */
/* Taking an extensible option struct from a program that may be of another version. */
#ifndef STI_API_OPTS_H
#define STI_API_OPTS_H

#include <stddef.h>

#include <stoker/types.h>

/* What a type of option struct is here and was when it was first released. */
struct sti_opts_type {
    const char *name;  /* "stk_order_opts", for messages */
    size_t size;       /* in this version */
    size_t first_size; /* in the version that released it */
};

/*
 * Copies a caller's option struct into dst (type->size bytes) and zero-fills what the
 * caller's version does not have; dst's own size becomes type->size. src: borrowed;
 * begins with its size_t size; NULL means every default. Errors: -EINVAL size is below
 * first_size or absurd (more than 64 KiB: not initialised), -E2BIG src has something set
 * that this version does not know.
 */
int
sti_opts_take(void *dst, const struct sti_opts_type *type, const void *src, stk_error *err);

#endif
