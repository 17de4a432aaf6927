/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies in room that no first copy needs, so that fewer samples cross the network: a
 * holder (a rank, or a node of several) keeps what it has just read and will read again
 * soonest, by the epoch of its next use. What it needs latest makes room. The choice is
 * made anew at each use, from the orders of the epochs that are known ahead, alike on
 * every rank. Pure; one thread per struct.
 */
#ifndef STI_POLICY_REPLICA_H
#define STI_POLICY_REPLICA_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/assign.h"

#define STI_REPLICA_AHEAD_MAX 250

/* Samples that a holder keeps for one epoch. */
struct sti_replica_list {
    uint32_t *items;
    uint64_t n;
    uint64_t n_max;
};

struct sti_replicas {
    struct sti_assign_input input; /* counts are not used; bytes borrowed for its life */
    struct sti_assignment held;    /* the copies, and the room that is left for more */
    uint32_t n_ahead;
    uint64_t known_end; /* the first epoch that is not known */
    bool is_run_end;    /* it is the end of the run */
    uint16_t *readers;  /* [sample * n_ahead + epoch % n_ahead]: who reads it */
    /* [holder * (n_ahead + 1) + epoch % n_ahead]; the last one of a holder: unknown */
    struct sti_replica_list *lists;
};

/*
 * Whether a holder takes a copy before it reads the sample: of what it does not hold, as
 * far as there is spare room, which is what neither first copies, nor other copies, nor
 * what is staged will need. Nothing goes for it, so it costs the network nothing that the
 * read itself would not. Asked in the order of the holder's reads, until room ends.
 */
static inline bool
sti_replica_comes_ahead(bool is_held, uint64_t spare_bytes, uint64_t n_bytes)
{
    return !is_held && n_bytes <= spare_bytes;
}

/*
 * Epochs whose order is used ahead, so that the table of readers stays within max_bytes.
 * n_known: epochs known ahead of the one that is read.
 */
uint32_t
sti_replicas_ahead(uint64_t n_samples, uint64_t n_known, uint64_t max_bytes);

/* No copies yet and no orders. input: the holders and what room they have beside their
 * first copies. Errors: -ENOMEM. sti_replicas_fini() in any case. */
int
sti_replicas_init(struct sti_replicas *replicas, const struct sti_assign_input *input,
                  uint32_t n_ahead);

/* All zero is allowed. */
void
sti_replicas_fini(struct sti_replicas *replicas);

/* Says who reads what in an epoch: ids[at] is read by holder_of[at % n_ranks]. Once for
 * each epoch, n_ahead epochs ahead of the one that is read at most. ids: n of them. */
void
sti_replicas_order(struct sti_replicas *replicas, uint64_t epoch, const uint32_t *ids, uint64_t n,
                   const uint16_t *holder_of, uint32_t n_ranks);

/*
 * Fills free room with what is read in an epoch that is ordered, as far as its reader has
 * no first copy and no other copy: before the run, epoch by epoch, so that the soonest
 * use comes first. first: the first copies. Other arguments as above. Returns false when
 * there was no room for any more.
 */
bool
sti_replicas_fill(struct sti_replicas *replicas, const struct sti_assignment *first, uint64_t epoch,
                  const uint32_t *ids, uint64_t n);

/*
 * An epoch begins. The orders of those behind it are known up to known_end (not
 * included), which is epoch + 1 + n_ahead at most. is_run_end: the run ends there, so
 * what is not read before is never read again.
 */
void
sti_replicas_begin(struct sti_replicas *replicas, uint64_t epoch, uint64_t known_end,
                   bool is_run_end);

static inline bool
sti_replicas_has(const struct sti_replicas *replicas, uint32_t sample, uint32_t holder)
{
    return replicas->held.n_words && sti_assignment_has(&replicas->held, sample, holder);
}

/* A holder has read a sample of which it has no first copy: what it does with a copy. */
void
sti_replicas_used(struct sti_replicas *replicas, uint64_t epoch, uint32_t sample, uint32_t holder);

#endif
