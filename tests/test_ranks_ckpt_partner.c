/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies on another node, over every method: what is acknowledged with them survives the
 * loss of any one node, byte for byte, and what is not is told.
 */
#include <errno.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "ranks_ckpt_util.h"

/* ---- what survives -------------------------------------------------------------- */

static void
save_three(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_ckpt_status status = {STK_CKPT_STATUS_INIT};
    stk_error err;

    for (uint64_t step = 1; step <= 3; step++) {
        save_at(rank, ckpt, step, 0, &err);
        /* What is being copied would stay behind the newer ones. */
        if (stk_ckpt_wait(ckpt, STK_DURABLE_PARTNER, STK_FOREVER, &err) < 0)
            fail_msg("rank %u: %s: %s", rank->rank, err.path, err.message);
    }
    assert_int_equal(stk_ckpt_get_status(ckpt, &status), 0);
    assert_int_equal(status.durable, 3);
    assert_int_equal(status.partner, 3);
    assert_int_equal(status.partner_failed, 0);
    assert_int_equal(status.last_partner, 3);
    assert_int_equal(status.partner_unfinished, 0);
    stk_ckpt_close(ckpt);
}

/* scene->wrong: of how many ranks the checkpoint is. */
static void
load_all(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_view *view;
    stk_error err;

    for (uint64_t step = 2; step <= 3; step++) {
        if (stk_view_open(&view, ckpt, step == 3 ? STK_LATEST : step, &err) != 0)
            fail_msg("rank %u: %s: %s", rank->rank, err.path, err.message);
        expect_step(view, step, (uint32_t)scene_of(rank)->wrong);
        stk_view_close(view);
    }
    job_meet(rank->job); /* the others read what is here */
    stk_ckpt_close(ckpt);
}

/* Of each writer, and the header's, whether its parts are on a node. */
static uint32_t
expected_on(uint32_t node, uint32_t world, uint32_t per_node)
{
    uint32_t n_nodes = (world + per_node - 1) / per_node;
    uint32_t expected = 0;

    for (uint32_t writer = 0; writer <= world; writer++) {
        uint32_t of = writer == world ? 0 : writer / per_node;

        if (of == node || (of + 1) % n_nodes == node)
            expected |= 1u << writer;
    }
    return expected;
}

static void
lose_each(struct scene *scene, const char *comm, uint32_t world, uint32_t per_node)
{
    uint32_t n_nodes = (world + per_node - 1) / per_node;
    char dir[300];

    scene->per_node = per_node;
    scene->wrong = (int)world;
    for (uint32_t lost = 0; lost < n_nodes; lost++) {
        run(scene, comm, world, save_three);
        for (uint32_t node = 0; node < n_nodes; node++) {
            assert_int_equal(writers_on(scene, node, 1), 0); /* keep is 2 */
            assert_int_equal(writers_on(scene, node, 3), expected_on(node, world, per_node));
        }
        node_dir(scene, lost, dir);
        scratch_remove(dir);
        run(scene, comm, world, load_all);
        scene->per_node = 1; /* and other ranks */
        run(scene, comm, n_nodes, load_all);
        scene->per_node = per_node;
        if (lost + 1 == n_nodes) { /* nobody comes in its place */
            scene->opts.partner = n_nodes > 2;
            run(scene, comm, lost * per_node, load_all);
            scene->opts.partner = 1;
        }
        scratch_remove(scene->dir);
        scratch_make(scene->dir);
    }
}

static void
lose_nodes(struct scene *scene, const char *comm)
{
    scene->opts.node_local = 1;
    scene->opts.partner = 1;
    lose_each(scene, comm, 4, 2);
    lose_each(scene, comm, 3, 1);
    lose_each(scene, comm, 5, 2);
}

static void
test_any_one_node_may_be_lost(void **state)
{
    (void)state;
    for_each_comm(lose_nodes);
}

/* A copy that was cut off has all its bytes, and none of them right, but not the part's name. */
static void
cut_off(struct scene *scene, const char *comm)
{
    char command[1200];
    char dir[300];

    scene->opts.node_local = 1;
    scene->opts.partner = 1;
    scene->per_node = 2;
    scene->wrong = WORLD;
    run(scene, comm, WORLD, save_three);
    node_dir(scene, 1, dir);
    (void)snprintf(command, sizeof(command),
                   "set -e; for f in $(ls %s/step-*.*/part-[01]-0.bin); do "
                   "tr '\\000-\\377' '\\001-\\377\\000' < $f > $f.pull; rm $f; done",
                   dir);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c,concurrency-mt-unsafe) */
    run(scene, comm, WORLD, load_all);
    assert_int_equal(writers_on(scene, 1, 3) & 3, 0);
}

static void
test_a_copy_that_was_cut_off(void **state)
{
    (void)state;
    for_each_comm(cut_off);
}

#define CHUNK 4096

/* Flips a bit. Returns false beyond the end. */
static bool
damage_byte(const char *path, long at)
{
    FILE *file = fopen(path, "r+e");

    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    int byte = fgetc(file);
    if (byte != EOF) {
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        assert_int_equal(fputc(byte ^ 16, file), byte ^ 16);
    }
    assert_int_equal(fclose(file), 0);
    return byte != EOF;
}

/* Flips a bit in each second chunk of a part's file, the first or the second of each pair. */
static void
damage_file(const char *path, int first)
{
    for (long at = (long)first * CHUNK + 7; damage_byte(path, at); at += 2L * CHUNK)
        ;
}

/* Damages what ranks wrote: on their own node and on that of the copy in the same chunks or in
 * different ones. */
static void
damage_all(const struct scene *scene, uint32_t node, uint32_t world, bool is_same)
{
    char pattern[400];
    glob_t found;
    uint32_t n_damaged = 0;

    node_dir(scene, node, pattern);
    (void)strncat(pattern, "/step-*.*/part-*.bin", sizeof(pattern) - strlen(pattern) - 1);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    for (size_t at = 0; at < found.gl_pathc; at++) {
        unsigned writer;

        assert_int_equal(sscanf(strrchr(found.gl_pathv[at], '/'), "/part-%u", &writer), 1);
        if (writer == world) /* the header's, which no tensor is read of */
            continue;
        damage_file(found.gl_pathv[at], is_same || writer / scene->per_node != node ? 1 : 0);
        n_damaged++;
    }
    globfree(&found);
    assert_true(n_damaged > 0);
}

/* As load_all(), and something was damaged where it was looked for first. */
static void
load_mended(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_view_info info = {STK_VIEW_INFO_INIT};
    stk_view *view;
    stk_error err;

    for (uint64_t step = 2; step <= 3; step++) {
        if (stk_view_open(&view, ckpt, step, &err) != 0)
            fail_msg("rank %u: %s: %s", rank->rank, err.path, err.message);
        assert_int_equal(stk_view_get_info(view, &info), 0);
        assert_int_equal(info.mended_bytes, 0);
        expect_step(view, step, (uint32_t)scene_of(rank)->wrong);
        assert_int_equal(stk_view_get_info(view, &info), 0);
        assert_true(info.mended_bytes > 0);
        char *bytes = malloc(info.bytes - info.header_bytes);
        assert_non_null(bytes);
        for (int again = 0; again < 3; again++) /* all slots at once */
            assert_int_equal(
                stk_view_read(view, info.header_bytes, bytes, info.bytes - info.header_bytes, &err),
                0);
        free(bytes);
        stk_view_close(view);
    }
    job_meet(rank->job);
    stk_ckpt_close(ckpt);
}

/* Nothing of writer 0 is right anywhere: what is told is what was wrong at first. */
static void
load_damaged(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    char *common = malloc(COMMON);
    const stk_load load = {.name = "common", .dst = common, .n_bytes = COMMON};
    stk_view *view;
    stk_error err;

    assert_int_equal(stk_view_open(&view, ckpt, 3, &err), 0);
    assert_int_equal(stk_view_load(view, &load, 1, &err), STK_E_CORRUPT);
    if (!strstr(err.message, "nor is it right elsewhere") || !strstr(err.path, "part-0"))
        fail_msg("%s: %s", err.path, err.message);
    job_meet(rank->job);
    stk_view_close(view);
    stk_ckpt_close(ckpt);
    free(common);
}

static void
damage(struct scene *scene, const char *comm)
{
    char dir[300];
    char path[600];

    scene->opts.node_local = 1;
    scene->opts.partner = 1;
    scene->per_node = 2;
    scene->wrong = 6;
    run(scene, comm, 6, save_three);
    for (uint32_t node = 0; node < 3; node++)
        damage_all(scene, node, 6, false);
    run(scene, comm, 6, load_mended);
    for (uint32_t node = 0; node < 2; node++) {
        glob_t found;

        node_dir(scene, node, dir);
        (void)snprintf(path, sizeof(path), "%s/step-3.*/part-0-0.bin", dir);
        assert_int_equal(glob(path, 0, NULL, &found), 0);
        damage_file(found.gl_pathv[0], node == 0 ? 1 : 0);
        globfree(&found);
    }
    run(scene, comm, 6, load_damaged);
}

static void
save_to_all(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_error err;

    for (uint64_t step = 2; step <= 3; step++) {
        save_at(rank, ckpt, step, 0, &err);
        assert_int_equal(stk_ckpt_wait(ckpt, STK_DURABLE_PARTNER, STK_FOREVER, &err), 0);
        assert_int_equal(stk_ckpt_wait(ckpt, STK_DURABLE_SHARED, STK_FOREVER, &err), 0);
    }
    stk_ckpt_close(ckpt);
}

/* Each second chunk is right on no node, so nodes and shared directory take turns in a slot. */
static void
damage_nodes(struct scene *scene, const char *comm)
{
    char shared[300];

    scene->opts.node_local = 1;
    scene->opts.partner = 1;
    (void)snprintf(shared, sizeof(shared), "%s/far", scene->dir);
    scene->opts.shared = shared;
    scene->per_node = 1;
    scene->wrong = 3;
    run(scene, comm, 3, save_to_all);
    for (uint32_t node = 0; node < 3; node++)
        damage_all(scene, node, 3, true);
    run(scene, comm, 5, load_mended); /* two of them have nothing on their own node */
    scene->opts.shared = NULL;
}

static void
save_and_share(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_error err;

    save_at(rank, ckpt, 1, 0, &err);
    assert_int_equal(stk_ckpt_wait(ckpt, STK_DURABLE_SHARED, STK_FOREVER, &err), 0);
    stk_ckpt_close(ckpt);
}

/* Reads all that there is, often: one slot of each part at a time. */
static void
read_often(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_view_info info = {STK_VIEW_INFO_INIT};
    stk_view *view;
    stk_error err;

    assert_int_equal(stk_view_open(&view, ckpt, 1, &err), 0);
    assert_int_equal(stk_view_get_info(view, &info), 0);
    char *bytes = malloc(info.bytes);
    assert_non_null(bytes);
    for (int again = 0; again < 60; again++)
        if (stk_view_read(view, 0, bytes, info.bytes, &err) < 0)
            fail_msg("rank %u: %s: %s", rank->rank, err.path, err.message);
    free(bytes);
    stk_view_close(view);
    job_meet(rank->job);
    stk_ckpt_close(ckpt);
}

/* One chunk of each part is right in the shared directory only, of one part its last: that slot
 * is done with it, and the others go on with their nodes, which are somewhere else. */
static void
take_turns(struct scene *scene, const char *comm)
{
    char shared[300];
    char pattern[400];

    scene->opts.node_local = 1;
    (void)snprintf(shared, sizeof(shared), "%s/far", scene->dir);
    scene->opts.shared = shared;
    scene->per_node = 1;
    run(scene, comm, 3, save_and_share);
    for (uint32_t node = 0; node < 3; node++) {
        glob_t found;
        struct stat is;

        node_dir(scene, node, pattern);
        (void)strncat(pattern, "/step-*.*/part-[012]-0.bin", sizeof(pattern) - strlen(pattern) - 1);
        assert_int_equal(glob(pattern, 0, NULL, &found), 0);
        assert_int_equal(found.gl_pathc, 1);
        assert_int_equal(stat(found.gl_pathv[0], &is), 0);
        damage_byte(found.gl_pathv[0], node == 0 ? (long)is.st_size - 1 : CHUNK);
        globfree(&found);
    }
    run(scene, comm, 6, read_often); /* half of them have nothing on their own node */
    scene->opts.shared = NULL;
}

static void
test_nodes_and_the_shared_one_take_turns(void **state)
{
    (void)state;
    for_each_comm(take_turns);
}

static void
test_what_is_damaged_comes_from_the_shared_one(void **state)
{
    (void)state;
    for_each_comm(damage_nodes);
}

static void
test_what_is_damaged_comes_from_the_copy(void **state)
{
    (void)state;
    for_each_comm(damage);
}

/* ---- what does not -------------------------------------------------------------- */

static void
load_nothing(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_view *view;
    stk_error err;

    assert_int_equal(stk_view_open(&view, ckpt, 3, &err), STK_E_CORRUPT);
    if (!strstr(err.message, "rank 0 wrote it"))
        fail_msg("%s", err.message);
    job_meet(rank->job);
    stk_ckpt_close(ckpt);
}

static void
lose_two(struct scene *scene, const char *comm)
{
    char dir[300];

    scene->opts.node_local = 1;
    scene->opts.partner = 1;
    scene->per_node = 1;
    run(scene, comm, 3, save_three);
    for (uint32_t node = 0; node < 2; node++) { /* what rank 0 wrote, and its copy */
        node_dir(scene, node, dir);
        scratch_remove(dir);
    }
    run(scene, comm, 3, load_nothing);
}

static void
test_two_nodes_are_lost(void **state)
{
    (void)state;
    for_each_comm(lose_two);
}

/* ---- many saves ----------------------------------------------------------------- */

/* Nobody waits for copies, and old ones are removed: none under its copier. */
static void
save_many(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_ckpt_status status = {STK_CKPT_STATUS_INIT};
    struct held held;
    stk_error err;

    for (uint64_t step = 1; step <= 9; step++) {
        hold(&held, rank->rank, rank->job->world, step);
        stk_save save = save_of(&held, step);

        if (stk_ckpt_save(ckpt, &save, &err) < 0 || stk_ckpt_fence(ckpt, &err) < 0)
            fail_msg("rank %u: %s", rank->rank, err.message);
        let_go(&held);
    }
    if (stk_ckpt_wait(ckpt, STK_DURABLE_PARTNER, STK_FOREVER, &err) < 0)
        fail_msg("rank %u: %s: %s", rank->rank, err.path, err.message);
    if (stk_ckpt_wait(ckpt, STK_DURABLE_SHARED, STK_FOREVER, &err) < 0)
        fail_msg("rank %u: %s: %s", rank->rank, err.path, err.message);
    assert_int_equal(stk_ckpt_get_status(ckpt, &status), 0);
    assert_int_equal(status.partner, 9);
    assert_true(status.shared > 0);
    stk_ckpt_close(ckpt);
}

static void
load_last(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_view *view;
    stk_error err;

    if (stk_view_open(&view, ckpt, STK_LATEST, &err) != 0)
        fail_msg("rank %u: %s: %s", rank->rank, err.path, err.message);
    expect_step(view, 9, WORLD);
    stk_view_close(view);
    job_meet(rank->job);
    stk_ckpt_close(ckpt);
}

static void
hurry(struct scene *scene, const char *comm)
{
    struct scene there = {0};
    char dir[300];

    (void)snprintf(there.dir, sizeof(there.dir), "%.200s/shared", scene->dir);
    scene->opts.node_local = 1;
    scene->opts.partner = 1;
    scene->opts.keep = 1;
    scene->opts.outstanding = 3;
    scene->opts.shared = there.dir;
    scene->per_node = 2;
    run(scene, comm, WORLD, save_many);
    node_dir(scene, 0, dir);
    scratch_remove(dir);
    scene->opts.shared = NULL;
    run(scene, comm, WORLD, load_last);
}

static void
test_many_saves_and_a_shared_directory(void **state)
{
    (void)state;
    for_each_comm(hurry);
}

/* ---- what goes wrong ------------------------------------------------------------ */

/* On one machine a root is one place for all nodes: a part is there already, and
 * stays. */
static void
fail_to_copy(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_ckpt_status status = {STK_CKPT_STATUS_INIT};
    stk_view *view;
    stk_error err;

    for (uint64_t step = 1; step <= 2; step++) {
        struct held held;

        hold(&held, rank->rank, rank->job->world, step);
        stk_save save = save_of(&held, step);
        assert_int_equal(stk_ckpt_save(ckpt, &save, &err), 0);
        /* Any wait may tell of it; this one does not end before. */
        int rc = stk_ckpt_wait(ckpt, STK_DURABLE_PARTNER, STK_FOREVER, &err);

        let_go(&held);
        if (rc != -EEXIST || !strstr(err.message, "partner copy of step"))
            fail_msg("rank %u: %d, %s", rank->rank, rc, rc < 0 ? err.message : "");
    }
    assert_int_equal(stk_ckpt_get_status(ckpt, &status), 0);
    assert_int_equal(status.durable, 2);
    assert_int_equal(status.partner_failed, 2);
    assert_int_equal(stk_view_open(&view, ckpt, STK_LATEST, &err), 0);
    expect_step(view, 2, 2);
    stk_view_close(view);
    stk_ckpt_close(ckpt);
}

static void
be_one_machine(struct scene *scene, const char *comm)
{
    char root[300];

    (void)snprintf(root, sizeof(root), "%.200s/root", scene->dir);
    scene->opts.node_local = 1;
    scene->opts.partner = 1;
    scene->opts.roots = root;
    scene->per_node = 1;
    run(scene, comm, 2, fail_to_copy);
}

static void
test_a_copy_that_fails(void **state)
{
    (void)state;
    for_each_comm(be_one_machine);
}

/* Saves whose copies fail, more of them than are kept. */
static void
save_uncopied(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_ckpt_status status = {STK_CKPT_STATUS_INIT};
    struct held held;
    stk_error err;

    for (uint64_t step = 4; step <= 6; step++) {
        hold(&held, rank->rank, rank->job->world, step);
        stk_save save = save_of(&held, step);
        assert_int_equal(stk_ckpt_save(ckpt, &save, &err), 0);
        assert_int_equal(stk_ckpt_wait(ckpt, STK_DURABLE_PARTNER, STK_FOREVER, &err), -EEXIST);
        let_go(&held);
    }
    assert_int_equal(stk_ckpt_get_status(ckpt, &status), 0);
    assert_int_equal(status.durable, 3);
    assert_int_equal(status.partner_failed, 3);
    job_meet(rank->job); /* the others may only now come to vote */
    stk_ckpt_close(ckpt);
}

static void
load_third(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_view *view;
    stk_error err;

    if (stk_view_open(&view, ckpt, STK_LATEST, &err) < 0)
        fail_msg("rank %u: %s: %s", rank->rank, err.path, err.message);
    expect_step(view, 3, 2);
    stk_view_close(view);
    job_meet(rank->job);
    stk_ckpt_close(ckpt);
}

/* What survives the loss of a node is not removed for what does not, of an earlier job either. */
static void
keep_what_is_copied(struct scene *scene, const char *comm)
{
    char root[300];
    char dir[300];

    (void)snprintf(root, sizeof(root), "%.200s/root", scene->dir);
    scene->opts.node_local = 1;
    scene->opts.partner = 1;
    scene->per_node = 1;
    run(scene, comm, 2, save_three);
    scene->opts.roots = root; /* one place, where no copy can be made */
    run(scene, comm, 2, save_uncopied);
    scene->opts.roots = NULL;
    scratch_remove(root);
    node_dir(scene, 1, dir);
    scratch_remove(dir);
    run(scene, comm, 2, load_third);
}

static void
test_copies_outlive_what_is_not_copied(void **state)
{
    (void)state;
    for_each_comm(keep_what_is_copied);
}

static void
open_wrongly(struct rank *rank)
{
    stk_ckpt_opts opts = scene_of(rank)->opts;
    stk_ckpt *ckpt;
    stk_error err;

    opts.partner = rank->rank == 1;
    assert_int_equal(stk_ckpt_open(&ckpt, rank->engine, scene_of(rank)->dir, &opts, &err),
                     STK_E_MISMATCH);
    assert_non_null(strstr(err.message, "partner"));
    opts.partner = 1;
    assert_int_equal(stk_ckpt_open(&ckpt, rank->engine, scene_of(rank)->dir, &opts, &err),
                     -ENOTSUP);
    assert_non_null(strstr(err.message, "one node"));
    opts.partner = 0;
    assert_int_equal(stk_ckpt_open(&ckpt, rank->engine, scene_of(rank)->dir, &opts, &err), 0);
    assert_int_equal(stk_ckpt_wait(ckpt, STK_DURABLE_PARTNER, 0, &err), -ENOTSUP);
    assert_non_null(strstr(err.message, "partner"));
    stk_ckpt_close(ckpt);
}

static void
be_wrong(struct scene *scene, const char *comm)
{
    scene->opts.node_local = 1;
    run(scene, comm, 2, open_wrongly); /* all on one node */
}

static void
test_options(void **state)
{
    (void)state;
    for_each_comm(be_wrong);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_one_node_may_be_lost),
        cmocka_unit_test(test_a_copy_that_was_cut_off),
        cmocka_unit_test(test_what_is_damaged_comes_from_the_copy),
        cmocka_unit_test(test_what_is_damaged_comes_from_the_shared_one),
        cmocka_unit_test(test_nodes_and_the_shared_one_take_turns),
        cmocka_unit_test(test_two_nodes_are_lost),
        cmocka_unit_test(test_many_saves_and_a_shared_directory),
        cmocka_unit_test(test_a_copy_that_fails),
        cmocka_unit_test(test_copies_outlive_what_is_not_copied),
        cmocka_unit_test(test_options),
    };

    return cmocka_run_group_tests(tests, watchdog, NULL);
}
