/* SPDX-License-Identifier: Apache-2.0 */
/* Staging: batches come in order whatever is ready first; waits end when they must; only
 * what is borrowed comes back. The test plays the loop. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tier/staging.h"

#define RECORDS 5
#define BATCH 3

static uint32_t n_wakes;
static struct sti_pool *pool;

static void
count_wake(void *context)
{
    (void)context;
    (void)__atomic_add_fetch(&n_wakes, 1, __ATOMIC_RELAXED);
}

static void
open_staging(struct sti_staging *staging, uint64_t slot_bytes)
{
    const struct sti_staging_opts opts = {.n_records = RECORDS,
                                          .batch_size = BATCH,
                                          .slot_bytes = slot_bytes,
                                          .pool = pool,
                                          .wake = count_wake};

    assert_int_equal(sti_staging_init(staging, &opts), 0);
}

/* The loop's part: a record of a step begins to be filled. */
static struct sti_record *
begin(struct sti_staging *staging, uint64_t step)
{
    struct sti_record *record = sti_staging_take_free(staging);

    assert_non_null(record);
    record->cut = (struct sti_batch_cut){.first_position = step * BATCH,
                                         .epoch = step / 4,
                                         .epoch_step = step % 4,
                                         .step = step,
                                         .count = BATCH};
    record->n_pending = BATCH;
    sti_record_list_push(&staging->filling, record);
    return record;
}

static void
batches_come_in_order(void **state)
{
    struct sti_staging staging;
    struct sti_record *filled[RECORDS], *got;
    uint64_t position;

    (void)state;
    open_staging(&staging, 0);
    for (uint64_t step = 0; step < RECORDS; step++)
        filled[step] = begin(&staging, step);
    assert_null(sti_record_list_pop(&staging.free));
    for (int at = RECORDS - 1; at > 0; at--) { /* the last ones first */
        filled[at]->n_pending = 0;
        sti_staging_publish(&staging);
        assert_int_equal(sti_staging_ready(&staging), 0);
    }
    filled[0]->n_pending = 0;
    sti_staging_publish(&staging);
    assert_int_equal(sti_staging_ready(&staging), RECORDS);
    for (int at = 0; at < RECORDS; at++) {
        assert_int_equal(sti_staging_next(&staging, UINT64_MAX, &got), STK_BATCH);
        assert_ptr_equal(got, filled[at]);
    }
    for (int at = RECORDS - 1; at >= 0; at--) {
        assert_int_equal(sti_staging_return(&staging, filled[at]), 0);
        assert_int_equal(sti_staging_return(&staging, filled[at]), -EINVAL);
    }
    assert_int_equal(sti_staging_return(&staging, NULL), -EINVAL);
    assert_int_equal(sti_staging_return(&staging, &staging), -EINVAL);
    assert_int_equal(sti_staging_return(&staging, filled[0] + 1), -EINVAL);
    got = sti_staging_take_returned(&staging, &position);
    assert_ptr_equal(got, filled[RECORDS - 1]);
    assert_int_equal(position, RECORDS * BATCH);
    assert_null(sti_staging_take_returned(&staging, &position));
    assert_int_equal(staging.run.batches, RECORDS);
    assert_int_equal(staging.epochs[0].batches, 4);
    assert_int_equal(staging.epochs[1].batches, 1);
    sti_staging_fini(&staging);
}

/* Arrays of a record do not overlap, neither do those of two records. */
static void
records_have_places_of_their_own(void **state)
{
    struct sti_staging staging;

    (void)state;
    for (uint64_t slot_bytes = 0; slot_bytes < 20; slot_bytes += 9) {
        open_staging(&staging, slot_bytes);
        for (uint32_t at = 0; at < RECORDS; at++) {
            struct sti_record *record = &staging.records[at];

            for (uint32_t item = 0; item < BATCH; item++) {
                record->samples[item] = at * 1000 + item;
                record->labels[item] = -(int64_t)at - item;
                record->items[item] = record;
                record->n_bytes[item] = at * 77 + item;
                record->next_use[item] = at * 13 + item;
                record->codes[item] = (int32_t)at;
                record->arrived[item] = at + item;
                record->states[item] = (uint8_t)(at + 50);
                record->tiers[item] = (uint8_t)(at + 100);
            }
            if (slot_bytes > 0)
                memset(record->slots, (int)at, BATCH * slot_bytes);
        }
        for (uint32_t at = 0; at < RECORDS; at++) {
            const struct sti_record *record = &staging.records[at];

            for (uint32_t item = 0; item < BATCH; item++) {
                assert_int_equal(record->samples[item], at * 1000 + item);
                assert_true(record->labels[item] == -(int64_t)at - item);
                assert_ptr_equal(record->items[item], record);
                assert_int_equal(record->n_bytes[item], at * 77 + item);
                assert_int_equal(record->next_use[item], at * 13 + item);
                assert_int_equal(record->codes[item], at);
                assert_int_equal(record->arrived[item], at + item);
                assert_int_equal(record->states[item], at + 50);
                assert_int_equal(record->tiers[item], at + 100);
            }
            for (uint64_t byte = 0; byte < BATCH * slot_bytes; byte++)
                assert_int_equal(record->slots[byte], at);
        }
        sti_staging_fini(&staging);
    }
}

static void
nothing_to_come_is_said(void **state)
{
    struct sti_staging staging;
    struct sti_record *got, *record;

    (void)state;
    open_staging(&staging, 0);
    sti_staging_set_idle(&staging, -EAGAIN);
    assert_int_equal(sti_staging_next(&staging, UINT64_MAX, &got), -EAGAIN);
    sti_staging_set_idle(&staging, -ENOMEM);
    assert_int_equal(sti_staging_next(&staging, UINT64_MAX, &got), -ENOMEM);
    sti_staging_set_idle(&staging, STI_STAGING_BUSY);
    assert_int_equal(sti_staging_next(&staging, 0, &got), -ETIMEDOUT);
    sti_staging_set_idle(&staging, STK_END);
    assert_int_equal(sti_staging_next(&staging, UINT64_MAX, &got), STK_END);
    record = begin(&staging, 0);
    record->n_pending = 0;
    sti_staging_publish(&staging);
    assert_int_equal(sti_staging_next(&staging, UINT64_MAX, &got),
                     STK_BATCH); /* what is ready comes first */
    assert_int_equal(sti_staging_next(&staging, UINT64_MAX, &got), STK_END);
    sti_staging_interrupt(&staging);
    sti_staging_interrupt(&staging);
    assert_int_equal(sti_staging_next(&staging, UINT64_MAX, &got), -EINTR); /* once */
    assert_int_equal(sti_staging_next(&staging, UINT64_MAX, &got), STK_END);
    sti_staging_fini(&staging);
}

/* The loop is woken by returns only when it asked for them, and once. */
static void
returns_wake_when_wanted(void **state)
{
    struct sti_staging staging;
    struct sti_record *got;

    (void)state;
    open_staging(&staging, 0);
    for (uint64_t step = 0; step < RECORDS; step++)
        begin(&staging, step)->n_pending = 0;
    sti_staging_publish(&staging);
    n_wakes = 0;
    assert_int_equal(sti_staging_next(&staging, UINT64_MAX, &got), STK_BATCH);
    assert_int_equal(sti_staging_return(&staging, got), 0);
    assert_int_equal(n_wakes, 0);
    sti_staging_want_returns(&staging); /* one is there already */
    assert_int_equal(n_wakes, 1);
    assert_int_equal(sti_staging_next(&staging, UINT64_MAX, &got), STK_BATCH);
    assert_int_equal(sti_staging_return(&staging, got), 0);
    assert_int_equal(n_wakes, 2);
    assert_int_equal(sti_staging_next(&staging, UINT64_MAX, &got), STK_BATCH);
    assert_int_equal(sti_staging_return(&staging, got), 0);
    assert_int_equal(n_wakes, 2);
    sti_staging_fini(&staging);
}

/* ---- waiting ----------------------------------------------------------------------- */

static void *
play_loop(void *context)
{
    struct sti_staging *staging = context;
    const struct timespec soon = {.tv_nsec = 20000000};
    uint64_t epoch, idx;

    (void)nanosleep(&soon, NULL);
    begin(staging, 0)->n_pending = 0;
    sti_staging_publish(staging);
    while (sti_staging_pending_command(staging, &epoch, &idx) == STI_COMMAND_NONE)
        (void)nanosleep(&soon, NULL);
    if (epoch == 3 && idx == 9)
        sti_staging_command_done(staging);
    (void)nanosleep(&soon, NULL);
    sti_staging_set_idle(staging, STK_END);
    return NULL;
}

static void
waits_end_with_what_they_wait_for(void **state)
{
    struct sti_staging staging;
    struct sti_record *got;
    pthread_t loop;

    (void)state;
    open_staging(&staging, 0);
    assert_int_equal(pthread_create(&loop, NULL, play_loop, &staging), 0);
    assert_int_equal(sti_staging_next(&staging, UINT64_MAX, &got), STK_BATCH);
    assert_int_equal(sti_staging_return(&staging, got), 0);
    sti_staging_command(&staging, STI_COMMAND_SEEK, 3, 9);
    assert_int_equal(sti_staging_next(&staging, UINT64_MAX, &got), STK_END);
    assert_int_equal(pthread_join(loop, NULL), 0);
    sti_staging_fini(&staging);
}

static void
the_ledger_is_bounded(void **state)
{
    struct sti_staging staging;
    stk_replacement replacement = {.reason = -5};

    (void)state;
    open_staging(&staging, 0);
    for (uint64_t at = 0; at < STI_LEDGER_MAX + 10; at++) {
        replacement.sample = at;
        sti_staging_note_replacement(&staging, &replacement);
    }
    assert_int_equal(staging.n_replaced, STI_LEDGER_MAX + 10);
    assert_int_equal(staging.ledger[STI_LEDGER_MAX - 1].sample, STI_LEDGER_MAX - 1);
    sti_staging_fini(&staging);
}

/* Whether the byte at a place of the arena has memory. */
static bool
has_memory(const struct sti_staging *staging, uint64_t at)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    unsigned char has = 0;

    assert_int_equal(mincore(staging->arena.base + at / page_bytes * page_bytes, page_bytes, &has),
                     0);
    return has & 1;
}

/* Nobody waits for all of the memory before the first batch, and what is about to be filled
 * has some. */
static void
memory_comes_ahead_of_its_use(void **state)
{
    const uint64_t record_bytes = (uint64_t)48 << 20;
    struct sti_staging staging;

    (void)state;
    open_staging(&staging, record_bytes / BATCH);
    assert_false(has_memory(&staging, RECORDS * record_bytes - 1));
    for (uint64_t step = 0; step < RECORDS; step++) {
        (void)begin(&staging, step);
        while (!has_memory(&staging, (step + 1) * record_bytes - 1))
            (void)usleep(1000);
        if (step + 2 < RECORDS)
            assert_false(has_memory(&staging, RECORDS * record_bytes - 1));
    }
    assert_null(sti_staging_take_free(&staging));
    sti_staging_fini(&staging);

    open_staging(&staging, record_bytes / BATCH); /* and is given back in the midst of it */
    struct sti_record *first = sti_staging_take_free(&staging);
    struct sti_record *second = sti_staging_take_free(&staging);
    sti_staging_put_free(&staging, first);
    sti_staging_put_free(&staging, second);
    assert_ptr_equal(sti_staging_take_free(&staging), second); /* rather than one without */
    assert_ptr_equal(sti_staging_take_free(&staging), first);
    for (uint32_t at = 2; at < RECORDS; at++)
        assert_non_null(sti_staging_take_free(&staging));
    assert_null(sti_staging_take_free(&staging));
    sti_staging_put_free(&staging, first);
    sti_record_list_push(&staging.free, second); /* the list's end is where it is */
    assert_ptr_equal(sti_staging_take_free(&staging), first);
    assert_ptr_equal(sti_staging_take_free(&staging), second);
    sti_staging_fini(&staging);
}

static int
open_pool(void **state)
{
    (void)state;
    return sti_pool_open(&pool, 1, 0);
}

static int
close_pool(void **state)
{
    (void)state;
    sti_pool_close(pool);
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_come_in_order),
        cmocka_unit_test(records_have_places_of_their_own),
        cmocka_unit_test(nothing_to_come_is_said),
        cmocka_unit_test(returns_wake_when_wanted),
        cmocka_unit_test(waits_end_with_what_they_wait_for),
        cmocka_unit_test(the_ledger_is_bounded),
        cmocka_unit_test(memory_comes_ahead_of_its_use),
    };

    return cmocka_run_group_tests(tests, open_pool, close_pool);
}
