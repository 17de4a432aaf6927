/* SPDX-License-Identifier: Apache-2.0 */
/* The SSD tier as a program meets it: every byte of every sample is checked in every
 * run. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <stoker/stoker.h>

#define RECORDS 3000u
#define RECORD_BYTES 600u
#define FILES 400u

static char root[64];   /* all of a test's files */
static char cache[96];  /* a cache directory */
static char other[96];  /* another one */
static char record[96]; /* one file of records */
static char folder[96]; /* files of many sizes */
static uint64_t sizes[FILES];
static uint64_t folder_bytes;
static const char *method; /* of the I/O, this time */

/* ---- data sets whose bytes follow from the sample ---------------------------------- */

static uint64_t
mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

static void
fill(char *bytes, uint64_t n_bytes, uint64_t sample)
{
    for (uint64_t at = 0; at < n_bytes; at += 8) {
        uint64_t word = mix(sample * 1000003 + at);

        memcpy(bytes + at, &word, n_bytes - at < 8 ? n_bytes - at : 8);
    }
}

static bool
is_right(const char *bytes, uint64_t n_bytes, uint64_t sample)
{
    for (uint64_t at = 0; at < n_bytes; at += 8) {
        uint64_t word = mix(sample * 1000003 + at);

        if (memcmp(bytes + at, &word, n_bytes - at < 8 ? n_bytes - at : 8) != 0)
            return false;
    }
    return true;
}

static void
append_sample(const char *path, uint64_t n_bytes, uint64_t sample)
{
    char *bytes = malloc(n_bytes + 8);
    FILE *file = fopen(path, "ab");

    assert_non_null(bytes);
    assert_non_null(file);
    fill(bytes, n_bytes, sample);
    assert_int_equal(fwrite(bytes, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
    free(bytes);
}

static void
make_records(const char *path, uint32_t n, uint32_t record_bytes)
{
    char *bytes = malloc(record_bytes + 8);
    FILE *file = fopen(path, "wb");

    assert_non_null(bytes);
    assert_non_null(file);
    for (uint32_t at = 0; at < n; at++) {
        fill(bytes, record_bytes, at);
        assert_int_equal(fwrite(bytes, 1, record_bytes, file), record_bytes);
    }
    assert_int_equal(fclose(file), 0);
    free(bytes);
}

/* Log-uniform from 1 KB to 1 MB (2^10 .. 2^20), the sum kept small for the test's
 * sake. */
static void
make_folder(void)
{
    char path[160];

    assert_int_equal(mkdir(folder, 0755), 0);
    folder_bytes = 0;
    for (uint32_t at = 0; at < FILES; at++) {
        uint64_t step = mix(at + 7) % 10000;
        double size = 1024;

        for (uint64_t k = 0; k < step; k++)
            size *= 1.000693387; /* 2^(1/1000) */
        sizes[at] = (uint64_t)size;
        folder_bytes += sizes[at];
        (void)snprintf(path, sizeof(path), "%s/%06u", folder, at);
        append_sample(path, sizes[at], at);
    }
}

/* ---- jobs -------------------------------------------------------------------------- */

struct job {
    const char *data;
    const char *tiers;
    uint64_t epochs;
    uint64_t staging_bytes;
    uint32_t record_bytes; /* 0: a folder */
    uint32_t batch;
    uint32_t policy;
    const char *ssd_shape;
    uint64_t steps; /* 0: all */
    void (*at_step)(uint64_t step);
};

struct outcome {
    stk_loader_stats run;
    stk_loader_stats last; /* epoch */
    stk_error warning;     /* code 0: none */
};

static void
check_batch(const stk_batch *batch)
{
    for (uint32_t item = 0; item < batch->count; item++)
        if (!is_right(batch->items[item], batch->n_bytes[item], batch->samples[item]))
            fail_msg("sample %llu is wrong", (unsigned long long)batch->samples[item]);
}

static void
read_all(stk_loader *loader, const struct job *job, uint64_t n)
{
    uint64_t n_samples = 0;
    stk_batch batch;
    int rc;

    for (uint64_t step = 0; job->steps == 0 || step < job->steps; step++) {
        rc = stk_loader_next(loader, &batch);
        if (rc != STK_BATCH) {
            assert_int_equal(rc, STK_END);
            assert_int_equal(n_samples, n * job->epochs);
            return;
        }
        n_samples += batch.count;
        check_batch(&batch);
        assert_int_equal(stk_loader_release(loader, &batch), 0);
        if (job->at_step)
            job->at_step(step);
    }
}

static void
run(const struct job *job, struct outcome *ret_outcome)
{
    stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT, .tiers = job->tiers, .io_method = method,
                                   .ssd_shape = job->ssd_shape};
    stk_dataset_opts dataset_opts = {
        STK_DATASET_OPTS_INIT, .format = job->record_bytes ? STK_FORMAT_RECORD : STK_FORMAT_FOLDER,
        .record_bytes = job->record_bytes};
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT,  .batch_size = job->batch ? job->batch : 16,
                            .epochs = job->epochs, .layout = STK_LAYOUT_RAW,
                            .policy = job->policy, .staging_bytes = job->staging_bytes};
    stk_dataset_info info = {STK_DATASET_INFO_INIT};
    struct outcome outcome = {.run = {STK_LOADER_STATS_INIT}, .last = {STK_LOADER_STATS_INIT}};
    stk_engine *engine;
    stk_dataset *dataset;
    stk_loader *loader;
    stk_error err;

    if (stk_engine_open(&engine, &engine_opts, &err) < 0)
        fail_msg("engine: %s", err.message);
    if (stk_dataset_open(&dataset, engine, job->data, &dataset_opts, &err) < 0)
        fail_msg("dataset: %s", err.message);
    assert_int_equal(stk_dataset_get_info(dataset, &info), 0);
    if (stk_loader_open(&loader, engine, dataset, &opts, &err) < 0)
        fail_msg("loader: %s", err.message);
    read_all(loader, job, info.samples);
    assert_int_equal(stk_loader_get_stats(loader, UINT64_MAX, &outcome.run), 0);
    if (job->steps == 0)
        assert_int_equal(stk_loader_get_stats(loader, job->epochs - 1, &outcome.last), 0);
    if (stk_loader_last_warning(loader, &outcome.warning) == -ENOENT)
        outcome.warning.code = 0;
    stk_loader_close(loader);
    stk_dataset_close(dataset);
    stk_engine_close(engine);
    if (ret_outcome)
        *ret_outcome = outcome;
}

static const char *
tiers(uint64_t ram_bytes, uint64_t ssd_bytes)
{
    static char text[4][256];
    static unsigned at;
    char *out = text[at++ % 4];

    if (ram_bytes > 0)
        (void)snprintf(out, 256, "ram:%llu ssd:%s:%llu", (unsigned long long)ram_bytes, cache,
                       (unsigned long long)ssd_bytes);
    else
        (void)snprintf(out, 256, "ssd:%s:%llu", cache, (unsigned long long)ssd_bytes);
    return out;
}

static int
remove_one(const char *path, const struct stat *found, int type, struct FTW *walk)
{
    (void)found;
    (void)type;
    (void)walk;
    return remove(path);
}

static void
empty_caches(void)
{
    const char *both[] = {cache, other};

    for (int at = 0; at < 2; at++) {
        (void)nftw(both[at], remove_one, 16, FTW_DEPTH | FTW_PHYS); /* it may not be there */
        assert_int_equal(mkdir(both[at], 0755), 0);
    }
}

/* The path of a file of the one cache in a directory. */
static const char *
file_in(const char *dir, const char *name)
{
    static char path[400];
    DIR *list = opendir(dir);
    const struct dirent *entry;

    assert_non_null(list);
    path[0] = '\0';
    while ((entry = readdir(list)) != NULL) /* NOLINT(concurrency-mt-unsafe): own DIR */
        if (strncmp(entry->d_name, "stoker-", 7) == 0)
            (void)snprintf(path, sizeof(path), "%s/%.32s/%s", dir, entry->d_name, name);
    assert_int_equal(closedir(list), 0);
    assert_string_not_equal(path, "");
    return path;
}

static struct job
records_job(const char *tier_text, uint64_t epochs)
{
    return (struct job){.data = record,
                        .tiers = tier_text,
                        .epochs = epochs,
                        .record_bytes = RECORD_BYTES,
                        .staging_bytes = UINT64_C(64) << 10};
}

#define RECORDS_BYTES ((uint64_t)RECORDS * RECORD_BYTES)

/* ---- what is read from where ------------------------------------------------------- */

static void
test_next_job_starts_warm(void **state)
{
    struct job job = records_job(tiers(0, RECORDS_BYTES), 2);
    struct outcome outcome;

    (void)state;
    empty_caches();
    run(&job, &outcome);
    assert_int_equal(outcome.run.origin_bytes, RECORDS_BYTES);
    assert_int_equal(outcome.run.bound_bytes, RECORDS_BYTES);
    assert_int_equal(outcome.last.tier_samples[STK_TIER_ORIGIN], 0);
    assert_int_equal(outcome.run.ssd_bytes, RECORDS_BYTES);
    assert_int_equal(outcome.warning.code, 0);
    run(&job, &outcome);
    assert_int_equal(outcome.run.origin_bytes, 0);
    assert_int_equal(outcome.run.bound_bytes, 0);
    assert_int_equal(outcome.run.ssd_written_bytes, 0);
    assert_true(outcome.run.tier_samples[STK_TIER_SSD] > RECORDS);
}

static void
test_policies_read_right(void **state)
{
    (void)state;
    for (uint32_t policy = STK_POLICY_NONE; policy <= STK_POLICY_NEXT_USE; policy++) {
        struct job job = records_job(tiers(RECORDS_BYTES / 4, RECORDS_BYTES / 4), 3);
        struct outcome outcome;

        empty_caches();
        job.policy = policy;
        run(&job, &outcome);
        assert_int_equal(outcome.run.ssd_bytes == 0, policy == STK_POLICY_NONE);
    }
}

/* Both tiers hold the data set together: it is read once. */
static void
test_ram_and_ssd_hold_all(void **state)
{
    struct job job = records_job(tiers(RECORDS_BYTES / 4, RECORDS_BYTES * 3 / 4), 4);
    struct outcome outcome;

    (void)state;
    empty_caches();
    run(&job, &outcome);
    assert_int_equal(outcome.run.origin_bytes, RECORDS_BYTES);
    assert_true(outcome.last.tier_bytes[STK_TIER_RAM] >= RECORDS_BYTES / 4);
    empty_caches();
    struct job files = {.data = folder,
                        .tiers = tiers(folder_bytes / 4, folder_bytes * 3 / 4),
                        .epochs = 3,
                        .batch = 4};
    run(&files, &outcome);
    assert_int_equal(outcome.run.origin_bytes, folder_bytes);
}

static double
now_s(void)
{
    struct timespec now;

    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &now), 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* An emulated SSD is never quicker than it should be, and the origin is not its concern. */
static void
test_emulated(void **state)
{
    struct job job = records_job(tiers(0, RECORDS_BYTES), 1);
    struct outcome outcome;

    (void)state;
    empty_caches();
    run(&job, NULL);
    job.ssd_shape = "riops=20000";
    double began_s = now_s();
    run(&job, &outcome);
    /* A queue may begin 2 ms early. */
    assert_true(now_s() - began_s > RECORDS / 20000.0 - 0.003);
    assert_int_equal(outcome.run.tier_samples[STK_TIER_SSD], RECORDS);
    job.ssd_shape = "rlat=1";
    stk_engine *engine;
    stk_engine_opts opts = {STK_ENGINE_OPTS_INIT, .ssd_shape = job.ssd_shape, .shape = "rlat=1ms"};
    assert_int_equal(stk_engine_open(&engine, &opts, NULL), -EINVAL);
}

/* Twice as much data as room: the bound. */
static void
test_half_fits(void **state)
{
    struct job job = records_job(tiers(RECORDS_BYTES / 4, RECORDS_BYTES / 4), 4);
    struct outcome outcome;

    (void)state;
    empty_caches();
    run(&job, &outcome);
    uint64_t over_bytes = outcome.run.origin_bytes - outcome.run.bound_bytes;
    uint64_t allowed_bytes = 2 * (uint64_t)RECORD_BYTES; /* a sample for each tier */
    if (over_bytes > allowed_bytes)
        fail_msg("%llu bytes over the bound, %llu allowed", (unsigned long long)over_bytes,
                 (unsigned long long)allowed_bytes);
}

/* Where sizes differ, the samples that cost most per byte stay. */
static void
test_small_samples_first(void **state)
{
    struct job job = {.data = folder,
                      .tiers = tiers(folder_bytes / 4, folder_bytes / 4),
                      .epochs = 6,
                      .batch = 1,
                      .staging_bytes = 2200000};
    const double latency_s = 0.002;
    const double bytes_per_s = 500e6;
    struct outcome outcome;

    (void)state;
    empty_caches();
    run(&job, &outcome);
    double held = (double)outcome.last.capacity_bytes / (double)folder_bytes;
    double all_s = FILES * latency_s + (double)folder_bytes / bytes_per_s;
    double blind_s = (1 - held) * all_s; /* as many bytes and samples as have room */
    double took_s = (double)outcome.last.tier_samples[STK_TIER_ORIGIN] * latency_s +
                    (double)outcome.last.origin_bytes / bytes_per_s;
    if (took_s * 1.3 > blind_s)
        fail_msg("%.4f s of the origin, %.4f s without regard to size: %llu samples of %llu bytes, "
                 "bound %llu; in memory %llu, on the SSD %llu, %llu bytes there",
                 took_s, blind_s, (unsigned long long)outcome.last.tier_samples[STK_TIER_ORIGIN],
                 (unsigned long long)outcome.last.origin_bytes,
                 (unsigned long long)outcome.last.bound_bytes,
                 (unsigned long long)outcome.last.tier_samples[STK_TIER_RAM],
                 (unsigned long long)outcome.last.tier_samples[STK_TIER_SSD],
                 (unsigned long long)outcome.run.ssd_bytes);
    /* And the bound is met within the largest sample for each tier, in all epochs. */
    uint64_t over_bytes = outcome.run.origin_bytes - outcome.run.bound_bytes;
    assert_true(outcome.run.origin_bytes >= outcome.run.bound_bytes);
    if (over_bytes > UINT64_C(2) << 20)
        fail_msg("%llu bytes over the bound", (unsigned long long)over_bytes);
}

static void
test_two_directories(void **state)
{
    char text[300];
    struct job job = records_job(text, 2);
    struct outcome outcome;
    struct stat one, two;

    (void)state;
    empty_caches();
    (void)snprintf(text, sizeof(text), "ssd:%s:%llu ssd:%s:%llu", cache,
                   (unsigned long long)RECORDS_BYTES, other, (unsigned long long)RECORDS_BYTES);
    run(&job, &outcome);
    assert_int_equal(outcome.run.origin_bytes, RECORDS_BYTES);
    assert_int_equal(stat(file_in(cache, "data"), &one), 0);
    assert_int_equal(stat(file_in(other, "data"), &two), 0);
    /* By their speeds, which are one disk's and what else it does. */
    assert_true(one.st_size > 0 && two.st_size > 0);
    run(&job, &outcome);
    assert_int_equal(outcome.run.origin_bytes, 0);
    /* One of them is gone: what it had comes from the origin, once, and goes to the
     * other. */
    (void)nftw(other, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    run(&job, &outcome);
    assert_int_equal(outcome.warning.code, -ENOENT);
    assert_int_equal(outcome.run.ssd_dropped, 1);
    if (outcome.run.origin_bytes == 0 || outcome.run.origin_bytes >= RECORDS_BYTES)
        fail_msg("%llu of %llu bytes from the origin, files of %lld and %lld bytes",
                 (unsigned long long)outcome.run.origin_bytes, (unsigned long long)RECORDS_BYTES,
                 (long long)one.st_size, (long long)two.st_size);
}

/* ---- caches that are not as they should be ----------------------------------------- */

static void
overwrite(const char *path, uint64_t offset, const void *bytes, size_t n_bytes)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n_bytes, (off_t)offset), n_bytes);
    assert_int_equal(close(fd), 0);
}

static void
test_other_version_begins_anew(void **state)
{
    struct job job = records_job(tiers(0, RECORDS_BYTES), 1);
    struct outcome outcome;
    uint32_t version = 77;

    (void)state;
    empty_caches();
    run(&job, NULL);
    overwrite(file_in(cache, "catalog"), 8, &version, sizeof(version));
    run(&job, &outcome);
    assert_int_equal(outcome.run.origin_bytes, RECORDS_BYTES);
    run(&job, &outcome);
    assert_int_equal(outcome.run.origin_bytes, 0);
}

/* Opening one of these would wait for a writer that never comes. */
static void
test_fifos_are_replaced(void **state)
{
    static const char *const files[] = {"data", "catalog"};
    struct job job = records_job(tiers(0, RECORDS_BYTES), 1);
    struct outcome outcome;

    (void)state;
    empty_caches();
    run(&job, NULL);
    for (size_t at = 0; at < sizeof(files) / sizeof(files[0]); at++) {
        assert_int_equal(unlink(file_in(cache, files[at])), 0);
        assert_int_equal(mkfifo(file_in(cache, files[at]), 0644), 0);
        run(&job, &outcome);
        assert_int_equal(outcome.run.origin_bytes, RECORDS_BYTES);
        run(&job, &outcome);
        assert_int_equal(outcome.run.origin_bytes, 0);
    }
}

/* A data file of another life, with its own good headers, under this catalogue. */
static void
test_stale_data_is_refused(void **state)
{
    struct job job = records_job(tiers(0, RECORDS_BYTES), 1);
    char old[400];
    struct outcome outcome;

    (void)state;
    empty_caches();
    run(&job, NULL);
    (void)snprintf(old, sizeof(old), "%s/old", root);
    assert_int_equal(rename(file_in(cache, "data"), old), 0);
    assert_int_equal(unlink(file_in(cache, "catalog")), 0);
    run(&job, NULL);
    assert_int_equal(rename(old, file_in(cache, "data")), 0);
    run(&job, &outcome);
    assert_int_equal(outcome.run.origin_bytes, RECORDS_BYTES);
    assert_int_equal(outcome.run.ssd_refused, RECORDS);
}

static void
truncate_data(uint64_t step)
{
    if (step == 2 * (RECORDS / 16))
        assert_int_equal(truncate(file_in(cache, "data"), 4096), 0);
}

static void
remove_cache(uint64_t step)
{
    if (step == RECORDS / 16 / 2)
        (void)nftw(cache, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void
test_damage_while_running(void **state)
{
    struct job job = records_job(tiers(0, RECORDS_BYTES), 4);
    struct outcome outcome;

    (void)state;
    empty_caches();
    job.at_step = truncate_data;
    run(&job, &outcome);
    assert_true(outcome.run.ssd_refused > 0);
    empty_caches();
    job.at_step = remove_cache;
    run(&job, NULL);
}

/* Every byte of a small cache is flipped, one at a time. */
static void
test_every_byte_flipped(void **state)
{
    char small[160];
    struct job job = {.data = small, .epochs = 1, .record_bytes = 100, .batch = 4};
    /* All of them take long; some of each kind are in any stretch of 29. */
    uint64_t stride = getenv("STOKER_TEST_LONG") ? 1 : 29; /* NOLINT(concurrency-mt-unsafe) */
    static const char *const names[] = {"data", "catalog", "lock"};
    struct stat found;

    (void)state;
    empty_caches();
    (void)snprintf(small, sizeof(small), "%s/small-%s.bin", root, method);
    make_records(small, 12, 100);
    job.tiers = tiers(0, 1 << 20);
    run(&job, NULL);
    for (int file = 0; file < 3; file++) {
        assert_int_equal(stat(file_in(cache, names[file]), &found), 0);
        /* Behind the last record, and its padding, the data file is 0. */
        uint64_t end = found.st_size < 12 * 192 ? (uint64_t)found.st_size : 12 * 192;
        for (uint64_t at = 0; at < end; at += stride) {
            char byte;
            int fd = open(file_in(cache, names[file]), O_RDWR | O_CLOEXEC);

            assert_true(fd >= 0);
            if (pread(fd, &byte, 1, (off_t)at) == 1) {
                byte = (char)~byte;
                assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
            }
            assert_int_equal(close(fd), 0);
            run(&job, NULL);
        }
    }
}

/* Two jobs at once: the second one only reads. */
static void
test_shared_by_two(void **state)
{
    struct job job = records_job(tiers(0, RECORDS_BYTES), 1);
    stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT, .tiers = job.tiers, .io_method = method};
    stk_dataset_opts dataset_opts = {STK_DATASET_OPTS_INIT, .format = STK_FORMAT_RECORD,
                                     .record_bytes = RECORD_BYTES};
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 16, .epochs = 1};
    struct outcome outcome;
    stk_engine *engine;
    stk_dataset *dataset;
    stk_loader *loader;

    (void)state;
    for (int warm = 0; warm < 2; warm++) {
        if (warm == 0)
            empty_caches();
        assert_int_equal(stk_engine_open(&engine, &engine_opts, NULL), 0);
        assert_int_equal(stk_dataset_open(&dataset, engine, record, &dataset_opts, NULL), 0);
        assert_int_equal(stk_loader_open(&loader, engine, dataset, &opts, NULL), 0);
        run(&job, &outcome); /* while the other one has the lock */
        assert_int_equal(outcome.run.ssd_written_bytes, 0);
        if (warm == 1)
            assert_int_equal(outcome.run.origin_bytes, 0);
        assert_int_equal(outcome.warning.code, outcome.run.origin_bytes > 0 ? -EBUSY : 0);
        read_all(loader, &job, RECORDS);
        stk_loader_close(loader);
        stk_dataset_close(dataset);
        stk_engine_close(engine);
        run(&job, NULL); /* completes the cache */
    }
}

/* The disk takes no more: what has been written goes on being used. */
static void
test_full(void **state)
{
    struct job job = records_job(tiers(0, RECORDS_BYTES), 3);
    struct rlimit old, low;
    struct outcome outcome;

    (void)state;
    empty_caches();
    run(&(struct job){.data = record, .tiers = "", .epochs = 1, .record_bytes = RECORD_BYTES},
        NULL); /* the index is there now */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = RECORDS_BYTES / 2 / 4096 * 4096;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    run(&job, &outcome);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    if (outcome.warning.code != -EFBIG && outcome.warning.code != -ENOSPC)
        fail_msg("code %d: %s", outcome.warning.code, outcome.warning.message);
    assert_string_equal(outcome.warning.path, cache);
    assert_true(outcome.last.tier_samples[STK_TIER_SSD] > RECORDS / 5);
    assert_true(outcome.last.tier_samples[STK_TIER_ORIGIN] > RECORDS / 5);
}

static void
test_read_only(void **state)
{
    struct job job = records_job(tiers(0, RECORDS_BYTES), 2);
    struct outcome outcome;

    (void)state;
    if (geteuid() != 0)
        skip();
    empty_caches();
    run(&job, NULL); /* as root */
    assert_int_equal(seteuid(65534), 0);
    run(&job, &outcome);
    assert_int_equal(outcome.run.origin_bytes, 0);
    assert_int_equal(seteuid(0), 0);
    empty_caches();
    assert_int_equal(seteuid(65534), 0);
    run(&job, &outcome);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(outcome.warning.code, -EACCES);
    assert_int_equal(outcome.run.origin_bytes, outcome.run.bound_bytes);
}

/* A file system in memory: no direct I/O there, or of another kind. */
static void
test_in_memory(void **state)
{
    struct job job = records_job(NULL, 2);
    char kept[sizeof(cache)];
    struct outcome outcome;

    (void)state;
    (void)memcpy(kept, cache, sizeof(cache));
    (void)snprintf(cache, sizeof(cache), "/dev/shm/stoker-test-%d", (int)getpid());
    if (mkdir(cache, 0755) < 0) {
        (void)memcpy(cache, kept, sizeof(cache));
        skip();
    }
    job.tiers = tiers(0, RECORDS_BYTES);
    run(&job, &outcome);
    assert_int_equal(outcome.run.origin_bytes, RECORDS_BYTES);
    run(&job, &outcome);
    assert_int_equal(outcome.run.origin_bytes, 0);
    (void)nftw(cache, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    (void)memcpy(cache, kept, sizeof(cache));
}

/* Room is made by removing the data sets opened longest ago, and nothing that is not
 * ours. */
static void
test_oldest_goes_first(void **state)
{
    char paths[3][160], foreign[200], text[200];
    struct outcome outcome;
    struct job jobs[3];

    (void)state;
    empty_caches();
    (void)snprintf(foreign, sizeof(foreign), "%s/stoker-0000000000000001", cache);
    assert_int_equal(mkdir(foreign, 0755), 0);
    for (uint32_t at = 0; at < 3; at++) {
        (void)snprintf(paths[at], sizeof(paths[at]), "%s/set%u-%s.bin", root, at, method);
        make_records(paths[at], 500 + at, RECORD_BYTES);
        (void)snprintf(text, sizeof(text), "ssd:%s:800K", cache); /* room for two of 300 KB */
        jobs[at] = (struct job){
            .data = paths[at], .tiers = text, .epochs = 1, .record_bytes = RECORD_BYTES};
        run(&jobs[at], NULL);
        (void)usleep(20000); /* file times are that coarse */
    }
    run(&jobs[1], &outcome);
    assert_int_equal(outcome.run.origin_bytes, 0);
    run(&jobs[2], &outcome);
    assert_int_equal(outcome.run.origin_bytes, 0);
    run(&jobs[0], &outcome);
    assert_true(outcome.run.origin_bytes > 0);
    assert_int_equal(access(foreign, F_OK), 0);
}

/* ---- killed ------------------------------------------------------------------------ */

/* The killed process is this program again: threads do not survive a fork. */
static pid_t
start_job(const char *self)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        (void)execl(self, self, "job", record, cache, method, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static const char *self_path;

static void
test_killed_at_any_moment(void **state)
{
    int n = getenv("STOKER_TEST_LONG") ? 200 : 12; /* NOLINT(concurrency-mt-unsafe) */
    struct job job = records_job(tiers(0, RECORDS_BYTES), 1);
    uint64_t kept_bytes = 0;

    (void)state;
    for (int round = 0; round < n; round++) {
        struct outcome outcome;
        int status;

        if (round % 8 == 0)
            empty_caches();
        pid_t pid = start_job(self_path);
        (void)usleep((useconds_t)(mix((uint64_t)round + 99) % 60000));
        (void)kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (round % 4 != 3)
            continue; /* several lives on top of each other */
        run(&job, &outcome);
        kept_bytes += RECORDS_BYTES - outcome.run.origin_bytes;
    }
    assert_true(kept_bytes > 0);
}

static int
be_killed(char **argv)
{
    struct job job = records_job(NULL, 50);

    (void)snprintf(record, sizeof(record), "%s", argv[2]);
    (void)snprintf(cache, sizeof(cache), "%s", argv[3]);
    method = argv[4];
    job.tiers = tiers(0, RECORDS_BYTES);
    run(&job, NULL);
    return 0;
}

/* ---- main -------------------------------------------------------------------------- */

static int
set_up(void)
{
    (void)snprintf(root, sizeof(root), "/tmp/stoker-ssd-XXXXXX");
    if (!mkdtemp(root) || chmod(root, 0755) < 0)
        return -1;
    (void)snprintf(cache, sizeof(cache), "%s/cache", root);
    (void)snprintf(other, sizeof(other), "%s/other", root);
    (void)snprintf(record, sizeof(record), "%s/records.bin", root);
    (void)snprintf(folder, sizeof(folder), "%s/files", root);
    return 0;
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_next_job_starts_warm),
        cmocka_unit_test(test_policies_read_right),
        cmocka_unit_test(test_ram_and_ssd_hold_all),
        cmocka_unit_test(test_emulated),
        cmocka_unit_test(test_half_fits),
        cmocka_unit_test(test_small_samples_first),
        cmocka_unit_test(test_two_directories),
        cmocka_unit_test(test_other_version_begins_anew),
        cmocka_unit_test(test_fifos_are_replaced),
        cmocka_unit_test(test_stale_data_is_refused),
        cmocka_unit_test(test_damage_while_running),
        cmocka_unit_test(test_every_byte_flipped),
        cmocka_unit_test(test_shared_by_two),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_read_only),
        cmocka_unit_test(test_in_memory),
        cmocka_unit_test(test_oldest_goes_first),
        cmocka_unit_test(test_killed_at_any_moment),
    };
    const char *asked = getenv("STOKER_TEST_METHODS"); /* NOLINT(concurrency-mt-unsafe) */
    int n_failed = 0;

    if (argc == 5 && strcmp(argv[1], "job") == 0)
        return be_killed(argv);
    self_path = argv[0];
    if (set_up() < 0)
        return 1;
    make_records(record, RECORDS, RECORD_BYTES);
    make_folder();
    static const char *const methods[] = {"uring", "sync"};
    for (int at = 0; at < 2; at++) {
        stk_engine_opts opts = {STK_ENGINE_OPTS_INIT, .io_method = methods[at]};
        stk_engine *engine;

        method = methods[at];
        if ((asked && !strstr(asked, method)) || stk_engine_open(&engine, &opts, NULL) < 0)
            continue;
        stk_engine_close(engine);
        n_failed += cmocka_run_group_tests_name(method, tests, NULL, NULL);
    }
    (void)nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return n_failed == 0 ? 0 : 1;
}
