/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing old checkpoints, one operation after the other, from the newest on:
 *
 *   list -> for each: read its manifest -> look at its parts -> count it, or, when there
 *   are enough: rename it out of sight -> sync the directory -> unlink its parts
 *        -> remove their directories -> unlink the manifest -> remove it
 *
 * The rename comes first and is durable before anything is unlinked, so no crash leaves a
 * checkpoint under its name without its bytes. What was renamed and not finished is
 * finished the next time. What is not whole neither counts nor is touched: it may be of a
 * later version, or its root may come back. Invariant: nothing is removed before `keep`
 * whole ones that are newer, or protect_step, have been seen, and pinned_step never.
 */
#include "ckpt/retain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"

void
sti_retain_fini(struct sti_retain *retain)
{
    sti_manifest_fini(&retain->manifest);
    sti_mem_free(retain->found);
    sti_mem_free(retain->bytes);
    sti_mem_free(retain->statx);
    retain->found = NULL;
    retain->bytes = NULL;
    retain->statx = NULL;
}

/* ---- what there is ----------------------------------------------------------------- */

static bool
is_busy(const struct sti_retain *retain, uint64_t step)
{
    for (uint32_t at = 0; at < retain->n_busy; at++)
        if (retain->busy_steps[at] == step)
            return true;
    return false;
}

static int
note_entry(void *context, const char *name, unsigned char d_type)
{
    struct sti_retain *retain = context;
    struct sti_retain_found found = {0};
    enum sti_name_kind kind = sti_name_parse(name, &found.step, found.id);

    (void)d_type; /* what is not a directory has no manifest in it */
    if (kind != STI_NAME_STEP && kind != STI_NAME_GONE)
        return 0;
    if (kind == STI_NAME_STEP &&
        (found.step == retain->protect_step || is_busy(retain, found.step)))
        return 0; /* counted already */
    if (retain->n_found == retain->capacity) {
        uint32_t capacity = retain->capacity ? 2 * retain->capacity : 64;
        void *grown = sti_mem_resize(retain->found, capacity, sizeof(retain->found[0]));

        if (!grown)
            return -ENOMEM;
        retain->found = grown;
        retain->capacity = capacity;
    }
    found.is_gone = kind == STI_NAME_GONE;
    retain->found[retain->n_found++] = found;
    return 0;
}

/* What is half gone first, then the newest. */
static int
compare(const void *left, const void *right)
{
    const struct sti_retain_found *a = left;
    const struct sti_retain_found *b = right;

    if (a->is_gone != b->is_gone)
        return a->is_gone ? -1 : 1;
    if (a->step != b->step)
        return a->step > b->step ? -1 : 1;
    return strcmp(a->id, b->id);
}

/* ---- preparing operations ---------------------------------------------------------- */

static bool
prepare_read(struct sti_retain *retain, struct sti_aio_op *op)
{
    /* One byte more, so that a file that grew is seen to be another one. */
    uint64_t n_bytes = retain->statx->stx_size + 1;

    if (n_bytes > STI_MANIFEST_MAX_BYTES)
        return false;
    sti_mem_free(retain->bytes);
    retain->bytes = sti_mem_new(n_bytes, 1);
    if (!retain->bytes)
        return false;
    op->kind = STI_AIO_READ_FILE;
    op->path = retain->path;
    op->bytes = retain->bytes;
    op->n_bytes = (uint32_t)n_bytes;
    return true;
}

/* The path of the part's file or, with is_dir, of the directory that it lies in. */
static void
prepare_part_path(struct sti_retain *retain, struct sti_aio_op *op, bool is_dir)
{
    const struct sti_manifest *manifest = &retain->manifest;
    const struct sti_part *part = &manifest->parts[retain->part];
    const char *root = manifest->roots[part->root];
    char dir[STI_NAME_SIZE];
    char file[STI_NAME_SIZE];
    bool is_here = strcmp(root, ".") == 0;

    sti_name_make(dir, STI_NAME_PARTS, manifest->step, manifest->id);
    sti_name_part(file, part->writer, part->number, manifest->n_parts);
    int n = snprintf(retain->path, sizeof(retain->path), "%s%s%s%s%s", is_here ? "" : root,
                     is_here ? "" : "/", dir, is_dir ? "" : "/", is_dir ? "" : file);
    op->dir_fd = is_here ? retain->dir_fd : AT_FDCWD;
    /* A path that does not fit names nothing that can be there. */
    op->path = n > 0 && (size_t)n < sizeof(retain->path) ? retain->path : "/dev/null/too-long";
}

static void
prepare_unlink(struct sti_retain *retain, struct sti_aio_op *op, bool is_dir)
{
    prepare_part_path(retain, op, is_dir);
    op->kind = STI_AIO_UNLINK;
    op->unlink_flags = is_dir ? AT_REMOVEDIR : 0;
}

static void
prepare_statx(struct sti_retain *retain, struct sti_aio_op *op)
{
    op->kind = STI_AIO_STATX;
    op->statx = retain->statx;
    op->statx_mask = STATX_SIZE;
}

static void
prepare_manifest_path(struct sti_retain *retain, struct sti_aio_op *op)
{
    (void)snprintf(retain->path, sizeof(retain->path), "%s/%s", retain->name,
                   STI_MANIFEST_NAME); /* fits */
    op->path = retain->path;
}

/* Prepares the operation of the state; false: it has none, so what it is for is left. */
static bool
prepare(struct sti_retain *retain, struct sti_aio_op *op)
{
    *op = (struct sti_aio_op){.dir_fd = retain->dir_fd, .dir_fd2 = retain->dir_fd};
    switch (retain->state) {
    case STI_RETAIN_LIST:
        op->kind = STI_AIO_LIST;
        op->path = ".";
        op->list_fn = note_entry;
        op->list_context = retain;
        return true;
    case STI_RETAIN_SIZE:
        prepare_manifest_path(retain, op);
        prepare_statx(retain, op);
        return true;
    case STI_RETAIN_READ:
        return prepare_read(retain, op);
    case STI_RETAIN_LOOK:
        prepare_part_path(retain, op, false);
        prepare_statx(retain, op);
        return true;
    case STI_RETAIN_RENAME:
        op->kind = STI_AIO_RENAME;
        op->path = retain->name;
        op->path2 = retain->path2;
        return true;
    case STI_RETAIN_SYNC:
        op->kind = STI_AIO_SYNC_DIR;
        op->path = ".";
        return true;
    case STI_RETAIN_PART:
        prepare_unlink(retain, op, false);
        return true;
    case STI_RETAIN_PART_DIR:
        prepare_unlink(retain, op, true);
        return true;
    case STI_RETAIN_MANIFEST:
        op->kind = STI_AIO_UNLINK;
        prepare_manifest_path(retain, op);
        return true;
    case STI_RETAIN_MANIFEST_DIR:
        op->kind = STI_AIO_UNLINK;
        op->path = retain->name;
        op->unlink_flags = AT_REMOVEDIR;
        return true;
    case STI_RETAIN_OVER:
        break;
    }
    return false;
}

/* ---- going on ---------------------------------------------------------------------- */

static void
begin(struct sti_retain *retain)
{
    sti_manifest_fini(&retain->manifest);
    retain->part = 0;
    if (retain->at == retain->n_found) {
        retain->state = STI_RETAIN_OVER;
        return;
    }
    const struct sti_retain_found *found = &retain->found[retain->at];
    sti_name_make(retain->name, found->is_gone ? STI_NAME_GONE : STI_NAME_STEP, found->step,
                  found->id);
    retain->state = STI_RETAIN_SIZE;
}

static void
begin_next(struct sti_retain *retain)
{
    retain->at++;
    begin(retain);
}

static void
after_list(struct sti_retain *retain, int32_t result)
{
    if (result < 0) {
        retain->result = result;
        retain->state = STI_RETAIN_OVER;
        return;
    }
    if (retain->n_found > 0)
        qsort(retain->found, retain->n_found, sizeof(retain->found[0]), compare);
    begin(retain);
}

static bool
has_part(const struct sti_retain *retain)
{
    return retain->part < retain->manifest.n_parts;
}

/* Without its manifest what is half gone is only an empty directory. */
static void
after_size(struct sti_retain *retain, int32_t result)
{
    if (result == -ENOENT && retain->found[retain->at].is_gone)
        retain->state = STI_RETAIN_MANIFEST_DIR;
    else if (result < 0)
        begin_next(retain);
    else
        retain->state = STI_RETAIN_READ;
}

/* A whole checkpoint is one of those that stay, as long as there are not enough. */
static void
count(struct sti_retain *retain)
{
    if (retain->n_kept < retain->keep) {
        retain->n_kept++;
        begin_next(retain);
        return;
    }
    if (retain->manifest.step == retain->pinned_step) {
        begin_next(retain);
        return;
    }
    sti_name_make(retain->path2, STI_NAME_GONE, retain->manifest.step, retain->manifest.id);
    retain->part = 0;
    retain->state = STI_RETAIN_RENAME;
}

static void
after_read(struct sti_retain *retain, int32_t result)
{
    const struct sti_retain_found *found = &retain->found[retain->at];

    if (result < 0 ||
        sti_manifest_decode(&retain->manifest, retain->bytes, (uint64_t)result, NULL) < 0 ||
        retain->manifest.step != found->step) {
        begin_next(retain);
        return;
    }
    if (found->is_gone) /* whoever renamed it may not have come to the sync */
        retain->state = STI_RETAIN_SYNC;
    else if (has_part(retain))
        retain->state = STI_RETAIN_LOOK;
    else
        count(retain);
}

static void
after_look(struct sti_retain *retain, int32_t result)
{
    bool is_elsewhere = retain->is_of_node && (result == -ENOENT || result == -ENOTDIR);

    if (!is_elsewhere &&
        (result < 0 || retain->statx->stx_size != retain->manifest.parts[retain->part].n_bytes)) {
        begin_next(retain);
        return;
    }
    retain->part++;
    if (!has_part(retain))
        count(retain);
}

/* What is not there needs no removing; a directory that others still use stays theirs. */
static int
removal_result(int32_t result)
{
    return result == -ENOENT || result == -ENOTDIR || result == -ENOTEMPTY || result == -EEXIST
               ? 0
               : result;
}

/* Takes the result of the state's operation and goes to the next state. */
static void
advance(struct sti_retain *retain, int32_t result)
{
    switch (retain->state) {
    case STI_RETAIN_LIST:
        after_list(retain, result);
        return;
    case STI_RETAIN_SIZE:
        after_size(retain, result);
        return;
    case STI_RETAIN_READ:
        after_read(retain, result);
        return;
    case STI_RETAIN_LOOK:
        after_look(retain, result);
        return;
    case STI_RETAIN_RENAME:
        if (result == -ENOENT) { /* somebody else has removed it meanwhile */
            begin_next(retain);
            return;
        }
        (void)snprintf(retain->name, sizeof(retain->name), "%s", retain->path2); /* fits */
        retain->state = STI_RETAIN_SYNC;
        break;
    case STI_RETAIN_SYNC:
        retain->state = has_part(retain) ? STI_RETAIN_PART : STI_RETAIN_MANIFEST;
        break;
    case STI_RETAIN_PART:
        result = removal_result(result);
        retain->state = STI_RETAIN_PART_DIR;
        break;
    case STI_RETAIN_PART_DIR:
        result = removal_result(result);
        retain->part++;
        retain->state = has_part(retain) ? STI_RETAIN_PART : STI_RETAIN_MANIFEST;
        break;
    case STI_RETAIN_MANIFEST:
        result = removal_result(result);
        retain->state = STI_RETAIN_MANIFEST_DIR;
        break;
    case STI_RETAIN_MANIFEST_DIR:
        result = removal_result(result);
        retain->n_removed++;
        if (result == 0)
            begin_next(retain);
        break;
    case STI_RETAIN_OVER:
        return;
    }
    if (result < 0) {
        retain->result = result;
        retain->state = STI_RETAIN_OVER;
    }
}

bool
sti_retain_next(struct sti_retain *retain, struct sti_aio_op *op)
{
    if (!retain->statx) { /* the first call */
        retain->n_kept = retain->protect_step != UINT64_MAX ? 1 : 0;
        retain->statx = sti_mem_new(1, sizeof(*retain->statx));
        if (!retain->statx) {
            retain->result = -ENOMEM;
            return false;
        }
    } else {
        advance(retain, op->result);
    }
    while (retain->state != STI_RETAIN_OVER && !prepare(retain, op))
        begin_next(retain); /* its manifest cannot be read */
    return retain->state != STI_RETAIN_OVER;
}
