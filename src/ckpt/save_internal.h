/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the saver share; nobody else includes this. */
#ifndef STI_CKPT_SAVE_INTERNAL_H
#define STI_CKPT_SAVE_INTERNAL_H

#include <sys/stat.h>

#include "base/mem.h"
#include "base/thread.h"
#include "ckpt/depot.h"
#include "ckpt/manifest.h"
#include "ckpt/merge.h"
#include "ckpt/names.h"
#include "ckpt/retain.h"
#include "ckpt/saver.h"
#include "ckpt/text.h"

struct sti_save;
struct sti_stripe;

/* One operation of a stage, for a stripe or for the save as a whole (stripe NULL). */
struct sti_chore {
    struct sti_save *save;
    struct sti_stripe *stripe;
    struct sti_aio_op op;
};

/* The part of one root: a file of this save. */
struct sti_stripe {
    struct sti_save *save;
    struct sti_root *root;
    const struct sti_layout *layout; /* of the stream that its extents are of */
    struct sti_part part;
    char path[2 * STI_NAME_SIZE]; /* root-relative */
    int fd;
    bool is_made;           /* the file is ours to remove */
    uint64_t filled_bytes;  /* given to slots */
    uint64_t written_bytes; /* of the part, not of its padding */
    uint64_t behind_bytes;  /* buffered: written since the last sync was started */
    uint64_t first_ns;      /* when its first write was started */
    uint64_t last_ns;       /* when its last one was done */
    uint32_t n_slots;       /* that hold bytes of it */
    uint32_t n_writing;     /* of them given to the device */
    bool is_syncing;        /* buffered: sync_chore is under way */
    /* Of a drain: where the part is read. */
    struct sti_root *from_root;
    char from_path[2 * STI_NAME_SIZE];
    int from_fd;        /* -1: not open */
    uint32_t part_idx;  /* of a pull: in its manifest */
    struct statx found; /* of a pull: what has the part's name already */
    struct sti_chore chore;
    struct sti_chore sync_chore;
};

enum sti_slot_state { STI_SLOT_FREE, STI_SLOT_FILLING, STI_SLOT_FULL, STI_SLOT_WRITING };

struct sti_slot {
    struct sti_saver *saver;
    struct sti_stripe *stripe;
    char *bytes;
    uint64_t offset;       /* in the part's file */
    uint32_t n_bytes;      /* of the part */
    uint32_t padded_bytes; /* that are written */
    uint32_t done_bytes;   /* written */
    enum sti_slot_state state;
    uint32_t budget_class;
    bool is_damaged;           /* of a drain: what was read does not have its CRCs */
    struct sti_depot_ask *ask; /* of a pull: its own memory */
    struct sti_job job;
    struct sti_aio_op op;
    struct sti_slot *next; /* of the saver's filled */
};

/* A look at the files of others. */
struct sti_look {
    struct statx found;
    char path[2048];
    uint32_t n_seen; /* parts of the manifest */
};

/* Where a tensor's bytes are: those from a place in it on that this writer writes. */
struct sti_source {
    const char *bytes;
    uint64_t from;
    uint64_t n_bytes;
};

/* A save from begin to end. Its memory is the loop's from submission on, but for what is
 * said to be under the saver's lock. */
struct sti_save {
    struct sti_saver *saver;
    bool is_declined; /* nothing but a vote against it */
    bool is_used;     /* of the saver's declined: under the saver's lock */
    bool wants_drain; /* whatever is under way */
    bool must_drain;  /* it is decided that it goes on as a drain when it is durable */
    bool is_drain;    /* it is one */
    bool is_pull;     /* it copies parts of another node */
    uint64_t step;
    uint64_t serial;
    char id[STI_ID_SIZE];
    char parts_name[STI_NAME_SIZE];
    char commit_name[STI_NAME_SIZE];
    char step_name[STI_NAME_SIZE];
    char manifest_path[2 * STI_NAME_SIZE];
    struct sti_layout layout; /* of what this writer holds */
    struct sti_group *groups; /* of the layout's owners */
    uint32_t n_groups;
    uint32_t *group_writers;    /* memory of the groups */
    uint32_t *sums;             /* NULL, or the CRC-32C of each tensor of the layout */
    struct sti_source *sources; /* of each tensor of the layout */
    char *copies;               /* of those that were not stable */
    struct sti_stripe *stripes; /* and room for one more: the header's */
    uint32_t n_stripes;
    uint32_t first_stripe; /* that stages are about; those before are done */
    uint64_t begun_ns;

    /* Under the lock. By tensor as given: stable bytes not captured yet. */
    uint64_t *uncaptured_bytes;
    uint32_t n_uncaptured;
    bool is_released; /* nothing more will be captured: it failed */

    /* The loop's. */
    uint32_t run;    /* of the protocol's */
    uint32_t stage;  /* of the run's */
    bool is_started; /* the stage */
    bool is_undoing;
    bool can_write;
    bool has_cast;
    bool is_published; /* of nodes: the manifest is what all keepers commit */
    bool keep_parts;   /* the commit may have happened */
    bool has_renamed;  /* by this writer */
    bool is_acknowledged;
    uint32_t n_pending; /* operations of stages and writes */
    uint32_t n_filling;
    int result;
    stk_error error;
    struct sti_chore chore;
    struct sti_ballot *ballots; /* world; of the coordinator */
    struct sti_text ballot;     /* until it is cast */
    struct sti_merged merged;   /* of the coordinator of several */
    int merge_result;           /* and why, where that failed */
    int merge_rank;
    char merge_text[STK_ERROR_MESSAGE_SIZE];
    struct sti_look *look;
    struct sti_manifest pulled; /* of a pull: what is copied */
    struct sti_text manifest;
    const char *manifest_bytes; /* of the text, or the vote's */
    uint64_t manifest_n_bytes;
    uint64_t manifest_done;
    int manifest_fd;
    bool has_commit_dir;
    uint64_t captured_ns; /* under the lock: when the last stable tensor was */
};

struct sti_saver {
    struct sti_saver_opts opts;
    struct sti_vote *own_vote; /* of a writer alone */
    struct sti_arena arena;
    struct sti_slot *slots;
    struct sti_depot_ask *asks; /* of one that pulls: of each slot */

    struct sti_mutex lock;
    struct sti_cond changed;
    struct sti_save *queue[STI_SAVES_MAX] STI_GUARDED_BY(&lock); /* oldest first */
    /* Made beforehand: a vote against a save must not want for memory. One more than can be
     * queued, for the one that is being freed. */
    struct sti_save declined[STI_SAVES_MAX + 1];
    uint32_t n_queued STI_GUARDED_BY(&lock);
    uint64_t serial STI_GUARDED_BY(&lock);
    struct sti_slot *filled STI_GUARDED_BY(&lock); /* by jobs, for the loop */
    bool is_active STI_GUARDED_BY(&lock);          /* the loop has something of this saver */
    uint32_t n_coming STI_GUARDED_BY(&lock);       /* drains that will be queued */
    uint32_t n_fencing STI_GUARDED_BY(&lock);      /* threads that wait for capture */
    stk_error latched STI_GUARDED_BY(&lock);       /* code 0: none */
    uint32_t n_more STI_GUARDED_BY(&lock);         /* failures since, not told */
    struct sti_saver_status status STI_GUARDED_BY(&lock);

    /* The loop's. */
    struct sti_save *active;
    struct sti_retain retain;
    struct sti_chore retain_chore;
    bool is_retaining;
    uint32_t n_undrained; /* durable ones since the last that is drained */
    uint64_t wake_ns;     /* when the budget wants to be asked again; UINT64_MAX */
};

/* ---- save_begin.c ------------------------------------------------------------------ */

/* Makes a save of a request, with copies of what is not stable. Program's thread. */
int
sti_save_new(struct sti_save **ret_save, struct sti_saver *saver,
             const struct sti_saver_request *request, uint64_t serial, stk_error *err);

/* A save that only votes against itself, for a reason. Program's thread. */
struct sti_save *
sti_save_decline(struct sti_saver *saver, uint64_t step, uint64_t serial, const stk_error *why);
void
sti_save_free(struct sti_save *save);

/* Adds the stripe of the merged stream's header. Errors: -ENOMEM. Loop. */
int
sti_save_add_header(struct sti_save *save);

/* The names of a save of its saver's session, by its serial. */
void
sti_save_make_names(struct sti_save *save);

/* ---- save_drain.c ------------------------------------------------------------------ */

/* Copies that may be under way or waiting before a save that will be copied begins. */
#define STI_DRAINS_MAX 2u

/* Whether a save that is about to be committed is drained: asked once, by the coordinator. */
bool
sti_save_must_drain(struct sti_save *save);

/* Makes a durable save one of the saver that drains. */
void
sti_save_pass_on(struct sti_save *save);

/* Whether the device that a part is read from has room for one more read now. */
bool
sti_save_may_read(struct sti_save *save, const struct sti_stripe *stripe);

/* Reads and checks the slot's bytes; it is full when that is done. */
void
sti_slot_read(struct sti_slot *slot);

/* ---- save_pull.c ------------------------------------------------------------------- */

/* Begins the copy that is expected, if there is one who copies. */
void
sti_save_begin_pull(const struct sti_save *from);

/* Asks the other node for the slot's bytes and checks them; it is full when that is done. */
void
sti_slot_pull(struct sti_slot *slot);

/* ---- save_fill.c ------------------------------------------------------------------- */

/* Copies and sums the slot's bytes; a pool thread. */
void
sti_slot_fill(struct sti_slot *slot);

/* ---- save_write.c ------------------------------------------------------------------ */

/* Gives free slots to stripes and full ones to the devices. Loop. */
void
sti_save_pump(struct sti_save *save);

/* Takes back slots that jobs have filled. Loop. */
void
sti_saver_take_filled(struct sti_saver *saver);

/* ---- save_commit.c ----------------------------------------------------------------- */

/* Goes on with a save as far as it can; true when it is over. Loop. */
bool
sti_save_advance(struct sti_save *save);

/* Remembers the first failure. what: the stage. stripe may be NULL. */
void
sti_save_fail(struct sti_save *save, const struct sti_stripe *stripe, const char *what, int rc);

/* ---- saver.c ----------------------------------------------------------------------- */

/* The save is durable, or has failed: tells the program. Loop. */
void
sti_saver_acknowledge(struct sti_save *save);

/* Whether this writer writes manifests, and removes old ones. */
bool
sti_saver_is_keeper(const struct sti_saver *saver);

/* Before a save is acknowledged: who waits for copies waits for its own, too. copies NULL: it has
 * none. Loop. */
void
sti_saver_expect_copy(struct sti_saver *copies);

/* Gives a copy that was expected to the saver that makes it; or leaves it out, and says so, where
 * this rank is so far behind that the others have given up on some: they will on this one, too,
 * and name it. Loop. */
void
sti_saver_take_copy(struct sti_saver *copies, struct sti_save *save);

/* Keeps an error for the program's next call. */
void
sti_saver_latch(struct sti_saver *saver, const stk_error *error);

#endif
