/* SPDX-License-Identifier: Apache-2.0 */
/* What the three kinds of horizon share. Nobody else includes this. */
#ifndef STI_TIER_HORIZON_INTERNAL_H
#define STI_TIER_HORIZON_INTERNAL_H

#include "tier/horizon.h"

#define STI_NO_LINK 0u

/* An epoch held as a table. */
struct sti_epoch_slot {
    struct sti_job job;
    struct sti_horizon *horizon;
    void *ids;       /* sti_order_id_bytes() each */
    uint32_t *links; /* how far behind a position the sample's next use lies; 0: not known */
    bool has_links;  /* some may not be 0 */
    void *scratch;   /* sti_order_scratch_bytes(), of one slot at most but for jobs under way */
    uint64_t epoch;
    struct sti_order_cursor cursor;
    bool is_hurried; /* its job is as urgent as it can be */
    int state;       /* atomic: enum slot_state; READY is set by the job, last */
};

enum sti_slot_state { STI_SLOT_EMPTY, STI_SLOT_MAKING, STI_SLOT_READY };

/* A pushed list: rings over positions, and where its epochs end. */
struct sti_list {
    uint64_t *ids;
    uint32_t *links;
    uint64_t *ends; /* ring of end positions of epochs pushed and not yet passed */
    uint64_t n_ends;
    uint64_t first_end;
    uint64_t epoch; /* of the next batch */
    uint64_t epoch_step;
    uint64_t step;
    uint64_t end_position; /* behind the last pushed id */
    bool is_ended;
};

enum sti_horizon_kind { STI_HORIZON_TABLE, STI_HORIZON_COMPUTED, STI_HORIZON_LIST };

struct sti_horizon {
    struct sti_horizon_opts opts;
    enum sti_horizon_kind kind;
    uint64_t length;          /* samples of an epoch that are handed out */
    uint64_t batches;         /* of an epoch */
    uint64_t base_position;   /* the current run of positions starts here, ... */
    uint64_t base_epoch;      /* ... in this epoch ... */
    uint64_t base_idx;        /* ... at this index */
    uint64_t fetch_position;  /* as told by the last step */
    uint64_t linked_position; /* next uses are linked up to here */
    bool has_strangers;       /* samples are cached from before the current run of positions */

    struct sti_epoch_slot *slots;
    uint32_t n_slots;
    bool is_short_of_memory;        /* an epoch could not be made at the last step */
    struct sti_epoch_slot *current; /* the slot last read from, and its positions */
    uint64_t current_first;
    uint64_t current_end;

    struct sti_list list;
};

/* Epoch and index of a position; not for lists. */
void
sti_horizon_locate(const struct sti_horizon *horizon, uint64_t position, uint64_t *ret_epoch,
                   uint64_t *ret_idx);

/* The position of an index of an epoch, at or after the base; not for lists. */
uint64_t
sti_horizon_position(const struct sti_horizon *horizon, uint64_t epoch, uint64_t idx);

/* A sample is read at a position and was read before, or not, at its entry's last: sets
 * the link there (through set_link) and tells whom it concerns. */
void
sti_horizon_link(struct sti_horizon *horizon, uint64_t sample, uint64_t position);

/* Tables. */
int
sti_table_init(struct sti_horizon *horizon);
void
sti_table_fini(struct sti_horizon *horizon);
bool
sti_table_step(struct sti_horizon *horizon, uint64_t returned_position);
void
sti_table_hurry(struct sti_horizon *horizon);
bool
sti_table_has(struct sti_horizon *horizon, uint64_t position);
uint64_t
sti_table_sample(struct sti_horizon *horizon, uint64_t position);
uint32_t *
sti_table_link(struct sti_horizon *horizon, uint64_t position);

/* Makes all links of a slot 0. */
void
sti_table_clear_links(const struct sti_horizon *horizon, struct sti_epoch_slot *slot);

/* Lists. */
int
sti_list_init(struct sti_horizon *horizon);
void
sti_list_fini(struct sti_horizon *horizon);
enum sti_cut
sti_list_cut(struct sti_horizon *horizon, uint64_t position, struct sti_batch_cut *ret_cut);
uint64_t
sti_list_sample(const struct sti_horizon *horizon, uint64_t position);
uint32_t *
sti_list_link(struct sti_horizon *horizon, uint64_t position);
void
sti_list_step(struct sti_horizon *horizon);

#endif
