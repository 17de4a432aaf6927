/* SPDX-License-Identifier: Apache-2.0 */
/* Stages of the parts: made, written, synced and closed, each on all roots at once. */
#include <errno.h>
#include <fcntl.h>

#include "ckpt/save_stages.h"

#define DIR_MODE 0777
#define FILE_MODE 0666

/* ---- parts ------------------------------------------------------------------------- */

void
sti_stage_make_dirs(struct sti_save *save)
{
    sti_stage_start_on_paths(
        save,
        (struct sti_aio_op){.kind = STI_AIO_MKDIR, .path = save->parts_name, .mode = DIR_MODE});
}

/* Another writer of the set may have made it; that no file is ever used again is seen to
 * by the exclusive open. */
int
sti_stage_check_made(struct sti_save *save, struct sti_chore *chore)
{
    (void)save;
    return chore->op.result == -EEXIST ? 0 : chore->op.result;
}

void
sti_stage_open_parts(struct sti_save *save)
{
    for (uint32_t at = save->first_stripe; at < save->n_stripes; at++) {
        struct sti_stripe *stripe = &save->stripes[at];
        uint32_t direct = stripe->root->dio.is_direct ? O_DIRECT : 0;

        sti_stage_start(&stripe->chore,
                        (struct sti_aio_op){.kind = STI_AIO_OPEN,
                                            .dir_fd = stripe->root->dir_fd,
                                            .path = stripe->path,
                                            .open_flags = O_WRONLY | O_CREAT | O_EXCL | direct,
                                            .mode = FILE_MODE});
    }
}

int
sti_stage_check_opened(struct sti_save *save, struct sti_chore *chore)
{
    (void)save;
    if (chore->op.result < 0)
        return chore->op.result;
    chore->stripe->fd = chore->op.result;
    chore->stripe->is_made = true;
    return 0;
}

/* A drain reads its parts where they were written. */
void
sti_stage_open_sources(struct sti_save *save)
{
    for (uint32_t at = 0; at < save->n_stripes; at++) {
        struct sti_stripe *stripe = &save->stripes[at];
        uint32_t direct = stripe->from_root->dio.is_direct ? O_DIRECT : 0;

        sti_stage_start(&stripe->chore, (struct sti_aio_op){.kind = STI_AIO_OPEN,
                                                            .dir_fd = stripe->from_root->dir_fd,
                                                            .path = stripe->from_path,
                                                            .open_flags = O_RDONLY | direct});
    }
}

int
sti_stage_check_source_opened(struct sti_save *save, struct sti_chore *chore)
{
    (void)save;
    if (chore->op.result < 0)
        return chore->op.result;
    chore->stripe->from_fd = chore->op.result;
    return 0;
}

void
sti_stage_close_sources(struct sti_save *save)
{
    for (uint32_t at = 0; at < save->n_stripes; at++)
        if (save->stripes[at].from_fd >= 0)
            sti_stage_start(
                &save->stripes[at].chore,
                (struct sti_aio_op){.kind = STI_AIO_CLOSE, .fd = save->stripes[at].from_fd});
}

int
sti_stage_check_source_closed(struct sti_save *save, struct sti_chore *chore)
{
    (void)save;
    chore->stripe->from_fd = -1; /* closed, whatever close has to say */
    return 0;
}

void
sti_stage_reserve(struct sti_save *save)
{
    for (uint32_t at = save->first_stripe; at < save->n_stripes; at++) {
        struct sti_stripe *stripe = &save->stripes[at];

        sti_stage_start(&stripe->chore, (struct sti_aio_op){.kind = STI_AIO_ALLOCATE,
                                                            .fd = stripe->fd,
                                                            .length = stripe->part.n_bytes});
    }
}

/* Where space cannot be reserved a full disk is found out by a write. */
int
sti_stage_check_reserved(struct sti_save *save, struct sti_chore *chore)
{
    int rc = chore->op.result;

    (void)save;
    return rc == -EOPNOTSUPP || rc == -ENOSYS || rc == -EINVAL || rc == -ENODEV ? 0 : rc;
}

void
sti_stage_begin_writing(struct sti_save *save)
{
    save->can_write = true; /* the pump does the rest */
}

bool
sti_stage_is_written(struct sti_save *save)
{
    for (uint32_t at = 0; at < save->n_stripes; at++)
        if (save->stripes[at].written_bytes < save->stripes[at].part.n_bytes)
            return false;
    return true;
}

/* The last block was padded; the file ends where the part does. */
void
sti_stage_set_sizes(struct sti_save *save)
{
    for (uint32_t at = save->first_stripe; at < save->n_stripes; at++) {
        struct sti_stripe *stripe = &save->stripes[at];

        if (stripe->part.n_bytes % stripe->root->dio.block_bytes != 0)
            sti_stage_start(&stripe->chore, (struct sti_aio_op){.kind = STI_AIO_TRUNCATE,
                                                                .fd = stripe->fd,
                                                                .offset = stripe->part.n_bytes});
    }
}

void
sti_stage_sync_parts(struct sti_save *save)
{
    sti_stage_start_on_files(save, STI_AIO_SYNC);
}

void
sti_stage_close_parts(struct sti_save *save)
{
    sti_stage_start_on_files(save, STI_AIO_CLOSE);
}

int
sti_stage_check_closed(struct sti_save *save, struct sti_chore *chore)
{
    if (chore->stripe)
        chore->stripe->fd = -1; /* closed, whatever close has to say */
    else
        save->manifest_fd = -1;
    return chore->op.result == -EINTR ? 0 : chore->op.result;
}

void
sti_stage_sync_part_dirs(struct sti_save *save)
{
    sti_stage_start_on_paths(
        save, (struct sti_aio_op){.kind = STI_AIO_SYNC_DIR, .path = save->parts_name});
}

void
sti_stage_sync_roots(struct sti_save *save)
{
    sti_stage_start_on_paths(save, (struct sti_aio_op){.kind = STI_AIO_SYNC_DIR, .path = "."});
}
