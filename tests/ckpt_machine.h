/* SPDX-License-Identifier: Apache-2.0 */
/* A machine whose writers save a small state to a disk of the fault method, and what must
 * be found on the disk afterwards. All of it runs on the calling thread but for filling. */
#ifndef TESTS_CKPT_MACHINE_H
#define TESTS_CKPT_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "ckpt/saver.h"
#include "fault_util.h"

#define WORLD_MAX 3
#define NOTHING UINT64_MAX

/* One writer of a set. */
struct writer {
    struct sti_saver *saver;
    struct sti_saver *drain;  /* NULL: nothing is copied */
    struct sti_root roots[4]; /* the last one: the shared directory */
};

struct machine {
    struct fault_disk disk;
    struct writer writers[WORLD_MAX];
    struct sti_vote *vote;
    struct sti_vote *drain_vote;
    struct sti_vote *commits; /* of nodes with directories of their own */
    uint32_t world;
    uint64_t acknowledged;        /* step; NOTHING */
    uint64_t shared_acknowledged; /* of the shared directory */
    bool is_of_nodes;
    int last_result;
    /* What a sync that failed has lost, no later one makes durable: a removal that was
     * told to have failed may then have left an old name without its files. */
    bool has_failed_syncs;
};

/* How a scenario saves. */
struct scenario {
    uint32_t world;
    uint32_t n_roots; /* beside the directory */
    uint32_t keep;
    uint32_t n_saves;
    bool is_direct;
    bool is_drained; /* each save is copied to a shared directory */
    /* The last writer is on another node: its directory is its own, /other. n_roots is not 0: what
     * is in them all can see, so either directory alone must do. */
    bool is_of_nodes;
};

/* Before the first machine and after the last one. */
void
machine_pool_open(void);
void
machine_pool_close(void);

/* All tensors are so much smaller from now on; 1: 20 KB in all. */
void
machine_divide_state(uint64_t divisor);

/* Opens the roots and a saver for each writer; -errno. */
int
machine_start(struct machine *machine, const struct scenario *scenario);
void
machine_stop(struct machine *machine);

/* Begins a save in every writer; -errno. */
int
machine_save(struct machine *machine, uint64_t step);

/* Plays the loops until nothing is under way. */
void
machine_run_loop(struct machine *machine);

/* A save from begin to end; what a writer was told, and acknowledged where that was 0. */
int
machine_save_and_wait(struct machine *machine, uint64_t step);

/* Starts, then saves until one fails. */
void
machine_run(struct machine *machine, const struct scenario *scenario);

/* The newest checkpoint on a disk, and how many newer ones are not whole; every byte of
 * it is compared. NOTHING: there is none, *ret_rc says why. */
uint64_t
machine_find(struct fault_disk *left, int *ret_rc, uint32_t *ret_skipped);

/* The same where nothing may be damaged, and, with is_strict, nothing older either. */
uint64_t
machine_recover(struct fault_disk *left, bool is_strict);

/* Everything that a crash now may leave has what was acknowledged. */
void
machine_check_all_left(const struct machine *machine, uint64_t step);

#endif
