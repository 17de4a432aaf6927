/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a save goes through its stages (save_protocol.c): each starts operations and is over when
 * all have ended.
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
#define ALREADY_OF_NODE \
    "; that step was saved before, or two nodes have one directory here, which node_local forbids"

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
                                 rc != -EEXIST               ? ""
                                 : save->saver->opts.commits ? ALREADY_OF_NODE
                                                             : ALREADY);
}

/* ---- starting operations ----------------------------------------------------------- */

static const struct sti_stage_run *
current_run(const struct sti_save *save);

static void
on_done(struct sti_aio_op *op)
{
    struct sti_chore *chore = op->context;
    struct sti_save *save = chore->save;
    const struct sti_stage *stage = sti_stage_current(save);
    int rc = op->result < 0 ? op->result : 0;
    char what[64];

    save->n_pending--;
    if (stage->check)
        rc = stage->check(save, chore);
    if (rc == 0 || save->is_undoing)
        return;
    const char *of = current_run(save)->of;
    (void)snprintf(what, sizeof(what), "%s%s%s", stage->name, of ? " of " : "", of ? of : "");
    sti_save_fail(save, chore->stripe, what, rc);
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
    {"vote", vote_against, NULL, sti_stage_is_decided},
    {"close", close_all, sti_stage_check_closed, NULL},
    {"close what was saved", sti_stage_close_sources, sti_stage_check_source_closed, NULL},
    {"remove", unlink_all, ignore, NULL},
    {"remove directory", remove_dirs, ignore, NULL},
    {"acknowledge", sti_stage_acknowledge, NULL, NULL},
};
static const struct sti_stage_run undo[] = {STI_STAGE_RUN(undo_stages, STI_STAGE_ALL, NULL), {0}};

/* ---- going on ---------------------------------------------------------------------- */

static const struct sti_stage_run *
current_run(const struct sti_save *save)
{
    const struct sti_stage_run *runs = save->is_undoing ? undo : sti_stage_protocol(save);

    return &runs[save->run];
}

const struct sti_stage *
sti_stage_current(const struct sti_save *save)
{
    return &current_run(save)->stages[save->stage];
}

static void
begin_undoing(struct sti_save *save)
{
    save->is_undoing = true;
    save->first_stripe = 0;
    save->run = 0;
    save->stage = 0;
    save->is_started = false;
}

static void
go_on(struct sti_save *save)
{
    save->is_started = false;
    if (++save->stage < current_run(save)->n)
        return;
    save->stage = 0;
    save->run++;
}

static bool
is_idle(const struct sti_save *save)
{
    return save->n_pending == 0 && (save->result == 0 || save->n_filling == 0);
}

static bool
is_mine(const struct sti_save *save)
{
    switch (current_run(save)->whose) {
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
            go_on(save);
        }
        if (current_run(save)->n == 0)
            return true;
        save->is_started = true;
        if (is_mine(save))
            sti_stage_current(save)->start(save);
    }
}
