/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that save together, over every method: what each holds is one checkpoint, which any
 * number of ranks can load, whole tensors or boxes of them.
 */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ranks_ckpt_util.h"

/* ---- one checkpoint of all --------------------------------------------------------- */

static void
save_three(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_ckpt_status status = {STK_CKPT_STATUS_INIT};
    struct held held;
    stk_error err;

    for (uint64_t step = 1; step <= 3; step++) {
        hold(&held, rank->rank, rank->job->world, step);
        stk_save save = save_of(&held, step);

        if (stk_ckpt_save(ckpt, &save, &err) < 0 || stk_ckpt_fence(ckpt, &err) < 0)
            fail_msg("rank %u: %s", rank->rank, err.message);
        let_go(&held); /* nothing of it is read any more */
    }
    if (stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err) < 0)
        fail_msg("rank %u: %s", rank->rank, err.message);
    assert_int_equal(stk_ckpt_get_status(ckpt, &status), 0);
    assert_int_equal(status.durable, 3);
    stk_ckpt_close(ckpt);
}

static void
load_together(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_view *view;
    stk_error err;
    char blob[64];
    char expected[64];
    uint64_t n;

    assert_int_equal(stk_view_open(&view, ckpt, STK_LATEST, &err), 0);
    expect_step(view, 3, WORLD);
    (void)snprintf(expected, sizeof(expected), "rng of %u at 3",
                   rank->rank < WORLD ? rank->rank : 0);
    assert_int_equal(stk_view_load_blob(view, "rng", blob, sizeof(blob), &n, &err), 0);
    assert_string_equal(blob, expected); /* this rank's */
    stk_view_close(view);
    stk_ckpt_close(ckpt);
}

static void
save_and_load(struct scene *scene, const char *comm)
{
    run(scene, comm, WORLD, save_three);
    look(scene, 3, WORLD);
    look(scene, 2, WORLD); /* keep is 2 */
    assert_int_equal(count_steps(scene), 2);
    run(scene, comm, 2, load_together);
    run(scene, comm, 6, load_together);
}

static void
test_ranks_save_one_checkpoint(void **state)
{
    (void)state;
    for_each_comm(save_and_load);
}

/* ---- empty shards ------------------------------------------------------------------ */

/* A tensor with fewer rows than there are ranks: some hold nothing of it, at one place. */
static void
save_few_rows(struct rank *rank)
{
    uint64_t n_rows = (uint64_t)scene_of(rank)->wrong;
    uint64_t first = n_rows * rank->rank / rank->job->world;
    const uint64_t global[] = {n_rows, 5};
    const uint64_t shape[] = {n_rows * (rank->rank + 1) / rank->job->world - first, 5};
    const uint64_t start[] = {first, 0};
    int32_t data[5] = {0};
    int32_t found[15];
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_view *view;
    stk_error err;

    for (int at = 0; at < 5; at++)
        data[at] = (int32_t)first * 5 + at;
    const stk_tensor tensor = {.name = "w",
                               .dtype = "I32",
                               .shape = shape,
                               .dims = 2,
                               .data = data,
                               .flags = STK_TENSOR_UNIQUE};
    const stk_holding holding = {.global_shape = global, .start = start};
    const stk_save save = {STK_SAVE_INIT, .step = n_rows, .tensors = &tensor, .n_tensors = 1,
                           .holdings = &holding};
    assert_int_equal(stk_ckpt_save(ckpt, &save, &err), 0);
    if (stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err) < 0)
        fail_msg("rank %u: %s", rank->rank, err.message);
    assert_int_equal(stk_view_open(&view, ckpt, n_rows, &err), 0);
    const stk_load load = {.name = "w", .dst = found, .n_bytes = n_rows * 5 * sizeof(int32_t)};
    assert_int_equal(stk_view_load(view, &load, 1, &err), 0);
    for (int at = 0; at < (int)n_rows * 5; at++)
        assert_int_equal(found[at], at);
    stk_view_close(view);
    stk_ckpt_close(ckpt);
}

static void
few_rows(struct scene *scene, const char *comm)
{
    for (scene->wrong = 0; scene->wrong <= 3; scene->wrong++)
        run(scene, comm, WORLD, save_few_rows);
}

static void
test_shards_that_are_empty(void **state)
{
    (void)state;
    for_each_comm(few_rows);
}

/* ---- loading together -------------------------------------------------------------- */

#define BIG 20000000u /* some pieces */

static void
load_all(stk_view *view, uint32_t rank, int expected)
{
    unsigned char *common = malloc(COMMON);
    unsigned char *big = malloc(BIG);
    int32_t *rows = malloc(37 * 11 * sizeof(*rows));
    int32_t *box = malloc(30 * 4 * sizeof(*box));
    const uint64_t start[] = {5, 3};
    const uint64_t count[] = {30, 4};
    const stk_load loads[] = {
        {.name = "common", .dst = common, .n_bytes = COMMON},
        {.name = "rows", .dst = box, .n_bytes = 30 * 4 * 4, .start = start, .count = count},
        {.name = "big", .dst = big, .n_bytes = BIG},
        {.name = "rows", .dst = rows, .n_bytes = 37 * 11 * 4},
    };
    stk_error err;

    assert_true(common && big && rows && box);
    memset(big, 0, BIG);
    int rc =
        stk_view_load_together(view, loads, expected == STK_E_MISMATCH && rank == 1 ? 3 : 4, &err);
    if (rc != expected)
        fail_msg("rank %u: %d: %s", rank, rc, rc < 0 ? err.message : "loaded");
    for (uint64_t at = 0; rc == 0 && at < COMMON; at++)
        assert_int_equal(common[at], byte_of(7, 50, at));
    for (uint64_t at = 0; rc == 0 && at < BIG; at++)
        if (big[at] != byte_of(7, 51, at))
            fail_msg("rank %u: byte %u of big", rank, (unsigned)at);
    for (int at = 0; rc == 0 && at < 30 * 4; at++)
        assert_int_equal(box[at], 7000000 + (5 + at / 4) * 1000 + 3 + at % 4);
    for (int at = 0; rc == 0 && at < 37 * 11; at++)
        assert_int_equal(rows[at], 7000000 + at / 11 * 1000 + at % 11);
    free(common);
    free(big);
    free(rows);
    free(box);
}

static void
save_big(struct rank *rank)
{
    const uint64_t shape = BIG;
    unsigned char *big = malloc(BIG);
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_tensor tensors[5];
    stk_holding holdings[5];
    struct held held;
    stk_error err;

    assert_non_null(big);
    for (uint64_t at = 0; at < BIG; at++)
        big[at] = byte_of(7, 51, at);
    hold(&held, rank->rank, rank->job->world, 7);
    memcpy(tensors, held.tensors, sizeof(held.tensors));
    memcpy(holdings, held.holdings, sizeof(held.holdings));
    tensors[4] =
        (stk_tensor){.name = "big", .dtype = "U8", .shape = &shape, .dims = 1, .data = big};
    holdings[4] = (stk_holding){0};
    const stk_save save = {STK_SAVE_INIT, .step = 7, .tensors = tensors, .n_tensors = 5,
                           .holdings = holdings};
    assert_int_equal(stk_ckpt_save(ckpt, &save, &err), 0);
    assert_int_equal(stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err), 0);
    stk_ckpt_close(ckpt);
    let_go(&held);
    free(big);
}

static void
load_many_times(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_view *view;
    stk_error err;

    assert_int_equal(stk_view_open(&view, ckpt, STK_LATEST, &err), 0);
    for (int time = 0; time < 3; time++)
        load_all(view, rank->rank, 0);
    load_all(view, rank->rank, STK_E_MISMATCH); /* one loads something else */
    load_all(view, rank->rank, 0);
    /* One has no memory for it, say. */
    const stk_load load = {.name = rank->rank == 0 ? "nothing" : "common", .n_bytes = 1};
    int rc = stk_view_load_together(view, &load, 1, &err);
    assert_int_equal(rc, rank->rank == 0 ? -ENOENT : -EINVAL);
    load_all(view, rank->rank, 0);
    stk_view_close(view);
    stk_ckpt_close(ckpt);
}

static void
load_as_one(struct scene *scene, const char *comm)
{
    run(scene, comm, WORLD, save_big);
    run(scene, comm, WORLD, load_many_times);
    run(scene, comm, 3, load_many_times);
}

static void
test_ranks_load_together(void **state)
{
    (void)state;
    for_each_comm(load_as_one);
}

/* ---- a shared directory ------------------------------------------------------------ */

static void
save_shared(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    stk_ckpt_status status = {STK_CKPT_STATUS_INIT};
    struct held held;
    stk_error err;

    for (uint64_t step = 1; step <= 5; step++) {
        hold(&held, rank->rank, rank->job->world, step);
        stk_save save = save_of(&held, step);

        save.flags = step == 5 ? STK_SAVE_SHARED : 0;
        if (stk_ckpt_save(ckpt, &save, &err) < 0 || stk_ckpt_fence(ckpt, &err) < 0)
            fail_msg("rank %u: %s", rank->rank, err.message);
        let_go(&held);
    }
    if (stk_ckpt_wait(ckpt, STK_DURABLE_SHARED, STK_FOREVER, &err) < 0)
        fail_msg("rank %u: %s", rank->rank, err.message);
    assert_int_equal(stk_ckpt_get_status(ckpt, &status), 0);
    assert_int_equal(status.durable, 5);
    assert_int_equal(status.last_shared, 5);
    assert_true(status.shared >= 2); /* the second or, if it was late, one after it */
    stk_ckpt_close(ckpt);
}

static void
copy_of_all(struct scene *scene, const char *comm)
{
    struct scene there = {0};
    char top[256];

    (void)snprintf(top, sizeof(top), "%s", scene->dir);
    (void)snprintf(scene->dir, sizeof(scene->dir), "%.200s/here", top);
    (void)snprintf(there.dir, sizeof(there.dir), "%.200s/there", top);
    scene->opts.shared = there.dir;
    scene->opts.shared_every = 2;
    run(scene, comm, WORLD, save_shared);
    look(scene, 5, WORLD);
    look(&there, 5, WORLD);
    (void)snprintf(scene->dir, sizeof(scene->dir), "%s", top);
}

static void
test_ranks_copy_to_a_shared_directory(void **state)
{
    (void)state;
    for_each_comm(copy_of_all);
}

/* ---- who writes -------------------------------------------------------------------- */

/* The writers of the parts of a checkpoint, as bits. */
static uint32_t
writers_of(const struct scene *scene, uint64_t step)
{
    char prefix[64];
    char path[600];
    uint32_t writers = 0;
    uint32_t writer;
    uint32_t root;
    DIR *dir = opendir(scene->dir);

    assert_non_null(dir);
    (void)snprintf(prefix, sizeof(prefix), "step-%u.", (unsigned)step);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s", scene->dir, entry->d_name);
        DIR *parts = opendir(path);
        assert_non_null(parts);
        for (struct dirent *part; (part = readdir(parts));)
            if (sscanf(part->d_name, "part-%u-%u.bin", &writer, &root) == 2)
                writers |= 1u << writer;
        assert_int_equal(closedir(parts), 0);
    }
    assert_int_equal(closedir(dir), 0);
    return writers;
}

static void
save_common(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    struct held held;
    stk_error err;

    hold(&held, rank->rank, rank->job->world, 1);
    stk_save save = save_of(&held, 1);
    save.n_tensors = 1; /* what all hold alike */
    save.n_blobs = 0;
    assert_int_equal(stk_ckpt_save(ckpt, &save, &err), 0);
    if (stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err) < 0)
        fail_msg("rank %u: %s", rank->rank, err.message);
    stk_ckpt_close(ckpt);
    let_go(&held);
}

static void
choose_writers(struct scene *scene, const char *comm)
{
    run(scene, comm, WORLD, save_common);
    assert_int_equal(writers_of(scene, 1), 0x1f); /* all, and the header's */
    scratch_remove(scene->dir);
    scratch_make(scene->dir);
    scene->opts.writers = STK_WRITERS_NODE;
    run(scene, comm, WORLD, save_common);
    assert_int_equal(writers_of(scene, 1), 0x15); /* the first of each pair */
    scratch_remove(scene->dir);
    scratch_make(scene->dir);
    scene->opts.writers = STK_WRITERS_SOCKET;
    run(scene, comm, WORLD, save_common);
    assert_int_equal(writers_of(scene, 1), 0x11); /* threads of one process run anywhere */
}

static void
test_ranks_that_write(void **state)
{
    (void)state;
    for_each_comm(choose_writers);
}

/* ---- replicas ---------------------------------------------------------------------- */

static void
save_with_a_difference(struct rank *rank)
{
    stk_ckpt *ckpt = open_ckpt(rank);
    struct held held;
    stk_error err;

    for (uint64_t step = 1; step <= 3; step++) {
        hold(&held, rank->rank, rank->job->world, step);
        stk_save save = save_of(&held, step);

        if (step == 2 && rank->rank == 3)
            held.pair[OF_PAIR - 1] ^= 1; /* rank 2 has it, too */
        assert_int_equal(stk_ckpt_save(ckpt, &save, &err), 0);
        int rc = stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err);
        assert_int_equal(rc, step == 2 ? STK_E_MISMATCH : 0);
        if (step == 2) {
            assert_non_null(strstr(err.message, "stage1"));
            assert_non_null(strstr(err.message, "ranks 2 and 3"));
        }
        let_go(&held);
    }
    stk_ckpt_close(ckpt);
}

static void
differ(struct scene *scene, const char *comm)
{
    scene->opts.check_replicas = 1;
    run(scene, comm, WORLD, save_with_a_difference);
    assert_int_equal(count_steps(scene), 2);
    look(scene, 1, WORLD);
    look(scene, 3, WORLD);
}

static void
test_replicas_are_compared(void **state)
{
    (void)state;
    for_each_comm(differ);
}

/* ---- a rank alone, and what is refused ---------------------------------------------- */

static void
test_shards_of_one_rank(void **state)
{
    stk_engine *engine = engine_open("sync", NULL);
    const uint64_t global[] = {6, 5};
    const uint64_t shapes[2][2] = {{4, 5}, {2, 5}};
    const uint64_t starts[2][2] = {{0, 0}, {4, 0}};
    int32_t data[30];
    int32_t got[30];
    stk_ckpt *ckpt;
    stk_view *view;
    stk_error err;
    char dir[256];
    (void)state;

    for (int at = 0; at < 30; at++)
        data[at] = (int32_t)at;
    const stk_tensor tensors[] = {
        {.name = "w", .dtype = "I32", .shape = shapes[0], .dims = 2, .data = data},
        {.name = "w", .dtype = "I32", .shape = shapes[1], .dims = 2, .data = data + 20}};
    stk_holding holdings[] = {{.global_shape = global, .start = starts[0]},
                              {.global_shape = global, .start = starts[1]}};
    stk_save save = {STK_SAVE_INIT, .step = 1, .tensors = tensors, .n_tensors = 2,
                     .holdings = holdings};
    scratch_make(dir);
    assert_int_equal(stk_ckpt_open(&ckpt, engine, dir, NULL, &err), 0);
    assert_int_equal(stk_ckpt_save(ckpt, &save, &err), 0);
    assert_int_equal(stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err), 0);
    assert_int_equal(stk_view_open(&view, ckpt, 1, &err), 0);
    const stk_load load = {.name = "w", .dst = got, .n_bytes = sizeof(got)};
    assert_int_equal(stk_view_load(view, &load, 1, &err), 0);
    assert_memory_equal(got, data, sizeof(data));
    const uint64_t from[] = {3, 1};
    const uint64_t count[] = {3, 3};
    const stk_load box = {
        .name = "w", .dst = got, .n_bytes = 9 * sizeof(int32_t), .start = from, .count = count};
    assert_int_equal(stk_view_load(view, &box, 1, &err), 0);
    for (int at = 0; at < 9; at++)
        assert_true(got[at] == data[(3 + at / 3) * 5 + 1 + at % 3]);
    stk_view_close(view);
    save.step = 2;
    save.n_tensors = 1;
    assert_int_equal(stk_ckpt_save(ckpt, &save, &err), -EINVAL);
    assert_non_null(strstr(err.message, "from 4 to 6 in dimension 0 is in no shard"));
    save.n_tensors = 2;
    holdings[1].start = starts[0];
    assert_int_equal(stk_ckpt_save(ckpt, &save, &err), -EINVAL);
    holdings[1].start = (const uint64_t[]){5, 0};
    assert_int_equal(stk_ckpt_save(ckpt, &save, &err), -EINVAL);
    assert_non_null(strstr(err.message, "beyond"));
    holdings[1].start = starts[1];
    holdings[0].ranks = (const uint32_t[]){1};
    holdings[0].n_ranks = 1;
    assert_int_equal(stk_ckpt_save(ckpt, &save, &err), -EINVAL);
    holdings[0].n_ranks = 0;
    assert_int_equal(stk_ckpt_save(ckpt, &save, &err), 0);
    assert_int_equal(stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err), 0);
    stk_ckpt_close(ckpt);
    stk_engine_close(engine);
    scratch_remove(dir);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_save_one_checkpoint),
        cmocka_unit_test(test_shards_that_are_empty),
        cmocka_unit_test(test_ranks_load_together),
        cmocka_unit_test(test_ranks_copy_to_a_shared_directory),
        cmocka_unit_test(test_ranks_that_write),
        cmocka_unit_test(test_replicas_are_compared),
        cmocka_unit_test(test_shards_of_one_rank),
    };

    return cmocka_run_group_tests(tests, watchdog, NULL);
}
