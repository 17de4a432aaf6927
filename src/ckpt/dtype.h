/* SPDX-License-Identifier: Apache-2.0 */
/* The element types of the safetensors specification (0.8) and how many bits each
 * takes. */
#ifndef STI_CKPT_DTYPE_H
#define STI_CKPT_DTYPE_H

#include <stddef.h>
#include <stdint.h>

struct sti_dtype {
    const char *name; /* as in the header: "F32" */
    uint32_t bits;
};

/* NULL where no type is named so. Returns a constant. */
const struct sti_dtype *
sti_dtype_find(const char *name);

/* The idx-th of all types, NULL beyond the last. */
const struct sti_dtype *
sti_dtype_at(uint32_t idx);

/*
 * Bytes of a tensor. Errors: -EOVERFLOW, -EINVAL where elements narrower than a byte do
 * not fill the last one.
 */
int
sti_dtype_bytes(const struct sti_dtype *dtype, const uint64_t *shape, uint32_t dims,
                uint64_t *ret_bytes);

#endif
