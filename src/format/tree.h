/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory tree as it is found: every directory below a root, symbolic links followed,
 * with the names in it in order. First all directories are listed, then the sizes of the
 * files that turned out to be wanted are asked for, both with many operations in flight.
 */
#ifndef STI_FORMAT_TREE_H
#define STI_FORMAT_TREE_H

#include <stddef.h>
#include <stdint.h>

#include <stoker/types.h>

struct sti_aio;

#define STI_TREE_NONE UINT32_MAX

enum sti_tree_kind {
    STI_TREE_FILE,    /* anything but a directory */
    STI_TREE_UNKNOWN, /* a symbolic link or of no told kind: not looked at yet */
    STI_TREE_DIR,
    STI_TREE_SIZED,  /* a regular file behind a link, its size is known */
    STI_TREE_WANTED, /* a file whose size is to be asked for */
    STI_TREE_SAMPLE  /* a file with its size */
};

struct sti_tree_entry {
    uint64_t n_bytes;
    uint32_t name_at; /* into the directory's names */
    uint8_t kind;     /* enum sti_tree_kind */
};

struct sti_tree_dir {
    char *path;                     /* relative to the root, "" for the root; owned */
    const char *name;               /* the last part of path */
    char *names;                    /* owned */
    struct sti_tree_entry *entries; /* owned; in Python's order of str */
    uint32_t n_entries;
    uint32_t entries_room;
    uint32_t names_bytes;
    uint32_t names_room;
    uint32_t parent; /* STI_TREE_NONE for the root */
    uint32_t top;    /* the directory just below the root that this is or lies in */
    uint64_t device;
    uint64_t inode;
    int64_t mtime_ns;    /* before it was listed */
    uint64_t names_hash; /* sum of sti_index_name_hash() over all names but indexes' */
    const struct sti_tree *tree;
};

struct sti_tree {
    struct sti_tree_dir **dirs; /* dirs[0] is the root; owned */
    uint32_t n_dirs;
    uint32_t dirs_room;
    int root_fd;         /* borrowed */
    const char *endings; /* borrowed; files that end otherwise may be left out */
    const char *shown;   /* borrowed: the root's path, for errors */
};

/*
 * Lists everything below root_fd. root_fd, endings and shown are set by the caller in a
 * tree that is otherwise zero. Errors, each with the path: -EACCES, -ELOOP,
 * -ENAMETOOLONG, -E2BIG, -ENOMEM, -EIO. The tree must be given to sti_tree_fini() in any
 * case.
 */
int
sti_tree_scan(struct sti_tree *tree, struct sti_aio *aio, stk_error *err);

/* Sorts the directories: the root, then by class, then by path, all in Python's order of
 * str, so that how the listings came in no longer shows. Errors: -ENOMEM. */
int
sti_tree_sort(struct sti_tree *tree);

/* Asks for the size of every WANTED entry, which becomes SAMPLE. Errors: -ENOENT a link
 * leads nowhere, -EINVAL no regular file, -EACCES, -ENOMEM, -EIO. */
int
sti_tree_stat(struct sti_tree *tree, struct sti_aio *aio, stk_error *err);

/* Frees what the tree owns; all zero is allowed. */
void
sti_tree_fini(struct sti_tree *tree);

static inline const char *
sti_tree_name(const struct sti_tree_dir *dir, const struct sti_tree_entry *entry)
{
    return dir->names + entry->name_at;
}

/* The directory that is this object of the file system, or STI_TREE_NONE. */
uint32_t
sti_tree_find(const struct sti_tree *tree, uint64_t device, uint64_t inode);

#endif
