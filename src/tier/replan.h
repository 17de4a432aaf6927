/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is planned anew at epoch ends, from what was measured: who serves for ranks that are
 * slow to serve (policy/relief). Every rank tells rank 0 what it served in an epoch and how
 * long that took; when all have told, rank 0 decides and answers all alike. From the decision
 * every rank finds the same samples. Owned by the loop's thread, but for the job and for
 * sti_replan_init().
 *
 * A report is a message of the peering (peering.h) with 24 bytes more, little-endian: bytes
 * served, nanoseconds busy, nanoseconds of the epoch. The answer is a number that changes
 * when the decision does (u32), how many ranks it names (u32), and for each its rank (u32),
 * 0 (u32), bytes that it gives (u64) and takes (u64). A rank that misses one goes on with
 * what it knows.
 */
#ifndef STI_TIER_REPLAN_H
#define STI_TIER_REPLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "comm/comm.h"
#include "format/dataset.h"
#include "policy/relief.h"

#define STI_REPLAN_REPORT_BYTES 40u

struct sti_fetcher;
struct sti_peering;

/* Rank 0's part. */
struct sti_replan_root {
    struct sti_relief_rank *ranks;
    struct sti_comm_incoming **reports; /* not answered yet, by rank */
    bool *has_told;                     /* since the last decision */
    unsigned char *decision;            /* as it is sent */
    uint32_t n_decision;
    bool was_wanted;
    uint32_t n_alike;     /* epochs in a row that wanted it, or did not */
    uint32_t n_answering; /* answers on their way: the decision stays as it is */
    uint32_t number;
};

struct sti_replan {
    struct sti_peering *peering;
    const struct sti_dataset *dataset;
    uint64_t ram_spare_bytes; /* of this rank */

    /* Measured in the epoch under way. */
    uint64_t epoch; /* UINT64_MAX: none yet */
    uint64_t epoch_began_ns;
    uint64_t served_bytes;
    uint64_t busy_ns;
    uint64_t serving_since_ns;
    uint32_t n_serving;

    uint32_t number;  /* of the decision that is known here */
    bool is_on;       /* all ranks take part */
    bool is_first;    /* the first epoch fills memory and SSDs: nothing is told of it */
    bool is_asking;   /* request is under way */
    bool is_planning; /* the job is, or what it made is not taken yet */

    struct sti_comm_request request; /* the report to rank 0 */
    unsigned char *answer;
    struct sti_replan_root root;

    /* The samples that follow from the decision. */
    uint64_t *shares; /* of all ranks: given, then taken */
    struct sti_job job;
    uint16_t *next;      /* the job's */
    uint32_t *next_list; /* what this rank is to serve, too */
    uint64_t n_next_list;
    uint16_t *relief; /* by sample; NULL: nobody is relieved */
    uint32_t *list;
    uint64_t n_list;
    uint64_t cursor;       /* of list: what is not looked at yet */
    uint64_t pinned_bytes; /* of it, in memory for good */
};

/* Once there is a plan. ranks: what each holds and has to spare; ram_spare_bytes: of the
 * latter, what this rank has in memory. Errors: -ENOMEM. */
int
sti_replan_init(struct sti_peering *peering, const struct sti_dataset *dataset,
                const struct sti_relief_rank *ranks, uint64_t ram_spare_bytes);

/* All zero is allowed. Waits for the job. Any thread but the pool's, when the loop has done
 * with it. */
void
sti_replan_fini(struct sti_replan *replan);

/* A question begins to be served, and is. */
void
sti_replan_begin(struct sti_replan *replan);
void
sti_replan_end(struct sti_replan *replan, uint64_t n_bytes);

/* A report of another rank; it may come before there is a plan here. */
void
sti_replan_on_report(struct sti_peering *peering, struct sti_comm_incoming *incoming);

/* Nothing is decided any more: who has told is answered that. */
void
sti_replan_refuse(struct sti_replan *replan);

/* The walk is in an epoch; is_last: of the run. Reports when it is a new one. */
void
sti_replan_epoch(struct sti_replan *replan, uint64_t epoch, bool is_last);

/* Takes what a job has made, and has samples come that this rank is to serve, too. */
void
sti_fetcher_take_relief(struct sti_fetcher *fetcher);

/* Whether something is in other hands. */
bool
sti_replan_is_busy(const struct sti_replan *replan);

/* Whether this rank serves a sample for its holder, too. */
static inline bool
sti_replan_is_relieving(const struct sti_replan *replan, uint64_t sample, uint32_t rank)
{
    return replan->relief && replan->relief[sample] == rank;
}

#endif
