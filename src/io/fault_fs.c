/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live side of the fault method's file system: what a program sees. Each operation
 * changes the live state and puts the same change into the list of fault_disk.c. What can
 * fail (memory, checks) comes first, so an operation has its whole effect or none.
 */
#include "io/fault_fs.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "io/aio.h"

/* Far from real descriptors: a system call by mistake gives EBADF instead of doing
 * harm. */
#define FIRST_FD 1000000
#define MAX_FILE_BYTES (UINT64_C(1) << 30)
#define DIRECT_BYTES 512u

struct sti_fault_node *
sti_fault_node_new(struct sti_fault_fs *fs, uint32_t mode)
{
    struct sti_fault_node *node = sti_mem_new(1, sizeof(*node));

    if (!node)
        return NULL;
    node->mode = mode;
    node->ino = ++fs->n_nodes;
    node->changed_ns = fs->op_idx;
    node->next = fs->nodes;
    fs->nodes = node;
    return node;
}

int
sti_fault_fs_init(struct sti_fault_fs *fs)
{
    *fs = (struct sti_fault_fs){.root = NULL};
    fs->last = &fs->first;
    fs->root = sti_fault_node_new(fs, S_IFDIR | 0755);
    return fs->root ? 0 : -ENOMEM;
}

void
sti_fault_fs_fini(struct sti_fault_fs *fs)
{
    for (struct sti_fault_node *node = fs->nodes; node;) {
        struct sti_fault_node *next = node->next;

        sti_mem_free(node->live.bytes);
        sti_mem_free(node->durable.bytes);
        sti_mem_free(node->live_names.entries);
        sti_mem_free(node->durable_names.entries);
        sti_mem_free(node);
        node = next;
    }
    for (struct sti_fault_change *change = fs->first; change;) {
        struct sti_fault_change *next = change->next;

        sti_fault_change_free(change);
        change = next;
    }
    for (uint32_t at = 0; at < fs->n_handles; at++)
        sti_mem_free(fs->handles[at].path);
    sti_mem_free(fs->handles);
}

/* ---- descriptors and paths --------------------------------------------------------- */

static struct sti_fault_handle *
handle_of(const struct sti_fault_fs *fs, int fd)
{
    if (fd < FIRST_FD || (uint32_t)(fd - FIRST_FD) >= fs->n_handles)
        return NULL;
    struct sti_fault_handle *handle = &fs->handles[fd - FIRST_FD];
    return handle->node ? handle : NULL;
}

const char *
sti_fault_fs_path(const struct sti_fault_fs *fs, int fd)
{
    const struct sti_fault_handle *handle = handle_of(fs, fd);

    return handle ? handle->path : NULL;
}

static int32_t
handle_new(struct sti_fault_fs *fs, struct sti_fault_node *node, uint32_t flags, const char *path)
{
    uint32_t at = 0;
    char *copy = sti_mem_strdup(path);

    while (at < fs->n_handles && fs->handles[at].node)
        at++;
    if (copy && at == fs->n_handles) {
        struct sti_fault_handle *grown =
            sti_mem_resize(fs->handles, (size_t)fs->n_handles + 1, sizeof(*grown));

        if (!grown) {
            sti_mem_free(copy);
            return -ENOMEM;
        }
        fs->handles = grown;
        fs->n_handles++;
    }
    if (!copy)
        return -ENOMEM;
    fs->handles[at] = (struct sti_fault_handle){.node = node, .flags = flags, .path = copy};
    fs->n_open++;
    return FIRST_FD + (int32_t)at;
}

static int
start_of(const struct sti_fault_fs *fs, int dir_fd, const char *path, struct sti_fault_place *place)
{
    place->dir = fs->root;
    if (path[0] != '/' && dir_fd != AT_FDCWD) {
        const struct sti_fault_handle *handle = handle_of(fs, dir_fd);

        if (!handle)
            return -EBADF;
        if (!S_ISDIR(handle->node->mode))
            return -ENOTDIR;
        place->dir = handle->node;
    }
    place->node = place->dir;
    place->name[0] = '\0';
    return 0;
}

static int
step_into(struct sti_fault_place *place, const char *part, size_t n)
{
    if (!place->node)
        return -ENOENT;
    if (!S_ISDIR(place->node->mode))
        return -ENOTDIR;
    if (n >= STI_FAULT_NAME_BYTES)
        return -ENAMETOOLONG;
    if (n == 1 && part[0] == '.')
        return 0;
    if (n == 2 && part[0] == '.' && part[1] == '.') {
        if (place->node->parent)
            place->node = place->node->parent;
        place->dir = place->node;
        place->name[0] = '\0';
        return 0;
    }
    place->dir = place->node;
    memcpy(place->name, part, n);
    place->name[n] = '\0';
    place->node = sti_fault_names_find(&place->dir->live_names, place->name);
    return 0;
}

int
sti_fault_find(const struct sti_fault_fs *fs, int dir_fd, const char *path,
               struct sti_fault_place *place)
{
    int rc;

    if (path[0] == '\0')
        return -ENOENT;
    rc = start_of(fs, dir_fd, path, place);
    while (rc == 0 && *path) {
        size_t n = strcspn(path, "/");

        if (n > 0)
            rc = step_into(place, path, n);
        path += n;
        if (*path == '/' && place->node && !S_ISDIR(place->node->mode))
            return -ENOTDIR;
        path += strspn(path, "/");
    }
    return rc;
}

/* ---- bytes ------------------------------------------------------------------------- */

/* Changes the size, with a change that says so. */
static int
resize_node(struct sti_fault_fs *fs, struct sti_fault_node *node, uint64_t n_bytes)
{
    bool is_growing = n_bytes > node->live.n_bytes;
    struct sti_fault_change *change =
        sti_fault_change_new(fs, is_growing ? STI_FAULT_EXTEND : STI_FAULT_RESIZE, node);

    if (!change || sti_fault_bytes_resize(&node->live, n_bytes) < 0) {
        sti_fault_change_free(change);
        return -ENOMEM;
    }
    change->offset = n_bytes;
    node->changed_ns = fs->op_idx;
    sti_fault_change_add(fs, change);
    return 0;
}

static int
write_node(struct sti_fault_fs *fs, struct sti_fault_node *node, uint64_t offset, const void *from,
           uint64_t n_bytes)
{
    struct sti_fault_change *change;
    int rc = 0;

    if (n_bytes == 0)
        return 0;
    if (offset > MAX_FILE_BYTES || n_bytes > MAX_FILE_BYTES - offset)
        return -EFBIG;
    change = sti_fault_change_new(fs, STI_FAULT_WRITE, node);
    if (!change)
        return -ENOMEM;
    change->offset = offset;
    change->n_bytes = n_bytes;
    change->bytes = sti_mem_new(n_bytes, 1);
    if (!change->bytes)
        rc = -ENOMEM;
    /* The size is a change of its own: it may be found without the bytes. */
    if (rc == 0 && offset + n_bytes > node->live.n_bytes)
        rc = resize_node(fs, node, offset + n_bytes);
    if (rc < 0) {
        sti_fault_change_free(change);
        return rc;
    }
    memcpy(change->bytes, from, n_bytes);
    memcpy(node->live.bytes + offset, from, n_bytes);
    node->changed_ns = fs->op_idx;
    sti_fault_change_add(fs, change);
    return 0;
}

static bool
is_aligned(uint32_t flags, const struct sti_aio_op *op)
{
    uint64_t bits = op->offset | op->n_bytes | (uint64_t)(uintptr_t)op->bytes;

    return !(flags & O_DIRECT) || bits % DIRECT_BYTES == 0;
}

static int32_t
read_node(const struct sti_fault_node *node, uint32_t flags, const struct sti_aio_op *op,
          uint32_t limit_bytes)
{
    uint64_t n;

    if (S_ISDIR(node->mode))
        return -EISDIR;
    if (!is_aligned(flags, op) || op->offset > INT64_MAX)
        return -EINVAL;
    if (op->offset >= node->live.n_bytes)
        return 0;
    n = node->live.n_bytes - op->offset;
    if (n > op->n_bytes)
        n = op->n_bytes;
    if (n > limit_bytes)
        n = limit_bytes;
    if (n > 0)
        memcpy(op->bytes, node->live.bytes + op->offset, n);
    return (int32_t)n;
}

static int32_t
read_path(const struct sti_fault_fs *fs, const struct sti_aio_op *op, uint32_t limit_bytes)
{
    struct sti_fault_place place;
    int rc = sti_fault_find(fs, op->dir_fd, op->path, &place);

    if (rc < 0)
        return rc;
    if (!place.node)
        return -ENOENT;
    return read_node(place.node, op->open_flags, op, limit_bytes);
}

/* ---- operations on descriptors ----------------------------------------------------- */

static int32_t
open_path(struct sti_fault_fs *fs, const struct sti_aio_op *op)
{
    const uint32_t known = O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_DIRECTORY | O_DIRECT |
                           O_CLOEXEC | O_NOFOLLOW | O_NOATIME | O_PATH | O_LARGEFILE | O_NONBLOCK;
    bool is_writing = (op->open_flags & O_ACCMODE) != O_RDONLY;
    struct sti_fault_place place;
    int rc = sti_fault_find(fs, op->dir_fd, op->path, &place);

    if (rc < 0)
        return rc;
    if (op->open_flags & ~known)
        return -EINVAL; /* rather than to promise what is not emulated */
    if (!place.node && !(op->open_flags & O_CREAT))
        return -ENOENT;
    if (!place.node) {
        rc = sti_fault_make_node(fs, &place, S_IFREG | (op->mode & 07777), &place.node);
        if (rc < 0)
            return rc;
    } else if ((op->open_flags & O_CREAT) && (op->open_flags & O_EXCL)) {
        return -EEXIST;
    }
    assert(place.node);
    if (S_ISDIR(place.node->mode) && (is_writing || (op->open_flags & O_CREAT)))
        return -EISDIR;
    if (!S_ISDIR(place.node->mode) && (op->open_flags & O_DIRECTORY))
        return -ENOTDIR;
    if ((op->open_flags & O_TRUNC) && is_writing && place.node->live.n_bytes > 0)
        rc = resize_node(fs, place.node, 0);
    return rc < 0 ? rc : handle_new(fs, place.node, op->open_flags, op->path);
}

static int32_t
close_handle(struct sti_fault_fs *fs, struct sti_fault_handle *handle)
{
    sti_mem_free(handle->path);
    *handle = (struct sti_fault_handle){.node = NULL};
    fs->n_open--;
    return 0;
}

static int32_t
write_handle(struct sti_fault_fs *fs, const struct sti_fault_handle *handle,
             const struct sti_aio_op *op, uint32_t limit_bytes)
{
    uint32_t n = op->n_bytes < limit_bytes ? op->n_bytes : limit_bytes;

    if (!is_aligned(handle->flags, op))
        return -EINVAL;
    int rc = write_node(fs, handle->node, op->offset, op->bytes, n);
    return rc < 0 ? rc : (int32_t)n;
}

static int32_t
resize_handle(struct sti_fault_fs *fs, const struct sti_fault_handle *handle,
              const struct sti_aio_op *op)
{
    uint64_t end = op->offset;

    if (op->kind == STI_AIO_ALLOCATE) {
        if (op->length == 0)
            return -EINVAL;
        end = op->offset > MAX_FILE_BYTES || op->length > MAX_FILE_BYTES ? UINT64_MAX
                                                                         : end + op->length;
    }
    if (end > MAX_FILE_BYTES)
        return -EFBIG;
    if (end == handle->node->live.n_bytes ||
        (op->kind == STI_AIO_ALLOCATE && end < handle->node->live.n_bytes))
        return 0;
    return resize_node(fs, handle->node, end);
}

static int32_t
execute_on_handle(struct sti_fault_fs *fs, const struct sti_aio_op *op, uint32_t limit_bytes,
                  struct sti_fault_node **ret_synced)
{
    struct sti_fault_handle *handle = handle_of(fs, op->fd);
    bool is_writable;

    if (!handle)
        return -EBADF;
    if (op->kind == STI_AIO_CLOSE)
        return close_handle(fs, handle);
    if (handle->flags & O_PATH)
        return -EBADF;
    if (op->kind == STI_AIO_SYNC) {
        *ret_synced = handle->node;
        return 0;
    }
    is_writable = (handle->flags & O_ACCMODE) != O_RDONLY;
    if (op->kind == STI_AIO_READ)
        return (handle->flags & O_ACCMODE) == O_WRONLY
                   ? -EBADF
                   : read_node(handle->node, handle->flags, op, limit_bytes);
    if (!is_writable)
        return op->kind == STI_AIO_TRUNCATE ? -EINVAL : -EBADF;
    if (op->kind == STI_AIO_WRITE)
        return write_handle(fs, handle, op, limit_bytes);
    return resize_handle(fs, handle, op);
}

static int32_t
find_synced_dir(const struct sti_fault_fs *fs, const struct sti_aio_op *op,
                struct sti_fault_node **ret_synced)
{
    struct sti_fault_place place;
    int rc = sti_fault_find(fs, op->dir_fd, op->path, &place);

    if (rc < 0)
        return rc;
    if (!place.node)
        return -ENOENT;
    if (!S_ISDIR(place.node->mode))
        return -ENOTDIR;
    *ret_synced = place.node;
    return 0;
}

int32_t
sti_fault_fs_execute(struct sti_fault_fs *fs, const struct sti_aio_op *op, uint32_t limit_bytes,
                     struct sti_fault_node **ret_synced)
{
    *ret_synced = NULL;
    switch (op->kind) {
    case STI_AIO_READ_FILE:
        return read_path(fs, op, limit_bytes);
    case STI_AIO_OPEN:
        return open_path(fs, op);
    case STI_AIO_CLOSE:
    case STI_AIO_READ:
    case STI_AIO_WRITE:
    case STI_AIO_SYNC:
    case STI_AIO_TRUNCATE:
    case STI_AIO_ALLOCATE:
        return execute_on_handle(fs, op, limit_bytes, ret_synced);
    case STI_AIO_MKDIR:
        return sti_fault_names_mkdir(fs, op);
    case STI_AIO_RENAME:
        return sti_fault_names_rename(fs, op);
    case STI_AIO_UNLINK:
        return sti_fault_names_unlink(fs, op);
    case STI_AIO_SYNC_DIR:
        return find_synced_dir(fs, op, ret_synced);
    case STI_AIO_LIST:
        return sti_fault_names_list(fs, op);
    case STI_AIO_STATX:
        return sti_fault_names_statx(fs, op);
    case STI_AIO_KINDS:
        break;
    }
    return -EINVAL;
}

int
sti_fault_fs_put(struct sti_fault_fs *fs, const char *path, const void *bytes, uint64_t n_bytes)
{
    struct sti_fault_place place;
    struct sti_fault_change *change;
    struct sti_fault_node *node;
    int rc = sti_fault_find(fs, AT_FDCWD, path, &place);

    if (rc < 0)
        return rc;
    if (place.node && S_ISDIR(place.node->mode))
        return -EISDIR;
    if (n_bytes > MAX_FILE_BYTES)
        return -EFBIG;
    node = sti_fault_node_new(fs, S_IFREG | 0644);
    change = sti_fault_change_new(fs, STI_FAULT_NAMES, place.dir);
    if (!node || !change || sti_fault_bytes_write(&node->live, 0, bytes, n_bytes) < 0 ||
        sti_fault_bytes_write(&node->durable, 0, bytes, n_bytes) < 0 ||
        sti_fault_names_set(&place.dir->live_names, place.name, node) < 0) {
        sti_fault_change_free(change);
        return -ENOMEM;
    }
    sti_fault_change_name(change, place.name, node);
    change->is_durable = true;
    sti_fault_change_add(fs, change);
    return sti_fault_disk_sync(fs, place.dir, 0); /* covers nothing new, but folds */
}
