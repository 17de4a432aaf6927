/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Votes of ranks, over every method: what rank 0 counts is what they have cast, all believe
 * what it says, one that does not vote is named, and one that never hears what was decided
 * keeps what may be a checkpoint.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ckpt/vote_ranks.h"
#include "comm_util.h"

#define WORLD 4u
#define LONG_NS (20 * STI_NS_PER_S)
#define SHORT_NS (STI_NS_PER_S / 5)

/* A team whose members vote. */
struct voters {
    struct team team;
    struct sti_vote *votes[WORLD];
    struct sti_ballot ballots[WORLD]; /* that rank 0 has counted */
    uint64_t growth;                  /* bytes by which ballots grow from save to save */
};

static void
serve(struct member *member, struct sti_comm_incoming *incoming)
{
    sti_vote_ranks_on_request(member->context, incoming);
}

static void
voters_open(struct voters *voters, const char *method, uint64_t timeout_ns)
{
    team_init(&voters->team, method, WORLD);
    voters->growth = 1500000;
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        voters->team.members[rank].opts.timeout_ns = STI_NS_PER_S;
        voters->team.members[rank].opts.retry_ns = 50 * MS;
    }
    team_open(&voters->team);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        const struct sti_vote_ranks_opts opts = {
            .comm = team_comm(&voters->team, rank), .verb = VERB_GET, .timeout_ns = timeout_ns};

        assert_int_equal(sti_vote_ranks_new(&voters->votes[rank], &opts), 0);
        voters->team.members[rank].context = voters->votes[rank];
        voters->team.members[rank].serve = serve;
    }
}

/* Until nothing of a vote is under way; the others go on meanwhile. */
static void
leave(struct voters *voters, uint32_t rank)
{
    if (!voters->votes[rank])
        return;
    sti_vote_ranks_leave(voters->votes[rank]);
    for (int turn = 0; turn < 2000 && !sti_vote_ranks_is_idle(voters->votes[rank]); turn++)
        team_pass(&voters->team, 5);
    assert_true(sti_vote_ranks_is_idle(voters->votes[rank]));
}

static void
voters_close(struct voters *voters)
{
    for (uint32_t rank = 0; rank < WORLD; rank++)
        leave(voters, rank);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        sti_vote_free(voters->votes[rank]);
    team_close(&voters->team);
}

/* Byte at of what a rank has written. */
static char
byte_of(uint64_t serial, uint32_t rank, uint64_t at)
{
    return (char)(at * 5 + at / 300 + rank * 77 + serial * 13);
}

static uint64_t
bytes_of(const struct voters *voters, uint64_t serial, uint32_t rank)
{
    return serial % 3 == 0 ? 100 + rank : voters->growth * serial + rank;
}

/* words NULL: for it. */
static void
cast(struct voters *voters, uint32_t rank, uint64_t serial, const char *words)
{
    struct sti_ballot ballot = {.code = words ? -EIO : 0};

    ballot.n_bytes = words ? strlen(words) : bytes_of(voters, serial, rank);
    ballot.bytes = words ? sti_mem_strdup(words) : sti_mem_new(ballot.n_bytes, 1);
    assert_non_null(ballot.bytes);
    for (uint64_t at = 0; !words && at < ballot.n_bytes; at++)
        ballot.bytes[at] = byte_of(serial, rank, at);
    sti_vote_cast(voters->votes[rank], rank, serial, &ballot);
}

static void
tally(struct voters *voters, uint64_t serial, struct sti_verdict *ret_verdict)
{
    uint64_t due_ns;

    for (int turn = 0; turn < 4000; turn++) {
        if (sti_vote_tally(voters->votes[0], serial, voters->ballots, ret_verdict, &due_ns))
            return;
        team_pass(&voters->team, 5);
    }
    fail_msg("nothing is certain");
}

static void
hear(struct voters *voters, uint32_t rank, uint64_t serial, struct sti_verdict *ret_verdict)
{
    uint64_t due_ns;

    for (int turn = 0; turn < 4000; turn++) {
        if (sti_vote_verdict(voters->votes[rank], serial, ret_verdict, &due_ns))
            return;
        team_pass(&voters->team, 5);
    }
    fail_msg("rank %u hears nothing", rank);
}

static void
expect_all_hear(struct voters *voters, uint64_t serial, const struct sti_verdict *expected)
{
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        struct sti_verdict verdict;

        hear(voters, rank, serial, &verdict);
        assert_int_equal(verdict.code, expected->code);
        assert_int_equal(verdict.writer, expected->writer);
        assert_int_equal(verdict.keep_parts, expected->keep_parts);
        assert_string_equal(verdict.text, expected->text);
    }
}

static void
for_each_method(void (*test)(struct voters *voters, const char *method))
{
    for (const char *const *method = team_methods(); *method; method++) {
        struct voters *voters = calloc(1, sizeof(*voters));

        assert_non_null(voters);
        test(voters, *method);
        voters_close(voters);
        free(voters);
    }
}

/* ---- all are there ----------------------------------------------------------------- */

static void
all_for_it(struct voters *voters, const char *method)
{
    voters_open(voters, method, LONG_NS);
    for (uint64_t serial = 0; serial < 4; serial++) {
        struct sti_verdict verdict;

        for (uint32_t at = 0; at < WORLD; at++)
            cast(voters, (uint32_t)(at + serial) % WORLD, serial, NULL);
        tally(voters, serial, &verdict);
        assert_int_equal(verdict.code, 0);
        for (uint32_t rank = 0; rank < WORLD; rank++) {
            assert_int_equal(voters->ballots[rank].n_bytes, bytes_of(voters, serial, rank));
            for (uint64_t at = 0; at < bytes_of(voters, serial, rank); at++)
                if (voters->ballots[rank].bytes[at] != byte_of(serial, rank, at))
                    fail_msg("rank %u, byte %llu", rank, (unsigned long long)at);
        }
        verdict = (struct sti_verdict){.code = 0};
        sti_vote_decide(voters->votes[0], serial, &verdict);
        expect_all_hear(voters, serial, &verdict);
    }
}

static void
test_all_for_it(void **unused)
{
    (void)unused;
    for_each_method(all_for_it);
}

/* Each is against it in its turn, and the next save goes well. */
static void
one_against(struct voters *voters, const char *method)
{
    voters_open(voters, method, LONG_NS);
    for (uint64_t serial = 0; serial < WORLD; serial++) {
        struct sti_verdict verdict;

        for (uint32_t rank = 0; rank < WORLD; rank++)
            cast(voters, rank, serial, rank == serial ? "its disk is full" : NULL);
        tally(voters, serial, &verdict);
        assert_int_equal(verdict.code, -EIO);
        assert_int_equal(verdict.writer, serial);
        assert_string_equal(verdict.text, "its disk is full");
        sti_vote_decide(voters->votes[0], serial, &verdict);
        expect_all_hear(voters, serial, &verdict);
    }
}

static void
test_one_against(void **unused)
{
    (void)unused;
    for_each_method(one_against);
}

/* ---- rank 0 stands still ----------------------------------------------------------- */

#define STILL_NS (STI_NS_PER_S * 2 / 5)

/* Rank 0 comes to vote on a save and decides it. */
static void
settle(struct voters *voters, uint64_t serial, int expected)
{
    struct sti_verdict verdict;

    cast(voters, 0, serial, NULL);
    tally(voters, serial, &verdict);
    assert_int_equal(verdict.code, expected);
    sti_vote_decide(voters->votes[0], serial, &verdict);
}

/* The others give up on one save after the other. When rank 0 decides the first at last, they
 * come to vote on the fifth, in the place of the third, which rank 0 comes to only then. */
static void
first_is_late(struct voters *voters, const char *method)
{
    struct sti_verdict verdict;

    voters_open(voters, method, STILL_NS);
    voters->growth = 100; /* nothing but standing still takes its time */
    for (uint64_t serial = 0; serial < 4; serial++) {
        for (uint32_t rank = 1; rank < WORLD; rank++)
            cast(voters, rank, serial, NULL);
        for (uint32_t rank = 1; rank < WORLD; rank++) {
            hear(voters, rank, serial, &verdict);
            assert_int_equal(verdict.code, -ETIMEDOUT);
            assert_true(verdict.keep_parts);
        }
    }
    for (uint32_t rank = 1; rank < WORLD; rank++)
        cast(voters, rank, 4, NULL);
    settle(voters, 0, 0); /* their ballots are there, and the checkpoint may be, too */
    for (int turn = 0; turn < 70; turn++) { /* until they have voted again */
        for (uint32_t rank = 1; rank < WORLD; rank++) {
            uint64_t due_ns;

            (void)sti_vote_verdict(voters->votes[rank], 4, &verdict, &due_ns);
        }
        team_pass(&voters->team, 5);
    }
    settle(voters, 1, 0);
    settle(voters, 2, -ETIMEDOUT); /* nobody votes on it any more */
    settle(voters, 3, -ETIMEDOUT);
    for (uint32_t rank = 1; rank < WORLD; rank++)
        hear(voters, rank, 4, &verdict); /* that one they have given up by now, too */
    cast(voters, 0, 4, NULL);
    tally(voters, 4, &verdict);
    sti_vote_decide(voters->votes[0], 4, &verdict);
    for (uint32_t rank = 0; rank < WORLD; rank++) /* and here they are together again */
        cast(voters, rank, 5, NULL);
    tally(voters, 5, &verdict);
    assert_int_equal(verdict.code, 0);
    verdict = (struct sti_verdict){.code = 0};
    sti_vote_decide(voters->votes[0], 5, &verdict);
    expect_all_hear(voters, 5, &verdict);
}

static void
test_rank_0_stands_still(void **unused)
{
    (void)unused;
    for_each_method(first_is_late);
}

/* ---- what is published with a verdict ---------------------------------------------- */

/* Waits until a rank has it, or knows why not. */
static int
await_published(struct voters *voters, uint32_t rank, uint64_t serial, const char **ret_bytes,
                uint64_t *ret_n_bytes)
{
    uint64_t due_ns;

    for (int turn = 0; turn < 4000; turn++) {
        int rc = sti_vote_published(voters->votes[rank], serial, ret_bytes, ret_n_bytes, &due_ns);

        if (rc != 0)
            return rc;
        team_pass(&voters->team, 5);
    }
    fail_msg("rank %u gets nothing", rank);
    return 0;
}

static void
publish(struct voters *voters, const char *method)
{
    voters_open(voters, method, LONG_NS);
    for (uint64_t serial = 0; serial < 5; serial++) {
        struct sti_verdict verdict = {.code = 0};
        const uint64_t n = serial == 3 ? 0 : 100000 + serial * 7777;
        const char *bytes;
        uint64_t n_bytes;

        for (uint32_t rank = 0; rank < WORLD; rank++)
            cast(voters, rank, serial, NULL);
        tally(voters, serial, &verdict);
        if (n > 0) {
            char *given = sti_mem_new(n, 1);

            assert_non_null(given);
            for (uint64_t at = 0; at < n; at++)
                given[at] = byte_of(serial, 9, at);
            assert_int_equal(sti_vote_publish(voters->votes[0], serial, given, n), 0);
        }
        sti_vote_decide(voters->votes[0], serial, &verdict);
        for (uint32_t rank = 0; rank < WORLD; rank++) {
            hear(voters, rank, serial, &verdict);
            assert_int_equal(verdict.n_published, n);
            if (rank == 1)
                continue; /* it need not want it */
            int rc = await_published(voters, rank, serial, &bytes, &n_bytes);
            assert_int_equal(rc, n > 0 ? 1 : -ENOENT);
            assert_true(n == 0 || n_bytes == n);
            for (uint64_t at = 0; at < n; at++)
                if (bytes[at] != byte_of(serial, 9, at))
                    fail_msg("rank %u, byte %llu", rank, (unsigned long long)at);
        }
    }
}

static void
test_published_with_the_verdict(void **unused)
{
    (void)unused;
    for_each_method(publish);
}

/* ---- somebody is not --------------------------------------------------------------- */

/* One does not vote: the others are told who, and so is it when it comes. */
static void
one_is_late(struct voters *voters, const char *method)
{
    struct sti_verdict verdict;
    struct sti_verdict late;

    voters_open(voters, method, SHORT_NS);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        if (rank != 2)
            cast(voters, rank, 0, NULL);
    tally(voters, 0, &verdict);
    assert_int_equal(verdict.code, -ETIMEDOUT);
    assert_int_equal(verdict.writer, 2);
    assert_non_null(strstr(verdict.text, "not voted"));
    sti_vote_decide(voters->votes[0], 0, &verdict);
    cast(voters, 2, 0, NULL);
    hear(voters, 2, 0, &late);
    assert_int_equal(late.code, -ETIMEDOUT);
    expect_all_hear(voters, 0, &verdict);
}

static void
test_one_is_late(void **unused)
{
    (void)unused;
    for_each_method(one_is_late);
}

/* Rank 0 is gone before it has said anything: who was for it keeps its parts. */
static void
nobody_counts(struct voters *voters, const char *method)
{
    struct sti_verdict verdict;

    voters_open(voters, method, SHORT_NS);
    leave(voters, 0);
    sti_vote_free(voters->votes[0]);
    voters->votes[0] = NULL;
    team_leave(&voters->team, 0);
    cast(voters, 1, 0, NULL);
    cast(voters, 2, 0, "its disk is full");
    hear(voters, 1, 0, &verdict);
    assert_true(verdict.code < 0 && verdict.keep_parts && verdict.writer == 0);
    hear(voters, 2, 0, &verdict);
    assert_true(verdict.code < 0 && !verdict.keep_parts && verdict.writer == 0);
}

static void
test_nobody_counts(void **unused)
{
    (void)unused;
    for_each_method(nobody_counts);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_for_it),
        cmocka_unit_test(test_one_against),
        cmocka_unit_test(test_rank_0_stands_still),
        cmocka_unit_test(test_published_with_the_verdict),
        cmocka_unit_test(test_one_is_late),
        cmocka_unit_test(test_nobody_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
