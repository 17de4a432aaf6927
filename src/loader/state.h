/* SPDX-License-Identifier: Apache-2.0 */
/* The saved position of a loader, as bytes. */
#ifndef STI_LOADER_STATE_H
#define STI_LOADER_STATE_H

#include <stddef.h>
#include <stdint.h>

#include <stoker/types.h>

/* What a position is worth only together with. */
struct sti_loader_state {
    uint64_t dataset_fingerprint;
    uint64_t order_fingerprint;
    uint64_t n; /* samples of the data set */
    uint64_t epoch;
    uint64_t epoch_step;
    uint64_t global_batch; /* world x batch size */
    uint32_t drop_last;
};

#define STI_LOADER_STATE_BYTES 72

/* Writes STI_LOADER_STATE_BYTES. */
void
sti_loader_state_encode(const struct sti_loader_state *state, void *ret_bytes);

/* Errors: STK_E_CORRUPT (err says what), STK_E_VERSION. */
int
sti_loader_state_decode(struct sti_loader_state *ret_state, const void *saved, size_t n_bytes,
                        stk_error *err);

#endif
