/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads of .npy and IDX files of any bytes. What is accepted has counts that fit each
 * other and begins inside the head; what is refused is refused in words.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/array.h"
#include "fuzz.h"

static void
check(int rc, const struct sti_array *array, size_t n_bytes, const stk_error *err)
{
    uint64_t n_elements = 1;

    if (rc < 0) {
        must(rc == -EINVAL && err->code == rc && err->message[0] != '\0');
        return;
    }
    must(array->dims >= 1 && array->dims <= STI_ARRAY_MAX_DIMS && array->element_bytes >= 1);
    must(array->data_offset <= n_bytes && array->n_bytes <= INT64_MAX - array->data_offset);
    for (uint32_t i = 0; i < array->dims; i++)
        n_elements *= array->shape[i];
    must(n_elements == array->n_elements);
    must(array->n_bytes == n_elements * array->element_bytes);
    must(array->dtype[sizeof(array->dtype) - 1] == '\0');
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct sti_array array;
    stk_error err;
    int64_t value;

    if (n_bytes > STI_ARRAY_HEAD_MAX)
        return 0;
    uint8_t *head = malloc(n_bytes ? n_bytes : 1); /* nothing behind it */
    must(head != NULL);
    memcpy(head, bytes, n_bytes);
    int rc = sti_array_parse_npy(&array, head, n_bytes, "x", &err);
    check(rc, &array, n_bytes, &err);
    if (rc == 0 && array.element_bytes <= n_bytes)
        (void)sti_array_get_integer(&array, head, &value); /* most types are no integers */
    rc = sti_array_parse_idx(&array, head, n_bytes, "x", &err);
    check(rc, &array, n_bytes, &err);
    free(head);
    return 0;
}
