/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turning stored samples into slots of a batch. Items whose sample has arrived are handed
 * to the pool in chunks; a chunk's job writes slots and result codes of its items alone,
 * so records need no lock. The loop takes finished chunks back, lets their samples go and
 * deals with the results. Copying small samples is done at once: a hand-over would cost
 * more.
 *
 * Threads: the loop; the pool runs run_chunk(). The lock (STI_RANK_LEAF) covers the list
 * of finished chunks only.
 */
#include <stddef.h>
#include <string.h>

#include <errno.h>

#include "tier/fetcher_internal.h"

#define COPY_AT_ONCE_BYTES (UINT64_C(16) << 10)
#define CHUNK_ITEMS_MAX 256u
#define COPY_CHUNK_ITEMS CHUNK_ITEMS_MAX
#define DECODE_CHUNK_ITEMS 64u

struct sti_chunk {
    struct sti_job job;
    struct sti_fetcher *fetcher;
    struct sti_record *record;
    struct sti_chunk *next;
    uint32_t n;
    uint32_t items[CHUNK_ITEMS_MAX];
};

int
sti_fetcher_decode_init(struct sti_fetcher *fetcher)
{
    int rc = sti_mutex_init(&fetcher->lock, STI_RANK_LEAF);

    if (rc < 0)
        return rc;
    fetcher->n_chunks = 4 * sti_pool_cpu_threads(fetcher->opts.pool) + 4;
    fetcher->chunks = sti_mem_new(fetcher->n_chunks, sizeof(struct sti_chunk));
    if (!fetcher->chunks) {
        sti_mutex_fini(&fetcher->lock);
        return -ENOMEM;
    }
    for (uint32_t at = 0; at < fetcher->n_chunks; at++) {
        fetcher->chunks[at].fetcher = fetcher;
        fetcher->chunks[at].next = fetcher->free_chunks;
        fetcher->free_chunks = &fetcher->chunks[at];
    }
    return 0;
}

void
sti_fetcher_decode_fini(struct sti_fetcher *fetcher)
{
    sti_mem_free(fetcher->chunks);
    sti_mutex_fini(&fetcher->lock);
}

/* A hash of (order seed, epoch, sample), the same on every run and rank: the finalizer of
 * SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), once for each part. */
static uint64_t
mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

static uint64_t
item_seed(const struct sti_fetcher *fetcher, uint64_t epoch, uint64_t sample)
{
    uint64_t seed = mix((uint64_t)fetcher->opts.order.seed + UINT64_C(0x9e3779b97f4a7c15));

    seed = mix(seed + epoch + UINT64_C(0x9e3779b97f4a7c15));
    return mix(seed + sample + UINT64_C(0x9e3779b97f4a7c15));
}

/* The fields of a stored sample. */
static void
find_fields(const struct sti_fetcher *fetcher, const struct sti_record *record, uint32_t item,
            stk_decode_field *fields)
{
    const char *bytes = record->items[item];

    for (uint32_t at = 0; at < fetcher->n_fields; at++) {
        struct sti_field_range range =
            sti_dataset_field(fetcher->opts.dataset, record->samples[item], at);

        fields[at].name = fetcher->field_names[at];
        fields[at].bytes = range.at == STI_FIELD_NONE ? NULL : bytes + range.at;
        fields[at].n_bytes = range.n_bytes;
    }
}

static void
decode_item(const struct sti_fetcher *fetcher, struct sti_record *record, uint32_t item)
{
    uint64_t item_bytes = fetcher->opts.item_bytes;
    char *slot = record->slots + item * item_bytes;

    if (!fetcher->opts.decode) {
        if (record->n_bytes[item] != item_bytes) {
            record->codes[item] = -EMSGSIZE;
            return;
        }
        memcpy(slot, record->items[item], item_bytes);
        record->codes[item] = 0;
        return;
    }
    stk_decode_field fields[STK_MAX_FIELDS];
    find_fields(fetcher, record, item, fields);
    struct stk_decode_args args = {
        .bytes = fields[0].bytes,
        .n_bytes = fields[0].n_bytes,
        .slot = slot,
        .item_bytes = item_bytes,
        .sample = record->samples[item],
        .epoch = record->cut.epoch,
        .seed = item_seed(fetcher, record->cut.epoch, record->samples[item]),
        .label = record->labels[item],
        .fields = fields,
        .n_fields = fetcher->n_fields,
    };
    record->codes[item] = fetcher->opts.decode(fetcher->opts.decode_context, &args);
}

/* The loop's part: the item's sample is not needed any more; the slot is what is handed
 * out. */
static void
conclude_item(struct sti_fetcher *fetcher, struct sti_record *record, uint32_t item)
{
    int code = record->codes[item];

    sti_fetcher_unpin(fetcher, record, item);
    if (code != 0) {
        struct sti_bad bad = {.sample = record->samples[item], .code = code, .is_decoding = true};

        sti_fetcher_discount(fetcher, record, item);
        sti_fetcher_fail(fetcher, record, item, &bad);
        return;
    }
    fetcher->raw_bytes -= record->n_bytes[item];
    record->states[item] = STI_ITEM_DONE;
    sti_fetcher_note_substitute(fetcher, record, item);
    record->items[item] = record->slots + item * fetcher->opts.item_bytes;
    record->n_bytes[item] = fetcher->opts.item_bytes;
    record->n_pending--;
}

static void
run_chunk(struct sti_job *job)
{
    struct sti_chunk *chunk =
        (struct sti_chunk *)(void *)((char *)job - offsetof(struct sti_chunk, job));
    struct sti_fetcher *fetcher = chunk->fetcher;
    void (*wake)(void *wake_context) = fetcher->opts.wake;
    void *wake_context = fetcher->opts.wake_context;

    for (uint32_t at = 0; at < chunk->n; at++)
        decode_item(fetcher, chunk->record, chunk->items[at]);
    sti_mutex_lock(&fetcher->lock);
    bool is_first = !fetcher->decoded;
    chunk->next = fetcher->decoded;
    fetcher->decoded = chunk;
    sti_mutex_unlock(&fetcher->lock);
    /* From here on the fetcher may be gone. */
    if (is_first)
        wake(wake_context);
}

static bool
is_copied_at_once(const struct sti_fetcher *fetcher)
{
    return !fetcher->opts.decode && fetcher->opts.item_bytes <= COPY_AT_ONCE_BYTES;
}

/* Items per chunk: some for every worker, few enough that none waits long for a
 * neighbour. */
static uint32_t
chunk_items(const struct sti_fetcher *fetcher, uint32_t n_arrived)
{
    uint32_t most = fetcher->opts.decode ? DECODE_CHUNK_ITEMS : COPY_CHUNK_ITEMS;
    uint32_t n = n_arrived / (2 * sti_pool_cpu_threads(fetcher->opts.pool)) + 1;

    return n < most ? n : most;
}

static void
copy_arrived(struct sti_fetcher *fetcher, struct sti_record *record)
{
    for (uint32_t at = 0; at < record->n_arrived; at++) {
        decode_item(fetcher, record, record->arrived[at]);
        conclude_item(fetcher, record, record->arrived[at]);
    }
    record->n_arrived = 0;
}

/* A chunk takes its items along, since an item whose decoding fails arrives once more,
 * with its substitute, while others of the chunk may still be at work. */
static bool
start_record(struct sti_fetcher *fetcher, struct sti_record *record)
{
    uint32_t n_taken = 0;

    if (is_copied_at_once(fetcher)) {
        copy_arrived(fetcher, record);
        return true;
    }
    while (n_taken < record->n_arrived && fetcher->free_chunks) {
        struct sti_chunk *chunk = fetcher->free_chunks;

        fetcher->free_chunks = chunk->next;
        chunk->record = record;
        chunk->n = chunk_items(fetcher, record->n_arrived - n_taken);
        memcpy(chunk->items, record->arrived + n_taken, chunk->n * sizeof(uint32_t));
        n_taken += chunk->n;
        chunk->job.fn = run_chunk;
        fetcher->n_decoding++;
        sti_pool_submit(fetcher->opts.pool, STI_LANE_URGENT, &chunk->job, 1);
    }
    record->n_arrived -= n_taken;
    memmove(record->arrived, record->arrived + n_taken, record->n_arrived * sizeof(uint32_t));
    return record->n_arrived == 0;
}

void
sti_fetcher_decode_start(struct sti_fetcher *fetcher)
{
    struct sti_record *record = fetcher->staging.filling.first;

    while (record && start_record(fetcher, record))
        record = record->next;
}

void
sti_fetcher_decode_finish(struct sti_fetcher *fetcher)
{
    sti_mutex_lock(&fetcher->lock);
    struct sti_chunk *chunk = fetcher->decoded;
    fetcher->decoded = NULL;
    sti_mutex_unlock(&fetcher->lock);
    while (chunk) {
        struct sti_chunk *next = chunk->next;

        for (uint32_t at = 0; at < chunk->n; at++)
            conclude_item(fetcher, chunk->record, chunk->items[at]);
        chunk->next = fetcher->free_chunks;
        fetcher->free_chunks = chunk;
        fetcher->n_decoding--;
        chunk = next;
    }
}
