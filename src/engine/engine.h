/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: owns the loop, the pool and the capacities of the tiers, and hands them out
 * to what attaches to it.
 */
#ifndef STI_ENGINE_ENGINE_H
#define STI_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/loader.h>

#include "engine/loop.h"
#include "engine/peers.h"
#include "model/hierarchy.h"
#include "policy/cost_curve.h"

struct sti_engine;

/* Opens an engine. opts: of full size, checked by the api room for unknown fields.
 * Errors: see stk_engine_open(). ret_engine: returns owned. */
int
sti_engine_open(struct sti_engine **ret_engine, const stk_engine_opts *opts, stk_error *err);

/* NULL is allowed. Everything taken from it must have been given back. */
void
sti_engine_close(struct sti_engine *engine);

struct sti_loop *
sti_engine_loop(struct sti_engine *engine);
/* NULL: this rank is on its own. */
struct sti_peers *
sti_engine_peers(struct sti_engine *engine);
struct sti_pool *
sti_engine_pool(struct sti_engine *engine);
uint32_t
sti_engine_queue_depth(const struct sti_engine *engine);
bool
sti_engine_is_buffered(const struct sti_engine *engine);
const char *
sti_engine_method_name(const struct sti_engine *engine);

/* Returns borrowed until the engine is closed, or NULL. */
const char *
sti_engine_cache_dir(const struct sti_engine *engine);

/*
 * Takes a part of the RAM tier: want_bytes, or as much of it as is free but not less than
 * least_bytes. Returns what was taken in ret_bytes. Errors: STK_E_INFEASIBLE. Any thread.
 */
int
sti_engine_take_ram(struct sti_engine *engine, uint64_t want_bytes, uint64_t least_bytes,
                    uint64_t *ret_bytes, stk_error *err);
void
sti_engine_return_ram(struct sti_engine *engine, uint64_t n_bytes);

/* The SSD directories: how many, and each one's path and capacity. Returns borrowed until
 * the engine is closed. */
uint32_t
sti_engine_ssds(const struct sti_engine *engine);
const struct sti_ssd_config *
sti_engine_ssd(const struct sti_engine *engine, uint32_t at);

/* What the ranks of this machine can have in a directory, this one among them; where each has
 * its own, what it can. */
uint64_t
sti_engine_ssd_whole_bytes(const struct sti_engine *engine, uint32_t at);

/* This rank among those of its machine. */
struct sti_node_part {
    uint32_t at;
    uint32_t n;    /* 1: it is alone */
    bool is_apart; /* tiers are each rank's own */
};

struct sti_node_part
sti_engine_node(const struct sti_engine *engine);

/*
 * Takes a part of the SSD directories: want_bytes in all, or what is free but not less
 * than least_bytes, divided by their measured speeds. ret_bytes: STI_SSDS_MAX of them,
 * one for each directory. Errors: STK_E_INFEASIBLE. Any thread.
 */
int
sti_engine_take_ssds(struct sti_engine *engine, uint64_t want_bytes, uint64_t least_bytes,
                     uint64_t *ret_bytes, stk_error *err);
void
sti_engine_return_ssds(struct sti_engine *engine, const uint64_t *n_bytes);

/* What a tier (RAM, or SSD: the directories together) was found to cost when the engine
 * was opened; without points where it is not known. Any thread. */
struct sti_cost_curve
sti_engine_cost(struct sti_engine *engine, stk_tier tier);

/* Takes a part of the files that may be held open: want, or what is free; returns how
 * many. They are counted apart from those that are open for one read only. Any thread. */
uint32_t
sti_engine_take_files(struct sti_engine *engine, uint32_t want);
void
sti_engine_return_files(struct sti_engine *engine, uint32_t n_files);

/* An aio of the calling thread's own, for work that is not the loop's (indexing). Closed
 * with sti_aio_close(). Errors: as sti_aio_open(). */
int
sti_engine_aio_open(struct sti_engine *engine, struct sti_aio **ret_aio, stk_error *err);

/*
 * The arbiter of a device (major and minor of a file system), the same for all that use
 * it; made at the first call. What is in it is the loop's. Returns borrowed until the
 * engine is closed; NULL: there are more devices than are arbitrated. Any thread.
 */
struct sti_budget *
sti_engine_budget(struct sti_engine *engine, uint64_t device);

/* Fills everything but size. Any thread. */
void
sti_engine_stats(struct sti_engine *engine, stk_engine_stats *stats);

#endif
