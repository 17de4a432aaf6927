/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine's way to the other ranks' engines: the comm, run by the loop, and who on this
 * rank answers to which verb.
 */
#ifndef STI_ENGINE_PEERS_H
#define STI_ENGINE_PEERS_H

#include <stdint.h>

#include <stoker/comm.h>

#include "comm/comm.h"
#include "engine/loop.h"

struct sti_peers;

/* Who answers to a verb. Its functions run on the loop's thread. */
struct sti_port {
    uint32_t verb;
    void *context;
    /* As sti_comm_events has it: answered exactly once. */
    void (*request)(void *context, struct sti_comm_incoming *incoming);
    /* A peer is lost (code negative), or was heard of again (0). */
    void (*peer)(void *context, uint32_t rank, int code);
    struct sti_port *next; /* the peers' */
};

/* Joins the other ranks. opts: of full size. Blocks. Errors: as sti_comm_open(). ret_peers:
 * returns owned. */
int
sti_peers_open(struct sti_peers **ret_peers, struct sti_loop *loop, const stk_comm_opts *opts,
               stk_error *err);

/* All ports must have been detached. NULL is allowed. */
void
sti_peers_close(struct sti_peers *peers);

/* The loop's to use, but for what does not change: rank and world. */
struct sti_comm *
sti_peers_comm(struct sti_peers *peers);

/* What was read out of peers' memory. NULL is allowed. Any thread. */
uint64_t
sti_peers_mapped_bytes(const struct sti_peers *peers);

/* Where this rank is among those of its machine, and how many these are. */
void
sti_peers_node(const struct sti_peers *peers, uint32_t *ret_at, uint32_t *ret_n);

/* The options that were resolved at open. */
uint64_t
sti_peers_start_timeout_ns(const struct sti_peers *peers);
uint64_t
sti_peers_timeout_ns(const struct sti_peers *peers);
uint64_t
sti_peers_close_timeout_ns(const struct sti_peers *peers);

/*
 * Attaches a port to the next verb, the same on every rank as long as all attach in the
 * same order. What asks for a verb that nobody has is answered -ENOENT. Any thread but the
 * loop's. Errors: -E2BIG no verb is left.
 */
int
sti_peers_attach(struct sti_peers *peers, struct sti_port *port);

/* Lets the port's owner finish (on the loop's thread, with the port's context), and removes
 * it: when this returns, no function of the port runs or will run. Any thread but the
 * loop's. */
void
sti_peers_detach(struct sti_peers *peers, struct sti_port *port, void (*finish)(void *context));

/*
 * Every rank's n_bytes (up to STI_COMM_SHARE_MAX) to every rank, in order of rank; all
 * ranks call it in the same order. Blocks for start_timeout_ns at most. Any thread but the
 * loop's. Errors: -ETIMEDOUT with the rank in err, -ECANCELED, what a peer was lost by.
 */
int
sti_peers_gather(struct sti_peers *peers, const void *mine, uint32_t n_bytes, void *all,
                 stk_error *err);

#endif
