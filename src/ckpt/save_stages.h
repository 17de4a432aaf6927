/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stages of a save: what each starts, and how its results are looked at. save_protocol.c has
 * them in their order, which is the order of the guarantee. The loop's thread alone.
 */
#ifndef STI_CKPT_SAVE_STAGES_H
#define STI_CKPT_SAVE_STAGES_H

#include "ckpt/save_internal.h"

/*
 * name     what an error says that the save was doing.
 * start    starts the operations; may start none.
 * check    turns an operation's result into 0 or an error; NULL: a negative one is an
 *          error.
 * is_over  NULL, or whether the stage is over when no operation is under way.
 */
struct sti_stage {
    const char *name;
    void (*start)(struct sti_save *save);
    int (*check)(struct sti_save *save, struct sti_chore *chore);
    bool (*is_over)(struct sti_save *save);
};

/* On whom stages run; the others pass them by. */
enum sti_stage_whose { STI_STAGE_ALL, STI_STAGE_FIRST, STI_STAGE_KEEPERS };

/* Stages one after the other. of: NULL, or of what, for errors. */
struct sti_stage_run {
    const struct sti_stage *stages;
    uint32_t n; /* 0: there are no more runs */
    enum sti_stage_whose whose;
    const char *of;
};

/* A run of a whole array. */
#define STI_STAGE_RUN(array, whose, of)                            \
    {                                                              \
        (array), sizeof(array) / sizeof((array)[0]), (whose), (of) \
    }

/* The runs of a save, all of which lead to its end (save_protocol.c). */
const struct sti_stage_run *
sti_stage_protocol(const struct sti_save *save);

/* ---- what all of them use (save_commit.c) ------------------------------------------ */

/* The stage that a save is in. */
const struct sti_stage *
sti_stage_current(const struct sti_save *save);

/* Starts an operation of a stage; what it is stands in op. */
void
sti_stage_start(struct sti_chore *chore, struct sti_aio_op op);

/* Starts the same kind of operation on the file, or on a path in the root, of every part. */
void
sti_stage_start_on_files(struct sti_save *save, enum sti_aio_kind kind);
void
sti_stage_start_on_paths(struct sti_save *save, struct sti_aio_op op);

/* Where the manifest goes. */
struct sti_root *
sti_stage_directory(const struct sti_save *save);

/* For messages. */
const char *
sti_stage_name_of(const struct sti_save *save);

/* Work of a pool thread. */
void
sti_stage_start_work(struct sti_save *save, sti_aio_fn work);

/* ---- parts (save_parts.c) ---------------------------------------------------------- */

void
sti_stage_make_dirs(struct sti_save *save);
int
sti_stage_check_made(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_open_parts(struct sti_save *save);
int
sti_stage_check_opened(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_open_sources(struct sti_save *save);
int
sti_stage_check_source_opened(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_close_sources(struct sti_save *save);
int
sti_stage_check_source_closed(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_reserve(struct sti_save *save);
int
sti_stage_check_reserved(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_begin_writing(struct sti_save *save);
bool
sti_stage_is_written(struct sti_save *save);
void
sti_stage_set_sizes(struct sti_save *save);
void
sti_stage_sync_parts(struct sti_save *save);
void
sti_stage_close_parts(struct sti_save *save);
int
sti_stage_check_closed(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_sync_part_dirs(struct sti_save *save);
void
sti_stage_sync_roots(struct sti_save *save);

/* ---- ballots and verdicts (save_vote.c) --------------------------------------------- */

void
sti_stage_make_short_ballot(struct sti_save *save);
void
sti_stage_make_ballot(struct sti_save *save);
int
sti_stage_check_ballot(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_cast(struct sti_save *save);
void
sti_stage_vote(struct sti_save *save);
bool
sti_stage_is_tallied(struct sti_save *save);
void
sti_stage_put_together(struct sti_save *save);
int
sti_stage_check_merged(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_look_for_all(struct sti_save *save);
void
sti_stage_look_for_parts(struct sti_save *save);
int
sti_stage_check_seen(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_publish(struct sti_save *save);
bool
sti_stage_is_published(struct sti_save *save);
void
sti_stage_fetch(struct sti_save *save);
bool
sti_stage_is_fetched(struct sti_save *save);
void
sti_stage_vote_again(struct sti_save *save);
void
sti_stage_decide(struct sti_save *save);
bool
sti_stage_is_decided(struct sti_save *save);
void
sti_stage_acknowledge(struct sti_save *save);
/* What this writer has written, in the stream of its own. */
void
sti_stage_encode_own(const struct sti_save *save, struct sti_text *text,
                     void (*encode)(const struct sti_manifest *manifest, struct sti_text *text));

/* ---- what is pulled (save_pull.c) ---------------------------------------------------- */

void
sti_stage_look_at_manifest(struct sti_save *save);
int
sti_stage_check_manifest_seen(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_read_manifest(struct sti_save *save);
int
sti_stage_check_manifest_read(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_look_for_copies(struct sti_save *save);
int
sti_stage_check_no_copy(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_name_copies(struct sti_save *save);
int
sti_stage_check_named(struct sti_save *save, struct sti_chore *chore);

/* ---- the manifest (save_manifest.c) ------------------------------------------------- */

/* Whether the step is free in this node's directory: what is published goes to all of them. */
void
sti_stage_look_for_step(struct sti_save *save);
int
sti_stage_check_free(struct sti_save *save, struct sti_chore *chore);
/* Puts all parts into the manifest and encodes it. */
void
sti_stage_encode(struct sti_save *save);
int
sti_stage_check_encoded(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_make_keepers_dir(struct sti_save *save);
int
sti_stage_check_keepers_dir(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_make_commit_dir(struct sti_save *save);
int
sti_stage_check_commit_dir(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_open_manifest(struct sti_save *save);
int
sti_stage_check_manifest_opened(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_write_manifest(struct sti_save *save);
int
sti_stage_check_manifest_written(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_sync_manifest(struct sti_save *save);
void
sti_stage_close_manifest(struct sti_save *save);
void
sti_stage_sync_commit_dir(struct sti_save *save);
void
sti_stage_commit(struct sti_save *save);
int
sti_stage_check_committed(struct sti_save *save, struct sti_chore *chore);
void
sti_stage_sync_directory(struct sti_save *save);

#endif
