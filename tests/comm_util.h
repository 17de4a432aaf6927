/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Teams for the tests of ranks: all ranks of a job in one process, opened by a thread each
 * and then driven by the test's thread, which sleeps on their descriptors. A wake-up that
 * is missing makes a test stand still, not slow.
 */
#ifndef TESTS_COMM_UTIL_H
#define TESTS_COMM_UTIL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"

#define TEAM_MAX 16
#define MS UINT64_C(1000000)

struct team;

struct member {
    struct team *team;
    uint32_t rank;
    struct sti_comm *comm; /* NULL: not there */
    struct sti_comm_opts opts;
    stk_error err;
    int rc;
    /* What came to it. */
    uint32_t n_requests;
    uint32_t n_notes;
    uint32_t n_lost;
    uint32_t n_back;
    uint32_t last_peer;
    int last_code;
    uint32_t last_verb;
    uint32_t n_last_note;
    unsigned char last_note[STI_COMM_SMALL_MAX];
    int abort_code;
    uint32_t abort_from;
    char abort_text[256];
    /* What it does with requests: NULL is to answer with what is asked for. */
    void (*serve)(struct member *member, struct sti_comm_incoming *incoming);
    void *context;
};

struct team {
    const char *method;
    uint32_t n;
    struct member members[TEAM_MAX];
    struct sti_comm_hub *hub;
    pthread_barrier_t barrier;
    unsigned char *cards; /* what the ranks show each other */
    uint64_t n_sleeps;
};

/* Names of methods to be tested, of "local" and "ucx"; STOKER_TEST_METHODS picks. Ends in
 * NULL. */
const char *const *
team_methods(void);

/* Fills the options of n ranks; a test may change them before team_open(). */
void
team_init(struct team *team, const char *method, uint32_t n);
/* Opens all ranks and returns the first code that is not 0. */
int
team_try(struct team *team);
void
team_open(struct team *team);
/* Closes those that are there. */
void
team_close(struct team *team);
/* Closes one. */
void
team_leave(struct team *team, uint32_t rank);

/* Gives time to all until is_done, 20 s at most. */
void
team_run(struct team *team, bool (*is_done)(void *context), void *context);
/* Gives time to all for some milliseconds. */
void
team_pass(struct team *team, uint32_t ms);

struct sti_comm *
team_comm(struct team *team, uint32_t rank);
struct sti_comm_stats
team_stats(struct team *team, uint32_t rank);

/* Byte at of what is asked for with a seed. */
unsigned char
pattern(uint64_t seed, uint64_t at);

/* A request whose answer is checked: n_bytes of a seed. */
struct get {
    struct sti_comm_request request;
    unsigned char asked[16];
    unsigned char *into;
    uint64_t n_bytes;
    uint64_t seed;
    uint32_t n_done;
};

enum { VERB_GET = 7, VERB_MISSING, VERB_PROMISE, VERB_NEVER };

/* Sends it; room: for the answer. Returns what the call does. */
int
get_begin(struct team *team, uint32_t from, struct get *get, uint32_t verb, uint32_t peer,
          uint64_t n_bytes);
void
get_init(struct get *get, uint64_t seed, uint64_t room);
/* Waits for it; asserts that its bytes are right where it has succeeded. */
int
get_end(struct team *team, struct get *get);
void
get_fini(struct get *get);
/* All of it. Returns its result. */
int
get_whole(struct team *team, uint32_t from, uint32_t peer, uint64_t n_bytes);

/* The standard service, which get_begin() speaks to. */
void
serve_pattern(struct member *member, struct sti_comm_incoming *incoming);

/* Descriptors of this process. */
uint32_t
open_fds(void);

#endif
