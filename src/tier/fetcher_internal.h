/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fetcher's parts, each a file: fetcher.c walks the stream, fetcher_open.c puts it
 * together, residency.c says what stays, reads.c brings samples in, decode.c turns them
 * into slots, bad.c deals with those that cannot be had. All of it belongs to the loop's
 * thread but for what decode.c names.
 */
#ifndef STI_TIER_FETCHER_INTERNAL_H
#define STI_TIER_FETCHER_INTERNAL_H

#include "base/bitset.h"
#include "policy/bound.h"
#include "policy/cost_curve.h"
#include "tier/catalog.h"
#include "tier/evictor.h"
#include "tier/fetcher.h"
#include "tier/horizon.h"
#include "tier/origin.h"
#include "tier/peering.h"
#include "tier/staging.h"
#include "tier/sizes.h"
#include "tier/ssd.h"
#include "tier/store.h"

/* Samples from this size on are read in place, smaller ones through a bounce buffer and a
 * copy: alignment would cost them more memory than the copy costs time. */
#define STI_IN_PLACE_BYTES (UINT64_C(32) << 10)
#define STI_READ_PIECES 256

/* Nodes of waiting lists, by index. */
#define STI_NO_WAITER UINT32_MAX

/* What waits for a sample: an item of a batch, or a question of a peer, which have nodes of
 * their own, behind the others, so that neither can keep the other from waiting. */
struct sti_waiter {
    struct sti_record *record; /* NULL: a question */
    uint64_t sample;           /* redo list only */
    uint32_t item;             /* or the question's number */
    uint32_t next;
};

/* A sample that a read brings. */
struct sti_piece {
    uint64_t sample;
    uint64_t address; /* in the store */
    uint64_t offset;  /* in the file */
    uint64_t length;
    struct sti_ssd_slot slot; /* room in the SSD tier, to be filled */
};

/* A read under way: one sample, or several that lie one behind the other in one file.
 * From the SSD tier always one; if it fails there, the read goes on as one from the
 * origin. */
struct sti_read {
    struct sti_aio_op op;
    struct sti_aio_op look_op; /* at its file, where op has opened that */
    struct statx found;
    struct sti_fetcher *fetcher;
    struct sti_origin_range range;
    struct sti_extent extent; /* of all pieces, or of the first where it is split */
    struct sti_file_slot *file;
    char *bounce; /* buffer of its own */
    uint32_t n_pieces;
    uint32_t n_tries;
    bool is_in_place;
    bool is_split; /* it failed as a whole: its pieces are read one by one */
    uint64_t began_ns;
    bool is_ssd;    /* place and verdict are meant */
    bool is_filled; /* the slots of its pieces are, by the pool */
    struct sti_ssd_place place;
    int verdict;
    struct sti_piece pieces[STI_READ_PIECES];
    struct sti_read *next;
};

struct sti_chunk;

struct sti_fetcher {
    struct sti_fetcher_opts opts;
    struct sti_staging staging;
    const char *field_names[STK_MAX_FIELDS]; /* of the data set */
    uint32_t n_fields;
    struct sti_horizon *horizon;
    struct sti_catalog *catalog;
    struct sti_evictor *evictor;
    struct sti_store *store;
    struct sti_ssd *ssd; /* or NULL */
    struct sti_sizes sizes;
    struct sti_origin origin;
    struct sti_bound bound;
    struct sti_bitset seen_in_epoch;
    struct sti_bitset seen_in_run;
    uint64_t bound_epoch; /* the epoch that the bound counts; UINT64_MAX before the first */

    uint64_t position;         /* the next one to cut or take */
    struct sti_record *record; /* being filled, or NULL */
    enum sti_cut cut;          /* what the walk met last */
    uint64_t short_since_ns;   /* it waits for memory for an epoch's order since then; 0: not */
    uint64_t returned_position;
    uint64_t staged_bytes;     /* RAW: of all records not free */
    uint64_t staging_now;      /* RAW: what may be now; see policy/lookahead */
    uint64_t raw_bytes;        /* FIXED: of samples held for decoding */
    uint64_t pinned_bytes;     /* kept for good */
    struct sti_bitset passing; /* samples in memory beside what it may hold: the SSD has them */
    uint64_t passing_bytes;
    struct sti_peering *peering; /* or NULL */
    uint64_t beside_bytes;       /* read from the origin for no batch, not counted with one yet */
    bool is_leaving;             /* the consumer is done, others may not be */
    bool is_serving;             /* memory is asked for to answer a peer */
    bool is_stopped;
    bool is_waiting_for_order; /* the walk, at its last step, with a full store */

    struct sti_read *reads;
    struct sti_read *free_reads;
    struct sti_read *growing; /* not submitted yet: what follows in the file may join */
    struct sti_arena bounce_arena;
    uint64_t bounce_bytes;
    uint32_t group; /* samples read together as neighbours in the file; 1: none */
    uint32_t n_reading;
    bool is_short; /* as the device's arbiter was told */
    struct sti_cost_learner origin_cost;
    struct sti_cost_learner ssd_cost;

    struct sti_waiter *waiters;
    uint32_t n_waiters;
    uint32_t free_waiter;
    uint32_t redo; /* items that need a substitute, as a list of waiters */

    struct sti_chunk *chunks;
    struct sti_chunk *free_chunks;
    uint32_t n_chunks;
    uint32_t n_decoding; /* chunks on the pool */
    struct sti_mutex lock;
    struct sti_chunk *decoded STI_GUARDED_BY(&lock); /* back from the pool */
};

/* ---- residency.c ---- */

/* Memory for an absent sample, made by letting others go; STI_STORE_NONE if it has to
 * wait. */
uint64_t
sti_fetcher_make_room(struct sti_fetcher *fetcher, uint64_t sample);

/* Gives it back. */
void
sti_fetcher_put_memory(struct sti_fetcher *fetcher, uint64_t sample, uint64_t address);

/* A batch begins to use a sample that is in memory. */
void
sti_fetcher_pin(struct sti_fetcher *fetcher, uint64_t sample, struct sti_entry *entry);

/* Decides anew about a sample, if it is in memory and nobody uses it now. */
void
sti_fetcher_settle_again(struct sti_fetcher *fetcher, uint64_t sample);

/* A sample that came from its holder is to be served for it: it goes onto an SSD if memory
 * does not keep it. */
void
sti_fetcher_keep_for_others(struct sti_fetcher *fetcher, uint64_t sample);

/* A question has done with its sample. */
void
sti_fetcher_unpin_sample(struct sti_fetcher *fetcher, uint64_t sample);

/* A batch's item has done with its sample. */
void
sti_fetcher_unpin(struct sti_fetcher *fetcher, const struct sti_record *record, uint32_t item);

/* Decides about a sample in memory that no batch uses. next_use: a position, or
 * STI_POSITION_UNKNOWN or _NEVER. */
void
sti_fetcher_settle(struct sti_fetcher *fetcher, uint64_t sample, struct sti_entry *entry,
                   uint64_t next_use);

/* The horizon has found the next use of a sample that was passed. */
void
sti_fetcher_on_next_use(void *context, uint64_t sample, uint64_t position);

/* No batch uses the sample of a position after all: if that was to be its next use,
 * another one is looked for. fetcher->position lies behind it already. */
void
sti_fetcher_pass_over(struct sti_fetcher *fetcher, uint64_t position);

/* After a seek: old positions mean nothing any more. */
void
sti_fetcher_forget_positions(struct sti_fetcher *fetcher);
void
sti_fetcher_renew_positions(struct sti_fetcher *fetcher);

/* The next use of the sample at a position as it is known now: a position that is not
 * passed yet, STI_POSITION_UNKNOWN or STI_POSITION_NEVER. */
uint64_t
sti_fetcher_next_use(struct sti_fetcher *fetcher, uint64_t position);

/* Whether a sample is read in place: its block in the store has padding. */
static inline bool
sti_fetcher_is_in_place(const struct sti_fetcher *fetcher, uint64_t sample)
{
    return sti_dataset_length(fetcher->opts.dataset, sample) >= STI_IN_PLACE_BYTES;
}

/* What the store's and the bounce buffers' memory is aligned to, and what a covering read
 * can have beyond its sample, whatever tier it comes from. */
uint32_t
sti_fetcher_align(const struct sti_fetcher *fetcher);
uint64_t
sti_fetcher_padding_bytes(const struct sti_fetcher *fetcher);

/* ---- reads.c ---- */

int
sti_fetcher_reads_init(struct sti_fetcher *fetcher);
void
sti_fetcher_reads_fini(struct sti_fetcher *fetcher);

/* Starts to read an absent sample from the origin, for a waiter or for none; false if it
 * has to wait. */
bool
sti_fetcher_read(struct sti_fetcher *fetcher, uint32_t waiter, uint64_t sample,
                 const struct sti_extent *extent);

/* Makes a sample's entry that of one which is being read into an address, for a waiter or
 * for none. NULL when there is no entry to be had; the address is given back then. */
struct sti_entry *
sti_fetcher_begin_entry(struct sti_fetcher *fetcher, uint64_t sample, uint64_t address,
                        uint32_t waiter);

/* The sample is in memory: all that wait for it have it. next_use: where it is used if
 * nobody waits, or STI_POSITION_UNKNOWN. */
void
sti_fetcher_give(struct sti_fetcher *fetcher, uint64_t sample, struct sti_entry *entry,
                 uint64_t next_use);

/* The sample cannot be had; its memory is given back. */
void
sti_fetcher_lose(struct sti_fetcher *fetcher, uint64_t sample, uint64_t address, int code);

/* The batch that asked first for a sample was counted for a tier, but another one, the
 * origin for the most part, serves it. */
void
sti_fetcher_account_again(struct sti_fetcher *fetcher, uint64_t sample, enum stk_tier from,
                          enum stk_tier to);

/* Where bytes read from the origin are counted: with who waits. */
uint64_t *
sti_fetcher_origin_count(struct sti_fetcher *fetcher, uint32_t waiter);

/* The pieces that reads_ssd.c works with: a read of its own; NULL without a free one. */
struct sti_read *
sti_fetcher_new_read(struct sti_fetcher *fetcher, uint64_t n_bytes);
void
sti_fetcher_give_back_read(struct sti_fetcher *fetcher, struct sti_read *read);

/* Begins to read an absent sample as the next piece of a read, from offset of its file
 * on, for a waiter or for none; NULL when memory is short. */
struct sti_entry *
sti_fetcher_add_piece(struct sti_fetcher *fetcher, struct sti_read *read, uint64_t sample,
                      const struct sti_extent *extent, uint32_t waiter);

/* Makes a read of one piece one from the origin and submits it. */
void
sti_fetcher_read_again(struct sti_fetcher *fetcher, struct sti_read *read);

/* The read's pieces are in memory, or (code not 0) cannot be had. */
void
sti_fetcher_conclude_read(struct sti_fetcher *fetcher, struct sti_read *read, int code);

/* ---- reads_ssd.c ---- */

/* The same as sti_fetcher_read() for a sample that the SSD tier has. */
bool
sti_fetcher_read_ssd(struct sti_fetcher *fetcher, uint32_t waiter, uint64_t sample,
                     const struct sti_ssd_place *place);

/* Makes a read of one piece, which was to come from elsewhere, one from the SSD tier and
 * submits it. */
void
sti_fetcher_read_ssd_again(struct sti_fetcher *fetcher, struct sti_read *read,
                           const struct sti_ssd_place *place);

/* Opens the tier, and chooses the sizes that it and the store are for. */
int
sti_fetcher_open_ssd(struct sti_fetcher *fetcher);

/* Submits the read that was kept open for neighbours. */
void
sti_fetcher_submit_growing(struct sti_fetcher *fetcher);

/* A node, STI_NO_WAITER when all are used; and back. */
uint32_t
sti_fetcher_new_waiter(struct sti_fetcher *fetcher, struct sti_record *record, uint32_t item);
void
sti_fetcher_free_waiter(struct sti_fetcher *fetcher, uint32_t waiter);

/* After a seek: nobody waits for what is being read. */
void
sti_fetcher_drop_waiters(struct sti_fetcher *fetcher);

/* ---- decode.c ---- */

int
sti_fetcher_decode_init(struct sti_fetcher *fetcher);
void
sti_fetcher_decode_fini(struct sti_fetcher *fetcher);

/* Hands arrived items to the pool. */
void
sti_fetcher_decode_start(struct sti_fetcher *fetcher);

/* Takes back what the pool has done. */
void
sti_fetcher_decode_finish(struct sti_fetcher *fetcher);

/* ---- reads_peer.c ---- */

/* The same as sti_fetcher_read() for a sample that a peer holds. next_use: a position where
 * it is used though nobody waits for it, or STI_POSITION_UNKNOWN. */
bool
sti_fetcher_read_peer(struct sti_fetcher *fetcher, uint32_t waiter, uint64_t sample,
                      uint32_t holder, uint64_t next_use);

/* The same for a sample that this rank is to serve for its holder, in fetches of its own. */
bool
sti_fetcher_read_for_others(struct sti_fetcher *fetcher, uint64_t sample, uint32_t holder);

/* Asks again for what a holder had too much to do for. Returns after how many nanoseconds it wants
 * to be called again. */
uint64_t
sti_fetcher_ask_again(struct sti_fetcher *fetcher);

/* Goes on with what no peer has given. */
void
sti_fetcher_adopt_orphans(struct sti_fetcher *fetcher);

/* Nothing more comes from peers. */
void
sti_fetcher_cancel_fetches(struct sti_fetcher *fetcher);

/* ---- serve.c: nothing without a peering ---- */

/* Whether this rank holds a sample for all. */
static inline bool
sti_fetcher_is_mine(const struct sti_fetcher *fetcher, uint64_t sample)
{
    return fetcher->peering && sti_holders_is_mine(&fetcher->peering->holders, sample);
}

/* Whether it does so in memory: then its room there is its own. */
static inline bool
sti_fetcher_is_in_ram(const struct sti_fetcher *fetcher, uint64_t sample)
{
    return fetcher->peering && sti_holders_is_in_ram(&fetcher->peering->holders, sample);
}

/* Whether a sample that comes from the origin goes to the SSDs, too: with peers what this
 * rank holds on them by the plan, and what they have room for beside that. */
bool
sti_fetcher_goes_to_ssd(const struct sti_fetcher *fetcher, uint64_t sample, uint64_t n_bytes);

/* Sees to what peers ask, as far as possible. */
void
sti_fetcher_serve(struct sti_fetcher *fetcher);

/* A question that waited: its sample is there, or cannot be had. */
void
sti_fetcher_serve_arrived(struct sti_fetcher *fetcher, uint32_t number,
                          const struct sti_entry *entry);
void
sti_fetcher_serve_lost(struct sti_fetcher *fetcher, uint32_t number, int code);

/* Reads what this rank holds ahead of its first use, with what the walk leaves. */
void
sti_fetcher_fill(struct sti_fetcher *fetcher);

/* ---- copies.c ---- */

/* Has copies come ahead of their use, with what the walk leaves; whether there is more to
 * look at at once. */
bool
sti_fetcher_take_copies(struct sti_fetcher *fetcher);

/* ---- fetcher.c ---- */

/*
 * Has an absent sample brought from where it is best had, for a waiter or for none; false
 * if that has to wait. ret_tier: from where. ret_code: 0, or the sample cannot be had.
 */
bool
sti_fetcher_bring(struct sti_fetcher *fetcher, uint32_t waiter, uint64_t sample,
                  enum stk_tier *ret_tier, int *ret_code);

/* Stops counting what an item would have been given: it gets another sample or fails. */
void
sti_fetcher_discount(struct sti_fetcher *fetcher, struct sti_record *record, uint32_t item);

/* An item's sample is in memory: RAW items are done, FIXED ones go to be decoded. */
void
sti_fetcher_arrive(struct sti_fetcher *fetcher, struct sti_record *record, uint32_t item,
                   uint64_t sample, const struct sti_entry *entry);

/*
 * Looks an item's sample up and pins it, waits for it or has it read; false: try again
 * later. is_substitute: the place in staging is not asked for, since a batch that is
 * begun must come to its end and substitutes may be larger than what they stand in for.
 */
bool
sti_fetcher_take(struct sti_fetcher *fetcher, struct sti_record *record, uint32_t item,
                 uint64_t sample, bool is_substitute);

/* ---- bad.c ---- */

/* An item cannot have its sample: the batch fails, or a substitute is looked for. */
void
sti_fetcher_fail(struct sti_fetcher *fetcher, struct sti_record *record, uint32_t item,
                 const struct sti_bad *bad);

/* An item is done: if it has a substitute, the ledger says so. */
void
sti_fetcher_note_substitute(struct sti_fetcher *fetcher, const struct sti_record *record,
                            uint32_t item);

/* Tries the substitutes that had to wait; false if some still have to. */
bool
sti_fetcher_redo(struct sti_fetcher *fetcher);

#endif
