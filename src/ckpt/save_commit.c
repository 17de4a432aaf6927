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
    return save->is_drain ? "shared copy" : "save";
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
    {"make directory", sti_stage_make_dirs, sti_stage_check_made, NULL, false},
    {"create", sti_stage_open_parts, sti_stage_check_opened, NULL, false},
    {"reserve space", sti_stage_reserve, sti_stage_check_reserved, NULL, false},
    {"write", sti_stage_begin_writing, NULL, sti_stage_is_written, false},
    {"set size", sti_stage_set_sizes, NULL, NULL, false},
    {"sync", sti_stage_sync_parts, NULL, NULL, false},
    {"close", sti_stage_close_parts, sti_stage_check_closed, NULL, false},
    {"sync directory", sti_stage_sync_part_dirs, NULL, NULL, false},
    {"sync root", sti_stage_sync_roots, NULL, NULL, false},
    {"make the ballot", sti_stage_make_ballot, sti_stage_check_ballot, NULL, false},
    {"vote", sti_stage_vote, NULL, sti_stage_is_tallied, false},
    {"put the ballots together", sti_stage_put_together, sti_stage_check_merged, NULL, true},
    {"make the header's directory", sti_stage_make_dirs, sti_stage_check_made, NULL, true},
    {"create the header", sti_stage_open_parts, sti_stage_check_opened, NULL, true},
    {"reserve the header's space", sti_stage_reserve, sti_stage_check_reserved, NULL, true},
    {"write the header", sti_stage_begin_writing, NULL, sti_stage_is_written, true},
    {"set the header's size", sti_stage_set_sizes, NULL, NULL, true},
    {"sync the header", sti_stage_sync_parts, NULL, NULL, true},
    {"close the header", sti_stage_close_parts, sti_stage_check_closed, NULL, true},
    {"sync the header's directory", sti_stage_sync_part_dirs, NULL, NULL, true},
    {"sync the header's root", sti_stage_sync_roots, NULL, NULL, true},
    {"look for the parts", sti_stage_look_for_parts, sti_stage_check_seen, NULL, true},
    {"make the manifest's directory", sti_stage_make_commit_dir, sti_stage_check_commit_dir, NULL,
     true},
    {"create the manifest", sti_stage_open_manifest, sti_stage_check_manifest_opened, NULL, true},
    {"write the manifest", sti_stage_write_manifest, sti_stage_check_manifest_written, NULL, true},
    {"sync the manifest", sti_stage_sync_manifest, NULL, NULL, true},
    {"close the manifest", sti_stage_close_manifest, sti_stage_check_closed, NULL, true},
    {"sync the manifest's directory", sti_stage_sync_commit_dir, NULL, NULL, true},
    {"commit", sti_stage_commit, sti_stage_check_committed, NULL, true},
    {"sync after the commit", sti_stage_sync_directory, NULL, NULL, true},
    {"wait for copies", sti_stage_wait_for_drains, NULL, sti_stage_may_drain, true},
    {"decide", sti_stage_decide, NULL, sti_stage_is_decided, false},
    {"acknowledge", sti_stage_acknowledge, NULL, NULL, false},
};
#define N_STAGES (sizeof(stages) / sizeof(stages[0]))

static const struct sti_stage drain_stages[] = {
    {"make directory", sti_stage_make_dirs, sti_stage_check_made, NULL, false},
    {"open what was saved", sti_stage_open_sources, sti_stage_check_source_opened, NULL, false},
    {"create", sti_stage_open_parts, sti_stage_check_opened, NULL, false},
    {"reserve space", sti_stage_reserve, sti_stage_check_reserved, NULL, false},
    {"write", sti_stage_begin_writing, NULL, sti_stage_is_written, false},
    {"set size", sti_stage_set_sizes, NULL, NULL, false},
    {"sync", sti_stage_sync_parts, NULL, NULL, false},
    {"close", sti_stage_close_parts, sti_stage_check_closed, NULL, false},
    {"close what was saved", sti_stage_close_sources, sti_stage_check_source_closed, NULL, false},
    {"sync directory", sti_stage_sync_part_dirs, NULL, NULL, false},
    {"sync root", sti_stage_sync_roots, NULL, NULL, false},
    {"make the ballot", sti_stage_make_short_ballot, NULL, NULL, false},
    {"vote", sti_stage_vote, NULL, sti_stage_is_tallied, false},
    {"look for the parts", sti_stage_look_for_all, sti_stage_check_seen, NULL, true},
    {"make the manifest's directory", sti_stage_make_commit_dir, sti_stage_check_commit_dir, NULL,
     true},
    {"create the manifest", sti_stage_open_manifest, sti_stage_check_manifest_opened, NULL, true},
    {"write the manifest", sti_stage_write_manifest, sti_stage_check_manifest_written, NULL, true},
    {"sync the manifest", sti_stage_sync_manifest, NULL, NULL, true},
    {"close the manifest", sti_stage_close_manifest, sti_stage_check_closed, NULL, true},
    {"sync the manifest's directory", sti_stage_sync_commit_dir, NULL, NULL, true},
    {"commit", sti_stage_commit, sti_stage_check_committed, NULL, true},
    {"sync after the commit", sti_stage_sync_directory, NULL, NULL, true},
    {"decide", sti_stage_decide, NULL, sti_stage_is_decided, false},
    {"acknowledge", sti_stage_acknowledge, NULL, NULL, false},
};
#define N_DRAIN_STAGES (sizeof(drain_stages) / sizeof(drain_stages[0]))

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

static void
unlink_all(struct sti_save *save)
{
    if (save->keep_parts)
        return;
    for (uint32_t at = 0; at < save->n_stripes; at++)
        if (save->stripes[at].is_made)
            sti_stage_start(&save->stripes[at].chore,
                            (struct sti_aio_op){.kind = STI_AIO_UNLINK,
                                                .dir_fd = save->stripes[at].root->dir_fd,
                                                .path = save->stripes[at].path});
    if (save->has_commit_dir)
        sti_stage_start(&save->chore,
                        (struct sti_aio_op){.kind = STI_AIO_UNLINK,
                                            .dir_fd = sti_stage_directory(save)->dir_fd,
                                            .path = save->manifest_path});
}

static void
remove_dirs(struct sti_save *save)
{
    if (save->keep_parts)
        return;
    sti_stage_start_on_paths(save, (struct sti_aio_op){.kind = STI_AIO_UNLINK,
                                                       .path = save->parts_name,
                                                       .unlink_flags = AT_REMOVEDIR});
    if (save->has_commit_dir)
        sti_stage_start(&save->chore,
                        (struct sti_aio_op){.kind = STI_AIO_UNLINK,
                                            .dir_fd = sti_stage_directory(save)->dir_fd,
                                            .path = save->commit_name,
                                            .unlink_flags = AT_REMOVEDIR});
}

static const struct sti_stage undo_stages[] = {
    {"vote", vote_against, NULL, sti_stage_is_decided, false},
    {"close", close_all, sti_stage_check_closed, NULL, false},
    {"close what was saved", sti_stage_close_sources, sti_stage_check_source_closed, NULL, false},
    {"remove", unlink_all, ignore, NULL, false},
    {"remove directory", remove_dirs, ignore, NULL, false},
    {"acknowledge", sti_stage_acknowledge, NULL, NULL, false},
};
#define N_UNDO_STAGES (sizeof(undo_stages) / sizeof(undo_stages[0]))

const struct sti_stage *
sti_stage_current(const struct sti_save *save)
{
    return save->is_undoing ? &undo_stages[save->stage]
           : save->is_drain ? &drain_stages[save->stage]
                            : &stages[save->stage];
}

static size_t
count_stages(const struct sti_save *save)
{
    return save->is_undoing ? N_UNDO_STAGES : save->is_drain ? N_DRAIN_STAGES : N_STAGES;
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
is_stage_over(struct sti_save *save)
{
    const struct sti_stage *stage = sti_stage_current(save);

    if (!is_idle(save))
        return false;
    if (save->result < 0 && !save->is_undoing)
        return true;
    return !stage->is_over || stage->is_over(save);
}

bool
sti_save_advance(struct sti_save *save)
{
    bool is_member = save->saver->opts.writer != 0;

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
        if (!is_member || !sti_stage_current(save)->is_coordinators)
            sti_stage_current(save)->start(save);
    }
}
