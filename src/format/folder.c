/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders. The order of class folders is torchvision's: classes are the sorted names of
 * the directories just below the root; in a class, directories come in the order of their
 * paths and in each its files in the order of their names, all compared as Python
 * compares str. Plain folders are sorted by the bytes of the relative path; that is the
 * order in which a walk meets the files if a directory is sorted among its siblings as if
 * its name ended in a slash.
 *
 * Invariant: the order depends on names alone, never on how the listings came in.
 */
#include "format/folder.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "format/name.h"
#include "format/options.h"
#include "io/aio.h"

#define SAMPLES_MAX (UINT64_C(1) << 48)

/* An index being made of a tree. */
struct folder {
    struct sti_index_writer *writer;
    struct sti_tree *tree;
    const stk_dataset_opts *opts;
    struct sti_index_head head;
    uint64_t next_sample;
};

/* What AUTO takes the tree for: class folders where a file that would be a sample of them
 * lies in some directory, else a plain folder. */
static uint32_t
recognise(const struct sti_tree *tree, const char *endings)
{
    for (uint32_t i = 0; i < tree->n_dirs; i++) {
        const struct sti_tree_dir *dir = tree->dirs[i];

        if (dir->top == STI_TREE_NONE)
            continue;
        for (uint32_t j = 0; j < dir->n_entries; j++) {
            const char *name = sti_tree_name(dir, &dir->entries[j]);

            if (dir->entries[j].kind != STI_TREE_DIR &&
                sti_name_has_ending(name, strlen(name), endings))
                return STK_FORMAT_CLASS_FOLDER;
        }
    }
    return STK_FORMAT_FOLDER;
}

/* Marks the samples of a directory. Returns how many there are. */
static uint64_t
select_in(struct folder *folder, struct sti_tree_dir *dir, const char *endings)
{
    size_t path_bytes = strlen(dir->path) + (*dir->path ? 1 : 0);
    uint64_t n = 0;

    for (uint32_t i = 0; i < dir->n_entries; i++) {
        struct sti_tree_entry *entry = &dir->entries[i];
        const char *name = sti_tree_name(dir, entry);
        size_t name_bytes = strlen(name);

        if (entry->kind == STI_TREE_DIR || !sti_name_has_ending(name, name_bytes, endings))
            continue;
        entry->kind = entry->kind == STI_TREE_SIZED ? STI_TREE_SAMPLE : STI_TREE_WANTED;
        folder->head.names_bytes += path_bytes + name_bytes + 1;
        n++;
    }
    folder->head.samples += n;
    return n;
}

static int
refuse_class(const struct folder *folder, const char *name, const char *endings, stk_error *err)
{
    bool is_any = strcmp(endings, "*") == 0;

    return sti_error_set_path(err, -EINVAL, folder->tree->shown,
                              "class \"%.64s\" holds no file%s%.64s (torchvision refuses it "
                              "too); remove the directory, %suse format folder",
                              name, is_any ? "" : " that ends in ", is_any ? "" : endings,
                              is_any ? "or " : "set extensions or ");
}

/* Marks all samples and counts them, their names and their classes. */
static int
select_samples(struct folder *folder, stk_error *err)
{
    bool is_class = folder->head.format == STK_FORMAT_CLASS_FOLDER;
    const char *endings = sti_options_endings(folder->opts, folder->head.format);
    const struct sti_tree *tree = folder->tree;
    uint64_t n_in_class = 0;

    for (uint32_t i = 0; i < tree->n_dirs; i++) {
        struct sti_tree_dir *dir = tree->dirs[i];

        folder->head.names_bytes += strlen(dir->path) + 1;
        if (is_class && dir->top == STI_TREE_NONE)
            continue;
        if (is_class && dir->top == i) { /* the first directory of a class */
            folder->head.names_bytes += strlen(dir->name) + 1;
            folder->head.classes++;
            n_in_class = 0;
        }
        n_in_class += select_in(folder, dir, endings);
        bool is_last = i + 1 == tree->n_dirs || tree->dirs[i + 1]->top != dir->top;
        if (is_class && is_last && n_in_class == 0)
            return refuse_class(folder, tree->dirs[dir->top]->name, endings, err);
    }
    if (is_class && folder->head.classes == 0)
        return sti_error_set_path(err, -EINVAL, tree->shown,
                                  "there is no directory in it, so there are no classes; use "
                                  "format folder for files without");
    if (folder->head.samples == 0)
        return strcmp(endings, "*") == 0
                   ? sti_error_set_path(err, -EINVAL, tree->shown,
                                        "the data set is empty: there is no file in it")
                   : sti_error_set_path(err, -EINVAL, tree->shown,
                                        "the data set is empty: no file ends in %.128s", endings);
    if (folder->head.samples > SAMPLES_MAX)
        return sti_error_set_path(err, -E2BIG, tree->shown, "there are more than 2^48 samples");
    return 0;
}

static void
put_sample(struct folder *folder, const struct sti_tree_dir *dir,
           const struct sti_tree_entry *entry, uint32_t label)
{
    sti_index_put_entry(folder->writer, folder->next_sample++, dir->path, sti_tree_name(dir, entry),
                        entry->n_bytes, label);
}

static void
put_classes(struct folder *folder)
{
    const struct sti_tree *tree = folder->tree;
    uint32_t class_idx = 0;

    for (uint32_t i = 0; i < tree->n_dirs; i++) {
        const struct sti_tree_dir *dir = tree->dirs[i];

        if (dir->top == STI_TREE_NONE)
            continue;
        if (dir->top == i)
            sti_index_put_class(folder->writer, class_idx++, dir->name);
        for (uint32_t j = 0; j < dir->n_entries; j++)
            if (dir->entries[j].kind == STI_TREE_SAMPLE)
                put_sample(folder, dir, &dir->entries[j], class_idx - 1);
    }
}

/* Compares two siblings by bytes; each ends in its end, '/' for a directory. */
static int
compare_siblings(const char *a, char a_end, const char *b, char b_end)
{
    size_t i = 0;

    while (a[i] && a[i] == b[i])
        i++;
    return (int)(unsigned char)(a[i] ? a[i] : a_end) - (int)(unsigned char)(b[i] ? b[i] : b_end);
}

static int
compare_children(const void *a, const void *b, void *context)
{
    struct sti_tree_dir *const *dirs = context;
    const struct sti_tree_dir *left = dirs[*(const uint32_t *)a];
    const struct sti_tree_dir *right = dirs[*(const uint32_t *)b];

    if (left->parent != right->parent)
        return left->parent < right->parent ? -1 : 1;
    return compare_siblings(left->name, '/', right->name, '/');
}

static int
compare_entries(const void *a, const void *b, void *context)
{
    const struct sti_tree_dir *dir = context;

    return strcmp(sti_tree_name(dir, a), sti_tree_name(dir, b));
}

/* A place in the walk: what of a directory has not been visited. */
struct frame {
    uint32_t dir_idx;
    uint32_t next_entry;
    uint32_t next_child; /* into the sorted children */
};

/* What the walk needs: all directories but the root, sorted by parent and then as
 * siblings. */
struct walk {
    uint32_t *children;
    uint32_t *first_child; /* of each directory: into children, and one more */
    struct frame *frames;
    uint32_t n_frames;
};

static void
walk_fini(struct walk *walk)
{
    sti_mem_free(walk->children);
    sti_mem_free(walk->first_child);
    sti_mem_free(walk->frames);
}

static int
walk_init(struct walk *walk, const struct sti_tree *tree)
{
    uint32_t n = tree->n_dirs;

    memset(walk, 0, sizeof(*walk));
    walk->children = sti_mem_new(n, sizeof(uint32_t));
    walk->first_child = sti_mem_new((size_t)n + 1, sizeof(uint32_t));
    walk->frames = sti_mem_new(PATH_MAX / 2 + 1, sizeof(struct frame)); /* no path is deeper */
    if (!walk->children || !walk->first_child || !walk->frames)
        return -ENOMEM;
    for (uint32_t i = 1; i < n; i++) {
        walk->children[i - 1] = i;
        walk->first_child[tree->dirs[i]->parent + 1]++;
    }
    for (uint32_t i = 0; i < n; i++)
        walk->first_child[i + 1] += walk->first_child[i];
    qsort_r(walk->children, n - 1, sizeof(uint32_t), compare_children, tree->dirs);
    return 0;
}

static void
walk_enter(struct walk *walk, const struct sti_tree *tree, uint32_t dir_idx)
{
    struct sti_tree_dir *dir = tree->dirs[dir_idx];

    /* Sorted already, unless names go beyond ASCII. */
    if (dir->n_entries > 1)
        qsort_r(dir->entries, dir->n_entries, sizeof(*dir->entries), compare_entries, dir);
    walk->frames[walk->n_frames++] =
        (struct frame){.dir_idx = dir_idx, .next_child = walk->first_child[dir_idx]};
}

/* Visits the next file or directory of the innermost frame, or leaves it. */
static void
walk_step(struct folder *folder, struct walk *walk)
{
    struct frame *frame = &walk->frames[walk->n_frames - 1];
    struct sti_tree_dir *const *dirs = folder->tree->dirs;
    const struct sti_tree_dir *dir = dirs[frame->dir_idx];
    const struct sti_tree_entry *entry = NULL;
    const char *child = NULL;

    while (frame->next_entry < dir->n_entries &&
           dir->entries[frame->next_entry].kind != STI_TREE_SAMPLE)
        frame->next_entry++;
    if (frame->next_entry < dir->n_entries)
        entry = &dir->entries[frame->next_entry];
    if (frame->next_child < walk->first_child[frame->dir_idx + 1])
        child = dirs[walk->children[frame->next_child]]->name;
    if (!entry && !child) {
        walk->n_frames--;
    } else if (!child ||
               (entry && compare_siblings(sti_tree_name(dir, entry), '\0', child, '/') < 0)) {
        frame->next_entry++;
        put_sample(folder, dir, entry, STI_INDEX_NO_LABEL);
    } else {
        walk_enter(walk, folder->tree, walk->children[frame->next_child++]);
    }
}

static int
put_plain(struct folder *folder)
{
    struct walk walk;
    int rc = walk_init(&walk, folder->tree);

    if (rc == 0) {
        walk_enter(&walk, folder->tree, 0);
        while (walk.n_frames > 0)
            walk_step(folder, &walk);
    }
    walk_fini(&walk);
    return rc;
}

static int
put_all(struct folder *folder)
{
    const struct sti_tree *tree = folder->tree;
    int rc = sti_index_writer_init(folder->writer, &folder->head);
    if (rc < 0)
        return rc;
    if (folder->head.format == STK_FORMAT_CLASS_FOLDER)
        put_classes(folder);
    else
        rc = put_plain(folder);
    if (rc < 0)
        return rc;
    sti_index_put_fingerprint(folder->writer);
    for (uint32_t i = 0; i < tree->n_dirs; i++) {
        struct sti_index_source source = {.path = tree->dirs[i]->path,
                                          .kind = STI_INDEX_DIRECTORY,
                                          .mtime_ns = tree->dirs[i]->mtime_ns};

        sti_index_put_source(folder->writer, i, &source);
    }
    return sti_index_seal(folder->writer);
}

int
sti_folder_index(struct sti_index_writer *writer, struct sti_tree *tree, struct sti_aio *aio,
                 const stk_dataset_opts *opts, stk_error *err)
{
    struct folder folder = {.writer = writer, .tree = tree, .opts = opts};
    struct sti_index_head *head = &folder.head;

    /* Before the format is known, every file that any of them could want is listed. */
    tree->endings = sti_options_endings(opts, opts->format);
    int rc = sti_tree_scan(tree, aio, err);
    if (rc < 0)
        return rc;
    if (sti_tree_sort(tree) < 0)
        return sti_error_set_path(err, -ENOMEM, tree->shown, "no memory to sort directories");
    head->auto_format = recognise(tree, sti_options_endings(opts, STK_FORMAT_CLASS_FOLDER));
    head->format = opts->format ? opts->format : head->auto_format;
    head->options_hash = sti_options_hash(opts, head->format);
    head->home_source = STI_INDEX_NO_HOME;
    head->sources = tree->n_dirs;
    rc = select_samples(&folder, err);
    if (rc == 0)
        rc = sti_tree_stat(tree, aio, err);
    if (rc < 0)
        return rc;
    rc = put_all(&folder);
    if (rc == -E2BIG)
        return sti_error_set_path(err, rc, tree->shown, "the sizes add up to more than 2^63");
    if (rc < 0)
        return sti_error_set_path(err, rc, tree->shown, "no memory for an index of %llu samples",
                                  (unsigned long long)head->samples);
    return 0;
}
