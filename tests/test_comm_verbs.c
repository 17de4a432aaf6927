/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs of ranks, over every method: what is asked for comes, whole and where it
 * should; limits hold, and one more is an error; a peer that is late, silent or gone ends
 * what was asked of it and nothing else.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm_util.h"

static struct team team;
static const char *method;

static void
short_times(uint64_t timeout_ns, uint64_t retry_ns)
{
    for (uint32_t rank = 0; rank < team.n; rank++) {
        team.members[rank].opts.timeout_ns = timeout_ns;
        team.members[rank].opts.retry_ns = retry_ns;
    }
}

static void
test_what_is_known(void **state)
{
    static const char *const nodes[] = {"b", "a", "b", "c", "a"};

    (void)state;
    team_init(&team, method, 5);
    for (uint32_t rank = 0; rank < team.n; rank++)
        team.members[rank].opts.node = nodes[rank];
    team_open(&team);
    for (uint32_t rank = 0; rank < team.n; rank++) {
        struct sti_comm *comm = team_comm(&team, rank);

        assert_int_equal(sti_comm_rank(comm), rank);
        assert_int_equal(sti_comm_world(comm), 5);
        assert_string_equal(sti_comm_method(comm), method);
        assert_int_equal(sti_comm_nodes(comm), 3);
        assert_int_equal(sti_comm_node_of(comm, 0), 0);
        assert_int_equal(sti_comm_node_of(comm, 1), 1);
        assert_int_equal(sti_comm_node_of(comm, 2), 0);
        assert_int_equal(sti_comm_node_of(comm, 3), 2);
        assert_int_equal(sti_comm_node_of(comm, 4), 1);
    }
    team_close(&team);
    /* Without names, this machine is one. */
    team_init(&team, method, 2);
    team_open(&team);
    assert_int_equal(sti_comm_nodes(team_comm(&team, 1)), 1);
    team_close(&team);
}

static void
test_sizes(void **state)
{
    static const uint64_t sizes[] = {0,     1,      7,      63,      64,      1000,    4096,
                                     8191,  8192,   8193,   65536,   108000,  1048576, 1048577,
                                     33333, 262144, 524287, 5000000, 16777216};

    (void)state;
    team_init(&team, method, 3);
    team_open(&team);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        assert_int_equal(get_whole(&team, 0, 1, sizes[i]), 0);
        assert_int_equal(get_whole(&team, 1, 0, sizes[i]), 0);
    }
    assert_int_equal(get_whole(&team, 2, 1, 1000), 0);
    assert_int_equal(team_stats(&team, 2).requests, 1);
    assert_int_equal(team_stats(&team, 2).bytes_in, 1000);
    team_close(&team);
}

static void
test_room(void **state)
{
    struct get get;

    (void)state;
    team_init(&team, method, 2);
    team_open(&team);
    for (uint64_t size = 10; size < 10000000; size *= 100) {
        get_init(&get, 3, size);
        assert_int_equal(get_begin(&team, 0, &get, VERB_GET, 1, size + 1), 0);
        assert_int_equal(get_end(&team, &get), -EMSGSIZE);
        assert_int_equal(get.into[0], 0xee);
        assert_int_equal(get_begin(&team, 0, &get, VERB_GET, 1, size / 2), 0);
        assert_int_equal(get_end(&team, &get), 0);
        get_fini(&get);
    }
    /* What is not there is an answer, too. */
    get_init(&get, 3, 100);
    assert_int_equal(get_begin(&team, 0, &get, VERB_MISSING, 1, 100), 0);
    assert_int_equal(get_end(&team, &get), 0);
    assert_int_equal(get.request.code, -ENOENT);
    assert_int_equal(get.request.n_bytes, 0);
    get_fini(&get);
    team_close(&team);
}

static void
test_bad_calls(void **state)
{
    struct get get;
    struct sti_comm *comm;

    (void)state;
    team_init(&team, method, 2);
    team_open(&team);
    comm = team_comm(&team, 0);
    get_init(&get, 3, 100);
    assert_int_equal(get_begin(&team, 0, &get, VERB_GET, 0, 1), -EINVAL);
    assert_int_equal(get_begin(&team, 0, &get, VERB_GET, 2, 1), -EINVAL);
    assert_int_equal(get_begin(&team, 0, &get, STI_COMM_VERBS_MAX, 1, 1), -EINVAL);
    get.request.into_bytes = STI_COMM_BODY_MAX + 1;
    assert_int_equal(get_begin(&team, 0, &get, VERB_GET, 1, 1), -EMSGSIZE);
    get.request.into_bytes = 100;
    get.request.verb = VERB_GET;
    get.request.n_small = STI_COMM_SMALL_MAX + 1;
    assert_int_equal(sti_comm_request(comm, &get.request), -EMSGSIZE);
    assert_int_equal(sti_comm_note(comm, 1, VERB_GET, get.into, STI_COMM_SMALL_MAX + 1), -EMSGSIZE);
    assert_int_equal(sti_comm_note(comm, 0, VERB_GET, NULL, 0), -EINVAL);
    assert_int_equal(sti_comm_note(comm, 1, STI_COMM_VERBS_MAX, NULL, 0), -EINVAL);
    assert_int_equal(get.n_done, 0);
    get_fini(&get);
    team_close(&team);
}

/* As many as may be, both ways at once; then one more. */
static void
test_many(void **state)
{
    enum { EACH = 24, SIDES = 2 };
    static struct get gets[SIDES][EACH + 1];

    (void)state;
    team_init(&team, method, 2);
    for (uint32_t rank = 0; rank < 2; rank++)
        team.members[rank].opts.max_requests = EACH;
    team_open(&team);
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i <= EACH; i++) {
            for (uint32_t side = 0; side < SIDES; side++) {
                get_init(&gets[side][i], i + round, 200000);
                int rc = get_begin(&team, side, &gets[side][i], VERB_GET, 1 - side,
                                   (i * 7919 + round * 104729) % 200000);
                assert_int_equal(rc, i < EACH ? 0 : -EAGAIN);
            }
        }
        for (uint32_t i = 0; i <= EACH; i++) {
            for (uint32_t side = 0; side < SIDES; side++) {
                if (i < EACH)
                    assert_int_equal(get_end(&team, &gets[side][i]), 0);
                get_fini(&gets[side][i]);
            }
        }
    }
    team_close(&team);
}

static void
test_pending_in_all(void **state)
{
    struct get gets[5];

    (void)state;
    team_init(&team, method, 3);
    team.members[0].opts.max_pending = 4;
    team_open(&team);
    for (uint32_t i = 0; i < 5; i++) {
        get_init(&gets[i], i, 100);
        assert_int_equal(get_begin(&team, 0, &gets[i], VERB_GET, 1 + i % 2, 100),
                         i < 4 ? 0 : -EAGAIN);
    }
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(get_end(&team, &gets[i]), 0);
    for (uint32_t i = 0; i < 5; i++)
        get_fini(&gets[i]);
    team_close(&team);
}

static bool
has_context(void *context)
{
    return ((struct member *)context)->context != NULL;
}

/* Takes the request that rank 1 has not answered, and answers it. */
static void
answer_now(struct sti_comm_incoming *incoming, int code)
{
    const struct sti_comm_answer answer = {.code = code};

    sti_comm_answer(team_comm(&team, 1), incoming, &answer);
}

static void
test_promise(void **state)
{
    struct get get;

    (void)state;
    team_init(&team, method, 2);
    team_open(&team);
    /* A promise gives it another time to wait. */
    get_init(&get, 3, 100);
    get.request.timeout_ns = 200 * MS;
    get.request.wait_ns = 10000 * MS;
    assert_int_equal(get_begin(&team, 0, &get, VERB_PROMISE, 1, 100), 0);
    team_run(&team, has_context, &team.members[1]);
    team_pass(&team, 500);
    assert_int_equal(get.n_done, 0);
    assert_true(get.request.is_promised);
    answer_now(team.members[1].context, -ENODATA);
    assert_int_equal(get_end(&team, &get), 0);
    assert_int_equal(get.request.code, -ENODATA);
    /* One that is not kept ends, too; the late answer finds nobody. */
    team.members[1].context = NULL;
    get.request.wait_ns = 300 * MS;
    assert_int_equal(get_begin(&team, 0, &get, VERB_PROMISE, 1, 100), 0);
    assert_int_equal(get_end(&team, &get), -ETIMEDOUT);
    assert_true(get.request.is_promised);
    answer_now(team.members[1].context, 0);
    assert_int_equal(get_whole(&team, 0, 1, 5000), 0);
    get_fini(&get);
    team_close(&team);
}

static void
test_timeout_and_cancel(void **state)
{
    struct get get, other;

    (void)state;
    team_init(&team, method, 2);
    team_open(&team);
    get_init(&get, 3, 100);
    get_init(&other, 3, 100);
    get.request.timeout_ns = 100 * MS;
    assert_int_equal(get_begin(&team, 0, &get, VERB_NEVER, 1, 100), 0);
    assert_int_equal(get_end(&team, &get), -ETIMEDOUT);
    assert_int_equal(team_stats(&team, 0).timeouts, 1);
    answer_now(team.members[1].context, 0);

    team.members[1].context = NULL;
    assert_int_equal(get_begin(&team, 0, &get, VERB_NEVER, 1, 100), 0);
    team_run(&team, has_context, &team.members[1]);
    sti_comm_cancel(team_comm(&team, 0), &get.request);
    assert_int_equal(get.n_done, 0); /* not out of the call */
    /* Its place may be taken by another request, which the late answer must not reach. */
    struct sti_comm_incoming *late = team.members[1].context;
    team.members[1].context = NULL;
    assert_int_equal(get_begin(&team, 0, &other, VERB_NEVER, 1, 100), 0);
    team_run(&team, has_context, &team.members[1]);
    assert_int_equal(get_end(&team, &get), -ECANCELED);
    answer_now(late, -EIO);
    team_pass(&team, 50);
    assert_int_equal(other.n_done, 0);
    answer_now(team.members[1].context, -ENODATA);
    assert_int_equal(get_end(&team, &other), 0);
    assert_int_equal(other.request.code, -ENODATA);
    sti_comm_cancel(team_comm(&team, 0), &other.request); /* too late is nothing */
    team_pass(&team, 10);
    assert_int_equal(other.n_done, 1);
    get_fini(&get);
    get_fini(&other);
    team_close(&team);
}

/* A large answer that is given up while it comes: done once, nothing written afterwards. */
static void
test_cancel_large(void **state)
{
    const uint64_t size = 16 << 20;

    (void)state;
    team_init(&team, method, 2);
    team_open(&team);
    for (uint32_t turns = 0; turns < 12; turns++) {
        struct get get;

        get_init(&get, turns, size);
        assert_int_equal(get_begin(&team, 0, &get, VERB_GET, 1, size), 0);
        for (uint32_t i = 0; i < turns; i++) {
            (void)sti_comm_progress(team_comm(&team, 0));
            (void)sti_comm_progress(team_comm(&team, 1));
        }
        sti_comm_cancel(team_comm(&team, 0), &get.request);
        int rc = get_end(&team, &get);
        assert_true(rc == 0 || rc == -ECANCELED);
        memset(get.into, 0x11, size);
        team_pass(&team, 20);
        for (uint64_t at = 0; at < size; at++)
            assert_true(get.into[at] == 0x11);
        get_fini(&get);
    }
    assert_int_equal(get_whole(&team, 0, 1, size), 0);
    team_close(&team);
}

static bool
has_note(void *context)
{
    return ((struct member *)context)->n_notes > 0;
}

static void
test_notes(void **state)
{
    unsigned char bytes[STI_COMM_SMALL_MAX];
    uint32_t n_sent = 0;

    (void)state;
    team_init(&team, method, 2);
    team.members[0].opts.max_requests = 8;
    team_open(&team);
    memset(bytes, 0x5a, sizeof(bytes));
    assert_int_equal(sti_comm_note(team_comm(&team, 0), 1, 99, bytes, sizeof(bytes)), 0);
    memset(bytes, 0, sizeof(bytes)); /* they were copied */
    team_run(&team, has_note, &team.members[1]);
    assert_int_equal(team.members[1].last_verb, 99);
    assert_int_equal(team.members[1].last_peer, 0);
    assert_int_equal(team.members[1].n_last_note, STI_COMM_SMALL_MAX);
    assert_int_equal(team.members[1].last_note[STI_COMM_SMALL_MAX - 1], 0x5a);
    assert_int_equal(sti_comm_note(team_comm(&team, 0), 1, 98, NULL, 0), 0);
    team_pass(&team, 20);
    assert_int_equal(team.members[1].n_last_note, 0);
    /* As many as are on their way at a time, and all that were taken arrive. */
    team.members[1].n_notes = 0;
    while (n_sent < 100 && sti_comm_note(team_comm(&team, 0), 1, 97, bytes, 100) == 0)
        n_sent++;
    assert_true(n_sent >= 8 && n_sent < 100);
    team_pass(&team, 50);
    assert_int_equal(team.members[1].n_notes, n_sent);
    team_close(&team);
}

/* Who is gone ends what was asked of it; the others go on. */
static void
test_gone(void **state)
{
    struct get gets[4];

    (void)state;
    team_init(&team, method, 3);
    short_times(2000 * MS, 200 * MS);
    team_open(&team);
    assert_int_equal(get_whole(&team, 0, 1, 1000), 0);
    assert_int_equal(get_whole(&team, 0, 2, 1000), 0);
    team.members[1].serve = serve_pattern;
    for (uint32_t i = 0; i < 4; i++) {
        get_init(&gets[i], i, 1000);
        assert_int_equal(
            get_begin(&team, 0, &gets[i], i % 2 ? VERB_GET : VERB_NEVER, 1 + i % 2, 1000), 0);
    }
    team_pass(&team, 50);
    for (uint32_t i = 0; i < 4; i += 2)
        assert_int_equal(gets[i].n_done, 0);
    team_leave(&team, 1);
    for (uint32_t i = 0; i < 4; i++) {
        int rc = get_end(&team, &gets[i]);

        assert_true(i % 2 ? rc == 0 : rc < 0);
        get_fini(&gets[i]);
    }
    assert_int_equal(get_whole(&team, 0, 2, 1000000), 0);
    /* Asked again it is found out at the latest. */
    assert_true(get_whole(&team, 0, 1, 1000) < 0);
    assert_true(team.members[0].n_lost >= 1 || sti_comm_peer(team_comm(&team, 0), 1) == 0);
    assert_int_equal(get_whole(&team, 2, 0, 1000), 0);
    team_close(&team);
}

static void
told(void *context, int code)
{
    *(int *)context = code;
}

static int answer_code;
static unsigned char answer_bytes[4 << 20];

static void
serve_large(struct member *member, struct sti_comm_incoming *incoming)
{
    const struct sti_comm_answer answer = {
        .body = answer_bytes,
        .n_bytes = sizeof(answer_bytes),
        .done = told,
        .context = &answer_code,
    };

    sti_comm_answer(member->comm, incoming, &answer);
}

static bool
is_told(void *context)
{
    return *(int *)context != 1;
}

/* A peer that does not take its answer does not keep the memory of it. */
static void
test_answer_not_taken(void **state)
{
    struct member *asker = &team.members[0];
    struct sti_comm *stopped;
    struct get get;

    (void)state;
    team_init(&team, method, 2);
    short_times(500 * MS, 100 * MS);
    team_open(&team);
    assert_int_equal(get_whole(&team, 0, 1, 1000), 0);
    team.members[1].serve = serve_large;
    answer_code = 1;
    get_init(&get, 1, sizeof(answer_bytes));
    assert_int_equal(get_begin(&team, 0, &get, VERB_GET, 1, sizeof(answer_bytes)), 0);
    (void)sti_comm_progress(asker->comm);
    stopped = asker->comm;
    asker->comm = NULL; /* it is given no time */
    team_run(&team, is_told, &answer_code);
    assert_true(answer_code < 0);
    asker->comm = stopped;
    get.request.code = 1; /* its bytes are not to be looked at */
    team_pass(&team, 1000);
    assert_int_equal(get.n_done, 1);
    assert_true(get.request.result < 0);
    get_fini(&get);
    /* It is there again, and so are the bytes. */
    team.members[1].serve = NULL;
    sti_comm_retry(team_comm(&team, 0), 1);
    assert_int_equal(get_whole(&team, 0, 1, 100000), 0);
    team_close(&team);
}

static void
test_answer_after_loss(void **state)
{
    struct get get;

    (void)state;
    team_init(&team, method, 2);
    short_times(1000 * MS, 100 * MS);
    team_open(&team);
    get_init(&get, 1, 100);
    assert_int_equal(get_begin(&team, 0, &get, VERB_NEVER, 1, 100), 0);
    team_run(&team, has_context, &team.members[1]);
    team_leave(&team, 0);
    assert_int_equal(get.n_done, 1);
    assert_int_equal(get.request.result, -ECANCELED);
    team_pass(&team, 100);
    answer_code = 1;
    const struct sti_comm_answer answer = {
        .body = answer_bytes, .n_bytes = 50, .done = told, .context = &answer_code};
    sti_comm_answer(team_comm(&team, 1), team.members[1].context, &answer);
    assert_int_equal(answer_code, 1); /* not out of the call */
    team_run(&team, is_told, &answer_code);
    get_fini(&get);
    team_close(&team);
}

static void
test_refused_service(void **state)
{
    (void)state;
    team_init(&team, method, 2);
    team.members[1].opts.events.request = NULL;
    team_open(&team);
    assert_int_equal(get_whole(&team, 0, 1, 100), -ENOSYS);
    team_close(&team);
}

static void
test_abort(void **state)
{
    struct get get, late;

    (void)state;
    team_init(&team, method, 4);
    team_open(&team);
    get_init(&get, 1, 100);
    get_init(&late, 1, 100);
    assert_int_equal(get_begin(&team, 2, &get, VERB_NEVER, 1, 100), 0);
    team_run(&team, has_context, &team.members[1]);
    sti_comm_abort(team_comm(&team, 0), STK_E_CORRUPT, "rank 0 has had enough");
    assert_int_equal(get_end(&team, &get), -ECANCELED);
    team_pass(&team, 100);
    for (uint32_t rank = 1; rank < 4; rank++) {
        assert_int_equal(team.members[rank].abort_code, STK_E_CORRUPT);
        assert_int_equal(team.members[rank].abort_from, 0);
        assert_string_equal(team.members[rank].abort_text, "rank 0 has had enough");
    }
    assert_int_equal(get_begin(&team, 2, &late, VERB_GET, 1, 100), -ECANCELED);
    assert_int_equal(get_begin(&team, 0, &late, VERB_GET, 1, 100), -ECANCELED);
    answer_now(team.members[1].context, 0);
    team_pass(&team, 10);
    get_fini(&get);
    get_fini(&late);
    team_close(&team);
}

/* Nobody wakes up who has nothing to do. */
static void
test_idle(void **state)
{
    uint64_t wakes[4], sleeps;

    (void)state;
    team_init(&team, method, 4);
    short_times(200 * MS, 100 * MS);
    team_open(&team);
    for (uint32_t rank = 0; rank < 4; rank++)
        assert_int_equal(get_whole(&team, rank, (rank + 1) % 4, 200000), 0);
    team_pass(&team, 1500); /* what was due is not any more */
    for (uint32_t rank = 0; rank < 4; rank++)
        wakes[rank] = team_stats(&team, rank).wakes;
    sleeps = team.n_sleeps;
    team_pass(&team, 2000);
    for (uint32_t rank = 0; rank < 4; rank++)
        assert_true(team_stats(&team, rank).wakes - wakes[rank] <= 10);
    assert_true(team.n_sleeps - sleeps <= 10);
    team_close(&team);
}

static const char *const *methods;

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_known),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_bad_calls),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_pending_in_all),
        cmocka_unit_test(test_promise),
        cmocka_unit_test(test_timeout_and_cancel),
        cmocka_unit_test(test_cancel_large),
        cmocka_unit_test(test_notes),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_answer_not_taken),
        cmocka_unit_test(test_answer_after_loss),
        cmocka_unit_test(test_refused_service),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_idle),
    };
    int n_failed = 0;

    for (methods = team_methods(); *methods; methods++) {
        method = *methods;
        printf("method %s\n", method);
        n_failed += cmocka_run_group_tests_name(method, tests, NULL, NULL);
    }
    return n_failed;
}
