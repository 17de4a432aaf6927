/* SPDX-License-Identifier: Apache-2.0 */
/* Element types: a table, and the size of a tensor with its overflows. Pure. */
#include "ckpt/dtype.h"

#include <errno.h>
#include <string.h>

static const struct sti_dtype dtypes[] = {
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
};
#define N_DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

const struct sti_dtype *
sti_dtype_find(const char *name)
{
    for (size_t at = 0; at < N_DTYPES; at++)
        if (strcmp(dtypes[at].name, name) == 0)
            return &dtypes[at];
    return NULL;
}

const struct sti_dtype *
sti_dtype_at(uint32_t idx)
{
    return idx < N_DTYPES ? &dtypes[idx] : NULL;
}

int
sti_dtype_bytes(const struct sti_dtype *dtype, const uint64_t *shape, uint32_t dims,
                uint64_t *ret_bytes)
{
    uint64_t n = 1;
    uint64_t bits;

    for (uint32_t dim = 0; dim < dims; dim++)
        if (__builtin_mul_overflow(n, shape[dim], &n))
            return -EOVERFLOW;
    if (__builtin_mul_overflow(n, dtype->bits, &bits) || bits > (uint64_t)INT64_MAX)
        return -EOVERFLOW;
    if (bits % 8 != 0)
        return -EINVAL;
    *ret_bytes = bits / 8;
    return 0;
}
