/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views and fields as a program meets them: data sets put together, cut and mixed, read
 * through loaders and compared with the files they are made of. STOKER_TEST_METHODS
 * chooses the methods.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include <stoker/stoker.h>

#include "format_util.h"

#define FILES 30
#define RECORDS 40
#define RECORD_BYTES 64
#define MEMBERS 25

static struct scratch scratch;
static const char *method;
static stk_engine *engine;
static stk_dataset *folder, *records, *shard;

/* The bytes that the file, record or member of a number has: all begin with it. */
static size_t
fill(unsigned char *bytes, uint32_t kind, uint32_t number)
{
    size_t n = kind == 1 ? RECORD_BYTES : 8 + number * 997 % (kind == 0 ? 50000 : 3000);

    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(i * 7 + number + kind);
    memcpy(bytes, &kind, 4);
    memcpy(bytes + 4, &number, 4);
    return n;
}

/* Appends a member to an archive. Returns the archive's new length. */
static size_t
put_member(unsigned char *archive, size_t at, const char *name, const void *data, size_t n_bytes)
{
    unsigned char *header = archive + at;
    unsigned sum = 0;
    char digits[16];

    memset(header, 0, 512);
    memcpy(header, name, strlen(name));
    (void)snprintf(digits, sizeof(digits), "%011zo", n_bytes);
    memcpy(header + 124, digits, 12);
    header[156] = '0';
    memcpy(header + 257, "ustar\00000", 8);
    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += header[i];
    (void)snprintf(digits, sizeof(digits), "%06o", sum);
    memcpy(header + 148, digits, 7);
    memcpy(header + 512, data, n_bytes);
    size_t padded = (n_bytes + 511) / 512 * 512;
    memset(header + 512 + n_bytes, 0, padded - n_bytes);
    return at + 512 + padded;
}

static stk_dataset *
open_dataset(const char *path, const stk_dataset_opts *opts)
{
    stk_dataset *dataset = NULL;
    stk_error err = {.message = ""};
    int rc = stk_dataset_open(&dataset, engine, path, opts, &err);

    if (rc < 0)
        fail_msg("%s: %s", err.path, err.message);
    return dataset;
}

/* A folder, a file of records, and a shard with fields bin, txt (which odd ones lack),
 * cls. */
static int
set_up(void **state)
{
    static unsigned char bytes[64 << 10], archive[512 << 10];
    stk_engine_opts opts = {STK_ENGINE_OPTS_INIT, .tiers = "ram:64M", .io_method = method};
    stk_dataset_opts record_opts = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_RECORD,
                                    .record_bytes = RECORD_BYTES};
    size_t n = 0;

    (void)state;
    scratch_open(&scratch, "sync", 4);
    for (uint32_t i = 0; i < FILES; i++)
        put_file(scratch_path(&scratch, "f/%03u", i), bytes, fill(bytes, 0, i));
    for (uint32_t i = 0; i < RECORDS; i++)
        n += fill(archive + n, 1, i);
    put_file(scratch_path(&scratch, "r.bin"), archive, n);
    n = 0;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        char name[32], label[8];

        (void)snprintf(name, sizeof(name), "%03u.bin", i);
        n = put_member(archive, n, name, bytes, fill(bytes, 2, i));
        (void)snprintf(name, sizeof(name), "%03u.cls", i);
        n = put_member(archive, n, name, label,
                       (size_t)snprintf(label, sizeof(label), "%u", 1000 + i));
        (void)snprintf(name, sizeof(name), "%03u.txt", i);
        if (i % 2 == 0)
            n = put_member(archive, n, name, name, strlen(name));
    }
    memset(archive + n, 0, 1024);
    put_file(scratch_path(&scratch, "s.tar"), archive, n + 1024);
    assert_int_equal(stk_engine_open(&engine, &opts, NULL), 0);
    folder = open_dataset(scratch_path(&scratch, "f"), NULL);
    records = open_dataset(scratch_path(&scratch, "r.bin"), &record_opts);
    shard = open_dataset(scratch_path(&scratch, "s.tar"), NULL);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    stk_dataset_close(folder);
    stk_dataset_close(records);
    stk_dataset_close(shard);
    stk_engine_close(engine);
    scratch_close(&scratch);
    return 0;
}

/* Whether bytes are those of a kind and number. */
static void
check_bytes(const void *found, uint64_t n_bytes, uint32_t kind, uint32_t number)
{
    static unsigned char bytes[64 << 10];
    size_t n = fill(bytes, kind, number);

    assert_int_equal(n_bytes, n);
    assert_memory_equal(found, bytes, n);
}

static stk_loader *
open_loader(stk_dataset *dataset, const stk_order_opts *order, uint64_t epochs)
{
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 8, .epochs = epochs,
                            .layout = STK_LAYOUT_RAW, .order = order};
    stk_loader *loader = NULL;
    stk_error err = {.message = ""};

    if (stk_loader_open(&loader, engine, dataset, &opts, &err) < 0)
        fail_msg("%s", err.message);
    return loader;
}

/* What every item of a concatenation of folder, records and the shard's bin has to be. */
static void
check_item(const stk_batch *batch, uint32_t at, uint64_t id)
{
    uint32_t kind = id < FILES ? 0 : id < FILES + RECORDS ? 1 : 2;
    uint64_t number = id - (kind > 0 ? FILES : 0) - (kind > 1 ? RECORDS : 0);

    check_bytes(batch->items[at], batch->n_bytes[at], kind, (uint32_t)number);
    assert_int_equal(batch->labels[at], kind == 2 ? (int64_t)(1000 + number) : -1);
}

/* Reads an epoch in sequence; ids: what each sample is in the concatenation. */
static void
check_all(stk_dataset *view, const uint64_t *ids, uint64_t n)
{
    stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL};
    stk_dataset_info info = {STK_DATASET_INFO_INIT};
    stk_loader *loader = open_loader(view, &order, 2);
    stk_batch batch;
    uint64_t seen = 0, n_bytes = 0, max_bytes = 0;

    assert_int_equal(stk_dataset_get_info(view, &info), 0);
    assert_int_equal(info.samples, n);
    while (stk_loader_next(loader, &batch) == STK_BATCH) {
        for (uint32_t at = 0; at < batch.count; at++, seen++) {
            assert_int_equal(batch.samples[at], seen % n);
            check_item(&batch, at, ids[seen % n]);
            n_bytes += batch.n_bytes[at];
            max_bytes = batch.n_bytes[at] > max_bytes ? batch.n_bytes[at] : max_bytes;
        }
        assert_int_equal(stk_loader_release(loader, &batch), 0);
    }
    stk_loader_close(loader);
    assert_int_equal(seen, 2 * n);
    assert_int_equal(info.bytes * 2, n_bytes);
    assert_int_equal(info.max_sample_bytes, max_bytes);
}

static void
test_concat_and_subset(void **state)
{
    stk_dataset_opts opts = {STK_DATASET_OPTS_INIT, .fields = "bin"};
    stk_dataset *bin = open_dataset(scratch_path(&scratch, "s.tar"), &opts);
    stk_dataset *parts[] = {folder, records, bin}, *all, *some, *few, *range, *both;
    enum { N = FILES + RECORDS + MEMBERS };
    uint64_t ids[2 * N], picked[] = {94, 0, 29, 30, 69, 70, 0, 94};
    char path[512];
    uint64_t offset, n_bytes;

    (void)state;
    for (uint64_t i = 0; i < N; i++)
        ids[i] = i;
    assert_int_equal(stk_dataset_concat(&all, parts, 3, NULL), 0);
    check_all(all, ids, N);
    assert_int_equal(stk_dataset_locate(all, 31, path, sizeof(path), &offset, &n_bytes, NULL), 0);
    assert_non_null(strstr(path, "/r.bin"));
    assert_int_equal(offset, RECORD_BYTES);
    assert_string_equal(stk_dataset_sample_name(all, 94), "024");
    assert_string_equal(stk_dataset_sample_name(all, 3), "003");
    assert_null(stk_dataset_sample_name(all, N));
    assert_int_equal(stk_dataset_subset(&some, all, picked, 8, NULL), 0);
    check_all(some, picked, 8);
    assert_int_equal(stk_dataset_range(&few, some, 2, 3, NULL), 0);
    check_all(few, picked + 2, 3);
    assert_int_equal(stk_dataset_range(&range, all, 25, 60, NULL), 0);
    check_all(range, ids + 25, 60);
    stk_dataset *twice[] = {few, range};
    memcpy(ids + N, picked + 2, 3 * sizeof(ids[0]));
    memcpy(ids + N + 3, ids + 25, 60 * sizeof(ids[0]));
    assert_int_equal(stk_dataset_concat(&both, twice, 2, NULL), 0);
    check_all(both, ids + N, 63);
    stk_dataset_close(both);
    stk_dataset_close(range);
    stk_dataset_close(few);
    stk_dataset_close(some);
    stk_dataset_close(all);
    stk_dataset_close(bin);
}

static uint64_t
fingerprint(stk_dataset *dataset)
{
    stk_dataset_info info = {STK_DATASET_INFO_INIT};

    assert_int_equal(stk_dataset_get_info(dataset, &info), 0);
    return info.fingerprint;
}

static void
test_fingerprints(void **state)
{
    stk_dataset *views[6], *ab[] = {folder, records}, *ba[] = {records, folder};
    uint64_t ids[] = {0, 1};
    double weights[] = {1, 2};
    uint64_t seen[8];

    (void)state;
    assert_int_equal(stk_dataset_concat(&views[0], ab, 2, NULL), 0);
    assert_int_equal(stk_dataset_concat(&views[1], ba, 2, NULL), 0);
    assert_int_equal(stk_dataset_range(&views[2], folder, 0, 2, NULL), 0);
    assert_int_equal(stk_dataset_range(&views[3], folder, 1, 2, NULL), 0);
    assert_int_equal(stk_dataset_subset(&views[4], records, ids, 2, NULL), 0);
    assert_int_equal(stk_dataset_mix(&views[5], ab, weights, 2, 0, NULL), 0);
    for (int i = 0; i < 6; i++)
        seen[i] = fingerprint(views[i]);
    seen[6] = fingerprint(folder);
    seen[7] = fingerprint(records);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < i; j++)
            assert_true(seen[i] != seen[j]);
    for (int i = 0; i < 6; i++)
        stk_dataset_close(views[i]);
    assert_int_equal(stk_dataset_concat(&views[0], ab, 2, NULL), 0);
    assert_true(fingerprint(views[0]) == seen[0]);
    stk_dataset_close(views[0]);
}

static void
test_refused(void **state)
{
    stk_dataset *view = NULL, *mix, *ab[] = {folder, records}, *fields[] = {folder, shard};
    uint64_t id = FILES;
    double weights[] = {1, 2}, bad[] = {1, 0};
    stk_error err;

    (void)state;
    assert_int_equal(stk_dataset_subset(&view, folder, &id, 1, &err), -ERANGE);
    assert_int_equal(stk_dataset_subset(&view, folder, &id, 0, &err), -EINVAL);
    assert_int_equal(stk_dataset_subset(&view, folder, NULL, 1, &err), -EINVAL);
    assert_int_equal(stk_dataset_range(&view, folder, 1, FILES, &err), -ERANGE);
    assert_int_equal(stk_dataset_range(&view, folder, 1, UINT64_MAX, &err), -ERANGE);
    assert_int_equal(stk_dataset_concat(&view, ab, 0, &err), -EINVAL);
    assert_int_equal(stk_dataset_concat(&view, fields, 2, &err), -EINVAL);
    assert_non_null(strstr(err.message, "data set 1 has 2"));
    assert_int_equal(stk_dataset_mix(&view, ab, bad, 2, 0, &err), -EINVAL);
    assert_non_null(strstr(err.message, "data set 1"));
    assert_int_equal(stk_dataset_mix(&mix, ab, weights, 2, 0, NULL), 0);
    assert_int_equal(stk_dataset_range(&view, mix, 0, 1, &err), -EINVAL);
    assert_int_equal(stk_dataset_concat(&view, &mix, 1, &err), -EINVAL);
    stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL};
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 4, .order = &order};
    stk_loader *loader;
    assert_int_equal(stk_loader_open(&loader, engine, mix, &opts, &err), -EINVAL);
    assert_non_null(strstr(err.message, "a mix draws its own"));
    stk_dataset_close(mix);
    assert_null(view);
}

/* Draws of three epochs: 10 of the folder and 20 of the records in each; all of the
 * folder before one comes again. ids: 90, in order. */
static void
draw(stk_dataset *mix, uint64_t from_step, uint64_t *ids)
{
    stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 3};
    stk_loader *loader = open_loader(mix, &order, 3);
    stk_batch batch;
    uint64_t at = 0;

    if (from_step > 0)
        assert_int_equal(stk_loader_seek(loader, from_step / 4, from_step % 4), 0);
    while (stk_loader_next(loader, &batch) == STK_BATCH) {
        for (uint32_t i = 0; i < batch.count; i++) {
            check_item(&batch, i, batch.samples[i]);
            ids[at++] = batch.samples[i];
        }
        assert_int_equal(stk_loader_release(loader, &batch), 0);
    }
    stk_loader_close(loader);
}

static void
test_mix(void **state)
{
    stk_dataset *parts[] = {folder, records}, *mix;
    double weights[] = {0.5, 1};
    uint64_t ids[90], again[90];
    uint32_t counts[FILES + RECORDS] = {0};

    (void)state;
    assert_int_equal(stk_dataset_mix(&mix, parts, weights, 2, 30, NULL), 0);
    draw(mix, 0, ids);
    draw(mix, 0, again);
    assert_memory_equal(ids, again, sizeof(ids));
    draw(mix, 6, again); /* the third batch of the second epoch: 30 + 16 draws before it */
    assert_memory_equal(ids + 46, again, 44 * sizeof(ids[0]));
    for (int at = 0; at < 90; at++)
        counts[ids[at]]++;
    for (int id = 0; id < FILES; id++)
        assert_int_equal(counts[id], 1);
    for (int id = FILES; id < FILES + RECORDS; id++)
        assert_in_range(counts[id], 1, 2);
    stk_dataset_close(mix);
}

/* All fields of a sample, which some lack. */
static void
test_fields(void **state)
{
    stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 1};
    stk_loader *loader = open_loader(shard, &order, 3);
    stk_batch batch;
    uint64_t seen = 0;

    (void)state;
    assert_string_equal(stk_dataset_field_name(shard, 0), "bin");
    assert_string_equal(stk_dataset_field_name(shard, 1), "txt");
    assert_null(stk_dataset_field_name(shard, 2));
    assert_string_equal(stk_dataset_field_name(folder, 0), "data");
    while (stk_loader_next(loader, &batch) == STK_BATCH) {
        assert_int_equal(batch.n_fields, 2);
        assert_ptr_equal(batch.items, batch.fields[0].items);
        assert_string_equal(batch.fields[1].name, "txt");
        for (uint32_t at = 0; at < batch.count; at++, seen++) {
            uint32_t id = (uint32_t)batch.samples[at];
            char name[32];

            check_bytes(batch.items[at], batch.n_bytes[at], 2, id);
            assert_int_equal(batch.labels[at], 1000 + id);
            (void)snprintf(name, sizeof(name), "%03u.txt", id);
            if (id % 2 == 0) {
                assert_int_equal(batch.fields[1].n_bytes[at], strlen(name));
                assert_memory_equal(batch.fields[1].items[at], name, strlen(name));
            } else {
                assert_null(batch.fields[1].items[at]);
            }
        }
        assert_int_equal(stk_loader_release(loader, &batch), 0);
    }
    stk_loader_close(loader);
    assert_int_equal(seen, 3 * MEMBERS);
}

static int
decode(void *context, const stk_decode_args *args)
{
    uint32_t number = (uint32_t)args->sample;
    bool has_text = args->fields[1].bytes != NULL;

    (void)context;
    if (args->n_fields != 2 || args->bytes != args->fields[0].bytes ||
        args->n_bytes != args->fields[0].n_bytes || strcmp(args->fields[1].name, "txt") != 0 ||
        has_text != (number % 2 == 0) || memcmp((const char *)args->bytes + 4, &number, 4) != 0)
        return -1;
    memcpy(args->slot, &number, sizeof(number));
    return 0;
}

/* A decode function gets all fields and makes one slot of them. */
static void
test_decode(void **state)
{
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 8, .epochs = 2, .decode = decode,
                            .item_bytes = 4};
    stk_loader_opts fixed = {STK_LOADER_OPTS_INIT, .batch_size = 8, .layout = STK_LAYOUT_FIXED,
                             .epochs = 1};
    stk_loader *loader;
    stk_batch batch;
    stk_error err;
    int rc;

    (void)state;
    assert_int_equal(stk_loader_open(&loader, engine, shard, &fixed, &err), -EINVAL);
    assert_non_null(strstr(err.message, "one field"));
    assert_int_equal(stk_loader_open(&loader, engine, shard, &opts, NULL), 0);
    while ((rc = stk_loader_next(loader, &batch)) == STK_BATCH) {
        assert_int_equal(batch.n_fields, 1);
        assert_string_equal(batch.fields[0].name, "");
        assert_ptr_equal(batch.fields[0].data, batch.data);
        for (uint32_t at = 0; at < batch.count; at++)
            assert_int_equal(((const uint32_t *)batch.data)[at], batch.samples[at]);
        assert_int_equal(stk_loader_release(loader, &batch), 0);
    }
    assert_int_equal(rc, STK_END);
    stk_loader_close(loader);
}

/* A shard that is cut after the data set was opened spoils all of its samples: those
 * before the cut may be others now. */
static void
test_cut(void **state)
{
    stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL};
    const char *path = scratch_path(&scratch, "cut.tar");
    static unsigned char bytes[4096], archive[64 << 10];
    size_t n = 0;
    stk_batch batch;
    stk_error err;
    int rc;

    (void)state;
    for (uint32_t i = 0; i < 16; i++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "%u.x", i);
        n = put_member(archive, n, name, bytes, fill(bytes, 2, i % 2));
    }
    put_file(path, archive, n);
    stk_dataset *dataset = open_dataset(path, NULL);
    put_file(path, archive, n / 2 + 100);
    stk_loader *loader = open_loader(dataset, &order, 1);
    static const char *const words[] = {"changed since it was indexed", "shorter"};
    for (int at = 0; at < 2; at++) {
        rc = stk_loader_next(loader, &batch);
        assert_int_equal(rc, STK_E_SAMPLE);
        assert_int_equal(stk_loader_last_error(loader, &err), 0);
        assert_non_null(strstr(err.path, "cut.tar"));
        assert_non_null(strstr(err.message, words[at]));
    }
    stk_loader_close(loader);
    stk_dataset_close(dataset);
    dataset = NULL;
    assert_int_equal(stk_dataset_open(&dataset, engine, path, NULL, &err), STK_E_STALE);
    assert_null(dataset);
}

/* ---- files that change ------------------------------------------------------------- */

#define SHARDS 10
#define SHARD_SAMPLES 16 /* two batches */

/* Writes a shard under a name of its own and gives it its name then, as whoever replaces
 * one does. salt: of its bytes; the size is the same, unless a member is added. */
static void
put_shard(uint32_t number, uint32_t salt, bool is_longer)
{
    static unsigned char bytes[8192], archive[128 << 10];
    char made[128];
    size_t n = 0;

    for (uint32_t at = 0; at < SHARD_SAMPLES + (is_longer ? 1u : 0u); at++) {
        char name[16];

        memset(bytes, (int)(number * SHARD_SAMPLES + at + salt), 1000);
        (void)snprintf(name, sizeof(name), "%02u-%02u.x", number, at);
        n = put_member(archive, n, name, bytes, 1000);
    }
    memset(archive + n, 0, 1024);
    (void)snprintf(made, sizeof(made), "%s", scratch_path(&scratch, "made"));
    put_file(made, archive, n + 1024);
    assert_int_equal(rename(made, scratch_path(&scratch, "c/%02u.tar", number)), 0);
}

struct change {
    uint64_t step;      /* before this batch ... */
    uint32_t number;    /* ... this shard is replaced ... */
    bool is_longer;     /* ... by a longer one, or one that only its time tells */
    uint64_t first_bad; /* the first batch of it that is read after that */
};

/* Three epochs in sequence. With few files open at a time the shards are opened again and
 * again; batches of what was replaced fail, naming it, all others are right. */
static void
read_changing(const struct change *change)
{
    stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT, .tiers = "ram:8M", .io_method = method,
                                   .max_open_files = 4};
    stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL};
    stk_loader_opts opts = {
        STK_LOADER_OPTS_INIT, .batch_size = 8,          .epochs = 3,
        .borrow_max = 1,      .staging_batches = 2,     .policy = STK_POLICY_NONE,
        .retries = 2,         .layout = STK_LAYOUT_RAW, .order = &order};
    stk_engine *own_engine;
    stk_dataset *dataset;
    stk_loader *loader;
    stk_error err = {.message = ""};
    stk_batch batch;

    for (uint32_t number = 0; number < SHARDS; number++)
        put_shard(number, 0, false);
    assert_int_equal(stk_engine_open(&own_engine, &engine_opts, NULL), 0);
    const stk_dataset_opts rebuilt = {STK_DATASET_OPTS_INIT, .rebuild = 1};
    assert_int_equal(
        stk_dataset_open(&dataset, own_engine, scratch_path(&scratch, "c"), &rebuilt, &err), 0);
    assert_int_equal(stk_loader_open(&loader, own_engine, dataset, &opts, &err), 0);
    for (uint64_t step = 0; step < UINT64_C(3) * 2 * SHARDS; step++) {
        uint64_t shard_idx = step / 2 % SHARDS;

        if (step == change->step)
            put_shard(change->number, 7, change->is_longer);
        int rc = stk_loader_next(loader, &batch);
        if (step < change->first_bad || shard_idx != change->number) {
            assert_int_equal(rc, STK_BATCH);
            for (uint32_t at = 0; at < batch.count; at++)
                assert_int_equal(*(const unsigned char *)batch.items[at], batch.samples[at] % 256);
            assert_int_equal(stk_loader_release(loader, &batch), 0);
            continue;
        }
        assert_int_equal(rc, STK_E_SAMPLE);
        assert_int_equal(stk_loader_last_error(loader, &err), 0);
        assert_string_equal(err.path, scratch_path(&scratch, "c/%02u.tar", change->number));
        assert_non_null(strstr(err.message, "the file changed since it was indexed"));
        assert_non_null(strstr(err.message, "rebuild"));
    }
    assert_int_equal(stk_loader_next(loader, &batch), STK_END);
    stk_loader_close(loader);
    stk_dataset_close(dataset);
    stk_engine_close(own_engine);
}

static void
test_changed(void **state)
{
    static const struct change changes[] = {
        {.step = 2, .number = 7, .first_bad = 14}, /* opened for the first time */
        {.step = 2, .number = 7, .is_longer = true, .first_bad = 14}, /* the same */
        {.step = 10, .number = 0, .first_bad = 20},                   /* opened once more */
        {.step = 10, .number = 0, .is_longer = true, .first_bad = 20},
    };

    (void)state;
    assert_int_equal(mkdir(scratch_path(&scratch, "c"), 0777), 0);
    for (size_t at = 0; at < sizeof(changes) / sizeof(changes[0]); at++)
        read_changing(&changes[at]);
}

/* One file stays open: it is looked at when a loader is opened. */
static void
test_changed_file(void **state)
{
    stk_dataset_opts record_opts = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_RECORD,
                                    .record_bytes = RECORD_BYTES};
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 8};
    const char *path = scratch_path(&scratch, "changed.bin");
    static unsigned char bytes[64 * RECORD_BYTES];
    stk_loader *loader = NULL;
    stk_error err;

    (void)state;
    put_file(path, bytes, sizeof(bytes));
    stk_dataset *dataset = open_dataset(path, &record_opts);
    bytes[0] = 1;
    put_file(path, bytes, sizeof(bytes));
    assert_int_equal(stk_loader_open(&loader, engine, dataset, &opts, &err), STK_E_STALE);
    assert_string_equal(err.path, "changed.bin");
    assert_non_null(strstr(err.message, "the file changed since it was indexed"));
    stk_dataset_close(dataset);
}

int
main(void)
{
    static const char *const all[] = {"sync", "uring"};
    const char *asked = getenv("STOKER_TEST_METHODS");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_concat_and_subset),
        cmocka_unit_test(test_fingerprints),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_mix),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_changed),
        cmocka_unit_test(test_changed_file),
    };
    int failed = 0;

    for (int at = 0; at < 2; at++) {
        method = all[at];
        if ((asked && !strstr(asked, method)) || (at == 1 && !scratch_has_uring()))
            continue;
        failed += cmocka_run_group_tests_name(method, tests, set_up, tear_down);
    }
    return failed > 0;
}
