/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks on nodes with storage of their own, over every method: what they save together
 * lies on all nodes, any number of ranks loads it from there, and what is lost with a
 * node is told.
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

#include "ranks_ckpt_util.h"

/* ---- what lies where ------------------------------------------------------------ */

/* The bytes of a file, to be freed; NULL: there is none. */
static char *
slurp(const char *path, size_t *ret_n)
{
    FILE *file = fopen(path, "re");
    char *bytes = malloc(1 << 20);

    assert_non_null(bytes);
    if (!file) {
        free(bytes);
        return NULL;
    }
    *ret_n = fread(bytes, 1, 1 << 20, file);
    assert_int_equal(fclose(file), 0);
    return bytes;
}

static bool
has_step(const struct scene *scene, uint32_t node, uint64_t step)
{
    char dir[300];
    char path[400];

    node_dir(scene, node, dir);
    (void)snprintf(path, sizeof(path), "%s/step-%u/manifest.json", dir, (unsigned)step);
    return access(path, R_OK) == 0;
}

/* Every node has the same manifest, and the parts of its own ranks. */
static void
expect_on_nodes(const struct scene *scene, uint32_t world, uint64_t step)
{
    uint32_t n_nodes = (world + scene->per_node - 1) / scene->per_node;
    char *first = NULL;
    size_t n_first = 0;

    for (uint32_t node = 0; node < n_nodes; node++) {
        char dir[300];
        char path[400];
        size_t n;
        uint32_t expected = node == 0 ? 1u << world : 0; /* the header's */

        for (uint32_t rank = 0; rank < world; rank++)
            if (rank / scene->per_node == node)
                expected |= 1u << rank;
        assert_int_equal(writers_on(scene, node, step), expected);
        node_dir(scene, node, dir);
        (void)snprintf(path, sizeof(path), "%s/step-%u/manifest.json", dir, (unsigned)step);
        char *bytes = slurp(path, &n);
        assert_non_null(bytes);
        if (!first) {
            first = bytes;
            n_first = n;
            continue;
        }
        assert_int_equal(n, n_first);
        assert_memory_equal(bytes, first, n);
        free(bytes);
    }
    free(first);
}

/* ---- saving and loading --------------------------------------------------------- */

static void
save_three(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_error err;

    for (uint64_t step = 1; step <= 3; step++)
        save_at(rank, ckpt, step, 0, &err);
    stk_ckpt_close(ckpt);
}

/* scene->wrong: of how many ranks the checkpoint is. */
static void
load_together(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    uint64_t step = 0;
    stk_ckpt_info infos[4];
    uint32_t n;
    stk_view *view;
    stk_error err;

    assert_int_equal(stk_ckpt_latest(ckpt, &step, &err), 0);
    assert_int_equal(step, 3);
    assert_int_equal(stk_ckpt_list(ckpt, infos, 4, &n, &err), 2);
    assert_int_equal(n, 2);
    assert_int_equal(infos[0].state, 0);
    assert_int_equal(infos[1].state, 0);
    for (step = 2; step <= 3; step++) {
        if (stk_view_open(&view, ckpt, step == 3 ? STK_LATEST : step, &err) != 0)
            fail_msg("rank %u: %s: %s", rank->rank, err.path, err.message);
        expect_step(view, step, (uint32_t)scene_of(rank)->wrong);
        stk_view_close(view);
    }
    job_meet(rank->job); /* the others read what is here */
    stk_ckpt_close(ckpt);
}

static void
save_and_load_on(struct scene *scene, const char *comm, uint32_t world, uint32_t per_node)
{
    uint32_t n_nodes = (world + per_node - 1) / per_node;

    scene->per_node = per_node;
    scene->wrong = (int)world;
    run(scene, comm, world, save_three);
    for (uint32_t node = 0; node < n_nodes; node++)
        assert_int_equal(writers_on(scene, node, 1), 0); /* keep is 2 */
    expect_on_nodes(scene, world, 2);
    expect_on_nodes(scene, world, 3);
    for (scene->per_node = 1; scene->per_node * n_nodes <= RANKS_MAX; scene->per_node++)
        run(scene, comm, scene->per_node * n_nodes, load_together);
    scratch_remove(scene->dir);
    scratch_make(scene->dir);
}

static void
save_and_load(struct scene *scene, const char *comm)
{
    scene->opts.node_local = 1;
    save_and_load_on(scene, comm, 4, 2);
    save_and_load_on(scene, comm, 3, 1);
    save_and_load_on(scene, comm, 5, 2);
    save_and_load_on(scene, comm, 2, 2); /* one node */
}

static void
test_nodes_save_one_checkpoint(void **state)
{
    (void)state;
    for_each_comm(save_and_load);
}

/* ---- what is lost --------------------------------------------------------------- */

/* scene->wrong: the node that is new. */
static void
load_without_one(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    uint32_t lost = (uint32_t)scene_of(rank)->wrong;
    uint64_t step;
    stk_ckpt_info info;
    uint32_t n;
    stk_view *view;
    stk_error err;
    char of[64];

    (void)snprintf(of, sizeof(of), "rank %u wrote it", lost * 2);
    assert_int_equal(stk_view_open(&view, ckpt, 3, &err), STK_E_CORRUPT);
    if (!strstr(err.message, of))
        fail_msg("'%s' is not in: %s", of, err.message);
    assert_non_null(strstr(err.message, "none of 3 nodes"));
    assert_int_equal(stk_ckpt_latest(ckpt, &step, &err), STK_E_CORRUPT);
    assert_int_equal(stk_view_open(&view, ckpt, STK_LATEST, &err), STK_E_CORRUPT);
    assert_int_equal(stk_ckpt_list(ckpt, &info, 1, &n, &err), 1);
    assert_int_equal(n, 2);
    assert_int_equal(info.step, 3);
    assert_int_equal(info.state, STK_E_CORRUPT);
    assert_int_equal(stk_view_open(&view, ckpt, 7, &err), -ENOENT);
    job_meet(rank->job);
    stk_ckpt_close(ckpt);
}

static void
lose_nodes(struct scene *scene, const char *comm)
{
    scene->opts.node_local = 1;
    scene->per_node = 2;
    for (scene->wrong = 0; scene->wrong < 3; scene->wrong++) {
        char dir[300];

        run(scene, comm, 6, save_three);
        node_dir(scene, (uint32_t)scene->wrong, dir);
        scratch_remove(dir);
        run(scene, comm, 6, load_without_one);
        scratch_remove(scene->dir);
        scratch_make(scene->dir);
    }
}

static void
test_a_node_that_is_lost(void **state)
{
    (void)state;
    for_each_comm(lose_nodes);
}

/* Changes the last byte of the first part of a rank. */
static void
damage_part(const struct scene *scene, uint32_t node, uint32_t rank, uint64_t step)
{
    char command[700];
    char dir[300];

    node_dir(scene, node, dir);
    (void)snprintf(command, sizeof(command),
                   "f=$(ls %s/step-%u.*/part-%u-0.bin) && n=$(stat -c %%s $f) && printf '\\377' | "
                   "dd of=$f bs=1 seek=$((n - 1)) conv=notrunc status=none",
                   dir, (unsigned)step, rank);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c,concurrency-mt-unsafe) */
}

static void
load_damaged(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_view *view;
    stk_error err;

    assert_int_equal(stk_view_open(&view, ckpt, 3, &err), 0); /* sizes are right */
    assert_int_equal(stk_view_verify(view, NULL, NULL, &err), STK_E_CORRUPT);
    assert_non_null(strstr(err.message, "CRC"));
    if (rank->rank < 2 && (!strstr(err.message, "rank 2's node") || err.rank != 2))
        fail_msg("%d, %s", err.rank, err.message);
    stk_view_close(view);
    if (stk_view_open(&view, ckpt, 2, &err) != 0)
        fail_msg("%s", err.message);
    expect_step(view, 2, WORLD);
    stk_view_close(view);
    job_meet(rank->job);
    /* Rank 2 has closed: nobody gives what is on its node. */
    if (rank->rank == 2)
        stk_ckpt_close(ckpt);
    job_meet(rank->job);
    if (rank->rank < 2) {
        int rc = stk_view_open(&view, ckpt, 2, &err);

        if (rc != -ENOTCONN || !strstr(err.message, "part") || err.rank != 2)
            fail_msg("rank %u: %d, %s", rank->rank, rc, err.message);
    }
    job_meet(rank->job); /* its engine is still there */
    if (rank->rank != 2)
        stk_ckpt_close(ckpt);
}

static void
damage(struct scene *scene, const char *comm)
{
    scene->opts.node_local = 1;
    scene->per_node = 2;
    run(scene, comm, WORLD, save_three);
    damage_part(scene, 1, 3, 3);
    run(scene, comm, WORLD, load_damaged);
}

static void
test_damage_on_another_node(void **state)
{
    (void)state;
    for_each_comm(damage);
}

/* ---- what goes wrong while saving ----------------------------------------------- */

/* A step that one node has already is refused before any node has it anew. */
static void
save_again(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_error err;

    save_at(rank, ckpt, 3, -EEXIST, &err);
    if (rank->rank != 2)
        assert_int_equal(err.rank, 2);
    save_at(rank, ckpt, 4, 0, &err);
    stk_ckpt_close(ckpt);
}

static void
have_it_already(struct scene *scene, const char *comm)
{
    char dir[300];

    scene->opts.node_local = 1;
    scene->opts.keep = STK_NONE;
    scene->per_node = 2;
    run(scene, comm, WORLD, save_three);
    node_dir(scene, 0, dir);
    scratch_remove(dir);
    run(scene, comm, WORLD, save_again);
    assert_false(has_step(scene, 0, 3));
    assert_int_equal(writers_on(scene, 0, 3), 0);
    expect_on_nodes(scene, WORLD, 4);
}

static void
test_a_step_that_one_node_has(void **state)
{
    (void)state;
    for_each_comm(have_it_already);
}

/* The keeper of the second node cannot write its manifest: the save fails on all, but
 * what the others have committed is there. */
static void
save_without_a_manifest(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_view *view;
    stk_error err;
    char dir[300];

    save_at(rank, ckpt, 1, 0, &err);
    job_meet(rank->job);
    node_dir(scene_of(rank), 1, dir);
    if (rank->rank == 2)
        scratch_remove(dir);
    job_meet(rank->job);
    save_at(rank, ckpt, 2, -ENOENT, &err);
    if (!strstr(err.message, "manifest's directory"))
        fail_msg("%s", err.message);
    if (rank->rank != 2)
        assert_int_equal(err.rank, 2);
    job_meet(rank->job);
    if (rank->rank < 2) {
        if (stk_view_open(&view, ckpt, 2, &err) != 0)
            fail_msg("%s", err.message);
        expect_step(view, 2, WORLD);
        stk_view_close(view);
    }
    job_meet(rank->job);
    stk_ckpt_close(ckpt);
}

static void
fail_to_commit(struct scene *scene, const char *comm)
{
    char root[300];

    (void)snprintf(root, sizeof(root), "%s/root", scene->dir);
    scene->opts.node_local = 1;
    scene->opts.roots = root; /* of one machine: the same for both */
    scene->per_node = 2;
    run(scene, comm, WORLD, save_without_a_manifest);
    assert_true(has_step(scene, 0, 2));
    scene->opts.roots = NULL;
}

static void
test_a_keeper_that_cannot_commit(void **state)
{
    (void)state;
    for_each_comm(fail_to_commit);
}

/* ---- options -------------------------------------------------------------------- */

static void
open_differently(struct rank *rank)
{
    stk_ckpt_opts opts = scene_of(rank)->opts;
    stk_ckpt *ckpt;
    stk_error err;

    opts.node_local = rank->rank == 1;
    assert_int_equal(stk_ckpt_open(&ckpt, rank->engine, scene_of(rank)->dir, &opts, &err),
                     STK_E_MISMATCH);
    assert_non_null(strstr(err.message, "node_local"));
    assert_int_equal(err.rank, 1);
}

static void
differ(struct scene *scene, const char *comm)
{
    run(scene, comm, 2, open_differently);
}

static void
test_ranks_that_differ(void **state)
{
    (void)state;
    for_each_comm(differ);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_save_one_checkpoint),
        cmocka_unit_test(test_a_node_that_is_lost),
        cmocka_unit_test(test_damage_on_another_node),
        cmocka_unit_test(test_a_step_that_one_node_has),
        cmocka_unit_test(test_a_keeper_that_cannot_commit),
        cmocka_unit_test(test_ranks_that_differ),
    };

    return cmocka_run_group_tests(tests, watchdog, NULL);
}
