/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loader that is one of several, one on each rank of the job: opened by all together, of
 * one mind about what is read, and closed when nobody needs it any more.
 */
#ifndef STI_LOADER_SHARE_H
#define STI_LOADER_SHARE_H

#include "engine/engine.h"
#include "loader/resolve.h"
#include "tier/peering.h"

/* All zero: not shared. */
struct sti_share {
    struct sti_peers *peers;
    struct sti_port port;
    struct sti_peering *peering;
};

/* What a share is opened by. code: 0, or why this rank cannot open its loader after all,
 * which the others are to hear. fetcher: this rank's, not attached; NULL with a code.
 * first_epoch: where it begins. */
struct sti_share_opts {
    struct sti_engine *engine;
    const struct sti_dataset *dataset;
    const struct sti_resolved *resolved;
    struct sti_fetcher *fetcher;
    uint64_t first_epoch;
    int code;
};

/* Opens the way on which other ranks ask: from here on they may. All ranks open their ways in
 * the same order. Errors: -ENOMEM, -EAGAIN, -E2BIG. sti_share_close() in any case. */
int
sti_share_init(struct sti_share *share, struct sti_engine *engine, stk_error *err);

/*
 * Waits until all ranks are about to open the same: each has its data set open then, and whose
 * index has won its place is settled, so all know the data set's caches by one name. Blocks.
 * Errors: as sti_peers_gather().
 */
int
sti_share_meet(struct sti_share *share, stk_error *err);

/*
 * Agrees with all ranks and makes the plan; all call it in the same order. Blocks. Errors:
 * code; STK_E_MISMATCH with rank, name and both values in err; as sti_peers_gather();
 * -ENOMEM; -ECANCELED another rank cannot open its loader.
 */
int
sti_share_open(struct sti_share *share, const struct sti_share_opts *opts, stk_error *err);

/*
 * What a plan of who holds what is made from, but for the ranks' rooms and what they can
 * hold in all. ret_bytes: returns owned, what ret_opts has of it; NULL where samples have
 * one size. Errors: -ENOMEM.
 */
int
sti_share_plan_opts(const struct sti_fetcher_opts *fetcher, uint64_t first_epoch,
                    struct sti_holders_opts *ret_opts, uint32_t **ret_bytes);

/* What a rank's memory, staging included, and its SSDs can hold of the data set in all. */
uint64_t
sti_share_total_bytes(const struct sti_fetcher_opts *fetcher, uint64_t ssd_bytes);

/* The fetcher was stopped and detached, or never was. All zero is allowed. */
void
sti_share_close(struct sti_share *share);

#endif
