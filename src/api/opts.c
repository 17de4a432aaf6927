/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Option structs across versions. A struct only ever grows at its end and zero means the
 * default in every field, so an older caller's is completed with zeros, and a newer
 * caller's is taken as long as it leaves at zero what is unknown here. Values only; any
 * thread.
 */
#include "api/opts.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

#define SIZE_MAX_SANE ((size_t)64 << 10)

int
sti_opts_take(void *dst, const struct sti_opts_type *type, const void *src, stk_error *err)
{
    size_t size = type->size;

    memset(dst, 0, type->size);
    if (src) {
        memcpy(&size, src, sizeof(size));
        if (size < type->first_size || size > SIZE_MAX_SANE)
            return sti_error_set(err, -EINVAL,
                                 "%s.size is %zu, which no version has; begin its initializer "
                                 "with the matching STK_..._INIT",
                                 type->name, size);
        const unsigned char *bytes = src;
        for (size_t i = type->size; i < size; i++)
            if (bytes[i])
                return sti_error_set(err, -E2BIG,
                                     "%s sets a field at byte %zu that this library (%zu bytes) "
                                     "does not know; use a newer library or leave it 0",
                                     type->name, i, type->size);
        memcpy(dst, src, size < type->size ? size : type->size);
    }
    memcpy(dst, &type->size, sizeof(type->size));
    return 0;
}
