/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Array files: what both kinds have in common, and IDX. An IDX file begins with two zero
 * bytes, one byte for the type, one for the number of dimensions, then each dimension as
 * a big-endian 32-bit number; the elements follow, big-endian, the last dimension running
 * fastest (LeCun, Cortes, Burges: the MNIST database). Invariant: the element count and
 * every offset have been checked against overflow when they leave this file. Pure; any
 * thread.
 */
#include "format/array.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "format/array_internal.h"

struct idx_type {
    unsigned char code;
    char kind;
    unsigned char element_bytes;
    const char *dtype;
};

static const struct idx_type idx_types[] = {
    {0x08, 'u', 1, "|u1"}, {0x09, 'i', 1, "|i1"}, {0x0b, 'i', 2, ">i2"},
    {0x0c, 'i', 4, ">i4"}, {0x0d, 'f', 4, ">f4"}, {0x0e, 'f', 8, ">f8"},
};

static const struct idx_type *
find_idx_type(unsigned char code)
{
    for (size_t i = 0; i < sizeof(idx_types) / sizeof(idx_types[0]); i++)
        if (idx_types[i].code == code)
            return &idx_types[i];
    return NULL;
}

enum sti_array_file
sti_array_recognise(const void *head, size_t n_bytes)
{
    const unsigned char *at = head;

    if (n_bytes >= 6 && memcmp(at, "\x93NUMPY", 6) == 0)
        return STI_ARRAY_NPY;
    if (n_bytes >= 4 && memcmp(at, "PK\x03\x04", 4) == 0)
        return STI_ARRAY_ZIP;
    if (n_bytes >= 2 && at[0] == 0x1f && at[1] == 0x8b)
        return STI_ARRAY_GZIP;
    if (n_bytes >= 4 && at[0] == 0 && at[1] == 0 && find_idx_type(at[2]) && at[3] > 0)
        return STI_ARRAY_IDX;
    return STI_ARRAY_NONE;
}

bool
array_count(struct sti_array *array)
{
    array->n_elements = 1;
    for (uint32_t i = 0; i < array->dims; i++)
        if (__builtin_mul_overflow(array->n_elements, array->shape[i], &array->n_elements))
            return false;
    return !__builtin_mul_overflow(array->n_elements, array->element_bytes, &array->n_bytes) &&
           array->n_bytes <= INT64_MAX - array->data_offset;
}

int
sti_array_parse_idx(struct sti_array *ret_array, const void *head, size_t n_bytes, const char *path,
                    stk_error *err)
{
    struct sti_array array = {.big_endian = true};
    const unsigned char *at = head;

    const struct idx_type *type = n_bytes >= 4 ? find_idx_type(at[2]) : NULL;
    if (!type || sti_array_recognise(head, n_bytes) != STI_ARRAY_IDX)
        return sti_error_set_path(err, -EINVAL, path,
                                  "not an IDX file: it should begin with 0, 0, a type (8, 9, 11 "
                                  ".. 14) and the number of dimensions");
    array.dims = at[3];
    if (array.dims > STI_ARRAY_MAX_DIMS)
        return sti_error_set_path(err, -EINVAL, path, "%u dimensions are more than %d", array.dims,
                                  STI_ARRAY_MAX_DIMS);
    array.data_offset = 4 + (uint64_t)4 * array.dims;
    if (n_bytes < array.data_offset)
        return sti_error_set_path(err, -EINVAL, path, "the IDX file is cut off in its head");
    array.kind = type->kind;
    array.element_bytes = type->element_bytes;
    memcpy(array.dtype, type->dtype, strlen(type->dtype));
    for (uint32_t i = 0; i < array.dims; i++) {
        const unsigned char *dim = at + 4 + (size_t)4 * i;

        array.shape[i] = (uint32_t)dim[0] << 24 | (uint32_t)dim[1] << 16 | (uint32_t)dim[2] << 8 |
                         (uint32_t)dim[3];
    }
    if (!array_count(&array))
        return sti_error_set_path(err, -EINVAL, path, "the IDX dimensions multiply to too much");
    *ret_array = array;
    return 0;
}

int
sti_array_get_integer(const struct sti_array *array, const unsigned char *element,
                      int64_t *ret_value)
{
    uint32_t n = array->element_bytes;
    uint64_t value = 0;

    if ((array->kind != 'u' && array->kind != 'i' && array->kind != 'b') || n == 0 || n > 8)
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++)
        value = value << 8 | element[array->big_endian ? i : n - 1 - i];
    if (array->kind == 'i' && n < 8 && (value >> (8 * n - 1) & 1))
        value |= UINT64_MAX << (8 * n);
    if (array->kind == 'u' && value > INT64_MAX)
        return -ERANGE;
    *ret_value = (int64_t)value;
    return 0;
}
