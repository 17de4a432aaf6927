/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks_ckpt_util.h"

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

#define ROWS 37u /* of what is sharded: no multiple of anything */
#define COLS 11u

unsigned char
byte_of(uint64_t step, uint32_t of, uint64_t at)
{
    return (unsigned char)(at * 7 + at / 251 + of * 101 + step * 17);
}

static int32_t
element(uint64_t step, uint64_t row, uint64_t col)
{
    return (int32_t)(step * 1000000 + row * 1000 + col);
}

static uint64_t
first_row(uint32_t rank, uint32_t world)
{
    return (uint64_t)ROWS * rank / world;
}

static unsigned char *
make_bytes(uint64_t n, uint64_t step, uint32_t of)
{
    unsigned char *bytes = malloc(n);

    assert_non_null(bytes);
    for (uint64_t at = 0; at < n; at++)
        bytes[at] = byte_of(step, of, at);
    return bytes;
}

void
hold(struct held *held, uint32_t rank, uint32_t world, uint64_t step)
{
    uint64_t first = first_row(rank, world);
    uint64_t n_rows = first_row(rank + 1, world) - first;

    *held = (struct held){.common = make_bytes(COMMON, step, 50),
                          .pair = make_bytes(OF_PAIR, step, 60 + rank / 2),
                          .own = make_bytes(OWN + rank, step, rank),
                          .rows = malloc((n_rows * COLS + 1) * sizeof(int32_t)),
                          .names = {"common", "", "", "rows"},
                          .shapes = {{COMMON}, {OF_PAIR}, {OWN + rank}, {n_rows, COLS}},
                          .global = {ROWS, COLS},
                          .start = {first, 0},
                          .ranks = {rank / 2 * 2, rank / 2 * 2 + 1}};
    assert_non_null(held->rows);
    (void)snprintf(held->names[1], sizeof(held->names[1]), "stage%u", rank / 2);
    (void)snprintf(held->names[2], sizeof(held->names[2]), "own%u", rank);
    (void)snprintf(held->blob, sizeof(held->blob), "rng of %u at %u", rank, (unsigned)step);
    for (uint64_t at = 0; at < n_rows * COLS; at++)
        held->rows[at] = element(step, first + at / COLS, at % COLS);
    const void *data[4] = {held->common, held->pair, held->own, held->rows};
    for (int at = 0; at < 4; at++)
        held->tensors[at] = (stk_tensor){.name = held->names[at],
                                         .dtype = at == 3 ? "I32" : "U8",
                                         .shape = held->shapes[at],
                                         .data = data[at],
                                         .dims = at == 3 ? 2 : 1,
                                         .flags = (at % 2 ? STK_TENSOR_STABLE : 0) |
                                                  (at >= 2 ? STK_TENSOR_UNIQUE : 0)};
    held->holdings[1] = (stk_holding){.ranks = held->ranks, .n_ranks = (rank | 1) < world ? 2 : 1};
    held->holdings[3] = (stk_holding){.global_shape = held->global, .start = held->start};
    held->blobs[0] =
        (stk_blob){.name = "rng", .data = held->blob, .n_bytes = strlen(held->blob) + 1};
}

void
let_go(struct held *held)
{
    free(held->common);
    free(held->pair);
    free(held->own);
    free(held->rows);
}

stk_save
save_of(const struct held *held, uint64_t step)
{
    return (stk_save){STK_SAVE_INIT,
                      .step = step,
                      .tensors = held->tensors,
                      .n_tensors = 4,
                      .holdings = held->holdings,
                      .blobs = held->blobs,
                      .n_blobs = 1};
}

static void
expect_bytes(stk_view *view, const char *name, uint64_t n, uint64_t step, uint32_t of)
{
    unsigned char *bytes = malloc(n + 1);
    const stk_load load = {.name = name, .dst = bytes, .n_bytes = n};
    stk_error err;

    assert_non_null(bytes);
    if (stk_view_load(view, &load, 1, &err) < 0)
        fail_msg("%s: %s", name, err.message);
    for (uint64_t at = 0; at < n; at++)
        if (bytes[at] != byte_of(step, of, at))
            fail_msg("%s: byte %u differs", name, (unsigned)at);
    free(bytes);
}

static void
expect_box(stk_view *view, uint64_t step, const uint64_t start[2], const uint64_t count[2])
{
    uint64_t n = count[0] * count[1];
    int32_t *box = malloc((n + 1) * sizeof(int32_t));
    const stk_load load = {
        .name = "rows", .dst = box, .n_bytes = n * sizeof(int32_t), .start = start, .count = count};
    stk_error err;

    assert_non_null(box);
    if (stk_view_load(view, &load, 1, &err) < 0)
        fail_msg("rows: %s", err.message);
    for (uint64_t at = 0; at < n; at++)
        if (box[at] != element(step, start[0] + at / count[1], start[1] + at % count[1]))
            fail_msg("rows: element %u of the box differs", (unsigned)at);
    free(box);
}

void
expect_step(stk_view *view, uint64_t step, uint32_t world)
{
    stk_view_info info = {STK_VIEW_INFO_INIT};
    stk_view_tensor rows;
    char blob[64];
    char name[32];
    uint64_t n;
    stk_error err;

    assert_int_equal(stk_view_get_info(view, &info), 0);
    assert_int_equal(info.step, step);
    assert_int_equal(info.world, world);
    assert_int_equal(info.blobs, world);
    assert_int_equal(info.tensors, 1 + (world + 1) / 2 + world + 1);
    expect_bytes(view, "common", COMMON, step, 50);
    for (uint32_t rank = 0; rank < world; rank++) {
        (void)snprintf(name, sizeof(name), "stage%u", rank / 2);
        expect_bytes(view, name, OF_PAIR, step, 60 + rank / 2);
        (void)snprintf(name, sizeof(name), "own%u", rank);
        expect_bytes(view, name, OWN + rank, step, rank);
        (void)snprintf(name, sizeof(name), "rng of %u at %u", rank, (unsigned)step);
        assert_int_equal(stk_view_load_blob_of(view, rank, "rng", blob, sizeof(blob), &n, &err), 0);
        assert_string_equal(blob, name);
    }
    assert_int_equal(stk_view_load_blob_of(view, world, "rng", blob, sizeof(blob), &n, &err),
                     -ERANGE);
    assert_int_equal(stk_view_tensor_find(view, "rows", &rows), 0);
    assert_int_equal(rows.dims, 2);
    assert_int_equal(rows.shape[0], ROWS);
    assert_int_equal(rows.n_bytes, ROWS * COLS * sizeof(int32_t));
    expect_box(view, step, (const uint64_t[]){0, 0}, (const uint64_t[]){ROWS, COLS});
    for (uint32_t other = 1; other <= 6; other++) /* as other numbers of ranks would load it */
        for (uint32_t rank = 0; rank < other; rank++) {
            uint64_t from = first_row(rank, other);

            expect_box(view, step, (const uint64_t[]){from, 0},
                       (const uint64_t[]){first_row(rank + 1, other) - from, COLS});
            expect_box(view, step, (const uint64_t[]){from, rank},
                       (const uint64_t[]){first_row(rank + 1, other) - from, COLS - 7});
        }
    /* Verifying mends nothing. */
    assert_int_equal(stk_view_get_info(view, &info), 0);
    int rc = stk_view_verify(view, NULL, NULL, &err);
    if (rc != (info.mended_bytes > 0 ? STK_E_CORRUPT : 0))
        fail_msg("%d, %llu bytes mended: %s: %s", rc, (unsigned long long)info.mended_bytes,
                 err.path, rc < 0 ? err.message : "");
}

/* ---- jobs -------------------------------------------------------------------------- */

struct scene *
scene_of(const struct rank *rank)
{
    return rank->job->context;
}

void
node_dir(const struct scene *scene, uint32_t node, char path[300])
{
    (void)snprintf(path, 300, "%s/node%u", scene->dir, node);
}

stk_ckpt *
open_ckpt(struct rank *rank)
{
    const struct scene *scene = scene_of(rank);
    stk_ckpt *ckpt;
    stk_error err;
    char dir[300];

    (void)snprintf(dir, sizeof(dir), "%s", scene->dir);
    if (scene->opts.node_local)
        node_dir(scene, rank->rank / scene->per_node, dir);
    if (stk_ckpt_open(&ckpt, rank->engine, dir, &scene->opts, &err) < 0)
        fail_msg("rank %u: %s: %s", rank->rank, err.path, err.message);
    return ckpt;
}

uint32_t
writers_on(const struct scene *scene, uint32_t node, uint64_t step)
{
    char dir[300];
    char prefix[32];
    char path[600];
    uint32_t writers = 0;

    node_dir(scene, node, dir);
    (void)snprintf(prefix, sizeof(prefix), "step-%u.", (unsigned)step);
    DIR *top = opendir(dir);
    assert_non_null(top);
    for (struct dirent *entry; (entry = readdir(top));) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        if (strstr(entry->d_name, ".tmp"))
            writers |= 0x80000000u;
        (void)snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
        DIR *parts = opendir(path);
        assert_non_null(parts);
        for (struct dirent *part; (part = readdir(parts));) {
            unsigned writer;
            unsigned number;

            if (!strstr(part->d_name, ".pull") &&
                sscanf(part->d_name, "part-%u-%u.bin", &writer, &number) == 2)
                writers |= 1u << writer;
        }
        assert_int_equal(closedir(parts), 0);
    }
    assert_int_equal(closedir(top), 0);
    return writers;
}

void
save_at(struct rank *rank, stk_ckpt *ckpt, uint64_t step, int expected, stk_error *err)
{
    struct held held;

    hold(&held, rank->rank, rank->job->world, step);
    stk_save save = save_of(&held, step);
    int rc = stk_ckpt_save(ckpt, &save, err);
    if (rc == 0)
        rc = stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, err);
    if (rc != expected)
        fail_msg("rank %u, step %u: %d, %s", rank->rank, (unsigned)step, rc,
                 rc < 0 ? err->message : "it was saved");
    let_go(&held);
}

void
run(struct scene *scene, const char *comm, uint32_t world, void (*work)(struct rank *rank))
{
    struct job job = {.method = "sync",
                      .comm = comm,
                      .world = world,
                      .timeout_ms = 2000,
                      .work = work,
                      .context = scene,
                      .per_node = scene->opts.writers == STK_WRITERS_NODE ? 2 : scene->per_node};

    job_run(&job);
}

void
for_each_comm(void (*test)(struct scene *scene, const char *comm))
{
    for (const char *const *comm = comms(); *comm; comm++) {
        struct scene scene = {
            .opts = {STK_CKPT_OPTS_INIT, .slot_bytes = 65536, .slots = 3, .chunk_bytes = 4096}};

        scratch_make(scene.dir);
        test(&scene, *comm);
        scratch_remove(scene.dir);
    }
}

void
look(const struct scene *scene, uint64_t step, uint32_t world)
{
    stk_engine *engine = engine_open("sync", NULL);
    stk_view *view;
    stk_ckpt *ckpt;
    stk_error err;

    assert_int_equal(stk_ckpt_open(&ckpt, engine, scene->dir,
                                   &(stk_ckpt_opts){STK_CKPT_OPTS_INIT, .read_only = 1}, &err),
                     0);
    if (stk_view_open(&view, ckpt, step, &err) != 0)
        fail_msg("%s: %s", err.path, err.message);
    expect_step(view, step, world);
    stk_view_close(view);
    stk_ckpt_close(ckpt);
    stk_engine_close(engine);
}

uint32_t
count_steps(const struct scene *scene)
{
    stk_engine *engine = engine_open("sync", NULL);
    stk_ckpt *ckpt;
    uint32_t n;

    assert_int_equal(stk_ckpt_open(&ckpt, engine, scene->dir,
                                   &(stk_ckpt_opts){STK_CKPT_OPTS_INIT, .read_only = 1}, NULL),
                     0);
    assert_true(stk_ckpt_list(ckpt, NULL, 0, &n, NULL) >= 0);
    stk_ckpt_close(ckpt);
    stk_engine_close(engine);
    return n;
}
