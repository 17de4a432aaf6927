/* SPDX-License-Identifier: Apache-2.0 */
#include "comm_util.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm/wire.h"

#define PATIENCE_NS (20 * STI_NS_PER_S)

const char *const *
team_methods(void)
{
    static const char *methods[3];
    const char *wanted = getenv("STOKER_TEST_METHODS");
    int n = 0;

    /* ThreadSanitizer sees the method whose threads are ours. */
    methods[n++] = "local";
#ifdef STI_HAVE_UCX
    if (!wanted || strstr(wanted, "ucx"))
        methods[n++] = "ucx";
#else
    (void)wanted;
#endif
    methods[n] = NULL;
    return methods;
}

/* ---- start ---- */

static int
exchange(void *context, const void *mine, size_t n_bytes, void *all)
{
    struct member *member = context;
    struct team *team = member->team;

    memcpy(team->cards + member->rank * n_bytes, mine, n_bytes);
    (void)pthread_barrier_wait(&team->barrier);
    memcpy(all, team->cards, team->n * n_bytes);
    (void)pthread_barrier_wait(&team->barrier);
    return 0;
}

static void
on_request(void *context, struct sti_comm_incoming *incoming)
{
    struct member *member = context;

    member->n_requests++;
    (member->serve ? member->serve : serve_pattern)(member, incoming);
}

static void
on_note(void *context, uint32_t from, uint32_t verb, const void *bytes, size_t n_bytes)
{
    struct member *member = context;

    member->n_notes++;
    member->last_peer = from;
    member->last_verb = verb;
    member->n_last_note = (uint32_t)n_bytes;
    memcpy(member->last_note, bytes, n_bytes);
}

static void
on_peer(void *context, uint32_t rank, int code)
{
    struct member *member = context;

    *(code < 0 ? &member->n_lost : &member->n_back) += 1;
    member->last_peer = rank;
    member->last_code = code;
}

static void
on_abort(void *context, uint32_t from, int code, const char *text)
{
    struct member *member = context;

    member->abort_code = code;
    member->abort_from = from;
    (void)snprintf(member->abort_text, sizeof(member->abort_text), "%s", text);
}

void
team_init(struct team *team, const char *method, uint32_t n)
{
    memset(team, 0, sizeof(*team));
    team->method = method;
    team->n = n;
    team->cards = calloc(n, STI_COMM_CARD_MAX);
    assert_non_null(team->cards);
    assert_int_equal(pthread_barrier_init(&team->barrier, NULL, n), 0);
    assert_int_equal(sti_comm_hub_new(&team->hub, n), 0);
    for (uint32_t rank = 0; rank < n; rank++) {
        struct member *member = &team->members[rank];

        member->team = team;
        member->rank = rank;
        member->opts = (struct sti_comm_opts){
            .method = method,
            .rank = rank,
            .world = n,
            .hub = team->hub,
            .exchange = exchange,
            .exchange_context = member,
            .events = {.context = member,
                       .request = on_request,
                       .note = on_note,
                       .peer = on_peer,
                       .abort = on_abort},
        };
    }
}

static void *
open_member(void *context)
{
    struct member *member = context;

    member->rc = sti_comm_open(&member->comm, &member->opts, &member->err);
    return NULL;
}

int
team_try(struct team *team)
{
    pthread_t threads[TEAM_MAX];
    int rc = 0;

    for (uint32_t rank = 0; rank < team->n; rank++)
        assert_int_equal(pthread_create(&threads[rank], NULL, open_member, &team->members[rank]),
                         0);
    for (uint32_t rank = 0; rank < team->n; rank++) {
        assert_int_equal(pthread_join(threads[rank], NULL), 0);
        if (rc == 0)
            rc = team->members[rank].rc;
    }
    return rc;
}

void
team_open(struct team *team)
{
    int rc = team_try(team);

    for (uint32_t rank = 0; rc < 0 && rank < team->n; rank++)
        print_error("rank %u: %s\n", rank, team->members[rank].err.message);
    assert_int_equal(rc, 0);
}

void
team_leave(struct team *team, uint32_t rank)
{
    sti_comm_close(team->members[rank].comm);
    team->members[rank].comm = NULL;
}

void
team_close(struct team *team)
{
    for (uint32_t rank = 0; rank < team->n; rank++)
        team_leave(team, rank);
    sti_comm_hub_free(team->hub);
    (void)pthread_barrier_destroy(&team->barrier);
    free(team->cards);
}

/* ---- time ---- */

/* Sleeps on the descriptors of all that have nothing to do. */
static void
turn(struct team *team, uint64_t until_ns)
{
    struct pollfd fds[TEAM_MAX];
    uint64_t wait_ns = UINT64_MAX;
    nfds_t n = 0;

    for (uint32_t rank = 0; rank < team->n; rank++) {
        struct sti_comm *comm = team->members[rank].comm;

        if (!comm)
            continue;
        uint64_t wanted_ns = sti_comm_progress(comm);
        if (wanted_ns < wait_ns)
            wait_ns = wanted_ns;
    }
    for (uint32_t rank = 0; rank < team->n && wait_ns > 0; rank++) {
        struct sti_comm *comm = team->members[rank].comm;

        if (!comm)
            continue;
        if (sti_comm_arm(comm) < 0)
            wait_ns = 0;
        fds[n++] = (struct pollfd){.fd = sti_comm_fd(comm), .events = POLLIN};
    }
    uint64_t now_ns = sti_clock_ns();
    if (wait_ns == 0 || now_ns >= until_ns)
        return;
    if (wait_ns > until_ns - now_ns)
        wait_ns = until_ns - now_ns;
    team->n_sleeps++;
    (void)poll(fds, n, (int)(wait_ns / MS + 1));
}

void
team_run(struct team *team, bool (*is_done)(void *context), void *context)
{
    uint64_t until_ns = sti_clock_ns() + PATIENCE_NS;

    while (!is_done(context)) {
        turn(team, until_ns);
        assert_true(sti_clock_ns() < until_ns);
    }
}

void
team_pass(struct team *team, uint32_t ms)
{
    uint64_t until_ns = sti_clock_ns() + ms * MS;

    do
        turn(team, until_ns);
    while (sti_clock_ns() < until_ns);
}

struct sti_comm *
team_comm(struct team *team, uint32_t rank)
{
    return team->members[rank].comm;
}

struct sti_comm_stats
team_stats(struct team *team, uint32_t rank)
{
    struct sti_comm_stats stats;

    sti_comm_get_stats(team->members[rank].comm, &stats);
    return stats;
}

/* ---- requests ---- */

unsigned char
pattern(uint64_t seed, uint64_t at)
{
    return (unsigned char)((at * 31 + (at >> 8) * 17 + seed * 101) & 255);
}

static void
answered(void *context, int code)
{
    (void)code; /* the asker knows */
    free(context);
}

void
serve_pattern(struct member *member, struct sti_comm_incoming *incoming)
{
    const unsigned char *asked = incoming->small;
    struct sti_comm_answer answer = {.code = -ENOENT, .done = answered};

    assert_int_equal(incoming->n_small, 16);
    if (incoming->verb == VERB_PROMISE)
        sti_comm_promise(member->comm, incoming);
    if (incoming->verb == VERB_GET) {
        uint64_t seed = sti_wire_get(asked, 8);

        answer.code = 0;
        answer.n_bytes = sti_wire_get(asked + 8, 8);
        answer.has_crc = true;
        answer.crc = (uint32_t)seed;
        unsigned char *bytes = malloc(answer.n_bytes + 1);
        assert_non_null(bytes);
        for (uint64_t at = 0; at < answer.n_bytes; at++)
            bytes[at] = pattern(seed, at);
        answer.body = bytes;
        answer.context = bytes;
    }
    if (incoming->verb == VERB_PROMISE || incoming->verb == VERB_NEVER) {
        member->context = incoming; /* the test answers */
        return;
    }
    sti_comm_answer(member->comm, incoming, &answer);
}

static void
get_done(struct sti_comm_request *request)
{
    struct get *get = request->context;

    get->n_done++;
}

void
get_init(struct get *get, uint64_t seed, uint64_t room)
{
    memset(get, 0, sizeof(*get));
    get->seed = seed;
    get->into = malloc(room + 1);
    assert_non_null(get->into);
    memset(get->into, 0xee, room + 1);
    get->request.into = get->into;
    get->request.into_bytes = room;
    get->request.done = get_done;
    get->request.context = get;
}

int
get_begin(struct team *team, uint32_t from, struct get *get, uint32_t verb, uint32_t peer,
          uint64_t n_bytes)
{
    get->n_bytes = n_bytes;
    get->n_done = 0;
    sti_wire_put(get->asked, get->seed, 8);
    sti_wire_put(get->asked + 8, n_bytes, 8);
    get->request.peer = peer;
    get->request.verb = verb;
    get->request.small = get->asked;
    get->request.n_small = sizeof(get->asked);
    return sti_comm_request(team_comm(team, from), &get->request);
}

static bool
is_got(void *context)
{
    return ((struct get *)context)->n_done > 0;
}

int
get_end(struct team *team, struct get *get)
{
    team_run(team, is_got, get);
    assert_int_equal(get->n_done, 1);
    if (get->request.result == 0 && get->request.code == 0) {
        assert_int_equal(get->request.n_bytes, get->n_bytes);
        assert_true(get->request.has_crc);
        assert_int_equal(get->request.crc, (uint32_t)get->seed);
        for (uint64_t at = 0; at < get->n_bytes; at++) {
            if (get->into[at] != pattern(get->seed, at))
                fail_msg("byte %llu of %llu is wrong", (unsigned long long)at,
                         (unsigned long long)get->n_bytes);
        }
        assert_int_equal(get->into[get->request.into_bytes], 0xee);
    }
    return get->request.result;
}

void
get_fini(struct get *get)
{
    free(get->into);
}

int
get_whole(struct team *team, uint32_t from, uint32_t peer, uint64_t n_bytes)
{
    struct get get;

    get_init(&get, n_bytes * 7 + from, n_bytes);
    int rc = get_begin(team, from, &get, VERB_GET, peer, n_bytes);
    if (rc == 0)
        rc = get_end(team, &get);
    get_fini(&get);
    return rc;
}

uint32_t
open_fds(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint32_t n = 0;

    assert_non_null(folder);
    while (readdir(folder))
        n++;
    (void)closedir(folder);
    return n;
}
