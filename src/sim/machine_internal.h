/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the machine: its queues and ranks, shared by the run (machine.c) and the ways of
 * a sample through the queues (machine_fetch.c). */
#ifndef STI_SIM_MACHINE_INTERNAL_H
#define STI_SIM_MACHINE_INTERNAL_H

#include "sim/events.h"
#include "sim/machine.h"

#define STI_SIM_DECODERS_MAX 256

/* Where a sample is on its way. */
enum sti_stage {
    STI_STAGE_READ, /* at the place that has it */
    STI_STAGE_MOVE, /* on the network, then being decoded */
    STI_STAGE_SAVE, /* a piece of a checkpoint on its way to the SSD */
};

/* One thread's work. */
struct sti_fetch {
    uint32_t rank;
    uint32_t sample;
    uint32_t peer;      /* a node */
    uint32_t step_slot; /* of the rank's ring */
    uint8_t source;     /* enum sti_source */
    uint8_t stage;      /* enum sti_stage */
    bool is_fill;       /* for a tier, not for a step */
};

/* A node: queues that its ranks share. Times in seconds. */
struct sti_sim_node {
    double ram_free_s; /* when each queue is empty */
    double ssd_free_s;
    double in_free_s;
    double out_free_s;
    double ram_mb_s; /* and what it serves */
    double ssd_mb_s;
    double ssd_write_mb_s;
    double net_mb_s;
    double origin_link_mb_s;
    double decode_mb_s;  /* of a fetching thread */
    double compute_mb_s; /* of a rank */
};

/* A rank. */
struct sti_sim_rank {
    struct sti_sim_node *node;
    uint64_t epoch; /* of the next element to fetch */
    uint64_t step;
    uint64_t item;
    double ready_s;        /* when the current step's samples were there */
    double staged_bytes;   /* in use, on the way or waiting */
    uint32_t free_threads; /* of staging */
    uint32_t free_fillers;
    uint32_t n_at_origin; /* reads of the origin under way */
    bool is_ready;
    uint32_t *fill; /* samples that are to be filled, in order of first use */
    uint64_t n_fill;
    uint64_t next_fill;
    double decoder_free_s[STI_SIM_DECODERS_MAX]; /* when each decoding thread is */
    double save_bytes;  /* of the checkpoint that is being written: not written yet */
    double piece_bytes; /* of it, written at a time */
};

struct sti_machine {
    struct sti_sim_plan *plan;
    const struct sti_scenario *scenario;
    struct sti_events events;
    struct sti_fetch *fetches;
    uint32_t *free_fetches; /* a stack of indexes */
    uint32_t n_free_fetches;
    struct sti_sim_rank *ranks;
    struct sti_sim_node *nodes;
    double origin_free_s;
    uint32_t n_origin_clients; /* ranks with reads of the origin under way */
    uint64_t n_slots;          /* of a rank's ring of steps */
    uint32_t *arrived;         /* [rank * n_slots + slot]: samples of a step that are there */
    uint64_t *batch_bytes;     /* the same: their bytes */
    uint64_t current;          /* step of the run, all epochs counted through */
    uint32_t n_ready;
    uint32_t n_saving; /* ranks that write a checkpoint */
    double now_s;
    struct sti_assignment there; /* a policy that fills beside the run: what has come so far */
    stk_sim_result result;
};

/* Starts what a rank may start now. */
void
sti_machine_pump(struct sti_machine *machine, uint32_t number);

/* Does what is due. */
void
sti_machine_event(struct sti_machine *machine, const struct sti_event *event);

/* Begins to write a rank's part of a checkpoint. */
void
sti_machine_save(struct sti_machine *machine, uint32_t rank, double n_bytes);

#endif
