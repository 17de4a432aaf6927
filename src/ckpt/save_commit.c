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
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "ckpt/save_internal.h"
#include "ckpt/scan.h"

#define DIR_MODE 0777
#define FILE_MODE 0666
#define MAX_WRITE_BYTES (UINT64_C(1) << 30)
/* Damaged ones stay until a person looks: nobody else removes the only trace of a loss. */
#define ALREADY "; that step was saved before: remove its directory if it is not whole"
#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE (1 << 0)
#endif

/*
 * name     what an error says that the save was doing.
 * start    starts the operations; may start none.
 * check    turns an operation's result into 0 or an error; NULL: a negative one is an
 *          error.
 * is_over  NULL, or whether the stage is over when no operation is under way.
 */
struct stage {
    const char *name;
    void (*start)(struct sti_save *save);
    int (*check)(struct sti_save *save, struct sti_chore *chore);
    bool (*is_over)(struct sti_save *save);
    bool is_coordinators;
};

static const struct stage *
current_stage(const struct sti_save *save);

static struct sti_root *
directory(const struct sti_save *save)
{
    return &save->saver->opts.roots[0];
}

/* For messages. */
static const char *
name_of(const struct sti_save *save)
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
            name_of(save), save->step, what, stripe->part.root, root, sti_error_text(rc));
    else
        (void)sti_error_set_path(
            &save->error, rc, save->step_name, "the %s of step %" PRIu64 " failed: %s: %s%s",
            name_of(save), save->step, what, sti_error_text(rc), rc == -EEXIST ? ALREADY : "");
}

/* ---- starting operations ----------------------------------------------------------- */

static void
on_done(struct sti_aio_op *op)
{
    struct sti_chore *chore = op->context;
    struct sti_save *save = chore->save;
    const struct stage *stage = current_stage(save);
    int rc = op->result < 0 ? op->result : 0;

    save->n_pending--;
    if (stage->check)
        rc = stage->check(save, chore);
    if (rc < 0 && !save->is_undoing)
        sti_save_fail(save, chore->stripe, stage->name, rc);
}

/* Starts an operation of a stage; what it is stands in op. */
static void
start(struct sti_chore *chore, struct sti_aio_op op)
{
    chore->op = op;
    chore->op.done = on_done;
    chore->op.context = chore;
    chore->save->n_pending++;
    sti_aio_submit(chore->save->saver->opts.aio, &chore->op);
}

/* Starts the same kind of operation on the file of every part. */
static void
start_on_files(struct sti_save *save, enum sti_aio_kind kind)
{
    for (uint32_t at = 0; at < save->n_stripes; at++)
        if (save->stripes[at].fd >= 0)
            start(&save->stripes[at].chore,
                  (struct sti_aio_op){.kind = kind, .fd = save->stripes[at].fd});
}

/* Starts the same kind of operation on a path in the root of every part. */
static void
start_on_paths(struct sti_save *save, struct sti_aio_op op)
{
    for (uint32_t at = save->first_stripe; at < save->n_stripes; at++) {
        op.dir_fd = save->stripes[at].root->dir_fd;
        start(&save->stripes[at].chore, op);
    }
}

/* ---- parts ------------------------------------------------------------------------- */

static void
make_dirs(struct sti_save *save)
{
    start_on_paths(save, (struct sti_aio_op){
                             .kind = STI_AIO_MKDIR, .path = save->parts_name, .mode = DIR_MODE});
}

/* Another writer of the set may have made it; that no file is ever used again is seen to
 * by the exclusive open. */
static int
check_made(struct sti_save *save, struct sti_chore *chore)
{
    (void)save;
    return chore->op.result == -EEXIST ? 0 : chore->op.result;
}

static void
open_parts(struct sti_save *save)
{
    for (uint32_t at = save->first_stripe; at < save->n_stripes; at++) {
        struct sti_stripe *stripe = &save->stripes[at];
        uint32_t direct = stripe->root->dio.is_direct ? O_DIRECT : 0;

        start(&stripe->chore,
              (struct sti_aio_op){.kind = STI_AIO_OPEN,
                                  .dir_fd = stripe->root->dir_fd,
                                  .path = stripe->path,
                                  .open_flags = O_WRONLY | O_CREAT | O_EXCL | direct,
                                  .mode = FILE_MODE});
    }
}

static int
check_opened(struct sti_save *save, struct sti_chore *chore)
{
    (void)save;
    if (chore->op.result < 0)
        return chore->op.result;
    chore->stripe->fd = chore->op.result;
    chore->stripe->is_made = true;
    return 0;
}

/* A drain reads its parts where they were written. */
static void
open_sources(struct sti_save *save)
{
    for (uint32_t at = 0; at < save->n_stripes; at++) {
        struct sti_stripe *stripe = &save->stripes[at];
        uint32_t direct = stripe->from_root->dio.is_direct ? O_DIRECT : 0;

        start(&stripe->chore, (struct sti_aio_op){.kind = STI_AIO_OPEN,
                                                  .dir_fd = stripe->from_root->dir_fd,
                                                  .path = stripe->from_path,
                                                  .open_flags = O_RDONLY | direct});
    }
}

static int
check_source_opened(struct sti_save *save, struct sti_chore *chore)
{
    (void)save;
    if (chore->op.result < 0)
        return chore->op.result;
    chore->stripe->from_fd = chore->op.result;
    return 0;
}

static void
close_sources(struct sti_save *save)
{
    for (uint32_t at = 0; at < save->n_stripes; at++)
        if (save->stripes[at].from_fd >= 0)
            start(&save->stripes[at].chore,
                  (struct sti_aio_op){.kind = STI_AIO_CLOSE, .fd = save->stripes[at].from_fd});
}

static int
check_source_closed(struct sti_save *save, struct sti_chore *chore)
{
    (void)save;
    chore->stripe->from_fd = -1; /* closed, whatever close has to say */
    return 0;
}

static void
reserve(struct sti_save *save)
{
    for (uint32_t at = save->first_stripe; at < save->n_stripes; at++) {
        struct sti_stripe *stripe = &save->stripes[at];

        start(&stripe->chore, (struct sti_aio_op){.kind = STI_AIO_ALLOCATE,
                                                  .fd = stripe->fd,
                                                  .length = stripe->part.n_bytes});
    }
}

/* Where space cannot be reserved a full disk is found out by a write. */
static int
check_reserved(struct sti_save *save, struct sti_chore *chore)
{
    int rc = chore->op.result;

    (void)save;
    return rc == -EOPNOTSUPP || rc == -ENOSYS || rc == -EINVAL || rc == -ENODEV ? 0 : rc;
}

static void
begin_writing(struct sti_save *save)
{
    save->can_write = true; /* the pump does the rest */
}

static bool
is_written(struct sti_save *save)
{
    for (uint32_t at = 0; at < save->n_stripes; at++)
        if (save->stripes[at].written_bytes < save->stripes[at].part.n_bytes)
            return false;
    return true;
}

/* The last block was padded; the file ends where the part does. */
static void
set_sizes(struct sti_save *save)
{
    for (uint32_t at = save->first_stripe; at < save->n_stripes; at++) {
        struct sti_stripe *stripe = &save->stripes[at];

        if (stripe->part.n_bytes % stripe->root->dio.block_bytes != 0)
            start(&stripe->chore, (struct sti_aio_op){.kind = STI_AIO_TRUNCATE,
                                                      .fd = stripe->fd,
                                                      .offset = stripe->part.n_bytes});
    }
}

static void
sync_parts(struct sti_save *save)
{
    start_on_files(save, STI_AIO_SYNC);
}

static void
close_parts(struct sti_save *save)
{
    start_on_files(save, STI_AIO_CLOSE);
}

static int
check_closed(struct sti_save *save, struct sti_chore *chore)
{
    if (chore->stripe)
        chore->stripe->fd = -1; /* closed, whatever close has to say */
    else
        save->manifest_fd = -1;
    return chore->op.result == -EINTR ? 0 : chore->op.result;
}

static void
sync_part_dirs(struct sti_save *save)
{
    start_on_paths(save, (struct sti_aio_op){.kind = STI_AIO_SYNC_DIR, .path = save->parts_name});
}

static void
sync_roots(struct sti_save *save)
{
    start_on_paths(save, (struct sti_aio_op){.kind = STI_AIO_SYNC_DIR, .path = "."});
}

/* ---- the vote ---------------------------------------------------------------------- */

static struct sti_vote *
vote_of(const struct sti_save *save)
{
    return save->saver->opts.vote;
}

/* Measured for the next division: how fast each root took its part, its sync included. */
static void
note_speeds(struct sti_save *save)
{
    uint64_t now_ns = sti_clock_ns();

    for (uint32_t at = 0; at < save->n_stripes; at++) {
        struct sti_stripe *stripe = &save->stripes[at];
        uint64_t ns = stripe->last_ns - stripe->first_ns;
        double speed = (double)stripe->part.n_bytes * 1e9 / (double)(ns > 0 ? ns : 1);
        double old = stripe->root->bytes_per_s;

        if (stripe->first_ns == 0 || now_ns < stripe->first_ns)
            continue;
        stripe->root->bytes_per_s = old > 1 ? (old + speed) / 2 : speed;
    }
}

/* Work of a pool thread beside a look at the directory, which costs nothing. */
static void
start_work(struct sti_save *save, sti_aio_fn work)
{
    start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_STATX,
                                            .dir_fd = directory(save)->dir_fd,
                                            .path = ".",
                                            .statx_mask = STATX_TYPE,
                                            .statx = &save->look->found,
                                            .work = work,
                                            .work_lane = STI_LANE_NORMAL});
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

static void
encode_own(const struct sti_save *save, struct sti_text *text,
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

    encode_own(chore->save, &chore->save->ballot, sti_ballot_encode);
}

/* Who has written what is known of a drain: a ballot says only that it is done. */
static void
make_short_ballot(struct sti_save *save)
{
    save->ballot = (struct sti_text){0};
    if (save->saver->opts.world > 1)
        sti_text_print(&save->ballot, "drained");
    if (save->ballot.is_failed)
        sti_save_fail(save, NULL, "make the ballot", -ENOMEM);
}

/* A writer alone needs none: what it has written is the manifest. */
static void
make_ballot(struct sti_save *save)
{
    if (save->saver->opts.world > 1)
        start_work(save, encode_ballot);
}

static int
check_ballot(struct sti_save *save, struct sti_chore *chore)
{
    if (chore->op.result < 0)
        return chore->op.result;
    return save->ballot.is_failed ? -ENOMEM : 0;
}

static void
cast(struct sti_save *save)
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

static void
vote(struct sti_save *save)
{
    note_speeds(save);
    cast(save);
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
static bool
is_tallied(struct sti_save *save)
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

static void
put_together(struct sti_save *save)
{
    save->first_stripe = save->n_stripes; /* this writer's own are done */
    if (save->saver->opts.world > 1)
        start_work(save, merge);
}

static int
check_merged(struct sti_save *save, struct sti_chore *chore)
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
    const struct sti_scan scan = {.dir_fd = directory(save)->dir_fd};
    struct sti_look *look = save->look;
    int dir_fd = sti_scan_part_path(&scan, &save->merged.manifest, look->n_seen, look->path,
                                    sizeof(look->path));

    if (dir_fd == -ENAMETOOLONG) {
        sti_save_fail(save, NULL, "look for the parts", dir_fd);
        return;
    }
    start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_STATX,
                                            .dir_fd = dir_fd,
                                            .path = look->path,
                                            .statx_mask = STATX_SIZE,
                                            .statx = &look->found});
}

static void
look_for_all(struct sti_save *save)
{
    if (save->saver->opts.world > 1)
        look_for_next(save);
}

static void
look_for_parts(struct sti_save *save)
{
    struct sti_manifest *manifest = &save->merged.manifest;

    if (save->saver->opts.world == 1)
        return;
    manifest->parts[manifest->n_parts++] = save->stripes[save->n_stripes - 1].part;
    look_for_next(save);
}

static int
check_seen(struct sti_save *save, struct sti_chore *chore)
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
                             name_of(save), save->step, part->writer, manifest->roots[part->root]);
    save->error.rank = (int)part->writer;
    return rc;
}

/* ---- the manifest ------------------------------------------------------------------ */

static void
encode(struct sti_aio_op *op)
{
    struct sti_chore *chore = op->context;
    struct sti_save *save = chore->save;

    if (save->saver->opts.world == 1) {
        encode_own(save, &save->manifest, sti_manifest_encode);
        return;
    }
    save->merged.manifest.created_ns = sti_clock_wall_ns();
    sti_manifest_encode(&save->merged.manifest, &save->manifest);
}

static void
make_commit_dir(struct sti_save *save)
{
    start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_MKDIR,
                                            .dir_fd = directory(save)->dir_fd,
                                            .path = save->commit_name,
                                            .mode = DIR_MODE,
                                            .work = encode,
                                            .work_lane = STI_LANE_NORMAL});
}

static int
check_commit_dir(struct sti_save *save, struct sti_chore *chore)
{
    if (chore->op.result < 0)
        return chore->op.result;
    save->has_commit_dir = true;
    if (save->manifest.is_failed)
        return -ENOMEM;
    return save->manifest.n_bytes < STI_MANIFEST_MAX_BYTES ? 0 : -EFBIG;
}

static void
open_manifest(struct sti_save *save)
{
    start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_OPEN,
                                            .dir_fd = directory(save)->dir_fd,
                                            .path = save->manifest_path,
                                            .open_flags = O_WRONLY | O_CREAT | O_EXCL,
                                            .mode = FILE_MODE});
}

static int
check_manifest_opened(struct sti_save *save, struct sti_chore *chore)
{
    if (chore->op.result < 0)
        return chore->op.result;
    save->manifest_fd = chore->op.result;
    return 0;
}

static void
write_manifest(struct sti_save *save)
{
    uint64_t left = save->manifest.n_bytes - save->manifest_done;

    start(&save->chore, (struct sti_aio_op){
                            .kind = STI_AIO_WRITE,
                            .fd = save->manifest_fd,
                            .bytes = save->manifest.bytes + save->manifest_done,
                            .n_bytes = (uint32_t)(left < MAX_WRITE_BYTES ? left : MAX_WRITE_BYTES),
                            .offset = save->manifest_done});
}

static int
check_manifest_written(struct sti_save *save, struct sti_chore *chore)
{
    if (chore->op.result <= 0)
        return chore->op.result < 0 ? chore->op.result : -EIO;
    save->manifest_done += (uint64_t)chore->op.result;
    if (save->manifest_done < save->manifest.n_bytes)
        write_manifest(save);
    return 0;
}

static void
sync_manifest(struct sti_save *save)
{
    start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_SYNC, .fd = save->manifest_fd});
}

static void
close_manifest(struct sti_save *save)
{
    start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_CLOSE, .fd = save->manifest_fd});
}

static void
sync_commit_dir(struct sti_save *save)
{
    start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_SYNC_DIR,
                                            .dir_fd = directory(save)->dir_fd,
                                            .path = save->commit_name});
}

static void
start_rename(struct sti_save *save, uint32_t flags)
{
    start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_RENAME,
                                            .dir_fd = directory(save)->dir_fd,
                                            .path = save->commit_name,
                                            .dir_fd2 = directory(save)->dir_fd,
                                            .path2 = save->step_name,
                                            .rename_flags = flags});
}

static void
commit(struct sti_save *save)
{
    start_rename(save, RENAME_NOREPLACE);
}

/*
 * Where the file system has no RENAME_NOREPLACE, a plain rename refuses a directory that
 * has something in it, as every checkpoint's has. Only these results say that nothing was
 * renamed.
 */
static int
check_committed(struct sti_save *save, struct sti_chore *chore)
{
    int rc = chore->op.result;

    if (chore->op.rename_flags != 0 && (rc == -EINVAL || rc == -ENOSYS || rc == -EOPNOTSUPP)) {
        start_rename(save, 0);
        return 0;
    }
    if (rc == -ENOTEMPTY)
        rc = -EEXIST;
    save->keep_parts = rc != -EEXIST;
    return rc;
}

static void
sync_directory(struct sti_save *save)
{
    start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_SYNC_DIR,
                                            .dir_fd = directory(save)->dir_fd,
                                            .path = "."});
}

/* ---- the verdict ------------------------------------------------------------------- */

static void
decide(struct sti_save *save)
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

static bool
is_decided(struct sti_save *save)
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

static void
wait_for_drains(struct sti_save *save)
{
    (void)save; /* the end of a drain wakes the loop */
}

static bool
may_drain(struct sti_save *save)
{
    return save->saver->opts.writer != 0 || sti_save_may_drain(save);
}

static void
acknowledge(struct sti_save *save)
{
    if (save->must_drain && save->result == 0)
        sti_save_announce_drain(save);
    sti_saver_acknowledge(save);
}

static const struct stage stages[] = {
    {"make directory", make_dirs, check_made, NULL, false},
    {"create", open_parts, check_opened, NULL, false},
    {"reserve space", reserve, check_reserved, NULL, false},
    {"write", begin_writing, NULL, is_written, false},
    {"set size", set_sizes, NULL, NULL, false},
    {"sync", sync_parts, NULL, NULL, false},
    {"close", close_parts, check_closed, NULL, false},
    {"sync directory", sync_part_dirs, NULL, NULL, false},
    {"sync root", sync_roots, NULL, NULL, false},
    {"make the ballot", make_ballot, check_ballot, NULL, false},
    {"vote", vote, NULL, is_tallied, false},
    {"put the ballots together", put_together, check_merged, NULL, true},
    {"make the header's directory", make_dirs, check_made, NULL, true},
    {"create the header", open_parts, check_opened, NULL, true},
    {"reserve the header's space", reserve, check_reserved, NULL, true},
    {"write the header", begin_writing, NULL, is_written, true},
    {"set the header's size", set_sizes, NULL, NULL, true},
    {"sync the header", sync_parts, NULL, NULL, true},
    {"close the header", close_parts, check_closed, NULL, true},
    {"sync the header's directory", sync_part_dirs, NULL, NULL, true},
    {"sync the header's root", sync_roots, NULL, NULL, true},
    {"look for the parts", look_for_parts, check_seen, NULL, true},
    {"make the manifest's directory", make_commit_dir, check_commit_dir, NULL, true},
    {"create the manifest", open_manifest, check_manifest_opened, NULL, true},
    {"write the manifest", write_manifest, check_manifest_written, NULL, true},
    {"sync the manifest", sync_manifest, NULL, NULL, true},
    {"close the manifest", close_manifest, check_closed, NULL, true},
    {"sync the manifest's directory", sync_commit_dir, NULL, NULL, true},
    {"commit", commit, check_committed, NULL, true},
    {"sync after the commit", sync_directory, NULL, NULL, true},
    {"wait for copies", wait_for_drains, NULL, may_drain, true},
    {"decide", decide, NULL, is_decided, false},
    {"acknowledge", acknowledge, NULL, NULL, false},
};
#define N_STAGES (sizeof(stages) / sizeof(stages[0]))

static const struct stage drain_stages[] = {
    {"make directory", make_dirs, check_made, NULL, false},
    {"open what was saved", open_sources, check_source_opened, NULL, false},
    {"create", open_parts, check_opened, NULL, false},
    {"reserve space", reserve, check_reserved, NULL, false},
    {"write", begin_writing, NULL, is_written, false},
    {"set size", set_sizes, NULL, NULL, false},
    {"sync", sync_parts, NULL, NULL, false},
    {"close", close_parts, check_closed, NULL, false},
    {"close what was saved", close_sources, check_source_closed, NULL, false},
    {"sync directory", sync_part_dirs, NULL, NULL, false},
    {"sync root", sync_roots, NULL, NULL, false},
    {"make the ballot", make_short_ballot, NULL, NULL, false},
    {"vote", vote, NULL, is_tallied, false},
    {"look for the parts", look_for_all, check_seen, NULL, true},
    {"make the manifest's directory", make_commit_dir, check_commit_dir, NULL, true},
    {"create the manifest", open_manifest, check_manifest_opened, NULL, true},
    {"write the manifest", write_manifest, check_manifest_written, NULL, true},
    {"sync the manifest", sync_manifest, NULL, NULL, true},
    {"close the manifest", close_manifest, check_closed, NULL, true},
    {"sync the manifest's directory", sync_commit_dir, NULL, NULL, true},
    {"commit", commit, check_committed, NULL, true},
    {"sync after the commit", sync_directory, NULL, NULL, true},
    {"decide", decide, NULL, is_decided, false},
    {"acknowledge", acknowledge, NULL, NULL, false},
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
        cast(save);
    decide(save);
}

static void
close_all(struct sti_save *save)
{
    start_on_files(save, STI_AIO_CLOSE);
    if (save->manifest_fd >= 0)
        close_manifest(save);
}

static void
unlink_all(struct sti_save *save)
{
    if (save->keep_parts)
        return;
    for (uint32_t at = 0; at < save->n_stripes; at++)
        if (save->stripes[at].is_made)
            start(&save->stripes[at].chore,
                  (struct sti_aio_op){.kind = STI_AIO_UNLINK,
                                      .dir_fd = save->stripes[at].root->dir_fd,
                                      .path = save->stripes[at].path});
    if (save->has_commit_dir)
        start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_UNLINK,
                                                .dir_fd = directory(save)->dir_fd,
                                                .path = save->manifest_path});
}

static void
remove_dirs(struct sti_save *save)
{
    if (save->keep_parts)
        return;
    start_on_paths(save, (struct sti_aio_op){.kind = STI_AIO_UNLINK,
                                             .path = save->parts_name,
                                             .unlink_flags = AT_REMOVEDIR});
    if (save->has_commit_dir)
        start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_UNLINK,
                                                .dir_fd = directory(save)->dir_fd,
                                                .path = save->commit_name,
                                                .unlink_flags = AT_REMOVEDIR});
}

static const struct stage undo_stages[] = {
    {"vote", vote_against, NULL, is_decided, false},
    {"close", close_all, check_closed, NULL, false},
    {"close what was saved", close_sources, check_source_closed, NULL, false},
    {"remove", unlink_all, ignore, NULL, false},
    {"remove directory", remove_dirs, ignore, NULL, false},
    {"acknowledge", acknowledge, NULL, NULL, false},
};
#define N_UNDO_STAGES (sizeof(undo_stages) / sizeof(undo_stages[0]))

static const struct stage *
current_stage(const struct sti_save *save)
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
    const struct stage *stage = current_stage(save);

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
        if (!is_member || !current_stage(save)->is_coordinators)
            current_stage(save)->start(save);
    }
}
