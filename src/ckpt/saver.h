/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The saver: takes tensors and makes checkpoints of them in the background. Its state
 * machine is a task of the engine's loop; the calls below are the program's, on any
 * thread but the loop's, one at a time for save.
 */
#ifndef STI_CKPT_SAVER_H
#define STI_CKPT_SAVER_H

#include <stdbool.h>
#include <stdint.h>

#include <stoker/types.h>

#include "base/pool.h"
#include "ckpt/manifest.h"
#include "ckpt/root.h"
#include "ckpt/vote.h"
#include "io/aio.h"

struct sti_saver;
struct sti_depot;

/* What a saver that copies from another node takes from there; borrowed until closed. */
struct sti_pull {
    struct sti_depot *depot; /* slots are no larger than what it answers */
    uint32_t peer;           /* the keeper of that node */
    const uint8_t *takes;    /* of each writer, and of the header's: whether its parts are taken */
};

#define STI_SAVES_MAX 8u

/*
 * aio, pool    the loop's; borrowed until closed.
 * roots        opened; borrowed until closed, changed by the loop alone. roots[0] is the
 *              directory of the manifests; parts go to those from first_part_root on.
 * slots        2 .. 1024 of slot_bytes, a multiple of chunk_bytes and of 64 KiB.
 * outstanding  saves that may be unfinished at a time, 1 .. STI_SAVES_MAX.
 * keep         checkpoints that stay when a new one is durable; 0: all.
 * session      unique for the writer set; the same in all writers.
 * vote         of the writer set; NULL: this is its only writer.
 * commits      a second vote of the writers, whose roots are each node's own: what the first one
 *              publishes is committed on every node, by its keeper. NULL: the roots are the same
 *              places for all, and the first writer commits.
 * is_keeper    this one is its node's; matters with commits.
 * places       of the writers: of those that hold a tensor together only the first at each place
 *              writes; borrowed until closed. NULL: all of them write.
 * is_checked   what several writers hold is compared before it is committed.
 * drain        copies what is durable to its own directory, by itself; NULL: nobody does. Freed
 *              after this one.
 * drain_every  which: every so many-th, or the next one after it where a copy is still under way;
 *              0: those that ask for it.
 * is_drain     this one does so: it has one root, and nobody saves with it.
 * copier       copies what is durable from another node to this one, each save; NULL: nobody does.
 *              Freed after this one.
 * pull         this one does so, to the roots of the saver that it copies for.
 */
struct sti_saver_opts {
    struct sti_aio *aio;
    struct sti_pool *pool;
    struct sti_root *roots;
    uint32_t n_roots;
    uint32_t first_part_root;
    uint32_t slots;
    uint32_t slot_bytes;
    uint32_t chunk_bytes;
    uint32_t outstanding;
    uint32_t keep;
    uint32_t writer;
    uint32_t world;
    uint64_t session;
    struct sti_vote *vote;
    struct sti_vote *commits;
    bool is_keeper;
    const uint32_t *places;
    bool is_checked;
    struct sti_saver *drain;
    uint32_t drain_every;
    bool is_drain;
    struct sti_saver *copier;
    const struct sti_pull *pull;
};

/* A tensor that this writer holds. data: borrowed for the call, or, with is_stable, until it
 * is captured. */
struct sti_saver_tensor {
    const void *data;
    bool is_stable;
};

/*
 * inputs and tensors: one each, in the same order; what this writer holds. An input's owner
 * is a group of writers by its number, STI_LAYOUT_SHARED or STI_LAYOUT_OWN. All writers of a
 * group give its tensors, in the same order. groups: this writer is in each of them.
 * code: why this writer cannot save after all (its error is the caller's): of several it votes
 * against it then.
 */
struct sti_saver_request {
    uint64_t step;
    int code;
    bool wants_drain; /* whatever else is drained; of several writers what the first one says */
    const struct sti_group *groups;
    uint32_t n_groups;
    const struct sti_layout_input *inputs;
    const struct sti_saver_tensor *tensors;
    uint32_t n_tensors;
    uint32_t n_pairs;
    const struct sti_layout_pair *pairs;
};

enum sti_saver_level { STI_LEVEL_CAPTURED, STI_LEVEL_DURABLE };

struct sti_saver_status {
    uint64_t saves;         /* begun */
    uint64_t durable;       /* acknowledged */
    uint64_t failed;        /* ended with an error */
    uint64_t last_durable;  /* step; UINT64_MAX: none */
    uint64_t last_captured; /* step; UINT64_MAX: none */
    uint64_t bytes;         /* of streams acknowledged */
    uint64_t save_wait_ns;  /* waited in save */
    uint64_t fence_wait_ns; /* waited in fence and fence_tensor */
    uint64_t captured_ns;   /* of the last durable one: from save to captured */
    uint64_t durable_ns;    /* and to durable */
    uint32_t unfinished;
};

/* Errors: -ENOMEM, -EAGAIN, -EINVAL. The slots' memory is touched. ret_saver: returns
 * owned. */
int
sti_saver_new(struct sti_saver **ret_saver, const struct sti_saver_opts *opts, stk_error *err);

/* After its task has been detached. NULL is allowed. */
void
sti_saver_free(struct sti_saver *saver);

/* The task's step; context: the saver. */
uint64_t
sti_saver_step(void *context);

/*
 * Begins a save: waits while `outstanding` are unfinished, copies what is not stable,
 * returns. Errors: of an earlier save of a writer alone (err tells which, and its step and part;
 * this one is then not begun), the request's code, -EINVAL, -EOVERFLOW, -ENOMEM. Of several
 * writers each makes the same calls: whatever this returns, it is one vote.
 */
int
sti_saver_save(struct sti_saver *saver, const struct sti_saver_request *request, stk_error *err);

/* Waits until every stable tensor of every save is captured. Errors: of a save. */
int
sti_saver_fence(struct sti_saver *saver, stk_error *err);

/* The same for one tensor of the last save. Errors: also -ERANGE. */
int
sti_saver_fence_tensor(struct sti_saver *saver, uint32_t tensor, stk_error *err);

/* Waits until all saves have reached a level; timeout_ns UINT64_MAX: for ever. Errors: of
 * a save, -ETIMEDOUT. */
int
sti_saver_wait(struct sti_saver *saver, enum sti_saver_level level, uint64_t timeout_ns,
               stk_error *err);

/* Waits until nothing is under way, whatever became of it. */
void
sti_saver_drain(struct sti_saver *saver);

void
sti_saver_get_status(struct sti_saver *saver, struct sti_saver_status *ret_status);

#endif
