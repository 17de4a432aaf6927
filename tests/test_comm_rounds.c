/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allgathers and votes over every method: all hear the same, whoever comes last; one who
 * is missing or against it is named; a rank that lost the root asks again.
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

#define RANKS 5

static struct team team;
static const char *method;
static struct sti_comm_round rounds[TEAM_MAX];
static unsigned char mine[TEAM_MAX][STI_COMM_SHARE_MAX];
static unsigned char all[TEAM_MAX][TEAM_MAX * STI_COMM_SHARE_MAX];
static uint8_t present[TEAM_MAX][TEAM_MAX];
static uint32_t n_done;
static uint32_t n_wanted;

static void
round_done(struct sti_comm_round *round)
{
    (void)round;
    n_done++;
}

static bool
are_done(void *context)
{
    (void)context;
    return n_done >= n_wanted;
}

static void
prepare(uint32_t rank, uint32_t n_bytes, uint64_t seed)
{
    for (uint32_t at = 0; at < n_bytes; at++)
        mine[rank][at] = pattern(seed + rank, at);
    memset(all[rank], 0xee, sizeof(all[rank]));
    memset(present[rank], 0xee, sizeof(present[rank]));
    rounds[rank] = (struct sti_comm_round){
        .mine = mine[rank],
        .all = all[rank],
        .n_bytes = n_bytes,
        .done = round_done,
    };
}

static void
check_all(uint32_t rank, uint32_t n_bytes, uint64_t seed, const uint8_t *here)
{
    for (uint32_t from = 0; from < team.n; from++) {
        for (uint32_t at = 0; at < n_bytes; at++) {
            unsigned char expected = pattern(seed + from, at);

            if (!here || here[from])
                assert_int_equal(all[rank][from * n_bytes + at], expected);
        }
    }
    assert_int_equal(all[rank][team.n * n_bytes], 0xee);
}

static void
test_allgather(void **state)
{
    static const uint32_t sizes[] = {0, 1, 8, 100, STI_COMM_SHARE_MAX};

    (void)state;
    team_init(&team, method, RANKS);
    team_open(&team);
    for (uint32_t turn = 0; turn < 40; turn++) { /* more than are remembered */
        uint32_t n_bytes = sizes[turn % 5];

        n_done = 0;
        n_wanted = RANKS;
        for (uint32_t i = 0; i < RANKS; i++) {
            uint32_t rank = (i + turn) % RANKS; /* the root comes first, last, between */

            prepare(rank, n_bytes, turn);
            rounds[rank].root = turn % 3;
            assert_int_equal(sti_comm_allgather(team_comm(&team, rank), &rounds[rank]), 0);
            team_pass(&team, turn < 5 ? 5 : 0);
            assert_true(n_done < n_wanted || i == RANKS - 1);
        }
        team_run(&team, are_done, NULL);
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            assert_int_equal(rounds[rank].result, 0);
            check_all(rank, n_bytes, turn, NULL);
        }
    }
    prepare(0, 1, 0);
    rounds[0].n_bytes = STI_COMM_SHARE_MAX + 1;
    assert_int_equal(sti_comm_allgather(team_comm(&team, 0), &rounds[0]), -EMSGSIZE);
    team_close(&team);
}

/* Rank 3 does not come: the round ends for all who did, and names it. */
static void
test_missing(void **state)
{
    (void)state;
    team_init(&team, method, RANKS);
    team_open(&team);
    n_done = 0;
    n_wanted = RANKS - 1;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        prepare(rank, 10, 1);
        rounds[rank].timeout_ns = 300 * MS;
        if (rank != 3)
            assert_int_equal(sti_comm_allgather(team_comm(&team, rank), &rounds[rank]), 0);
    }
    team_run(&team, are_done, NULL);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (rank == 3)
            continue;
        assert_int_equal(rounds[rank].result, -ETIMEDOUT);
        assert_int_equal(rounds[rank].rank, 3);
    }
    /* It comes later, hears the same, and the next one works. */
    n_done = 0;
    n_wanted = 1;
    assert_int_equal(sti_comm_allgather(team_comm(&team, 3), &rounds[3]), 0);
    team_run(&team, are_done, NULL);
    assert_int_equal(rounds[3].result, -ETIMEDOUT);
    assert_int_equal(rounds[3].rank, 3);
    n_done = 0;
    n_wanted = RANKS;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        prepare(rank, 10, 2);
        assert_int_equal(sti_comm_allgather(team_comm(&team, rank), &rounds[rank]), 0);
    }
    team_run(&team, are_done, NULL);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        check_all(rank, 10, 2, NULL);
    team_close(&team);
}

/* With leave to miss somebody, all who come hear the same of the same ranks. */
static void
test_partial(void **state)
{
    static const uint8_t here[RANKS] = {1, 1, 1, 0, 1};

    (void)state;
    team_init(&team, method, RANKS);
    team_open(&team);
    n_done = 0;
    n_wanted = RANKS - 1;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        prepare(rank, 10, 1);
        rounds[rank].timeout_ns = 300 * MS;
        rounds[rank].present = present[rank];
        if (rank != 3)
            assert_int_equal(sti_comm_allgather(team_comm(&team, rank), &rounds[rank]), 0);
    }
    team_run(&team, are_done, NULL);
    n_wanted = RANKS;
    assert_int_equal(sti_comm_allgather(team_comm(&team, 3), &rounds[3]), 0);
    team_run(&team, are_done, NULL);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(rounds[rank].result, 0);
        assert_memory_equal(present[rank], here, RANKS);
        check_all(rank, 10, 1, here);
    }
    team_close(&team);
}

static void
cast(uint32_t rank, uint64_t id, bool is_for)
{
    rounds[rank] = (struct sti_comm_round){
        .id = id,
        .root = 1,
        .is_for = is_for,
        .timeout_ns = 300 * MS,
        .done = round_done,
    };
    assert_int_equal(sti_comm_vote(team_comm(&team, rank), &rounds[rank]), 0);
}

static void
all_hear(int result, uint32_t about)
{
    n_wanted = RANKS;
    team_run(&team, are_done, NULL);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(rounds[rank].result, result);
        assert_int_equal(rounds[rank].rank, about);
    }
    n_done = 0;
}

static void
test_vote(void **state)
{
    (void)state;
    team_init(&team, method, RANKS);
    team_open(&team);
    n_done = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        cast(rank, 100, true);
    all_hear(0, STI_COMM_NO_RANK);
    /* Decided as soon as one is against it; who comes later hears that, the root, too. */
    for (uint32_t rank = RANKS - 1; rank < RANKS; rank--) {
        cast(rank, 200, rank != 2);
        team_pass(&team, 10);
    }
    all_hear(-EPERM, 2);
    /* The root itself. */
    for (uint32_t rank = 0; rank < RANKS; rank++)
        cast(rank, 300, rank != 1);
    all_hear(-EPERM, 1);
    /* Somebody does not come. */
    for (uint32_t rank = 0; rank < RANKS - 1; rank++)
        cast(rank, 400, true);
    team_pass(&team, 400);
    assert_int_equal(n_done, RANKS - 1);
    cast(RANKS - 1, 400, true);
    all_hear(-ETIMEDOUT, RANKS - 1);
    /* Many at a time, in another order on each rank. */
    static struct sti_comm_round many[RANKS][8];
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t which = (i + rank * 3) % 8;

            many[rank][which] = (struct sti_comm_round){.id = 1000 + which,
                                                        .root = which % RANKS,
                                                        .is_for = which % 4 != 3 || rank != 4,
                                                        .done = round_done};
            assert_int_equal(sti_comm_vote(team_comm(&team, rank), &many[rank][which]), 0);
        }
    }
    n_wanted = RANKS * 8;
    team_run(&team, are_done, NULL);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (uint32_t i = 0; i < 8; i++)
            assert_int_equal(many[rank][i].result, i % 4 == 3 ? -EPERM : 0);
    }
    team_close(&team);
}

static void
test_disagree(void **state)
{
    (void)state;
    team_init(&team, method, 3);
    team_open(&team);
    n_done = 0;
    n_wanted = 3;
    for (uint32_t rank = 0; rank < 3; rank++) {
        prepare(rank, rank == 2 ? 11 : 10, 1);
        rounds[rank].timeout_ns = 300 * MS;
        assert_int_equal(sti_comm_allgather(team_comm(&team, rank), &rounds[rank]), 0);
    }
    team_run(&team, are_done, NULL);
    assert_int_equal(rounds[0].result, -ETIMEDOUT);
    assert_int_equal(rounds[0].rank, 2);
    assert_int_equal(rounds[1].result, -ETIMEDOUT);
    assert_int_equal(rounds[2].result, STK_E_MISMATCH);
    team_close(&team);
}

/* A root that is lost for a while is asked again; one that is gone ends the round. */
static void
test_root_gone(void **state)
{
    (void)state;
    team_init(&team, method, 3);
    for (uint32_t rank = 0; rank < 3; rank++)
        team.members[rank].opts.retry_ns = 50 * MS;
    team_open(&team);
    assert_int_equal(get_whole(&team, 0, 1, 100), 0);
    team_leave(&team, 1);
    n_done = 0;
    n_wanted = 2;
    cast(0, 1, true);
    cast(2, 1, true);
    team_run(&team, are_done, NULL);
    assert_true(rounds[0].result < 0 && rounds[0].result != -EPERM);
    assert_int_equal(rounds[0].rank, 1);
    assert_true(rounds[2].result < 0 && rounds[2].result != -EPERM);
    team_close(&team);
}

static void
test_end(void **state)
{
    (void)state;
    team_init(&team, method, 3);
    team_open(&team);
    n_done = 0;
    cast(0, 1, true);
    cast(1, 1, true);
    team_pass(&team, 20);
    team_close(&team); /* with a round under way */
    assert_int_equal(n_done, 2);
    assert_int_equal(rounds[1].result, -ECANCELED);
    assert_true(rounds[0].result < 0);
    /* The same by an abort. */
    team_init(&team, method, 3);
    team_open(&team);
    n_done = 0;
    n_wanted = 2;
    cast(0, 1, true);
    cast(1, 1, true);
    team_pass(&team, 20);
    sti_comm_abort(team_comm(&team, 2), -EIO, "");
    team_run(&team, are_done, NULL);
    assert_int_equal(rounds[0].result, -ECANCELED);
    assert_int_equal(rounds[1].result, -ECANCELED);
    team_close(&team);
}

static void
test_alone(void **state)
{
    struct sti_comm *comm;
    struct sti_comm_opts opts = {.world = 1};

    (void)state;
    assert_int_equal(sti_comm_open(&comm, &opts, NULL), 0);
    assert_string_equal(sti_comm_method(comm), "local");
    team.n = 1;
    prepare(0, 10, 1);
    n_done = 0;
    assert_int_equal(sti_comm_allgather(comm, &rounds[0]), 0);
    assert_int_equal(n_done, 0);
    while (n_done == 0)
        (void)sti_comm_progress(comm);
    check_all(0, 10, 1, NULL);
    rounds[0] = (struct sti_comm_round){.is_for = true, .done = round_done};
    assert_int_equal(sti_comm_vote(comm, &rounds[0]), 0);
    while (n_done == 1)
        (void)sti_comm_progress(comm);
    assert_int_equal(rounds[0].result, 0);
    sti_comm_close(comm);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allgather), cmocka_unit_test(test_missing),
        cmocka_unit_test(test_partial),   cmocka_unit_test(test_vote),
        cmocka_unit_test(test_disagree),  cmocka_unit_test(test_root_gone),
        cmocka_unit_test(test_end),       cmocka_unit_test(test_alone),
    };
    int n_failed = 0;

    for (const char *const *methods = team_methods(); *methods; methods++) {
        method = *methods;
        printf("method %s\n", method);
        n_failed += cmocka_run_group_tests_name(method, tests, NULL, NULL);
    }
    return n_failed;
}
