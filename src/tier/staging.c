/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging. Invariant: every record is in exactly one of free, filling, ready, borrowed
 * and returned, and `ready` is in stream order.
 *
 * The consumer sleeps on a semaphore rather than on a condition, since a signal handler
 * may have to end the sleep and posting a semaphore is all that it may do. A post that
 * nobody waits for only makes a later wait look once more. The loop is woken by returns
 * only when it wants them, and then after a good part of what was staged has come back: a
 * wake costs as much as many cached samples.
 *
 * Threads: the loop, the consumer; interrupt by any. Lock: STI_RANK_LOADER, never held
 * across a wait or a wake.
 */
#include "tier/staging.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

void
sti_record_list_init(struct sti_record_list *list)
{
    list->first = NULL;
    list->last = &list->first;
    list->n = 0;
}

void
sti_record_list_push(struct sti_record_list *list, struct sti_record *record)
{
    record->next = NULL;
    *list->last = record;
    list->last = &record->next;
    list->n++;
}

struct sti_record *
sti_record_list_pop(struct sti_record_list *list)
{
    struct sti_record *record = list->first;

    if (!record)
        return NULL;
    list->first = record->next;
    if (!list->first)
        list->last = &list->first;
    list->n--;
    return record;
}

/* Nobody else knows a staging while it is made or freed, so its lock is not taken
 * there. */

/* ---- set-up ------------------------------------------------------------------------ */

/* The arrays of a record, widest first, so that each is aligned. */
#define ITEM_BYTES (5 * sizeof(uint64_t) + 3 * sizeof(uint32_t) + 2)

uint64_t
sti_record_overhead_bytes(uint32_t batch_size)
{
    return sizeof(struct sti_record) + (uint64_t)batch_size * ITEM_BYTES + 8;
}

static char *
lay_out(struct sti_record *record, char *at, uint64_t n)
{
    record->samples = (uint64_t *)(void *)at;
    at += n * sizeof(uint64_t);
    record->labels = (int64_t *)(void *)at;
    at += n * sizeof(int64_t);
    record->items = (const void **)(void *)at;
    at += n * sizeof(void *);
    record->n_bytes = (uint64_t *)(void *)at;
    at += n * sizeof(uint64_t);
    record->next_use = (uint64_t *)(void *)at;
    at += n * sizeof(uint64_t);
    record->codes = (int32_t *)(void *)at;
    at += n * sizeof(int32_t);
    record->arrived = (uint32_t *)(void *)at;
    at += n * sizeof(uint32_t);
    record->reasons = (int32_t *)(void *)at;
    record->states = (uint8_t *)(at + n * sizeof(int32_t));
    record->tiers = record->states + n;
    return at + (n * (sizeof(int32_t) + 2) + 7) / 8 * 8;
}

/* What of a record's fields is the same for every batch. */
static void
describe_fields(struct sti_record *record, const struct sti_staging_opts *opts)
{
    for (uint32_t at = 0; at < opts->n_fields; at++) {
        stk_field *field = &record->fields[at];

        field->name = opts->field_names[at];
        field->data = record->slots;
        field->item_bytes = opts->slot_bytes;
        field->items = record->items;
        field->n_bytes = record->n_bytes;
        if (opts->n_fields > 1) {
            field->items = record->field_items + (size_t)at * opts->batch_size;
            field->n_bytes = record->field_bytes + (size_t)at * opts->batch_size;
        }
    }
}

static int
allocate_fields(struct sti_staging *staging, const struct sti_staging_opts *opts)
{
    uint64_t n = opts->n_records;
    uint64_t n_items = (uint64_t)opts->batch_size * opts->n_fields;

    staging->fields = sti_mem_new(n * opts->n_fields, sizeof(*staging->fields));
    if (opts->n_fields > 1)
        staging->field_arrays = sti_mem_new(n * n_items, sizeof(void *) + sizeof(uint64_t));
    if (!staging->fields || (opts->n_fields > 1 && !staging->field_arrays))
        return -ENOMEM;
    char *at = staging->field_arrays;
    for (uint32_t idx = 0; idx < n; idx++) {
        struct sti_record *record = &staging->records[idx];

        record->fields = staging->fields + (size_t)idx * opts->n_fields;
        if (at) {
            record->field_items = (const void **)(void *)at;
            at += n_items * sizeof(void *);
            record->field_bytes = (uint64_t *)(void *)at;
            at += n_items * sizeof(uint64_t);
        }
        describe_fields(record, opts);
    }
    return 0;
}

static int
allocate(struct sti_staging *staging, const struct sti_staging_opts *opts) STI_NO_ANALYSIS
{
    uint64_t n = opts->batch_size;
    uint64_t arrays_bytes = (n * ITEM_BYTES + 7) / 8 * 8;

    staging->records = sti_mem_new(opts->n_records, sizeof(struct sti_record));
    staging->arrays = sti_mem_new(opts->n_records, arrays_bytes);
    staging->epochs = sti_mem_new(STI_STATS_EPOCHS, sizeof(struct sti_stats));
    staging->ledger = sti_mem_new(STI_LEDGER_MAX, sizeof(stk_replacement));
    if (!staging->records || !staging->arrays || !staging->epochs || !staging->ledger)
        return -ENOMEM;
    if (opts->slot_bytes > 0) {
        int rc = sti_arena_open(&staging->arena, opts->n_records * n * opts->slot_bytes, 0);

        if (rc < 0)
            return rc;
        sti_toucher_start(&staging->toucher, &staging->arena, opts->pool);
    }
    char *at = staging->arrays;
    for (uint32_t idx = 0; idx < opts->n_records; idx++) {
        struct sti_record *record = &staging->records[idx];

        at = lay_out(record, at, n);
        if (opts->slot_bytes > 0)
            record->slots = staging->arena.base + idx * n * opts->slot_bytes;
        sti_record_list_push(&staging->free, record);
    }
    return allocate_fields(staging, opts);
}

static void
release_memory(struct sti_staging *staging) STI_NO_ANALYSIS
{
    sti_toucher_stop(&staging->toucher);
    sti_arena_close(&staging->arena);
    sti_mem_free(staging->records);
    sti_mem_free(staging->arrays);
    sti_mem_free(staging->field_arrays);
    sti_mem_free(staging->fields);
    sti_mem_free(staging->epochs);
    sti_mem_free(staging->ledger);
}

int
sti_staging_init(struct sti_staging *staging, const struct sti_staging_opts *opts) STI_NO_ANALYSIS
{
    memset(staging, 0, sizeof(*staging));
    staging->n_records = opts->n_records;
    staging->slots_bytes = opts->batch_size * opts->slot_bytes;
    staging->wake = opts->wake;
    staging->context = opts->context;
    sti_record_list_init(&staging->free);
    sti_record_list_init(&staging->filling);
    sti_record_list_init(&staging->ready);
    sti_record_list_init(&staging->returned);
    staging->run.epoch = UINT64_MAX;
    staging->idle = STI_STAGING_BUSY;
    int rc = allocate(staging, opts);
    if (rc < 0)
        goto err_memory;
    for (uint32_t at = 0; at < STI_STATS_EPOCHS; at++)
        staging->epochs[at].epoch = UINT64_MAX;
    rc = sti_mutex_init(&staging->lock, STI_RANK_LOADER);
    if (rc < 0)
        goto err_memory;
    if (sem_init(&staging->ready_sem, 0, 0) < 0) {
        rc = -errno;
        goto err_lock;
    }
    return 0;

err_lock:
    sti_mutex_fini(&staging->lock);
err_memory:
    release_memory(staging);
    return rc;
}

void
sti_staging_fini(struct sti_staging *staging)
{
    (void)sem_destroy(&staging->ready_sem); /* nobody waits any more */
    sti_mutex_fini(&staging->lock);
    release_memory(staging);
}

/* ---- the consumer's side ----------------------------------------------------------- */

static void
add_batch(struct sti_stats *stats, const struct sti_record *record)
{
    stats->batches++;
    stats->samples += record->cut.count;
    stats->bytes += record->bytes;
    for (int tier = 0; tier < STK_TIERS; tier++) {
        stats->tier_samples[tier] += record->tier_samples[tier];
        stats->tier_bytes[tier] += record->tier_bytes[tier];
    }
    stats->origin_bytes += record->origin_bytes;
}

static struct sti_stats *
epoch_stats_locked(struct sti_staging *staging, uint64_t epoch) STI_REQUIRES(&staging->lock)
{
    struct sti_stats *stats = &staging->epochs[epoch % STI_STATS_EPOCHS];

    if (stats->epoch != epoch) {
        memset(stats, 0, sizeof(*stats));
        stats->epoch = epoch;
    }
    return stats;
}

static void
account_locked(struct sti_staging *staging, const struct sti_record *record, uint64_t start_ns,
               uint64_t end_ns) STI_REQUIRES(&staging->lock)
{
    struct sti_stats *both[] = {epoch_stats_locked(staging, record->cut.epoch), &staging->run};

    for (int at = 0; at < 2; at++) {
        struct sti_stats *stats = both[at];

        if (stats->batches == 0)
            stats->start_ns = start_ns;
        stats->end_ns = end_ns;
        add_batch(stats, record);
        sti_histogram_add(&stats->waits, end_ns - start_ns);
    }
    both[0]->bound_bytes = record->epoch_bound_bytes;
    both[1]->bound_bytes = record->run_bound_bytes;
}

/* One look: a result, or STI_STAGING_BUSY to wait. */
static int
look_locked(struct sti_staging *staging, struct sti_record **ret_record, uint64_t start_ns)
    STI_REQUIRES(&staging->lock)
{
    struct sti_record *record = sti_record_list_pop(&staging->ready);

    if (record) {
        staging->returned_position = record->cut.first_position + record->cut.count;
        account_locked(staging, record, start_ns, sti_clock_ns());
        record->is_borrowed = true;
        *ret_record = record;
        return STK_BATCH;
    }
    if (staging->idle == STI_STAGING_BUSY)
        staging->is_waiting = true;
    return staging->idle;
}

/*
 * Sleeps until a post, or until a monotonic time at most. A signal ends nothing: a
 * handler that wants that calls interrupt. Returns 0 or -ETIMEDOUT.
 */
static int
wait_until(struct sti_staging *staging, uint64_t deadline_ns)
{
    const struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / STI_NS_PER_S),
                                      .tv_nsec = (long)(deadline_ns % STI_NS_PER_S)};
    int rc;

    do {
        rc = deadline_ns == UINT64_MAX
                 ? sem_wait(&staging->ready_sem)
                 : sem_clockwait(&staging->ready_sem, CLOCK_MONOTONIC, &deadline);
    } while (rc < 0 && errno == EINTR);
    return rc < 0 ? -errno : 0;
}

int
sti_staging_next(struct sti_staging *staging, uint64_t timeout_ns, struct sti_record **ret_record)
{
    uint64_t now_ns = sti_clock_ns();
    uint64_t start_ns = now_ns - staging->waited_ns;
    uint64_t deadline_ns = timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns : UINT64_MAX;
    int rc = 0;

    for (;;) {
        if (__atomic_exchange_n(&staging->is_interrupted, 0, __ATOMIC_ACQ_REL)) {
            rc = -EINTR;
            break;
        }
        sti_mutex_lock(&staging->lock);
        int found = look_locked(staging, ret_record, start_ns);
        bool has_news = staging->returned.n > 0;
        sti_mutex_unlock(&staging->lock);
        if (found != STI_STAGING_BUSY) {
            staging->waited_ns = 0;
            return found;
        }
        if (rc < 0) /* late, and this was the last look */
            break;
        if (has_news)
            staging->wake(staging->context);
        rc = wait_until(staging, deadline_ns);
    }
    staging->waited_ns = sti_clock_ns() - start_ns;
    return rc;
}

/* The record that a handle names, or NULL: the handle is the caller's and may be
 * anything. */
static struct sti_record *
find_borrowed(const struct sti_staging *staging, const void *handle)
{
    uintptr_t offset = (uintptr_t)handle - (uintptr_t)staging->records;
    uintptr_t idx = offset / sizeof(struct sti_record);

    if (idx >= staging->n_records || offset % sizeof(struct sti_record) != 0 ||
        !staging->records[idx].is_borrowed)
        return NULL;
    return &staging->records[idx];
}

int
sti_staging_return(struct sti_staging *staging, const void *handle)
{
    struct sti_record *record = find_borrowed(staging, handle);

    if (!record)
        return -EINVAL;
    record->is_borrowed = false;
    sti_mutex_lock(&staging->lock);
    sti_record_list_push(&staging->returned, record);
    staging->run.end_ns = sti_clock_ns();
    struct sti_stats *stats = &staging->epochs[record->cut.epoch % STI_STATS_EPOCHS];
    if (stats->epoch == record->cut.epoch) /* else its place is a newer epoch's by now */
        stats->end_ns = staging->run.end_ns;
    bool must_wake = staging->wake_after > 0 &&
                     (staging->returned.n >= staging->wake_after || staging->ready.n <= 1);
    if (must_wake)
        staging->wake_after = 0;
    sti_mutex_unlock(&staging->lock);
    if (must_wake)
        staging->wake(staging->context);
    return 0;
}

void
sti_staging_interrupt(struct sti_staging *staging)
{
    __atomic_store_n(&staging->is_interrupted, 1, __ATOMIC_RELEASE); /* pairs with next */
    (void)sem_post(&staging->ready_sem); /* fails only when posted 2^31 times: then it is awake */
}

void
sti_staging_command(struct sti_staging *staging, enum sti_command command, uint64_t epoch,
                    uint64_t idx)
{
    bool is_done = false;

    sti_mutex_lock(&staging->lock);
    staging->command = command;
    staging->seek_epoch = epoch;
    staging->seek_idx = idx;
    sti_mutex_unlock(&staging->lock);
    staging->wake(staging->context);
    while (!is_done) {
        while (sem_wait(&staging->ready_sem) < 0)
            ; /* EINTR only */
        sti_mutex_lock(&staging->lock);
        is_done = staging->command == STI_COMMAND_NONE;
        sti_mutex_unlock(&staging->lock);
    }
}

/* ---- the loop's side --------------------------------------------------------------- */

struct sti_record *
sti_staging_take_free(struct sti_staging *staging)
{
    struct sti_record *record = sti_record_list_pop(&staging->free);

    /* Those that were never used come last, in the order of their addresses. */
    if (record && record->slots)
        sti_toucher_ahead(&staging->toucher,
                          (uint64_t)(record->slots - staging->arena.base) + staging->slots_bytes);
    return record;
}

static bool
stop_waiting_locked(struct sti_staging *staging) STI_REQUIRES(&staging->lock)
{
    bool was_waiting = staging->is_waiting;

    staging->is_waiting = false;
    return was_waiting;
}

static void
post(struct sti_staging *staging)
{
    (void)sem_post(&staging->ready_sem); /* see sti_staging_interrupt() */
}

void
sti_staging_put_free(struct sti_staging *staging, struct sti_record *record)
{
    record->next = staging->free.first;
    if (!record->next)
        staging->free.last = &record->next;
    staging->free.first = record;
    staging->free.n++;
}

void
sti_staging_publish(struct sti_staging *staging)
{
    struct sti_record *record = staging->filling.first;
    bool must_post;

    if (!record || record->n_pending > 0)
        return;
    sti_mutex_lock(&staging->lock);
    while (staging->filling.first && staging->filling.first->n_pending == 0)
        sti_record_list_push(&staging->ready, sti_record_list_pop(&staging->filling));
    must_post = stop_waiting_locked(staging);
    sti_mutex_unlock(&staging->lock);
    if (must_post)
        post(staging);
}

struct sti_record *
sti_staging_take_returned(struct sti_staging *staging, uint64_t *ret_returned_position)
{
    sti_mutex_lock(&staging->lock);
    struct sti_record *first = staging->returned.first;
    sti_record_list_init(&staging->returned);
    *ret_returned_position = staging->returned_position;
    sti_mutex_unlock(&staging->lock);
    return first;
}

void
sti_staging_want_returns(struct sti_staging *staging)
{
    sti_mutex_lock(&staging->lock);
    uint32_t n_staged = staging->ready.n + staging->filling.n;
    staging->wake_after = n_staged / 8 + 1;
    bool has_some = staging->returned.n >= staging->wake_after;
    sti_mutex_unlock(&staging->lock);
    if (has_some)
        staging->wake(staging->context);
}

void
sti_staging_set_idle(struct sti_staging *staging, int idle)
{
    bool must_post = false;

    sti_mutex_lock(&staging->lock);
    if (staging->idle != idle) {
        staging->idle = idle;
        must_post = stop_waiting_locked(staging);
    }
    sti_mutex_unlock(&staging->lock);
    if (must_post)
        post(staging);
}

uint32_t
sti_staging_ready(struct sti_staging *staging)
{
    sti_mutex_lock(&staging->lock);
    uint32_t n = staging->ready.n;
    sti_mutex_unlock(&staging->lock);
    return n;
}

enum sti_command
sti_staging_pending_command(struct sti_staging *staging, uint64_t *ret_epoch, uint64_t *ret_idx)
{
    sti_mutex_lock(&staging->lock);
    enum sti_command command = staging->command;
    *ret_epoch = staging->seek_epoch;
    *ret_idx = staging->seek_idx;
    sti_mutex_unlock(&staging->lock);
    return command;
}

struct sti_record *
sti_staging_take_ready(struct sti_staging *staging)
{
    sti_mutex_lock(&staging->lock);
    struct sti_record *first = staging->ready.first;
    sti_record_list_init(&staging->ready);
    sti_mutex_unlock(&staging->lock);
    return first;
}

void
sti_staging_set_usage(struct sti_staging *staging, const struct sti_usage *usage)
{
    sti_mutex_lock(&staging->lock);
    staging->usage = *usage;
    sti_mutex_unlock(&staging->lock);
}

void
sti_staging_warn(struct sti_staging *staging, const stk_error *warning)
{
    sti_mutex_lock(&staging->lock);
    staging->warning = *warning;
    sti_mutex_unlock(&staging->lock);
}

void
sti_staging_command_done(struct sti_staging *staging)
{
    sti_mutex_lock(&staging->lock);
    staging->command = STI_COMMAND_NONE;
    staging->idle = STI_STAGING_BUSY;
    staging->returned_position = 0;
    sti_mutex_unlock(&staging->lock);
    post(staging);
}

void
sti_staging_note_replacement(struct sti_staging *staging, const stk_replacement *replacement)
{
    sti_mutex_lock(&staging->lock);
    if (staging->n_replaced < STI_LEDGER_MAX)
        staging->ledger[staging->n_replaced] = *replacement;
    staging->n_replaced++;
    sti_mutex_unlock(&staging->lock);
}
