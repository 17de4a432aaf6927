/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of the fault method's file system that concern names: what is made,
 * renamed, removed, listed. Each changes the live names of one or two directories and
 * logs the same.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "io/aio.h"
#include "io/fault_fs.h"

/* Makes a node with a name. The directory must not have it. */
int
sti_fault_make_node(struct sti_fault_fs *fs, const struct sti_fault_place *place, uint32_t mode,
                    struct sti_fault_node **ret_node)
{
    struct sti_fault_change *change;

    if (place->dir->is_removed)
        return -ENOENT;
    change = sti_fault_change_new(fs, STI_FAULT_NAMES, place->dir);
    *ret_node = sti_fault_node_new(fs, mode);
    if (!change || !*ret_node ||
        sti_fault_names_set(&place->dir->live_names, place->name, *ret_node) < 0) {
        sti_fault_change_free(change);
        return -ENOMEM;
    }
    if (S_ISDIR(mode))
        (*ret_node)->parent = place->dir;
    sti_fault_change_name(change, place->name, *ret_node);
    sti_fault_change_add(fs, change);
    return 0;
}

int32_t
sti_fault_names_mkdir(struct sti_fault_fs *fs, const struct sti_aio_op *op)
{
    struct sti_fault_place place;
    struct sti_fault_node *node;
    int rc = sti_fault_find(fs, op->dir_fd, op->path, &place);

    if (rc < 0)
        return rc;
    if (place.node)
        return -EEXIST;
    return sti_fault_make_node(fs, &place, S_IFDIR | (op->mode & 07777), &node);
}

int32_t
sti_fault_names_unlink(struct sti_fault_fs *fs, const struct sti_aio_op *op)
{
    struct sti_fault_place place;
    struct sti_fault_change *change;
    bool is_dir = op->unlink_flags == AT_REMOVEDIR;
    int rc = sti_fault_find(fs, op->dir_fd, op->path, &place);

    if (rc < 0)
        return rc;
    if (op->unlink_flags != 0 && !is_dir)
        return -EINVAL;
    if (!place.node)
        return -ENOENT;
    if (place.name[0] == '\0')
        return -EBUSY;
    if (S_ISDIR(place.node->mode) != is_dir)
        return is_dir ? -ENOTDIR : -EISDIR;
    if (is_dir && place.node->live_names.n > 0)
        return -ENOTEMPTY;
    change = sti_fault_change_new(fs, STI_FAULT_NAMES, place.dir);
    if (!change)
        return -ENOMEM;
    (void)sti_fault_names_set(&place.dir->live_names, place.name, NULL); /* cannot fail */
    place.node->is_removed = is_dir;
    sti_fault_change_name(change, place.name, NULL);
    sti_fault_change_add(fs, change);
    return 0;
}

static int
check_rename(const struct sti_fault_place *from, const struct sti_fault_place *to, uint32_t flags)
{
    if (flags & ~(uint32_t)RENAME_NOREPLACE)
        return -EINVAL;
    if (!from->node || to->dir->is_removed)
        return -ENOENT;
    if (to->node && (flags & RENAME_NOREPLACE))
        return -EEXIST;
    if (from->name[0] == '\0' || to->name[0] == '\0')
        return -EBUSY;
    for (const struct sti_fault_node *node = to->dir; node; node = node->parent)
        if (node == from->node)
            return -EINVAL;
    if (!to->node || to->node == from->node)
        return 0;
    if (S_ISDIR(from->node->mode) && !S_ISDIR(to->node->mode))
        return -ENOTDIR;
    if (!S_ISDIR(from->node->mode) && S_ISDIR(to->node->mode))
        return -EISDIR;
    return to->node->live_names.n > 0 ? -ENOTEMPTY : 0;
}

/* One change within a directory. Between two: the new name, and the removal of the old
 * one, which is never found without the new one. */
static int
log_rename(struct sti_fault_fs *fs, const struct sti_fault_place *from,
           const struct sti_fault_place *to)
{
    struct sti_fault_change *change = sti_fault_change_new(fs, STI_FAULT_NAMES, to->dir);
    struct sti_fault_change *removal = NULL;

    if (change && from->dir != to->dir)
        removal = sti_fault_change_new(fs, STI_FAULT_NAMES, from->dir);
    if (!change || (from->dir != to->dir && !removal) ||
        sti_fault_names_set(&to->dir->live_names, to->name, from->node) < 0) {
        sti_fault_change_free(change);
        sti_fault_change_free(removal);
        return -ENOMEM;
    }
    sti_fault_change_name(change, to->name, from->node);
    sti_fault_change_name(removal ? removal : change, from->name, NULL);
    sti_fault_change_add(fs, change);
    if (removal) {
        removal->needs = change;
        if (S_ISDIR(from->node->mode))
            change->needs = removal;
        sti_fault_change_add(fs, removal);
    }
    return 0;
}

int32_t
sti_fault_names_rename(struct sti_fault_fs *fs, const struct sti_aio_op *op)
{
    struct sti_fault_place from = {0};
    struct sti_fault_place to = {0};
    int rc = sti_fault_find(fs, op->dir_fd, op->path, &from);

    if (rc == 0)
        rc = sti_fault_find(fs, op->dir_fd2, op->path2, &to);
    if (rc == 0)
        rc = check_rename(&from, &to, op->rename_flags);
    if (rc < 0 || from.node == to.node)
        return rc;
    rc = log_rename(fs, &from, &to);
    if (rc < 0)
        return rc;
    (void)sti_fault_names_set(&from.dir->live_names, from.name, NULL); /* cannot fail */
    if (to.node)
        to.node->is_removed = S_ISDIR(to.node->mode);
    if (S_ISDIR(from.node->mode))
        from.node->parent = to.dir;
    return 0;
}

int32_t
sti_fault_names_list(const struct sti_fault_fs *fs, const struct sti_aio_op *op)
{
    struct sti_fault_place place;
    int rc = sti_fault_find(fs, op->dir_fd, op->path, &place);

    if (rc < 0)
        return rc;
    if (!place.node)
        return -ENOENT;
    if (!S_ISDIR(place.node->mode))
        return -ENOTDIR;
    for (uint32_t at = 0; at < place.node->live_names.n && rc == 0; at++) {
        const struct sti_fault_entry *entry = &place.node->live_names.entries[at];

        rc = op->list_fn(op->list_context, entry->name,
                         (unsigned char)IFTODT(entry->node->mode)); /* DT_DIR or DT_REG */
    }
    return rc;
}

int32_t
sti_fault_names_statx(const struct sti_fault_fs *fs, const struct sti_aio_op *op)
{
    struct sti_fault_place place;
    int rc = sti_fault_find(fs, op->dir_fd, op->path, &place);

    if (rc < 0)
        return rc;
    if (!place.node)
        return -ENOENT;
    memset(op->statx, 0, sizeof(*op->statx));
    op->statx->stx_mask = STATX_BASIC_STATS;
    op->statx->stx_blksize = 4096;
    op->statx->stx_nlink = 1;
    op->statx->stx_mode = (uint16_t)place.node->mode;
    op->statx->stx_ino = place.node->ino;
    op->statx->stx_size = place.node->live.n_bytes;
    op->statx->stx_blocks = (place.node->live.n_bytes + 511) / 512;
    op->statx->stx_mtime.tv_nsec = (uint32_t)(place.node->changed_ns % 1000000000);
    op->statx->stx_mtime.tv_sec = (int64_t)(place.node->changed_ns / 1000000000);
    op->statx->stx_ctime = op->statx->stx_mtime;
    return 0;
}
