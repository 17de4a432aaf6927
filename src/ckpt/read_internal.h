/* SPDX-License-Identifier: Apache-2.0 */
/* What the reading's files share: the loop (read_run.c), what becomes of one slot
 * (read_slot.c), and where else it is looked for (read_elsewhere.c). */
#ifndef STI_CKPT_READ_INTERNAL_H
#define STI_CKPT_READ_INTERNAL_H

#include "ckpt/reader_internal.h"

#define STI_READ_HERE UINT32_MAX

struct sti_run;

/* What was wrong in the first place. */
struct sti_read_trouble {
    int rc;
    uint64_t offset;
    const char *what;
    uint32_t node;
};

struct sti_read_slot {
    struct sti_run *run;
    char *bytes;
    uint32_t part;
    uint64_t offset; /* in the part's file, at a chunk */
    uint32_t n_bytes;
    uint32_t n_behind; /* bytes to be read when these are right */
    uint32_t done_bytes;
    uint32_t first_segment; /* the first that ends behind offset */
    int rc;                 /* of the check */
    uint64_t bad_offset;
    uint32_t n_tried; /* places in which it was not right */
    uint32_t node;    /* that is asked now, of the scan's; STI_READ_HERE: it is read here */
    struct sti_read_trouble trouble;
    struct sti_aio_op op;
    struct sti_depot_ask *ask; /* of one that another node is asked for; its own memory */
    bool is_asking;
    bool is_spared; /* it was right in the spare copy */
    struct sti_read_slot *next;
};

/* Where the walk through one part is. */
struct sti_walk {
    uint32_t segment; /* the next one that is not wholly read */
    uint32_t end;     /* behind the part's last */
    uint64_t offset;  /* everything before it is read */
};

struct sti_run {
    struct sti_reader *reader;
    const struct sti_segments *segments;
    const struct sti_reading *reading;
    struct sti_arena arena;
    struct sti_read_slot *slots;
    struct sti_depot_ask *asks; /* NULL: there are no other nodes */
    struct sti_read_slot *free;
    struct sti_read_slot *for_spare; /* right on no node */
    struct sti_walk *walks;
    uint32_t turn;        /* the part whose turn it is */
    uint32_t n_under_way; /* those for the spare among them */
    uint32_t n_for_spare;
    uint64_t done_bytes;
    int result;
    stk_error *err;
};

/* Begins to fill a slot of part, offset and n_bytes. */
void
sti_read_slot_start(struct sti_read_slot *slot);

/* Reads what is missing of it from the slot's node. */
void
sti_read_slot_submit(struct sti_read_slot *slot);

/* Checks and hands out what the slot's op has read; the result is slot->rc. Any thread. */
void
sti_read_slot_check(struct sti_aio_op *op);

/* Its bytes are right and handed out: it goes on with what is behind them, or is done. */
void
sti_read_slot_right(struct sti_read_slot *slot);

/* It is done, right or not. */
void
sti_read_slot_free(struct sti_read_slot *slot);

/* Goes on with what other nodes have answered. */
void
sti_read_take_answers(struct sti_run *run);

/* Where a part lies, as slots have it. */
uint32_t
sti_read_home(const struct sti_run *run, uint32_t part);

/* A slot that is not right where it comes from is looked for elsewhere, or fails the run. */
void
sti_read_elsewhere(struct sti_read_slot *slot, int rc, uint64_t offset, const char *what);

/* Goes on with the slots that wait for the spare copy, when nothing else is under way. */
void
sti_read_take_spare(struct sti_run *run);

#endif
