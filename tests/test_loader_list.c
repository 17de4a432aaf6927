/* SPDX-License-Identifier: Apache-2.0 */
/* Ids that the caller pushes: they come as pushed, cut where epochs end, up to the
 * limits. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader_util.h"

#define N 100
#define LIST_MAX (UINT64_C(1) << 20)
#define ENDS_MAX 65536u

static struct set set;
static const stk_order_opts list = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_LIST};

static int
make_set(void **state)
{
    (void)watchdog(state);
    set_make(&set, SET_RECORDS, N);
    return 0;
}

static int
remove_set(void **state)
{
    (void)state;
    set_remove(&set);
    return 0;
}

struct fixture {
    stk_engine *engine;
    stk_dataset *dataset;
    stk_loader *loader;
};

static struct fixture
open_list(const char *method, const stk_loader_opts *opts)
{
    struct fixture fixture;

    fixture.engine = engine_open(method, "ram:1M");
    fixture.dataset = dataset_open(fixture.engine, &set);
    fixture.loader = loader_open(fixture.engine, fixture.dataset, opts);
    return fixture;
}

static void
close_list(struct fixture *fixture)
{
    stk_loader_close(fixture->loader);
    stk_dataset_close(fixture->dataset);
    stk_engine_close(fixture->engine);
}

static void
expect(stk_loader *loader, uint64_t epoch, uint64_t epoch_step, const uint64_t *ids, uint32_t n)
{
    stk_batch batch;

    assert_int_equal(stk_loader_next(loader, &batch), STK_BATCH);
    assert_int_equal(batch.epoch, epoch);
    assert_int_equal(batch.epoch_step, epoch_step);
    assert_int_equal(batch.count, n);
    assert_memory_equal(batch.samples, ids, n * sizeof(*ids));
    check_bytes(&set, &batch);
    assert_int_equal(stk_loader_release(loader, &batch), 0);
}

/* Pushes until it is refused for good: staging takes some of what waits meanwhile.
 * Returns how many calls succeeded. */
static uint64_t
push_until_full(stk_loader *loader, const uint64_t *ids, uint64_t n_ids, int end_epoch)
{
    uint64_t n_pushed = 0;

    for (uint32_t refused = 0; refused < 50;) {
        int rc = stk_loader_push(loader, ids + n_pushed % n_ids, 1, end_epoch, 0);

        assert_true(rc == 0 || rc == -ENOSPC);
        refused = rc == 0 ? 0 : refused + 1;
        n_pushed += rc == 0 ? 1 : 0;
    }
    return n_pushed;
}

static void
pushed_ids_come_as_pushed(void **state)
{
    static const uint64_t ids[] = {3, 3, 99, 0, 7, 7, 7, 1, 50, 49, 48};

    (void)state;
    for (const char *const *method = methods(); *method; method++)
        for (uint32_t drop_last = 0; drop_last < 2; drop_last++)
            for (uint32_t policy = STK_POLICY_NONE; policy <= STK_POLICY_NEXT_USE; policy++) {
                const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 4,
                                              .drop_last = drop_last, .policy = policy,
                                              .order = &list};
                struct fixture fixture = open_list(*method, &opts);
                stk_loader *loader = fixture.loader;
                stk_batch batch;

                assert_int_equal(stk_loader_next(loader, &batch), -EAGAIN);
                assert_int_equal(stk_loader_push(loader, ids, 3, 0, 0), 0);
                assert_int_equal(stk_loader_next(loader, &batch), -EAGAIN);
                assert_int_equal(stk_loader_push(loader, NULL, 0, 0, 0), 0);
                assert_int_equal(stk_loader_next(loader, &batch), -EAGAIN);
                assert_int_equal(stk_loader_push(loader, ids + 3, 8, 0, 0), 0);
                expect(loader, 0, 0, ids, 4);
                expect(loader, 0, 1, ids + 4, 4);
                assert_int_equal(stk_loader_next(loader, &batch), -EAGAIN);
                assert_int_equal(stk_loader_push(loader, NULL, 0, 1, 0), 0);
                if (!drop_last)
                    expect(loader, 0, 2, ids + 8, 3);
                assert_int_equal(stk_loader_next(loader, &batch), -EAGAIN);
                assert_int_equal(stk_loader_push(loader, ids, 8, 1, 1), 0);
                expect(loader, 1, 0, ids, 4);
                expect(loader, 1, 1, ids + 4, 4);
                assert_int_equal(stk_loader_next(loader, &batch), STK_END);
                assert_int_equal(stk_loader_next(loader, &batch), STK_END);
                assert_int_equal(stk_loader_push(loader, ids, 1, 0, 0), -EINVAL);
                assert_int_equal(stk_loader_push(loader, NULL, 0, 0, 1), -EINVAL);
                close_list(&fixture);
            }
}

static void
bad_ids_are_refused_whole(void **state)
{
    static const uint64_t ids[] = {1, 2, N, 3};
    const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 2, .order = &list};
    struct fixture fixture = open_list("sync", &opts);
    size_t n_bytes;
    char position[STK_LOADER_STATE_SIZE];
    stk_batch batch;

    (void)state;
    assert_int_equal(stk_loader_push(fixture.loader, ids, 4, 0, 0), -ERANGE);
    assert_int_equal(stk_loader_push(fixture.loader, NULL, 4, 0, 0), -EINVAL);
    assert_int_equal(stk_loader_next(fixture.loader, &batch), -EAGAIN);
    assert_int_equal(stk_loader_seek(fixture.loader, 0, 0), -ENOTSUP);
    assert_int_equal(stk_loader_save_state(fixture.loader, position, &n_bytes), -ENOTSUP);
    assert_int_equal(stk_loader_restore_state(fixture.loader, position, 72, NULL), -ENOTSUP);
    close_list(&fixture);

    const stk_loader_opts other = {STK_LOADER_OPTS_INIT, .batch_size = 2, .epochs = 1};
    fixture = open_list("sync", &other);
    assert_int_equal(stk_loader_push(fixture.loader, ids, 1, 0, 0), -EINVAL);
    close_list(&fixture);
}

/* A loader that can stage two batches of one: all but a few of what is pushed waits. */
static void
no_more_than_a_million_ids_wait(void **state)
{
    static uint64_t ids[LIST_MAX];

    (void)state;
    for (uint64_t at = 0; at < LIST_MAX; at++)
        ids[at] = at * 7 % N;
    for (const char *const *method = methods(); *method; method++) {
        const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 4096,
                                      .staging_batches = 2, .order = &list};
        struct fixture fixture = open_list(*method, &opts);
        uint64_t n_read = 0, n_pushed = LIST_MAX;
        stk_batch batch;

        assert_int_equal(stk_loader_push(fixture.loader, ids, LIST_MAX, 0, 0), 0);
        n_pushed += push_until_full(fixture.loader, ids, LIST_MAX, 0);
        assert_true(n_pushed <= LIST_MAX + 2 * 4096);
        assert_int_equal(stk_loader_push(fixture.loader, ids + n_pushed % LIST_MAX, 1, 1, 1),
                         -ENOSPC);
        assert_int_equal(stk_loader_push(fixture.loader, NULL, 0, 1, 1), 0);
        while (n_read < n_pushed) {
            assert_int_equal(stk_loader_next(fixture.loader, &batch), STK_BATCH);
            for (uint32_t item = 0; item < batch.count; item++, n_read++)
                assert_int_equal(batch.samples[item], ids[n_read % LIST_MAX]);
            assert_int_equal(stk_loader_release(fixture.loader, &batch), 0);
        }
        assert_int_equal(stk_loader_next(fixture.loader, &batch), STK_END);
        close_list(&fixture);
    }
}

/* The ring of epoch ends is bounded; an end that does not fit is refused, never lost. */
static void
no_more_ends_than_fit(void **state)
{
    const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = 1, .staging_batches = 2,
                                  .order = &list};
    uint64_t id = 5, n_read = 0;
    struct fixture fixture = open_list("sync", &opts);
    stk_batch batch;

    (void)state;
    uint64_t n_epochs = push_until_full(fixture.loader, &id, 1, 1);
    assert_true(n_epochs >= ENDS_MAX && n_epochs <= ENDS_MAX + 3);
    assert_int_equal(stk_loader_push(fixture.loader, NULL, 0, 1, 0), -ENOSPC);
    assert_int_equal(stk_loader_push(fixture.loader, NULL, 0, 0, 1), -ENOSPC);
    for (; n_read < n_epochs; n_read++)
        expect(fixture.loader, n_read, 0, &id, 1);
    assert_int_equal(stk_loader_next(fixture.loader, &batch), -EAGAIN);
    assert_int_equal(stk_loader_push(fixture.loader, NULL, 0, 0, 1), 0);
    assert_int_equal(stk_loader_next(fixture.loader, &batch), STK_END);
    close_list(&fixture);
}

/* Pushing all that fits, again and again: what was read makes room at once. */
static void
full_pushes_alternate_with_reading(void **state)
{
    enum { ROUNDS = 5, CHUNK = 1 << 20, BATCH = 1 << 17 };
    static uint64_t ids[CHUNK];
    const stk_loader_opts opts = {STK_LOADER_OPTS_INIT, .batch_size = BATCH, .order = &list};
    struct fixture fixture = open_list("sync", &opts);
    stk_batch batch;

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        assert_int_equal(stk_loader_push(fixture.loader, ids, CHUNK, 0, 0), 0);
        for (int step = 0; step < CHUNK / BATCH; step++) {
            assert_int_equal(stk_loader_next(fixture.loader, &batch), STK_BATCH);
            assert_int_equal(stk_loader_release(fixture.loader, &batch), 0);
        }
        assert_int_equal(stk_loader_next(fixture.loader, &batch), -EAGAIN);
    }
    close_list(&fixture);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushed_ids_come_as_pushed),
        cmocka_unit_test(bad_ids_are_refused_whole),
        cmocka_unit_test(no_more_than_a_million_ids_wait),
        cmocka_unit_test(no_more_ends_than_fit),
        cmocka_unit_test(full_pushes_alternate_with_reading),
    };

    return cmocka_run_group_tests(tests, make_set, remove_set);
}
