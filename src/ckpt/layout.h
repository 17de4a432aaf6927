/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of a checkpoint: one safetensors stream. The header is padded so that data
 * starts on a block; tensors lie in descending order of element size, so that each is
 * aligned for its type; among those of one size come first those that all writers hold,
 * then those of groups of them, then those of one.
 */
#ifndef STI_CKPT_LAYOUT_H
#define STI_CKPT_LAYOUT_H

#include <stdint.h>

#include <stoker/types.h>

#include "ckpt/dtype.h"

#define STI_LAYOUT_HEADER_ALIGN 4096u
#define STI_LAYOUT_HEADER_MAX (UINT64_C(100) << 20) /* as the reference library's limit */
#define STI_LAYOUT_DIMS_MAX 64u
#define STI_LAYOUT_SHARED UINT32_MAX    /* an owner: all writers */
#define STI_LAYOUT_OWN (UINT32_MAX - 1) /* this writer alone */

/* Of which tensor something is a box, and where that begins. shape and start: as many values
 * as the box has dimensions. name NULL: it is a tensor of its own. */
struct sti_layout_whole {
    const char *name;
    const uint64_t *shape;
    const uint64_t *start;
};

struct sti_layout_tensor {
    const char *name;
    const struct sti_dtype *dtype;
    const uint64_t *shape;
    uint32_t dims;
    uint32_t owner;     /* a group of writers by its number, STI_LAYOUT_SHARED or _OWN */
    uint32_t given_idx; /* its place in the list that the layout was made from */
    uint64_t offset;    /* in the stream, header included */
    uint64_t n_bytes;
    struct sti_layout_whole whole;
};

struct sti_layout_pair {
    const char *key;
    const char *value;
};

/* tensors in the order of the stream. Everything is owned. */
struct sti_layout {
    struct sti_layout_tensor *tensors;
    uint32_t *by_name; /* places in tensors, in the order of their names */
    uint32_t n_tensors;
    uint32_t n_pairs;
    struct sti_layout_pair *pairs;
    char *header; /* header_bytes; NULL where the layout was not made to be written */
    uint64_t header_bytes;
    uint64_t stream_bytes; /* header and data */
    char *names;           /* memory of names, keys and values */
    uint64_t *shapes;      /* memory of shapes */
    void *wholes;          /* memory of what was read about wholes */
};

/* What a layout is made from. dtype, shape and strings are borrowed for the call. */
struct sti_layout_input {
    const char *name;
    const char *dtype;
    const uint64_t *shape;
    uint32_t dims;
    uint32_t owner;
    struct sti_layout_whole whole;
};

/*
 * Makes a layout with its header. Errors: -EINVAL (err names the tensor and what is wrong
 * with it: an unknown element type, a name twice or not UTF-8, too many dimensions),
 * -EOVERFLOW, -ENOMEM.
 */
int
sti_layout_build(struct sti_layout *layout, const struct sti_layout_input *inputs,
                 uint32_t n_inputs, const struct sti_layout_pair *pairs, uint32_t n_pairs,
                 stk_error *err);

/*
 * Reads the JSON of a safetensors header (n_bytes, without the 8 bytes of its length) of
 * a stream of stream_bytes. Tensors are put in the order of their offsets, which must
 * cover the data without hole or overlap. Errors: STK_E_CORRUPT (err says what), -ENOMEM.
 */
int
sti_layout_parse(struct sti_layout *layout, const char *json, uint64_t n_bytes,
                 uint64_t stream_bytes, stk_error *err);

/* The same of a JSON object that is already in memory (a json_t of jansson).
 * header_bytes: of the stream's header with its length. */
int
sti_layout_from_json(struct sti_layout *layout, const void *object, uint64_t header_bytes,
                     uint64_t stream_bytes, stk_error *err);

/* All zero is allowed. */
void
sti_layout_fini(struct sti_layout *layout);

/* Fills by_name of a layout that has its tensors. Errors: -ENOMEM. */
int
sti_layout_sort_names(struct sti_layout *layout);

/*
 * Reads which tensors are shards, and of what: a JSON object (jansson's) with a member for
 * each, or NULL for none. Errors: STK_E_CORRUPT, -ENOMEM.
 */
int
sti_layout_take_wholes(struct sti_layout *layout, const void *object, stk_error *err);

/*
 * Whether the shards of each tensor are that tensor, each element once, and no other tensor
 * has its name. ret_idx: the first shard that is wrong, and the one with which. Errors:
 * -EINVAL (err says what), -ENOMEM.
 */
int
sti_layout_check_wholes(const struct sti_layout *layout, uint32_t ret_idx[2], stk_error *err);

/* The tensor of a name, or NULL. */
const struct sti_layout_tensor *
sti_layout_find(const struct sti_layout *layout, const char *name);

/* The first tensor that ends behind an offset of the stream, or n_tensors; empty ones never do. */
uint32_t
sti_layout_first_behind(const struct sti_layout *layout, uint64_t offset);

#endif
