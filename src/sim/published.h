/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The published simulator, habits included: what it does is in docs/design/simulator.md.
 * Inside the room: the state of a run, shared by the machine (published.c) and by what
 * each policy puts into the tiers before the first step (published_fill.c).
 */
#ifndef STI_SIM_PUBLISHED_H
#define STI_SIM_PUBLISHED_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/bound.h"
#include "sim/data.h"

/* A list that grows. */
struct sti_pub_times {
    double *at;
    uint64_t n;
    uint64_t n_max;
};

/* A sample that waits in staging: one per position between cleanup and prefetch. */
struct sti_pub_staged {
    double since;
    uint8_t source; /* stk_sim_source; STI_PUB_SKIPPED: it is not there */
};

#define STI_PUB_SKIPPED UINT8_MAX

struct sti_pub_node {
    uint32_t *ids; /* what it reads, all epochs */
    uint64_t length;
    uint64_t next;                 /* position that is asked for next */
    uint64_t prefetch;             /* position that is staged next */
    uint64_t cleanup;              /* first position whose memory is still taken */
    struct sti_pub_staged *staged; /* a ring by position */
    uint64_t n_staged_max;         /* a power of two */
    double used_mb;                /* of staging; below 0 is one of the habits */
    uint64_t *seen;                /* a bit per sample: has been in staging before */
    double *thread_s;              /* when each staging thread is free */
    uint8_t *tier;                 /* per sample: which tier holds it, 0: none */
    double *since;                 /* per sample: from when on; NULL: from the beginning */
    double filled_mb[STI_SIM_TIERS];
    struct sti_pub_times reads;      /* of the file system, when asked for */
    struct sti_pub_times prefetches; /* of the file system, ahead */
};

struct sti_pub {
    const struct sti_scenario *scenario;
    struct sti_sim_data *data;
    struct sti_pub_node *nodes;
    uint64_t thread_idx; /* of staging, whose turn it is: one counter for all nodes */
    bool stages;         /* there is staging at all */
    bool uses_peers;     /* staging may take from other nodes */
    bool uses_origin;    /* staging may take from the file system */
    bool no_memory;
    double fill_s;          /* before the first step */
    struct sti_bound bound; /* of what is read, and the configured room */
    stk_sim_result result;
};

static inline double
sti_pub_mb(const struct sti_pub *pub, uint32_t sample)
{
    return sti_sim_bytes(pub->data, sample) / STI_SIM_BYTES_PER_MB;
}

/* The time of a read of the file system by one thread while clients use it, decoding
 * included; of a read of a tier of its own node; of one of another node. */
double
sti_pub_origin_s(const struct sti_pub *pub, double mb, double clients);
double
sti_pub_own_s(const struct sti_pub *pub, double mb, uint32_t tier);
double
sti_pub_peer_s(const struct sti_pub *pub, double mb, uint32_t tier);

/* Appends; sets no_memory where there is none. */
void
sti_pub_times_add(struct sti_pub *pub, struct sti_pub_times *times, double at);

/* A read of the file system by all nodes at once, ahead of use: counts and notes it. */
void
sti_pub_note_prefetch(struct sti_pub *pub, struct sti_pub_node *node, uint32_t sample, double at);

/*
 * Prepares a policy: what is in the tiers when the run begins, how long that takes, which
 * sources staging may use; changes what is read where the policy does.
 * Errors: STK_E_INFEASIBLE, -ENOMEM.
 */
int
sti_pub_fill(struct sti_pub *pub, stk_sim_policy policy, stk_error *err);

/* The same for the published policy (published_paper.c). Errors: -ENOMEM. */
int
sti_pub_fill_paper(struct sti_pub *pub);

/* Simulates. policy: one that the published simulator has. Errors as stk_simulate(). */
int
sti_published_run(struct sti_sim_data *data, stk_sim_policy policy, stk_sim_result *ret_result,
                  stk_error *err);

#endif
