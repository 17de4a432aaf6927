/* SPDX-License-Identifier: Apache-2.0 */
/* What a consumer may do beside reading on: borrow and give back in any order, share an
 * engine among loaders, interrupt, close at any moment. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader_util.h"

#define N 150

static struct set files;
static struct set records;

static int
make_sets(void **state)
{
    (void)watchdog(state);
    set_make(&files, SET_SIZES, N);
    set_make(&records, SET_RECORDS, N);
    return 0;
}

static int
remove_sets(void **state)
{
    (void)state;
    set_remove(&files);
    set_remove(&records);
    return 0;
}

static void
pause_us(long us)
{
    const struct timespec time = {.tv_nsec = us * 1000};

    (void)nanosleep(&time, NULL);
}

/* ---- borrowing --------------------------------------------------------------------- */

static void
one_batch_too_many_is_an_error(void **state)
{
    static const uint32_t most[] = {0, 1, 3, 9};

    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (uint32_t at = 0; at < 8; at++) {
            const struct set *set = at % 2 ? &files : &records;
            stk_engine *engine = engine_open(*method, NULL);
            stk_dataset *dataset = dataset_open(engine, set);
            stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 5, .epochs = 2,
                                    .borrow_max = most[at / 2]};
            uint32_t borrow_max = opts.borrow_max ? opts.borrow_max : 2;
            stk_loader *loader = loader_open(engine, dataset, &opts);
            stk_batch batches[10], more;
            stk_error err;

            for (uint32_t out = 0; out < borrow_max; out++)
                assert_int_equal(stk_loader_next(loader, &batches[out]), STK_BATCH);
            for (int again = 0; again < 3; again++)
                assert_int_equal(stk_loader_next(loader, &more), STK_E_BORROW);
            assert_int_equal(stk_loader_last_error(loader, &err), 0);
            assert_int_equal(err.code, STK_E_BORROW);
            for (uint32_t out = 0; out < borrow_max; out++)
                check_bytes(set, &batches[out]); /* all at once valid */
            for (uint32_t out = borrow_max; out > 0; out--)
                assert_int_equal(stk_loader_release(loader, &batches[out - 1]), 0);
            const struct course rest = {
                .set = set, .opts = &opts, .epoch_step = borrow_max, .end_epoch = 2};
            (void)follow(loader, &rest);
            assert_int_equal(stk_loader_next(loader, &more), STK_END);
            stk_loader_close(loader);
            stk_dataset_close(dataset);
            stk_engine_close(engine);
        }
}

/* Holds as many batches as it may all the way, giving back in a changing order, with the
 * least staging there may be. */
static void
batches_come_back_in_any_order(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (uint32_t layout = STK_LAYOUT_RAW; layout <= STK_LAYOUT_FIXED; layout++)
            for (uint32_t borrow_max = 1; borrow_max <= 5; borrow_max++) {
                const struct set *set = &records;
                stk_engine *engine = engine_open(*method, "ram:3K");
                stk_dataset *dataset = dataset_open(engine, set);
                uint64_t least = borrow_max < 2 ? 2 : borrow_max;
                stk_loader_opts opts = {STK_LOADER_OPTS_INIT,
                                        .batch_size = 6,
                                        .epochs = 4,
                                        .layout = layout,
                                        .staging_bytes = least * 600,
                                        .borrow_max = borrow_max};
                stk_loader *loader = loader_open(engine, dataset, &opts);
                stk_batch held[5];
                uint32_t n_held = 0;
                uint64_t seed = borrow_max, n_read = 0;
                int rc = STK_BATCH;

                while (rc == STK_BATCH) {
                    if (n_held == borrow_max) {
                        uint32_t out = (uint32_t)(draw(&seed) % n_held);
                        check_bytes(set, &held[out]);
                        assert_int_equal(stk_loader_release(loader, &held[out]), 0);
                        held[out] = held[--n_held];
                    }
                    rc = stk_loader_next(loader, &held[n_held]);
                    if (rc == STK_BATCH)
                        n_read += held[n_held++].count;
                }
                assert_int_equal(rc, STK_END); /* also with batches out */
                assert_int_equal(n_read, 4 * N);
                stk_loader_close(loader);
                stk_dataset_close(dataset);
                stk_engine_close(engine);
            }
}

static void
what_is_not_borrowed_is_not_taken_back(void **state)
{
    stk_engine *engine = engine_open("sync", NULL);
    stk_dataset *dataset = dataset_open(engine, &records);
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 5, .epochs = 2, .borrow_max = 3};
    stk_loader *loader = loader_open(engine, dataset, &opts);
    stk_loader *other = loader_open(engine, dataset, &opts);
    stk_batch batch = {0}, copy, second, foreign;

    (void)state;
    assert_int_equal(stk_loader_release(loader, &batch), -EINVAL);
    assert_int_equal(stk_loader_next(loader, &batch), STK_BATCH);
    assert_int_equal(stk_loader_next(loader, &second), STK_BATCH);
    assert_int_equal(stk_loader_next(other, &foreign), STK_BATCH);
    copy = batch;
    assert_int_equal(stk_loader_release(loader, &foreign), -EINVAL);
    assert_int_equal(stk_loader_release(other, &copy), -EINVAL);
    assert_int_equal(stk_loader_release(loader, &batch), 0);
    assert_int_equal(stk_loader_release(loader, &batch), -EINVAL);
    assert_int_equal(stk_loader_release(loader, &copy), -EINVAL);
    copy.handle = (char *)second.handle + 8;
    assert_int_equal(stk_loader_release(loader, &copy), -EINVAL);
    assert_int_equal(stk_loader_release(loader, &second), 0);
    assert_int_equal(stk_loader_release(loader, NULL), -EINVAL);
    assert_int_equal(stk_loader_release(NULL, &second), -EINVAL);
    assert_int_equal(stk_loader_release(other, &foreign), 0);
    const struct course rest = {.set = &records, .opts = &opts, .epoch_step = 2, .end_epoch = 2};
    (void)follow(loader, &rest);
    stk_loader_close(loader);
    stk_loader_close(other);
    stk_dataset_close(dataset);
    stk_engine_close(engine);
}

/* A batch held over more epochs than statistics are kept of does not spoil a newer
 * epoch's. */
static void
a_late_release_counts_for_its_own_epoch(void **state)
{
    stk_engine *engine = engine_open("sync", "ram:1M");
    stk_dataset *dataset = dataset_open(engine, &records);
    stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = N, .epochs = 70};
    stk_loader *loader = loader_open(engine, dataset, &opts);
    const struct course rest = {.set = &records, .opts = &opts, .epoch = 1, .end_epoch = 66};
    stk_batch batch;

    (void)state;
    assert_int_equal(stk_loader_next(loader, &batch), STK_BATCH);
    (void)follow(loader, &rest);
    assert_int_equal(loader_stats(loader, 64).samples, N);
    assert_int_equal(stk_loader_release(loader, &batch), 0);
    assert_int_equal(loader_stats(loader, 64).samples, N);
    stk_loader_close(loader);
    stk_dataset_close(dataset);
    stk_engine_close(engine);
}

/* ---- decoding ---------------------------------------------------------------------- */

#define TOGETHER 4

struct meeting {
    pthread_mutex_t lock;
    uint32_t n;    /* that decode now */
    uint32_t most; /* of them at a time */
};

/* Stays until so many have met, or for a while. */
static int
meet(void *context, const stk_decode_args *args)
{
    struct meeting *meeting = context;
    bool have_met = false;

    for (int tries = 0; tries < 200 && !have_met; tries++) {
        (void)pthread_mutex_lock(&meeting->lock);
        if (tries == 0 && ++meeting->n > meeting->most)
            meeting->most = meeting->n;
        have_met = meeting->most >= TOGETHER;
        (void)pthread_mutex_unlock(&meeting->lock);
        if (!have_met)
            pause_us(1000);
    }
    (void)pthread_mutex_lock(&meeting->lock);
    meeting->n--;
    (void)pthread_mutex_unlock(&meeting->lock);
    memcpy(args->slot, args->bytes, 1);
    return 0;
}

/* However little a decoder makes of a sample, all workers have one. */
static void
small_slots_keep_all_workers_busy(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        const stk_engine_opts opts = {STK_ENGINE_OPTS_INIT, .io_method = *method,
                                      .workers = TOGETHER};
        struct meeting meeting = {.lock = PTHREAD_MUTEX_INITIALIZER};
        stk_loader_opts with = {STK_LOADER_OPTS_INIT,
                                .batch_size = 8,
                                .epochs = 1,
                                .policy = STK_POLICY_NONE,
                                .layout = STK_LAYOUT_FIXED,
                                .decode = meet,
                                .decode_context = &meeting,
                                .item_bytes = 1};
        stk_engine *engine = engine_open_by(&opts);
        stk_dataset *dataset = dataset_open(engine, &records);
        stk_loader *loader = loader_open(engine, dataset, &with);
        stk_batch batch;

        while (stk_loader_next(loader, &batch) == STK_BATCH)
            assert_int_equal(stk_loader_release(loader, &batch), 0);
        assert_int_equal(meeting.most, TOGETHER);
        stk_loader_close(loader);
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

/* ---- several loaders --------------------------------------------------------------- */

static void
training_and_validation_alternate(void **state)
{
    enum { EPOCHS = 4 };

    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        const stk_order_opts order = {STK_ORDER_OPTS_INIT, .seed = 3};
        const stk_order_opts plain = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL};
        stk_engine *engine = engine_open(*method, "ram:1M");
        stk_dataset *datasets[2] = {dataset_open(engine, &files), dataset_open(engine, &records)};
        stk_loader_opts opts[3] = {
            {STK_LOADER_OPTS_INIT, .batch_size = 8, .epochs = EPOCHS, .ram_bytes = 900 << 10,
             .order = &order},
            {STK_LOADER_OPTS_INIT, .batch_size = 20, .epochs = EPOCHS, .order = &plain},
            {STK_LOADER_OPTS_INIT, .batch_size = 7, .epochs = EPOCHS, .order = &order},
        };
        const struct set *sets[3] = {&files, &records, &files};
        stk_loader *loaders[3];

        for (int at = 0; at < 3; at++)
            loaders[at] = loader_open(engine, datasets[at % 2], &opts[at]);
        loader_refused(engine, datasets[0], &opts[0], STK_E_INFEASIBLE, "ram_bytes 921600");
        for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
            for (int at = 0; at < 3; at++) {
                const struct course course = {
                    .set = sets[at], .opts = &opts[at], .epoch = epoch, .end_epoch = epoch + 1};

                (void)follow(loaders[at], &course);
            }
        stk_loader_close(loaders[0]);
        loaders[0] = loader_open(engine, datasets[0], &opts[0]); /* its RAM is free again */
        for (int at = 0; at < 3; at++)
            stk_loader_close(loaders[at]);
        stk_dataset_close(datasets[0]);
        stk_dataset_close(datasets[1]);
        stk_engine_close(engine);
    }
}

struct reader {
    stk_engine *engine;
    stk_dataset *dataset;
    const struct set *set;
    uint64_t n_samples;
};

static void *
read_all(void *context)
{
    struct reader *reader = context;
    const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 9, .epochs = 5};
    stk_loader *loader;
    stk_batch batch;

    if (stk_loader_open(&loader, reader->engine, reader->dataset, &opts, NULL) != 0)
        return NULL;
    while (stk_loader_next(loader, &batch) == STK_BATCH) {
        for (uint32_t item = 0; item < batch.count; item++)
            reader->n_samples +=
                memcmp(batch.items[item],
                       reader->set->contents + reader->set->offsets[batch.samples[item]],
                       batch.n_bytes[item]) == 0;
        (void)stk_loader_release(loader, &batch);
    }
    stk_loader_close(loader);
    return NULL;
}

static void
threads_use_loaders_of_their_own(void **state)
{
    enum { THREADS = 4 };

    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        stk_engine *engine = engine_open(*method, "ram:1M");
        stk_dataset *dataset = dataset_open(engine, &files);
        struct reader readers[THREADS];
        pthread_t threads[THREADS];

        for (int at = 0; at < THREADS; at++) {
            readers[at] = (struct reader){.engine = engine, .dataset = dataset, .set = &files};
            assert_int_equal(pthread_create(&threads[at], NULL, read_all, &readers[at]), 0);
        }
        for (int at = 0; at < THREADS; at++) {
            assert_int_equal(pthread_join(threads[at], NULL), 0);
            assert_int_equal(readers[at].n_samples, 5 * N);
        }
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

/* ---- closing ----------------------------------------------------------------------- */

static int
slow_decode(void *context, const stk_decode_args *args)
{
    (void)context;
    memset(args->slot, 7, args->item_bytes);
    pause_us(200);
    return 0;
}

/* At random moments of reading, decoding, seeking and holding batches. */
static void
a_loader_can_be_closed_at_any_moment(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        const stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT, .io_method = *method,
                                             .tiers = "ram:200K",  .shape = "rlat=1ms",
                                             .workers = 2,         .io_threads = 4};
        stk_engine *engine = engine_open_by(&engine_opts);
        stk_dataset *dataset = dataset_open(engine, &files);
        uint64_t seed = 4;

        for (int round = 0; round < 100; round++) {
            stk_loader_opts opts = {STK_LOADER_OPTS_INIT,
                                    .batch_size = 1 + (uint32_t)(draw(&seed) % 30),
                                    .bad_sample = 1 + (uint32_t)(draw(&seed) % 2)};
            if (draw(&seed) % 2) {
                opts.decode = slow_decode;
                opts.item_bytes = 100;
            }
            stk_loader *loader = loader_open(engine, dataset, &opts);
            stk_batch batch;

            if (draw(&seed) % 4 == 0)
                assert_int_equal(stk_loader_seek(loader, draw(&seed) % 3, 1), 0);
            for (uint64_t n = draw(&seed) % 4; n > 0; n--) {
                assert_int_equal(stk_loader_next(loader, &batch), STK_BATCH);
                if (n > 1 || draw(&seed) % 2)
                    assert_int_equal(stk_loader_release(loader, &batch), 0);
            }
            pause_us((long)(draw(&seed) % 3000));
            stk_loader_close(loader);
        }
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

static void
nothing_can_be_closed(void **state)
{
    (void)state;
    stk_loader_close(NULL);
    stk_dataset_close(NULL);
    stk_engine_close(NULL);
    stk_loader_interrupt(NULL);
}

/* ---- interrupting ------------------------------------------------------------------ */

static stk_loader *interrupted;

static void
on_signal(int number)
{
    (void)number;
    stk_loader_interrupt(interrupted);
}

static void *
interrupt_soon(void *context)
{
    (void)context;
    pause_us(20000);
    stk_loader_interrupt(interrupted);
    return NULL;
}

/* From another thread, from a handler, and before the wait begins. A list that is not
 * pushed to never has a batch; a read that takes long makes next wait. */
static void
a_wait_can_be_interrupted(void **state)
{
    struct sigaction action = {.sa_handler = on_signal};

    (void)state;
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    for (const char *const *method = methods(); *method; method++) {
        const stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT, .io_method = *method,
                                             .shape = "rlat=400ms", .workers = 1};
        stk_engine *engine = engine_open_by(&engine_opts);
        stk_dataset *dataset = dataset_open(engine, &records);
        const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 10, .epochs = 1};
        stk_batch batch;

        for (int way = 0; way < 3; way++) {
            stk_loader *loader = loader_open(engine, dataset, &opts);
            const struct itimerval soon = {.it_value = {.tv_usec = 20000}};
            pthread_t thread = pthread_self();

            interrupted = loader;
            if (way == 0) {
                assert_int_equal(pthread_create(&thread, NULL, interrupt_soon, NULL), 0);
            } else if (way == 1) {
                assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
                assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
            } else {
                stk_loader_interrupt(loader);
            }
            assert_int_equal(stk_loader_next(loader, &batch), -EINTR);
            if (way == 0)
                assert_int_equal(pthread_join(thread, NULL), 0);
            const struct course whole = {.set = &records, .opts = &opts, .end_epoch = 1};
            (void)follow(loader, &whole); /* nothing was lost */
            stk_loader_close(loader);
        }
        assert_true(signal(SIGALRM, SIG_DFL) != SIG_ERR);
        (void)watchdog(NULL);
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

/* ---- signals ----------------------------------------------------------------------- */

/* Reads what a thread blocks. Returns false of one that has ended: the kernel lists a thread
 * for a moment after it was joined. */
static bool
read_blocked(const char *tid, unsigned long long *ret_blocked)
{
    char path[300], line[200];
    bool is_told = false;

    (void)snprintf(path, sizeof(path), "/proc/self/task/%s/status", tid);
    FILE *file = fopen(path, "re");
    if (!file) {
        assert_int_equal(errno, ENOENT);
        return false;
    }
    while (!is_told && fgets(line, sizeof(line), file))
        is_told = sscanf(line, "SigBlk: %llx", ret_blocked) == 1;
    assert_int_equal(fclose(file), 0);
    return is_told;
}

/* Signals that can be blocked and are not. */
static uint64_t
unblocked_of(unsigned long long blocked)
{
    /* SIGKILL and SIGSTOP cannot be blocked; 32 and 33 are the C library's.
     * ThreadSanitizer has a thread of its own that leaves SIGSYS be. */
    return ~(uint64_t)blocked &
           ~(UINT64_C(1) << 8 | UINT64_C(1) << 18 | UINT64_C(1) << 30 | UINT64_C(3) << 31);
}

static void
threads_of_the_library_block_all_signals(void **state)
{
    (void)state;
    for (const char *const *method = methods(); *method; method++) {
        stk_engine *engine = engine_open(*method, "ram:1M");
        stk_dataset *dataset = dataset_open(engine, &files);
        const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 10};
        stk_loader *loader = loader_open(engine, dataset, &opts);
        char self[16];
        uint32_t n_threads = 0;
        DIR *tasks = opendir("/proc/self/task");

        assert_non_null(tasks);
        (void)snprintf(self, sizeof(self), "%d", (int)getpid());
        for (struct dirent *entry = readdir(tasks); entry; entry = readdir(tasks)) {
            unsigned long long blocked;

            if (entry->d_name[0] == '.' || strcmp(entry->d_name, self) == 0)
                continue;
            if (!read_blocked(entry->d_name, &blocked))
                continue;
            assert_int_equal(unblocked_of(blocked), 0);
            n_threads++;
        }
        assert_int_equal(closedir(tasks), 0);
        assert_true(n_threads >= 3);
        stk_loader_close(loader);
        stk_dataset_close(dataset);
        stk_engine_close(engine);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_batch_too_many_is_an_error),
        cmocka_unit_test(batches_come_back_in_any_order),
        cmocka_unit_test(what_is_not_borrowed_is_not_taken_back),
        cmocka_unit_test(a_late_release_counts_for_its_own_epoch),
        cmocka_unit_test(small_slots_keep_all_workers_busy),
        cmocka_unit_test(training_and_validation_alternate),
        cmocka_unit_test(threads_use_loaders_of_their_own),
        cmocka_unit_test(a_loader_can_be_closed_at_any_moment),
        cmocka_unit_test(nothing_can_be_closed),
        cmocka_unit_test(a_wait_can_be_interrupted),
        cmocka_unit_test(threads_of_the_library_block_all_signals),
    };

    return cmocka_run_group_tests(tests, make_sets, remove_sets);
}
