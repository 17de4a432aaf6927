/* SPDX-License-Identifier: Apache-2.0 */
/* Samples that cannot be had: files that vanished, shrank, grew or became unreadable, and
 * bytes that cannot be decoded; by fail and by replace. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader_util.h"

#define N 60

struct fixture {
    struct set set;
    stk_engine *engine;
    stk_dataset *dataset;
};

static void
open_fixture(struct fixture *fixture, const char *method, enum set_kind kind, const char *tiers)
{
    set_make(&fixture->set, kind, N);
    fixture->engine = engine_open(method, tiers);
    fixture->dataset = dataset_open(fixture->engine, &fixture->set);
}

static void
close_fixture(struct fixture *fixture)
{
    stk_dataset_close(fixture->dataset);
    stk_engine_close(fixture->engine);
    set_remove(&fixture->set);
}

static void
resize(const struct set *set, uint64_t sample, int64_t change)
{
    assert_int_equal(truncate(set_file(set, sample), (off_t)set->lengths[sample] + change), 0);
}

/* Spoils four samples after they were indexed, one in each way. */
static const uint64_t spoiled[] = {7, 8, 9, 30};

static void
spoil(const struct set *set)
{
    assert_int_equal(unlink(set_file(set, 7)), 0);
    resize(set, 8, -1);
    resize(set, 9, 1);
    assert_int_equal(unlink(set_file(set, 30)), 0);
    assert_int_equal(mkdir(set_file(set, 30), 0777), 0);
}

static bool
is_spoiled(uint64_t sample)
{
    for (size_t at = 0; at < 4; at++)
        if (spoiled[at] == sample)
            return true;
    return false;
}

/* ---- fail -------------------------------------------------------------------------- */

static const char *
words_for(uint64_t sample)
{
    switch (sample) {
    case 7:
        return "No such file";
    case 8:
        return "shorter than when it was indexed";
    case 9:
        return "longer than when it was indexed";
    default:
        return "irectory";
    }
}

/* Every batch with a bad sample fails once, and the stream goes on behind it, epoch by
 * epoch. */
static void
batches_fail_one_by_one(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (uint32_t round = 0; round < 6; round++) {
            struct fixture fixture;
            const stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL};
            stk_loader_opts opts = {STK_LOADER_OPTS_INIT,
                                    .batch_size = 1 + round % 3,
                                    .epochs = 3,
                                    .retries = round % 2 ? STK_NONE : 3,
                                    .layout = round % 3 ? STK_LAYOUT_RAW : STK_LAYOUT_DEFAULT,
                                    .order = &order};
            stk_batch batch;
            stk_error err;

            open_fixture(&fixture, *method, round < 3 ? SET_FILES : SET_BIG, "ram:8M");
            spoil(&fixture.set);
            stk_loader *loader = loader_open(fixture.engine, fixture.dataset, &opts);
            uint64_t batches = (N + opts.batch_size - 1) / opts.batch_size;
            for (uint64_t step = 0; step < 3 * batches; step++) {
                uint64_t first = step % batches * opts.batch_size, bad = UINT64_MAX;

                for (uint64_t at = first; at < first + opts.batch_size; at++)
                    if (bad == UINT64_MAX && is_spoiled(at))
                        bad = at;
                int rc = stk_loader_next(loader, &batch);
                if (bad == UINT64_MAX) {
                    assert_int_equal(rc, STK_BATCH);
                    assert_int_equal(batch.step, step);
                    check_bytes(&fixture.set, &batch);
                    assert_int_equal(stk_loader_release(loader, &batch), 0);
                    continue;
                }
                assert_int_equal(rc, STK_E_SAMPLE);
                assert_int_equal(stk_loader_last_error(loader, &err), 0);
                assert_int_equal(err.code, STK_E_SAMPLE);
                assert_true(is_spoiled(err.sample) &&
                            err.sample / opts.batch_size * opts.batch_size == first);
                assert_string_equal(err.path, set_file(&fixture.set, err.sample));
                assert_non_null(strstr(err.message, words_for(err.sample)));
            }
            assert_int_equal(stk_loader_next(loader, &batch), STK_END);
            stk_loader_close(loader);
            close_fixture(&fixture);
        }
}

/* A file that is there again is read again. */
static void
the_next_epoch_tries_again(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        struct fixture fixture;
        const stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL};
        const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = N, .epochs = 20,
                                      .staging_batches = 2, .order = &order};
        stk_batch batch;
        stk_error err;

        open_fixture(&fixture, *method, SET_FILES, NULL);
        resize(&fixture.set, 4, 5);
        stk_loader *loader = loader_open(fixture.engine, fixture.dataset, &opts);
        assert_int_equal(stk_loader_last_error(loader, &err), -ENOENT);
        assert_int_equal(stk_loader_next(loader, &batch), STK_E_SAMPLE);
        resize(&fixture.set, 4, 0);
        int rc = STK_E_SAMPLE;
        for (int tries = 0; rc == STK_E_SAMPLE && tries < 5; tries++)
            rc = stk_loader_next(loader, &batch);
        assert_int_equal(rc, STK_BATCH);
        check_bytes(&fixture.set, &batch);
        stk_loader_close(loader);
        close_fixture(&fixture);
    }
}

/* One bad block spoils one sample, not those that were read with it: a file that was cut
 * off while it was held open. Of a list nothing is read before it is pushed. */
static void
a_shortened_file_loses_its_end_only(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (int kind = SET_RECORDS; kind <= SET_ROWS; kind++) {
            struct fixture fixture;
            const stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_LIST};
            const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 1,
                                          .layout = STK_LAYOUT_RAW, .order = &order};
            uint64_t ids[N];
            stk_batch batch;

            open_fixture(&fixture, *method, (enum set_kind)kind, "ram:8M");
            stk_loader *loader = loader_open(fixture.engine, fixture.dataset, &opts);
            assert_int_equal(
                truncate(fixture.set.data_path, (off_t)fixture.set.offsets[N - 3] + 20), 0);
            for (uint64_t at = 0; at < N; at++)
                ids[at] = at;
            assert_int_equal(stk_loader_push(loader, ids, N, 1, 0), 0);
            assert_int_equal(stk_loader_push(loader, ids, N, 1, 1), 0);
            for (uint64_t at = 0; at < 2 * N; at++) {
                int rc = stk_loader_next(loader, &batch);

                assert_int_equal(rc, at % N < N - 3 ? STK_BATCH : STK_E_SAMPLE);
                if (rc == STK_BATCH) {
                    check_bytes(&fixture.set, &batch);
                    assert_int_equal(stk_loader_release(loader, &batch), 0);
                }
            }
            stk_loader_close(loader);
            close_fixture(&fixture);
        }
}

/* A pipe that lies where a file was indexed is a bad sample: nobody waits for its
 * writer. */
static void
a_pipe_is_a_bad_sample(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (int kind = SET_FILES; kind <= SET_BIG; kind += SET_BIG - SET_FILES) {
            struct fixture fixture;
            const stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL};
            const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 1, .epochs = 1,
                                          .layout = STK_LAYOUT_RAW, .order = &order};
            stk_batch batch;

            open_fixture(&fixture, *method, (enum set_kind)kind, NULL);
            for (uint64_t sample = 0; sample < 3; sample += 2) {
                assert_int_equal(unlink(set_file(&fixture.set, sample)), 0);
                assert_int_equal(mkfifo(set_file(&fixture.set, sample), 0600), 0);
            }
            stk_loader *loader = loader_open(fixture.engine, fixture.dataset, &opts);
            for (uint64_t sample = 0; sample < N; sample++) {
                int rc = stk_loader_next(loader, &batch);

                assert_int_equal(rc, sample == 0 || sample == 2 ? STK_E_SAMPLE : STK_BATCH);
                if (rc == STK_BATCH)
                    assert_int_equal(stk_loader_release(loader, &batch), 0);
            }
            stk_loader_close(loader);
            close_fixture(&fixture);
        }
}

/* ---- replace ----------------------------------------------------------------------- */

/* Sequential order, samples 7, 8, 9 and 30 bad: 10, 10, 10 and 31 stand in. */
static uint64_t
substitute_of(uint64_t sample)
{
    while (is_spoiled(sample))
        sample++;
    return sample;
}

static void
read_replaced(stk_loader *loader, const struct set *set, const uint64_t *ids, uint64_t epochs)
{
    uint64_t n_read = 0;
    stk_batch batch;
    int rc;

    while ((rc = stk_loader_next(loader, &batch)) == STK_BATCH) {
        for (uint32_t item = 0; item < batch.count; item++, n_read++)
            assert_int_equal(batch.samples[item], substitute_of(ids[n_read % N]));
        check_bytes(set, &batch);
        assert_int_equal(stk_loader_release(loader, &batch), 0);
    }
    assert_int_equal(rc, STK_END);
    assert_int_equal(n_read, epochs * N);
}

static int
reason_of(uint64_t sample)
{
    switch (sample) {
    case 7:
        return -ENOENT;
    case 8:
        return -ENODATA;
    case 9:
        return -EFBIG;
    default:
        return -EISDIR;
    }
}

static void
check_ledger(stk_loader *loader, uint64_t epochs)
{
    static stk_replacement ledger[500];
    uint64_t total;
    int n = stk_loader_replacements(loader, ledger, 500, &total);
    uint64_t per_epoch[10] = {0};

    assert_int_equal(n, total);
    for (int at = 0; at < n; at++) {
        assert_true(is_spoiled(ledger[at].sample));
        assert_int_equal(ledger[at].replacement, substitute_of(ledger[at].sample));
        assert_int_equal(ledger[at].reason, reason_of(ledger[at].sample));
        per_epoch[ledger[at].epoch]++;
    }
    /* Once for each item, however many neighbours were tried. */
    for (uint64_t epoch = 0; epoch < epochs; epoch++)
        assert_int_equal(per_epoch[epoch], 4);
    assert_int_equal(loader_stats(loader, UINT64_MAX).replaced, total);
    assert_int_equal(stk_loader_replacements(loader, NULL, 0, &total), 0);
}

/* With the least staging there may be, and with all there is; in any order. */
static void
substitutes_are_the_same_everywhere(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (uint32_t round = 0; round < 12; round++) {
            struct fixture fixture;
            const stk_order_opts order = {
                STK_ORDER_OPTS_INIT, .kind = round % 2 ? STK_ORDER_SEQUENTIAL : STK_ORDER_KEYED};
            stk_loader_opts opts = {STK_LOADER_OPTS_INIT,
                                    .batch_size = 4,
                                    .epochs = 3,
                                    .layout = STK_LAYOUT_RAW,
                                    .bad_sample = STK_BAD_REPLACE,
                                    .policy = 1 + round % 4,
                                    .order = &order};
            uint64_t n;

            open_fixture(&fixture, *method, round < 6 ? SET_FILES : SET_SIZES, "ram:100K");
            if (round < 6)
                opts.staging_bytes = 8 * 3000;
            spoil(&fixture.set);
            stk_loader *loader = loader_open(fixture.engine, fixture.dataset, &opts);
            for (uint64_t epoch = 0; epoch < 3 && round % 2 == 0; epoch++) {
                stk_batch batch;
                uint64_t *ids = expected_ids(&fixture.set, &order, epoch, &n);

                for (uint64_t at = 0; at < N;) {
                    assert_int_equal(stk_loader_next(loader, &batch), STK_BATCH);
                    for (uint32_t item = 0; item < batch.count; item++, at++)
                        assert_int_equal(batch.samples[item], substitute_of(ids[at]));
                    check_bytes(&fixture.set, &batch);
                    assert_int_equal(stk_loader_release(loader, &batch), 0);
                }
                free(ids);
            }
            if (round % 2) {
                uint64_t *ids = expected_ids(&fixture.set, &order, 0, &n);
                read_replaced(loader, &fixture.set, ids, 3);
                free(ids);
            }
            check_ledger(loader, 3);
            stk_loader_stats stats = loader_stats(loader, UINT64_MAX);
            assert_int_equal(stats.samples, 3 * N);
            assert_int_equal(stats.tier_samples[STK_TIER_RAM] + stats.tier_samples[STK_TIER_ORIGIN],
                             3 * N);
            stk_loader_close(loader);
            close_fixture(&fixture);
        }
}

/* A substitute that is larger than all of the staging was made for. */
static void
a_large_substitute_fits(void **state)
{
    enum { SMALL = 12 };
    static const char bytes[20000] = "x";

    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        struct fixture fixture;
        const stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL};
        const stk_loader_opts opts = {STK_LOADER_OPTS_INIT,
                                      .batch_size = 4,
                                      .epochs = 3,
                                      .staging_bytes = 2 * (20000 + 3 * 10),
                                      .bad_sample = STK_BAD_REPLACE,
                                      .order = &order};
        stk_batch batch;
        uint64_t n_read = 0;

        set_make(&fixture.set, SET_FILES, SMALL);
        for (uint64_t sample = 0; sample < SMALL; sample++)
            write_file(set_file(&fixture.set, sample), bytes, sample == 4 ? 20000 : 10);
        fixture.engine = engine_open(*method, NULL);
        fixture.dataset = dataset_open(fixture.engine, &fixture.set);
        for (uint64_t sample = 0; sample < 4; sample++)
            assert_int_equal(unlink(set_file(&fixture.set, sample)), 0);
        stk_loader *loader = loader_open(fixture.engine, fixture.dataset, &opts);
        while (stk_loader_next(loader, &batch) == STK_BATCH) {
            n_read += batch.count;
            if (batch.epoch_step == 0)
                assert_int_equal(batch.n_bytes[3], 20000);
            assert_int_equal(stk_loader_release(loader, &batch), 0);
        }
        assert_int_equal(n_read, 3 * SMALL);
        stk_loader_close(loader);
        close_fixture(&fixture);
    }
}

/* Nothing is good: an error for every batch, no search without end. */
static void
a_set_without_a_good_sample_fails(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        struct fixture fixture;
        const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 7, .epochs = 2,
                                      .bad_sample = STK_BAD_REPLACE};
        stk_batch batch;

        open_fixture(&fixture, *method, SET_FILES, "ram:1M");
        for (uint64_t sample = 0; sample < N; sample++)
            assert_int_equal(unlink(set_file(&fixture.set, sample)), 0);
        stk_loader *loader = loader_open(fixture.engine, fixture.dataset, &opts);
        for (uint64_t step = 0; step < 2 * ((N + 6) / 7); step++)
            assert_int_equal(stk_loader_next(loader, &batch), STK_E_SAMPLE);
        assert_int_equal(stk_loader_next(loader, &batch), STK_END);
        stk_loader_close(loader);
        close_fixture(&fixture);
    }
}

/* ---- decoding ---------------------------------------------------------------------- */

static int
decode_some(void *context, const stk_decode_args *args)
{
    const uint64_t *first_good = context;

    memcpy(args->slot, &args->sample, sizeof(args->sample));
    return args->sample % 16 < *first_good ? -77 : 0;
}

static uint64_t
decoded_instead(uint64_t sample, uint64_t first_good)
{
    while (sample % 16 < first_good)
        sample = (sample + 1) % N;
    return sample;
}

static void
undecodable_samples_are_replaced(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (uint64_t first_good = 1; first_good < 16; first_good += 7) {
            struct fixture fixture;
            const stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL};
            const stk_loader_opts opts = {STK_LOADER_OPTS_INIT,  .batch_size = N / 2,
                                          .epochs = 4,           .bad_sample = STK_BAD_REPLACE,
                                          .decode = decode_some, .decode_context = &first_good,
                                          .item_bytes = 8,       .order = &order};
            stk_batch batch;
            uint64_t n_read = 0;

            open_fixture(&fixture, *method, SET_FILES, "ram:100K");
            stk_loader *loader = loader_open(fixture.engine, fixture.dataset, &opts);
            while (stk_loader_next(loader, &batch) == STK_BATCH) {
                for (uint32_t item = 0; item < batch.count; item++, n_read++) {
                    assert_int_equal(batch.samples[item], decoded_instead(n_read % N, first_good));
                    assert_memory_equal(batch.items[item], &batch.samples[item], 8);
                }
                assert_int_equal(stk_loader_release(loader, &batch), 0);
            }
            assert_int_equal(n_read, 4 * N);
            stk_loader_close(loader);
            close_fixture(&fixture);
        }
}

static void
undecodable_samples_fail_their_batch(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        struct fixture fixture;
        uint64_t first_good = 1; /* 0, 16, 32 and 48 are bad */
        const stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL};
        const stk_loader_opts opts = {
            STK_LOADER_OPTS_INIT,          .batch_size = 8, .epochs = 2,    .decode = decode_some,
            .decode_context = &first_good, .item_bytes = 8, .order = &order};
        stk_batch batch;
        stk_error err;

        open_fixture(&fixture, *method, SET_FILES, "ram:100K");
        stk_loader *loader = loader_open(fixture.engine, fixture.dataset, &opts);
        for (uint64_t step = 0; step < 16; step++) {
            int rc = stk_loader_next(loader, &batch);

            assert_int_equal(rc, step % 2 ? STK_BATCH : STK_E_SAMPLE);
            if (rc == STK_BATCH) {
                assert_int_equal(stk_loader_release(loader, &batch), 0);
                continue;
            }
            assert_int_equal(stk_loader_last_error(loader, &err), 0);
            assert_int_equal(err.sample, step % 8 * 8);
            assert_non_null(strstr(err.message, "cannot be decoded (code -77)"));
        }
        assert_int_equal(stk_loader_next(loader, &batch), STK_END);
        stk_loader_close(loader);
        close_fixture(&fixture);
    }
}

/* ---- unreadable -------------------------------------------------------------------- */

/* As nobody, to whom one file, and then the directory, says no. Exit status 0: as it
 * should. */
static int
read_as_nobody(const char *data_path, const char *method)
{
    const stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT, .io_method = method, .workers = 1};
    const stk_dataset_opts set_opts = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_FOLDER};
    const stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL};
    const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 1, .epochs = 1,
                                  .order = &order};
    char secret[200];
    stk_engine *engine;
    stk_dataset *dataset;
    stk_loader *loader;
    stk_batch batch;
    stk_error err;

    if (setgid(65534) < 0 || setuid(65534) < 0)
        return 2;
    if (stk_engine_open(&engine, &engine_opts, &err) != 0)
        return 3;
    if (stk_dataset_open(&dataset, engine, data_path, &set_opts, &err) != 0)
        return 4;
    if (stk_loader_open(&loader, engine, dataset, &opts, &err) != 0)
        return 5;
    if (stk_loader_next(loader, &batch) != STK_E_SAMPLE ||
        stk_loader_last_error(loader, &err) != 0 || !strstr(err.message, "Permission denied"))
        return 6;
    if (stk_loader_next(loader, &batch) != STK_BATCH)
        return 7;
    stk_loader_close(loader);
    stk_dataset_close(dataset);
    (void)snprintf(secret, sizeof(secret), "%s/../secret", data_path);
    if (stk_dataset_open(&dataset, engine, secret, &set_opts, &err) != -EACCES || !err.path[0])
        return 8;
    stk_engine_close(engine);
    return 0;
}

static void
what_may_not_be_read_is_said(void **state)
{
    (void)state;
    if (geteuid() != 0)
        return; /* nobody can only be played by root */
    for (const char *const *method = methods(); *method; method++) {
        struct set set;
        char secret[200];
        int status;

        set_make(&set, SET_FILES, 5);
        (void)snprintf(secret, sizeof(secret), "%s/secret", set.path);
        assert_int_equal(chmod(set.path, 0777), 0);
        assert_int_equal(chmod(set_file(&set, 0), 0600), 0);
        assert_int_equal(mkdir(secret, 0700), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            (void)execl("/proc/self/exe", "test", "child", set.data_path, *method, (char *)NULL);
            _exit(1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        set_remove(&set);
    }
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_fail_one_by_one),
        cmocka_unit_test(the_next_epoch_tries_again),
        cmocka_unit_test(a_shortened_file_loses_its_end_only),
        cmocka_unit_test(a_pipe_is_a_bad_sample),
        cmocka_unit_test(substitutes_are_the_same_everywhere),
        cmocka_unit_test(a_large_substitute_fits),
        cmocka_unit_test(a_set_without_a_good_sample_fails),
        cmocka_unit_test(undecodable_samples_are_replaced),
        cmocka_unit_test(undecodable_samples_fail_their_batch),
        cmocka_unit_test(what_may_not_be_read_is_said),
    };

    if (argc == 4 && strcmp(argv[1], "child") == 0)
        return read_as_nobody(argv[2], argv[3]);
    return cmocka_run_group_tests(tests, watchdog, NULL);
}
