/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loader: resolves what a person asked for against the data set and the engine, owns a
 * fetcher attached to the loop, and keeps the consumer's position. One thread at a time.
 */
#ifndef STI_LOADER_LOADER_H
#define STI_LOADER_LOADER_H

#include <stoker/cost.h>

#include "engine/engine.h"
#include "format/dataset.h"

struct sti_loader;

/* Errors: see stk_loader_open(); opts and order (NULL: defaults) are of full size.
 * ret_loader: returns owned. */
int
sti_loader_open(struct sti_loader **ret_loader, struct sti_engine *engine,
                const struct sti_dataset *dataset, const stk_loader_opts *opts,
                const stk_order_opts *order, stk_error *err);

/* NULL is allowed. */
void
sti_loader_close(struct sti_loader *loader);

/* These are what the public functions of the same names do; next: with a timeout. */
int
sti_loader_next(struct sti_loader *loader, stk_batch *batch, uint64_t timeout_ns);
int
sti_loader_release(struct sti_loader *loader, stk_batch *batch);
void
sti_loader_interrupt(struct sti_loader *loader);
int
sti_loader_leave(struct sti_loader *loader);
int
sti_loader_seek(struct sti_loader *loader, uint64_t epoch, uint64_t epoch_step);
int
sti_loader_push(struct sti_loader *loader, const uint64_t *ids, uint64_t n, bool is_epoch_end,
                bool is_run_end);
int
sti_loader_save_state(const struct sti_loader *loader, void *state, size_t *ret_bytes);
int
sti_loader_restore_state(struct sti_loader *loader, const void *state, size_t n_bytes,
                         stk_error *err);
int
sti_loader_replacements(struct sti_loader *loader, stk_replacement *out, uint32_t capacity,
                        uint64_t *ret_total);
void
sti_loader_costs(struct sti_loader *loader, stk_costs *costs);
int
sti_loader_last_warning(struct sti_loader *loader, stk_error *err);
int
sti_loader_last_error(const struct sti_loader *loader, stk_error *err);

/* Fills everything but size. Errors: -ENOENT. */
int
sti_loader_stats(struct sti_loader *loader, uint64_t epoch, stk_loader_stats *stats);

#endif
