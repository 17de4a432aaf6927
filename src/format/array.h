/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that hold one array: .npy (versions 1 to 3) and IDX. Their heads are parsed from
 * bytes; what comes out is where the elements lie and what they are. Pure; any thread.
 */
#ifndef STI_FORMAT_ARRAY_H
#define STI_FORMAT_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stoker/types.h>

/* Bytes from a file's start that are enough to parse its head, or the whole file. */
#define STI_ARRAY_HEAD_MAX 65536
#define STI_ARRAY_MAX_DIMS 32

struct sti_array {
    uint32_t dims; /* of the whole array, 1 .. STI_ARRAY_MAX_DIMS */
    uint32_t element_bytes;
    uint64_t data_offset;
    uint64_t n_elements;
    uint64_t n_bytes; /* of all elements; data_offset + n_bytes is at most INT64_MAX */
    uint64_t shape[STI_ARRAY_MAX_DIMS];
    char kind;       /* NumPy's letter: 'u', 'i', 'f', 'b', ... */
    bool big_endian; /* elements of more than one byte */
    char dtype[8];   /* NumPy's type string, "" if it does not fit */
};

enum sti_array_file {
    STI_ARRAY_NONE, /* something else */
    STI_ARRAY_NPY,
    STI_ARRAY_IDX,
    STI_ARRAY_GZIP, /* compressed, whatever is inside */
    STI_ARRAY_ZIP   /* .npz */
};

/* What a file is by its first bytes. */
enum sti_array_file
sti_array_recognise(const void *head, size_t n_bytes);

/*
 * Parses a head. head: the file's first n_bytes (STI_ARRAY_HEAD_MAX, or all of it). path:
 * for err. Errors: -EINVAL, in words (damaged, Fortran order, objects, too many
 * dimensions).
 */
int
sti_array_parse_npy(struct sti_array *ret_array, const void *head, size_t n_bytes, const char *path,
                    stk_error *err);
int
sti_array_parse_idx(struct sti_array *ret_array, const void *head, size_t n_bytes, const char *path,
                    stk_error *err);

/* An element that is an integer, from its bytes. Errors: -EINVAL no integer type, -ERANGE
 * more than INT64_MAX. */
int
sti_array_get_integer(const struct sti_array *array, const unsigned char *element,
                      int64_t *ret_value);

#endif
