/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages of the vote: what this writer has written, what all have written, and what the
 * coordinator says.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "ckpt/save_stages.h"
#include "ckpt/scan.h"

/* ---- the vote -------------------------------------------------------------------------------- */

static struct sti_vote *
vote_of(const struct sti_save *save)
{
    return save->is_published ? save->saver->opts.commits : save->saver->opts.vote;
}

/* Measured for the next division: how fast each root took its part, its sync included. */
static void
note_speeds(struct sti_save *save)
{
    uint64_t now_ns = sti_clock_ns();

    sti_mutex_lock(&save->saver->lock); /* the next save may be dividing now */
    for (uint32_t at = 0; at < save->n_stripes; at++) {
        struct sti_stripe *stripe = &save->stripes[at];
        uint64_t ns = stripe->last_ns - stripe->first_ns;
        double speed = (double)stripe->part.n_bytes * 1e9 / (double)(ns > 0 ? ns : 1);
        double old = stripe->root->bytes_per_s;

        if (stripe->first_ns == 0 || now_ns < stripe->first_ns)
            continue;
        stripe->root->bytes_per_s = old > 1 ? (old + speed) / 2 : speed;
    }
    sti_mutex_unlock(&save->saver->lock);
}

/* What this writer has written, in the stream of its own. Parts, roots: room for them. */
static struct sti_manifest
own_manifest(const struct sti_save *save, struct sti_part *parts, const char **roots)
{
    const struct sti_saver_opts *opts = &save->saver->opts;
    struct sti_manifest manifest = {.step = save->step,
                                    .created_ns = sti_clock_wall_ns(),
                                    .world = opts->world,
                                    .chunk_bytes = opts->chunk_bytes,
                                    .layout = save->layout,
                                    .roots = roots,
                                    .parts = parts,
                                    .groups = save->groups,
                                    .n_groups = save->n_groups,
                                    .sums = save->sums,
                                    .n_roots = opts->n_roots - opts->first_part_root,
                                    .n_parts = save->n_stripes};

    (void)snprintf(manifest.id, sizeof(manifest.id), "%s", save->id); /* fits */
    for (uint32_t at = 0; at < manifest.n_roots; at++)
        roots[at] = opts->roots[opts->first_part_root + at].path;
    for (uint32_t at = 0; at < save->n_stripes; at++)
        parts[at] = save->stripes[at].part;
    return manifest;
}

void
sti_stage_encode_own(const struct sti_save *save, struct sti_text *text,
                     void (*encode)(const struct sti_manifest *manifest, struct sti_text *text))
{
    const struct sti_saver_opts *opts = &save->saver->opts;
    struct sti_part *parts = sti_mem_new(save->n_stripes, sizeof(*parts));
    const char **roots = sti_mem_new(opts->n_roots, sizeof(*roots));

    text->is_failed = !parts || !roots;
    if (!text->is_failed) {
        struct sti_manifest manifest = own_manifest(save, parts, roots);

        encode(&manifest, text);
    }
    sti_mem_free(parts);
    sti_mem_free(roots);
}

static void
encode_ballot(struct sti_aio_op *op)
{
    struct sti_chore *chore = op->context;

    sti_stage_encode_own(chore->save, &chore->save->ballot, sti_ballot_encode);
}

/* Who has written what is known of a drain: a ballot says only that it is done. */
void
sti_stage_make_short_ballot(struct sti_save *save)
{
    save->ballot = (struct sti_text){0};
    if (save->saver->opts.world > 1)
        sti_text_print(&save->ballot, "drained");
    if (save->ballot.is_failed)
        sti_save_fail(save, NULL, "make the ballot", -ENOMEM);
}

/* A writer alone needs none: what it has written is the manifest. */
void
sti_stage_make_ballot(struct sti_save *save)
{
    if (save->saver->opts.world > 1)
        sti_stage_start_work(save, encode_ballot);
}

int
sti_stage_check_ballot(struct sti_save *save, struct sti_chore *chore)
{
    if (chore->op.result < 0)
        return chore->op.result;
    return save->ballot.is_failed ? -ENOMEM : 0;
}

void
sti_stage_cast(struct sti_save *save)
{
    struct sti_ballot ballot = {.code = save->result};

    if (save->result < 0) {
        ballot.bytes = sti_mem_strdup(save->error.message); /* without it the code is told */
        ballot.n_bytes = ballot.bytes ? strlen(ballot.bytes) : 0;
    } else {
        ballot.bytes = save->ballot.bytes;
        ballot.n_bytes = save->ballot.n_bytes;
        save->ballot = (struct sti_text){0};
    }
    save->has_cast = true;
    sti_vote_cast(vote_of(save), save->saver->opts.writer, save->serial, &ballot);
}

void
sti_stage_vote(struct sti_save *save)
{
    note_speeds(save);
    sti_stage_cast(save);
}

/* What another writer's verdict makes of this save: its words, where it has any. */
static void
fail_by(struct sti_save *save, const struct sti_verdict *verdict)
{
    if (verdict->code == 0 || save->result < 0)
        return;
    sti_save_fail(save, NULL, "vote", verdict->code);
    if (verdict->text[0] != '\0')
        (void)snprintf(save->error.message, sizeof(save->error.message), "rank %" PRIu32 ": %.230s",
                       verdict->writer, verdict->text); /* cut is fine */
    save->error.rank = (int)verdict->writer;
}

static void
wake_at(struct sti_save *save, uint64_t due_ns)
{
    if (due_ns < save->saver->wake_ns)
        save->saver->wake_ns = due_ns;
}

/* The coordinator waits for all ballots; one against is enough to end it. */
bool
sti_stage_is_tallied(struct sti_save *save)
{
    struct sti_verdict verdict;
    uint64_t due_ns;

    if (save->saver->opts.writer != 0)
        return true;
    if (!sti_vote_tally(vote_of(save), save->serial, save->ballots, &verdict, &due_ns)) {
        wake_at(save, due_ns);
        return false;
    }
    fail_by(save, &verdict);
    return true;
}

/* ---- what all have written --------------------------------------------------------- */

/* On a pool thread: all ballots are in, and their bytes stay until the verdict. */
static void
merge(struct sti_aio_op *op)
{
    struct sti_chore *chore = op->context;
    struct sti_save *save = chore->save;
    const struct sti_saver_opts *opts = &save->saver->opts;
    const struct sti_merge from = {.step = save->step,
                                   .id = save->id,
                                   .world = opts->world,
                                   .chunk_bytes = opts->chunk_bytes,
                                   .ballots = save->ballots};
    stk_error why;
    int rc = sti_merge(&save->merged, &from, &why);

    if (rc == 0)
        return;
    save->merge_result = rc; /* the loop looks when the operation is done */
    save->merge_rank = why.rank;
    (void)snprintf(save->merge_text, sizeof(save->merge_text), "%s", why.message); /* fits */
}

void
sti_stage_put_together(struct sti_save *save)
{
    save->first_stripe = save->n_stripes; /* this writer's own are done */
    if (save->saver->opts.world > 1)
        sti_stage_start_work(save, merge);
}

int
sti_stage_check_merged(struct sti_save *save, struct sti_chore *chore)
{
    if (chore->op.result < 0)
        return chore->op.result;
    if (save->merge_result < 0) {
        sti_save_fail(save, NULL, "vote", save->merge_result);
        (void)snprintf(save->error.message, sizeof(save->error.message),
                       "the save of step %" PRIu64 " failed: %.200s", save->step,
                       save->merge_text); /* cut is fine */
        save->error.rank = save->merge_rank;
        return save->merge_result;
    }
    save->can_write = false; /* until its file is there */
    return sti_save_add_header(save);
}

/* Looks at the next part: what cannot be seen from here, nobody will find here. */
static void
look_for_next(struct sti_save *save)
{
    const struct sti_scan scan = {.dir_fd = sti_stage_directory(save)->dir_fd};
    struct sti_look *look = save->look;
    int dir_fd = sti_scan_part_path(&scan, &save->merged.manifest, look->n_seen, look->path,
                                    sizeof(look->path));

    if (dir_fd == -ENAMETOOLONG) {
        sti_save_fail(save, NULL, "look for the parts", dir_fd);
        return;
    }
    sti_stage_start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_STATX,
                                                      .dir_fd = dir_fd,
                                                      .path = look->path,
                                                      .statx_mask = STATX_SIZE,
                                                      .statx = &look->found});
}

void
sti_stage_look_for_all(struct sti_save *save)
{
    if (save->saver->opts.world > 1)
        look_for_next(save);
}

void
sti_stage_look_for_parts(struct sti_save *save)
{
    struct sti_manifest *manifest = &save->merged.manifest;

    if (save->saver->opts.world == 1)
        return;
    manifest->parts[manifest->n_parts++] = save->stripes[save->n_stripes - 1].part;
    look_for_next(save);
}

int
sti_stage_check_seen(struct sti_save *save, struct sti_chore *chore)
{
    const struct sti_manifest *manifest = &save->merged.manifest;
    struct sti_look *look = save->look;
    const struct sti_part *part = &manifest->parts[look->n_seen];

    if (chore->op.result == 0 && look->found.stx_size == part->n_bytes) {
        if (++look->n_seen < manifest->n_parts)
            look_for_next(save);
        return 0;
    }
    int rc = chore->op.result < 0 ? chore->op.result : -EIO;
    sti_save_fail(save, NULL, "look for the parts", rc);
    (void)sti_error_set_path(&save->error, rc, look->path,
                             "the %s of step %" PRIu64 " failed: the part that rank %" PRIu32
                             " has written to root %.100s is not there for rank 0: it must be one "
                             "directory for all",
                             sti_stage_name_of(save), save->step, part->writer,
                             manifest->roots[part->root]);
    save->error.rank = (int)part->writer;
    return rc;
}

/* ---- what all nodes commit --------------------------------------------------------- */

/* From its verdict on every node may commit, whatever becomes of the others. */
void
sti_stage_publish(struct sti_save *save)
{
    const struct sti_verdict verdict = {.code = 0};
    struct sti_text text = save->manifest;

    if (save->saver->opts.writer != 0)
        return;
    save->manifest = (struct sti_text){0};
    int rc = sti_vote_publish(vote_of(save), save->serial, text.bytes, text.n_bytes);
    if (rc < 0)
        sti_save_fail(save, NULL, "publish the manifest", rc);
    else
        sti_vote_decide(vote_of(save), save->serial, &verdict);
}

bool
sti_stage_is_published(struct sti_save *save)
{
    struct sti_verdict verdict;
    uint64_t due_ns;

    if (!sti_vote_verdict(vote_of(save), save->serial, &verdict, &due_ns)) {
        wake_at(save, due_ns);
        return false;
    }
    save->keep_parts |= verdict.keep_parts;
    fail_by(save, &verdict);
    if (verdict.code < 0)
        return true;
    save->is_published = true; /* what is voted on from now on is the commit */
    save->keep_parts = true;
    save->has_cast = false;
    return true;
}

void
sti_stage_fetch(struct sti_save *save)
{
    (void)save; /* it is begun by whoever asks for it */
}

bool
sti_stage_is_fetched(struct sti_save *save)
{
    uint64_t due_ns;
    int rc = sti_vote_published(save->saver->opts.vote, save->serial, &save->manifest_bytes,
                                &save->manifest_n_bytes, &due_ns);

    if (rc < 0)
        sti_save_fail(save, NULL, "fetch the manifest", rc);
    else if (rc == 0)
        wake_at(save, due_ns);
    return rc != 0;
}

void
sti_stage_vote_again(struct sti_save *save)
{
    sti_text_print(&save->ballot, "committed");
    if (save->ballot.is_failed)
        sti_save_fail(save, NULL, "vote on the commit", -ENOMEM);
    else
        sti_stage_cast(save);
}

/* ---- the verdict ------------------------------------------------------------------- */

void
sti_stage_decide(struct sti_save *save)
{
    struct sti_verdict verdict = {.code = save->result, .keep_parts = save->keep_parts};

    if (save->saver->opts.writer != 0)
        return;
    verdict.must_drain = save->result == 0 && sti_save_must_drain(save);
    if (save->result < 0) {
        verdict.writer = save->error.rank > 0 ? (uint32_t)save->error.rank : 0;
        (void)snprintf(verdict.text, sizeof(verdict.text), "%s", save->error.message); /* fits */
    }
    sti_vote_decide(vote_of(save), save->serial, &verdict);
}

bool
sti_stage_is_decided(struct sti_save *save)
{
    struct sti_verdict verdict;
    uint64_t due_ns;

    if (!sti_vote_verdict(vote_of(save), save->serial, &verdict, &due_ns)) {
        wake_at(save, due_ns);
        return false;
    }
    save->keep_parts |= verdict.keep_parts;
    save->must_drain = verdict.code == 0 && verdict.must_drain && save->saver->opts.drain;
    fail_by(save, &verdict);
    return true;
}

void
sti_stage_acknowledge(struct sti_save *save)
{
    if (save->must_drain && save->result == 0)
        sti_saver_expect_copy(save->saver->opts.drain);
    if (save->result == 0)
        sti_saver_expect_copy(save->saver->opts.copier);
    sti_saver_acknowledge(save);
}
