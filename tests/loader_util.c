/* SPDX-License-Identifier: Apache-2.0 */
#include "loader_util.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define RECORD_BYTES 100u
#define RECORD_HEADER 13u
#define ROW_BYTES 40001u
#define ROW_HEADER 7u
#define TOKEN_BYTES 2u
#define WINDOW_TOKENS 65u
#define STRIDE_TOKENS 17u
#define WATCHDOG_S 240u

uint64_t
draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

int
watchdog(void **state)
{
    (void)state;
    (void)alarm(WATCHDOG_S);
    return 0;
}

/* ---- data sets --------------------------------------------------------------------- */

void
write_file(const char *path, const void *bytes, uint64_t n_bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n_bytes), n_bytes);
    assert_int_equal(close(fd), 0);
}

const char *
set_file(const struct set *set, uint64_t sample)
{
    static char path[160];

    (void)snprintf(path, sizeof(path), "%s/%06u", set->data_path, (unsigned)sample);
    return path;
}

static uint64_t
length_of(enum set_kind kind, uint64_t sample, uint64_t *state)
{
    uint64_t drawn = draw(state);

    switch (kind) {
    case SET_FILES:
        return 3000;
    case SET_SIZES:
        return sample % 17 == 3 ? 0 : sample % 13 == 5 ? 33000 + drawn % 60000 : 1 + drawn % 9000;
    case SET_BIG:
        return 32768 + drawn % 50000;
    case SET_RECORDS:
        return RECORD_BYTES;
    case SET_ROWS:
        return ROW_BYTES;
    case SET_WINDOWS:
        return (uint64_t)WINDOW_TOKENS * TOKEN_BYTES;
    case SET_KINDS:
        break;
    }
    return 0;
}

static void
describe(struct set *set)
{
    set->opts = (stk_dataset_opts){STK_DATASET_OPTS_INIT, .format = STK_FORMAT_FOLDER};
    switch (set->kind) {
    case SET_RECORDS:
        set->opts.format = STK_FORMAT_RECORD;
        set->opts.header_bytes = RECORD_HEADER;
        set->opts.record_bytes = RECORD_BYTES;
        break;
    case SET_ROWS:
        set->opts.format = STK_FORMAT_RECORD;
        set->opts.header_bytes = ROW_HEADER;
        set->opts.record_bytes = ROW_BYTES;
        break;
    case SET_WINDOWS:
        set->opts.format = STK_FORMAT_WINDOW;
        set->opts.token_bytes = TOKEN_BYTES;
        set->opts.window_tokens = WINDOW_TOKENS;
        set->opts.stride_tokens = STRIDE_TOKENS;
        break;
    case SET_FILES:
    case SET_SIZES:
    case SET_BIG:
    case SET_KINDS:
        break;
    }
}

/* Places the samples one behind the other, or overlapping, behind the header; returns the
 * length of it all. */
static uint64_t
lay_out(struct set *set)
{
    uint64_t state = 12345;
    uint64_t end = set->opts.header_bytes;

    for (uint64_t sample = 0; sample < set->n; sample++) {
        set->lengths[sample] = length_of(set->kind, sample, &state);
        set->bytes += set->lengths[sample];
        set->offsets[sample] =
            set->kind == SET_WINDOWS ? sample * STRIDE_TOKENS * TOKEN_BYTES : end;
        end = set->offsets[sample] + set->lengths[sample];
    }
    return end;
}

void
set_make(struct set *set, enum set_kind kind, uint64_t n)
{
    uint64_t state = 777;
    bool is_files = kind == SET_FILES || kind == SET_SIZES || kind == SET_BIG;

    *set = (struct set){.kind = kind, .n = n};
    (void)snprintf(set->path, sizeof(set->path), "/tmp/stoker-loader-XXXXXX");
    assert_non_null(mkdtemp(set->path));
    (void)snprintf(set->data_path, sizeof(set->data_path), "%s/data", set->path);
    set->offsets = calloc(n, sizeof(uint64_t));
    set->lengths = calloc(n, sizeof(uint64_t));
    assert_true(set->offsets && set->lengths);
    describe(set);
    uint64_t n_bytes = lay_out(set);
    set->contents = malloc(n_bytes + 1);
    assert_non_null(set->contents);
    for (uint64_t at = 0; at < n_bytes; at++)
        set->contents[at] = (unsigned char)draw(&state);
    if (!is_files) {
        write_file(set->data_path, set->contents, n_bytes);
        return;
    }
    assert_int_equal(mkdir(set->data_path, 0777), 0);
    for (uint64_t sample = 0; sample < n; sample++)
        write_file(set_file(set, sample), set->contents + set->offsets[sample],
                   set->lengths[sample]);
}

static int
remove_one(const char *path, const struct stat *found, int type, struct FTW *walk)
{
    (void)found;
    (void)type;
    (void)walk;
    return remove(path);
}

void
set_remove(struct set *set)
{
    assert_int_equal(nftw(set->path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    free(set->contents);
    free(set->offsets);
    free(set->lengths);
}

/* ---- opening ----------------------------------------------------------------------- */

static bool
has_method(const char *name)
{
    stk_engine_opts opts = {STK_ENGINE_OPTS_INIT, .io_method = name, .workers = 1};
    stk_engine *engine;

    if (stk_engine_open(&engine, &opts, NULL) < 0)
        return false;
    stk_engine_close(engine);
    return true;
}

const char *const *
methods(void)
{
    static const char *const known[] = {"uring", "sync"};
    static const char *found[3];
    const char *wanted = getenv("STOKER_TEST_METHODS");
    size_t n = 0;

    for (size_t at = 0; at < 2; at++)
        if ((!wanted || strstr(wanted, known[at])) && has_method(known[at]))
            found[n++] = known[at];
    found[n] = NULL;
    assert_true(n > 0);
    return found;
}

stk_engine *
engine_open_by(const stk_engine_opts *opts)
{
    stk_engine *engine = NULL;
    stk_error err = {.message = ""};
    int rc = stk_engine_open(&engine, opts, &err);

    if (rc != 0)
        print_error("engine: %s (%d)\n", err.message, rc);
    assert_int_equal(rc, 0);
    return engine;
}

stk_engine *
engine_open(const char *method, const char *tiers)
{
    stk_engine_opts opts = {STK_ENGINE_OPTS_INIT, .io_method = method, .tiers = tiers,
                            .workers = 2,         .queue_depth = 16,   .io_threads = 4};

    return engine_open_by(&opts);
}

stk_dataset *
dataset_open(stk_engine *engine, const struct set *set)
{
    stk_dataset *dataset = NULL;
    stk_error err = {.message = ""};
    int rc = stk_dataset_open(&dataset, engine, set->data_path, &set->opts, &err);

    if (rc != 0)
        print_error("data set: %s: %s (%d)\n", err.path, err.message, rc);
    assert_int_equal(rc, 0);
    return dataset;
}

stk_loader *
loader_open(stk_engine *engine, stk_dataset *dataset, const stk_loader_opts *opts)
{
    stk_loader *loader = NULL;
    stk_error err = {.message = ""};
    int rc = stk_loader_open(&loader, engine, dataset, opts, &err);

    if (rc != 0)
        print_error("loader: %s: %s (%d)\n", err.path, err.message, rc);
    assert_int_equal(rc, 0);
    return loader;
}

void
loader_refused(stk_engine *engine, stk_dataset *dataset, const stk_loader_opts *opts, int code,
               const char *words)
{
    stk_loader *loader = NULL;
    stk_error err = {.message = ""};
    int rc = stk_loader_open(&loader, engine, dataset, opts, &err);

    if (rc != code || !strstr(err.message, words))
        print_error("\"%s\" (%d), expected \"%s\" (%d)\n", err.message, rc, words, code);
    assert_int_equal(rc, code);
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.message, words));
    assert_null(loader);
}

/* ---- reading ----------------------------------------------------------------------- */

uint64_t *
expected_ids(const struct set *set, const stk_order_opts *order, uint64_t epoch,
             uint64_t *ret_count)
{
    stk_order_opts opts = {STK_ORDER_OPTS_INIT};
    stk_order *made;
    uint64_t *ids;

    if (order)
        opts = *order;
    opts.n = set->n;
    assert_int_equal(stk_order_new(&made, &opts, NULL), 0);
    assert_int_equal(stk_order_length(made, ret_count), 0);
    ids = calloc(*ret_count + 1, sizeof(uint64_t));
    assert_non_null(ids);
    assert_int_equal(stk_order_ids(made, epoch, 0, *ret_count, ids), 0);
    stk_order_free(made);
    return ids;
}

void
check_bytes(const struct set *set, const stk_batch *batch)
{
    for (uint32_t item = 0; item < batch->count; item++) {
        uint64_t sample = batch->samples[item];

        assert_true(sample < set->n);
        assert_int_equal(batch->n_bytes[item], set->lengths[sample]);
        if (batch->data)
            assert_ptr_equal(batch->items[item], (char *)batch->data + item * batch->item_bytes);
        assert_int_equal(batch->labels[item], -1);
        if (set->lengths[sample] > 0)
            assert_memory_equal(batch->items[item], set->contents + set->offsets[sample],
                                set->lengths[sample]);
    }
}

static void
check_batch(const struct course *course, const stk_batch *batch, const uint64_t *ids, uint64_t n)
{
    uint32_t batch_size = course->opts->batch_size;
    uint64_t batches = (n + batch_size - 1) / batch_size;
    uint64_t first = batch->epoch_step * batch_size;
    uint64_t left = n - first;

    assert_int_equal(batch->count, left < batch_size ? left : batch_size);
    assert_int_equal(batch->last_of_epoch, batch->epoch_step + 1 == batches);
    assert_int_equal(batch->step, batch->epoch * batches + batch->epoch_step);
    assert_memory_equal(batch->samples, ids + first, batch->count * sizeof(uint64_t));
    check_bytes(course->set, batch);
}

uint64_t
follow(stk_loader *loader, const struct course *course)
{
    uint64_t n_read = 0;
    uint64_t step = course->epoch_step;
    stk_batch batch;

    for (uint64_t epoch = course->epoch; epoch < course->end_epoch; epoch++, step = 0) {
        uint64_t n;
        uint64_t *ids = expected_ids(course->set, course->opts->order, epoch, &n);

        if (course->opts->drop_last)
            n -= n % course->opts->batch_size;
        for (; step * course->opts->batch_size < n; step++) {
            if (course->most_batches > 0 && n_read == course->most_batches) {
                free(ids);
                return n_read;
            }
            assert_int_equal(stk_loader_next(loader, &batch), STK_BATCH);
            assert_int_equal(batch.epoch, epoch);
            assert_int_equal(batch.epoch_step, step);
            check_batch(course, &batch, ids, n);
            assert_int_equal(stk_loader_release(loader, &batch), 0);
            n_read++;
        }
        free(ids);
    }
    return n_read;
}

stk_loader_stats
loader_stats(stk_loader *loader, uint64_t epoch)
{
    stk_loader_stats stats = {STK_LOADER_STATS_INIT};

    assert_int_equal(stk_loader_get_stats(loader, epoch, &stats), 0);
    return stats;
}

stk_engine_stats
engine_stats(stk_engine *engine)
{
    stk_engine_stats stats = {STK_ENGINE_STATS_INIT};

    assert_int_equal(stk_engine_get_stats(engine, &stats), 0);
    return stats;
}
