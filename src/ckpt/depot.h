/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies in the directory and the roots of this node, given to the ranks of other
 * nodes, and what lies there, asked for. A rank asks for the steps of a directory, for a
 * stretch of a manifest or of a part; what these are called the answering rank makes
 * itself of numbers, an ID and one of its own roots, so nobody reads another file by it.
 *
 * Answering is the loop's, and asking is for any thread: the loop takes what is asked to
 * the comm.
 */
#ifndef STI_CKPT_DEPOT_H
#define STI_CKPT_DEPOT_H

#include <stdbool.h>
#include <stdint.h>

#include "ckpt/names.h"
#include "ckpt/root.h"
#include "comm/comm.h"
#include "io/aio.h"

#define STI_DEPOT_ROOT_MAX 900u  /* bytes of a root's path */
#define STI_DEPOT_SIZE_BYTES 8u  /* behind an answer's bytes */
#define STI_DEPOT_HEAD_BYTES 80u /* of what is asked, before the root */
#define STI_DEPOT_SERVES_MAX 16u /* answered at a time; who asks beyond that waits */

struct sti_depot;

/*
 * comm, aio   the loop's; borrowed until freed.
 * roots       n_roots open ones, the directory first; borrowed until freed. 0: nothing is there.
 * most_bytes  of one answer, up to STI_COMM_BODY_MAX less STI_DEPOT_SIZE_BYTES.
 */
struct sti_depot_opts {
    struct sti_comm *comm;
    struct sti_aio *aio;
    const struct sti_root *roots;
    uint32_t n_roots;
    uint64_t most_bytes;
};

enum sti_depot_what { STI_DEPOT_STEPS = 1, STI_DEPOT_MANIFEST, STI_DEPOT_PART };

/*
 * What is asked; the depot's from sti_depot_ask() until it is done. STEPS: n_bytes of the
 * numbers of 8 bytes, little-endian, the newest first. MANIFEST, PART: the bytes from
 * offset on, as many as there are; n_bytes 0 asks for the size alone.
 *
 * into         room for n_bytes and STI_DEPOT_SIZE_BYTES.
 * has_one_part the part is the only one of its checkpoint, and named so.
 * aio          woken when it is done; the asking thread's. With done it is not used.
 * done         NULL, or called on the loop.
 */
struct sti_depot_ask {
    enum sti_depot_what what;
    uint32_t peer;
    uint64_t step;
    const char *id;
    const char *root;
    uint32_t writer;
    uint32_t number;
    bool has_one_part;
    uint64_t offset;
    void *into;
    uint32_t n_bytes;
    struct sti_aio *aio;
    void (*done)(struct sti_depot_ask *ask);
    void *context;

    /* Written before it is done. result: 0, what the peer says (-ENOENT no such file,
     * -EINVAL ...), -ENOTCONN it has no checkpointer open, or what it was lost by. */
    int result;
    uint32_t got_bytes;
    uint64_t file_bytes;

    /* The depot's. */
    struct sti_depot *depot;
    struct sti_comm_request request;
    unsigned char small[STI_DEPOT_HEAD_BYTES + STI_DEPOT_ROOT_MAX];
    uint64_t due_ns;
    uint64_t retry_ns;
    bool is_asked;
    bool is_done;
    struct sti_depot_ask *next;
};

/* Errors: -ENOMEM, -EAGAIN. ret_depot: returns owned. */
int
sti_depot_new(struct sti_depot **ret_depot, const struct sti_depot_opts *opts);

/* When it is idle. NULL is allowed. */
void
sti_depot_free(struct sti_depot *depot);

/* The verb of its requests, before it is used. Any thread. */
void
sti_depot_set_verb(struct sti_depot *depot, uint32_t verb);

/* A request of the verb; context: the depot. Loop. */
void
sti_depot_on_request(void *context, struct sti_comm_incoming *incoming);

/* A task's step; context: the depot. */
uint64_t
sti_depot_step(void *context);

/* Begins to end: what is asked is given up, and nothing more is answered. Loop. */
void
sti_depot_leave(struct sti_depot *depot);

/* Whether nothing of it is under way. Loop. */
bool
sti_depot_is_idle(const struct sti_depot *depot);

/* The most that is answered at a time. */
uint64_t
sti_depot_most_bytes(const struct sti_depot *depot);

/* Asks. Never fails: what goes wrong is the result. Any thread. */
void
sti_depot_ask(struct sti_depot *depot, struct sti_depot_ask *ask);

/* Whether it is done, of one without a done function; then it is the caller's again. */
bool
sti_depot_is_done(struct sti_depot *depot, const struct sti_depot_ask *ask);

/* Asks and waits on ask->aio, which is this thread's. Returns the result. */
int
sti_depot_run(struct sti_depot *depot, struct sti_depot_ask *ask);

#endif
