/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages of the manifest: written into a directory of its own, which one rename makes the
 * checkpoint.
 */
#include <errno.h>
#include <fcntl.h>

#include "base/clock.h"
#include "ckpt/save_stages.h"

#define DIR_MODE 0777
#define FILE_MODE 0666
#define MAX_WRITE_BYTES (UINT64_C(1) << 30)
#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE (1 << 0)
#endif

/* ---- the manifest ------------------------------------------------------------------ */

static void
encode(struct sti_aio_op *op)
{
    struct sti_chore *chore = op->context;
    struct sti_save *save = chore->save;

    if (save->saver->opts.world == 1) {
        sti_stage_encode_own(save, &save->manifest, sti_manifest_encode);
        return;
    }
    save->merged.manifest.created_ns = sti_clock_wall_ns();
    sti_manifest_encode(&save->merged.manifest, &save->manifest);
}

void
sti_stage_make_commit_dir(struct sti_save *save)
{
    sti_stage_start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_MKDIR,
                                                      .dir_fd = sti_stage_directory(save)->dir_fd,
                                                      .path = save->commit_name,
                                                      .mode = DIR_MODE,
                                                      .work = encode,
                                                      .work_lane = STI_LANE_NORMAL});
}

/* The manifest that was encoded is the one that is written. */
static int
take_encoded(struct sti_save *save)
{
    save->manifest_bytes = save->manifest.bytes;
    save->manifest_n_bytes = save->manifest.n_bytes;
    if (save->manifest.is_failed)
        return -ENOMEM;
    return save->manifest.n_bytes < STI_MANIFEST_MAX_BYTES ? 0 : -EFBIG;
}

int
sti_stage_check_commit_dir(struct sti_save *save, struct sti_chore *chore)
{
    if (chore->op.result < 0)
        return chore->op.result;
    save->has_commit_dir = true;
    return take_encoded(save);
}

/* ---- of several nodes -------------------------------------------------------------- */

void
sti_stage_look_for_step(struct sti_save *save)
{
    sti_stage_start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_STATX,
                                                      .dir_fd = sti_stage_directory(save)->dir_fd,
                                                      .path = save->step_name,
                                                      .statx_mask = STATX_TYPE,
                                                      .statx = &save->look->found});
}

int
sti_stage_check_free(struct sti_save *save, struct sti_chore *chore)
{
    (void)save;
    return chore->op.result == 0 ? -EEXIST : chore->op.result == -ENOENT ? 0 : chore->op.result;
}

void
sti_stage_encode(struct sti_save *save)
{
    struct sti_manifest *manifest = &save->merged.manifest;

    manifest->parts[manifest->n_parts++] = save->stripes[save->n_stripes - 1].part;
    sti_stage_start_work(save, encode);
}

int
sti_stage_check_encoded(struct sti_save *save, struct sti_chore *chore)
{
    return chore->op.result < 0 ? chore->op.result : take_encoded(save);
}

void
sti_stage_make_keepers_dir(struct sti_save *save)
{
    sti_stage_start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_MKDIR,
                                                      .dir_fd = sti_stage_directory(save)->dir_fd,
                                                      .path = save->commit_name,
                                                      .mode = DIR_MODE});
}

int
sti_stage_check_keepers_dir(struct sti_save *save, struct sti_chore *chore)
{
    if (chore->op.result < 0)
        return chore->op.result;
    save->has_commit_dir = true;
    return 0;
}

/* ---- its file ---------------------------------------------------------------------- */

void
sti_stage_open_manifest(struct sti_save *save)
{
    sti_stage_start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_OPEN,
                                                      .dir_fd = sti_stage_directory(save)->dir_fd,
                                                      .path = save->manifest_path,
                                                      .open_flags = O_WRONLY | O_CREAT | O_EXCL,
                                                      .mode = FILE_MODE});
}

int
sti_stage_check_manifest_opened(struct sti_save *save, struct sti_chore *chore)
{
    if (chore->op.result < 0)
        return chore->op.result;
    save->manifest_fd = chore->op.result;
    return 0;
}

void
sti_stage_write_manifest(struct sti_save *save)
{
    uint64_t left = save->manifest_n_bytes - save->manifest_done;

    sti_stage_start(
        &save->chore,
        (struct sti_aio_op){.kind = STI_AIO_WRITE,
                            .fd = save->manifest_fd,
                            .bytes = (char *)(uintptr_t)save->manifest_bytes + save->manifest_done,
                            .n_bytes = (uint32_t)(left < MAX_WRITE_BYTES ? left : MAX_WRITE_BYTES),
                            .offset = save->manifest_done});
}

int
sti_stage_check_manifest_written(struct sti_save *save, struct sti_chore *chore)
{
    if (chore->op.result <= 0)
        return chore->op.result < 0 ? chore->op.result : -EIO;
    save->manifest_done += (uint64_t)chore->op.result;
    if (save->manifest_done < save->manifest_n_bytes)
        sti_stage_write_manifest(save);
    return 0;
}

void
sti_stage_sync_manifest(struct sti_save *save)
{
    sti_stage_start(&save->chore,
                    (struct sti_aio_op){.kind = STI_AIO_SYNC, .fd = save->manifest_fd});
}

void
sti_stage_close_manifest(struct sti_save *save)
{
    sti_stage_start(&save->chore,
                    (struct sti_aio_op){.kind = STI_AIO_CLOSE, .fd = save->manifest_fd});
}

void
sti_stage_sync_commit_dir(struct sti_save *save)
{
    sti_stage_start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_SYNC_DIR,
                                                      .dir_fd = sti_stage_directory(save)->dir_fd,
                                                      .path = save->commit_name});
}

static void
start_rename(struct sti_save *save, uint32_t flags)
{
    sti_stage_start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_RENAME,
                                                      .dir_fd = sti_stage_directory(save)->dir_fd,
                                                      .path = save->commit_name,
                                                      .dir_fd2 = sti_stage_directory(save)->dir_fd,
                                                      .path2 = save->step_name,
                                                      .rename_flags = flags});
}

void
sti_stage_commit(struct sti_save *save)
{
    start_rename(save, RENAME_NOREPLACE);
}

/*
 * Where the file system has no RENAME_NOREPLACE, a plain rename refuses a directory that
 * has something in it, as every checkpoint's has. Only these results say that nothing was
 * renamed.
 */
int
sti_stage_check_committed(struct sti_save *save, struct sti_chore *chore)
{
    int rc = chore->op.result;

    if (chore->op.rename_flags != 0 && (rc == -EINVAL || rc == -ENOSYS || rc == -EOPNOTSUPP)) {
        start_rename(save, 0);
        return 0;
    }
    if (rc == -ENOTEMPTY)
        rc = -EEXIST;
    if (rc != -EEXIST) {
        save->keep_parts = true;
        save->has_renamed = true;
    }
    return rc;
}

void
sti_stage_sync_directory(struct sti_save *save)
{
    sti_stage_start(&save->chore, (struct sti_aio_op){.kind = STI_AIO_SYNC_DIR,
                                                      .dir_fd = sti_stage_directory(save)->dir_fd,
                                                      .path = "."});
}
