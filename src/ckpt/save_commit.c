/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save as a row of stages: parts are made, written, synced, closed and their
 * directories synced; the writers vote; the coordinator of several puts together what they
 * have written and writes the header of that, in the same way; it writes the manifest into a
 * directory of its own and renames that to step-N, the one commit point; then the parent
 * is synced and the save is acknowledged. Each stage starts operations and is over when
 * all have ended; the order of stages is the order of the guarantee.
 *
 * After a failure no stage is tried again. What was made is removed, unless the rename
 * was started: then the checkpoint may be there, and its parts stay.
 *
 * The loop's thread alone. Invariant: no operation of a stage is under way when the next
 * one starts, so a sync covers every write before it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "ckpt/save_stages.h"

/* Damaged ones stay until a person looks: nobody else removes the only trace of a loss. */
#define ALREADY "; that step was saved before: remove its directory if it is not whole"

struct sti_root *
sti_stage_directory(const struct sti_save *save)
{
    return &save->saver->opts.roots[0];
}

const char *
sti_stage_name_of(const struct sti_save *save)
{
    return save->is_drain ? "shared copy" : save->is_pull ? "partner copy" : "save";
}

void
sti_save_fail(struct sti_save *save, const struct sti_stripe *stripe, const char *what, int rc)
{
    char root[STK_ERROR_PATH_SIZE / 2];

    if (save->result < 0)
        return;
    save->result = rc;
    (void)snprintf(root, sizeof(root), "%s", stripe ? stripe->root->path : ""); /* cut is fine */
    if (stripe)
        (void)sti_error_set_path(
            &save->error, rc, stripe->path,
            "the %s of step %" PRIu64 " failed: %s of part %" PRIu32 " in root %.120s: %s",
            sti_stage_name_of(save), save->step, what, stripe->part.root, root, sti_error_text(rc));
    else
        (void)sti_error_set_path(&save->error, rc, save->step_name,
                                 "the %s of step %" PRIu64 " failed: %s: %s%s",
                                 sti_stage_name_of(save), save->step, what, sti_error_text(rc),
                                 rc == -EEXIST ? ALREADY : "");
}

/* ---- starting operations ----------------------------------------------------------- */

static void
on_done(struct sti_aio_op *op)
{
    struct sti_chore *chore = op->context;
    struct sti_save *save = chore->save;
    const struct sti_stage *stage = sti_stage_current(save);
    int rc = op->result < 0 ? op->result : 0;

    save->n_pending--;
    if (stage->check)
        rc = stage->check(save, chore);
    if (rc < 0 && !save->is_undoing)
        sti_save_fail(save, chore->stripe, stage->name, rc);
}

void
sti_stage_start(struct sti_chore *chore, struct sti_aio_op op)
{
    chore->op = op;
    chore->op.done = on_done;
    chore->op.context = chore;
    chore->save->n_pending++;
    sti_aio_submit(chore->save->saver->opts.aio, &chore->op);
}

void
sti_stage_start_on_files(struct sti_save *save, enum sti_aio_kind kind)
{
    for (uint32_t at = 0; at < save->n_stripes; at++)
        if (save->stripes[at].fd >= 0)
            sti_stage_start(&save->stripes[at].chore,
                            (struct sti_aio_op){.kind = kind, .fd = save->stripes[at].fd});
}

void
sti_stage_start_on_paths(struct sti_save *save, struct sti_aio_op op)
{
    for (uint32_t at = save->first_stripe; at < save->n_stripes; at++) {
        op.dir_fd = save->stripes[at].root->dir_fd;
        sti_stage_start(&save->stripes[at].chore, op);
    }
}

/* Work of a pool thread beside a look at the directory, which costs nothing. */
void
sti_stage_start_work(struct sti_save *save, sti_aio_fn work)
{
    sti_stage_start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_STATX,
                                                      .dir_fd = sti_stage_directory(save)->dir_fd,
                                                      .path = ".",
                                                      .statx_mask = STATX_TYPE,
                                                      .statx = &save->look->found,
                                                      .work = work,
                                                      .work_lane = STI_LANE_NORMAL});
}

/* ---- their order -------------------------------------------------------------------- */

static const struct sti_stage stages[] = {
    {"make directory", sti_stage_make_dirs, sti_stage_check_made, NULL, STI_STAGE_ALL},
    {"create", sti_stage_open_parts, sti_stage_check_opened, NULL, STI_STAGE_ALL},
    {"reserve space", sti_stage_reserve, sti_stage_check_reserved, NULL, STI_STAGE_ALL},
    {"write", sti_stage_begin_writing, NULL, sti_stage_is_written, STI_STAGE_ALL},
    {"set size", sti_stage_set_sizes, NULL, NULL, STI_STAGE_ALL},
    {"sync", sti_stage_sync_parts, NULL, NULL, STI_STAGE_ALL},
    {"close", sti_stage_close_parts, sti_stage_check_closed, NULL, STI_STAGE_ALL},
    {"sync directory", sti_stage_sync_part_dirs, NULL, NULL, STI_STAGE_ALL},
    {"sync root", sti_stage_sync_roots, NULL, NULL, STI_STAGE_ALL},
    {"make the ballot", sti_stage_make_ballot, sti_stage_check_ballot, NULL, STI_STAGE_ALL},
    {"vote", sti_stage_vote, NULL, sti_stage_is_tallied, STI_STAGE_ALL},
    {"put the ballots together", sti_stage_put_together, sti_stage_check_merged, NULL,
     STI_STAGE_FIRST},
    {"make the header's directory", sti_stage_make_dirs, sti_stage_check_made, NULL,
     STI_STAGE_FIRST},
    {"create the header", sti_stage_open_parts, sti_stage_check_opened, NULL, STI_STAGE_FIRST},
    {"reserve the header's space", sti_stage_reserve, sti_stage_check_reserved, NULL,
     STI_STAGE_FIRST},
    {"write the header", sti_stage_begin_writing, NULL, sti_stage_is_written, STI_STAGE_FIRST},
    {"set the header's size", sti_stage_set_sizes, NULL, NULL, STI_STAGE_FIRST},
    {"sync the header", sti_stage_sync_parts, NULL, NULL, STI_STAGE_FIRST},
    {"close the header", sti_stage_close_parts, sti_stage_check_closed, NULL, STI_STAGE_FIRST},
    {"sync the header's directory", sti_stage_sync_part_dirs, NULL, NULL, STI_STAGE_FIRST},
    {"sync the header's root", sti_stage_sync_roots, NULL, NULL, STI_STAGE_FIRST},
    {"look for the parts", sti_stage_look_for_parts, sti_stage_check_seen, NULL, STI_STAGE_FIRST},
    {"make the manifest's directory", sti_stage_make_commit_dir, sti_stage_check_commit_dir, NULL,
     STI_STAGE_FIRST},
    {"create the manifest", sti_stage_open_manifest, sti_stage_check_manifest_opened, NULL,
     STI_STAGE_FIRST},
    {"write the manifest", sti_stage_write_manifest, sti_stage_check_manifest_written, NULL,
     STI_STAGE_FIRST},
    {"sync the manifest", sti_stage_sync_manifest, NULL, NULL, STI_STAGE_FIRST},
    {"close the manifest", sti_stage_close_manifest, sti_stage_check_closed, NULL, STI_STAGE_FIRST},
    {"sync the manifest's directory", sti_stage_sync_commit_dir, NULL, NULL, STI_STAGE_FIRST},
    {"commit", sti_stage_commit, sti_stage_check_committed, NULL, STI_STAGE_FIRST},
    {"sync after the commit", sti_stage_sync_directory, NULL, NULL, STI_STAGE_FIRST},
    {"decide", sti_stage_decide, NULL, sti_stage_is_decided, STI_STAGE_ALL},
    {"acknowledge", sti_stage_acknowledge, NULL, NULL, STI_STAGE_ALL},
};
#define N_STAGES (sizeof(stages) / sizeof(stages[0]))

static const struct sti_stage drain_stages[] = {
    {"make directory", sti_stage_make_dirs, sti_stage_check_made, NULL, STI_STAGE_ALL},
    {"open what was saved", sti_stage_open_sources, sti_stage_check_source_opened, NULL,
     STI_STAGE_ALL},
    {"create", sti_stage_open_parts, sti_stage_check_opened, NULL, STI_STAGE_ALL},
    {"reserve space", sti_stage_reserve, sti_stage_check_reserved, NULL, STI_STAGE_ALL},
    {"write", sti_stage_begin_writing, NULL, sti_stage_is_written, STI_STAGE_ALL},
    {"set size", sti_stage_set_sizes, NULL, NULL, STI_STAGE_ALL},
    {"sync", sti_stage_sync_parts, NULL, NULL, STI_STAGE_ALL},
    {"close", sti_stage_close_parts, sti_stage_check_closed, NULL, STI_STAGE_ALL},
    {"close what was saved", sti_stage_close_sources, sti_stage_check_source_closed, NULL,
     STI_STAGE_ALL},
    {"sync directory", sti_stage_sync_part_dirs, NULL, NULL, STI_STAGE_ALL},
    {"sync root", sti_stage_sync_roots, NULL, NULL, STI_STAGE_ALL},
    {"make the ballot", sti_stage_make_short_ballot, NULL, NULL, STI_STAGE_ALL},
    {"vote", sti_stage_vote, NULL, sti_stage_is_tallied, STI_STAGE_ALL},
    {"look for the parts", sti_stage_look_for_all, sti_stage_check_seen, NULL, STI_STAGE_FIRST},
    {"make the manifest's directory", sti_stage_make_commit_dir, sti_stage_check_commit_dir, NULL,
     STI_STAGE_FIRST},
    {"create the manifest", sti_stage_open_manifest, sti_stage_check_manifest_opened, NULL,
     STI_STAGE_FIRST},
    {"write the manifest", sti_stage_write_manifest, sti_stage_check_manifest_written, NULL,
     STI_STAGE_FIRST},
    {"sync the manifest", sti_stage_sync_manifest, NULL, NULL, STI_STAGE_FIRST},
    {"close the manifest", sti_stage_close_manifest, sti_stage_check_closed, NULL, STI_STAGE_FIRST},
    {"sync the manifest's directory", sti_stage_sync_commit_dir, NULL, NULL, STI_STAGE_FIRST},
    {"commit", sti_stage_commit, sti_stage_check_committed, NULL, STI_STAGE_FIRST},
    {"sync after the commit", sti_stage_sync_directory, NULL, NULL, STI_STAGE_FIRST},
    {"decide", sti_stage_decide, NULL, sti_stage_is_decided, STI_STAGE_ALL},
    {"acknowledge", sti_stage_acknowledge, NULL, NULL, STI_STAGE_ALL},
};
#define N_DRAIN_STAGES (sizeof(drain_stages) / sizeof(drain_stages[0]))

/* Of nodes with roots of their own: the manifest comes with the verdict, every keeper commits it,
 * and a second vote makes sure that all have. */
static const struct sti_stage node_stages[] = {
    {"make directory", sti_stage_make_dirs, sti_stage_check_made, NULL, STI_STAGE_ALL},
    {"create", sti_stage_open_parts, sti_stage_check_opened, NULL, STI_STAGE_ALL},
    {"reserve space", sti_stage_reserve, sti_stage_check_reserved, NULL, STI_STAGE_ALL},
    {"write", sti_stage_begin_writing, NULL, sti_stage_is_written, STI_STAGE_ALL},
    {"set size", sti_stage_set_sizes, NULL, NULL, STI_STAGE_ALL},
    {"sync", sti_stage_sync_parts, NULL, NULL, STI_STAGE_ALL},
    {"close", sti_stage_close_parts, sti_stage_check_closed, NULL, STI_STAGE_ALL},
    {"sync directory", sti_stage_sync_part_dirs, NULL, NULL, STI_STAGE_ALL},
    {"sync root", sti_stage_sync_roots, NULL, NULL, STI_STAGE_ALL},
    {"look for the step", sti_stage_look_for_step, sti_stage_check_free, NULL, STI_STAGE_KEEPERS},
    {"make the ballot", sti_stage_make_ballot, sti_stage_check_ballot, NULL, STI_STAGE_ALL},
    {"vote", sti_stage_vote, NULL, sti_stage_is_tallied, STI_STAGE_ALL},
    {"put the ballots together", sti_stage_put_together, sti_stage_check_merged, NULL,
     STI_STAGE_FIRST},
    {"make the header's directory", sti_stage_make_dirs, sti_stage_check_made, NULL,
     STI_STAGE_FIRST},
    {"create the header", sti_stage_open_parts, sti_stage_check_opened, NULL, STI_STAGE_FIRST},
    {"reserve the header's space", sti_stage_reserve, sti_stage_check_reserved, NULL,
     STI_STAGE_FIRST},
    {"write the header", sti_stage_begin_writing, NULL, sti_stage_is_written, STI_STAGE_FIRST},
    {"set the header's size", sti_stage_set_sizes, NULL, NULL, STI_STAGE_FIRST},
    {"sync the header", sti_stage_sync_parts, NULL, NULL, STI_STAGE_FIRST},
    {"close the header", sti_stage_close_parts, sti_stage_check_closed, NULL, STI_STAGE_FIRST},
    {"sync the header's directory", sti_stage_sync_part_dirs, NULL, NULL, STI_STAGE_FIRST},
    {"sync the header's root", sti_stage_sync_roots, NULL, NULL, STI_STAGE_FIRST},
    {"encode the manifest", sti_stage_encode, sti_stage_check_encoded, NULL, STI_STAGE_FIRST},
    {"publish the manifest", sti_stage_publish, NULL, sti_stage_is_published, STI_STAGE_ALL},
    {"fetch the manifest", sti_stage_fetch, NULL, sti_stage_is_fetched, STI_STAGE_KEEPERS},
    {"make the manifest's directory", sti_stage_make_keepers_dir, sti_stage_check_keepers_dir, NULL,
     STI_STAGE_KEEPERS},
    {"create the manifest", sti_stage_open_manifest, sti_stage_check_manifest_opened, NULL,
     STI_STAGE_KEEPERS},
    {"write the manifest", sti_stage_write_manifest, sti_stage_check_manifest_written, NULL,
     STI_STAGE_KEEPERS},
    {"sync the manifest", sti_stage_sync_manifest, NULL, NULL, STI_STAGE_KEEPERS},
    {"close the manifest", sti_stage_close_manifest, sti_stage_check_closed, NULL,
     STI_STAGE_KEEPERS},
    {"sync the manifest's directory", sti_stage_sync_commit_dir, NULL, NULL, STI_STAGE_KEEPERS},
    {"commit", sti_stage_commit, sti_stage_check_committed, NULL, STI_STAGE_KEEPERS},
    {"sync after the commit", sti_stage_sync_directory, NULL, NULL, STI_STAGE_KEEPERS},
    {"vote on the commit", sti_stage_vote_again, NULL, sti_stage_is_tallied, STI_STAGE_ALL},
    {"decide", sti_stage_decide, NULL, sti_stage_is_decided, STI_STAGE_ALL},
    {"acknowledge", sti_stage_acknowledge, NULL, NULL, STI_STAGE_ALL},
};
#define N_NODE_STAGES (sizeof(node_stages) / sizeof(node_stages[0]))

/* Of copies from another node: their manifest is here already. */
static const struct sti_stage pull_stages[] = {
    {"look at the manifest", sti_stage_look_at_manifest, sti_stage_check_manifest_seen, NULL,
     STI_STAGE_ALL},
    {"read the manifest", sti_stage_read_manifest, sti_stage_check_manifest_read, NULL,
     STI_STAGE_ALL},
    {"make directory", sti_stage_make_dirs, sti_stage_check_made, NULL, STI_STAGE_ALL},
    {"look for the copy", sti_stage_look_for_copies, sti_stage_check_no_copy, NULL, STI_STAGE_ALL},
    {"create", sti_stage_open_parts, sti_stage_check_opened, NULL, STI_STAGE_ALL},
    {"reserve space", sti_stage_reserve, sti_stage_check_reserved, NULL, STI_STAGE_ALL},
    {"write", sti_stage_begin_writing, NULL, sti_stage_is_written, STI_STAGE_ALL},
    {"set size", sti_stage_set_sizes, NULL, NULL, STI_STAGE_ALL},
    {"sync", sti_stage_sync_parts, NULL, NULL, STI_STAGE_ALL},
    {"close", sti_stage_close_parts, sti_stage_check_closed, NULL, STI_STAGE_ALL},
    {"name the copy", sti_stage_name_copies, sti_stage_check_named, NULL, STI_STAGE_ALL},
    {"sync directory", sti_stage_sync_part_dirs, NULL, NULL, STI_STAGE_ALL},
    {"sync root", sti_stage_sync_roots, NULL, NULL, STI_STAGE_ALL},
    {"vote on the copy", sti_stage_vote_again, NULL, sti_stage_is_tallied, STI_STAGE_ALL},
    {"decide", sti_stage_decide, NULL, sti_stage_is_decided, STI_STAGE_ALL},
    {"acknowledge", sti_stage_acknowledge, NULL, NULL, STI_STAGE_ALL},
};
#define N_PULL_STAGES (sizeof(pull_stages) / sizeof(pull_stages[0]))

/* ---- undoing ----------------------------------------------------------------------- */

/* Results are not looked at: what cannot be removed lies under a name that is never used
 * again, and "prune --orphans" finds it. */
static int
ignore(struct sti_save *save, struct sti_chore *chore)
{
    (void)save;
    (void)chore;
    return 0;
}

static void
vote_against(struct sti_save *save)
{
    if (!save->has_cast)
        sti_stage_cast(save);
    sti_stage_decide(save);
}

static void
close_all(struct sti_save *save)
{
    sti_stage_start_on_files(save, STI_AIO_CLOSE);
    if (save->manifest_fd >= 0)
        sti_stage_close_manifest(save);
}

/* A manifest that this writer has begun and surely not committed. */
static bool
has_unused_manifest(const struct sti_save *save)
{
    return save->has_commit_dir && !save->has_renamed;
}

static void
unlink_all(struct sti_save *save)
{
    for (uint32_t at = 0; at < save->n_stripes; at++)
        if (save->stripes[at].is_made && !save->keep_parts)
            sti_stage_start(&save->stripes[at].chore,
                            (struct sti_aio_op){.kind = STI_AIO_UNLINK,
                                                .dir_fd = save->stripes[at].root->dir_fd,
                                                .path = save->stripes[at].path});
    if (has_unused_manifest(save))
        sti_stage_start(&save->chore,
                        (struct sti_aio_op){.kind = STI_AIO_UNLINK,
                                            .dir_fd = sti_stage_directory(save)->dir_fd,
                                            .path = save->manifest_path});
}

static void
remove_dirs(struct sti_save *save)
{
    if (!save->keep_parts)
        sti_stage_start_on_paths(save, (struct sti_aio_op){.kind = STI_AIO_UNLINK,
                                                           .path = save->parts_name,
                                                           .unlink_flags = AT_REMOVEDIR});
    if (has_unused_manifest(save))
        sti_stage_start(&save->chore,
                        (struct sti_aio_op){.kind = STI_AIO_UNLINK,
                                            .dir_fd = sti_stage_directory(save)->dir_fd,
                                            .path = save->commit_name,
                                            .unlink_flags = AT_REMOVEDIR});
}

static const struct sti_stage undo_stages[] = {
    {"vote", vote_against, NULL, sti_stage_is_decided, STI_STAGE_ALL},
    {"close", close_all, sti_stage_check_closed, NULL, STI_STAGE_ALL},
    {"close what was saved", sti_stage_close_sources, sti_stage_check_source_closed, NULL,
     STI_STAGE_ALL},
    {"remove", unlink_all, ignore, NULL, STI_STAGE_ALL},
    {"remove directory", remove_dirs, ignore, NULL, STI_STAGE_ALL},
    {"acknowledge", sti_stage_acknowledge, NULL, NULL, STI_STAGE_ALL},
};
#define N_UNDO_STAGES (sizeof(undo_stages) / sizeof(undo_stages[0]))

const struct sti_stage *
sti_stage_current(const struct sti_save *save)
{
    return save->is_undoing            ? &undo_stages[save->stage]
           : save->is_drain            ? &drain_stages[save->stage]
           : save->is_pull             ? &pull_stages[save->stage]
           : save->saver->opts.commits ? &node_stages[save->stage]
                                       : &stages[save->stage];
}

static size_t
count_stages(const struct sti_save *save)
{
    return save->is_undoing            ? N_UNDO_STAGES
           : save->is_drain            ? N_DRAIN_STAGES
           : save->is_pull             ? N_PULL_STAGES
           : save->saver->opts.commits ? N_NODE_STAGES
                                       : N_STAGES;
}

/* ---- going on ---------------------------------------------------------------------- */

static void
begin_undoing(struct sti_save *save)
{
    save->is_undoing = true;
    save->first_stripe = 0;
    save->stage = 0;
    save->is_started = false;
}

static bool
is_idle(const struct sti_save *save)
{
    return save->n_pending == 0 && (save->result == 0 || save->n_filling == 0);
}

static bool
is_mine(const struct sti_save *save)
{
    switch (sti_stage_current(save)->whose) {
    case STI_STAGE_ALL:
        return true;
    case STI_STAGE_FIRST:
        return save->saver->opts.writer == 0;
    case STI_STAGE_KEEPERS:
        break;
    }
    return sti_saver_is_keeper(save->saver);
}

static bool
is_stage_over(struct sti_save *save)
{
    const struct sti_stage *stage = sti_stage_current(save);

    if (!is_idle(save))
        return false;
    if (save->result < 0 && !save->is_undoing)
        return true;
    return !is_mine(save) || !stage->is_over || stage->is_over(save);
}

bool
sti_save_advance(struct sti_save *save)
{
    for (;;) {
        sti_save_pump(save);
        if (save->is_started && !is_stage_over(save))
            return false;
        if (save->result < 0 && !save->is_undoing) {
            if (!is_idle(save))
                return false;
            begin_undoing(save);
        } else if (save->is_started) {
            save->stage++;
            save->is_started = false;
        }
        if (save->stage == count_stages(save))
            return true;
        save->is_started = true;
        if (is_mine(save))
            sti_stage_current(save)->start(save);
    }
}
