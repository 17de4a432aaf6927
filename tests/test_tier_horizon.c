/* SPDX-License-Identifier: Apache-2.0 */
/* The horizon against the ids themselves: samples at positions, cuts into batches, and
 * next uses found by looking through everything. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tier/horizon.h"

#define N 40
#define EPOCHS 6
#define BATCH 7

static struct sti_pool *pool;

static void
ignore_wake(void *context)
{
    (void)context;
}

static void
ignore_next_use(void *context, uint64_t sample, uint64_t position)
{
    (void)context;
    assert_true(sample < N);
    assert_true(position != UINT64_MAX);
}

struct fixture {
    struct sti_catalog *catalog;
    struct sti_horizon *horizon;
    struct sti_horizon_opts opts;
};

static void
open_fixture(struct fixture *fixture, const stk_order_opts *order, bool drop_last)
{
    stk_order_opts opts = *order;

    opts.n = N;
    assert_int_equal(sti_catalog_new(&fixture->catalog, N, N), 0);
    fixture->opts = (struct sti_horizon_opts){.batch_size = BATCH,
                                              .drop_last = drop_last,
                                              .epochs = EPOCHS,
                                              .held_epochs = 3,
                                              .window_positions = 4 * BATCH,
                                              .wants_next_use = true,
                                              .pool = pool,
                                              .catalog = fixture->catalog,
                                              .wake = ignore_wake,
                                              .on_next_use = ignore_next_use};
    assert_int_equal(sti_order_init(&fixture->opts.order, &opts, NULL), 0);
    assert_int_equal(sti_horizon_new(&fixture->horizon, &fixture->opts, NULL), 0);
}

static void
close_fixture(struct fixture *fixture)
{
    sti_horizon_free(fixture->horizon);
    sti_catalog_free(fixture->catalog);
}

/* Every id of the run from (epoch, idx) on, in positions' order. Returns how many. */
static uint64_t
list_ids(const struct fixture *fixture, uint64_t epoch, uint64_t idx, uint64_t *ids)
{
    const struct sti_order *order = &fixture->opts.order;
    uint64_t length = sti_horizon_epoch_length(fixture->horizon), n = 0;
    void *epoch_ids = calloc(sti_order_length(order) + 1, sti_order_id_bytes(order));
    void *scratch = calloc(1, sti_order_scratch_bytes(order) + 1);

    assert_true(epoch_ids && scratch);
    for (; epoch < EPOCHS; epoch++, idx = 0) {
        sti_order_epoch(order, epoch, NULL, epoch_ids, scratch);
        for (; idx < length; idx++)
            ids[n++] = sti_order_id(order, epoch_ids, idx);
    }
    free(epoch_ids);
    free(scratch);
    return n;
}

/* What is said to be known can be asked for, and no more than there is. */
static void
check_known(const struct fixture *fixture, const struct sti_batch_cut *cut, uint64_t base,
            const uint64_t *ids, uint64_t n)
{
    struct sti_horizon *horizon = fixture->horizon;
    uint64_t first = cut->first_position;
    uint64_t end = sti_horizon_known_end(horizon, first);

    assert_in_range(end, first + cut->count, base + n);
    for (uint64_t at = first; at < end; at++)
        assert_int_equal(sti_horizon_sample(horizon, at), ids[at - base]);
    assert_int_equal(sti_horizon_epoch_end(horizon, first),
                     first - cut->epoch_step * BATCH + sti_horizon_epoch_length(horizon));
}

/* Walks from a start to the end, batch by batch, checking samples and next uses. */
static void
walk(struct fixture *fixture, uint64_t epoch, uint64_t idx)
{
    static uint64_t ids[EPOCHS * 10 * N];
    struct sti_horizon *horizon = fixture->horizon;
    uint64_t base = sti_horizon_start(horizon, epoch, idx);
    uint64_t n = list_ids(fixture, epoch, idx, ids);
    uint64_t length = sti_horizon_epoch_length(horizon);
    uint64_t position = base, next;
    struct sti_batch_cut cut;
    enum sti_cut kind;

    for (;;) {
        while (sti_horizon_step(horizon, position, position))
            ;
        kind = sti_horizon_cut(horizon, position, &cut);
        if (kind == STI_CUT_END)
            break;
        if (kind == STI_CUT_NOT_YET || sti_horizon_is_catching_up(horizon, position, true)) {
            (void)sched_yield();
            continue;
        }
        assert_int_equal(cut.first_position, position);
        assert_int_equal(cut.epoch, epoch + (position - base + idx) / length);
        assert_int_equal(cut.epoch_step, (position - base + idx) % length / BATCH);
        for (uint64_t at = position; at < position + cut.count; at++) {
            uint64_t offset = at - base, behind = offset + 1;

            assert_int_equal(sti_horizon_sample(horizon, at), ids[offset]);
            while (behind < n && ids[behind] != ids[offset])
                behind++;
            enum sti_next_use use = sti_horizon_next_use(horizon, at, &next);
            if (use == STI_NEXT_USE_KNOWN)
                assert_int_equal(next, base + behind);
            else if (use == STI_NEXT_USE_NEVER)
                assert_int_equal(behind, n);
            else /* only what lies beyond the epochs held may not be known */
                assert_true(behind == n || base + behind >= at + length);
        }
        check_known(fixture, &cut, base, ids, n);
        position += cut.count;
        assert_int_equal(cut.is_last, (position - base + idx) % length == 0);
    }
    assert_int_equal(position, base + n);
}

static const stk_order_opts orders[] = {
    {STK_ORDER_OPTS_INIT, .seed = 3},
    {STK_ORDER_OPTS_INIT, .seed = 3, .world = 3, .rank = 1},
    {STK_ORDER_OPTS_INIT, .seed = 3, .world = 90, .rank = 77},
    {STK_ORDER_OPTS_INIT, .sampler = STK_SAMPLER_GENERATOR, .seed = 1, .num_samples = 100,
     .replacement = 1},
    {STK_ORDER_OPTS_INIT, .sampler = STK_SAMPLER_DATALOADER, .num_samples = 90},
    {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_KEYED},
    {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_SEQUENTIAL, .world = 2},
};

static void
positions_are_what_the_order_says(void **state)
{
    (void)state;
    for (size_t at = 0; at < sizeof(orders) / sizeof(orders[0]); at++)
        for (uint32_t drop_last = 0; drop_last < 2; drop_last++) {
            struct fixture fixture;

            if (drop_last && orders[at].world == 90)
                continue; /* no epoch has a batch there */
            open_fixture(&fixture, &orders[at], drop_last);
            walk(&fixture, 0, 0);
            close_fixture(&fixture);
        }
}

static void
a_jump_starts_anew(void **state)
{
    (void)state;
    for (size_t at = 0; at < sizeof(orders) / sizeof(orders[0]); at++) {
        struct fixture fixture;

        open_fixture(&fixture, &orders[at], false);
        walk(&fixture, 0, 0);
        walk(&fixture, 4, 0);
        if (sti_horizon_batches(fixture.horizon) > 1)
            walk(&fixture, 1, BATCH);
        walk(&fixture, 0, 0);
        close_fixture(&fixture);
    }
}

/* Lists: next uses among what was pushed, epochs that end, the ring going round. */
static void
pushed_ids_are_linked(void **state)
{
    enum { CHUNK = 1000, CHUNKS = 3000 }; /* more than the ring of 2^21 positions */
    static uint64_t ids[2 * CHUNK];
    const stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_LIST};
    struct fixture fixture;
    struct sti_batch_cut cut;
    uint64_t position, base, next;

    (void)state;
    open_fixture(&fixture, &order, false);
    base = position = sti_horizon_start(fixture.horizon, 0, 0);
    for (uint64_t at = 0; at < 2 * CHUNK; at++)
        ids[at] = at * at % N;
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        const struct sti_list_part part = {.ids = ids, .n = CHUNK, .is_epoch_end = true};

        assert_int_equal(sti_horizon_push(fixture.horizon, position, &part), 0);
        (void)sti_horizon_step(fixture.horizon, position, position);
        for (uint64_t left = CHUNK; left > 0; left -= cut.count) {
            assert_int_equal(sti_horizon_cut(fixture.horizon, position, &cut), STI_CUT_BATCH);
            assert_int_equal(cut.epoch, chunk);
            assert_int_equal(cut.is_last, left == cut.count);
            uint64_t offset = (position - base) % CHUNK, behind = offset + 1;
            assert_int_equal(sti_horizon_sample(fixture.horizon, position), ids[offset]);
            while (behind < CHUNK && ids[behind] != ids[offset])
                behind++;
            if (behind < CHUNK) {
                assert_int_equal(sti_horizon_next_use(fixture.horizon, position, &next),
                                 STI_NEXT_USE_KNOWN);
                assert_int_equal(next, position + behind - offset);
            }
            position += cut.count;
        }
        assert_int_equal(sti_horizon_cut(fixture.horizon, position, &cut), STI_CUT_NOT_YET);
    }
    const struct sti_list_part end = {.is_run_end = true};
    assert_int_equal(sti_horizon_push(fixture.horizon, position, &end), 0);
    assert_int_equal(sti_horizon_cut(fixture.horizon, position, &cut), STI_CUT_END);
    assert_int_equal(sti_horizon_push(fixture.horizon, position, &end), -EINVAL);
    close_fixture(&fixture);
}

/* Without memory for an epoch the horizon says that it wants to be asked again. */
static void
a_missing_epoch_is_asked_for_again(void **state)
{
    struct fixture fixture;
    struct sti_batch_cut cut;

    (void)state;
    open_fixture(&fixture, &orders[0], false);
    (void)sti_horizon_start(fixture.horizon, 0, 0);
    sti_mem_fail_at(1, 1);
    (void)sti_horizon_step(fixture.horizon, 0, 0);
    assert_true(sti_horizon_is_short_of_memory(fixture.horizon));
    sti_mem_fail_at(0, 0);
    do {
        (void)sti_horizon_step(fixture.horizon, 0, 0);
        assert_false(sti_horizon_is_short_of_memory(fixture.horizon));
    } while (sti_horizon_cut(fixture.horizon, 0, &cut) == STI_CUT_NOT_YET);
    close_fixture(&fixture);
}

static int
open_pool(void **state)
{
    (void)state;
    return sti_pool_open(&pool, 2, 0);
}

static int
close_pool(void **state)
{
    (void)state;
    sti_pool_close(pool);
    return 0;
}

/* A table is refused by its length, whatever makes it so long. It takes its memory when it
 * is made, not before. */
static void
a_table_has_a_limit(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 4; round++) {
        bool is_beyond = round % 2 == 1;
        const stk_order_opts order = {STK_ORDER_OPTS_INIT, .n = N, .sampler = STK_SAMPLER_GENERATOR,
                                      .replacement = round / 2,
                                      .num_samples = STI_CATALOG_TABLE_MAX + is_beyond};
        struct fixture fixture;
        struct sti_horizon *horizon = NULL;
        stk_error err = {.message = ""};

        open_fixture(&fixture, &(stk_order_opts){STK_ORDER_OPTS_INIT}, false);
        assert_int_equal(sti_order_init(&fixture.opts.order, &order, &err), 0);
        int rc = sti_horizon_new(&horizon, &fixture.opts, &err);
        assert_int_equal(rc, is_beyond ? STK_E_INFEASIBLE : 0);
        if (is_beyond)
            assert_non_null(strstr(err.message, "1073741825 samples on this rank is more than"));
        sti_horizon_free(horizon);
        close_fixture(&fixture);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions_are_what_the_order_says),
        cmocka_unit_test(a_jump_starts_anew),
        cmocka_unit_test(pushed_ids_are_linked),
        cmocka_unit_test(a_missing_epoch_is_asked_for_again),
        cmocka_unit_test(a_table_has_a_limit),
    };

    return cmocka_run_group_tests(tests, open_pool, close_pool);
}
