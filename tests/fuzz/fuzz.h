/* SPDX-License-Identifier: Apache-2.0 */
/* What a fuzz target gives, and how it says that something is wrong. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Returns 0; ends the process where what the target promises does not hold. */
int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static inline void
must(bool is_good)
{
    if (!is_good)
        abort();
}

#endif
