/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a data set: checked, completed, and identified. Pure. */
#ifndef STI_FORMAT_OPTIONS_H
#define STI_FORMAT_OPTIONS_H

#include <stoker/engine.h>

#include "format/index.h"

/*
 * Copies opts (NULL: all defaults) and fills in what is zero, as far as the format is
 * known. Errors: -EINVAL, err names the option and its range.
 */
int
sti_options_check(stk_dataset_opts *ret_opts, const stk_dataset_opts *opts, stk_error *err);

/* Bytes of a sample and from one to the next: RECORD and WINDOW. */
uint64_t
sti_options_sample_bytes(const stk_dataset_opts *opts);
uint64_t
sti_options_stride_bytes(const stk_dataset_opts *opts);

/* The endings that a format accepts with these options. */
const char *
sti_options_endings(const stk_dataset_opts *opts, uint32_t format);

/* Identifies all that decides which samples there are, for a format. */
uint64_t
sti_options_hash(const stk_dataset_opts *opts, uint32_t format);

/* Whether an index was made with these options. */
bool
sti_options_match(const stk_dataset_opts *opts, const struct sti_index_head *head);

#endif
