/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that save together, over every method: whatever one of them does wrong, or does not do,
 * all are told, and the next save is as good as ever.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ranks_ckpt_util.h"

/* ---- one does it wrong ------------------------------------------------------------- */

/* How rank 2 spoils step 2; the others must hear of it, and of the rank. */
enum wrong {
    WRONG_ARGUMENT,
    WRONG_NOTHING, /* no save at all is given */
    WRONG_SHAPE,   /* of what all hold */
    WRONG_STEP,
    WRONG_GAP,     /* a shard that leaves rows out */
    WRONG_OVERLAP, /* two shards */
    WRONG_NAME,    /* that rank 1 has, too */
    WRONG_GROUP,   /* that rank 3 does not know of */
    WRONGS
};

static void
do_wrong(enum wrong wrong, struct held *held, stk_save *save)
{
    static const uint32_t all_but_one[] = {0, 2, 3};

    switch (wrong) {
    case WRONG_ARGUMENT:
        held->tensors[0].dtype = "F33";
        break;
    case WRONG_SHAPE:
        held->shapes[0][0] -= 1;
        break;
    case WRONG_STEP:
        save->step = 77;
        break;
    case WRONG_GAP:
        held->shapes[3][0] -= 1;
        break;
    case WRONG_OVERLAP:
        held->start[0] -= 1;
        break;
    case WRONG_NAME:
        held->tensors[2].name = "own1";
        break;
    case WRONG_GROUP:
        held->holdings[1].ranks = all_but_one;
        held->holdings[1].n_ranks = 3;
        break;
    default:
        break;
    }
}

/* Whether an error says that rank 2 has to do with it: as the one that it is about, by its words
 * or as one of two ranks that do not agree. */
static bool
names_rank_2(const stk_error *err)
{
    static const char *const ways[] = {"rank 2", "ranks 2 and", "and 2"};

    for (size_t at = 0; at < sizeof(ways) / sizeof(ways[0]); at++)
        if (strstr(err->message, ways[at]))
            return true;
    return err->rank == 2;
}

static void
save_with_one_wrong(struct rank *rank)
{
    const struct scene *scene = scene_of(rank);
    bool is_wrong = rank->rank == 2;
    stk_ckpt *ckpt = open_ckpt(rank);
    struct held held;
    stk_error err;

    for (uint64_t step = 1; step <= 3; step++) {
        hold(&held, rank->rank, rank->job->world, step);
        stk_save save = save_of(&held, step);

        if (step == 2 && is_wrong)
            do_wrong((enum wrong)scene->wrong, &held, &save);
        int rc = stk_ckpt_save(
            ckpt, step == 2 && is_wrong && scene->wrong == WRONG_NOTHING ? NULL : &save, &err);
        if (step == 2 && is_wrong && scene->wrong <= WRONG_NOTHING) {
            assert_int_equal(rc, -EINVAL); /* told at once, and not again */
            rc = stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err);
            assert_int_equal(rc, 0);
        } else {
            if (rc < 0)
                fail_msg("rank %u, step %u: %s", rank->rank, (unsigned)step, err.message);
            rc = stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err);
            if ((rc < 0) != (step == 2))
                fail_msg("wrong %d, rank %u, step %u: %s", scene->wrong, rank->rank, (unsigned)step,
                         rc < 0 ? err.message : "it was saved");
            if (rc < 0 && !names_rank_2(&err))
                fail_msg("wrong %d: rank 2 is not named: %s", scene->wrong, err.message);
        }
        let_go(&held);
    }
    stk_ckpt_close(ckpt);
}

static void
be_wrong(struct scene *scene, const char *comm)
{
    for (int wrong = 0; wrong < WRONGS; wrong++) {
        scene->wrong = wrong;
        run(scene, comm, WORLD, save_with_one_wrong);
        look(scene, 1, WORLD);
        look(scene, 3, WORLD);
        assert_int_equal(count_steps(scene), 2);
        scratch_remove(scene->dir);
        scratch_make(scene->dir);
    }
}

static void
test_one_rank_does_it_wrong(void **state)
{
    (void)state;
    for_each_comm(be_wrong);
}

/* Two saves fail one after the other, and nobody looks before the third: it is not touched by
 * what the others are still to be told. */
static void
fail_twice(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    struct held held;
    stk_error err;

    for (uint64_t step = 1; step <= 6; step++) {
        hold(&held, rank->rank, rank->job->world, step);
        stk_save save = save_of(&held, step);
        bool is_wrong = rank->rank == 1 && step <= 2;

        if (is_wrong)
            held.tensors[2].dtype = "F33";
        int rc = stk_ckpt_save(ckpt, &save, &err);
        if (rc != (is_wrong ? -EINVAL : 0))
            fail_msg("rank %u, step %u: %s", rank->rank, (unsigned)step, err.message);
        (void)stk_ckpt_fence(ckpt, &err); /* may tell of an earlier one */
        let_go(&held);
    }
    (void)stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err);
    stk_ckpt_status status = {STK_CKPT_STATUS_INIT};
    assert_int_equal(stk_ckpt_get_status(ckpt, &status), 0);
    assert_int_equal(status.durable, 4); /* 3 to 6 */
    assert_int_equal(status.failed, rank->rank == 1 ? 0 : 2);
    stk_ckpt_close(ckpt);
}

static void
lag(struct scene *scene, const char *comm)
{
    scene->opts.outstanding = 2;
    run(scene, comm, WORLD, fail_twice);
    look(scene, 6, WORLD);
    assert_int_equal(count_steps(scene), 2);
}

static void
test_failures_that_are_told_late(void **state)
{
    (void)state;
    for_each_comm(lag);
}

/* ---- one is not there -------------------------------------------------------------- */

static void
save_without_one(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    struct held held;
    stk_error err;

    hold(&held, rank->rank, rank->job->world, 1);
    stk_save save = save_of(&held, 1);
    if (rank->rank != 2) {
        assert_int_equal(stk_ckpt_save(ckpt, &save, &err), 0);
        assert_int_equal(stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err), -ETIMEDOUT);
        assert_non_null(strstr(err.message, "rank 2"));
        assert_int_equal(err.rank, 2);
    }
    job_meet(rank->job); /* rank 2 comes late: it hears what was decided */
    if (rank->rank == 2) {
        assert_int_equal(stk_ckpt_save(ckpt, &save, &err), 0);
        assert_int_equal(stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err), -ETIMEDOUT);
    }
    job_meet(rank->job);
    save.step = 2;
    assert_int_equal(stk_ckpt_save(ckpt, &save, &err), 0);
    assert_int_equal(stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err), 0);
    stk_ckpt_close(ckpt);
    let_go(&held);
}

static void
miss_one(struct scene *scene, const char *comm)
{
    scene->opts.vote_timeout_ms = 700;
    run(scene, comm, WORLD, save_without_one);
    assert_int_equal(count_steps(scene), 1);
}

static void
test_a_rank_that_does_not_vote(void **state)
{
    (void)state;
    for_each_comm(miss_one);
}

/* ---- opening ----------------------------------------------------------------------- */

static void
open_differently(struct rank *rank)
{
    struct scene *scene = scene_of(rank);
    stk_ckpt_opts opts = scene->opts;
    stk_ckpt *ckpt;
    stk_error err;
    char dir[300];

    /* What is refused at once is told to the others, too, and nobody is out of step for it. */
    int refused =
        stk_ckpt_open(&ckpt, rank->engine, rank->rank == 1 ? NULL : scene->dir, &opts, &err);
    assert_int_equal(refused, rank->rank == 1 ? -EINVAL : -ECANCELED);
    if (rank->rank != 1)
        assert_non_null(strstr(err.message, "rank 1"));
    if (rank->rank == 1)
        opts.chunk_bytes = 8192;
    assert_int_equal(stk_ckpt_open(&ckpt, rank->engine, scene->dir, &opts, &err), STK_E_MISMATCH);
    assert_non_null(strstr(err.message, "chunk_bytes 4096"));
    assert_non_null(strstr(err.message, "8192"));
    assert_int_equal(err.rank, 1);
    opts = scene->opts;
    if (rank->rank == 2)
        opts.slots = 1;
    int rc = stk_ckpt_open(&ckpt, rank->engine, scene->dir, &opts, &err);
    assert_int_equal(rc, rank->rank == 2 ? -EINVAL : -ECANCELED);
    if (rank->rank != 2)
        assert_non_null(strstr(err.message, "rank 2"));
    else
        assert_non_null(strstr(err.message, "slots"));
    opts = scene->opts; /* each for itself */
    opts.alone = 1;
    (void)snprintf(dir, sizeof(dir), "%s/of%u", scene->dir, rank->rank);
    assert_int_equal(stk_ckpt_open(&ckpt, rank->engine, dir, &opts, &err), 0);
    struct held held;
    hold(&held, 0, 1, 1);
    stk_save save = save_of(&held, 1);
    held.holdings[1].n_ranks = 0;
    for (uint64_t step = 1; step <= rank->rank + 1; step++) {
        save.step = step;
        assert_int_equal(stk_ckpt_save(ckpt, &save, &err), 0);
    }
    assert_int_equal(stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err), 0);
    stk_ckpt_close(ckpt);
    let_go(&held);
    /* A directory that is not the same place for all. */
    assert_int_equal(
        stk_ckpt_open(&ckpt, rank->engine, rank->rank == 3 ? dir : scene->dir, &scene->opts, &err),
        0);
    hold(&held, rank->rank, rank->job->world, 5);
    save = save_of(&held, 5);
    assert_int_equal(stk_ckpt_save(ckpt, &save, &err), 0);
    assert_int_equal(stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err), -ENOENT);
    assert_non_null(strstr(err.message, "rank 3"));
    assert_non_null(strstr(err.message, "one directory for all"));
    stk_ckpt_close(ckpt);
    let_go(&held);
}

static void
open_all(struct scene *scene, const char *comm)
{
    run(scene, comm, WORLD, open_differently);
}

static void
test_ranks_that_open_differently(void **state)
{
    (void)state;
    for_each_comm(open_all);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank_does_it_wrong),
        cmocka_unit_test(test_failures_that_are_told_late),
        cmocka_unit_test(test_a_rank_that_does_not_vote),
        cmocka_unit_test(test_ranks_that_open_differently),
    };

    return cmocka_run_group_tests(tests, watchdog, NULL);
}
