/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file system of the fault method: what programs see (live) and what would be found
 * after a crash (durable, plus changes of which any part may have reached the disk).
 * fault_fs.c and fault_names.c have the live side, fault_disk.c the other; nobody but
 * fault.c uses this.
 */
#ifndef STI_IO_FAULT_FS_H
#define STI_IO_FAULT_FS_H

#include <stdbool.h>
#include <stdint.h>

struct sti_aio_op;
struct sti_fault_node;

#define STI_FAULT_NAME_BYTES 256u /* with the zero */

struct sti_fault_bytes {
    char *bytes;
    uint64_t n_bytes;
    uint64_t capacity;
};

struct sti_fault_entry {
    char name[STI_FAULT_NAME_BYTES];
    struct sti_fault_node *node;
};

struct sti_fault_names {
    struct sti_fault_entry *entries;
    uint32_t n;
    uint32_t capacity;
};

/* A file or a directory. Nodes are freed with the file system only, since the durable
 * state may name what the live one has unlinked. */
struct sti_fault_node {
    struct sti_fault_node *next;
    uint64_t ino; /* 1 is the root; consecutive */
    uint32_t mode;
    uint64_t changed_ns;           /* logical: the number of the operation */
    struct sti_fault_node *parent; /* of a directory, live */
    bool is_removed;               /* a directory without a name: nothing can be made in it */
    struct sti_fault_bytes live;
    struct sti_fault_bytes durable;
    struct sti_fault_names live_names;
    struct sti_fault_names durable_names;
};

enum sti_fault_change_kind {
    STI_FAULT_EXTEND, /* the size grows to offset at least; zeros */
    STI_FAULT_RESIZE, /* the size becomes offset */
    STI_FAULT_WRITE,
    STI_FAULT_NAMES,
};

struct sti_fault_change {
    struct sti_fault_change *next;
    enum sti_fault_change_kind kind;
    struct sti_fault_node *node; /* the object whose sync covers it */
    uint64_t op_idx;
    uint64_t completed; /* 0, or the stamp of its operation's completion */
    bool is_durable;
    bool is_lost;                   /* a sync failed: no later one covers it */
    struct sti_fault_change *needs; /* this one is never found without that one */
    uint64_t offset;
    uint64_t n_bytes;
    char *bytes;
    /* NAMES: one or two names of the directory, each to be a node or (NULL) not to be. */
    uint32_t n_names;
    char names[2][STI_FAULT_NAME_BYTES];
    struct sti_fault_node *targets[2];
};

/* Where a path leads: its directory, its last name in that, and what has that name, if
 * anything. The name is "" where the path ends in the root or in "..". */
struct sti_fault_place {
    struct sti_fault_node *dir;
    struct sti_fault_node *node;
    char name[STI_FAULT_NAME_BYTES];
};

struct sti_fault_handle {
    struct sti_fault_node *node; /* NULL: free */
    uint32_t flags;
    char *path;
};

struct sti_fault_fs {
    struct sti_fault_node *nodes;
    struct sti_fault_node *root;
    uint64_t n_nodes;
    struct sti_fault_change *first; /* in the order in which they were made */
    struct sti_fault_change **last;
    struct sti_fault_handle *handles;
    uint32_t n_handles;
    uint32_t n_open;
    uint64_t op_idx; /* the operation being executed */
};

/* ---- fault_fs.c ---- */

/* Errors: -ENOMEM. */
int
sti_fault_fs_init(struct sti_fault_fs *fs);
void
sti_fault_fs_fini(struct sti_fault_fs *fs);

/*
 * Executes an operation on the live state; reads and writes do limit_bytes at most. A
 * sync only finds its object. ret_synced: the object of a sync, else NULL. Returns the
 * result.
 */
int32_t
sti_fault_fs_execute(struct sti_fault_fs *fs, const struct sti_aio_op *op, uint32_t limit_bytes,
                     struct sti_fault_node **ret_synced);

/* The path that an open descriptor was opened by; NULL if it is none. */
const char *
sti_fault_fs_path(const struct sti_fault_fs *fs, int fd);

/* See sti_fault_put_file(). */
int
sti_fault_fs_put(struct sti_fault_fs *fs, const char *path, const void *bytes, uint64_t n_bytes);

/* A node with no name yet, owned by fs; NULL: no memory. */
struct sti_fault_node *
sti_fault_node_new(struct sti_fault_fs *fs, uint32_t mode);

/* Follows a path. Errors: -ENOENT, -ENOTDIR, -EBADF, -ENAMETOOLONG for what is before its
 * end. */
int
sti_fault_find(const struct sti_fault_fs *fs, int dir_fd, const char *path,
               struct sti_fault_place *place);

/* ---- fault_names.c: each an operation, or a part of one ---- */

/* Makes a node with the name of a place that has none. Errors: -ENOENT, -ENOMEM. */
int
sti_fault_make_node(struct sti_fault_fs *fs, const struct sti_fault_place *place, uint32_t mode,
                    struct sti_fault_node **ret_node);
int32_t
sti_fault_names_mkdir(struct sti_fault_fs *fs, const struct sti_aio_op *op);
int32_t
sti_fault_names_unlink(struct sti_fault_fs *fs, const struct sti_aio_op *op);
int32_t
sti_fault_names_rename(struct sti_fault_fs *fs, const struct sti_aio_op *op);
int32_t
sti_fault_names_list(const struct sti_fault_fs *fs, const struct sti_aio_op *op);
int32_t
sti_fault_names_statx(const struct sti_fault_fs *fs, const struct sti_aio_op *op);

/* ---- fault_disk.c ---- */

/* Errors: -ENOMEM. What is new is zero. */
int
sti_fault_bytes_resize(struct sti_fault_bytes *bytes, uint64_t n_bytes);
int
sti_fault_bytes_write(struct sti_fault_bytes *bytes, uint64_t offset, const char *from,
                      uint64_t n_bytes);

/* Makes a name a node's, or (NULL) nobody's, which cannot fail. Errors: -ENOMEM. */
int
sti_fault_names_set(struct sti_fault_names *names, const char *name, struct sti_fault_node *node);
struct sti_fault_node *
sti_fault_names_find(const struct sti_fault_names *names, const char *name);

/* A change of a node by fs->op_idx, not in the list yet; NULL: no memory. */
struct sti_fault_change *
sti_fault_change_new(const struct sti_fault_fs *fs, enum sti_fault_change_kind kind,
                     struct sti_fault_node *node);
void
sti_fault_change_free(struct sti_fault_change *change);
void
sti_fault_change_add(struct sti_fault_fs *fs, struct sti_fault_change *change);
void
sti_fault_change_name(struct sti_fault_change *change, const char *name,
                      struct sti_fault_node *target);

/* The operation has completed, as the stamp-th one (from 1). */
void
sti_fault_disk_complete(struct sti_fault_fs *fs, uint64_t op_idx, uint64_t stamp);

/* A sync of node that covers what had completed up to stamp. Errors: -ENOMEM. */
int
sti_fault_disk_sync(struct sti_fault_fs *fs, struct sti_fault_node *node, uint64_t stamp);

/* The same sync, failed. */
void
sti_fault_disk_lose(struct sti_fault_fs *fs, const struct sti_fault_node *node, uint64_t stamp);

uint64_t
sti_fault_disk_variants(const struct sti_fault_fs *fs);

/* Fills an initialised, empty fs with what is left of another. Errors: -ENOMEM,
 * -EINVAL. */
int
sti_fault_disk_crash(struct sti_fault_fs *fs, const struct sti_fault_fs *from, uint64_t variant);

/* The next number of a seeded sequence. */
uint64_t
sti_fault_random(uint64_t *state);

#endif
