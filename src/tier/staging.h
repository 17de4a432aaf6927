/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging: the batches between the loop, which fills them, and the consumer, who borrows
 * them. A record goes free -> filling -> ready -> borrowed -> returned -> free. Filling
 * belongs to the loop, borrowed to the consumer; the passages are lists under one lock.
 * Only staging restores the order: records become ready in the order of the stream,
 * whatever was read first.
 */
#ifndef STI_TIER_STAGING_H
#define STI_TIER_STAGING_H

#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

#include <stoker/loader.h>

#include "base/mem.h"
#include "base/thread.h"
#include "model/stats.h"
#include "tier/horizon.h"
#include "tier/ssd.h"
#include "tier/touch.h"

#define STI_STATS_EPOCHS 64
#define STI_LEDGER_MAX 4096

/* What has become of an item of a batch. */
enum sti_item {
    STI_ITEM_WAITING, /* not taken, or its sample is being read */
    STI_ITEM_PINNED,  /* its sample is in memory and held for it */
    STI_ITEM_DONE,    /* decoded into the slot; nothing is held */
    STI_ITEM_FAILED,
};

/* A bad sample: which, and why. */
struct sti_bad {
    uint64_t sample;
    int code;         /* 0: none */
    bool is_decoding; /* the decode function's result */
};

struct sti_record {
    struct sti_batch_cut cut;
    uint64_t *samples;
    int64_t *labels;
    const void **items;
    uint64_t *n_bytes;
    uint64_t *next_use; /* position, or one of STI_POSITION_... */
    int32_t *codes;     /* results of decoding */
    uint32_t *arrived;  /* items to be decoded that no chunk has yet, oldest first (FIXED) */
    int32_t *reasons;   /* of an item that gets a substitute: why, the first code */
    uint8_t *states;    /* enum sti_item */
    uint8_t *tiers;     /* enum stk_tier that an item was counted for */
    char *slots;        /* FIXED: count x item_bytes */
    stk_field *fields;  /* as they are handed out */
    /* With several fields: their pointers and lengths, batch_size of each; else NULL. */
    const void **field_items;
    uint64_t *field_bytes;

    uint32_t n_taken;   /* items whose sample was looked up */
    uint32_t n_pending; /* items that are not done */
    uint32_t n_arrived; /* of arrived */
    uint64_t raw_bytes; /* RAW: bytes of its samples */
    bool is_borrowed;   /* the consumer's: it has it */

    struct sti_bad bad;
    uint64_t tier_samples[STK_TIERS];
    uint64_t tier_bytes[STK_TIERS];
    uint64_t origin_bytes;
    uint64_t bytes;
    uint64_t epoch_bound_bytes; /* the bounds as of this batch */
    uint64_t run_bound_bytes;

    struct sti_record *next;
};

#define STI_POSITION_UNKNOWN UINT64_MAX
#define STI_POSITION_NEVER (UINT64_MAX - 1)
/* Of an item whose sample stands in for another: its position says nothing about it. */
#define STI_POSITION_OF_ANOTHER (UINT64_MAX - 2)

struct sti_record_list {
    struct sti_record *first;
    struct sti_record **last;
    uint32_t n;
};

/* What a loader holds. */
struct sti_usage {
    uint64_t resident_bytes;
    uint64_t n_outside;
    uint64_t beside_bytes; /* read from the origin for no batch, behind the last that is counted */
    uint64_t served_samples; /* to peers */
    uint64_t served_bytes;
    uint64_t n_peer_failed;
    uint64_t n_peer_corrupt;
    uint64_t copied_samples; /* from peers, ahead of their use */
    uint64_t copied_bytes;
    struct sti_ssd_counts ssd;
};

/* What the consumer asks of the loop besides batches. */
enum sti_command { STI_COMMAND_NONE, STI_COMMAND_SEEK, STI_COMMAND_LEAVE, STI_COMMAND_STOP };
/* SEEK: drops what is staged and goes on at (epoch, idx). LEAVE: peers are served until they
 * need nothing more, and nobody else. STOP: nothing is read any more. */

struct sti_staging {
    struct sti_record *records;
    uint32_t n_records;
    struct sti_arena arena;     /* the slots */
    struct sti_toucher toucher; /* of the arena */
    uint64_t slots_bytes;       /* of a record's */
    void *arrays;
    void *field_arrays;          /* with several fields */
    stk_field *fields;           /* of all records */
    void (*wake)(void *context); /* the loop */
    void *context;
    sem_t ready_sem;
    int is_interrupted; /* atomic: set by interrupt, taken by next */
    uint64_t waited_ns; /* the consumer's: by calls of next that ended without a result */

    struct sti_mutex lock;
    struct sti_record_list ready STI_GUARDED_BY(&lock);
    struct sti_record_list returned STI_GUARDED_BY(&lock);
    uint32_t wake_after STI_GUARDED_BY(&lock); /* returns after which the loop wants to know */
    bool is_waiting STI_GUARDED_BY(&lock);     /* the consumer waits on the semaphore */
    int idle STI_GUARDED_BY(&lock);            /* behind what is ready: see set_idle */
    enum sti_command command STI_GUARDED_BY(&lock);
    uint64_t seek_epoch STI_GUARDED_BY(&lock);
    uint64_t seek_idx STI_GUARDED_BY(&lock);
    uint64_t returned_position STI_GUARDED_BY(&lock); /* behind the last batch given out */
    struct sti_usage usage STI_GUARDED_BY(&lock);
    stk_error warning STI_GUARDED_BY(&lock); /* the last; code 0: none */
    struct sti_stats run STI_GUARDED_BY(&lock);
    struct sti_stats *epochs STI_GUARDED_BY(&lock); /* by epoch modulo STI_STATS_EPOCHS */
    stk_replacement *ledger STI_GUARDED_BY(&lock);
    uint64_t n_replaced STI_GUARDED_BY(&lock);

    /* The loop's. */
    struct sti_record_list free;
    struct sti_record_list filling; /* in stream order */
};

struct sti_staging_opts {
    uint32_t n_records;
    uint32_t batch_size;
    uint64_t slot_bytes;            /* FIXED: bytes of an item; 0: RAW */
    uint32_t n_fields;              /* RAW: 1 .. STK_MAX_FIELDS; FIXED: 1 */
    const char *const *field_names; /* the names are borrowed until fini */
    struct sti_pool *pool;          /* its background lane faults the slots in; RAW: not used */
    void (*wake)(void *context);
    void *context;
};

/* Errors: -ENOMEM, -EAGAIN. */
int
sti_staging_init(struct sti_staging *staging, const struct sti_staging_opts *opts);
void
sti_staging_fini(struct sti_staging *staging);

/* Bytes that a record of a batch size has besides its slots. */
uint64_t
sti_record_overhead_bytes(uint32_t batch_size);

void
sti_record_list_init(struct sti_record_list *list);
void
sti_record_list_push(struct sti_record_list *list, struct sti_record *record);
struct sti_record *
sti_record_list_pop(struct sti_record_list *list);

/* ---- the consumer's side ---- */

/*
 * Waits for the next record in order, timeout_ns at most (UINT64_MAX: without end).
 * Returns STK_BATCH, what sti_staging_set_idle() was told, -EINTR or -ETIMEDOUT.
 */
int
sti_staging_next(struct sti_staging *staging, uint64_t timeout_ns, struct sti_record **ret_record);

/* Gives a record back. Errors: -EINVAL it is not one that next has given and nobody
 * returned. */
int
sti_staging_return(struct sti_staging *staging, const void *handle);

/* Makes a waiting or the next call of next return -EINTR. Signal-safe. */
void
sti_staging_interrupt(struct sti_staging *staging);

/* Has the loop carry out a command and waits for it. No record is borrowed. */
void
sti_staging_command(struct sti_staging *staging, enum sti_command command, uint64_t epoch,
                    uint64_t idx);

/* ---- the loop's side ---- */

/* A record to be filled, the one that was put back last; NULL where all are in use. */
struct sti_record *
sti_staging_take_free(struct sti_staging *staging);

/* Puts one back that nobody has any more. Its memory is there and was looked at just now: it
 * is the first to be used again, and where few are out few ever need memory. */
void
sti_staging_put_free(struct sti_staging *staging, struct sti_record *record);

/* Makes the done ones at the head of filling ready. */
void
sti_staging_publish(struct sti_staging *staging);

/* Takes all records given back since the last time. Returns the first, linked by next. */
struct sti_record *
sti_staging_take_returned(struct sti_staging *staging, uint64_t *ret_returned_position);

/* Says that the loop cannot go on before records come back. */
void
sti_staging_want_returns(struct sti_staging *staging);

/*
 * Says what a call of next is told that finds nothing ready: STI_STAGING_BUSY, it waits, since
 * something is to come; STK_END, nothing will come any more; -EAGAIN, nothing before a
 * push; -ENOMEM, nothing before there is memory again.
 */
#define STI_STAGING_BUSY INT32_MIN
void
sti_staging_set_idle(struct sti_staging *staging, int idle);

/* Records that were ready and not given out. */
uint32_t
sti_staging_ready(struct sti_staging *staging);

enum sti_command
sti_staging_pending_command(struct sti_staging *staging, uint64_t *ret_epoch, uint64_t *ret_idx);

/* Takes the records that are ready and not given out, for a seek. Returns the first. */
struct sti_record *
sti_staging_take_ready(struct sti_staging *staging);

/* The command is carried out: the consumer goes on. */
void
sti_staging_command_done(struct sti_staging *staging);

/* What the statistics say beside the batches. */
void
sti_staging_set_usage(struct sti_staging *staging, const struct sti_usage *usage);

/* Something is worse than it was asked for, and the run goes on. */
void
sti_staging_warn(struct sti_staging *staging, const stk_error *warning);

/* Adds to the ledger of replaced samples. */
void
sti_staging_note_replacement(struct sti_staging *staging, const stk_replacement *replacement);

#endif
