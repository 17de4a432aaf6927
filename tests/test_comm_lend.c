/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers that lie in memory which ranks of one machine read themselves, over every method:
 * the bytes are the holder's, it has them back when they were taken, or their asker is lost or
 * late, and not before; what cannot be read where it lies is sent.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm_util.h"

#define MIB (UINT64_C(1) << 20)
#define ARENA_BYTES (4 * MIB)
#define LENGTH 100000u

static struct team team;
static const char *method;
static struct sti_arena arena;

/* What the holder, rank 1, was told of its answers. */
static uint32_t n_over;
static int last_code;
static bool has_no_crc;

static void
over(void *context, int code)
{
    (void)context;
    n_over++;
    last_code = code;
}

/* Answers with bytes of the arena: where they begin and how many are asked for. */
static void
serve_arena(struct member *member, struct sti_comm_incoming *incoming)
{
    struct sti_comm_answer answer = {.has_crc = !has_no_crc, .done = over};
    uint64_t at;

    memcpy(&at, incoming->small, sizeof(at));
    memcpy(&answer.n_bytes, (const char *)incoming->small + 8, sizeof(answer.n_bytes));
    answer.body = arena.base + at;
    answer.crc = (uint32_t)at;
    if (incoming->verb == VERB_NEVER)
        member->context = incoming; /* the test answers */
    else
        sti_comm_answer(member->comm, incoming, &answer);
}

static void
open_ranks(uint32_t n, const char *transports)
{
    n_over = 0;
    last_code = 1;
    has_no_crc = false;
    team_init(&team, method, n);
    for (uint32_t rank = 0; rank < n; rank++) {
        team.members[rank].opts.transports = transports;
        team.members[rank].opts.timeout_ns = 500 * MS;
        team.members[rank].opts.retry_ns = 50 * MS;
    }
    team.members[1].serve = serve_arena;
    team_open(&team);
    assert_int_equal(sti_arena_open_shared(&arena, ARENA_BYTES), 0);
    for (uint64_t at = 0; at < ARENA_BYTES; at++)
        arena.base[at] = (char)pattern(5, at);
}

/* Mappings of lent memory in this process, the arena's own among them. */
static uint32_t
mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    char line[512];
    uint32_t n = 0;

    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        n += strstr(line, "memfd:stoker") != NULL;
    (void)fclose(file);
    return n;
}

static void
close_ranks(void)
{
    if (team_comm(&team, 1))
        sti_comm_take_back(team_comm(&team, 1), &arena);
    team_close(&team);
    sti_arena_close(&arena);
    assert_int_equal(mappings(), 0);
}

struct ask {
    struct sti_comm_request request;
    uint64_t small[2];
    unsigned char *into;
    bool is_done;
};

static void
on_done(struct sti_comm_request *request)
{
    ((struct ask *)request->context)->is_done = true;
}

static bool
is_done(void *context)
{
    return ((struct ask *)context)->is_done;
}

static void
begin(struct ask *ask, uint32_t from, uint64_t at, uint64_t n_bytes)
{
    memset(ask, 0, sizeof(*ask));
    ask->small[0] = at;
    ask->small[1] = n_bytes;
    ask->into = malloc(n_bytes);
    assert_non_null(ask->into);
    ask->request = (struct sti_comm_request){.peer = 1,
                                             .verb = VERB_GET,
                                             .small = ask->small,
                                             .n_small = sizeof(ask->small),
                                             .into = ask->into,
                                             .into_bytes = n_bytes,
                                             .may_lie = true,
                                             .done = on_done,
                                             .context = ask};
    assert_int_equal(sti_comm_request(team_comm(&team, from), &ask->request), 0);
}

static void
check_bytes(const struct ask *ask)
{
    const unsigned char *bytes = ask->request.lies ? ask->request.lies : ask->into;

    assert_int_equal(ask->request.result, 0);
    assert_int_equal(ask->request.n_bytes, ask->small[1]);
    assert_int_equal(ask->request.crc, (uint32_t)ask->small[0]);
    for (uint64_t at = 0; at < ask->small[1]; at++)
        assert_int_equal(bytes[at], pattern(5, ask->small[0] + at));
}

/* Asks rank 1 and waits; true: the bytes lie there, and are to be taken. */
static bool
ask_one(struct ask *ask, uint32_t from, uint64_t at, uint64_t n_bytes)
{
    begin(ask, from, at, n_bytes);
    team_run(&team, is_done, ask);
    check_bytes(ask);
    return ask->request.lies != NULL;
}

static void
take(struct ask *ask, uint32_t from)
{
    sti_comm_took(team_comm(&team, from), &ask->request);
    assert_null(ask->request.lies);
    free(ask->into);
}

static bool
are_over(void *context)
{
    return n_over >= *(const uint32_t *)context;
}

static void
wait_over(uint32_t n, int code)
{
    team_run(&team, are_over, &n);
    assert_int_equal(n_over, n);
    assert_int_equal(last_code, code);
}

static void
test_taken(void **state)
{
    struct ask ask;

    (void)state;
    open_ranks(3, NULL);
    assert_true(sti_comm_lends(team_comm(&team, 0)));
    assert_int_equal(sti_comm_lend(team_comm(&team, 1), &arena), 0);
    for (uint32_t round = 0; round < 20; round++) {
        assert_true(ask_one(&ask, round % 2 * 2, round * 100001 % (ARENA_BYTES - LENGTH), LENGTH));
        /* The holder cannot have it back as long as it may be read. */
        team_pass(&team, 20);
        assert_int_equal(n_over, round);
        take(&ask, round % 2 * 2);
        wait_over(round + 1, 0);
    }
    /* The arena's, and one for each of two ranks. */
    assert_int_equal(mappings(), 3);
    assert_int_equal(team_stats(&team, 0).bytes_lay, 10 * LENGTH);
    assert_int_equal(team_stats(&team, 0).bytes_in, 10 * LENGTH);
    assert_int_equal(team_stats(&team, 1).bytes_out, 20 * LENGTH);
    sti_comm_take_back(team_comm(&team, 1), &arena);
    team_pass(&team, 50);
    assert_int_equal(mappings(), 1);
    close_ranks();
}

static void
test_many(void **state)
{
    static struct ask asks[64];

    (void)state;
    open_ranks(2, NULL);
    assert_int_equal(sti_comm_lend(team_comm(&team, 1), &arena), 0);
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t i = 0; i < 64; i++)
            begin(&asks[i], 0, i * 8192, 8192 + i);
        for (uint32_t i = 0; i < 64; i++) {
            team_run(&team, is_done, &asks[i]);
            check_bytes(&asks[i]);
            assert_non_null(asks[i].request.lies);
            take(&asks[i], 0);
        }
        wait_over((round + 1) * 64, 0);
    }
    assert_int_equal(team_stats(&team, 0).lost + team_stats(&team, 1).lost, 0);
    close_ranks();
}

/* What is short, without a CRC, not lent, or not asked for so, is sent. */
static void
test_sent(void **state)
{
    struct ask ask;

    (void)state;
    open_ranks(2, NULL);
    assert_false(ask_one(&ask, 0, 0, LENGTH));
    free(ask.into);
    assert_int_equal(sti_comm_lend(team_comm(&team, 1), &arena), 0);
    assert_false(ask_one(&ask, 0, 0, 1000));
    free(ask.into);
    has_no_crc = true;
    assert_false(ask_one(&ask, 0, 7, LENGTH));
    free(ask.into);
    has_no_crc = false;
    assert_true(ask_one(&ask, 0, ARENA_BYTES - LENGTH, LENGTH));
    take(&ask, 0);
    wait_over(4, 0);
    sti_comm_take_back(team_comm(&team, 1), &arena);
    assert_false(ask_one(&ask, 0, 0, LENGTH));
    free(ask.into);
    close_ranks();
}

static void
test_not_between(void **state)
{
    struct ask ask;

    (void)state;
    if (strcmp(method, "ucx") == 0) {
        open_ranks(2, "tcp"); /* no transport is memory */
        assert_false(sti_comm_lends(team_comm(&team, 1)));
        assert_int_equal(sti_comm_lend(team_comm(&team, 1), &arena), -EINVAL);
        assert_false(ask_one(&ask, 0, 0, LENGTH));
        free(ask.into);
        close_ranks();
    }
    /* On two machines, of which one has two ranks. */
    static const char *const nodes[] = {"a", "b", "b"};

    n_over = 0;
    team_init(&team, method, 3);
    for (uint32_t rank = 0; rank < 3; rank++)
        team.members[rank].opts.node = nodes[rank];
    team.members[1].serve = serve_arena;
    team_open(&team);
    assert_int_equal(sti_arena_open_shared(&arena, ARENA_BYTES), 0);
    for (uint64_t at = 0; at < ARENA_BYTES; at++)
        arena.base[at] = (char)pattern(5, at);
    assert_false(sti_comm_lends(team_comm(&team, 0)));
    assert_int_equal(sti_comm_lend(team_comm(&team, 1), &arena), 0);
    assert_false(ask_one(&ask, 0, 0, LENGTH));
    free(ask.into);
    assert_true(ask_one(&ask, 2, 0, LENGTH));
    take(&ask, 2);
    close_ranks();
}

/* A file that is not the one that was named: as between processes that number descriptors and
 * processes differently. The bytes come all the same, and the next ones at once. */
static void
test_another_file(void **state)
{
    static const char other[16] = "another one";
    struct ask ask;

    (void)state;
    open_ranks(2, NULL);
    assert_int_equal(sti_comm_lend(team_comm(&team, 1), &arena), 0);
    assert_int_equal(pwrite(arena.fd, other, sizeof(other), (off_t)arena.n_bytes), sizeof(other));
    for (uint32_t i = 0; i < 3; i++) {
        assert_false(ask_one(&ask, 0, i, LENGTH));
        free(ask.into);
        wait_over(i + 1, 0);
    }
    assert_int_equal(team_stats(&team, 0).unread, 1);
    assert_int_equal(team_stats(&team, 0).bytes_lay, 0);
    assert_int_equal(mappings(), 1);
    close_ranks();
}

/* An answer that comes when nobody waits any more is given back at once. */
static void
test_late(void **state)
{
    struct sti_comm_answer answer = {.n_bytes = LENGTH, .has_crc = true, .done = over};
    struct ask ask;

    (void)state;
    open_ranks(2, NULL);
    assert_int_equal(sti_comm_lend(team_comm(&team, 1), &arena), 0);
    answer.body = arena.base;
    memset(&ask, 0, sizeof(ask));
    ask.into = malloc(LENGTH);
    ask.request = (struct sti_comm_request){.peer = 1,
                                            .verb = VERB_NEVER,
                                            .small = ask.small,
                                            .n_small = sizeof(ask.small),
                                            .into = ask.into,
                                            .into_bytes = LENGTH,
                                            .may_lie = true,
                                            .timeout_ns = 30 * MS,
                                            .done = on_done,
                                            .context = &ask};
    assert_int_equal(sti_comm_request(team_comm(&team, 0), &ask.request), 0);
    team_run(&team, is_done, &ask);
    assert_int_equal(ask.request.result, -ETIMEDOUT);
    assert_non_null(team.members[1].context);
    sti_comm_answer(team_comm(&team, 1), team.members[1].context, &answer);
    wait_over(1, 0);
    assert_int_equal(team_stats(&team, 1).lost, 0);
    free(ask.into);
    close_ranks();
}

/* Who does not say that it has taken an answer is given up after the holder's time. It can
 * still read, without harm, even when the memory is gone; what it reads is not told. */
static void
test_not_taken(void **state)
{
    struct ask ask;

    (void)state;
    open_ranks(2, NULL);
    assert_int_equal(sti_comm_lend(team_comm(&team, 1), &arena), 0);
    assert_true(ask_one(&ask, 0, 0, LENGTH));
    team_pass(&team, 200);
    assert_int_equal(n_over, 0);
    wait_over(1, -ETIMEDOUT);
    assert_int_equal(team_stats(&team, 1).timeouts, 1);
    const volatile unsigned char *bytes = ask.request.lies;
    assert_int_equal(bytes[70000], pattern(5, 70000));
    sti_comm_take_back(team_comm(&team, 1), &arena);
    sti_arena_close(&arena);
    assert_int_equal(bytes[70000], 0); /* given back to the kernel */
    take(&ask, 0);
    team_pass(&team, 50);
    assert_int_equal(n_over, 1);
    close_ranks();
}

static void
test_lost(void **state)
{
    struct ask ask, other;

    (void)state;
    /* The asker goes: the holder has its memory back. */
    open_ranks(3, NULL);
    assert_int_equal(sti_comm_lend(team_comm(&team, 1), &arena), 0);
    assert_true(ask_one(&ask, 0, 0, LENGTH));
    assert_true(ask_one(&other, 2, 0, LENGTH));
    sti_comm_took(team_comm(&team, 0), &ask.request);
    free(ask.into);
    assert_true(ask_one(&ask, 0, 0, LENGTH));
    /* Its end takes what it had. */
    team_leave(&team, 0);
    free(ask.into);
    team_pass(&team, 700); /* the holder's time, where a closed rank is not noticed at once */
    assert_in_range(n_over, 2, 3);
    take(&other, 2);
    wait_over(3, last_code);
    close_ranks();
    /* The holder goes: what it had lent can be read to the end. */
    open_ranks(2, NULL);
    assert_int_equal(sti_comm_lend(team_comm(&team, 1), &arena), 0);
    assert_true(ask_one(&ask, 0, 0, LENGTH));
    team_leave(&team, 1);
    assert_int_equal(n_over, 1);
    assert_int_equal(last_code, -ECANCELED);
    team_pass(&team, 50);
    check_bytes(&ask);
    take(&ask, 0);
    close_ranks();
}

static void
test_aborted(void **state)
{
    struct ask ask;

    (void)state;
    open_ranks(2, NULL);
    assert_int_equal(sti_comm_lend(team_comm(&team, 1), &arena), 0);
    assert_true(ask_one(&ask, 0, 0, LENGTH));
    sti_comm_abort(team_comm(&team, 0), -EIO, "enough");
    wait_over(1, -ECANCELED);
    take(&ask, 0);
    close_ranks();
}

static void
test_limits(void **state)
{
    struct sti_arena arenas[STI_COMM_LENT_MAX + 1] = {{0}};
    struct sti_arena own = {0};
    struct sti_comm *comm;

    (void)state;
    open_ranks(2, NULL);
    comm = team_comm(&team, 1);
    for (uint32_t i = 0; i <= STI_COMM_LENT_MAX; i++) {
        assert_int_equal(sti_arena_open_shared(&arenas[i], 1), 0);
        assert_int_equal(sti_comm_lend(comm, &arenas[i]), i < STI_COMM_LENT_MAX ? 0 : -E2BIG);
    }
    sti_comm_take_back(comm, &arenas[3]);
    assert_int_equal(sti_comm_lend(comm, &arenas[STI_COMM_LENT_MAX]), 0);
    assert_int_equal(sti_arena_open(&own, 1, 0), 0);
    sti_comm_take_back(comm, &own); /* never lent */
    assert_int_equal(sti_comm_lend(comm, &own), -EINVAL);
    sti_arena_close(&own);
    for (uint32_t i = 0; i <= STI_COMM_LENT_MAX; i++) {
        sti_comm_take_back(comm, &arenas[i]);
        sti_arena_close(&arenas[i]);
    }
    close_ranks();
}

static const char *const *methods;

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taken),        cmocka_unit_test(test_many),
        cmocka_unit_test(test_sent),         cmocka_unit_test(test_not_between),
        cmocka_unit_test(test_another_file), cmocka_unit_test(test_late),
        cmocka_unit_test(test_not_taken),    cmocka_unit_test(test_lost),
        cmocka_unit_test(test_aborted),      cmocka_unit_test(test_limits),
    };
    int n_failed = 0;

    for (methods = team_methods(); *methods; methods++) {
        method = *methods;
        printf("method %s\n", method);
        n_failed += cmocka_run_group_tests_name(method, tests, NULL, NULL);
    }
    return n_failed;
}
