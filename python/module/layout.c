/* SPDX-License-Identifier: Apache-2.0 */
/* From NumPy's type strings, which data sets have, to the formats of the buffer
 * protocol. */
#include "binding.h"

static const struct {
    const char *dtype; /* without its byte order */
    const char *format;
    Py_ssize_t element_bytes;
} types[] = {
    {"u1", "B", 1}, {"u2", "H", 2}, {"u4", "I", 4},  {"u8", "Q", 8},    {"i1", "b", 1},
    {"i2", "h", 2}, {"i4", "i", 4}, {"i8", "q", 8},  {"f2", "e", 2},    {"f4", "f", 4},
    {"f8", "d", 8}, {"b1", "?", 1}, {"c8", "Zf", 8}, {"c16", "Zd", 16},
};

static bool
is_native(char byte_order)
{
    const union {
        uint16_t number;
        char first;
    } probe = {1};

    return byte_order != (probe.first ? '>' : '<');
}

/* The elements that a dtype names; false for one that the table does not have. */
static bool
find_format(struct stkpy_layout *layout, const char *dtype)
{
    for (size_t at = 0; dtype[0] != '\0' && at < sizeof(types) / sizeof(types[0]); at++)
        if (strcmp(types[at].dtype, dtype + 1) == 0) {
            char order[2] = {is_native(dtype[0]) ? '\0' : dtype[0], '\0'};

            layout->element_bytes = types[at].element_bytes;
            (void)PyOS_snprintf(layout->format, sizeof(layout->format), "%s%s", order,
                                types[at].format); /* 3 characters at most */
            return true;
        }
    return false;
}

void
stkpy_layout_of(struct stkpy_layout *layout, const stk_dataset_info *info)
{
    uint64_t n_bytes = 1;

    if (find_format(layout, info->dtype)) {
        n_bytes = (uint64_t)layout->element_bytes;
        layout->n_dims = (int)info->dims;
        for (uint32_t at = 0; at < info->dims; at++) {
            layout->shape[at] = (Py_ssize_t)info->shape[at];
            if (__builtin_mul_overflow(n_bytes, info->shape[at], &n_bytes))
                n_bytes = 0;
        }
        if (n_bytes == info->record_bytes)
            return;
    }
    *layout = (struct stkpy_layout){.format = "B", .n_dims = 1, .element_bytes = 1};
    layout->shape[0] = (Py_ssize_t)info->record_bytes;
}
