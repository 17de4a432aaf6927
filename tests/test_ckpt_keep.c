/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What removal leaves: always the newest whole checkpoints, never fewer than asked for,
 * and whatever is not whole; and readers keep what they have open or mapped.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ckpt_util.h"

#define N_BYTES 50000

static unsigned char data[N_BYTES];

struct store {
    char path[256];
    char root[300];
    stk_engine *engine;
    stk_ckpt *ckpt;
};

static void
open_store(struct store *store, uint32_t keep)
{
    scratch_make(store->path);
    (void)snprintf(store->root, sizeof(store->root), "%s/root", store->path);
    assert_int_equal(stk_engine_open(&store->engine, NULL, NULL), 0);
    assert_int_equal(stk_ckpt_open(&store->ckpt, store->engine, store->path,
                                   &(stk_ckpt_opts){STK_CKPT_OPTS_INIT, .roots = store->root,
                                                    .slot_bytes = 65536, .keep = keep},
                                   NULL),
                     0);
}

static void
close_store(struct store *store)
{
    stk_ckpt_close(store->ckpt);
    stk_engine_close(store->engine);
    scratch_remove(store->path);
}

static void
save(struct store *store, uint64_t step)
{
    const uint64_t shape = N_BYTES;
    const stk_tensor tensor = {
        .name = "t", .dtype = "U8", .shape = &shape, .dims = 1, .data = data};

    memset(data, (int)step, sizeof(data));
    assert_int_equal(
        stk_ckpt_save(store->ckpt,
                      &(stk_save){STK_SAVE_INIT, .step = step, .tensors = &tensor, .n_tensors = 1},
                      NULL),
        0);
    assert_int_equal(stk_ckpt_wait(store->ckpt, STK_DURABLE_LOCAL, STK_FOREVER, NULL), 0);
}

/* The steps that are named, newest first, as text. */
static void
list(struct store *store, char text[128])
{
    stk_ckpt_info infos[16];
    uint32_t total;
    size_t used = 0;
    int n = stk_ckpt_list(store->ckpt, infos, 16, &total, NULL);

    assert_in_range(n, 0, 16);
    text[0] = '\0';
    for (int at = 0; at < n; at++)
        used += (size_t)snprintf(text + used, 128 - used, "%u%s ", (unsigned)infos[at].step,
                                 infos[at].state < 0 ? "!" : "");
}

static void
expect(struct store *store, const char *wanted)
{
    char text[128];

    list(store, text);
    assert_string_equal(text, wanted);
}

static void
spoil_manifest(struct store *store, uint64_t step)
{
    char path[400];

    (void)snprintf(path, sizeof(path), "%s/step-%u/manifest.json", store->path, (unsigned)step);
    assert_int_equal(truncate(path, 100), 0);
}

/* The path of a step's part. */
static void
find_part(const struct store *store, uint64_t step, char path[700])
{
    DIR *dir = opendir(store->root);
    char prefix[32];
    const struct dirent *entry;

    (void)snprintf(prefix, sizeof(prefix), "step-%u.", (unsigned)step);
    assert_non_null(dir);
    path[0] = '\0';
    while ((entry = readdir(dir)) != NULL)
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
            (void)snprintf(path, 700, "%s/%s/model.safetensors", store->root, entry->d_name);
    (void)closedir(dir);
    assert_true(path[0] != '\0');
}

/* The newest ones are damaged, each in its way: they do not count, they stay, and the one
 * good one stays, too. */
static void
test_last_whole_one_stays(void **unused)
{
    struct store store;
    uint32_t n_removed;
    char part[700];
    (void)unused;

    open_store(&store, STK_NONE);
    for (uint64_t step = 1; step <= 6; step++)
        save(&store, step);
    spoil_manifest(&store, 6);
    find_part(&store, 5, part);
    assert_int_equal(truncate(part, 1000), 0);
    find_part(&store, 4, part);
    assert_int_equal(unlink(part), 0);
    expect(&store, "6! 5! 4! 3 2 1 ");
    assert_int_equal(stk_ckpt_prune(store.ckpt, 2, 0, &n_removed, NULL), 0);
    assert_int_equal(n_removed, 1);
    expect(&store, "6! 5! 4! 3 2 ");
    assert_int_equal(stk_ckpt_prune(store.ckpt, 1, 0, &n_removed, NULL), 0);
    assert_int_equal(n_removed, 1);
    expect(&store, "6! 5! 4! 3 ");
    assert_int_equal(stk_ckpt_prune(store.ckpt, 1, STK_PRUNE_ORPHANS, &n_removed, NULL), 0);
    expect(&store, "6! 5! 4! 3 ");
    spoil_manifest(&store, 3); /* now none is whole, and nothing is removed */
    assert_int_equal(stk_ckpt_prune(store.ckpt, 1, 0, &n_removed, NULL), 0);
    assert_int_equal(n_removed, 0);
    expect(&store, "6! 5! 4! 3! ");
    assert_int_equal(stk_ckpt_prune(store.ckpt, 0, 0, NULL, NULL), -EINVAL);
    close_store(&store);
}

/* The same after saves: what is kept is counted in whole ones, the new one first, also
 * where it is not the greatest. */
static void
test_kept_after_saves(void **unused)
{
    struct store store;
    (void)unused;

    open_store(&store, 2);
    for (uint64_t step = 10; step <= 12; step++)
        save(&store, step);
    spoil_manifest(&store, 12);
    save(&store, 13);
    stk_ckpt_prune(store.ckpt, 9, 0, NULL, NULL); /* waits for the removal */
    expect(&store, "13 12! 11 ");
    save(&store, 5); /* going on from an older state */
    stk_ckpt_prune(store.ckpt, 9, 0, NULL, NULL);
    expect(&store, "13 12! 5 ");
    save(&store, 6);
    stk_ckpt_prune(store.ckpt, 9, 0, NULL, NULL);
    expect(&store, "13 12! 6 ");
    close_store(&store);
}

/* Whoever has a checkpoint open or mapped keeps it, whatever is saved and removed. */
static void
test_readers_keep_theirs(void **unused)
{
    struct store store;
    static unsigned char got[N_BYTES];
    stk_view *view;
    char part[700];
    (void)unused;

    open_store(&store, 1);
    save(&store, 1);
    find_part(&store, 1, part);
    int fd = open(part, O_RDONLY | O_CLOEXEC);
    struct stat found;
    assert_true(fd >= 0 && fstat(fd, &found) == 0);
    const unsigned char *map = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(stk_view_open(&view, store.ckpt, 1, NULL), 0);
    for (uint64_t step = 2; step <= 5; step++)
        save(&store, step);
    stk_ckpt_prune(store.ckpt, 1, 0, NULL, NULL);
    expect(&store, "5 ");
    assert_int_equal(access(part, F_OK), -1);
    stk_load load = {.name = "t", .dst = got, .n_bytes = N_BYTES};
    assert_int_equal(stk_view_load(view, &load, 1, NULL), 0);
    for (size_t at = 0; at < N_BYTES; at++) {
        assert_int_equal(got[at], 1);
        assert_int_equal(map[(size_t)found.st_size - N_BYTES + at], 1);
    }
    stk_view_close(view);
    assert_int_equal(munmap((void *)(uintptr_t)map, (size_t)found.st_size), 0);
    assert_int_equal(close(fd), 0);
    close_store(&store);
}

/* Single parts: each state, what is wrong told, and nothing beyond the room that there is. */
static void
test_parts_one_by_one(void **unused)
{
    struct store store;
    stk_ckpt_part parts[2] = {{0}};
    char part[700];
    char coming[720];
    uint32_t total = 0;
    stk_error err;
    (void)unused;

    open_store(&store, STK_NONE);
    save(&store, 1);
    find_part(&store, 1, part);
    (void)snprintf(coming, sizeof(coming), "%s.pull", part);
    const uint32_t flags[] = {0, STK_PARTS_VERIFY};
    for (int at = 0; at < 2; at++) {
        assert_int_equal(stk_ckpt_parts(store.ckpt, 1, flags[at], parts, 2, &total, &err), 1);
        assert_int_equal(total, 1);
        assert_int_equal(parts[0].state, 0);
        assert_true(parts[0].bytes > N_BYTES);
        assert_int_equal(parts[0].flags, 0);
    }
    int fd = open(part, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "x", 1, (off_t)parts[0].bytes - 1), 1);
    assert_int_equal(stk_ckpt_parts(store.ckpt, 1, 0, parts, 2, &total, &err), 1);
    assert_int_equal(parts[0].state, 0); /* of the size that it should have */
    assert_int_equal(stk_ckpt_parts(store.ckpt, 1, STK_PARTS_VERIFY, parts, 2, &total, &err), 1);
    assert_int_equal(parts[0].state, STK_E_CORRUPT);
    assert_string_equal(err.path, part);
    assert_int_equal(ftruncate(fd, 10), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(stk_ckpt_parts(store.ckpt, 1, 0, parts, 2, &total, &err), 1);
    assert_int_equal(parts[0].state, STK_E_CORRUPT);
    assert_non_null(strstr(err.message, "has 10 bytes"));
    assert_int_equal(rename(part, coming), 0);
    assert_int_equal(stk_ckpt_parts(store.ckpt, 1, STK_PARTS_VERIFY, parts, 2, &total, &err), 1);
    assert_int_equal(parts[0].state, -ENOENT);
    assert_int_equal(parts[0].flags, STK_PART_COMING);
    assert_int_equal(stk_ckpt_prune(store.ckpt, 9, 0, NULL, NULL), 0);
    assert_int_equal(access(coming, F_OK), 0);
    assert_int_equal(stk_ckpt_prune(store.ckpt, 9, STK_PRUNE_ORPHANS, NULL, NULL), 0);
    assert_int_equal(access(coming, F_OK), -1);
    assert_int_equal(mkfifo(part, 0600), 0); /* nobody waits for its writer */
    assert_int_equal(stk_ckpt_parts(store.ckpt, 1, STK_PARTS_VERIFY, parts, 2, &total, &err), 1);
    assert_int_equal(parts[0].state, -EINVAL);
    assert_int_equal(stk_ckpt_parts(store.ckpt, 1, 0, NULL, 0, &total, NULL), 0);
    assert_int_equal(total, 1);
    assert_int_equal(stk_ckpt_parts(store.ckpt, 2, 0, parts, 2, &total, &err), -ENOENT);
    assert_int_equal(stk_ckpt_parts(store.ckpt, 1, 2, parts, 2, &total, &err), -EINVAL);
    assert_int_equal(stk_ckpt_parts(store.ckpt, 1, 0, NULL, 2, &total, &err), -EINVAL);
    spoil_manifest(&store, 1);
    assert_int_equal(stk_ckpt_parts(store.ckpt, 1, 0, parts, 2, &total, &err), STK_E_CORRUPT);
    close_store(&store);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_whole_one_stays),
        cmocka_unit_test(test_kept_after_saves),
        cmocka_unit_test(test_readers_keep_theirs),
        cmocka_unit_test(test_parts_one_by_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
